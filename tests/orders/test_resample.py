"""Orders on other grids, and orders from plain lists."""

import logging

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from reorder.cli import order as order_command
from reorder.orders.files import save_order
from reorder.orders.lists import LISTS, read_list
from reorder.orders.named import named_order, random_order, starting_order
from reorder.orders.notes import note
from reorder.orders.order import invert, validate
from reorder.orders.resample import resample
from reorder.orders.scans import scan

SIDE = st.integers(1, 6)


@pytest.mark.parametrize("to_grid", [(24, 24), (10, 18), (7, 7), (28, 20)])
@pytest.mark.parametrize("name", ["row", "column", "spiral", "diagonal", "snake"])
def test_a_scan_stays_itself_on_another_grid(name, to_grid):
    found = resample(scan(name, 14, 14), (14, 14), to_grid)
    rho = spearmanr(invert(found).numpy(), invert(scan(name, *to_grid)).numpy()).statistic
    assert rho > 0.93  # a random order: 0 ± 0.08 on the smallest
    others = {"row", "column", "spiral"} - {name}
    assert all(rho > spearmanr(invert(found), invert(scan(other, *to_grid))).statistic for other in others)


def test_a_small_case_by_hand():
    # Slots 0 3 / 1 2; between the two columns 1.5 and 1.5, of which the upper one is read first.
    assert resample(torch.tensor([0, 2, 3, 1]), (2, 2), (2, 3)).tolist() == [0, 3, 1, 4, 5, 2]
    # Slots 3 0 / 2 1 with a row of 2.5, 0.5 between them.
    assert resample(torch.tensor([1, 3, 2, 0]), (2, 2), (3, 2)).tolist() == [1, 3, 5, 4, 2, 0]


def test_rows_are_kept_whole_where_there_are_fewer_of_them():
    assert torch.equal(resample(scan("row", 14, 14), (14, 14), (10, 18)), torch.arange(180))


@given(SIDE, SIDE, SIDE, SIDE, st.integers(0, 5))
def test_any_order_becomes_an_order_and_is_kept_on_its_own_grid(rows, columns, to_rows, to_columns, seed):
    order = random_order((rows, columns), seed)
    validate(resample(order, (rows, columns), (to_rows, to_columns)), to_rows * to_columns)
    assert torch.equal(resample(order, (rows, columns), (rows, columns)), order)


def test_what_is_no_order_of_the_grid_is_refused():
    with pytest.raises(ValueError, match="does not fit 6 patches"):
        resample(torch.arange(4), (2, 3), (2, 2))
    with pytest.raises(ValueError, match=r"got shape \(2, 4\)"):
        resample(torch.arange(4).expand(2, -1), (2, 2), (3, 3))
    with pytest.raises(ValueError, match="at least one row"):
        resample(torch.arange(4), (2, 2), (0, 3))


def test_the_order_a_run_starts_from_is_resampled_and_that_is_said_once(tmp_path, caplog):
    note.cache_clear()
    caplog.set_level(logging.WARNING)
    path = tmp_path / "o.json"
    save_order(path, scan("column", 4, 4), (4, 4))
    for _ in range(2):
        assert starting_order(str(path), (2, 3)).tolist() == [0, 3, 1, 4, 2, 5]
    assert [record.getMessage() for record in caplog.records] == [
        f"{path} is for a 4x4 grid; it is resampled to 2x3"
    ]
    assert torch.equal(starting_order(str(path), (4, 4)), scan("column", 4, 4))
    assert torch.equal(starting_order("random", (2, 3), 5), random_order((2, 3), 5))
    assert len(caplog.records) == 1
    with pytest.raises(ValueError, match="is for a 4x4 grid"):  # elsewhere a wrong grid is a mistake
        named_order(str(path), (2, 3))


def test_lists_of_numpy_and_of_text_are_read(tmp_path):
    (tmp_path / "a.csv").write_text("3, 1\n2,0,\n")
    (tmp_path / "a.txt").write_text("3\n1\n2\n0\n")
    np.save(tmp_path / "a.npy", np.array([3, 1, 2, 0], dtype=np.int32))
    for ending in LISTS:
        order, grid = read_list(tmp_path / f"a{ending}")
        assert (order.tolist(), grid) == ([3, 1, 2, 0], (2, 2))
        assert read_list(tmp_path / f"a{ending}", (1, 4))[1] == (1, 4)
    assert order_command.LISTS == LISTS


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", "0 1 2", "3 patches, which is no square; say --grid"),
        ("a.txt", "0 1 1 2", "patch 1 is repeated and patch 3 is missing"),
        ("a.txt", "0 1 2.0 3", "found '2.0'"),
        ("a.csv", "", "found ''"),
        ("a.csv", "slot,patch", "found 'slot'"),
        ("a.txt", b"\xff\xfe", "is not text"),
        ("a.npy", b"no array", "not an array of numpy"),
        ("a.npy", np.arange(4).reshape(2, 2), r"found int64 of shape \(2, 2\)"),
        ("a.npy", np.arange(4.0), "found float64"),
        ("absent.txt", None, "No such file"),
        ("absent.npy", None, "No such file"),
    ],
)
def test_a_list_that_is_no_order_is_one_line(tmp_path, name, content, said):
    path = tmp_path / name
    if isinstance(content, np.ndarray):
        np.save(path, content)
    elif content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=said) as refused:
        read_list(path)
    assert "\n" not in str(refused.value)
