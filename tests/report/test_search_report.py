"""What a search shows: a figure of its rungs, a table of its last runs, and files."""

import json

import pytest
import torch
from matplotlib.colors import to_hex
from pretended import pretend
from short_runs import QUIET

from reorder.config import build
from reorder.experiments.presets import preset
from reorder.experiments.rungs import Asked
from reorder.experiments.search import run_search
from reorder.report.search import CHOSEN, ROW, TRIED, final_table, search_figure, write_results

TINY = ["train.epochs=10", "train.batch_size=16", "data.train_images=150"]


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """A search in which an order is as good as it is late to read patch 5."""

    def late(order):
        return 0.2 + 0.6 * order.tolist().index(5) / 15

    out = tmp_path_factory.mktemp("search") / "s"
    experiment = build(preset("digits"), overrides=TINY)
    return run_search(Asked(experiment, out, 3.5, 1, {}), pretend(late), None, QUIET), out


def test_every_score_is_a_point_and_row_major_and_the_chosen_one_are_marked(searched):
    search, _ = searched
    (axes,) = search_figure(search).axes
    drawn = {}
    for line in (container.lines[0] for container in axes.containers):
        drawn.setdefault(to_hex(line.get_color()), []).append(line.get_xydata())

    def points(name):
        places = enumerate(search.rungs, start=1)
        found = [
            (place, 100 * score.top1) for place, rung in places for score in rung.scores if score.name == name
        ]
        return torch.tensor(found).double()

    assert len(drawn[TRIED]) == len(search.candidates) - 2
    assert torch.allclose(torch.tensor(drawn[ROW][0]), points("row"))
    assert torch.allclose(torch.tensor(drawn[CHOSEN][0]), points(search.chosen))
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "row-major",
        f"chosen: {search.chosen}",
    ]
    assert axes.get_xticklabels()[3].get_text() == "best\n3 epochs"


def test_the_table_has_every_arm_and_the_verdict(searched):
    search, _ = searched
    table = final_table(search)
    assert [row[0] for row in table.rows] == [arm.name for arm in search.arms]
    found = next(row for row in table.rows if row[0] == "order found")
    top1 = next(arm.top1 for arm in search.arms if arm.name == "order found")
    assert found[1] == search.chosen
    assert found[3].value == pytest.approx(100 * top1)
    assert table.notes == [f"{search.verdict}."]


def test_own_orders_are_a_row_of_the_table_and_runs_of_the_report(tmp_path):
    overrides = [*TINY, "order.policy=image"]
    asked = Asked(build(preset("digits"), overrides=overrides), tmp_path / "s", 3.5, 1, {})
    search = run_search(asked, pretend(lambda order: 0.5, own=0.9), None, QUIET)
    write_results(search, tmp_path / "s", QUIET)
    (row,) = [row for row in final_table(search).rows if row[0] == "own orders"]
    assert row[1] == "each image's own, learned from column"  # of equal ones the first beside row-major
    assert (row[3].value, row[4].value) == (pytest.approx(90), pytest.approx(40))
    assert "each image's own, learned from column" in (tmp_path / "s" / "report" / "runs.md").read_text()


def test_the_results_of_a_search_are_written(searched):
    search, out = searched
    write_results(search, out, QUIET)
    assert (out / "search.png").read_bytes().startswith(b"\x89PNG")
    runs = (out / "report" / "runs.md").read_text()
    assert f"train.epochs={search.arms[-1].epochs}" not in runs  # it has nothing beside it
    assert (out / "report" / "index.html").stat().st_size > 10_000
    assert "order found" in (out / "report" / "search.md").read_text()
    assert json.loads((out / "verdict.json").read_text())["text"] == search.verdict
