"""What the terminal shows."""

import io
import re

from rich.console import Console
from rich.table import Table

from reorder.data.progress import Display

LINE = {
    "epoch": 3,
    "stage": "policy",
    "temperature": 0.123,
    "loss": 1.5,
    "top1": 0.5,
    "validation_top1": 0.25,
    "images_per_second": 1184.2,
}


def show(terminal):
    """What is on a screen of 80 columns after two epochs of a run of 40, of 22 steps each."""
    screen = io.StringIO()
    display = Display(console=Console(file=screen, force_terminal=terminal, width=80, height=24))
    with display.training("learned from hilbert", 40, 22, done_steps=44) as progress:
        progress.step("policy", 0.123, 1.5, 0.5, 1184.2)
        progress.epoch(LINE)
        progress.step("policy", 0.123, 1.4, 0.55, 1184.2)
    return screen.getvalue()


def test_a_terminal_of_80_columns_shows_everything():
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", show(terminal=True))
    last = [line for line in plain.splitlines() if "learned" in line][-1]
    for part in ("learned", "4/40", "policy", "T0.12", "loss 1.40", "55%", "val 25%", "1184/s"):
        assert part in last
    assert "…" not in last
    assert re.search(r"\d\d:\d\d$|--:--$", last.strip())  # the time left


def test_a_pipe_gets_a_line_an_epoch():
    (line,) = show(terminal=False).splitlines()
    for part in ("epoch 3/40", "policy", "temperature 0.123", "loss 1.500", "top-1 50.0%"):
        assert part in line
    for part in ("validation top-1 25.0%", "1184 images/s", "left"):
        assert part in line


def test_quiet_says_nothing(capsys):
    display = Display(quiet=True)
    display.say("hello")
    with display.training("title", 1, 1) as progress:
        progress.step("policy", 0.1, 1.0, 0.5, 10.0)
        progress.epoch(LINE)
    assert capsys.readouterr().out == ""


def test_a_count_is_a_bar_or_one_line_or_nothing(capsys):
    for terminal, expected in ((True, r"images.* 3/3 "), (False, r"^images: 3 in \d+\.\d s\n$")):
        screen = io.StringIO()
        display = Display(console=Console(file=screen, force_terminal=terminal, width=80, height=24))
        with display.progress("images", 3) as advance:
            advance(2)
            advance(1)
        assert re.search(expected, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue()))
    with Display(quiet=True).progress("images", 3) as advance:
        advance(3)
    assert capsys.readouterr().out == ""


def test_a_run_that_was_stopped_in_its_validation_goes_on_without_an_estimate():
    screen = io.StringIO()
    with Display(console=Console(file=screen, width=200)).training("row", 40, 22, done_steps=66) as progress:
        progress.epoch(LINE)
    assert "epoch 3/40" in screen.getvalue()
    assert screen.getvalue().strip().endswith("unknown left")
    with Display(console=Console(file=screen, width=200)).training("row", 3, 22, done_steps=66) as progress:
        progress.epoch(LINE)
    assert "epoch 3/3" in screen.getvalue()
    assert screen.getvalue().strip().endswith("0:00:00 left")


def test_brackets_and_colons_are_shown_as_they_are(capsys, monkeypatch):
    name = "[/x] [red]b[/red] :smile: [bold"
    display = Display()
    display.say(name)
    table = Table("heading")
    table.add_row(name)
    display.console.print(table)
    with display.training(name, 40, 22) as progress:
        progress.epoch(LINE)
    with display.progress(name, 3) as advance:
        advance(3)
    assert capsys.readouterr().out.count(name) == 4
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    display = Display()
    assert display.console.is_terminal
    with display.training(name, 40, 22) as progress:
        progress.step("[/x]", 0.1, 1.0, 0.5, 10.0)
    with display.progress(name, 3) as advance:
        advance(3)
    shown = capsys.readouterr().out
    assert name in shown
    assert "1/40 [/x] T0.10" in shown


def test_what_a_terminal_would_obey_or_cannot_show_is_spelled_out():
    screen = io.TextIOWrapper(io.BytesIO(), "utf-8")
    Display(console=Console(file=screen, width=80)).say("a\x1b[31mb\x07 \udcff é\n±")
    screen.flush()
    assert screen.buffer.getvalue().decode() == "a\\x1b[31mb\\x07 \\udcff é\n±\n"
