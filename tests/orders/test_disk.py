"""Files that are whole or not there, whoever writes them at the same time and whatever lies in wait."""

import errno
import os
import time
import uuid

import pytest

from reorder.cli import main
from reorder.orders.disk import LEFT_BEHIND, discard, replace_file, replacing


def test_two_writers_of_one_file_both_succeed_and_the_last_wins_whole(tmp_path):
    path = tmp_path / "new" / "index.html"
    with replacing(path) as first:
        first.write(b"first")
        with replacing(path) as second:
            second.write(b"second")
        assert path.read_bytes() == b"second"
    assert path.read_bytes() == b"first"
    assert list(path.parent.iterdir()) == [path]


def test_a_planted_link_is_not_followed(tmp_path, monkeypatch):
    precious, page = tmp_path / "precious", tmp_path / "report" / "index.html"
    precious.write_text("mine")
    page.parent.mkdir()
    (page.parent / "index.html.tmp").symlink_to(precious)
    replace_file(page, "a page")
    assert (page.read_text(), precious.read_text()) == ("a page", "mine")
    name = uuid.uuid4()  # even if the name could be foretold
    monkeypatch.setattr(uuid, "uuid4", lambda: name)
    (page.parent / f"index.html.{name.hex[:8]}.tmp").symlink_to(precious)
    with pytest.raises(FileExistsError):
        replace_file(page, "another")
    assert (page.read_text(), precious.read_text()) == ("a page", "mine")


def test_what_fails_leaves_the_old_file_and_names_it(tmp_path):
    path = tmp_path / "summary.json"
    replace_file(path, "old")

    def write():
        with replacing(path) as file:
            file.write(b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # as a write does: without a name

    with pytest.raises(OSError, match="No space left") as error:
        write()
    assert error.value.filename == str(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_files_follow_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        replace_file(tmp_path / "file", "")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


def test_what_killed_processes_left_is_removed_when_nobody_can_be_writing_it(tmp_path):
    old, young, other = (tmp_path / f"{name}.tmp" for name in ("page.1", "page.2", "pages.3"))
    for path in (old, young, other):
        path.touch()
    long_ago = time.time() - LEFT_BEHIND - 1
    for path in (old, other):
        os.utime(path, (long_ago, long_ago))
    replace_file(tmp_path / "page", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page", "page.2.tmp", "pages.3.tmp"]


def test_a_directory_that_is_discarded_is_gone(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    discard(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "reorder: No space left on device\n"),
        (OSError(errno.ENOSPC, "No space left", "a/b"), "reorder: cannot use a/b: No space left\n"),
        (OSError("the hub is away"), "reorder: the hub is away\n"),
    ],
)
def test_an_error_of_the_disk_is_one_line_and_never_names_none(monkeypatch, capsys, error, line):
    def fails(**_):
        raise error

    monkeypatch.setattr("reorder.cli.app", fails)
    with pytest.raises(SystemExit) as end:
        main()
    assert (end.value.code, capsys.readouterr().err) == (2, line)
