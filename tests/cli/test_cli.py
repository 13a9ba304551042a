"""The command line, as a user meets it: in a process of its own."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from reorder.cli import COMMANDS, main
from reorder.cli.checks import ENDINGS
from reorder.config import TOKENIZERS
from reorder.data.datasets import DATASETS
from reorder.experiments import arguments
from reorder.models.backbones import BACKBONES
from reorder.prior.codes import FITTED

pytestmark = pytest.mark.slow  # it trains, or starts processes


TINY = ["model.patch_size=4", "train.epochs=2", "train.batch_size=512", "order.scan=column"]


def reorder(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "reorder", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture
def here(tmp_path, monkeypatch, capsys):
    """What the command answers in this process, which has imported all that it needs: one start saved."""

    def answer(*arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["reorder", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        printed = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, stopped.value.code or 0, printed.out, printed.err)

    return answer


def test_version_and_help(here):
    assert here("--version").stdout.startswith("reorder 0.")
    top = reorder("--help")
    assert top.returncode == 0
    plain = [command.__name__ for command in COMMANDS]
    assert len(plain) > 8
    for command in [*plain, "order", "order show", "order convert", "order compare"]:
        assert command.split()[0] in top.stdout
        shown = here(*command.split(), "--help")
        assert shown.returncode == 0
        assert f"reorder {command}" in shown.stdout
        assert "Example:" in shown.stdout
        assert "<bool>" not in shown.stdout


def test_train_ends_with_a_table_of_three_orders_and_a_report(tmp_path):
    done = reorder("train", "digits", *TINY, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    for run in ("run", "run/fixed-row", "run/fixed-column"):
        assert f"started {run}\n" in done.stdout
        assert f"finished {run}: top-1 " in done.stdout
    assert "epoch 2/2" in (tmp_path / "run" / "log.txt").read_text()
    for row in ("row, fixed", "column, fixed", "learned from column"):
        assert row in done.stdout.replace("│", " ")
    assert "±" in done.stdout
    page = done.stdout.split("report: ")[1].strip()
    assert "learned from column" in Path(page).read_text()
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["policy"] == "global"
    drawn = {path.relative_to(tmp_path / "run").as_posix() for path in tmp_path.glob("run/**/figures/*.png")}
    own = {f"figures/{name}.png" for name in ("curves", "order", "logits")}
    beside = {f"fixed-{name}/figures/curves.png" for name in ("row", "column")}
    assert {path for path in drawn if not path.startswith("report/")} == own | beside
    again = reorder("train", "--resume", tmp_path / "run")
    assert again.returncode == 0
    assert "3 of 3 runs are finished already" in again.stdout
    report = reorder("report", tmp_path / "run", tmp_path / "run" / "fixed-row", "-o", tmp_path / "report")
    assert report.returncode == 0, report.stderr
    assert "learned from column" in (tmp_path / "report" / "orders.md").read_text()
    one = reorder("evaluate", "run", "--order", "run/fixed-row/order.json", cwd=tmp_path)
    assert one.returncode == 0, one.stderr
    assert "digits, 360 images" in one.stdout
    saved = tmp_path / one.stdout.split("saved: ")[1].strip()
    assert (saved / "correct.npy").exists()
    two = reorder("evaluate", "run", "run/fixed-row", cwd=tmp_path)
    assert two.returncode == 0, two.stderr
    assert two.stdout.startswith("run minus run/fixed-row, top-1: ")
    assert "McNemar's test: p = " in two.stdout
    other = reorder("train", "digits", *TINY, "train.seed=5", "--out", tmp_path / "run")
    assert other.returncode == 2
    assert "holds a run of another configuration" in other.stderr


def test_quiet_prints_nothing_and_a_file_can_be_given(tmp_path):
    (tmp_path / "mine.yaml").write_text(
        "model: {size: mini, image_size: 8, patch_size: 4}\ntrain: {epochs: 1, batch_size: 512}\n"
    )
    done = reorder("train", "mine.yaml", "--quiet", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert (tmp_path / "runs" / "mine" / "summary.json").exists()


def test_list_shows_the_presets(here):
    listed = here("train", "--list").stdout.splitlines()
    assert {"demo", "digits", "digits-vit"} < {line.split()[0] for line in listed}
    (line,) = (line for line in listed if line.split()[0] == "paper/mamba-fmow-snake-reorder")
    assert line.endswith("base mamba, fmow, 100 epochs, batch 1280, order: learned from snake")


def test_ctrl_c_leaves_a_run_that_continues(tmp_path):
    command = [sys.executable, "-m", "reorder", "train", *TINY, "train.epochs=500", "train.compare=false"]
    with subprocess.Popen(
        [*command, "--out", str(tmp_path / "run")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert "epoch 1/500" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert said.startswith("reorder: stopped by SIGINT and saved")
    assert said.count("\n") == 1
    assert list((tmp_path / "run" / "checkpoints").glob("step-*"))


AT_ONCE = [  # answered before anything slow is imported
    ["--help"],
    ["--version"],
    ["trian"],
    ["train", "--help"],
    ["train", "--list"],
    ["train", "--fast"],
    ["train", "imagnet"],
    ["train", "absent.yaml"],
    ["train", "order.scan=zigzag"],
    ["train", "order.scan=absent.json"],
    ["train", "model.name=resnet"],
    ["train", "model.size=huge"],
    ["train", "model.image_size=9"],
    ["train", "model.image_size=1000000", "model.patch_size=1"],
    ["train", "data.name=mnist"],
    ["train", "data.name=hf:"],
    ["train", "train.epochs=ten"],
    ["train", "train.compare=[row,nothing]"],
    ["train", "--resume", "nowhere"],
    ["train", "--resume", ".", "--out", "x"],
    ["train", "--resume", "run", "model.name=vit"],
    ["search", "--help"],
    ["search", "--budget", "0.5"],
    ["search", "--seeds", "0"],
    ["search", "imagnet"],
    ["search", "--order", "absent.json"],
    ["search", "--slurm", "--slurm-option", "partition"],
    ["prior", "--tokenizer", "gzip"],
    ["prior", "--scope", "all"],
    ["prior", "--images", "1"],
    ["prior", "--order", "absent.json"],
    ["evaluate"],
    ["evaluate", "nowhere"],
    ["evaluate", "nowhere", "--data", "name"],
    ["evaluate", "run", "--order", "absent.json"],
    ["evaluate", "run", "./run/../run"],
    ["sweep", "nothing"],
    ["sweep", "--list"],
    ["sweep", "scan=row,zigzag"],
    ["sweep", "seed=1,,2"],
    ["sweep", "--jobs", "0"],
    ["sweep", "--slurm", "--slurm-option", "partition"],
    ["search", "order.scan=zigzag"],
    ["search", "--budget", "0"],
    ["report", "nowhere"],
    ["report", "run", "--track", "one"],
    ["scans", "--rows", "0"],
    ["scans", "-o", "scans.doc"],
    ["coverage", "--patch-size", "30"],
    ["coverage", "--size", "huge"],
    ["coverage", "-o", "coverage.txt"],
    ["bench", "nothing"],
    ["predict", "--help"],
    ["predict", "run"],
    ["predict", "nowhere", "list.txt"],
    ["predict", "run", "absent.png"],
    ["predict", "run", "list.txt", "--batch-size", "0"],
    ["export", "run"],
    ["export", "run", "--onnx", "run"],
    ["export", "nowhere", "--onnx", "x.onnx"],
    ["export", "run", "--hub", "run"],
    ["order", "--help"],
    ["order"],
    ["order", "draw"],
    ["order", "show", "absent.json"],
    ["order", "convert", "absent.npy"],
    ["order", "convert", "list.txt", "--grid", "4"],
    ["order", "convert", "list.txt", "-o", "order.npy"],
    ["order", "convert", "run/config.yaml"],
    ["order", "compare", "list.txt"],
]
ASK_ONE_AFTER_THE_OTHER = """
import contextlib, io, json, sys
from reorder.cli import main
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["reorder", *arguments]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            main()
        except SystemExit as ended:
            status = ended.code or 0
    print(json.dumps([status, said.getvalue(), sorted({"torch", "matplotlib"} & set(sys.modules))]))
"""


def test_help_and_bad_arguments_are_answered_without_torch_and_matplotlib(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").touch()
    (tmp_path / "list.txt").touch()
    command = [sys.executable, "-c", ASK_ONE_AFTER_THE_OTHER, json.dumps(AT_ONCE)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(AT_ONCE), done.stderr
    for typed, (status, said, imported) in zip(AT_ONCE, answers, strict=True):
        asked = typed[-1] in ("--help", "--version", "--list")
        assert (status, imported) == (0 if asked else 2, []), (typed, said)
        assert asked or said.startswith("reorder: "), typed
    assert {typed[0] for typed in AT_ONCE} > {command.__name__ for command in COMMANDS}


def test_the_names_that_are_refused_at_once_are_those_of_the_tables():
    assert tuple(BACKBONES) == arguments.MODELS
    assert tuple(DATASETS) == (*arguments.DATASETS, "hf")
    assert set(Figure().canvas.get_supported_filetypes()) <= set(ENDINGS)
    assert {*FITTED, "chameleon"} == set(TOKENIZERS)


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_scans_are_drawn(tmp_path, here, ending):
    path = tmp_path / f"scans.{ending}"
    assert here("scans", "--rows", 3, "--columns", 5, "-o", path).returncode == 0
    head = path.read_bytes()[:200]
    assert head.startswith(b"\x89PNG") if ending == "png" else b"<?xml" in head


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["train", "imagnet"], "unknown preset 'imagnet'; choose from digits"),
        (["train", "order.scan=zigzag"], "unknown scan 'zigzag'; choose from row"),
        (["train", "model.name=resnet"], "unknown model 'resnet'; choose from vit"),
        (["train", "model.size=huge"], "unknown size 'huge'; choose from mini"),
        (["train", "model.depth=3"], "unknown key 'model.depth'; choose from model.name"),
        (["train", "train.epochs=ten"], "train.epochs"),
        (["train", "model.image_size=9"], "image size 9x9 is not divisible by patch size 2; try 8x8"),
        (["train", "model.options.window=3"], "unknown option 'window' of model transformer_xl"),
        (["train", "order.scan=short.json"], '"order" must be a list of 16 integers, found 3'),
        (["train", "order.scan=absent.json"], "absent.json: No such file"),
        (["train", "train.compare=[row,nothing]"], "unknown arm 'nothing'; choose from start, row"),
        (["train", "train.track=wandb"], "train.track=wandb needs wandb: pip install"),
        (["train", "data.name=mnist"], "unknown dataset 'mnist'; choose from digits"),
        (["train", "absent.yaml"], "cannot read absent.yaml"),
        (["train", "--resume", "nowhere"], "nowhere is not a run directory"),
        (["report", "nowhere"], "nowhere is not a run directory"),
        (["evaluate"], "missing argument"),
        (["evaluate", "nowhere"], "nowhere is not a run directory"),
        (
            ["evaluate", "nowhere", "--data", "name"],
            "--data takes key=value, such as root=DIR, got 'name'",
        ),
        (["evaluate", "nowhere", "elsewhere"], "nowhere is not a run directory"),
        (["evaluate", "a", "b", "c"], "one run to evaluate or two to compare, not 3"),
        (
            ["evaluate", "a", "b", "--order", "short.json"],
            "--order, --data and --sensitivity are for one run",
        ),
        (["evaluate", "a", "--data", "name=idx", "root=b"], "repeat --data for each key=value"),
        (["evaluate", "a", "./a/../a"], "a and a/../a are the same run"),
        (["scans", "--rows", "0"], "0 x 14"),
        (
            ["scans", "--rows", "100000", "--columns", "100000"],
            "at most 4,194,304 patches, got 100000 x 100000",
        ),
        (["coverage", "--image-size", "130", "--patch-size", "2"], "at most 4,096 patches, got 65 x 65"),
        (["train", "model.image_size=1000000", "model.patch_size=1"], "at most 4,194,304 patches"),
        (
            ["scans", "-o", "short.json/scans.png"],
            "cannot write to short.json: short.json is not a directory",
        ),
        (["coverage", "-o", "short.json/x.png"], "cannot write to short.json: short.json is not a directory"),
        (["report", "a", "--track", "9" * 5000 + ",1"], "--track takes ROW,COLUMN counted from 1"),
        (["evaluate", "a\x1b[31mb\udcff"], r"a\x1b[31mb\udcff is not a run directory"),
        (
            ["train", "--out", "short.json/run"],
            "cannot write to short.json/run: ",
        ),
        (["scans", "-o", "scans.doc"], "cannot draw 'scans.doc'; choose an ending from"),
        (["coverage", "--patch-size", "30"], "image size 224x224 is not divisible by patch size 30"),
        (["coverage", "-o", "coverage.txt"], "cannot draw 'coverage.txt'"),
        (
            ["train", "model.options.memory=0", "model.options.segment=2"],
            "memory must be at least 1, got 0",
        ),
        (
            ["train", "model.name=longformer", "model.options.window=7"],
            "window must be even and positive, not 7",
        ),
        (["search", "imagnet"], "unknown preset 'imagnet'; choose from digits"),
        (["search", "--budget", "0.5"], "--budget must be from 1 to 1000 full trainings, got 0.5"),
        (["search", "--budget", "nan"], "--budget must be from 1 to 1000 full trainings, got nan"),
        (["search", "--seeds", "0"], "--seeds must be from 1 to 100, got 0"),
        (["search", "--order", "absent.json"], "absent.json: No such file"),
        (
            ["search", "model.patch_size=4", "--order", "small.json"],
            "small.json is for a 1x2 grid, but a 2x2",
        ),
        (["search", "train.epochs=2", "--budget", "1"], "--budget 1 is 2 epochs (train.epochs=2), too few"),
        (["search", "order.scan=zigzag"], "unknown scan 'zigzag'; choose from row"),
        (["search", "data.held_out=1437"], "data.held_out=1437 leaves none of the 1437 training images"),
        (["search", "data.held_out=1400"], "train.batch_size=64 is more than the 37 training images"),
        (["search", "--slurm", "--jobs", "2"], "--jobs is for this machine"),
        (["search", "--out", "short.json"], "short.json exists and is no search's directory"),
        (["bench", "nothing"], "unknown benchmark 'nothing'"),
        (["predict", "nowhere", "short.json"], "nowhere is not a run directory"),
        (["predict", "step-000000001", "short.json"], "step-000000001 does not exist"),
        (["export", "nowhere", "--onnx", "x.onnx"], "nowhere is not a run directory"),
        (["export", "nowhere"], "say what to write: --onnx FILE, --torch-export FILE or --hub DIR"),
        (["export", "nowhere", "--onnx", "."], ". is a directory; give a file to write"),
        (["export", "nowhere", "--hub", "short.json"], "short.json exists; choose another directory"),
        (["order"], "missing command"),
        (["order", "show", "short.json"], '"order" must be a list of 16 integers, found 3'),
        (["order", "show", "small.json", "-o", "x.doc"], "cannot draw 'x.doc'"),
        (["order", "convert", "small.json"], "give --to ROWSxCOLUMNS to resample it"),
        (["order", "convert", "small.json", "--to", "2"], "a grid is ROWSxCOLUMNS, such as 14x14, got '2'"),
        (["order", "convert", "small.json", "--to", "0x2"], "at least one row and one column, got 0 x 2"),
        (["order", "compare", "small.json", "./small.json"], "give two order files or more to compare"),
        (["train", "--fast"], "no such option: --fast"),
        (["trian"], "no such command 'trian'"),
        (["scans", "--rows", "many"], "invalid value for '--rows'"),
    ],
)
def test_bad_input_is_one_line_with_status_2_and_writes_nothing(tmp_path, here, arguments, said):
    (tmp_path / "short.json").write_text(
        json.dumps({"format": "reorder.order/1", "grid": [4, 4], "provenance": {}, "order": [0, 1, 2]})
    )
    (tmp_path / "small.json").write_text(
        json.dumps({"format": "reorder.order/1", "grid": [1, 2], "provenance": {}, "order": [0, 1]})
    )
    refused = here(*arguments)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("reorder: ")
    assert refused.stderr.count("\n") == 1
    assert said in refused.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["short.json", "small.json"]


def test_names_are_shown_as_they_are_and_what_does_nothing_is_noted(tmp_path):
    out = tmp_path / "a[/b]" / ":smile:[red]"
    done = reorder("train", "digits", *TINY, "train.compare=false", "--out", out)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[0].startswith("note: train.warmup_epochs=5 does not end before train.epochs=2")
    assert said[-1] == f"report: {out}/report/index.html"
    again = reorder("train", "--resume", out)
    assert again.returncode == 0, again.stderr
    assert f"{out} is finished already" in again.stdout
    one = reorder("evaluate", out)
    assert one.returncode == 0, one.stderr
    assert f"saved: {out}/evaluations/" in one.stdout


def test_orders_are_converted_shown_drawn_and_compared(tmp_path, here):
    (tmp_path / "back.txt").write_text("5 4 3\n2 1 0\n")
    (tmp_path / "hand.json").write_text('{"grid": [2, 3], "order": [0, 1, 2, 5, 4, 3]}')
    made = here("order", "convert", "back.txt", "--grid", "2x3", "-o", "back.json")
    assert (made.returncode, made.stdout) == (0, "back.json\n"), made.stderr
    assert json.loads((tmp_path / "back.json").read_text())["order"] == [5, 4, 3, 2, 1, 0]
    shown = here("order", "show", "back.json", "hand.json", "-o", "drawn.png")
    assert shown.returncode == 0, shown.stderr
    assert "back.json: 2x3 patches, nearest to row reversed (Kendall's tau 1.000)" in shown.stdout
    assert " 0 1 2\n 5 4 3\n" in shown.stdout
    assert (tmp_path / "drawn.png").read_bytes().startswith(b"\x89PNG")
    # Of 15 pairs the three among patches 3, 4 and 5 are read alike; patches 3 to 5 are 3 slots apart or less.
    compared = here("order", "compare", "back.json", "hand.json")
    assert compared.returncode == 0, compared.stderr
    cells = compared.stdout.splitlines()[-1].split()
    assert cells == ["back.json", "hand.json", "-0.600", "18", "100.00"]
    larger = here("order", "convert", "hand.json", "--to", "4x6", "-o", "larger.json")
    assert larger.returncode == 0, larger.stderr
    refused = here("order", "compare", "back.json", "larger.json")
    assert refused.returncode == 2
    assert "reorder order convert larger.json --to 2x3" in refused.stderr
    again = here("order", "convert", "larger.json", "--to", "2x3", "-o", "again.json")
    assert again.returncode == 0
    assert json.loads((tmp_path / "again.json").read_text())["order"] == [0, 1, 2, 5, 4, 3]


def test_a_run_starts_from_an_order_of_another_grid_and_says_so(tmp_path):
    (tmp_path / "hand.json").write_text(json.dumps({"grid": [4, 4], "order": [*range(16)]}))
    fixed = ["order.scan=hand.json", "order.policy=none", "train.compare=false", "train.epochs=1"]
    done = reorder("train", "digits", *TINY, *fixed, "--out", "run", "--no-report", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "hand.json is for a 4x4 grid; it is resampled to 2x2" in done.stderr
    assert json.loads((tmp_path / "run" / "order.json").read_text())["order"] == [0, 1, 2, 3]
