"""A search whose runs are only pretended: what is tried, what goes on, what is judged, how it continues."""

import json
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from pretended import pretend
from short_runs import QUIET

from reorder.config import build
from reorder.experiments import search as searching
from reorder.experiments.budget import BEST, plan
from reorder.experiments.forecast import Pace
from reorder.experiments.here import Machine
from reorder.experiments.presets import preset
from reorder.experiments.rungs import Asked
from reorder.experiments.search import given_orders, notes_on, run_search, time_left
from reorder.orders.files import load_order, save_order
from reorder.orders.named import random_order
from reorder.orders.scans import SCANS, scan
from reorder.runs.directory import RunDir
from reorder.runs.searches import Search, read_search

OVERRIDES = [
    "train.epochs=10",
    "train.warmup_epochs=2",
    "train.batch_size=16",
    "train.seed=5",
    "data.train_images=150",
    "data.validation_images=90",
]


def asked(out, *overrides, budget=3.5, seeds=2, given=None):
    return Asked(build(preset("digits"), overrides=[*OVERRIDES, *overrides]), out, budget, seeds, given or {})


def late(order):
    """An order is as good as it is late to read patch 5."""
    return 0.2 + 0.6 * order.tolist().index(5) / 15


class Finished(NamedTuple):
    search: Search
    calls: list  # what was trained for it
    out: Path


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    train, out = pretend(late), tmp_path_factory.mktemp("whole") / "s"
    return Finished(run_search(asked(out), train, None, QUIET), train.calls, out)


def test_the_best_of_all_that_were_tried_is_found_within_the_budget(finished):
    search = finished.search
    qualities = {c.name: late(torch.tensor(c.order)) for c in search.candidates}
    assert qualities[search.chosen] == max(qualities.values())
    assert len(search.candidates) == sum(rung.candidates for rung in search.plan if rung.source != BEST) == 15
    assert {"row", "column", "stride-2x2", "random-1", "variation-4", "learned"} <= set(qualities)
    assert [r.source for r in search.rungs] == ["fixed", "variations", "learned", "best", "best"]
    # What goes on is row-major and the best of all before, and nothing else.
    best = sorted((qualities[name] for name in set(qualities) - {"row"}), reverse=True)
    for rung, planned in zip(search.rungs[3:], search.plan[3:], strict=True):
        went_on = {score.name for score in rung.scores}
        assert "row" in went_on
        assert sorted((qualities[n] for n in went_on - {"row"}), reverse=True) == best[: planned.candidates]
    for rung in search.rungs:
        assert rung.images == 30  # a fifth of 150
        for score in rung.scores:
            assert score.top1 == pytest.approx(qualities[score.name], abs=1 / 30)
            assert score.difference == pytest.approx(
                100 * (qualities[score.name] - late(scan("row", 4, 4))), abs=4
            )
    found = load_order(finished.out / "order.json")
    assert found.order.tolist() == search.order_of(search.chosen)
    assert found.provenance["candidate"] == search.chosen


def test_no_more_is_trained_than_was_planned(finished):
    search = finished.search
    spent = sum(epochs for _, epochs in finished.calls)
    planned = sum(rung.cost for rung in search.plan)
    final = 2 * (4 * 10 + planned + 10)
    # Those that go on are counted from their first epoch again.
    lengths = [rung.epochs for rung in search.rungs]
    pairs = zip(lengths, search.rungs[1:], strict=False)
    carried = sum(before * len(rung.scores) for before, rung in pairs if rung.source == BEST)
    assert spent == planned + carried + final
    assert planned <= 35


def test_candidates_never_see_what_judges_them(finished):
    """Held-out images and other seeds in the rungs; all images and the validation split at the end."""
    rungs = [RunDir(p.parent).experiment() for p in (finished.out / "candidates").glob("*/config.yaml")]
    assert {(e.data.held_out, e.data.train_images, e.train.seed) for e in rungs} == {(30, 150, 7)}
    assert {e.train.epochs for e in rungs} == {1, 3, 5}
    assert {e.train.warmup_epochs for e in rungs} == {0.2}  # a tenth, as the first rung is of a training
    final = [RunDir(p.parent).experiment() for p in (finished.out / "final").glob("*/config.yaml")]
    assert {(e.data.held_out, e.data.validation_images, e.train.warmup_epochs) for e in final} == {
        (None, 90, 2)
    }
    assert {e.train.seed for e in final} == {5, 6}
    assert all(e.order.policy == "none" for e in rungs + final)
    (learner,) = (finished.out / "learned").glob("*/config.yaml")
    experiment = RunDir(learner.parent).experiment()
    assert (experiment.order.policy, experiment.order.estimator) == ("global", "straight-through")
    assert (experiment.data.held_out, experiment.train.epochs) == (30, 2)
    assert experiment.order.warmup_fraction + experiment.order.policy_fraction == 1


def test_a_survivor_goes_on_in_its_own_directory_and_others_lose_their_checkpoints(finished):
    search = finished.search
    for path in (finished.out / "candidates").iterdir():
        epochs = json.loads((path / "summary.json").read_text())["epochs"]
        assert (path / "summary-1-epochs.json").exists() == (epochs > 1)
        assert (path / "summary-3-epochs.json").exists() == (epochs > 3)
        assert not (path / "checkpoints").exists()
    for rung in search.rungs[3:]:
        before = {1: 0, 3: 1, 5: 3}[rung.epochs]
        kept = list((finished.out / "candidates").glob(f"*/summary-{before}-epochs.json"))
        assert len(kept) == len(rung.scores)


def test_those_that_go_on_have_their_checkpoints_until_they_do(tmp_path):
    pretended, went_on = pretend(late), []

    def train(tasks):
        for task in tasks:
            if task.directory.path.parent.name == "candidates" and task.directory.path.exists():
                went_on.append((task.directory.path / "checkpoints").exists())
        pretended(tasks)

    search = run_search(asked(tmp_path / "s"), train, None, QUIET)
    assert went_on == [True] * sum(len(rung.scores) for rung in search.rungs if rung.source == BEST)


def test_the_verdict_is_by_the_validation_images_of_runs_in_full(finished):
    search = finished.search
    arms = {arm.name: arm for arm in search.arms}
    assert set(arms) == {"row-major", "best scan", "random order", "order found", "row-major, equal compute"}
    images = 200  # that the pretended runs have

    def points(order):
        return 100 * (round(late(order) * images) - round(late(scan("row", 4, 4)) * images)) / images

    found = torch.tensor(search.order_of(search.chosen))
    assert arms["order found"].difference == pytest.approx(points(found))
    assert arms["row-major"].difference == arms["row-major, equal compute"].difference == 0
    scans = {name: late(scan(name, 4, 4)) for name in SCANS if name != "row"}
    assert scans[arms["best scan"].order] == max(scans.values())
    drawn = np.mean([points(random_order((4, 4), seed)) for seed in (5, 6)])
    assert arms["random order"].difference == pytest.approx(drawn)
    assert arms["row-major, equal compute"].epochs == 10 + sum(rung.cost for rung in search.plan)
    written = json.loads((finished.out / "verdict.json").read_text())
    assert written["text"] == search.verdict
    assert search.verdict.startswith(f"the order found is {points(found):.1f} ± ")
    assert (written["against"], written["seeds"], written["images"]) == ("row-major", 2, 200)
    assert written["difference"] == pytest.approx(points(found))


def without_seconds(search):
    return {key: value for key, value in vars(search).items() if key != "seconds"}


@pytest.mark.parametrize("after", [0, 11, 14, 15, 18, 24])
def test_an_interrupted_search_continues_and_repeats_nothing(tmp_path, finished, after):
    expected, calls, _ = finished
    broken = pretend(late)

    def interrupted(tasks):
        for task in tasks:
            if len(broken.calls) == after and not task.finished:
                raise KeyboardInterrupt
            broken([task])

    with pytest.raises(KeyboardInterrupt):
        run_search(asked(tmp_path / "s"), interrupted, None, QUIET)
    assert read_search(tmp_path / "s") is not None
    again = pretend(late)
    found = run_search(asked(tmp_path / "s"), again, None, QUIET)
    assert sorted(broken.calls + again.calls) == sorted(calls)
    assert without_seconds(found) == without_seconds(expected)
    assert (tmp_path / "s" / "order.json").read_text() != ""
    nothing = pretend(late)
    assert without_seconds(run_search(asked(tmp_path / "s"), nothing, None, QUIET)) == without_seconds(
        expected
    )
    assert nothing.calls == []


def test_another_search_is_not_continued(tmp_path):
    run_search(asked(tmp_path / "s"), pretend(late), None, QUIET)
    with pytest.raises(
        ValueError, match=r"s holds another search \(budget is 3.5, not 4.0\); choose another"
    ):
        run_search(asked(tmp_path / "s", budget=4.0), pretend(late), None, QUIET)
    with pytest.raises(ValueError, match=r"train.learning_rate is 0.001, not 0.01"):
        run_search(asked(tmp_path / "s", "train.learning_rate=0.01"), pretend(late), None, QUIET)
    run_search(asked(tmp_path / "s", "train.threads=1"), pretend(late), None, QUIET)  # which changes nothing
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(ValueError, match="mine exists and is no search's directory"):
        run_search(asked(tmp_path / "mine"), pretend(late), None, QUIET)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_a_search_begun_before_there_was_a_key_goes_on_where_the_key_has_its_default(tmp_path):
    before = run_search(asked(tmp_path / "s"), pretend(late), None, QUIET)
    path = tmp_path / "s" / "search.json"
    content = json.loads(path.read_text())
    assert content["settings"].pop("data.cell") == 4
    path.write_text(json.dumps(content))
    nothing = pretend(late)
    assert run_search(asked(tmp_path / "s"), nothing, None, QUIET).verdict == before.verdict
    assert nothing.calls == []
    assert content["settings"].pop("train.learning_rate") == 0.001  # the default is another
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"another search \(train.learning_rate is 0.0001, not 0.001\)"):
        run_search(asked(tmp_path / "s"), nothing, None, QUIET)


IMAGE = ("order.policy=image", "order.temperature=0.3")


def test_own_orders_are_learned_from_the_order_found_beside_the_runs_of_any_search(tmp_path, finished):
    train = pretend(late, own=0.95)
    search = run_search(asked(tmp_path / "s", *IMAGE), train, None, QUIET)
    assert search.chosen == finished.search.chosen
    arms = {arm.name: arm for arm in search.arms}
    others = [arm for arm in search.arms if arm.name != "own orders"]
    assert [(arm.name, arm.difference) for arm in others] == [
        (arm.name, arm.difference) for arm in finished.search.arms
    ]
    own = [RunDir(tmp_path / "s" / run).experiment() for run in arms["own orders"].runs]
    assert [e.train.seed for e in own] == [5, 6]
    for each in own:
        assert (each.order.policy, each.order.estimator) == ("image", "straight-through")
        assert each.order.temperature == 0.3  # as asked for
        assert load_order(each.order.scan).order.tolist() == search.order_of(search.chosen)
        assert (each.train.epochs, each.data.held_out, each.data.train_images) == (10, None, 150)
    assert sorted(train.calls) == sorted([*finished.calls, ("order.json", 10), ("order.json", 10)])
    assert search.order_of(search.chosen).index(5) == 14  # so its top-1 is 0.76
    assert search.verdict.startswith("the order found is 36.0 ± ")  # row-major reads patch 5 sixth: 0.4
    assert "; with an order of its own for every image the model is 19.0 ± " in search.verdict
    assert search.verdict.endswith(" points better still")
    written = json.loads((tmp_path / "s" / "verdict.json").read_text())
    assert written["own_orders"]["difference"] == pytest.approx(19)
    assert written["own_orders"]["against"] == "order found"
    assert "own_orders" not in json.loads((finished.out / "verdict.json").read_text())


def test_own_orders_start_from_a_scan_by_its_name_if_that_is_found(tmp_path):
    def columns(order):
        return 0.9 if order.tolist() == scan("column", 4, 4).tolist() else 0.3

    search = run_search(asked(tmp_path / "s", *IMAGE), pretend(columns, own=0.3), None, QUIET)
    (own,) = [arm for arm in search.arms if arm.name == "own orders"]
    assert own.order == "each image's own, learned from column"
    assert {RunDir(tmp_path / "s" / run).experiment().order.scan for run in own.runs} == {"column"}
    assert "for every image the model is 60.0 ± " in search.verdict
    assert search.verdict.endswith(" points worse than with the order found")


def test_where_only_own_orders_are_better_the_search_does_not_say_that_order_is_nothing(tmp_path):
    search = run_search(asked(tmp_path / "s", *IMAGE), pretend(lambda order: 0.5, own=0.9), None, QUIET)
    assert search.verdict.startswith(
        "no order among 15 was found to be better than row-major, but own orders for every image are, by 40.0"
    )
    assert "does not matter" not in search.verdict


def test_a_search_with_own_orders_continues_and_is_no_search_without(tmp_path):
    broken, again = pretend(late, own=0.95), pretend(late, own=0.95)

    def interrupted(tasks):
        for task in tasks:
            if task.experiment.order.policy == "image" and task.experiment.train.seed == 6:
                raise KeyboardInterrupt
            broken([task])

    with pytest.raises(KeyboardInterrupt):
        run_search(asked(tmp_path / "s", *IMAGE), interrupted, None, QUIET)
    with pytest.raises(ValueError, match=r"another search \(order.policy is image, not none\)"):
        run_search(asked(tmp_path / "s", "order.policy=none"), again, None, QUIET)
    search = run_search(asked(tmp_path / "s", *IMAGE), again, None, QUIET)
    longest = 10 + sum(rung.cost for rung in search.plan)
    assert sorted(again.calls) == sorted([("order.json", 10), ("row", longest), ("row", longest)])
    run_search(asked(tmp_path / "without"), pretend(late), None, QUIET)
    with pytest.raises(ValueError, match=r"another search \(order.policy is global, not image\)"):
        run_search(asked(tmp_path / "without", "order.policy=image"), again, None, QUIET)


@pytest.mark.parametrize("policy", ["noise", "random"])
def test_a_policy_that_learns_nothing_is_refused_in_a_line(tmp_path, policy):
    with pytest.raises(
        ValueError, match=f"order.policy={policy} learns no order, so a search cannot try it; choose none"
    ):
        run_search(asked(tmp_path / "s", f"order.policy={policy}"), pretend(late), None, QUIET)
    assert not (tmp_path / "s").exists()


def test_a_policy_of_blocks_is_what_the_search_learns_with(tmp_path):
    blocks = ("order.policy=blocks", "order.block=2")
    run_search(asked(tmp_path / "s", *blocks), pretend(late), None, QUIET)
    (learner,) = (tmp_path / "s" / "learned").glob("*/config.yaml")
    order = RunDir(learner.parent).experiment().order
    assert (order.policy, order.block, order.estimator) == ("blocks", 2, "straight-through")


def test_settings_of_the_papers_estimator_do_not_stop_the_straight_through_run(tmp_path):
    release = ("order.policy=global", "order.estimator=paper", "order.temperature_advances=epoch")
    assert run_search(asked(tmp_path / "s", *release), pretend(late), None, QUIET).verdict is not None


def test_what_was_set_for_the_papers_estimator_is_not_meant_for_the_straight_through_run(tmp_path):
    release = ("order.policy=global", "order.estimator=paper", "order.inverse_logits=true")
    release += ("order.learning_rate=0.01", "order.clip=5.0")
    run_search(asked(tmp_path / "s", *release), pretend(late), None, QUIET)
    (learner,) = (tmp_path / "s" / "learned").glob("*/config.yaml")
    order = RunDir(learner.parent).experiment().order
    assert (order.estimator, order.inverse_logits) == ("straight-through", False)
    assert (order.learning_rate, order.clip) == (None, None)


def test_order_files_are_tried_first(tmp_path):
    best = torch.tensor([p for p in range(16) if p != 5] + [5])
    (tmp_path / "run").mkdir()
    for path in ("run/order.json", "mine.json"):
        save_order(tmp_path / path, best if path == "mine.json" else random_order((4, 4), 3), (4, 4))
    experiment = asked(tmp_path).experiment
    given = given_orders(
        [tmp_path / "run/order.json", tmp_path / "mine.json", tmp_path / "mine.json"], experiment
    )
    assert list(given) == ["file-run", "file-mine", "file-mine-again-1"]
    search = run_search(asked(tmp_path / "s", given=given), pretend(late), None, QUIET)
    assert [c.name for c in search.candidates][:3] == ["row", "file-run", "file-mine"]
    assert search.candidates[2].made == "order file"
    assert search.chosen == "file-mine"
    save_order(tmp_path / "small.json", torch.arange(4), (2, 2))
    with pytest.raises(ValueError, match=r"small.json is for a 2x2 grid, but a 4x4 grid is read"):
        given_orders([tmp_path / "small.json"], experiment)
    many = {f"file-{seed}": random_order((4, 4), seed) for seed in range(8)}
    with pytest.raises(ValueError, match="has room for row-major, a scan and 7 order files, not 8"):
        run_search(asked(tmp_path / "many", given=many), pretend(late), None, QUIET)


def test_the_priors_choice_is_tried_right_after_row_major(tmp_path, monkeypatch):
    measured = []

    def prior(experiment, runs, display):
        measured.append(experiment.data.held_out)
        return runs[0].prior() or {"chosen": {"scan": "snake"}}

    monkeypatch.setattr("reorder.training.prior_choice.recorded_or_measured", prior)
    search = run_search(asked(tmp_path / "s", "order.scan=prior"), pretend(late), None, QUIET)
    assert [c.name for c in search.candidates][:3] == ["row", "snake", "column"]
    assert search.candidates[1].made == "scan, chosen by the prior"
    assert measured == [30]


def test_a_scan_that_is_found_is_trained_once(tmp_path):
    def columns(order):
        return 0.9 if order.tolist() == scan("column", 4, 4).tolist() else 0.3

    train = pretend(columns)
    search = run_search(asked(tmp_path / "s"), train, None, QUIET)
    arms = {arm.name: arm for arm in search.arms}
    assert search.chosen == "column"
    assert arms["order found"].runs == arms["best scan"].runs
    assert train.calls.count(("column", 10)) == 2  # seeds


def test_where_order_does_not_matter_the_search_says_so(tmp_path):
    search = run_search(asked(tmp_path / "s"), pretend(lambda order: 0.5), None, QUIET)
    assert search.verdict == (
        "no order among 15 was found to differ from row-major by more than 0.0 points: for this model and "
        "data order does not matter; keep row-major"
    )
    assert search.chosen != "row"
    assert not math.isnan(search.seconds)


def test_the_time_is_told_before_it_starts(monkeypatch):
    """Two seconds an epoch in the rungs and three at the end; two processes slow each other down by 15%."""
    seconds = iter([2.0, 3.0, 2.0, 3.0])
    monkeypatch.setattr(searching, "measure", lambda *arguments: Pace(0.0, next(seconds)))
    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
    plain = build(preset("digits"), overrides=["order.policy=none"])
    planned = plan(3, 60, 40, seeds=1)
    assert (planned.search_epochs, planned.equal_epochs, planned.final_epochs) == (118, 158, 318)
    left = time_left(planned, 0, [plain, plain], Machine(1, 9))
    assert left == "about 0:03:56 for the rungs and 0:15:54 for the comparison, with 1 process"
    monkeypatch.setattr("reorder.experiments.here.cores", lambda: 8)
    left = time_left(planned, 4, [plain, plain], Machine(2, 9))
    # Of the rungs 42 epochs are left; at the end half of all epochs are 159, the longest run has 158.
    assert left == "about 0:00:48 for the rungs and 0:09:09 for the comparison, with 2 processes"


def test_the_time_of_own_orders_counts_by_what_their_steps_take(monkeypatch):
    """Two seconds an epoch in the rungs and three at the end, seven of a policy that learns for a quarter."""
    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)

    def measured(experiment, *_):
        if experiment.order.policy == "image":
            return Pace(0.0, 7.0)
        return Pace(0.0, 2.0 if experiment.data.held_out else 3.0)

    monkeypatch.setattr(searching, "measure", measured)
    own = build(preset("digits"), overrides=["order.policy=image", "order.policy_fraction=0.25"])
    fixed = build(own, overrides=["order.policy=none"])
    base = build(own, overrides=["data.held_out=100"])
    planned = plan(3, 60, 40, seeds=1)._replace(own_orders=True)
    assert (planned.final_epochs, planned.own_epochs) == (358, 40)
    # 318 epochs of 3 seconds, and 40 of 4
    left = time_left(planned, 0, [base, fixed, own], Machine(1, 9))
    assert left == "about 0:03:56 for the rungs and 0:18:34 for the comparison, with 1 process"


def test_what_leaves_little_to_see_is_noted():
    base = build(preset("digits"), overrides=["data.held_out=100", "train.epochs=2", "train.batch_size=64"])
    steps, images = notes_on(base, 1437)
    assert steps.startswith("candidates begin with 40 steps each")
    assert images.startswith("candidates are judged on 100 images")
    assert notes_on(build(base, overrides=["data.held_out=200", "train.epochs=3"]), 1437) == []


def test_one_patch_has_one_order(tmp_path):
    with pytest.raises(ValueError, match="an image of one patch has one order"):
        run_search(asked(tmp_path / "s", "model.patch_size=8"), pretend(late), None, QUIET)


def test_two_patches_have_two(tmp_path):
    small = asked(tmp_path / "s", "model.patch_size=4", "model.image_size=[4,8]")
    search = run_search(small, pretend(lambda order: 0.5), None, QUIET)
    assert [candidate.order for candidate in search.candidates] == [[0, 1], [1, 0]]
    assert search.chosen == search.candidates[1].name
    assert "best scan" not in [arm.name for arm in search.arms]
