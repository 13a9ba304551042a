"""What the terminal shows."""

import io
import re

import pytest
from rich.console import Console
from rich.table import Table

from reorder.data.progress import Display, Part, fitting

LINE = {
    "epoch": 3,
    "stage": "policy",
    "temperature": 0.123,
    "loss": 1.5,
    "top1": 0.5,
    "validation_top1": 0.25,
    "images_per_second": 1184.2,
}


def show(width=None, stage="policy"):
    """What is on a screen of so many columns, or in a pipe, after two epochs of 40, of 22 steps each."""
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=width is not None, width=width or 80, height=24)
    with Display(console=console).training("learned from hilbert", 40, 22, done_steps=44) as progress:
        progress.step(stage, 0.123, 1.5, 0.5, 1184.2)
        progress.epoch(LINE | {"stage": stage})
        progress.step(stage, 0.123, 1.4, 0.55, 1184.2)
        progress.epoch(LINE | {"stage": stage, "validation_top1": 0.26})
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    return [line.strip() for line in re.split(r"[\r\n]+", plain) if "top-1" in line]


@pytest.mark.parametrize(
    ("width", "shown", "left_out"),
    [
        (40, "train top-1 55%, validation 26%", ("learned", "epoch", "loss", "left")),
        (60, "epoch 3/40, train top-1 55%, validation 26%, ", ("learned", "loss", "images/s", "━")),
        (80, "━ epoch 3/40, policy, train top-1 55%, validation 26%, ", ("learned", "loss", "images/s")),
        (120, "━ epoch 3/40, policy, loss 1.40, train top-1 55%, validation 26%, ", ("images/s",)),
        (
            150,
            "3/40, policy, temperature 0.12, 1184 images/s, loss 1.40, train top-1 55%, validation 26%, ",
            (),
        ),
    ],
)
def test_a_line_names_what_it_shows_and_leaves_out_what_there_is_no_room_for(width, shown, left_out):
    last = show(width)[-1]
    assert shown in last
    assert not [part for part in (*left_out, "…") if part in last]
    assert ("learned from hilbert" in last) == (width >= 120)
    assert len(last) <= width
    assert re.search(r"\d:\d\d:\d\d left$", last) or width == 40


def test_fixed_orders_have_no_stage_and_no_temperature():
    for width in (150, None):
        last = show(width, stage="fixed")[-1]
        assert "train top-1" in last
        assert "temperature" not in last
        assert "fixed" not in last  # the title of a run says that


def test_parts_are_kept_by_their_rank_and_in_their_sequence():
    parts = [Part("a" * 10, 2), Part("bb"), Part("c" * 30, 1), Part("dd", 3)]
    assert [part.text for part in fitting(parts, 36)] == ["bb", "c" * 30]
    assert [part.text for part in fitting(parts, 18)] == ["a" * 10, "bb", "dd"]
    assert [part.text for part in fitting(parts, 48)] == ["a" * 10, "bb", "c" * 30]
    assert [part.text for part in fitting(parts, 1)] == ["bb"]


def test_a_pipe_gets_a_line_an_epoch():
    line, _ = show()
    for part in ("epoch 3/40", "policy", "temperature 0.123", "loss 1.500", "train top-1 50.0%"):
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
    assert screen.getvalue().strip().endswith("unknown time left")
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
    assert "epoch 1/40" in shown


def test_what_a_terminal_would_obey_or_cannot_show_is_spelled_out():
    screen = io.TextIOWrapper(io.BytesIO(), "utf-8")
    Display(console=Console(file=screen, width=80)).say("a\x1b[31mb\x07 \udcff é\n±")
    screen.flush()
    assert screen.buffer.getvalue().decode() == "a\\x1b[31mb\\x07 \\udcff é\n±\n"
