"""Files in ARM's and Vim's formats with random weights: read, and compared with loops over their keys."""

# N patches, L = N + 1 tokens, D width, E inner width, S = 16 states

import argparse
import collections
import datetime

import numpy as np
import pytest
import torch

import reorder

SIDE, PATCH, WIDTH, DEPTH, CLASSES = 4, 2, 20, 2, 5  # ranks are ceil(20 / 16) = 2
SUFFIXES = ["", "_b", "_c", "_c_b"]


def shapes_of(kind):
    """Every key and shape of a published state_dict, as the authors' modules would have them."""
    suffixes, inner = (SUFFIXES, WIDTH) if kind == "arm" else (SUFFIXES[:2], 2 * WIDTH)
    shapes = {
        "cls_token": (1, 1, WIDTH),
        "pos_embed": (1, SIDE * SIDE + 1, WIDTH),
        "patch_embed.proj.weight": (WIDTH, 3, PATCH, PATCH),
        "patch_embed.proj.bias": (WIDTH,),
        "head.weight": (CLASSES, WIDTH),
        "head.bias": (CLASSES,),
        "norm_f.weight": (WIDTH,),
    }
    shapes |= {"norm_f.bias": (WIDTH,)} if kind == "arm" else {}
    for i in range(DEPTH):
        block = {"mixer.in_proj.weight": (2 * inner, WIDTH), "mixer.out_proj.weight": (WIDTH, inner)}
        for s in suffixes:
            block |= {
                f"mixer.A{s}_log": (inner, 16),
                f"mixer.D{s}": (inner,),
                f"mixer.conv1d{s}.weight": (inner, 1, 4),
                f"mixer.conv1d{s}.bias": (inner,),
                f"mixer.x_proj{s}.weight": (2 + 32, inner),
                f"mixer.dt_proj{s}.weight": (inner, 2),
                f"mixer.dt_proj{s}.bias": (inner,),
            }
        if kind == "arm":
            block |= {f"norm{n}.{part}": (WIDTH,) for n in (1, 2) for part in ("weight", "bias")}
            hidden = WIDTH * 4 * 2 // 3
            for name, shape in (("w1", (hidden, WIDTH)), ("w2", (hidden, WIDTH)), ("w3", (WIDTH, hidden))):
                block |= {f"mlp.{name}.weight": shape, f"mlp.{name}.bias": shape[:1]}
        else:
            block["norm.weight"] = (WIDTH,)
        shapes |= {f"layers.{i}.{key}": shape for key, shape in block.items()}
    return shapes


def state_of(kind, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return {key: torch.randn(shape, generator=generator) * 0.4 for key, shape in shapes_of(kind).items()}


def normed(rows, w, name):
    if f"{name}.bias" not in w:  # RMSNorm
        return rows / np.sqrt((rows**2).mean(1, keepdims=True) + 1e-5) * w[f"{name}.weight"]
    rows = (rows - rows.mean(1, keepdims=True)) / np.sqrt(rows.var(1, keepdims=True) + 1e-5)
    return rows * w[f"{name}.weight"] + w[f"{name}.bias"]


def silu(x):
    return x / (1 + np.exp(-x))


def scan(w, s, x, sequence):
    """y (L, E) of one scan that visits the tokens x (L, E) in a sequence, by its key's suffix."""
    y, states = np.zeros_like(x), np.zeros((x.shape[1], 16))
    for t, token in enumerate(sequence):
        taps = w[f"conv1d{s}.weight"][:, 0]
        inner = w[f"conv1d{s}.bias"] + sum(
            taps[:, 3 - back] * x[sequence[t - back]] for back in range(min(4, t + 1))
        )
        inner = silu(inner)
        step, B, C = np.split(w[f"x_proj{s}.weight"] @ inner, [2, 18])
        delta = np.log1p(np.exp(w[f"dt_proj{s}.weight"] @ step + w[f"dt_proj{s}.bias"]))[:, None]
        states = np.exp(-delta * np.exp(w[f"A{s}_log"])) * states + delta * B * inner[:, None]
        y[token] = states @ C + w[f"D{s}"] * inner
    return y


def published_logits(state, image, pool=False):
    """Logits of one image (3, H, W), by loops over the tensors of a published state_dict."""
    w = {key: value.double().numpy() for key, value in state.items()}
    patches = [
        np.einsum(
            "dcpq,cpq->d",
            w["patch_embed.proj.weight"],
            image[:, r : r + PATCH, c : c + PATCH].double().numpy(),
        )
        for r in range(0, SIDE * PATCH, PATCH)
        for c in range(0, SIDE * PATCH, PATCH)
    ]
    rows, middle = np.stack(patches) + w["patch_embed.proj.bias"], SIDE * SIDE // 2
    rows = np.concatenate([rows[:middle], w["cls_token"][0], rows[middle:]]) + w["pos_embed"][0]
    forward = list(range(len(rows)))
    by_columns = [token + (token >= middle) for c in range(SIDE) for token in range(c, SIDE * SIDE, SIDE)]
    vertical = [*by_columns[:middle], middle, *by_columns[middle:]]
    sequences = [forward, forward[::-1], vertical, vertical[::-1]]
    for i in range(DEPTH):
        block = {key.removeprefix(f"layers.{i}."): value for key, value in w.items() if f"layers.{i}." in key}
        mixer = {key.removeprefix("mixer."): value for key, value in block.items()}
        both = normed(rows, block, "norm1" if "norm1.weight" in block else "norm") @ mixer["in_proj.weight"].T
        x, z = np.split(both, 2, axis=1)
        used = [s for s in SUFFIXES if f"A{s}_log" in mixer]
        mixed = sum(scan(mixer, s, x, sequences[SUFFIXES.index(s)]) * silu(z) for s in used) / len(used)
        rows = rows + mixed @ mixer["out_proj.weight"].T
        if "mlp.w1.weight" in block:
            inner = normed(rows, block, "norm2")
            w1, w2 = (inner @ block[f"mlp.{n}.weight"].T + block[f"mlp.{n}.bias"] for n in ("w1", "w2"))
            rows = rows + (silu(w1) * w2) @ block["mlp.w3.weight"].T + block["mlp.w3.bias"]
    rows = normed(rows, w, "norm_f")
    answer = np.delete(rows, middle, axis=0).mean(0) if pool else rows[middle]
    return w["head.weight"] @ answer + w["head.bias"]


def images():
    return torch.randn(2, 3, SIDE * PATCH, SIDE * PATCH, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("kind", ["arm", "vim"])
def test_a_state_dict_gives_the_logits_of_its_keys(kind, tmp_path):
    state = state_of(kind)
    torch.save(state, tmp_path / "weights.pth")
    model = reorder.load_weights(tmp_path / "weights.pth").double().eval()
    expected = np.stack([published_logits(state, image) for image in images()])
    np.testing.assert_allclose(model(images().double()).detach(), expected, rtol=1e-8, atol=1e-8)
    assert model.grid == (SIDE, SIDE)
    assert sum(p.numel() for p in model.parameters()) == sum(value.numel() for value in state.values())
    order = reorder.scan("spiral", SIDE, SIDE)
    assert (model(images().double(), order) - model(images().double())).abs().max() > 1e-3


@pytest.mark.parametrize("pool", [True, None])
def test_a_checkpoint_of_arm_is_its_averaged_weights_and_its_pooling(pool, tmp_path):
    arguments = argparse.Namespace(model="arm_base_pz16", global_pool=pool, input_size=8, output_dir="out")
    average = state_of("arm", seed=1)
    file = {
        "model": collections.OrderedDict(state_of("arm")),
        "model_ema": average,
        "optimizer": {
            "state": {0: {"step": torch.tensor(3.0)}},
            "param_groups": [{"lr": 0.1, "params": [0]}],
        },
        "epoch": 99,
        "scaler": {"scale": 65536.0},
        "args": arguments,
        "max_accuracy": 83.2,
    }
    torch.save(file, tmp_path / "checkpoint-99.pth")
    model = reorder.load_weights(str(tmp_path / "checkpoint-99.pth")).double().eval()
    expected = np.stack([published_logits(average, image, bool(pool)) for image in images()])
    np.testing.assert_allclose(model(images().double()).detach(), expected, rtol=1e-8, atol=1e-8)


def test_a_checkpoint_of_vim_is_its_plain_weights(tmp_path):
    file = {
        "model": state_of("vim"),
        "model_ema": state_of("vim", 1),
        "args": argparse.Namespace(input_size=8),
    }
    torch.save(file | {"scaler": "none", "lr_scheduler": {"base_values": [0.1]}}, tmp_path / "vim.pth")
    model = reorder.load_weights(tmp_path / "vim.pth").double().eval()
    expected = published_logits(state_of("vim"), images()[0])
    np.testing.assert_allclose(model(images()[:1].double())[0].detach(), expected, rtol=1e-8, atol=1e-8)


def without(state, *keys):
    return {key: value for key, value in state.items() if key not in keys}


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (without(state_of("arm"), "layers.1.mixer.D_c"), "missing layers.1.mixer.D_c; unexpected none"),
        (without(state_of("vim"), "cls_token"), "is not of ARM or Vim: it has no cls_token"),
        (
            state_of("arm") | {"dec_embed.weight": torch.zeros(2)},
            "missing none; unexpected dec_embed.weight",
        ),
        (state_of("vim") | {"head.bias": torch.zeros(4)}, r"head.bias is \(4,\), not \(5,\)"),
        (state_of("vim") | {"layers.1.norm.bias": torch.zeros(20)}, "unexpected layers.1.norm.bias"),
        (
            {"model": state_of("vim"), "args": argparse.Namespace(input_size=5)},
            "its 16 positions are not those of an image in patches of 2 without overlap",
        ),
        (
            without(state_of("arm"), *(key for key in state_of("arm") if "_c_b" in key)),
            r"missing .* and 10 more",
        ),
        ({"model": {"a": 3}}, "has no state_dict, neither alone nor as `model`"),
        (torch.zeros(3), "holds a Tensor, not a checkpoint"),
        ({"model": state_of("vim"), "when": datetime.timedelta(3)}, "not a checkpoint of tensors and plain"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(file, said, tmp_path):
    torch.save(file, tmp_path / "weights.pth")
    with pytest.raises(ValueError, match=said) as error:
        reorder.load_weights(tmp_path / "weights.pth")
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500


def test_a_file_that_is_no_checkpoint_or_not_there_is_refused(tmp_path):
    (tmp_path / "weights.pth").write_bytes(b"PK no zip")
    with pytest.raises(ValueError, match="is not a checkpoint of tensors and plain values"):
        reorder.load_weights(tmp_path / "weights.pth")
    with pytest.raises(ValueError, match=r"cannot read .*: No such file or directory"):
        reorder.load_weights(tmp_path / "none.pth")


def test_nothing_in_a_file_is_run(tmp_path):
    class Harmful:
        def __reduce__(self):
            return (open, (str(tmp_path / "written"), "w"))

    torch.save({"model": state_of("vim"), "args": Harmful()}, tmp_path / "weights.pth")
    with pytest.raises(ValueError, match="is not a checkpoint of tensors and plain values"):
        reorder.load_weights(tmp_path / "weights.pth")
    assert not (tmp_path / "written").exists()
