"""One input of the campaign: what it is, what is expected of it, and how it is judged."""

import io
import linecache
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import reorder
from reorder import cli
from reorder.orders.notes import note

PACKAGE = str(Path(reorder.__file__).parent)

# What is expected of an input.
ACCEPT = "accept"  # it is right
REFUSE = "refuse"  # it is wrong
SAY = "say"  # it is wrong in a way that may be refused, or used with a note
EITHER = "either"  # nobody can say; whatever happens must happen in an orderly way

# How an input can fail.
TRACEBACK = "traceback"
HANG = "hang"
MEMORY = "memory"
SILENT = "silent acceptance"
WRONG_REFUSAL = "wrong refusal"
FAILURES = (TRACEBACK, HANG, MEMORY, SILENT, WRONG_REFUSAL)

SECRET_NAME, SECRET = "REORDER_FUZZ_SECRET", "s3cret-b1c7e0"  # in the environment; must never be shown


def nothing_wrong(result: Any) -> str:
    return ""


class Case(NamedTuple):
    """An input that is ready to be used."""

    what: str  # in a few words
    expect: str
    use: Callable[[], Any]
    wrong: Callable[[Any], str] = nothing_wrong  # what is wrong with the result of an accepted input


class Verdict(NamedTuple):
    failure: str  # one of FAILURES, or nothing
    outcome: str  # "accepted" or "refused", and the message or what is wrong


class Hang(BaseException):
    """An input took too long; not an Exception, so that nothing but the campaign catches it."""


class Started(BaseException):
    """An input made the program start another one."""


def judge(case: Case, limit: AbstractContextManager) -> Verdict:
    """Use an input within a limit of time, and compare what happens with what is expected."""
    out, err = io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings(), limit:
            warnings.simplefilter("ignore")
            note.cache_clear()  # a note is said once in a process; here every input is a user of its own
            result = case.use()
    except (ValueError, OSError, cli.UsageError) as error:
        return _judge_refusal(case, error, out.getvalue() + err.getvalue())
    except Hang:
        return Verdict(HANG, f"still at it: {_place(sys.exc_info()[2])}")
    except Started as error:
        return Verdict(SILENT, f"it starts another program: {error}")
    except MemoryError:
        return Verdict(MEMORY, f"MemoryError {_place(sys.exc_info()[2])}")
    except BaseException as error:
        return Verdict(TRACEBACK, f"{_describe(error)} {_place(error.__traceback__)}")
    said = out.getvalue() + err.getvalue()
    if SECRET in f"{said}{result!r}":
        return Verdict(SILENT, f"a secret of the environment is shown: {said or result!r}"[:500])
    if wrong := case.wrong(result):
        return Verdict(SILENT, wrong)
    if case.expect == REFUSE or (case.expect == SAY and not said.strip()):
        return Verdict(SILENT, f"accepted, though it is wrong; it said {said.strip()[-300:]!r}")
    return Verdict("", "accepted")


def _judge_refusal(case: Case, error: Exception, said: str) -> Verdict:
    message = " ".join(str(error).split())
    if isinstance(error, OSError):
        message = f"cannot use {error.filename}: {error.strerror}"
    if SECRET in message + said:
        return Verdict(SILENT, f"a secret of the environment is shown: {message}"[:500])
    if why := _not_on_purpose(error):
        return Verdict(TRACEBACK, f"{why}: {_describe(error)} {_place(error.__traceback__)}")
    if case.expect == ACCEPT:
        return Verdict(WRONG_REFUSAL, message)
    return Verdict("", f"refused: {message}")


def _not_on_purpose(error: Exception) -> str:
    """Why a refusal is not the one line that a user can work with; nothing if it is."""
    if isinstance(error, OSError):
        return "" if error.filename is not None and error.strerror else "an error that names no file"
    if isinstance(error, cli.UsageError):
        return ""
    ours = type(error) is ValueError or type(error).__module__.startswith("reorder.")
    if not ours or not str(error).strip():
        return "an error of a library"
    last = traceback.extract_tb(error.__traceback__)[-1]
    if not last.filename.startswith(PACKAGE):
        return "an error from inside a library"
    if not linecache.getline(last.filename, last.lineno or 0).strip().startswith("raise"):
        return "an error that is not raised on purpose"
    if len(str(error)) > 6000:
        return f"a message of {len(str(error))} characters"
    return ""


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _place(trace: Any) -> str:
    """The last line of ours in a traceback."""
    frames = traceback.extract_tb(trace)
    ours = [frame for frame in frames if frame.filename.startswith(PACKAGE)] or frames
    last = ours[-1]
    return f"({Path(last.filename).name}:{last.lineno})"


def command(*arguments: str | Path) -> str:
    """What `reorder ARGUMENTS` prints; a refusal raises what the command was refused for."""
    out, err = Terminal("strict"), Terminal("backslashreplace")
    with redirect_stdout(out), redirect_stderr(err), _arguments(*map(str, arguments)):
        try:
            cli.main()
            status = 0
        except SystemExit as end:
            status, reason = end.code or 0, end.__context__
    said = err.content()
    print(out.content() + said)
    if status == 0:
        return out.content() + said
    lines = said.strip().splitlines()
    if status != 2 or not lines or not lines[-1].startswith("reorder: ") or "Traceback" in said:
        raise AssertionError(f"exit status {status}, and it said {said[-500:]!r}")
    if len(lines) > 3:
        raise AssertionError(f"{len(lines)} lines instead of one: {said[:500]!r}")
    assert isinstance(reason, Exception)
    raise reason


class Terminal(io.TextIOWrapper):
    """A stream that refuses what the real one cannot encode, and keeps what was written."""

    def __init__(self, errors: str):
        super().__init__(io.BytesIO(), "utf-8", errors, write_through=True)

    def content(self) -> str:
        return self.buffer.getvalue().decode()  # type: ignore[attr-defined]


@contextmanager
def _arguments(*arguments: str) -> Iterator[None]:
    with mock.patch.object(sys, "argv", ["reorder", *arguments]):
        yield


def files_below(folder: Path) -> Iterator[Path]:
    for directory, _, files in os.walk(folder):
        yield from (Path(directory) / file for file in files)


def leaks(folder: Path) -> str:
    """Files below a folder that hold the secret."""
    for path in files_below(folder):
        if path.is_file() and SECRET.encode() in path.read_bytes():
            return f"a secret of the environment is in {path.name}"
    return ""
