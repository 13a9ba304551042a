"""The campaign in short, and that it sees what it is there to see."""

import os
import subprocess
import sys
import types
from contextlib import nullcontext
from pathlib import Path

import pytest

from fuzz import campaign
from fuzz.case import (
    ACCEPT,
    EITHER,
    HANG,
    MEMORY,
    REFUSE,
    SAY,
    SECRET,
    SILENT,
    TRACEBACK,
    WRONG_REFUSAL,
    Case,
)

pytestmark = pytest.mark.slow  # it trains, or starts processes


TESTS = Path(__file__).parents[1]


def test_no_input_of_a_short_campaign_breaks_anything_or_slips_through():
    # In a process of its own: one that has trained must not be forked.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}
    environment |= {"OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, "-m", "fuzz", "--seed", "1", "--inputs", "400"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]


def grow():
    return len(bytes(range(256)) * 2**19)  # 128 MB


def refuse():
    raise ValueError("not like this")


def work_for_ever():
    while True:
        pass


def name_no_file():
    raise OSError(28, "No space left on device")


CASES = [
    (SILENT, Case("wrong, but accepted", REFUSE, lambda: 1)),
    (SILENT, Case("wrong, and not a word", SAY, lambda: 1)),
    ("", Case("wrong, and said", SAY, lambda: print("a note"))),
    ("", Case("right", ACCEPT, lambda: 1)),
    (SILENT, Case("right, but misread", ACCEPT, lambda: 1, lambda result: "it is 2")),
    (SILENT, Case("a secret is printed", EITHER, lambda: print(SECRET))),
    (SILENT, Case("a secret is returned", EITHER, lambda: [SECRET])),
    (SILENT, Case("a program is started", EITHER, lambda: subprocess.run(["true"], check=False))),
    (TRACEBACK, Case("an error of ours", EITHER, lambda: {}["key"])),
    (TRACEBACK, Case("an error of a library", REFUSE, lambda: int("x"))),
    (TRACEBACK, Case("an error without a file", REFUSE, name_no_file)),
    (TRACEBACK, Case("the process dies", EITHER, lambda: os._exit(1))),
    (HANG, Case("work without an end", EITHER, work_for_ever)),
    (MEMORY, Case("too large", EITHER, grow)),
    (WRONG_REFUSAL, Case("right, but refused", ACCEPT, lambda: Path("/nowhere").read_text())),
    ("", Case("wrong, and refused", REFUSE, lambda: Path("/nowhere").read_text())),
]


def test_the_campaign_sees_every_kind_of_failure_and_goes_on(tmp_path, monkeypatch):
    kind = types.SimpleNamespace(make=lambda random, folder, ready: CASES[int(folder.name.split("-")[1])][1])
    monkeypatch.setattr(campaign, "KINDS", {"planted": kind})
    monkeypatch.setattr(campaign, "CPU_SECONDS", 1)
    monkeypatch.setattr(campaign, "MEMORY_BYTES", 50 * 2**20)
    batch = campaign.Batch("planted", list(range(len(CASES))))
    findings = campaign.work(0, [batch], tmp_path, 1, lambda finding: None)
    found = {finding.number: finding.failure for finding in findings}
    assert found == {number: failure for number, (failure, _) in enumerate(CASES)}


def test_an_error_that_the_program_does_not_raise_on_purpose_is_no_refusal(monkeypatch):
    from fuzz import case

    verdict = case.judge(Case("refused here", REFUSE, refuse), nullcontext())
    assert verdict.failure == TRACEBACK  # this file is not part of the program
    monkeypatch.setattr(case, "PACKAGE", str(Path(__file__).parent))
    assert case.judge(Case("refused here", REFUSE, refuse), nullcontext()) == (
        "",
        "refused: not like this",
    )
    assert case.judge(Case("refused by int", REFUSE, lambda: int("x")), nullcontext()).failure == TRACEBACK


def test_inputs_are_the_same_whenever_they_are_made(tmp_path):
    def content(folder):
        return [(path.name, path.read_bytes()) for path in sorted(folder.rglob("*")) if path.is_file()]

    made = []
    for name in ("once", "again"):
        (tmp_path / name).mkdir()
        cases = []
        for number in range(20):
            folder = tmp_path / name / str(number)
            folder.mkdir()
            random = campaign.random.Random(f"7 orders {number}")
            cases.append(campaign.KINDS["orders"].make(random, folder, tmp_path).what)
        made.append((cases, content(tmp_path / name)))
    assert made[0] == made[1]
    assert len(set(made[0][0])) > 10


def test_two_changes_of_a_folder_can_be_made_one_after_the_other_and_mean_what_is_said(tmp_path):
    for image in ("train/dark/0", "train/light/0", "val/dark/0", "val/light/0"):
        (tmp_path / f"ready/pictures/{image}.png").parent.mkdir(parents=True)
        (tmp_path / f"ready/pictures/{image}.png").touch()
    expected = {}
    for number in range(690):
        folder = tmp_path / str(number)
        folder.mkdir()
        case = campaign.KINDS["folders"].make(
            campaign.random.Random(f"0 folders {number}"), folder, tmp_path / "ready"
        )
        classes = [path for path in (folder / "pictures/train").glob("[!.]*") if path.is_dir()]
        if "one class" in case.what and case.expect in (ACCEPT, SAY):
            expected[number] = (len(classes), case.expect)
    assert set(expected.values()) == {(1, SAY), (2, ACCEPT)}


@pytest.mark.parametrize("total", [400, 10_000])
def test_every_kind_has_its_share_of_the_inputs(total):
    shares = {kind: campaign.inputs_of(kind, total) for kind in campaign.KINDS}
    assert abs(sum(shares.values()) - total) <= len(shares)
    assert min(shares.values()) >= total / 100
