"""The page in a real browser: what it shows is what Python says, by mouse and by keyboard."""

import base64
import io
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image
from scipy.stats import kendalltau

from reorder.cli import app
from reorder.report import page
from reorder.report.figures import Picture
from reorder.report.page_images import own_images
from reorder.report.results import collect
from reorder.report.tables import Number, Table
from reorder.report.write import write_report

try:
    from playwright.sync_api import sync_playwright
except ImportError:
    pytest.skip("playwright is not installed; run: make test-browser", allow_module_level=True)

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None:
    pytest.skip(
        "NOT TESTED in a browser: chromium is missing; run: apt-get install chromium", allow_module_level=True
    )

PHONE, DESKTOP = (390, 844), (1280, 900)
SCREENSHOTS = Path(os.environ.get("SCREENSHOTS", "build/screenshots"))
GRID, EPOCHS = (6, 7), 12
LAST = 20  # moment: one for every epoch, and one more for the eight in which the policy learns


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def runs(tmp_path_factory, make_run):
    root = tmp_path_factory.mktemp("runs")
    return {
        "learned": make_run(root / "learned", grid=GRID, epochs=EPOCHS, sample=True),
        "fixed": make_run(root / "fixed", policy="none", order="row", grid=GRID, epochs=5),
        "other": make_run(root / "other", grid=(3, 5), epochs=20, seed=1),
    }


@pytest.fixture(scope="module")
def own(tmp_path_factory, make_run):
    """A page of a run whose images have their own orders, and of one that has one order; and the first."""
    root = tmp_path_factory.mktemp("own")
    run = make_run(root / "image", policy="image", grid=GRID, epochs=EPOCHS, sample=True)
    results = collect([run, make_run(root / "fixed", policy="none", grid=GRID, epochs=5)]).results
    shown = page.Page("Orders", [], [], [], results, own=own_images(results)[0])
    page.write_page(root / "index.html", shown)
    return root / "index.html", run


@pytest.fixture(scope="module")
def file(tmp_path_factory, runs):
    rows = [
        (f"{'<i>' * (i == 3)}order {i}", Number(value, 0.5), Number(i % 2), f"text {i}")
        for i, value in enumerate(
            (9.5, 100.25, 10.0, -3.0, 9.5, float("nan"), 71, 72, 73, 74, 75, 76, 77, 78)
        )
    ]
    table = Table(
        "main", "Accuracy by order", ("order", "top-1 (%)", "parity", "kind"), rows, ["± over images"]
    )
    figure = Figure(figsize=(9, 3))
    figure.subplots().plot([1, 3, 2])
    path = tmp_path_factory.mktemp("page") / "index.html"
    results = collect(list(runs.values())).results
    (main,) = (result for result in results if result.run is runs["learned"])
    figures = [Picture("curve", "A curve", figure)]
    shown = page.Page("Orders compared", ["A verdict."], [table], figures, results, group=page.setting(main))
    page.write_page(path, shown)
    return path


@pytest.fixture(scope="module")
def report(tmp_path_factory, make_run):
    """The page that the command writes, of a run that learns and of a fixed order."""
    root = tmp_path_factory.mktemp("report")
    make_run(root / "runs" / "learned", grid=GRID, epochs=5)
    make_run(root / "runs" / "fixed", policy="none", order="row", grid=GRID, epochs=5)
    arguments = ["report", str(root / "runs"), "-o", str(root / "out"), "--track", "2,3", "--track", "6,1"]
    app(arguments, standalone_mode=False)
    return root / "out" / "index.html"


@pytest.fixture
def opened(browser, file):
    """A function that opens the page; at the end there must be no complaint and nothing fetched."""
    contexts, complaints, visited = [], [], []

    def note(kind, text):
        if not text.startswith("data:") and text not in visited:
            complaints.append((kind, text))

    def visit(size=DESKTOP, path=file, **options):
        visited.append(path.as_uri())
        context = browser.new_context(viewport={"width": size[0], "height": size[1]}, **options)
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda message: note("console", message.text))
        tab.on("pageerror", lambda error: note("error", str(error)))
        tab.on("request", lambda request: note("request", request.url))
        tab.goto(path.as_uri())
        return tab

    yield visit
    for context in contexts:
        context.close()
    assert complaints == []


def choose(tab, name):
    tab.select_option(
        "#run", label=next(t for t in tab.locator("#run option").all_inner_texts() if name in t)
    )


def learned(tab):
    """Choose the run that learned, and go to its start."""
    choose(tab, "learned from spiral, seed 0")
    tab.locator("#moment").fill("0")


def order_at(run, moment):
    return np.argsort(-run.policy().logits[moment], kind="stable")


def expect_moment(tab, run, moment):
    """The path, the map and both tracked patches are those of the moment."""
    order = order_at(run, moment)
    slot_of = np.argsort(order)
    points = [(patch % GRID[1] + 0.5, patch // GRID[1] + 0.5) for patch in order]
    shown = tab.get_attribute("#path polyline", "points").split()
    assert [tuple(map(float, point.split(","))) for point in shown] == points
    start, end = tab.locator("#path circle").first, tab.locator("#path > rect").last
    assert (float(start.get_attribute("cx")), float(start.get_attribute("cy"))) == points[0]
    half = float(end.get_attribute("width")) / 2
    assert float(end.get_attribute("x")) + half == pytest.approx(points[-1][0])
    assert [int(text) for text in tab.locator("#map [role=gridcell]").all_inner_texts()] == slot_of.tolist()
    tracked = [GRID[0] // 2 * GRID[1] + GRID[1] // 2, order_at(run, 0)[0]]  # the central one and the first
    heads = [int(tab.get_attribute(f"#strip .head.{name}", "data-slot")) for name in "ab"]
    assert heads == [slot_of[patch] for patch in tracked]
    assert [int(tab.inner_text(f"#at-{name}")) for name in "ab"] == heads
    epoch, stage = run.policy().epochs[moment], run.policy().stages[moment]
    assert tab.inner_text("#at-epoch") == f"{epoch:g} of {EPOCHS}"
    assert tab.inner_text("#at-stage") == stage
    whole = int(epoch)  # the last epoch after which there was a look at the validation images
    top1 = f"{100 * run.metrics()[whole - 1]['validation_top1']:.1f}%" if whole else "–"  # noqa: RUF001
    assert tab.inner_text("#at-top1") == top1
    assert tab.inner_text("#top1-name") == "Validation top-1" + (f" after epoch {whole}" if whole else "")
    tau = kendalltau(slot_of, np.argsort(order_at(run, 0))).statistic
    assert float(tab.inner_text("#at-tau")) == pytest.approx(tau, abs=6e-4)


def test_it_opens_with_what_was_learned_at_its_end(opened, runs):
    tab = opened()
    assert tab.locator("#run option:checked").inner_text() == "learned from spiral, seed 0"
    expect_moment(tab, runs["learned"], LAST)


def drawn_path(tab):
    """The cells slot by slot, their opacity, and the points to which the path is drawn."""
    tiles = tab.locator("#path > rect[opacity][x]")
    opacities = [float(tile.get_attribute("opacity")) for tile in tiles.all()]
    cells = [(float(tile.get_attribute("x")), float(tile.get_attribute("y"))) for tile in tiles.all()]
    lines = tab.locator("#path line[stroke='#fff']").all()
    ends = [tuple(float(line.get_attribute(key)) for key in ("x2", "y2")) for line in lines]
    return cells, opacities, ends


def test_of_many_patches_a_stretch_of_the_path_is_drawn_over_the_colours_of_the_slots(
    opened, make_run, tmp_path
):
    run = make_run(tmp_path / "run", grid=(10, 12), epochs=5)
    page.write_page(tmp_path / "index.html", page.Page("Orders", [], [], [], collect([run]).results))
    tab = opened(path=tmp_path / "index.html")
    order = order_at(run, -1)
    assert tab.inner_text("#at-slot") == "slot 119 of 119"  # opens where the path ends
    tab.locator("#slot").fill("30")
    cells, opacities, ends = drawn_path(tab)
    assert cells == [(patch % 12, patch // 12) for patch in order]
    assert [opacity > 0.5 for opacity in opacities] == [slot <= 30 for slot in range(120)]
    assert ends == [(patch % 12 + 0.5, patch // 12 + 0.5) for patch in order[15:31]]
    assert tab.inner_text("#at-slot") == "slot 30 of 119"
    tab.focus("#slot")
    tab.keyboard.press("Home")
    assert drawn_path(tab)[2] == []
    tab.keyboard.press("ArrowRight")
    assert len(drawn_path(tab)[2]) == 1
    few = opened()  # all 42 patches can be seen at once
    assert not few.is_visible("#slot")
    assert few.locator("#path > rect[opacity][x]").count() == 0


def test_the_verdict_and_its_figure_come_first_and_fit_a_phone(opened, tmp_path, make_run):
    runs = [make_run(tmp_path / f"{policy}", policy, "row") for policy in ("none", "global")]
    for run, right in zip(runs, (30, 50), strict=True):
        run.write_correct(torch.arange(100) < right)
    text = write_report(runs, tmp_path / "report").verdicts[0]
    assert text.startswith(
        "The learned order is 20.0 ± 4.0 points better than row-major (1 seed, 100 images)"
    )
    tab = opened(PHONE, tmp_path / "report" / "index.html")
    assert tab.inner_text(".verdict") == text
    image = tab.locator("main img").first
    assert image.get_attribute("alt").startswith("Every way to read against fixed row-major")
    box = image.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= PHONE[0]
    verdict, table = (tab.locator(name).first.bounding_box()["y"] for name in (".verdict", "table"))
    assert verdict < box["y"] < table


def test_dragging_moves_the_path_and_the_tracked_patches(opened, runs):
    tab = opened()
    learned(tab)
    expect_moment(tab, runs["learned"], 0)
    range_ = tab.locator("#moment")
    range_.scroll_into_view_if_needed()
    box = range_.bounding_box()
    y = box["y"] + box["height"] / 2
    tab.mouse.move(box["x"] + 8, y)
    tab.mouse.down()
    seen = []
    for share in (0.4, 0.7, 1.0):
        tab.mouse.move(box["x"] + share * box["width"], y)
        seen.append(int(range_.input_value()))
        expect_moment(tab, runs["learned"], seen[-1])
    tab.mouse.up()
    assert 0 < seen[0] < seen[1] < seen[2] == LAST
    assert (order_at(runs["learned"], seen[0]) != order_at(runs["learned"], seen[1])).any()


def test_arrow_keys_go_moment_by_moment(opened, runs):
    tab = opened()
    learned(tab)
    tab.focus("#moment")
    for key, moment in (("ArrowRight", 1), ("End", LAST), ("ArrowLeft", LAST - 1), ("Home", 0)):
        tab.keyboard.press(key)
        expect_moment(tab, runs["learned"], moment)


def test_play_advances_and_pauses_and_never_starts_by_itself(opened):
    tab = opened()
    learned(tab)
    tab.clock.install()
    tab.clock.run_for(5000)
    assert tab.input_value("#moment") == "0"
    tab.focus("#play")
    tab.keyboard.press("Enter")
    assert tab.inner_text("#play").strip() == "Pause"
    assert tab.get_attribute("#readout", "aria-live") == "off"
    tab.clock.run_for(1300)
    assert tab.input_value("#moment") == "2"
    tab.keyboard.press("Enter")
    tab.clock.run_for(5000)
    assert tab.input_value("#moment") == "2"
    assert tab.get_attribute("#readout", "aria-live") == "polite"
    tab.click("#play")
    tab.clock.run_for(60_000)
    assert tab.input_value("#moment") == str(LAST)
    assert tab.inner_text("#play").strip() == "Play"
    tab.click("#play")  # from the beginning again
    assert tab.input_value("#moment") == "0"


def test_reduced_motion_slows_the_player(opened):
    tab = opened(reduced_motion="reduce")
    learned(tab)
    tab.clock.install()
    tab.click("#play")
    tab.clock.run_for(1300)
    assert tab.input_value("#moment") == "1"


def test_a_fixed_order_is_shown_and_said_not_to_move(opened, runs):
    tab = opened()
    choose(tab, "row, fixed, seed 0")
    assert "fixed order" in tab.inner_text("#remark")
    assert tab.is_disabled("#moment")
    assert tab.is_disabled("#play")
    shown = tab.get_attribute("#path polyline", "points").split()
    assert shown[: GRID[1] + 1] == [f"{x}.5,0.5" for x in range(GRID[1])] + ["0.5,1.5"]
    assert tab.locator("#path image").count() == 0  # it has no sample
    learned(tab)
    assert tab.locator("#path image").count() == 1


def expect_image(tab, run, number):
    """The path over the picture of an image, the map and both tracked patches are those of the image."""
    order = np.load(run.path / "own_orders.npz")["orders"][number - 1]
    slot_of = np.argsort(order).tolist()
    shown = tab.get_attribute("#path polyline", "points").split()
    points = [(patch % GRID[1] + 0.5, patch // GRID[1] + 0.5) for patch in order]
    assert [tuple(map(float, point.split(","))) for point in shown] == points
    assert (
        picture(tab).tolist() == (np.arange(168) + 168 * (number - 1)).reshape(12, 14).astype("u1").tolist()
    )
    assert [int(text) for text in tab.locator("#map [role=gridcell]").all_inner_texts()] == slot_of
    letters = {name: tab.locator(f"#map [role=gridcell].{name}").get_attribute("data-patch") for name in "ab"}
    for name, patch in letters.items():
        assert tab.inner_text(f"#at-{name}") == str(slot_of[int(patch)])
        assert tab.get_attribute(f"#strip .head.{name}", "data-slot") == str(slot_of[int(patch)])
    assert tab.inner_text("#at-image") == f"{number} of 3"
    assert tab.get_attribute("#image", "aria-valuetext") == f"image {number} of 3"
    assert tab.get_attribute("#path", "aria-label").startswith(f"Reading path over image {number} of 3, from")
    assert tab.get_attribute("#strip", "aria-label").startswith(f"Image {number} of 3: patch A is in slot")
    assert tab.inner_text("#map-heading") == f"Slot of each patch of image {number}"
    tau = kendalltau(slot_of, np.argsort(order_at(run, 0))).statistic
    assert float(tab.inner_text("#at-tau").replace("\N{MINUS SIGN}", "-")) == pytest.approx(tau, abs=6e-4)


def picture(tab):
    """The pixels of the image that the path is drawn over."""
    uri = tab.get_attribute("#path image", "href")
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.removeprefix("data:image/png;base64,")))))


def test_an_image_is_shown_in_the_order_that_it_has_of_its_own(opened, own):
    path, run = own
    tab = opened(path=path)
    assert tab.inner_text("#at-image") == "all"
    expect_moment(tab, run, LAST)  # the order of the logits that all images share
    tab.get_by_label("Image", exact=True).fill("2")
    expect_image(tab, run, 2)
    assert tab.is_disabled("#moment")
    tab.locator("#map [role=gridcell]").nth(9).click()
    expect_image(tab, run, 2)
    tab.locator("#image").fill("0")
    assert tab.inner_text("#map-heading") == "Logits, with the slot of each patch"
    assert tab.get_attribute("#path", "aria-label").startswith("Reading path over a sample image")
    tab.locator("#moment").fill("0")
    assert tab.inner_text("#at-epoch") == f"0 of {EPOCHS}"


def test_arrow_keys_go_from_image_to_image(opened, own):
    path, run = own
    tab = opened(path=path)
    tab.focus("#image")
    for key, number in (("ArrowRight", 1), ("ArrowRight", 2), ("End", 3), ("ArrowLeft", 2)):
        tab.keyboard.press(key)
        expect_image(tab, run, number)
    tab.keyboard.press("Home")
    assert tab.inner_text("#at-image") == "all"
    expect_moment(tab, run, LAST)


def test_play_shows_one_image_after_another_once_one_is_chosen(opened, own):
    path, run = own
    tab = opened(path=path)
    tab.clock.install()
    tab.locator("#image").fill("1")
    tab.click("#play")
    tab.clock.run_for(1600)
    expect_image(tab, run, 2)
    tab.clock.run_for(60_000)
    expect_image(tab, run, 3)
    assert tab.inner_text("#play").strip() == "Play"
    tab.click("#play")  # from the first image again
    expect_image(tab, run, 1)
    tab.locator("#image").fill("0")  # which pauses
    tab.click("#play")
    assert tab.input_value("#moment") == "0"


def test_images_cannot_be_chosen_in_a_run_with_one_order_for_all(opened, own):
    path, _ = own
    tab = opened(path=path)
    assert tab.is_visible("#image")
    tab.locator("#image").fill("2")
    choose(tab, "spiral, fixed, seed 0")
    assert not tab.is_visible("#image")
    assert not tab.is_visible("#at-image")
    assert tab.get_attribute("#path", "aria-label").startswith("Reading path over a sample image")
    assert tab.inner_text("#map-heading") == "Slot of each patch"
    choose(tab, "each image's own")
    assert (tab.is_visible("#image"), tab.inner_text("#at-image")) == (True, "all")
    assert not opened().is_visible("#image")  # and not on a page without such a run


@pytest.mark.parametrize(("name", "size"), [("phone-images", PHONE), ("desktop-images", DESKTOP)])
def test_the_player_of_images_fits_the_screen(opened, own, name, size):
    tab = opened(size, own[0])
    tab.locator("#image").fill("2")
    assert tab.evaluate("document.documentElement.scrollWidth") <= size[0]
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    tab.locator("#player").screenshot(path=SCREENSHOTS / f"{name}.png")


def test_the_control_is_said_to_learn_nothing(opened, tmp_path, make_run):
    run = make_run(tmp_path / "noise", policy="noise", order="row", grid=GRID, epochs=EPOCHS)
    page.write_page(tmp_path / "index.html", page.Page("Orders", [], [], [], collect([run]).results))
    tab = opened(path=tmp_path / "index.html")
    choose(tab, "row, equal noise, seed 0")
    assert tab.inner_text("#remark").startswith("The control: batches were read with the noise of learning")
    assert tab.is_disabled("#moment")
    assert tab.is_disabled("#play")
    assert tab.inner_text("#map-heading") == "Logits, with the slot of each patch"
    assert [tab.inner_text(f"#{end}") for end in ("low", "high")] == ["\N{MINUS SIGN}1.00", "0.00"]
    expect_moment(tab, run, LAST)  # frozen, in row-major order


def test_patches_are_tracked_by_click_and_by_keyboard(opened, runs):
    tab = opened()
    learned(tab)
    slot_of = np.argsort(order_at(runs["learned"], 0))
    tab.locator("#map [role=gridcell]").nth(9).click()
    assert tab.inner_text("#at-a") == str(slot_of[9])
    tab.locator("input[name=which]").nth(1).check()
    svg = tab.locator("#path")
    svg.scroll_into_view_if_needed()
    box = svg.bounding_box()
    svg.click(position={"x": 2.5 / GRID[1] * box["width"], "y": 3.5 / GRID[0] * box["height"]})
    patch = 3 * GRID[1] + 2
    assert tab.inner_text("#at-b") == str(slot_of[patch])
    tab.locator("#map [role=gridcell][tabindex='0']").focus()
    for key in ("ArrowRight", "ArrowDown", "Enter"):
        tab.keyboard.press(key)
    assert tab.inner_text("#at-b") == str(slot_of[patch + 1 + GRID[1]])
    label = tab.evaluate("document.activeElement.getAttribute('aria-label')")
    assert label.startswith("row 5, column 4: slot")
    assert label.endswith("tracked as B")


def test_the_command_says_which_patches_are_tracked(opened, report):
    tab = opened(path=report)
    for name in ("learned from spiral", "row, fixed"):
        choose(tab, name)
        for letter, patch in (("a", 1 * GRID[1] + 2), ("b", 5 * GRID[1] + 0)):
            (cell,) = tab.locator(f"#map [role=gridcell].{letter}").all()
            assert cell.get_attribute("data-patch") == str(patch)
            assert tab.inner_text(f"#at-{letter}") == cell.inner_text()
    assert tab.inner_text("#at-b") == "35"  # row-major, nothing moved


@pytest.mark.parametrize("size", [PHONE, DESKTOP])
def test_the_bar_of_stages_is_aligned_with_the_slider_and_every_stage_is_named(
    opened, make_run, size, tmp_path
):
    """Of a short run, the policy stage has most of the moments, and the others little room."""
    run = make_run(tmp_path / "run", epochs=5, looks=20)
    page.write_page(tmp_path / "index.html", page.Page("Orders", [], [], [], collect([run]).results))
    tab = opened(size, tmp_path / "index.html")
    slider = tab.locator("#moment")
    slider.scroll_into_view_if_needed()
    box = slider.bounding_box()
    lasts = []
    for part in tab.locator(".stages i").all():
        edge = part.bounding_box()
        slider.fill("20")  # away from where the click goes
        tab.mouse.click(edge["x"] + edge["width"], box["y"] + box["height"] / 2)
        lasts.append((int(slider.input_value()), tab.inner_text("#at-stage")))
    assert lasts == [(2, "warm-up"), (42, "policy"), (43, "frozen")]
    inside = tab.locator(".stages i:not(.narrow)").all()
    assert all(part.evaluate("part => part.scrollWidth <= part.clientWidth") for part in inside)
    below = tab.locator(".stage-keys .key:visible").all_inner_texts()
    assert sorted(below + [part.inner_text() for part in inside]) == ["frozen", "policy", "warm-up"]
    assert "frozen" in below


def test_links_go_to_all_parts_of_the_page(opened, report):
    tab = opened(path=report)
    links = tab.locator("nav a")
    headings = tab.locator("main h2")
    assert links.all_inner_texts() == ["Results", "Player", "Curves", "All runs"]
    assert headings.count() == links.count()
    seen = "box => { const { top } = box.getBoundingClientRect(); return top >= 0 && top < innerHeight; }"
    for i, link in enumerate(links.all()):
        tab.evaluate("scrollTo(0, 0)")
        assert i == 0 or not headings.nth(i).evaluate(seen)
        link.focus()
        tab.keyboard.press("Enter")
        assert headings.nth(i).evaluate(seen), link.inner_text()


def test_a_folded_table_opens_and_closes_by_keyboard(opened, report):
    tab = opened(path=report)
    table = tab.locator("#table-runs")
    assert not table.is_visible()
    focused = ""
    for _ in range(80):
        tab.keyboard.press("Tab")
        focused = tab.evaluate("document.activeElement.textContent")
        if focused.startswith("Show "):
            break
    assert focused == "Show 2 rows"
    tab.keyboard.press("Enter")
    assert table.is_visible()
    assert table.locator("tbody tr").count() == 2
    tab.keyboard.press("Space")
    assert not table.is_visible()


def test_headings_stay_in_view_while_a_long_table_scrolls(opened):
    tab = opened((1280, 400))
    box = tab.locator(".scroll.rows", has=tab.locator("#table-main"))
    box.scroll_into_view_if_needed()
    box.focus()
    tab.keyboard.press("End")
    tab.wait_for_function(
        "box => box.scrollTop + box.clientHeight >= box.scrollHeight - 1", arg=box.element_handle()
    )
    edge, heading = box.bounding_box(), tab.locator("#table-main th button").first
    assert tab.locator("#table-main tbody tr").first.bounding_box()["y"] < edge["y"]
    there = heading.bounding_box()
    assert edge["y"] <= there["y"] < edge["y"] + 5
    on_top = "([x, y]) => document.elementFromPoint(x, y).textContent"
    assert tab.evaluate(on_top, [there["x"] + 9, there["y"] + there["height"] / 2]) == "order"


def column(tab, number):
    return tab.locator(f"#table-main tbody tr > :nth-child({number})").all_inner_texts()


def test_tables_sort_both_ways_by_value(opened):
    tab = opened()
    heading = tab.locator("#table-main th[scope=col]").nth(1)
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") == "ascending"
    values = [text.split()[0] for text in column(tab, 2)]
    assert values[:4] == ["-3.00", "9.50", "9.50", "10.00"]
    assert values[-2:] == ["100.25", "nan"]
    assert column(tab, 1)[1:3] == ["order 0", "order 4"]  # equal values stay as they were
    heading.locator("button").focus()
    tab.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") == "descending"
    values = [text.split()[0] for text in column(tab, 2)]
    assert (values[0], values[-2:]) == ("100.25", ["-3.00", "nan"])
    tab.locator("#table-main th[scope=col] button").first.click()
    assert column(tab, 1)[:3] == ["<i>order 3", "order 0", "order 1"]
    assert heading.get_attribute("aria-sort") is None


def test_long_tables_can_be_filtered(opened):
    tab = opened()
    tab.get_by_label("Show rows with").fill("TEXT 00.2 order")
    assert tab.locator("#table-main tbody tr:visible th").all_inner_texts() == []
    tab.get_by_label("Show rows with").fill("TEXT 100.2 ord")  # beginnings of words, in any order
    assert tab.locator("#table-main tbody tr:visible th").all_inner_texts() == ["order 1"]
    assert tab.inner_text(".filter [role=status]") == "1 of 14"


def test_the_runs_of_the_curves_can_be_filtered(opened):
    tab = opened()
    tab.get_by_text("Choose runs").click()
    every = tab.locator("#choices label").count()
    tab.get_by_label("Show runs with").fill("learned")
    shown = tab.locator("#choices label:visible").count()
    assert 0 < shown < every
    assert tab.inner_text("#curve-filter [role=status]") == f"{shown} of {every}"


def test_curves_are_read_by_pointer_and_keyboard(opened, runs):
    tab = opened()
    chart = tab.locator("#chart-top1")
    chart.scroll_into_view_if_needed()
    chart.focus()
    tab.keyboard.press("Home")
    tab.keyboard.press("ArrowRight")
    assert "epoch 2 " in tab.inner_text("#curve-epoch")
    values = tab.locator("#values tr").all_inner_texts()
    line = runs["learned"].metrics()[1]
    wanted = f"{100 * line['validation_top1']:.1f}\t{line['validation_loss']:.3f}"
    assert any("learned from spiral, seed 0" in text and text.endswith(wanted) for text in values)
    box = chart.bounding_box()
    tab.mouse.move(box["x"] + box["width"] - 13, box["y"] + 50)
    assert "epoch 20 of 20" in tab.inner_text("#curve-epoch")
    assert len(tab.locator("#chart-loss .line").all()) == 3
    tab.locator("#curves summary").click()
    tab.get_by_label("row, fixed, seed 0").uncheck()
    assert len(tab.locator("#chart-loss .line").all()) == 2


NAMED = {
    "button",
    "combobox",
    "slider",
    "checkbox",
    "radio",
    "searchbox",
    "gridcell",
    "grid",
    "image",
    "region",
}


def test_everything_has_an_accessible_name(opened):
    tab = opened()
    tab.locator("#curves summary").click()
    nodes = tab.context.new_cdp_session(tab).send("Accessibility.getFullAXTree")["nodes"]
    seen = set()
    for node in nodes:
        role = node.get("role", {}).get("value")
        if not node["ignored"] and role in NAMED:
            seen.add(role)
            assert node.get("name", {}).get("value", "").strip(), node
    assert seen == NAMED
    roles = [node.get("role", {}).get("value") for node in nodes if not node["ignored"]]
    assert {"main", "banner", "contentinfo"} <= set(roles)
    assert tab.get_attribute("html", "lang") == "en"
    levels = tab.evaluate("[...document.querySelectorAll('h1,h2,h3')].map(h => h.tagName)")
    assert levels[0] == "H1"
    assert levels.count("H1") == 1


def test_tab_reaches_every_control_and_focus_is_seen(opened):
    tab = opened()
    reached = set()
    for _ in range(40):
        tab.keyboard.press("Tab")
        name, outline = tab.evaluate(
            "[document.activeElement.id || document.activeElement.getAttribute('role'),"
            " getComputedStyle(document.activeElement).outlineStyle]"
        )
        reached.add(name)
        assert outline != "none" or tab.evaluate("document.activeElement === document.body"), name
    assert {"run", "play", "moment", "gridcell", "chart-top1", "chart-loss", "filter-main"} <= reached


@pytest.mark.parametrize(
    ("name", "size", "scheme"),
    [
        ("phone", PHONE, "light"),
        ("desktop", DESKTOP, "light"),
        ("phone-dark", PHONE, "dark"),
        ("dark", DESKTOP, "dark"),
    ],
)
def test_it_fits_the_screen(opened, name, size, scheme):
    tab = opened(size, color_scheme=scheme)
    learned(tab)
    tab.focus("#moment")
    for _ in range(5):
        tab.keyboard.press("ArrowRight")
    assert tab.evaluate("document.documentElement.scrollWidth") <= size[0]
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    tab.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)
    background = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(252, 251, 248)", "dark": "rgb(19, 20, 24)"}[scheme]
