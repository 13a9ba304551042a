"""search.json: written and read again, ranked, and refused when it is damaged."""

import json
import math

import pytest

from reorder.runs.searches import (
    Arm,
    Candidate,
    PlannedRung,
    Rung,
    Score,
    Search,
    read_search,
    write_search,
)


def score(name, top1, loss=1.0):
    return Score(name, top1, 0.02, loss, 100 * (top1 - 0.5), 1.5)


def made():
    orders = {
        "row": [0, 1, 2, 3],
        "column": [0, 2, 1, 3],
        "random-1": [3, 0, 2, 1],
        "variation-1": [1, 0, 2, 3],
    }
    return Search(
        settings={"budget": 3.0},
        grid=(2, 2),
        plan=[
            PlannedRung("fixed", 3, 1, 3),
            PlannedRung("variations", 1, 1, 1),
            PlannedRung("best", 2, 3, 6),
        ],
        candidates=[Candidate(name, "fixed", order) for name, order in orders.items()],
        rungs=[
            Rung("fixed", 1, 50, [score("row", 0.5), score("column", 0.75), score("random-1", 0.6)]),
            Rung("variations", 1, 50, [score("variation-1", 0.6, 0.9)]),
        ],
    )


def test_a_search_is_read_as_it_was_written(tmp_path):
    assert read_search(tmp_path) is None
    search = made()
    search.rungs.append(Rung("best", 3, 50, [score("row", 0.5), score("variation-1", 0.7, math.inf)]))
    search.chosen, search.verdict, search.seconds = "variation-1", "it is better", 12.5
    search.arms = [Arm("row-major", "row", 4, ["final/row-s0"], 0.5, 0.1, 0.0, 0.0)]
    write_search(tmp_path, search)
    assert read_search(tmp_path) == search


def test_candidates_are_ranked_by_top1_and_then_by_loss_among_those_trained_longest():
    search = made()
    assert [s.name for s in search.standing()] == ["column", "variation-1", "random-1", "row"]
    assert search.furthest(["row", "column", "hilbert"]) == "column"
    assert search.furthest(["hilbert"]) is None
    search.rungs.append(Rung("best", 3, 50, [score("row", 0.4, math.nan), score("variation-1", 0.4, 9.0)]))
    assert [s.name for s in search.standing()] == ["variation-1", "row"]
    assert search.furthest(["row", "column"]) == "row"  # it got further


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: c.pop("plan"), 'it lacks "plan"'),
        (lambda c: c.update(grid=[2, 3]), '"order" of row does not name each of 6 patches once'),
        (lambda c: c["candidates"][1].update(name="row"), 'two of "candidates" have the same name'),
        (lambda c: c.update(chosen="spiral"), "'spiral' is none of its candidates"),
        (lambda c: c["rungs"][0]["scores"][0].update(name="spiral"), "'spiral' is none of its candidates"),
        (lambda c: c["rungs"][0]["scores"][0].update(top1=1.5), '"scores.top1" must be a number from 0 to 1'),
        (lambda c: c["rungs"][1].update(epochs=0), '"rungs.1.epochs" must be an integer from 1 up'),
        (lambda c: c["plan"][0].pop("cost"), '"plan.0" lacks "cost"'),
        (lambda c: c.update(seconds=-1), '"seconds" must be a number of at least 0'),
    ],
)
def test_a_damaged_search_is_told_in_one_line(tmp_path, change, said):
    write_search(tmp_path, made())
    path = tmp_path / "search.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"search\.json is damaged") as error:
        read_search(tmp_path)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
