"""The Mamba backbone against a mixer written out in loops, and what each scan may see."""

# B images, N patches, L = N + 1 tokens, D width, S states per channel

import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from reorder.models.mamba import Mamba, Mixer, vertical_slots
from reorder.models.sizes import SIZES, Size

SMALL = Size(width=20, depth=2, heads=1)


def build(grid: tuple[int, int] | None = (3, 5), seed: int = 0, **options: Any) -> Any:
    torch.manual_seed(seed)
    return Mamba(SMALL, grid, **{"drop_path": 0.0, **options}).double()


def tokens(images: int = 2, length: int = 16) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(images, length, SMALL.width, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize(
    ("size", "total", "outside"),
    [
        ("base", 85_036_264, 593_664 + 768 + 151_296 + 1_536 + 769_000),
        ("large", 297_041_352, 791_040 + 1_024 + 201_728 + 2_048 + 1_025_000),
    ],
)
def test_parameters(size: str, total: int, outside: int) -> None:
    """`outside`: embedding, class token, positions, the head's LayerNorm and the head at 224/16."""
    with torch.device("meta"):
        model = Mamba(SIZES[size], (14, 14))
    assert sum(parameter.numel() for parameter in model.parameters()) == total - outside


def literal_mixer(mixer: Mixer, image: np.ndarray, sequences: list[list[int]]) -> np.ndarray:
    """The mixer for one image (L, D): every scan visits the slots of its sequence, one after the other."""
    weights = {name: parameter.detach().numpy() for name, parameter in mixer.named_parameters()}
    width = weights["out_proj.weight"].shape[1]
    both = image @ weights["in_proj.weight"].T
    x, z = both[:, :width], both[:, width:]
    mixed = np.zeros((len(image), width))
    for i, sequence in enumerate(sequences):
        w = {
            name.removeprefix(f"scans.{i}."): value
            for name, value in weights.items()
            if f"scans.{i}." in name
        }
        rank = w["dt_proj.weight"].shape[1]
        states = np.zeros((width, 16))
        for t, slot in enumerate(sequence):
            inner = w["conv.bias"].copy()
            for back in range(4):
                if t - back >= 0:
                    inner += w["conv.weight"][:, 0, 3 - back] * x[sequence[t - back]]
            inner = inner / (1 + np.exp(-inner))
            low, B, C = np.split(w["x_proj.weight"] @ inner, [rank, rank + 16])
            delta = np.log1p(np.exp(w["dt_proj.weight"] @ low + w["dt_proj.bias"]))
            for d in range(width):
                decay = np.exp(-delta[d] * np.exp(w["A_log"][d]))
                states[d] = decay * states[d] + delta[d] * B * inner[d]
            y = states @ C + w["D"] * inner
            mixed[slot] += y * z[slot] / (1 + np.exp(-z[slot]))
    return mixed / len(sequences) @ weights["out_proj.weight"].T


def four_sequences(rows: int, columns: int) -> list[list[int]]:
    forward = list(range(rows * columns + 1))
    vertical = [0] + [1 + row * columns + column for column in range(columns) for row in range(rows)]
    return [forward, forward[::-1], vertical, vertical[::-1]]


def literal_backbone(model: Any, batch: Tensor, sequences: list[list[list[int]]]) -> np.ndarray:
    """Blocks and final norm around literal_mixer; `sequences` has one list per image."""

    def norm(rows: np.ndarray, layer: Any) -> np.ndarray:
        if isinstance(layer, torch.nn.RMSNorm):
            return rows / np.sqrt((rows**2).mean(1, keepdims=True) + 1e-5) * layer.weight.detach().numpy()
        rows = (rows - rows.mean(1, keepdims=True)) / np.sqrt(rows.var(1, keepdims=True) + layer.eps)
        return rows * layer.weight.detach().numpy() + layer.bias.detach().numpy()

    outputs = []
    for rows, visited in zip(batch.numpy(), sequences, strict=True):
        for block in model.blocks:
            rows = rows + literal_mixer(block.mixer, norm(rows, block.norm1), visited)
            if block.mlp is None:
                continue
            w = {name: parameter.detach().numpy() for name, parameter in block.mlp.named_parameters()}
            inner = norm(rows, block.norm2)
            gate, value = (inner @ w[f"{name}.weight"].T + w[f"{name}.bias"] for name in ("w1", "w2"))
            rows = rows + (gate / (1 + np.exp(-gate)) * value) @ w["w3.weight"].T + w["w3.bias"]
        outputs.append(norm(rows, model.norm))
    return np.stack(outputs)


@pytest.mark.parametrize("expand", [1, 2])
@pytest.mark.parametrize("scans", [4, 2, 1])
def test_mixer_is_the_loops(scans: int, expand: int) -> None:
    torch.manual_seed(1)
    mixer = Mixer(SMALL.width, depth=3, scans=scans, expand=expand).double()
    sequences = four_sequences(3, 5)
    visits = torch.tensor(sequences[2]) if scans == 4 else None
    expected = [literal_mixer(mixer, image, sequences[:scans]) for image in tokens().numpy()]
    np.testing.assert_allclose(mixer(tokens(), visits).detach(), np.stack(expected), rtol=0, atol=1e-10)


@pytest.mark.parametrize(("rows", "columns"), [(3, 5), (5, 3), (1, 15), (15, 1)])
def test_backbone_is_the_loops_on_any_rectangle(rows: int, columns: int) -> None:
    model = build((rows, columns))
    expected = literal_backbone(model, tokens(), [four_sequences(rows, columns)] * 2)
    np.testing.assert_allclose(model(tokens()).detach(), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("readout", "before"), [("middle", 7), ("last", 15)])
@pytest.mark.parametrize("scans", [4, 1])
def test_the_class_token_is_scanned_where_the_readout_says(readout: str, before: int, scans: int) -> None:
    """The loops, with token 0 after so many patches in each forward sequence."""
    model = build((3, 5), scans=scans, readout=readout)
    forward, _, vertical, _ = ([token for token in each if token] for each in four_sequences(3, 5))
    for sequence in (forward, vertical):
        sequence.insert(before, 0)
    sequences = [forward, forward[::-1], vertical, vertical[::-1]][:scans]
    expected = literal_backbone(model, tokens(), [sequences] * 2)
    np.testing.assert_allclose(model(tokens()).detach(), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("mlp", [True, False])
def test_vims_blocks_are_the_loops(norm: str, mlp: bool) -> None:
    model = build(None, scans=2, expand=2, norm=norm, mlp=mlp, readout="middle")
    for module in model.modules():
        if isinstance(module, torch.nn.RMSNorm | torch.nn.LayerNorm):
            torch.nn.init.uniform_(module.weight, 0.5, 2.0)
    forward = [*range(1, 8), 0, *range(8, 16)]
    expected = literal_backbone(model, tokens(), [[forward, forward[::-1]]] * 2)
    np.testing.assert_allclose(model(tokens()).detach(), expected, rtol=0, atol=1e-10)
    assert (torch.Size([2, 16, 20]), mlp) == (model(tokens()).shape, hasattr(model.blocks[0].mlp, "w1"))


def test_pooled_patches_are_those_around_a_class_token_in_the_middle() -> None:
    middle, pooled = (build(readout="middle", pool=pool)(tokens()).detach() for pool in (False, True))
    assert torch.equal(middle[:, 1:], pooled[:, 1:])
    np.testing.assert_allclose(pooled[:, 0], middle[:, 1:].numpy().mean(1), rtol=0, atol=1e-12)


def test_the_mean_readout_is_the_mean_of_the_patches() -> None:
    first, mean = build(readout="first")(tokens()).detach(), build(readout="mean")(tokens()).detach()
    assert torch.equal(first[:, 1:], mean[:, 1:])
    np.testing.assert_allclose(mean[:, 0], first[:, 1:].numpy().mean(1), rtol=0, atol=1e-12)


def test_the_last_patch_can_be_read_out_instead_of_a_class_token_that_is_first() -> None:
    first, last = build(readout="first")(tokens()).detach(), build(readout="last_patch")(tokens()).detach()
    assert torch.equal(first[:, 1:], last[:, 1:])
    assert torch.equal(last[:, 0], first[:, 15])
    assert not torch.equal(last[:, 0], build(readout="last")(tokens())[:, 0])


def influence(model: Any, length: int) -> Tensor:
    """(L, L): does output i depend on input j?"""
    batch = tokens(1, length)
    jacobian = torch.autograd.functional.jacobian(
        lambda t: model(t).sum((0, 2)) + model(t).square().sum((0, 2)), batch
    )
    return jacobian[:, 0].abs().sum(-1) > 0


def test_with_one_scan_only_a_class_token_that_is_last_sees_all_patches() -> None:
    seen = {
        readout: influence(build(None, scans=1, readout=readout), 11)[0].tolist()
        for readout in ("first", "middle", "last")
    }
    assert seen["first"] == [True] + [False] * 10
    assert seen["middle"] == [True] * 6 + [False] * 5  # itself and the first five patches
    assert seen["last"] == [True] * 11


def test_one_scan_is_causal_and_needs_no_grid() -> None:
    model = build(None, scans=1, readout="first")
    assert torch.equal(influence(model, 11), torch.ones(11, 11, dtype=torch.bool).tril())


def test_with_four_scans_every_token_sees_every_token() -> None:
    assert influence(build(), 16).all()


def test_vertical_scan_of_a_2x3_grid_follows_its_order() -> None:
    """Patches 0 1 2 / 3 4 5; by columns 0 3 1 4 2 5. The order 5 0 4 1 3 2 thus turns into 5 0 2 3 4 1."""
    order = torch.tensor([5, 0, 4, 1, 3, 2])
    slots = vertical_slots((2, 3), order, 1, order.device)
    assert order[slots].tolist() == [5, 0, 2, 3, 4, 1]
    assert slots.tolist() == [0, 1, 5, 4, 2, 3]


def test_vertical_scan_of_a_3x3_grid_mirrors_its_order() -> None:
    """The spiral 0 1 2 5 8 7 6 3 4 goes right first; its mirror image 0 3 6 7 8 5 2 1 4 goes down first."""
    order = torch.tensor([0, 1, 2, 5, 8, 7, 6, 3, 4])
    slots = vertical_slots((3, 3), order, 1, order.device)
    assert order[slots].tolist() == [0, 3, 6, 7, 8, 5, 2, 1, 4]
    assert slots.tolist() == [0, 7, 6, 5, 4, 3, 2, 1, 8]


@pytest.mark.parametrize(
    ("grid", "by_columns"),
    [((3, 3), [0, 3, 6, 1, 4, 7, 2, 5, 8]), ((2, 3), [0, 3, 1, 4, 2, 5]), ((1, 3), [0, 1, 2])],
)
def test_row_major_turns_into_column_major(grid: tuple[int, int], by_columns: list[int]) -> None:
    raster = torch.arange(grid[0] * grid[1])
    assert vertical_slots(grid, raster, 1, raster.device).tolist() == by_columns
    assert vertical_slots(grid, None, 1, raster.device).tolist() == by_columns


def test_each_image_may_have_its_order() -> None:
    model = build((2, 3), vertical="order")
    orders = torch.tensor([[5, 0, 4, 1, 3, 2], [0, 1, 2, 3, 4, 5]])
    visited = [[0, 1, 2, 6, 5, 3, 4], [0, 1, 4, 2, 5, 3, 6]]
    forward = list(range(7))
    sequences = [[forward, forward[::-1], slots, slots[::-1]] for slots in visited]
    expected = literal_backbone(model, tokens(2, 7), sequences)
    np.testing.assert_allclose(model(tokens(2, 7), orders).detach(), expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(model(tokens(2, 7), orders[0])[0].detach(), expected[0], rtol=0, atol=1e-10)
    np.testing.assert_allclose(model(tokens(2, 7))[1].detach(), expected[1], rtol=0, atol=1e-10)


def test_grid_ignores_the_order() -> None:
    model = build((2, 3))
    assert torch.equal(model(tokens(2, 7)), model(tokens(2, 7), torch.tensor([5, 0, 4, 1, 3, 2])))


def test_initialisation() -> None:
    torch.manual_seed(0)
    model: Any = Mamba(SIZES["mini"], (4, 4))
    for block in model.blocks:
        for scan in block.mixer.scans:
            steps = torch.nn.functional.softplus(scan.dt_proj.bias)
            assert 0.00099 < steps.min() < 0.01
            assert 0.04 < steps.max() < 0.101
            assert scan.dt_proj.weight.abs().max() <= 4**-0.5
            torch.testing.assert_close(scan.A_log.exp(), torch.arange(1.0, 17).expand(64, 16))
            assert scan.D.eq(1).all()
        bound = 1 / math.sqrt(64) / math.sqrt(4)  # kaiming_uniform(a=sqrt(5)) / sqrt(depth)
        assert 0.95 * bound < block.mixer.out_proj.weight.abs().max() <= bound
        assert not any(getattr(block.mlp, name).bias.any() for name in ("w1", "w2", "w3"))
    assert [round(block.drop_path.rate, 6) for block in model.blocks] == [0.0, 0.0, 0.033333, 0.066667]


def test_checkpointing_keeps_the_gradients() -> None:
    gradients = []
    for checkpointing in (False, True):
        model = build(checkpointing=checkpointing)
        model(tokens()).square().sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    assert all(torch.equal(*pair) for pair in zip(*gradients, strict=True))


def test_bfloat16_autocast() -> None:
    model = build().float()
    expected = model(tokens().float())
    with torch.autocast("cpu", torch.bfloat16):
        actual = model(tokens().float())
    actual.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    torch.testing.assert_close(actual.float(), expected, rtol=0, atol=0.1)


def test_training_draws_dropout_and_drop_path() -> None:
    model = build(dropout=0.5, drop_path=0.5).train()
    assert not torch.equal(model(tokens()), model(tokens()))
    model.eval()
    assert torch.equal(model(tokens()), model(tokens()))


def test_bad_options_and_inputs() -> None:
    with pytest.raises(ValueError, match="scans must be 1, 2 or 4, got 3"):
        build(scans=3)
    with pytest.raises(ValueError, match=r"unknown norm 'batch'; choose from \['layer', 'rms'\]"):
        build(norm="batch")
    with pytest.raises(ValueError, match="expand must be at least 1, got 0"):
        build(expand=0)
    with pytest.raises(ValueError, match=r"unknown vertical 'both'; choose from \['grid', 'order'\]"):
        build(vertical="both")
    with pytest.raises(ValueError, match="four scans need a grid"):
        build(None)
    with pytest.raises(ValueError, match="a grid of 3 x 5 patches has 16 tokens, got 15"):
        build()(tokens(2, 15))
    with pytest.raises(
        ValueError, match=r"order must be \(15,\) or \(2, 15\) for a grid of 3 x 5, got \(7,\)"
    ):
        build(vertical="order")(tokens(), torch.arange(7))


def test_a_class_token_that_will_see_no_patch_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="set readout=last"):
        build(scans=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build()
        build(scans=1, readout="first")  # asked for


def test_an_order_may_lie_on_another_device_than_the_tokens() -> None:
    slots = vertical_slots((2, 3), torch.arange(6), 1, torch.device("meta"))
    assert (slots.device.type, slots.shape) == ("meta", (6,))
