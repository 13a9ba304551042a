"""Options and arguments of the commands: impossible sizes, unusable paths, what excludes each other."""

from pathlib import Path
from random import Random

from fuzz.case import ACCEPT, EITHER, REFUSE, SAY, Case, command
from fuzz.drawing import without_drawing
from fuzz.ready import SMALL, TRAIN

SHARE, COST = 5, 5

NUMBERS = ["0", "-1", "abc", "1.5", "", "nan", "9" * 30, "1e3", "100000", "4294967296", "[/x]"]
PATHS = [
    "missing/run",
    "a file",
    "/dev/null",
    "/proc/self/mem",
    "",
    "[/x]",
    "a\x1b[31mb",
    "x" * 300,
    "\udcff",
]


def make(random: Random, folder: Path, ready: Path) -> Case:
    (folder / "a file").write_text("no run, no picture, no list")
    (folder / "full").mkdir()
    (folder / "full/notes.txt").write_text("somebody's")
    arguments, expect, *words = random.choice(COMMANDS)(random, ready / "runs")
    what = f"{' '.join(map(str, arguments))[:150]!r}"
    if arguments[0] == "report":
        return Case(what, expect, lambda: without_drawing(command, *arguments))
    return Case(what, expect, lambda: command(*arguments), lambda said: _unsaid(words, said))


def _unsaid(words: list[str], said: str) -> str:
    """What an accepted command should have spoken of."""
    return "".join(f"not a word about {word}" for word in words if word not in said)


def scans(random: Random, runs: Path) -> tuple:
    if random.random() < 0.1:
        side = random.choice([1, 2, 7, 14])
        return [
            "scans",
            "--rows",
            side,
            "--columns",
            14,
            "-o",
            random.choice(["x.png", "x.svg", "x.pdf"]),
        ], ACCEPT
    if random.random() < 0.4:
        out = random.choice(
            ["x.exe", "x", "full", "a file/x.png", "/proc/x.png", "", ".png", "x" * 300 + ".png", "x.jpg"]
        )
        return ["scans", "--rows", 4, "--columns", 4, "-o", out], EITHER if out in (
            ".png",
            "x.jpg",
        ) else REFUSE
    sides = random.choice(
        [(random.choice(NUMBERS), "4"), ("4", random.choice(NUMBERS)), ("100000", "100000")]
    )
    return ["scans", "--rows", sides[0], "--columns", sides[1]], REFUSE


def coverage(random: Random, runs: Path) -> tuple:
    option = random.choice(["--image-size", "--patch-size", "--size", "--out"])
    value = random.choice(NUMBERS)
    if option == "--out":
        value = random.choice(["x.exe", "x", "full", "a file/x.png", ""])
        return ["coverage", option, value], REFUSE
    return ["coverage", option, value], EITHER if value == "100000" else REFUSE


def report(random: Random, runs: Path) -> tuple:
    out = ["-o", "report"]
    kind = random.choice(["track", "radius", "prior", "run", "out"])
    if kind == "track":
        return [
            "report",
            runs,
            "--track",
            random.choice(["0,0", "9,9", "1", "a,b", "-1,2", "1,2,3", "", "²,1", "9" * 5000 + ",1"]),
            *out,
        ], REFUSE
    if kind == "radius":
        return ["report", runs, "--radius", random.choice(["nan", "-1", "abc", "-inf", "0"]), *out], REFUSE
    if kind == "prior":
        return ["report", runs, "--prior", random.choice(PATHS), *out], REFUSE
    if kind == "run":
        return ["report", random.choice(PATHS[:-1]) or "full", *out], REFUSE
    return ["report", runs, "-o", random.choice(["a file", "/proc/x", "a file/x", "/dev/null"])], REFUSE


def evaluate(random: Random, runs: Path) -> tuple:
    learned, other = runs / "learned", runs / "other"
    cases = [
        (["evaluate", random.choice(PATHS[:-1])], REFUSE),
        (["evaluate", learned, other, runs / "fixed"], REFUSE),
        (["evaluate", learned, learned], SAY_OR_REFUSE),
        (["evaluate", learned, f"{learned}/."], SAY_OR_REFUSE),
        (["evaluate", learned, other, "--order", "x.json"], REFUSE),
        (["evaluate", learned, "--sensitivity", "--order", "x.json"], REFUSE),
        (["evaluate", learned, "--order", random.choice(PATHS)], REFUSE),
        (
            [
                "evaluate",
                learned,
                "--data",
                random.choice(["root", "=", "x=1", "name=nothing", "train_images=-1"]),
            ],
            REFUSE,
        ),
        (
            [
                "evaluate",
                learned,
                "--data",
                random.choice(["name=${oc.env:REORDER_FUZZ_SECRET}", "root=[/x]"]),
            ],
            EITHER,
        ),
        (["evaluate", learned, "--data", f"validation_images={random.choice(NUMBERS) or 'x'}"], REFUSE),
        (["evaluate"], REFUSE),
    ]
    return random.choice(cases)


SAY_OR_REFUSE = REFUSE  # a run compared with itself says nothing


def train(random: Random, runs: Path) -> tuple:
    cases = [
        (
            ["train", random.choice(["digit", "nothing.yaml", "", "[/x]", "--nothing", "/", "x" * 300])],
            REFUSE,
        ),
        (["train", "--resume", random.choice(PATHS[:-1])], REFUSE),
        (["train", "--resume", runs / "learned", "--out", "x"], REFUSE),
        (
            [
                "train",
                "--resume",
                runs / "learned",
                random.choice(["train.epochs=1", "train.seed=5", "x=1", "x"]),
            ],
            REFUSE,
        ),
        ([*TRAIN, "--out", random.choice(["a file", "full", "a file/x", "/proc/x", "/dev/null"])], REFUSE),
        ([*TRAIN, "train.batch_size=65"], REFUSE),
        ([*TRAIN[:-1], "train.warmup_epochs=1000", "--out", "x"], SAY, "warmup_epochs"),
        ([*TRAIN[:-1], "data.train_list=a file", "--out", "x"], SAY, "train_list"),
        ([*TRAIN, "data.name=idx", "data.root=full"], REFUSE),
        ([*TRAIN, "data.name=image_folder", "data.root=a file"], REFUSE),
        ([*TRAIN, "data.name=image_folder"], REFUSE),
        ([*TRAIN, "data.name=hf:"], REFUSE),
        ([*TRAIN, "order.scan=a file"], REFUSE),
    ]
    return random.choice(cases)


def prior(random: Random, runs: Path) -> tuple:
    base = ["prior", "digits", *SMALL, "--cache", "cache"]
    cases = [
        ([*base, "--tokenizer", "gzip"], REFUSE),
        ([*base, "--codebook", random.choice(["0", "-5", "abc", "1000000000"])], REFUSE),
        ([*base, "--images", random.choice(["0", "1", "-1", "abc", "nan"])], REFUSE),
        ([*base, "--scope", "world"], REFUSE),
        ([*base, "--weights", "nowhere"], REFUSE),
        ([*base, "--tokenizer", "chameleon"], REFUSE),
        ([*base, "--tokenizer", "chameleon", "--weights", "full"], REFUSE),
        ([*base, "--out", random.choice(["a file", "a file/x", "/proc/x", runs / "fixed"])], REFUSE),
        ([*base, "--order", random.choice(PATHS)], REFUSE),
        ([*base, "--runs", random.choice([*PATHS[:-1], runs / "learned"])], REFUSE),
        ([*base[:-1], "a file", "--out", "x"], REFUSE),
    ]
    return random.choice(cases)


def sweep(random: Random, runs: Path) -> tuple:
    base = ["sweep", "digits", "--out", "sweep", "--dry-run"]
    wrong = [
        "seed=",
        "seed=1,,2",
        "foo=1",
        "learning_rate=1",
        "seed=1 seed=2",
        "scan=zigzag",
        "compare=true",
        "=1",
    ]
    cases = [
        (["sweep", random.choice(["nothing", "x.yaml", "", "[/x]"])], REFUSE),
        ([*base, *random.choice(wrong).split()], REFUSE),
        ([*base[:-1], "--jobs", random.choice(["0", "-1", "abc"])], REFUSE),
        ([*base[:-1], "--slurm-option", "x"], REFUSE),
        ([*base[:-1], "--slurm", "--jobs", "2"], REFUSE),
    ]
    return random.choice(cases)


def search(random: Random, runs: Path) -> tuple:
    base = ["search", "digits", *SMALL]
    cases = [
        (["search", random.choice(["digit", "nothing.yaml", "", "[/x]", "--nothing", "x=1"])], REFUSE),
        ([*base, "--budget", random.choice(["0", "0.5", "-1", "nan", "inf", "1e9", "abc"])], REFUSE),
        ([*base, "--budget", "1"], REFUSE),  # two epochs
        ([*base, "--seeds", random.choice(["0", "-1", "1.5", "101", "abc"])], REFUSE),
        ([*base, "--order", random.choice(PATHS)], REFUSE),
        (
            [*base, "--budget", "9", "--out", random.choice(["a file", "full", "a file/x", "/dev/null"])],
            REFUSE,
        ),
        ([*base, "--budget", "9", "--out", runs / "fixed"], REFUSE),
        ([*base, "--budget", "9", "data.held_out=64", "--out", "x"], REFUSE),
        ([*base, "--jobs", random.choice(["0", "-1", "abc"])], REFUSE),
        ([*base, "--slurm-option", "x"], REFUSE),
        ([*base, "--slurm", "--jobs", "2"], REFUSE),
    ]
    return random.choice(cases)


def others(random: Random, runs: Path) -> tuple:
    cases: list[tuple[list, ...]] = [
        (["bench", "nothing"], REFUSE),
        (["nothing"], REFUSE),
        (["--nothing"], REFUSE),
        (["--version"], ACCEPT),
        ([random.choice(["train", "search", "sweep", "report", "scans"]), "--help"], ACCEPT),
        (["train", "--list"], ACCEPT),
        (["sweep", "--list"], ACCEPT),
    ]
    return random.choice(cases)


COMMANDS = [scans, coverage, report, evaluate, evaluate, train, train, prior, sweep, search, others]
