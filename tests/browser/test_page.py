"""The page as a file: complete, self-contained, safe with any name, and small enough to send."""

import base64
import io
import json
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
from reorder.report.results import collect
from reorder.report.tables import Number, Table

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


def named(data, policy):
    return next(run for run in data["runs"] if run["policy"] == policy)


@pytest.fixture
def written(tmp_path, make_run):
    runs = [
        make_run(tmp_path / "learned", sample=True),
        make_run(tmp_path / "fixed", policy="none", sample=True),
        make_run(tmp_path / "random", policy="random", grid=(3, 3)),
    ]
    path = tmp_path / "report" / "index.html"
    page.write_page(
        path, "Orders <compared>", [TABLE, TABLE._replace(name="again")], [picture()], collect(runs).results
    )
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
    values = [a["data-value"] for tag, a in reader.tags if tag == "td" and "data-value" in a]
    assert values == ["91.236", "1200.4", "9.5"] * 2
    assert "a < b" in reader.texts["li"]


def test_data_are_those_of_the_runs(written):
    _, data = read(written[0])
    learned, fixed, other = (named(data, policy) for policy in ("global", "none", "random"))
    *_, logits, initial = written[1][0].policy()
    assert [learned["frames"][f]["order"] for f in learned["frame"]] == [
        np.argsort(-values, kind="stable").tolist() for values in logits
    ]
    for values, frame in zip(logits, learned["frame"], strict=True):
        np.testing.assert_allclose(learned["frames"][frame]["logits"], values, atol=5.1e-5)
    assert learned["frame"] == [0, 0, *range(13), 12, 12]  # only the policy stage moves
    assert learned["at"] == [0, 1, *np.arange(2, 8.5, 0.5), 9, 10]
    assert learned["stage"][:4] == ["before training", "warm-up", "warm-up", "policy"]
    assert learned["top1"][0] is None
    assert learned["top1"][1] == pytest.approx(10)
    start, end = (np.argsort(learned["frames"][number]["order"]) for number in (0, -1))
    assert learned["tau"][2] == 1
    assert learned["tau"][-1] == pytest.approx(kendalltau(start, end).statistic, abs=1e-4)
    assert learned["tracked"] == [12, initial[0]]  # the central patch and the first
    assert fixed["frames"] == [{"order": initial.tolist(), "logits": None}]
    assert fixed["frame"] == [0] * 11
    assert fixed["tracked"][0] != fixed["tracked"][1]
    assert (other["grid"], other["sample"]) == ([3, 3], None)


def test_an_image_that_runs_share_is_embedded_once(written):
    _, data = read(written[0])
    assert [named(data, policy)["sample"] for policy in ("global", "none", "random")] == [0, 0, None]
    (uri,) = data["samples"]
    image = Image.open(io.BytesIO(base64.b64decode(uri.removeprefix("data:image/png;base64,"))))
    assert np.asarray(image).tolist() == np.arange(80).reshape(8, 10).tolist()


def test_orders_come_from_unrounded_logits():
    frames, frame = page.distinct(np.array([[1e-5, 2e-5, 2e-5]], np.float32))
    assert (frames[0]["order"], frames[0]["logits"], frame) == ([1, 2, 0], [0.0, 0.0, 0.0], [0])


def test_an_epoch_is_over_only_when_it_is(tmp_path, make_run):
    """Rounded up, the moment before the end would show the validation after it."""
    run = make_run(tmp_path / "run", epochs=3)
    *_, logits, initial = run.policy()
    when = (0.0, 0.29, 1.15, 1.998, 2.0, 3.0)
    run.write_policy(
        [(epoch, "policy", 0.1, torch.from_numpy(logits[0])) for epoch in when], torch.from_numpy(initial)
    )
    data, _ = page.page_data(collect([run]).results)
    assert data["runs"][0]["at"] == [0, 0.29, 1.15, 1.99, 2, 3]


def test_names_cannot_break_the_page(tmp_path, make_run):
    name = '<b>&"</script><!--'
    (result,) = collect([make_run(tmp_path / '<b>&"')]).results
    result = result._replace(order=name, model=name)
    table = Table(name, name, (name,), [(name,)], [name])
    drawn = replace(picture(), name=name, caption=name)
    page.write_page(tmp_path / "index.html", name, [table], [drawn], [result])
    reader, data = read(tmp_path / "index.html")
    assert reader.texts["h1"] == reader.texts["li"] == reader.texts["figcaption"][-1:] == [name]
    assert reader.texts["button"].count(name) == 1
    assert [attributes["alt"] for tag, attributes in reader.tags if tag == "img"] == [name]
    assert data["runs"][0]["name"] == f"{name}, seed 0"
    plain = Table("a", "a", ("a",), [("a",)], ["a"])
    page.write_page(tmp_path / "plain.html", "a", [plain], [picture()], [result])
    assert [tag for tag, _ in reader.tags] == [tag for tag, _ in read(tmp_path / "plain.html")[0].tags]


def test_what_is_not_a_number_is_left_out(tmp_path, make_run):
    run = make_run(tmp_path / "run", epochs=3)
    lines = run.metrics()
    lines[0] |= {"validation_loss": float("inf")}
    lines[1] |= {"validation_loss": float("nan")}
    run.write_metrics(lines)
    table = TABLE._replace(rows=[("row", Number(float("nan")), "none")])
    page.write_page(tmp_path / "index.html", "Orders", [table], [], collect([run]).results)
    reader, data = read(tmp_path / "index.html")
    assert data["runs"][0]["loss"][:3] == [None, None, None]
    assert not any("data-value" in attributes for _, attributes in reader.tags)


def test_a_run_without_its_policy_is_said_to_be_missing(tmp_path, make_run):
    runs = [make_run(tmp_path / "a"), make_run(tmp_path / "b<", seed=1)]
    (runs[1].path / "policy.npz").unlink()
    page.write_page(tmp_path / "index.html", "Orders", [TABLE], [], collect(runs).results)
    reader, data = read(tmp_path / "index.html")
    assert [run["seed"] for run in data["runs"]] == [0]
    assert any(f"{runs[1].path / 'policy.npz'} is missing" in text for text in reader.texts["p"])


def test_a_grid_too_fine_to_draw_is_said_to_be_missing(tmp_path, make_run):
    (result,) = collect([make_run(tmp_path / "a", policy="none", grid=(64, 65), epochs=1)]).results
    data, missing = page.page_data([result])
    assert (data["runs"], missing) == ([], [f"{tmp_path / 'a'} reads 4160 patches, too many to draw"])


def test_300_runs_stay_below_15_megabytes(tmp_path, make_run):
    policies = ("global", "none")
    some = [
        make_run(tmp_path / f"{i}", policies[i % 2], epochs=20, grid=(14, 14), seed=i, sample=True)
        for i in range(10)
    ]
    page.write_page(tmp_path / "index.html", "Orders", [TABLE], [], collect(some).results * 30)
    assert len(read(tmp_path / "index.html")[1]["runs"]) == 300
    assert (tmp_path / "index.html").stat().st_size < 15e6


def test_a_figure_is_embedded_in_its_smaller_format():
    def kind(figure):
        return re.search(r"data:image/([a-z+]+);", page.figure_html(Picture("a", "b", figure)))[1]

    assert kind(picture().figure) == "svg+xml"
    crowded = Figure(figsize=(4, 3))
    crowded.subplots().scatter(*np.random.default_rng(0).normal(size=(2, 20_000)), s=1)
    assert kind(crowded) == "png"


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
