"""The weights that ARM and Vim publish, in our Mamba.

ARM (github.com/OliverRensu/ARM): four scans, LayerNorm, SwiGLU. Vim (github.com/hustvl/Vim): two scans, twice
as wide inside, RMSNorm, no SwiGLU. In both the class token is read in the middle of the patches, a patch is
embedded by a convolution without norms, and there is no norm between `norm_f` and the head.
"""

import argparse
import math
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from reorder.models.classifier import Classifier, create_model
from reorder.models.readout import move_class_token_back
from reorder.models.sizes import Size

# N patches, P patch size, D width

# What a checkpoint may hold besides tensors and plain values: the arguments it was trained with.
ALLOWED: list[Any] = [argparse.Namespace]
SUFFIXES = ("", "_b", "_c", "_c_b")  # of the scans: forward, backward, vertical, vertical backward
NAMED = 4  # keys that an error names


def load_weights(path: str | Path) -> Classifier:
    """The classifier of a checkpoint of ARM or Vim, or of its state_dict alone, ready to read in any order.

    Size, patches, scans and classes are those of the file. ARM's averaged weights are taken if it has them,
    as its own evaluation does. Every key must be there, and no other.

        model = reorder.load_weights("arm_base.pth")
        logits = model(images, reorder.scan("hilbert", *model.grid))
    """
    checkpoint = _read(Path(path))
    state = checkpoint.get("model", checkpoint)
    four = isinstance(state, dict) and any("_c_b" in str(key) for key in state)
    if four and "model_ema" in checkpoint:
        state = checkpoint["model_ema"]
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ValueError(f"{path} has no state_dict, neither alone nor as `model`")
    try:
        model = _like(state, checkpoint.get("args"))
    except KeyError as error:
        raise ValueError(f"{path} is not of ARM or Vim: it has no {error.args[0]}") from None
    except (ValueError, IndexError, ZeroDivisionError) as error:
        raise ValueError(f"{path} is not of ARM or Vim: {error}") from None
    _fill(model, state, Path(path))
    return model


def _read(path: Path) -> dict[str, Any]:
    try:
        with torch.serialization.safe_globals(ALLOWED):
            found = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    except Exception as error:  # the unpickler's own kinds; the first sentence says what is not allowed
        line = " ".join(str(error).split())
        wrong = re.search(r"Unsupported (global|operand|class).*?(?= was not|\.? Please|$)", line)
        said = (wrong.group() if wrong else line)[:200]
        raise ValueError(f"{path} is not a checkpoint of tensors and plain values: {said}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds a {type(found).__name__}, not a checkpoint")
    return found


def _like(state: dict[str, Tensor], arguments: Any) -> Classifier:
    """A model of the shapes of a state_dict, its weights still random."""
    width, (_, channels, patch_size, _) = state["cls_token"].shape[-1], state["patch_embed.proj.weight"].shape
    blocks = {int(found.group(1)) for key in state if (found := re.match(r"layers\.(\d+)\.", key))}
    patches = state["pos_embed"].shape[1] - 1
    side = math.isqrt(patches)
    asked = getattr(arguments, "input_size", side * patch_size)
    if side * side != patches or asked != side * patch_size:
        raise ValueError(
            f"its {patches} positions are not those of an image in patches of {patch_size} without overlap"
        )
    model = create_model(
        "mamba",
        Size(width, len(blocks), 1),
        image_size=side * patch_size,
        patch_size=patch_size,
        channels=channels,
        classes=len(state["head.weight"]),
        scans=_scans(state),
        readout="middle",
        pool=bool(getattr(arguments, "global_pool", False)),
        expand=state["layers.0.mixer.in_proj.weight"].shape[0] // (2 * width),
        norm="layer" if "norm_f.bias" in state else "rms",
        mlp=any(".mlp." in key for key in state),
    )
    model.tokens.patch_embed.pixel_norm = model.tokens.patch_embed.norm = model.norm = nn.Identity()
    return model


def _scans(state: dict[str, Tensor]) -> int:
    found = [suffix for suffix in SUFFIXES if f"layers.0.mixer.A{suffix}_log" in state]
    return {1: 1, 2: 2}.get(len(found), 4)


def _fill(model: Classifier, state: dict[str, Tensor], path: Path) -> None:
    """Copy every tensor of a state_dict to its place, and refuse one that is missing or has none."""
    theirs = {name: _published_name(name) for name in model.state_dict()}
    if not any(".norm2." in name for name in theirs):  # Vim: one norm in a block
        theirs = {name: their.replace(".norm1.", ".norm.") for name, their in theirs.items()}
    missing, unexpected = set(theirs.values()) - state.keys(), state.keys() - set(theirs.values())
    if missing or unexpected:
        raise ValueError(
            f"{path} is not of ARM or Vim: missing {_listed(missing)}; unexpected {_listed(unexpected)}"
        )
    for name, ours in model.state_dict().items():
        value = state[theirs[name]]
        if theirs[name] == "pos_embed":
            value = move_class_token_back(value, "middle")
        if theirs[name] == "patch_embed.proj.weight":
            value = value.flatten(1)  # a convolution's (D, C, P, P); a patch is (C, P, P) in ours too
        if value.shape != ours.shape:
            raise ValueError(f"{path}: {theirs[name]} is {tuple(value.shape)}, not {tuple(ours.shape)}")
        ours.copy_(value)


def _published_name(name: str) -> str:
    """What ARM calls a tensor of ours."""
    name = name.removeprefix("tokens.")
    name = re.sub(r"^backbone\.norm\.", "norm_f.", name)
    name = re.sub(r"^backbone\.blocks\.", "layers.", name)
    if found := re.match(r"(.*)\.scans\.(\d)\.(.*)", name):
        mixer, scan, part = found.groups()
        kind, _, end = part.partition(".")
        suffix = SUFFIXES[int(scan)]
        kind = {"A_log": f"A{suffix}_log", "conv": f"conv1d{suffix}"}.get(kind, f"{kind}{suffix}")
        name = f"{mixer}.{kind}" + (f".{end}" if end else "")
    return name


def _listed(keys: set[str]) -> str:
    """Some names, and how many more there are."""
    more = f" and {len(keys) - NAMED} more" if len(keys) > NAMED else ""
    return ", ".join(sorted(keys)[:NAMED]) + more if keys else "none"
