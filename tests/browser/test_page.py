"""The page as a file: complete, self-contained, safe with any name, and small enough to send."""

import base64
import io
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image
from scipy.stats import kendalltau

from reorder.report import page
from reorder.report.figures import Picture
from reorder.report.page_images import own_images
from reorder.report.result_tables import orders_table, runs_table
from reorder.report.results import collect
from reorder.report.tables import Number, Table
from reorder.report.write import write_report
from reorder.runs.read_images import ReadImages

TABLE = Table(
    "accuracy",
    "Accuracy & its error",
    ("order", "top-1 (%)", "images/s"),
    [("row", Number(91.236, 1.5), Number(1200.4, digits=0)), ("<b>hilbert", Number(9.5, 0.25), "none")],
    ["± is over images", "a < b"],
)


def picture(name="curve"):
    figure = Figure(figsize=(4, 3))
    figure.subplots().plot([1, 3, 2])
    return Picture(name, 'A "curve" of three points', figure)


class Reader(HTMLParser):
    """Every start tag with its attributes, and the text of every cell, script and list item."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.open = [], {}, []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.open.append(tag)
        self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        for tag in set(self.open):
            self.texts[tag][-1] += data


def read(path):
    reader = Reader(path.read_text())
    data = next(
        json.loads(text)
        for (_, attributes), text in zip(
            [tag for tag in reader.tags if tag[0] == "script"], reader.texts["script"], strict=True
        )
        if attributes.get("type") == "application/json"
    )
    return reader, data


def named(data, kind):
    return next(run for run in data["runs"] if run["kind"] == kind)


def orders_of(run, key="orders"):
    """The orders of a run's frames, or of its images."""
    patches = math.prod(run["grid"])
    flat = np.frombuffer(base64.b64decode(run[key]), "u1" if patches <= 256 else "<u2")
    return flat.reshape(-1, patches).tolist()


def pixels(uri):
    image = Image.open(io.BytesIO(base64.b64decode(uri.removeprefix("data:image/png;base64,"))))
    return np.asarray(image)


def write(path, results, title="Orders", verdicts=(), tables=(), figures=()):
    own, _ = own_images(results)
    page.write_page(path, page.Page(title, verdicts, tables, figures, results, own=own))


def data_of(runs):
    """What the page has of runs, and what it says that it leaves out."""
    results = collect(runs).results
    return page.page_data(page.Page("", [], [], [], results, own=own_images(results)[0]))


@pytest.fixture
def written(tmp_path, make_run):
    runs = [
        make_run(tmp_path / "learned", sample=True),
        make_run(tmp_path / "fixed", policy="none", sample=True),
        make_run(tmp_path / "random", policy="random", grid=(3, 3)),
    ]
    path = tmp_path / "report" / "index.html"
    tables = [TABLE, TABLE._replace(name="again")]
    write(path, collect(runs).results, tables=tables, figures=[picture()])
    return path, runs


def test_nothing_is_fetched(written):
    path, _ = written
    text = path.read_text()
    reader, _ = read(path)
    assert not re.search(r"https?:|url\(|@import|fetch\(|XMLHttpRequest|\bimport\b|=\s*[\"']?//", text)
    for _, attributes in reader.tags:
        for key in ("src", "href"):
            assert attributes.get(key, "data:").startswith(("data:", "#"))
    policy = next(a["content"] for tag, a in reader.tags if tag == "meta" and "http-equiv" in a)
    assert policy.startswith("default-src 'none'; img-src data:;")


def test_tables_are_complete(written):
    reader, _ = read(written[0])
    cells = list(reader.texts["td"])
    assert cells == ["91.24 ± 1.50", "1200", "9.50 ± 0.25", "none"] * 2
    rows = [
        text
        for text, (_, a) in zip(reader.texts["th"], [t for t in reader.tags if t[0] == "th"], strict=True)
        if a["scope"] == "row"
    ]
    assert rows == ["row", "<b>hilbert"] * 2
    assert "a < b" in reader.texts["li"]


def test_data_are_those_of_the_runs(written):
    _, data = read(written[0])
    learned, fixed, other = (named(data, kind) for kind in ("learned", "fixed", "random every batch"))
    *_, logits, initial = written[1][0].policy()
    orders = orders_of(learned)
    assert [orders[f] for f in learned["frame"]] == [
        np.argsort(-values, kind="stable").tolist() for values in logits
    ]
    shades = np.frombuffer(base64.b64decode(learned["logits"]), np.uint8).reshape(-1, 20)[learned["frame"]]
    shown = learned["low"] + shades / 255 * (learned["high"] - learned["low"])
    np.testing.assert_allclose(shown, logits, atol=0.51 / 255 * (logits.max() - logits.min()) + 1e-4)
    assert learned["frame"] == [0, 0, *range(13), 12, 12]  # only the policy stage moves
    assert learned["at"] == [0, 1, *np.arange(2, 8.5, 0.5), 9, 10]
    assert learned["stage"][:4] == ["before training", "warm-up", "warm-up", "policy"]
    assert learned["epochs"] == list(range(1, 11))
    assert learned["top1"][0] == pytest.approx(10)
    start, end = (np.argsort(orders[number]) for number in (0, -1))
    assert learned["tau"][2] == 1
    assert learned["tau"][-1] == pytest.approx(kendalltau(start, end).statistic, abs=1e-3)
    assert learned["tracked"] == [12, initial[0]]  # the central patch and the first
    assert orders_of(fixed) == [initial.tolist()]
    assert (fixed["logits"], fixed["frame"], fixed["at"]) == ("", [0], [10])
    assert fixed["tracked"][0] != fixed["tracked"][1]
    assert (other["grid"], other["sample"]) == ([3, 3], None)
    assert data["runs"][data["first"]] == learned


def test_an_image_that_runs_share_is_embedded_once(written):
    _, data = read(written[0])
    assert [named(data, kind)["sample"] for kind in ("learned", "fixed", "random every batch")] == [
        0,
        0,
        None,
    ]
    (uri,) = data["samples"]
    assert pixels(uri).tolist() == np.arange(80).reshape(8, 10).tolist()


def test_images_with_orders_of_their_own_are_those_that_the_run_kept(tmp_path, make_run):
    run = make_run(tmp_path / "image", policy="image")
    data, notes = data_of([run])
    (shown,) = data["runs"]
    arrays = np.load(run.path / "own_orders.npz")
    assert orders_of(shown, "own") == arrays["orders"].tolist()
    pictures = [pixels(data["samples"][place]).tolist() for place in shown["images"]]
    assert pictures == (np.arange(240).reshape(3, 8, 10) % 256).tolist()
    start = np.argsort(run.policy().initial)
    taus = [kendalltau(start, np.argsort(order)).statistic for order in arrays["orders"]]
    assert shown["own_tau"] == pytest.approx(taus, abs=1e-3)
    assert notes == []


def test_runs_with_one_order_for_all_images_and_older_ones_have_none_of_their_own(tmp_path, make_run):
    older = make_run(tmp_path / "older", policy="image")
    (older.path / "own_orders.npz").unlink()
    data, _ = data_of([make_run(tmp_path / "global"), make_run(tmp_path / "fixed", policy="none"), older])
    assert [(run["images"], run["own"], run["own_tau"]) for run in data["runs"]] == [([], "", [])] * 3


def test_images_that_runs_share_are_embedded_once_and_each_run_has_its_own_orders(tmp_path, make_run):
    runs = [make_run(tmp_path / f"{seed}", policy="image", seed=seed, sample=True) for seed in range(3)]
    data, _ = data_of(runs)
    assert len(data["samples"]) == 3
    assert [run["images"] for run in data["runs"]] == [[0, 1, 2]] * 3
    assert [run["sample"] for run in data["runs"]] == [0, 0, 0]  # the first image of the three
    assert len({run["own"] for run in data["runs"]}) == 3


def test_a_damaged_file_of_own_orders_is_one_note_and_the_run_is_shown_without(tmp_path, make_run):
    sound, damaged = (make_run(tmp_path / name, policy="image", seed=i) for i, name in enumerate("ab"))
    (damaged.path / "own_orders.npz").write_bytes(b"junk")
    report = write_report([sound, damaged], tmp_path / "report")
    (note,) = (note for note in report.notes if "own_orders.npz" in note)
    assert note.startswith(f"{damaged.path}: without the orders of its images: ")
    assert "own_orders.npz is damaged: " in note
    assert "\n" not in note
    _, data = read(report.page)
    assert [len(run["images"]) for run in data["runs"]] == [3, 0]


def test_own_orders_of_another_grid_are_not_shown(tmp_path, make_run):
    run, other = (make_run(tmp_path / f"{n}", policy="image", grid=(2, n)) for n in (3, 5))
    run.write_own_orders(other.own_orders())
    found, (note,) = own_images(collect([run]).results)
    assert found == {}
    assert note.endswith("own_orders.npz is of 10 patches, but the run reads (2, 3).")


def test_orders_come_from_unrounded_logits_and_fine_grids_have_two_bytes(tmp_path, make_run):
    run = make_run(tmp_path / "run", grid=(16, 17), epochs=3)
    logits = np.linspace(0, -1, 272, dtype=np.float32)  # more of them than there are shades
    moments = [(float(e), "policy", 0.1, torch.from_numpy(np.roll(logits, e))) for e in range(4)]
    run.write_policy(moments, torch.arange(272))
    data, _ = page.page_data(page.Page("", [], [], [], collect([run]).results))
    assert orders_of(data["runs"][0]) == [np.roll(np.arange(272), -e).tolist() for e in range(4)]


def test_moments_are_thinned_evenly_and_the_last_is_kept():
    moving = np.arange(100.0)[:, None]
    assert page.kept_moments(moving, 4) == [0, 33, 66, 99]
    assert page.kept_moments(moving, 1000) == list(range(100))
    assert page.kept_moments(np.zeros((7, 3)), 4) == [6]
    assert page.kept_moments(np.zeros((7, 0)), 4) == [6]


def test_long_curves_are_thinned_and_keep_their_last_epoch(tmp_path, make_run):
    (result,) = collect([make_run(tmp_path / "run", epochs=10)]).results
    assert page.curve_data(result, 4)["epochs"] == [1, 5, 9, 10]
    assert page.curve_data(result, 1)["epochs"] == list(range(1, 11))
    assert page.curve_data(result, 4)["loss"][-1] == pytest.approx(2.5 - 0.9)


def test_the_player_opens_with_what_learned_in_the_main_group(tmp_path, make_run):
    runs = [
        make_run(tmp_path / "fixed", "none"),
        *(make_run(tmp_path / f"{s}", order=s) for s in ("row", "spiral")),
    ]
    results = [r._replace(model="mamba") if "spiral" in r.order else r for r in collect(runs).results]
    for group, name in (
        ("mamba on digits 4x5", "learned from spiral"),
        ("vit mini on digits 4x5", "learned from row"),
    ):
        data, _ = page.page_data(page.Page("", [], [], [], results, group=group))
        assert data["runs"][data["first"]]["name"] == f"{name}, seed 0"


def test_an_epoch_is_over_only_when_it_is(tmp_path, make_run):
    """Rounded up, the moment before the end would show the validation after it."""
    run = make_run(tmp_path / "run", epochs=3)
    *_, logits, initial = run.policy()
    when = (0.0, 0.29, 1.15, 1.998, 2.0, 3.0)
    run.write_policy(
        [(epoch, "policy", 0.1, torch.from_numpy(logits[0] + epoch * logits[1])) for epoch in when],
        torch.from_numpy(initial),
    )
    *_, logits, initial = run.policy()
    data, _ = page.page_data(page.Page("", [], [], [], collect([run]).results))
    assert data["runs"][0]["at"] == [0, 0.29, 1.15, 1.99, 2, 3]


def test_names_cannot_break_the_page(tmp_path, make_run):
    name = '<b>&"</script><!--'
    (result,) = collect([make_run(tmp_path / '<b>&"')]).results
    result = result._replace(order=name, model=name)
    table = Table(name, name, (name,), [(name,)], [name])
    drawn = replace(picture(), name=name, caption=name)
    write(tmp_path / "index.html", [result], name, [name, name], [table], [drawn])
    reader, data = read(tmp_path / "index.html")
    assert reader.texts["h1"] == reader.texts["figcaption"][-1:] == [name]
    assert reader.texts["li"] == [name, name]  # a further verdict and a note
    assert name in reader.texts["p"]
    assert reader.texts["button"].count(name) == 1
    assert [attributes["alt"] for tag, attributes in reader.tags if tag == "img"] == [name]
    assert data["runs"][0]["name"] == f"{name}, seed 0"
    plain = Table("a", "a", ("a",), [("a",)], ["a"])
    write(tmp_path / "plain.html", [result], "a", ["a", "a"], [plain], [picture()])
    assert [tag for tag, _ in reader.tags] == [tag for tag, _ in read(tmp_path / "plain.html")[0].tags]


def test_what_is_not_a_number_is_left_out(tmp_path, make_run):
    run = make_run(tmp_path / "run", epochs=3)
    lines = run.metrics()
    lines[0] |= {"validation_loss": float("inf")}
    lines[1] |= {"validation_loss": float("nan")}
    run.write_metrics(lines)
    table = TABLE._replace(rows=[("row", Number(float("nan")), "none")])
    write(tmp_path / "index.html", collect([run]).results, tables=[table])
    _, data = read(tmp_path / "index.html")
    assert data["runs"][0]["loss"][:2] == [None, None]


def test_a_run_without_its_policy_is_said_to_be_missing(tmp_path, make_run):
    runs = [make_run(tmp_path / "a"), make_run(tmp_path / "b<", seed=1)]
    (runs[1].path / "policy.npz").unlink()
    write(tmp_path / "index.html", collect(runs).results, tables=[TABLE])
    reader, data = read(tmp_path / "index.html")
    assert [run["seed"] for run in data["runs"]] == [0]
    assert any(f"{runs[1].path / 'policy.npz'} is missing" in text for text in reader.texts["p"])


def test_a_grid_too_fine_to_draw_is_said_to_be_missing(tmp_path, make_run):
    (result,) = collect([make_run(tmp_path / "a", policy="none", grid=(64, 65), epochs=1)]).results
    data, missing = page.page_data(page.Page("", [], [], [], [result]))
    why = f"{tmp_path / 'a'} reads 4160 patches, too many to draw"
    assert (data["runs"], missing) == ([], [f"Without curves and player: {why}."])


def many_runs(tmp_path, make_run, seeds, epochs):
    """600 runs of 14x14 patches, half of them learned, with so many seeds of every order."""
    kinds = ("global", "none")
    made = [
        make_run(tmp_path / f"{i}", kinds[i % 2], epochs=epochs, grid=(14, 14), seed=i, sample=True, looks=5)
        for i in range(2)
    ]
    some = collect(made).results
    return [
        result._replace(order=f"{result.order} {number}", summary=result.summary | {"seed": seed})
        for result in some
        for number in range(300 // seeds)
        for seed in range(seeds)
    ]


@pytest.mark.parametrize(("seeds", "epochs"), [(3, 20), (1, 100)])
def test_600_runs_stay_below_3_megabytes(tmp_path, make_run, seeds, epochs):
    results = many_runs(tmp_path, make_run, seeds, epochs)
    tables = [orders_table(results), runs_table(results, [])]
    write(tmp_path / "index.html", results, tables=tables, figures=[picture()])
    reader, data = read(tmp_path / "index.html")
    assert len(data["runs"]) == 600 // seeds
    assert {len(run["at"]) > 1 for run in data["runs"] if run["kind"] == "learned"} == {True}
    assert (tmp_path / "index.html").stat().st_size < 3e6
    said = f"Player and curves have the first seed of every order: {600 // seeds} of 600 runs."
    assert said in reader.texts["p"]


def test_hundreds_of_runs_with_images_of_their_own_have_fewer_of_them(tmp_path, make_run):
    """200 runs on two datasets of photographs, which do not compress."""
    made = [make_run(tmp_path / f"{i}", "image", grid=(14, 14), seed=i, sample=True) for i in range(2)]
    noise = np.random.default_rng(0)
    for run in made:
        images = torch.from_numpy(noise.integers(0, 256, (12, 3, 224, 224), np.uint8))
        orders = np.stack([noise.permutation(196) for _ in range(12)])
        run.write_own_orders(ReadImages.of(images, torch.from_numpy(orders)))
    results = [
        result._replace(order=f"{result.order} {result.seed} {number}")
        for result in collect(made).results
        for number in range(100)
    ]
    write(tmp_path / "index.html", results)
    reader, data = read(tmp_path / "index.html")
    (shown,) = {len(run["images"]) for run in data["runs"]}
    assert 3 <= shown < 12
    assert len(data["samples"]) == 1 + 2 * shown
    note = f"Of images with orders of their own, the player has the first {shown} of every run."
    assert note in reader.texts["p"]
    assert (tmp_path / "index.html").stat().st_size < 2.5e6


def test_a_table_too_long_for_the_page_is_said_to_be_a_file(tmp_path, make_run):
    rows = [(f"order {i}", Number(i), Number(1)) for i in range(page.MOST_ROWS + 1)]
    write(
        tmp_path / "index.html",
        collect([make_run(tmp_path / "a")]).results,
        tables=[TABLE._replace(rows=rows)],
    )
    reader, _ = read(tmp_path / "index.html")
    assert "td" not in reader.texts
    assert "1001 rows are too many for this page: they are in accuracy.csv." in reader.texts["p"]


def test_a_column_that_is_the_same_in_all_rows_is_said_once(tmp_path, make_run):
    table = TABLE._replace(
        rows=[(name, Number(9.5, 0.25), Number(7, digits=0)) for name in ("row", "column")]
    )
    write(tmp_path / "index.html", collect([make_run(tmp_path / "a")]).results, tables=[table])
    reader, _ = read(tmp_path / "index.html")
    assert "td" not in reader.texts
    assert "All rows: top-1 (%) 9.50 ± 0.25; images/s 7." in reader.texts["p"]


def test_a_figure_is_embedded_with_few_colours(written):
    reader, _ = read(written[0])
    (uri,) = (attributes["src"] for tag, attributes in reader.tags if tag == "img")
    image = Image.open(io.BytesIO(base64.b64decode(uri.removeprefix("data:image/png;base64,"))))
    assert (image.mode, image.size) == ("P", (640, 480))  # 4 by 3 inches


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


@pytest.mark.parametrize("scheme", [0, 1])
def test_colours_have_the_contrast_of_wcag_aa(scheme):
    style = (files("reorder.report") / "page_assets" / "page.css").read_text()
    block = re.findall(r":root \{(.*?)\}", style, re.DOTALL)[scheme]
    colours = dict(re.findall(r"--([\w-]+): (#\w{6})", block))

    def contrast(one, other):
        high, low = sorted((luminance(colours[one]), luminance(colours[other])), reverse=True)
        return (high + 0.05) / (low + 0.05)

    for text in ("ink", "soft", "accent", "a", "b"):
        for behind in ("paper", "raised", "wash"):
            assert contrast(text, behind) >= 4.5, (text, behind)
    for stage in ("warm-up", "policy", "frozen"):
        assert contrast("ink", stage) >= 4.5
    for line in ("strong", "c0", "c1", "c2", "c3", "c4", "c5"):
        assert contrast(line, "paper") >= 3
