"""A whole report, from the small files of runs."""

import csv
import json
import re
import shutil

import numpy as np
import pytest
from written_runs import GRID, make_run

from reorder.cli import app
from reorder.report import result_tables
from reorder.report.results import collect, expand
from reorder.report.write import MOST_POLICIES, Options, policies_to_draw, write_report

pytestmark = pytest.mark.slow  # it trains, or starts processes


def test_a_report_is_made_from_small_files_alone(sweep, tmp_path):
    copy = shutil.copytree(sweep, tmp_path / "copy")
    make_run(copy / "study" / "mamba", model="mamba")
    prior = {"grid": GRID, "orders": {}}
    for place, name in enumerate(("row", "column")):
        prior["orders"][name] = {"unigram": {"reduction": 20.0 + place, "reduction_sem": 0.1}, "entropy1": {}}
    (tmp_path / "prior.json").write_text(json.dumps(prior))
    options = Options(track=((1, 2),), priors=(tmp_path / "prior.json",))
    page, verdicts, made, _ = write_report(expand([copy]), tmp_path / "report", options)
    assert page.read_text().count("<table") >= 5
    assert verdicts[0].startswith("vit mini on digits 4x4: The learned order is ")
    names = ["orders", "scans", "differences", "settings", "centre", "runs", "pairs"]
    assert [table.name for table in made] == names
    assert len((tmp_path / "report" / "runs.csv").read_text().splitlines()) == 14
    drawn = {path.name for path in (tmp_path / "report" / "figures").iterdir()}
    for name in ("arms", "change", "learning", "compressibility"):
        assert {f"{name}.png", f"{name}.svg"} <= drawn
    policy = "policy-vit-mini-digits-4x4-learned-from-row-seed-0"
    assert {f"{policy}.png", f"{policy}.svg"} <= drawn
    small = {"config.yaml", "summary.json", "metrics.jsonl", "correct.npy", "policy.npz"}
    assert {path.name for path in copy.rglob("*") if path.is_file()} == small


def test_the_command_takes_a_radius_a_prior_and_patches_to_follow(tmp_path):
    runs, prior = tmp_path / "runs", {"grid": GRID, "orders": {}}
    make_run(runs / "row")
    learned = make_run(runs / "learned", policy="global")
    prior["orders"]["row"] = {"unigram": {"reduction": 20.0, "reduction_sem": 0.1}}
    (tmp_path / "prior.json").write_text(json.dumps(prior))

    def written(name, *options):
        """The centre's radius and shift, whether a prior is drawn, and the patches followed in the page."""
        out = tmp_path / name
        app(["report", str(runs), "-o", str(out), *options], standalone_mode=False)
        (row,) = csv.DictReader((out / "centre.csv").read_text().splitlines())
        page = (out / "index.html").read_text()
        tracked = set(re.findall(r'"tracked":\[(\d+,\d+)\]', page))
        (within,) = re.findall(r"the patches within (.*?) of the grid", page)
        figures = {path.stem for path in (out / "figures").iterdir()}
        return within, float(row["shift (slots)"]), "compressibility" in figures, tracked

    def shift(patches):
        slot_of = np.argsort(learned.summary()["order"])
        return np.mean([patch - slot_of[patch] for patch in patches])  # from row-major, towards the front

    inner = shift((5, 6, 9, 10))
    all_but_corners = shift(set(range(16)) - {0, 3, 12, 15})
    assert inner != pytest.approx(all_but_corners)
    quarter = "a quarter of the shorter side"
    assert written("plain") == (quarter, pytest.approx(inner), False, {"10,0"})
    options = ["--radius", "2", "--prior", str(tmp_path / "prior.json"), "--track", "1,2", "--track", "4,3"]
    assert written("asked", *options) == ("2 patches", pytest.approx(all_but_corners), True, {"1,14"})


def test_too_many_policies_are_not_all_drawn_which_is_said(sweep):
    learned, _ = result_tables.policies(collect(expand([sweep])).results)
    assert [policy.result.seed for policy in policies_to_draw(learned)[0]] == [0]
    many = [p._replace(result=p.result._replace(order=f"{n}")) for n in range(20) for p in learned]
    other = [p._replace(result=p.result._replace(model="mamba mini")) for p in many]
    shown, (note,) = policies_to_draw(many + other)
    assert len(shown) == MOST_POLICIES
    assert [p.result.model for p in shown[:3]] == ["vit mini", "mamba mini", "vit mini"]
    assert "Of 120 learned runs, the policies of 12 are drawn" in note
