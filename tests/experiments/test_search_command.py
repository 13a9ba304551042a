"""`reorder search` as a user meets it: real runs, one process after another, stopped and continued."""

import json
import signal
import subprocess
import sys

import pytest
from pretended import pretend
from tiny_sweeps import needs_proc, pids_of, wait_for

from reorder.cli import app
from reorder.orders.files import load_order
from reorder.orders.scans import SCANS, scan
from reorder.runs.searches import read_search

pytestmark = pytest.mark.slow  # it trains, or starts processes

TINY = [
    *("digits", "model.patch_size=4", "train.epochs=10", "train.batch_size=32", "train.warmup_epochs=1"),
    *("data.train_images=120", "data.validation_images=60", "train.threads=1"),
    *("--budget", "3.5", "--seeds", "1", "--jobs", "1"),
]


@needs_proc
@pytest.mark.usefixtures("nothing_trains_on")
def test_a_search_that_is_stopped_is_continued_to_its_verdict(tmp_path):
    command = [sys.executable, "-m", "reorder", "search", *TINY, "--out", str(tmp_path / "s")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_for(lambda: len(list(tmp_path.glob("s/candidates/*/summary.json"))) >= 3)
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate(timeout=120)
    assert process.returncode == 130, said + errors
    assert said.startswith("plan: 9 candidates for 1 epoch, 5 variations of the best for 1 epoch")
    assert "runs remain; continue with: reorder search digits" in said
    assert not pids_of(str(tmp_path), "workers")
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    for run in [
        line.split(":")[0].split(" ")[1] for line in said.splitlines() if line.startswith("finished")
    ]:
        assert f"started {run}\n" not in done.stdout.split("rung 1 of")[0]
    search = read_search(tmp_path / "s")
    assert [rung.epochs for rung in search.rungs] == [1, 1, 1, 3, 5]
    assert done.stdout.splitlines()[-2] == f"{search.verdict}."
    assert json.loads((tmp_path / "s" / "verdict.json").read_text())["text"] == search.verdict
    assert load_order(tmp_path / "s" / "order.json", (2, 2)).order.tolist() == search.order_of(search.chosen)
    for file in ("search.png", "report/index.html", "report/search.md"):
        assert (tmp_path / "s" / file).exists()
    assert len({tuple(c.order) for c in search.candidates}) == len(search.candidates)
    assert search.order_of("row") == scan("row", 2, 2).tolist()
    again = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert again.returncode == 0
    assert again.stdout.startswith(f"the search in {tmp_path / 's'} is finished already")


def test_the_runs_of_a_search_can_be_jobs(tmp_path, monkeypatch, capsys):
    train, asked_for = pretend(lambda order: 0.5), []

    def submitted(tasks, folder, options):
        asked_for.append((len(tasks), folder, options))
        train(tasks)

    monkeypatch.setattr("reorder.experiments.trainers.submit_and_wait", submitted)
    options = [
        *TINY[:-2],
        "model.patch_size=2",
        "--slurm",
        "--slurm-option",
        "partition=gpu",
        "--out",
        str(tmp_path / "s"),
    ]
    app(["search", *options], standalone_mode=False)
    search = read_search(tmp_path / "s")
    rungs = [len(rung.scores) for rung in search.rungs]
    # Every rung is an array of jobs, and so are the learning run and the last ones, of which a scan is found.
    assert [count for count, _, _ in asked_for] == [*rungs[:2], 1, *rungs[2:], 5 - (search.chosen in SCANS)]
    assert {str(folder) for _, folder, _ in asked_for} == {str(tmp_path / "s" / ".slurm")}
    assert all(options == ["partition=gpu"] for _, _, options in asked_for)
    assert "about" not in capsys.readouterr().out  # how long jobs wait is not known here
    assert search.verdict is not None
