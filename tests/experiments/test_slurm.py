"""Slurm's jobs, with submitit's local executor in its place."""

import os
import re
import shlex
import shutil
import signal
import sys
from itertools import pairwise
from pathlib import Path
from string import Template

import pytest
from tiny_sweeps import LONG, TINY, learned, needs_proc, pids_of, tasks, wait_for

from reorder.cli.options import check_slurm
from reorder.experiments.arguments import parse, plans_of, slurm_parameter
from reorder.experiments.here import Failed
from reorder.experiments.slurm import grouped, launcher, submit, submit_and_wait

pytestmark = pytest.mark.slow  # it trains, or starts processes


@pytest.mark.parametrize("gpus", [0, 1, 2, 4])
def test_a_job_with_several_gpus_has_a_process_for_each(monkeypatch, gpus):
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    python, *more = launcher()
    assert python == sys.executable
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    assert more == ([*torchrun, str(gpus)] if gpus > 1 else [])


def test_a_job_is_a_run_and_those_that_read_its_order(tmp_path):
    teacher, pupil = learned(tmp_path)
    (alone,) = tasks(TINY, tmp_path)
    assert grouped([alone, teacher, pupil]) == [[alone], [teacher, pupil]]


@needs_proc
@pytest.mark.usefixtures("nothing_trains_on")
def test_a_preempted_job_saves_its_run_and_goes_on_when_queued_again(tmp_path):
    pytest.importorskip("submitit")
    (task,) = tasks([*LONG, "checkpoint_minutes=1000"], tmp_path)
    (job,) = submit([task], tmp_path / "slurm", ["timeout_min=10"], cluster="local")
    log = task.directory.path / "log.txt"
    wait_for(lambda: task.epochs_done >= 1)
    (training,) = pids_of(f"--resume {task.directory.path}")
    (inside,) = pids_of(f"submitit.core._submit {tmp_path / 'slurm'}")
    os.kill(training, signal.SIGUSR2)  # what Slurm sends before the time is over, on some clusters to all
    os.kill(inside, signal.SIGUSR2)
    wait_for(lambda: "continues after step" in log.read_text())
    assert "stopped by SIGTERM and saved" in log.read_text()
    (again,) = pids_of(f"--resume {task.directory.path}")
    assert again != training
    # SIGTERM to the job's own process, the first that Slurm does to a job it preempts: saved, and on it goes.
    os.kill(pids_of(f"submitit.core._submit {tmp_path / 'slurm'}")[0], signal.SIGTERM)
    wait_for(lambda: log.read_text().count("continues after step") == 2)
    # A run that dies makes its job fail.
    (third,) = pids_of(f"--resume {task.directory.path}")
    os.kill(third, signal.SIGKILL)
    assert f"RuntimeError: {task.name}" in str(job.exception())


def test_a_job_ends_with_its_run(tmp_path):
    pytest.importorskip("submitit")
    (task,) = tasks(TINY, tmp_path)
    (job,) = submit([task], tmp_path / "slurm", [], cluster="local")
    assert job.result() is None
    assert task.finished
    assert submit([task], tmp_path / "slurm", [], cluster="local") == []


def test_jobs_are_waited_for_and_a_run_that_failed_is_named(tmp_path):
    pytest.importorskip("submitit")
    row, column = tasks([*TINY, "scan=row,column"], tmp_path)
    column.directory.path.mkdir()
    (column.directory.path / "checkpoints").write_text("in the way")  # no checkpoint can be written
    with pytest.raises(Failed, match=r"1 of 2 runs failed, the first: .*column.*checkpoints") as error:
        submit_and_wait([row, column], tmp_path / "slurm", [], cluster="local")
    assert row.finished
    assert str(error.value).endswith("; the same command continues")
    submit_and_wait([row], tmp_path / "slurm", [], cluster="local")


def test_what_slurm_cannot_be_asked_for_is_said_in_one_line(tmp_path):
    pytest.importorskip("submitit")
    (task,) = tasks(TINY, tmp_path)
    for option, says in (
        ("partition", "takes key=value"),
        ("gpus_per_node=many", "gpus_per_node"),
        ("colour=red", "colour"),
        ("time=1:30:00", "use timeout_min=MINUTES"),
    ):
        with pytest.raises(ValueError, match=says) as error:
            submit([task], tmp_path / "slurm", [option], cluster="local")
        assert "\n" not in str(error.value)
    if shutil.which("srun") is None:
        with pytest.raises(ValueError, match="there are none on this machine"):
            submit([task], tmp_path / "slurm", [])


def test_what_is_no_number_stays_as_it_was_typed():
    typed = ["account=01234", "constraint=yes", "qos=1e3", "mem_gb=1.5", "gpus_per_node=4", "exclusive=true"]
    assert [slurm_parameter(option) for option in [*typed, "setup=[module load cuda]"]] == [
        ("slurm_account", "01234"),
        ("slurm_constraint", "yes"),
        ("slurm_qos", "1e3"),
        ("mem_gb", 1.5),
        ("gpus_per_node", 4),
        ("slurm_exclusive", True),
        ("slurm_setup", ["module load cuda"]),
    ]


def documented_commands():
    """The commands of docs/scale.md as lists of arguments, with their shell variables filled in."""
    text = Path(__file__).parents[2].joinpath("docs", "scale.md").read_text().replace("\\\n", " ")
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL))
    variables = dict(re.findall(r'^(\w+)="(.*)"$', blocks, re.MULTILINE))
    lines = [
        Template(line).substitute(variables) for line in blocks.splitlines() if line.startswith("reorder ")
    ]
    return [shlex.split(line) for line in lines]


def test_the_commands_for_the_papers_scale_are_accepted():
    runs = {}
    for _, command, *arguments in documented_commands():
        assert "--slurm" in arguments
        options = [value for key, value in pairwise(arguments) if key == "--slurm-option"]
        check_slurm(True, options, None)
        first = arguments.index("--budget" if command == "search" else "--slurm")
        keys = arguments[:first]
        if command == "search":
            experiment, name = parse(keys)
            assert experiment.model.image_size // experiment.model.patch_size == 14  # the paper's grid
        else:
            plans, _ = plans_of(keys)
            gpus = int(dict(option.split("=") for option in options)["gpus_per_node"])
            for plan in plans:
                train = plan.experiment.train
                assert train.batch_size % (gpus * train.accumulate) == 0
            runs[keys[0]] = len(plans)
    assert runs == {
        "paper/orders": 240,
        "paper/reorder": 240,
        "paper/noise": 240,
        "paper/random": 25,
        "paper/no-flips": 60,
        "paper/300-epochs": 20,
        "release/orders": 48,
        "release/reorder": 48,
    }
    assert name == "paper/mamba-imagenet-row"
