"""How long a sweep takes, by hand-computed numbers: none depends on this machine's clock."""

import re
import subprocess
from types import SimpleNamespace

import pytest
import torch

from reorder.data.ranks import ALONE, World
from reorder.experiments import forecast as estimate
from reorder.experiments.arguments import plans_of
from reorder.experiments.forecast import Pace, forecast
from reorder.experiments.grids import tasks_of, with_threads

SUMMARY = {
    "model": "transformer_xl",
    "size": "mini",
    "grid": [4, 4],
    "scan": "row",
    "policy": "none",
    "seed": 0,
    "top1": 0.5,
    "top1_sem": 0.1,
    "top5": 0.9,
    "parameters": 1,
    "images_per_second": 1.0,
    "seconds": 1.0,
    "order": [*range(16)],
}


def tasks(out, *arguments, epochs="10"):
    if not any(argument.startswith("order.policy=") for argument in arguments):
        arguments = ("order.policy=none", *arguments)
    return tasks_of(plans_of(["digits", f"train.epochs={epochs}", *arguments])[0], out)


def trained(task, epochs):
    task.directory.create(task.experiment)
    task.directory.write_metrics([{"epoch": 1, "validation_top1": 0.5, "validation_loss": 1.0}] * epochs)


@pytest.fixture
def measured(monkeypatch):
    """The kinds of runs that were measured; of each, starting takes 10 s and an epoch 20 s."""
    kinds = []
    measure = estimate.measure

    def paced(experiment, world, process_seconds):
        kinds.append(experiment)
        return Pace(10, 20) if experiment.data.name == "digits" else measure(experiment, world, 1.0)

    monkeypatch.setattr(estimate, "measure", paced)
    monkeypatch.setattr(subprocess, "run", lambda *arguments, **options: None)
    return kinds


def test_a_batch_takes_as_long_to_read_as_a_round_of_all_workers_does_by_their_number(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(estimate, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def batches(workers=4, seconds=8.0):
        for number in range(100):
            if number % workers == 0:  # each reads one batch in 8 s, all at the same time
                now[0] += seconds
            yield number

    kept, seconds = estimate.loaded(batches(), 4)
    assert (kept, seconds) == ([0, 1, 2, 3], 2.0)
    assert estimate.loaded(iter([7]), 4) == ([7], 0.0)


def test_reading_and_computing_take_turns_on_a_cpu_and_go_side_by_side_with_a_gpu():
    gpu = World(0, 1, torch.device("cuda", 0))
    assert [estimate.together(2.0, 5.0, world) for world in (ALONE, gpu)] == [7.0, 5.0]


def test_a_pace_is_what_starting_the_steps_and_the_validation_take(monkeypatch):
    now, trained = [100.0], []
    monkeypatch.setattr(estimate, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def taking(seconds, result=None):
        now[0] += seconds
        return result

    def batches(count, seconds):
        for _ in range(count):
            yield taking(seconds, (torch.arange(4), torch.zeros(4, 1), torch.zeros(4)))

    def train_step(run, images, labels):
        assert run.model.training
        trained.append(len(images))
        taking(11.0 if len(trained) == 1 else 3.0)  # the first compiles for 8 s

    loader = SimpleNamespace(
        epoch=lambda number: ((images, labels) for _, images, labels in batches(10, 2.0)),
        validate=lambda: batches(3, 1.0),
        steps_per_epoch=10,
        dataset=SimpleNamespace(validation=range(12)),
    )
    run = SimpleNamespace(model=torch.nn.Linear(1, 1).eval(), loader=loader, initial=torch.arange(4))
    monkeypatch.setattr(estimate, "setup", lambda *_: taking(5.0, run))
    monkeypatch.setattr(estimate, "train_step", train_step)
    monkeypatch.setattr(estimate, "evaluate", lambda *_: taking(7.0))
    kind = SimpleNamespace(data=SimpleNamespace(workers=None))
    # To start, 1 s for the process, 5 for the set-up, 8 to compile. A step reads for 2 s and computes for 3;
    # four images of the validation take 1 and 7.
    assert estimate.measure(kind, ALONE, 1.0) == Pace(1 + 5 + 8, 10 * (2 + 3) + 12 * (1 + 7) / 4)
    assert trained == [4] * 4


def test_what_is_left_of_a_finished_a_half_done_and_a_fresh_run(tmp_path):
    finished, half, fresh = tasks(tmp_path, "seed=0,1,2")
    trained(finished, 10)
    finished.directory.write_summary({"top1": 0.5})
    trained(half, 5)
    assert [Pace(7, 3).seconds(task) for task in (finished, half, fresh)] == [0, 7 + 5 * 3, 7 + 10 * 3]


def test_a_kind_is_measured_once_for_all_seeds_and_orders(tmp_path, measured):
    found = tasks(tmp_path, "model.name=vit,mamba", "scan=row,column", "seed=0,1,2", epochs="10,20")
    lines = forecast(found, jobs=1, threads=1, world=ALONE)
    assert [kind.model.name for kind in measured] == ["vit", "mamba"]
    assert sum(line.endswith("new, about 0:03:30") for line in lines) == 12  # 10 + 10 * 20 s
    assert sum(line.endswith("new, about 0:06:50") for line in lines) == 12  # 10 + 20 * 20 s
    assert lines[-1] == "24 runs, 0 finished; about 2:04:00 with 1 process of 1 thread"


def test_the_time_of_them_all_is_that_of_the_process_that_ends_last(tmp_path, measured, monkeypatch):
    finished, half, *fresh = tasks(tmp_path, "seed=0,1,2,3")
    finished.directory.create(finished.experiment)
    finished.directory.write_summary({"top1": 0.5})
    trained(half, 5)
    monkeypatch.setattr(estimate, "SHARING", 1.0)
    # 110 s and then 210 s in one process, 210 s in the other
    *lines, total = forecast([finished, half, *fresh], jobs=2, threads=1, world=ALONE)
    assert [line.split("  ")[1] for line in lines] == [
        "finished",
        "5 of 10 epochs done, about 0:01:50",
        "new, about 0:03:30",
        "new, about 0:03:30",
    ]
    assert total == "4 runs, 1 finished; about 0:05:20 with 2 processes of 1 thread"
    (_, total) = forecast(fresh[:1], jobs=2, threads=1, world=ALONE)  # a run cannot be shared
    assert "about 0:03:30 with" in total


def finished(task, wall_seconds):
    """Leave what a run leaves that took so long."""
    task.directory.create(task.experiment)
    task.directory.write_summary(
        SUMMARY | {"epochs": task.experiment.train.epochs, "wall_seconds": wall_seconds}
    )


def test_finished_runs_of_the_same_kind_tell_the_pace_and_nothing_is_measured(tmp_path, measured):
    run = [with_threads(task, 1) for task in tasks(tmp_path, "scan=row,column,snake", "seed=0,1")]
    finished(run[0], 300.0)
    finished(run[1], 500.0)
    finished(with_threads(tasks(tmp_path, "model.name=mamba")[0], 1), 9000.0)
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "summary.json").write_text("{}")
    pace = estimate.paces(run, 1.15, ALONE)[run[2].name]
    assert (pace.epoch, pace.start) == (40.0, pytest.approx(0.0, abs=60))  # the mean of 30 and 50
    assert measured == []


def test_a_step_of_the_policy_stage_may_cost_more_and_counts_by_its_share(tmp_path):
    def measure(experiment):
        order = experiment.order
        if order.policy == "none":
            return Pace(10, 20)
        assert (order.policy, order.estimator, order.scan) == ("global", "paired", "row")
        assert order.curriculum[:2] == (0.0, 1.0)  # every step is one
        return Pace(12, 60)

    fixed, learns = (
        tasks(
            tmp_path, f"order.policy={policy}", "estimator=paired", "order.policy_fraction=0.25", "scan=snake"
        )
        for policy in ("none", "global")
    )
    assert estimate.measured_pace(fixed[0].experiment, measure) == Pace(10, 20)
    assert estimate.measured_pace(learns[0].experiment, measure) == Pace(10, 30)  # 3/4 of 20 and 1/4 of 60


def test_a_pace_that_is_measured_alone_is_stretched_for_processes_that_share_a_cpu(tmp_path, measured):
    def epoch_seconds(jobs, device):
        world = World(0, 1, torch.device(device))
        total = forecast(tasks(tmp_path, "seed=0"), jobs=jobs, threads=1, world=world)[-1]
        minutes, seconds = re.search(r"about 0:(\d\d):(\d\d)", total).groups()
        return (60 * int(minutes) + int(seconds) - 10) / 10

    assert [epoch_seconds(1, "cpu"), epoch_seconds(2, "cuda")] == [20.0, 20.0]
    assert epoch_seconds(2, "cpu") == 23.0  # 20 s * 1.15


def test_data_that_are_not_here_are_said_and_all_runs_listed(tmp_path, measured):
    known = tasks(tmp_path, "seed=0,1")
    unknown = [
        task
        for root in ("one", "two")
        for task in tasks(tmp_path, "data.name=image_folder", f"data.root={tmp_path / root}", "seed=0,1")
    ]
    *lines, total = forecast([*unknown, *known], jobs=1, threads=1, world=ALONE)
    assert [line.split("  ")[1] for line in lines] == ["new"] * 4 + ["new, about 0:03:30"] * 2
    said, missing = total.split(" cannot be measured here: ")
    assert said == "6 runs, 0 finished; about 0:07:00 with 1 process of 1 thread; the time of 4 of them"
    assert missing == "; ".join(f"data.root={tmp_path / root} is not a directory" for root in ("one", "two"))
    assert len(measured) == 3
