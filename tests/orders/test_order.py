"""Reading, inverting, checking and sharing orders."""

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reorder import create_model
from reorder.orders.distances import kendall_tau
from reorder.orders.files import load_order, save_order
from reorder.orders.order import invert, validate
from reorder.orders.read import read_in_order
from reorder.orders.scans import scan

permutations = st.permutations(list(range(12))).map(torch.tensor)


def test_reading_takes_the_patch_named_for_each_slot():
    tokens = torch.tensor([[[10.0], [11.0], [12.0]], [[20.0], [21.0], [22.0]]])
    shared = read_in_order(tokens, torch.tensor([2, 0, 1]))
    assert shared.squeeze(-1).tolist() == [[12, 10, 11], [22, 20, 21]]
    each = read_in_order(tokens, torch.tensor([[2, 0, 1], [1, 2, 0]]))
    assert each.squeeze(-1).tolist() == [[12, 10, 11], [21, 22, 20]]
    assert read_in_order(tokens, None) is tokens


@given(permutations)
def test_inverse_gives_the_slot_of_every_patch(order):
    slot_of = invert(order)
    assert all(slot_of[order[slot]] == slot for slot in range(len(order)))
    both = torch.stack([order, order.flip(0)])
    assert torch.equal(invert(both)[1], invert(order.flip(0)))


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
        validate(torch.tensor(order), 4)


def test_a_bad_row_among_good_ones_is_found_and_floats_are_refused():
    with pytest.raises(ValueError, match="patch 0 is repeated"):
        validate(torch.tensor([[0, 1, 2], [0, 0, 2]]), 3)
    with pytest.raises(ValueError, match="integers"):
        validate(torch.tensor([0.0, 1.0]), 2)


def test_kendall_tau_counts_discordant_pairs():
    identity = torch.arange(4)
    assert kendall_tau(identity, identity) == 1
    assert kendall_tau(identity, identity.flip(0)) == -1
    # One of the six pairs is read the other way round: (5 - 1) / 6.
    assert kendall_tau(identity, torch.tensor([0, 1, 3, 2])) == pytest.approx(4 / 6)
    # Of six pairs both read three alike: 1 before 0, 1 before 2, 3 before 0.
    assert kendall_tau(torch.tensor([3, 1, 0, 2]), torch.tensor([1, 2, 3, 0])) == pytest.approx(0)
    assert kendall_tau(torch.tensor([1, 2, 0, 3]), torch.tensor([1, 2, 0, 3])) == 1


def test_order_files_round_trip_with_their_provenance(tmp_path):
    order = torch.tensor([5, 3, 0, 1, 2, 4])
    save_order(tmp_path / "sub" / "o.json", order, (2, 3), {"model": "mamba"})
    loaded = load_order(tmp_path / "sub" / "o.json", grid=(2, 3))
    assert torch.equal(loaded.order, order)
    assert loaded.grid == (2, 3)
    assert loaded.provenance == {"model": "mamba"}
    assert json.loads((tmp_path / "sub" / "o.json").read_text())["order"] == [5, 3, 0, 1, 2, 4]
    assert [p.name for p in (tmp_path / "sub").iterdir()] == ["o.json"]


GOOD = {"format": "reorder.order/1", "grid": [1, 3], "provenance": {}, "order": [0, 2, 1]}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": "other"}, '"format" must be "reorder.order/1", found \'other\''),
        ({"format": None}, '"format" must be "reorder.order/1", found None'),
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
        load_order(path)


def test_a_file_that_is_written_by_hand_needs_a_grid_and_an_order(tmp_path):
    path = tmp_path / "o.json"
    path.write_text('{"grid": [1, 3], "order": [0, 2, 1]}')
    found = load_order(path)
    assert (found.order.tolist(), found.grid, found.provenance) == ([0, 2, 1], (1, 3), {})
    for missing in ("grid", "order"):
        path.write_text(json.dumps({key: value for key, value in GOOD.items() if key != missing}))
        with pytest.raises(ValueError, match='it lacks "grid" and "order"'):
            load_order(path)


SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "order.schema.json").read_text())
KINDS = {"object": dict, "array": list, "integer": int, "string": str}


def breaks(schema, value):
    """Whether a value breaks a JSON schema, of which the keywords that ours uses are known here."""
    known = {"$schema", "$id", "title", "description", "type", "const", "required", "properties", "items"}
    assert set(schema) <= known | {"minItems", "maxItems", "minimum", "uniqueItems"}
    if "const" in schema:
        return value != schema["const"]
    if not isinstance(value, KINDS[schema["type"]]) or isinstance(value, bool):
        return True
    if isinstance(value, dict):
        inside = schema.get("properties", {})
        return any(key not in value for key in schema.get("required", [])) or any(
            breaks(inside[key], value[key]) for key in inside.keys() & value.keys()
        )
    if isinstance(value, list):
        few, many = schema.get("minItems", 0), schema.get("maxItems", len(value))
        again = schema.get("uniqueItems", False) and len(set(map(str, value))) < len(value)
        return not few <= len(value) <= many or again or any(breaks(schema["items"], item) for item in value)
    return isinstance(value, int) and value < schema.get("minimum", value)


def test_the_schema_accepts_what_we_write_and_refuses_what_we_refuse(tmp_path):
    save_order(tmp_path / "o.json", scan("hilbert", 3, 5), (3, 5), {"model": "mamba", "top1": 0.5})
    assert not breaks(SCHEMA, json.loads((tmp_path / "o.json").read_text()))
    assert not breaks(SCHEMA, {"grid": [1, 3], "order": [0, 2, 1]})
    bad = [{"format": "other"}, {"grid": [3]}, {"grid": [0, 3]}, {"order": [0, 1, "2"]}]
    bad += [{"order": [0, 1, True]}, {"order": [0, 0, 1]}, {"order": [-1, 0, 1]}, {"provenance": []}]
    for change in bad:
        assert breaks(SCHEMA, GOOD | change), change
    for missing in ("grid", "order"):
        assert breaks(SCHEMA, {key: value for key, value in GOOD.items() if key != missing})


def test_unreadable_files_and_other_grids_are_refused(tmp_path):
    with pytest.raises(ValueError, match="cannot read order file"):
        load_order(tmp_path / "absent.json")
    (tmp_path / "half.json").write_text('{"format": ')
    with pytest.raises(ValueError, match="is not an order file"):
        load_order(tmp_path / "half.json")
    save_order(tmp_path / "o.json", torch.arange(6), (2, 3), {})
    with pytest.raises(ValueError, match="is for a 2x3 grid, but a 3x2 grid is read"):
        load_order(tmp_path / "o.json", grid=(3, 2))
    with pytest.raises(ValueError, match="one order"):
        save_order(tmp_path / "o.json", torch.arange(6).expand(2, -1), (2, 3), {})


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.int32, torch.bool])
@pytest.mark.parametrize("name", ["vit", "mamba"])
def test_an_order_that_is_not_of_long_integers_is_refused_by_a_model(kind, name):
    model = create_model(name, "mini", 4, 2, 1, 2)
    for order in (torch.arange(4).to(kind), torch.arange(4).to(kind).expand(3, -1)):
        with pytest.raises(ValueError, match=rf"an order holds integers \(torch.long\), not {kind}"):
            model(torch.rand(3, 1, 4, 4), order)
