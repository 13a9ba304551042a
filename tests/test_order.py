"""Reading, inverting, checking and sharing orders."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reorder import create_model
from reorder import order as orders

permutations = st.permutations(list(range(12))).map(torch.tensor)


def test_reading_takes_the_patch_named_for_each_slot():
    tokens = torch.tensor([[[10.0], [11.0], [12.0]], [[20.0], [21.0], [22.0]]])
    shared = orders.read_in_order(tokens, torch.tensor([2, 0, 1]))
    assert shared.squeeze(-1).tolist() == [[12, 10, 11], [22, 20, 21]]
    each = orders.read_in_order(tokens, torch.tensor([[2, 0, 1], [1, 2, 0]]))
    assert each.squeeze(-1).tolist() == [[12, 10, 11], [21, 22, 20]]
    assert orders.read_in_order(tokens, None) is tokens


@given(permutations)
def test_inverse_gives_the_slot_of_every_patch(order):
    slot_of = orders.invert(order)
    assert all(slot_of[order[slot]] == slot for slot in range(len(order)))
    both = torch.stack([order, order.flip(0)])
    assert torch.equal(orders.invert(both)[1], orders.invert(order.flip(0)))


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ([0, 1, 1, 3], "patch 1 is repeated and patch 2 is missing"),
        ([3, 3, 0, 0], "patch 3 is repeated and patch 1 is missing"),
        ([0, 1, 2, 4], r"patch 4 is outside 0..3"),
        ([0, -1, 2, 3], r"patch -1 is outside 0..3"),
        ([0, 1, 2], r"shape \(3,\) does not fit 4 patches"),
    ],
)
def test_a_bad_order_names_its_first_fault(order, said):
    with pytest.raises(ValueError, match=said):
        orders.validate(torch.tensor(order), 4)


def test_a_bad_row_among_good_ones_is_found_and_floats_are_refused():
    with pytest.raises(ValueError, match="patch 0 is repeated"):
        orders.validate(torch.tensor([[0, 1, 2], [0, 0, 2]]), 3)
    with pytest.raises(ValueError, match="integers"):
        orders.validate(torch.tensor([0.0, 1.0]), 2)


def test_kendall_tau_counts_discordant_pairs():
    identity = torch.arange(4)
    assert orders.kendall_tau(identity, identity) == 1
    assert orders.kendall_tau(identity, identity.flip(0)) == -1
    # One of the six pairs is read the other way round: (5 - 1) / 6.
    assert orders.kendall_tau(identity, torch.tensor([0, 1, 3, 2])) == pytest.approx(4 / 6)
    # Of six pairs both read three alike: 1 before 0, 1 before 2, 3 before 0.
    assert orders.kendall_tau(torch.tensor([3, 1, 0, 2]), torch.tensor([1, 2, 3, 0])) == pytest.approx(0)
    assert orders.kendall_tau(torch.tensor([1, 2, 0, 3]), torch.tensor([1, 2, 0, 3])) == 1


def test_order_files_round_trip_with_their_provenance(tmp_path):
    order = torch.tensor([5, 3, 0, 1, 2, 4])
    orders.save(tmp_path / "sub" / "o.json", order, (2, 3), {"model": "mamba"})
    loaded = orders.load(tmp_path / "sub" / "o.json", grid=(2, 3))
    assert torch.equal(loaded.order, order)
    assert loaded.grid == (2, 3)
    assert loaded.provenance == {"model": "mamba"}
    assert json.loads((tmp_path / "sub" / "o.json").read_text())["order"] == [5, 3, 0, 1, 2, 4]
    assert [p.name for p in (tmp_path / "sub").iterdir()] == ["o.json"]


GOOD = {"format": "reorder.order/1", "grid": [1, 3], "provenance": {}, "order": [0, 2, 1]}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": "other"}, 'lacks "format"'),
        ({"grid": [3]}, '"grid" must be a list of 2 integers'),
        ({"grid": [0, 3]}, "found 0"),
        ({"order": [0, 1]}, '"order" must be a list of 3 integers, found 2'),
        ({"order": [0, 1, "2"]}, "found '2'"),
        ({"order": [0, 1, True]}, "found True"),
        ({"order": [0, 0, 1]}, "patch 0 is repeated and patch 2 is missing"),
        ({"provenance": []}, '"provenance" must be an object'),
    ],
)
def test_files_that_break_the_schema_are_refused(tmp_path, change, said):
    path = tmp_path / "o.json"
    path.write_text(json.dumps(GOOD | change))
    with pytest.raises(ValueError, match=said):
        orders.load(path)


def test_unreadable_files_and_other_grids_are_refused(tmp_path):
    with pytest.raises(ValueError, match="cannot read order file"):
        orders.load(tmp_path / "absent.json")
    (tmp_path / "half.json").write_text('{"format": ')
    with pytest.raises(ValueError, match="is not an order file"):
        orders.load(tmp_path / "half.json")
    orders.save(tmp_path / "o.json", torch.arange(6), (2, 3), {})
    with pytest.raises(ValueError, match="is for a 2x3 grid, but a 3x2 grid is read"):
        orders.load(tmp_path / "o.json", grid=(3, 2))
    with pytest.raises(ValueError, match="one order"):
        orders.save(tmp_path / "o.json", torch.arange(6).expand(2, -1), (2, 3), {})


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.int32, torch.bool])
@pytest.mark.parametrize("name", ["vit", "mamba"])
def test_an_order_that_is_not_of_long_integers_is_refused_by_a_model(kind, name):
    model = create_model(name, "mini", 4, 2, 1, 2)
    for order in (torch.arange(4).to(kind), torch.arange(4).to(kind).expand(3, -1)):
        with pytest.raises(ValueError, match=rf"an order holds integers \(torch.long\), not {kind}"):
            model(torch.rand(3, 1, 4, 4), order)
