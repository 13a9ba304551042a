"""Runs sorted, named and averaged over seeds, against numpy."""

from itertools import combinations

import numpy as np
import pytest
import torch
from scipy import stats
from written_runs import GRID, IMAGES, correct_of, make_run

from reorder.orders.files import save_order
from reorder.report.results import by_order, collect, expand, order_name, top1
from reorder.runs.statistics import largest_block


def test_a_sweeps_directory_is_expanded_to_its_runs(sweep):
    found = expand([sweep, sweep / "study" / "row-0"])
    assert len(found) == 12
    assert [run.path for run in expand([sweep / "study" / "row-0"])] == [sweep / "study" / "row-0"]
    with pytest.raises(ValueError, match="not a run directory, nor are there any in it"):
        expand([sweep / "study" / "row-0" / "nothing"])


def test_means_over_seeds_and_both_errors_by_hand(sweep):
    groups = by_order(collect(expand([sweep])).results)
    assert [name[2] for name in groups] == [
        "row, fixed",
        "column, fixed",
        "row, equal noise",
        "learned from row",
    ]
    mean = top1(groups["vit mini", "digits 4x4", "learned from row"])
    correct = correct_of(sweep, "learned").astype(float)
    assert mean.value == pytest.approx(correct.mean())
    assert mean.seed_error == pytest.approx(stats.sem(correct.mean(1)))
    # the bootstrap over images: all seeds have the same resample
    draws = np.random.default_rng(0).integers(0, IMAGES, (4000, IMAGES))
    assert mean.image_error == pytest.approx(correct.mean(0)[draws].mean(1).std(), rel=0.05)
    assert mean.seeds == 3
    assert top1(groups["vit mini", "digits 4x4", "row, fixed"][:1]).seed_error is None


def test_unfinished_failed_and_damaged_runs_are_noted_not_fatal(sweep, tmp_path):
    make_run(tmp_path / "good")
    unfinished = make_run(tmp_path / "unfinished", seed=1)
    (unfinished.path / "summary.json").unlink()
    (tmp_path / "failed").mkdir()
    (tmp_path / "failed" / "log.txt").write_text("Traceback\nreorder: no such data\n")
    (make_run(tmp_path / "damaged", seed=2).path / "summary.json").write_text("{")
    (make_run(tmp_path / "blind", seed=3).path / "correct.npy").unlink()
    make_run(tmp_path / "zagain")
    found = collect(expand([tmp_path]))
    assert sorted(result.run.path.name for result in found.results) == ["blind", "good"]
    notes = {note.split(":")[0].rsplit("/", 1)[1]: note for note in found.notes}
    assert "not finished, 3 epochs done" in notes["unfinished"]
    assert "its log ends: reorder: no such data" in notes["failed"]
    assert "damaged" in notes["damaged"]
    assert "correct.npy" in notes["blind"]
    assert "the same run" in notes["zagain"]
    with pytest.raises(ValueError, match="none of the runs is finished"):
        collect(expand([tmp_path / "failed"]))


def test_names_of_orders():
    summary = {"scan": "some/where/mine.json", "policy": "global"}
    assert order_name(summary) == "learned from mine.json"
    assert order_name({"scan": "row.json", "policy": "none"}) == "row.json, fixed"  # no scan of ours
    assert order_name({"scan": "runs/best-1/order.json", "policy": "none"}) == "best-1, fixed"
    learned = {"scan": "column", "policy": "global", "seed": 3}
    assert (
        order_name({"scan": "runs/best-1/order.json", "policy": "none", "order_file": learned})
        == "order learned from column, fixed"
    )
    assert order_name({"scan": "row", "policy": "random"}) == "random every batch"
    assert (
        order_name({"scan": "prior", "prior_scan": "snake", "policy": "noise"})
        == "prior (snake), equal noise"
    )


def test_settings_of_a_policy_are_said_of_every_start_unless_they_are_usual(tmp_path):
    for start, peak in (("row", 0.2), ("row", 0.5)):
        make_run(tmp_path / f"{start}-{peak}", start, "global", temperature=peak)
    assert [result.order for result in collect(expand([tmp_path])).results] == [
        "learned from row, order.temperature=0.2",
        "learned from row, order.temperature=0.5",
    ]
    make_run(tmp_path / "column-0.2", "column", "global", temperature=0.2)
    assert [result.order for result in collect(expand([tmp_path])).results] == [
        "learned from column",
        "learned from row",
        "learned from row, order.temperature=0.5",
    ]


def test_files_of_one_name_with_other_orders_are_told_apart(tmp_path):
    for number, patches in enumerate((torch.arange(16), torch.arange(16), torch.arange(16).flip(0))):
        file = tmp_path / str(number) / "mine.json"
        save_order(file, patches, GRID, {})
        make_run(tmp_path / "runs" / str(number), str(file))
    found = collect(expand([tmp_path / "runs"]))
    assert len(found.results) == 2
    assert len({result.order for result in found.results}) == 2
    assert found.notes == [f"{tmp_path}/runs/1: left out: {tmp_path}/runs/0 is the same run."]


def test_two_orders_learned_from_one_scan_are_not_called_the_same_run(tmp_path):
    for number, patches in enumerate((torch.arange(16), torch.arange(16).flip(0))):
        file = tmp_path / str(number) / "order.json"
        save_order(file, patches, GRID, {"scan": "column", "policy": "global", "seed": 0})
        make_run(tmp_path / "runs" / str(number), str(file))
    found = collect(expand([tmp_path / "runs"]))
    assert found.notes == [
        f"{tmp_path}/runs/1: left out: {tmp_path}/runs/0 reads another order of the same name."
    ]


def test_runs_that_a_run_is_compared_with_are_found_inside_it(tmp_path):
    make_run(tmp_path / "demo", policy="global")
    make_run(tmp_path / "demo" / "fixed-row")
    make_run(tmp_path / "demo" / "noise", policy="noise")
    (tmp_path / "demo" / "wandb" / "files").mkdir(parents=True)
    (tmp_path / "demo" / "wandb" / "files" / "config.yaml").touch()  # not ours
    assert [run.path.name for run in expand([tmp_path])] == ["demo", "fixed-row", "noise"]
    assert [run.path.name for run in expand([tmp_path / "demo"])] == ["demo", "fixed-row", "noise"]


def test_images_go_by_the_name_of_their_directory_wherever_it_lies(tmp_path):
    roots = {"default": None, "here": "/here/fashion-mnist", "there": "/there/mnist"}
    for name, root in roots.items():
        run = make_run(tmp_path / name, seed=len(name))
        text = (run.path / "config.yaml").read_text()
        text = text.replace("name: digits", "name: idx").replace("root: null", f"root: {root or 'null'}")
        (run.path / "config.yaml").write_text(text)
    found = collect(expand([tmp_path])).results
    assert {result.run.path.name: result.data for result in found} == {
        "default": "fashion-mnist 4x4",
        "here": "fashion-mnist 4x4",
        "there": "mnist 4x4",
    }


def test_runs_stand_by_data_then_model_with_7x7_before_14x14(tmp_path):
    for number, (grid, model) in enumerate([(14, "vit"), (7, "mamba"), (14, "mamba"), (7, "vit")]):
        run = make_run(tmp_path / str(number), model=model)
        run.write_summary(run.summary() | {"grid": [grid, grid], "order": list(range(grid * grid))})
    assert [name[:2] for name in by_order(collect(expand([tmp_path])).results)] == [
        ("vit mini", "digits 7x7"),
        ("mamba mini", "digits 7x7"),
        ("vit mini", "digits 14x14"),
        ("mamba mini", "digits 14x14"),
    ]


def test_a_further_study_of_one_model_leaves_the_names_of_the_main_one(tmp_path):
    for model in ("vit", "mamba"):
        for scan_name in ("row", "column"):
            make_run(tmp_path / f"{model}-{scan_name}", scan_name, model=model)
            make_run(tmp_path / f"{model}-{scan_name}-learned", scan_name, "global", model=model)
    for scan_name in ("row", "column"):  # of Mamba's policies as many are warm, of all models' fewer
        make_run(tmp_path / f"long-{scan_name}", scan_name, model="mamba", epochs=9)
        make_run(tmp_path / f"warm-{scan_name}", scan_name, "global", model="mamba", temperature=0.5)
    found = {r.run.path.name: (r.data, r.order) for r in collect(expand([tmp_path])).results}
    assert {found[f"{model}-row"] for model in ("vit", "mamba")} == {("digits 4x4", "row, fixed")}
    assert found["mamba-row-learned"] == ("digits 4x4", "learned from row")
    assert found["long-row"] == ("digits 4x4, train.epochs=9", "row, fixed")
    assert found["warm-row"] == ("digits 4x4", "learned from row, order.temperature=0.5")


def test_the_largest_block_is_that_of_all_subsets():
    """Against a search of all subsets: none that has two seeds makes more runs."""
    draw = np.random.default_rng(0)
    for _ in range(50):
        have = {name: set(np.flatnonzero(draw.random(4) < 0.7).tolist()) for name in "abcd"}
        kept, shared = largest_block(have)
        assert all(shared <= have[name] for name in kept)
        found = {}
        for size in (1, 2, 3, 4):
            for names in combinations(have, size):
                seeds = set.intersection(*(have[name] for name in names))
                found[names] = (min(len(seeds), 2), size * len(seeds))
        assert (min(len(shared), 2), len(kept) * len(shared)) == max(found.values())
    assert largest_block({}) == largest_block({"a": set()}) == ([], set())
    have = {"row": {0, 1, 2}, "column": {0}}
    assert largest_block(have) == (["row"], {0, 1, 2})
    assert largest_block(have, least=2) == (["row", "column"], {0})
