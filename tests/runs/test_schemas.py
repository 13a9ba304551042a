"""Files with wrong content: one line that names them, and the other runs of a report or sweep go on."""

import json
import math
import re
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from short_runs import QUIET, experiment
from written_runs import make_run

from reorder.orders.disk import checksum
from reorder.orders.schema import Unreadable, check
from reorder.prior.cache import FACTS
from reorder.report.comparisons import compare
from reorder.report.page import Page, page_data
from reorder.report.result_tables import policies
from reorder.report.results import collect, expand, scan_name
from reorder.report.verdicts import groups_of
from reorder.report.write import report_tables
from reorder.runs.directory import RunDir
from reorder.runs.schemas import RESULT, SUMMARY, read
from reorder.training import loop as training

WRONG = (None, "<b>", 10**400, [[]], {"scan": 1})
NO_JSON = (b"", b"{", b"[1]", b'"x"', b"1", b"null", b"[" * 100_000, b"9" * 5000, b"\xff\xfe", b"\0" * 64)


def told(path, kind=None):
    """The line in which a file is refused."""
    with pytest.raises(ValueError, match=r"is damaged|is missing|cannot read") as refused:
        read(path, kind)
    text = str(refused.value)
    assert "\n" not in text
    assert len(text) < 600
    assert str(path) in text
    return text


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "bad", "column", "global")


@pytest.mark.parametrize(
    "name",
    ["summary.json", "metrics.jsonl", "policy.npz", "own_orders.npz", "correct.npy", "prior.json"],
)
@pytest.mark.parametrize("content", NO_JSON)
def test_what_is_not_such_a_file_at_all_is_named(run, name, content):
    if (name, content) == ("metrics.jsonl", b""):
        return  # no epoch is over yet
    (run.path / name).write_bytes(content)
    assert f"{name} is damaged: " in told(run.path / name)


def test_a_file_is_missing_a_directory_or_not_permitted_each_in_its_own_words(run, monkeypatch):
    path = run.path / "summary.json"
    path.unlink()
    assert f"{path} is missing; remove it" in told(path)
    path.mkdir()
    assert "is damaged: " in told(path)
    path.rmdir()

    def forbidden(*_):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(type(path), "read_bytes", forbidden)
    assert told(path) == f"cannot read {path}: Permission denied"
    with pytest.raises(Unreadable):
        read(path)


@pytest.mark.parametrize("key", [key for key in SUMMARY if not key.endswith("?")])
def test_each_key_of_a_summary_is_named_if_it_is_missing_or_wrong(run, key):
    sound = run.summary()
    run.write_summary({name: value for name, value in sound.items() if name != key})
    assert f'lacks "{key}"' in told(run.path / "summary.json")
    for wrong in (None, {}, math.nan):
        run.write_summary(sound | {key: wrong})
        assert re.search(rf'"{key}" must be .*, found ', told(run.path / "summary.json"))
    run.write_summary(sound)
    assert run.summary() == sound


def written(root):
    """All that a report says of runs, but for the drawings."""
    results, notes = collect(expand([root]))
    learned, without = policies(results)
    tables = report_tables(results, compare(results), learned, None, notes)
    data, missing = page_data(Page("", [], [], [], results))
    json.dumps(data, allow_nan=False)
    assert groups_of(results, compare(results).pairs)
    return [*notes, *without, *missing], tables


@pytest.mark.slow
def test_one_bad_file_among_many_runs_is_a_note_and_the_others_are_reported(tmp_path):
    make_run(tmp_path / "good", "row", "global")
    bad = make_run(tmp_path / "bad", "column", "global")
    sound, lines, history = bad.summary(), bad.metrics(), dict(np.load(bad.path / "policy.npz"))
    for key in (*sound, "order_file", "prior_scan", "wall_seconds", "validation_images"):
        for wrong in WRONG:
            (bad.path / "summary.json").write_text(json.dumps(sound | {key: wrong}))
            written(tmp_path)  # noted, or of no consequence
    bad.write_summary(sound)
    for key in ("validation_top1", "validation_loss", "step"):
        for wrong in WRONG:
            changed = [json.dumps(line | {key: wrong}) for line in lines]
            (bad.path / "metrics.jsonl").write_text("\n".join(changed))
            written(tmp_path)
    bad.write_metrics(lines)
    shapes, dtypes = ((), (4,), (5, 16)), ("?", ">f4", "U3")
    arrays = [np.ones(shape, dtype) for shape in shapes for dtype in dtypes]
    for key in history:
        for wrong in arrays:
            np.savez(bad.path / "policy.npz", **history | {key: wrong})
            written(tmp_path)
    np.savez(bad.path / "policy.npz", **history)
    for wrong in arrays:
        np.save(bad.path / "correct.npy", wrong)
        written(tmp_path)
    for content in (b"model: 3", b"model: [", b"train: {epochs: -1}", b"a: 1", b"", b"\0"):
        (bad.path / "config.yaml").write_bytes(content)
        notes, tables = written(tmp_path)
        assert any(f"{bad.path}: left out: " in note for note in notes)
        assert len(tables[0].rows) == 1


def test_results_of_another_run_than_the_configurations_are_left_out(tmp_path):
    make_run(tmp_path / "good")
    mixed = make_run(tmp_path / "mixed", "column")
    mixed.write_summary(mixed.summary() | {"seed": 1})
    found = collect(expand([tmp_path]))
    assert [result.run.path.name for result in found.results] == ["good"]
    (note,) = found.notes
    assert note == f"{mixed.path}: left out: its seed is 1 in summary.json and 0 in config.yaml."


def test_a_policy_of_another_grid_is_not_shown(tmp_path, run):
    other = RunDir(tmp_path / "other")
    other.path.mkdir()
    moments = [(0.0, "before training", 0.0, torch.zeros(4)), (1.0, "policy", 0.1, torch.zeros(4))]
    other.write_policy(moments, torch.arange(4))
    shutil.copy(other.path / "policy.npz", run.path / "policy.npz")
    found, (note,) = policies(collect([run]).results)
    assert found == []
    assert "policy.npz is of 4 patches, but the run reads" in note


@pytest.mark.parametrize(
    ("key", "wrong", "said"),
    [
        ("images", np.zeros((2, 8, 8)), '"images" must be an array .* of uint8, found float64'),
        ("images", np.zeros((2, 8, 8, 4), np.uint8), r"found uint8 of shape \(2, 8, 8, 4\)"),
        ("images", np.zeros((2, 0, 8), np.uint8), r"found uint8 of shape \(2, 0, 8\)"),
        ("images", np.zeros((3, 8, 8), np.uint8), '"orders" are of 2 images, but there are 3'),
        ("orders", np.array([0, 1, 2, 3]), '"orders" must be an array of 2 dimensions'),
        ("orders", np.array([[0.0, 1, 2, 3]] * 2), "found float64"),
        ("orders", np.array([[0, 1, 2, 3], [0, 1, 1, 3]]), "of image 2 does not name each of 4 patches once"),
        ("orders", None, 'lacks "orders"'),
    ],
)
def test_images_without_a_sound_order_of_their_own_are_refused(tmp_path, key, wrong, said):
    sound = {"images": np.zeros((2, 8, 8), np.uint8), "orders": np.array([[0, 1, 2, 3], [3, 2, 1, 0]])}
    path = tmp_path / "own_orders.npz"
    np.savez(path, **sound)
    assert RunDir(tmp_path).own_orders().orders.tolist() == [[0, 1, 2, 3], [3, 2, 1, 0]]
    changed = {name: value for name, value in (sound | {key: wrong}).items() if value is not None}
    np.savez(path, **changed)
    assert re.search(said, told(path))


def test_an_order_of_unknown_origin_can_be_reported(tmp_path):
    origins = {"policy": "global"}, {"policy": ["global"]}, {"policy": "global", "scan": 3}
    for seed, origin in enumerate(origins):
        run = make_run(tmp_path / str(seed), seed=seed)
        run.write_summary(run.summary() | {"scan": "mine.json", "order_file": origin})
    assert {scan_name(result.summary) for result in collect(expand([tmp_path])).results} == {"mine.json"}
    written(tmp_path)


def rewritten(directory, name, change):
    """Change a file of the newest checkpoint, and its checksum with it."""
    newest = max(directory.path.glob("checkpoints/step-*"))
    change(newest / name)
    sums = {file: checksum(newest / file) for file in ("weights.safetensors", "state.pt")}
    (newest / "sha256.json").write_text(json.dumps(sums))
    return newest


@pytest.mark.slow
def test_a_checkpoint_with_wrong_content_is_passed_over(whole, tmp_path):
    directory = RunDir(shutil.copytree(whole.path, tmp_path / "run"))
    newest = max(directory.path.glob("checkpoints/step-*"))
    sound = torch.load(newest / "state.pt", weights_only=True)
    for key in sound:
        for wrong in (None, -1, "x", [1], {"a": object}):
            rewritten(directory, "state.pt", lambda path, state=sound | {key: wrong}: torch.save(state, path))
            checkpoint, damaged = directory.load_checkpoint()
            assert (checkpoint.state["step"], damaged) == (10, ["step-000000015"]), (key, wrong)
    halves = [
        {key: value for key, value in sound.items() if key != half} for half in ("start_step", "stop_step")
    ]
    for wrong in ([], 3, "x", {}, sound | {"step": 14}, *halves):
        rewritten(directory, "state.pt", lambda path, state=wrong: torch.save(state, path))
        assert directory.load_checkpoint()[1] == ["step-000000015"]
    rewritten(directory, "state.pt", lambda path: torch.save(sound, path))
    assert directory.load_checkpoint()[1] == []


def other_optimizer(path):
    state = torch.load(path, weights_only=True)
    state["optimizer"]["state"][0]["exp_avg"] = torch.zeros(3)
    torch.save(state, path)


def other_length(path):
    state = torch.load(path, weights_only=True)
    torch.save(state | {"metrics": state["metrics"][:1]}, path)


def other_weights(path):
    tensors = load_file(path)
    save_file(tensors | {"model.head.weight": torch.zeros(3, 3)}, path)


@pytest.mark.parametrize(
    ("name", "change"),
    [("state.pt", other_optimizer), ("state.pt", other_length), ("weights.safetensors", other_weights)],
)
def test_a_checkpoint_of_another_run_is_refused_in_one_line(whole, tmp_path, name, change):
    directory = RunDir(shutil.copytree(whole.path, tmp_path / "run"))
    (directory.path / "summary.json").unlink()
    rewritten(directory, name, change)
    with pytest.raises(ValueError, match=r"^the checkpoint of .* does not fit its config\.yaml: [^\n]*$"):
        training.train(experiment(), directory, QUIET)


def test_a_recorded_prior_must_name_a_scan(tmp_path):
    run = RunDir(tmp_path)
    for prior in (
        {},
        {"chosen": None},
        {"chosen": {}},
        {"chosen": {"scan": "zigzag"}},
        {"chosen": {"scan": 3}},
    ):
        run.write_prior(prior)
        assert "prior.json is damaged: " in told(tmp_path / "prior.json")
    assert '"chosen.scan" must be one of row, ' in told(tmp_path / "prior.json")
    run.write_prior({"chosen": {"scan": "spiral"}})
    assert run.prior() == {"chosen": {"scan": "spiral"}}


@pytest.mark.parametrize("rules", [RESULT, FACTS])
def test_every_rule_refuses_what_is_not_meant(rules):
    for key, rule in rules.items():
        with pytest.raises(ValueError, match=r'must be .*, found |lacks "'):
            check({key: object()}, {key: rule})


def test_a_policy_that_unpacks_beyond_the_limit_is_not_unpacked(run, monkeypatch):
    with np.load(run.path / "policy.npz") as found:
        arrays = dict(found)
    np.savez_compressed(run.path / "policy.npz", **arrays | {"logits": np.zeros((40, 10**6), np.float32)})
    monkeypatch.setattr(np, "load", None)
    with pytest.raises(
        ValueError, match=r"policy.npz is damaged: it unpacks to 16\d* bytes, more than the limit"
    ):
        read(run.path / "policy.npz")


def test_a_reduction_without_its_error_is_no_prior(tmp_path):
    orders = {"row": {"unigram": {"reduction": 1.0}, "bigram": {"one_stream": 2.0}}}
    (tmp_path / "prior.json").write_text(json.dumps({"grid": [2, 2], "orders": orders}))
    with pytest.raises(ValueError, match=r'"orders.row.unigram" lacks "reduction_sem"'):
        read(tmp_path / "prior.json", "drawn prior")


def test_weights_are_read_from_a_directory_whose_name_is_no_text(whole, tmp_path):
    directory = RunDir(shutil.copytree(whole.path, tmp_path / "\udcff"))
    assert directory.load_checkpoint()[1] == []
