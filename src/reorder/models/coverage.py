"""Looking into models: which tokens attend to each patch."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from reorder.models.backbones import BACKBONES, Longformer
from reorder.models.classifier import Classifier, create_model
from reorder.models.grid import grid_of
from reorder.models.readout import class_token_place
from reorder.orders.order import invert

# B images, H heads, L = N + 1 tokens, D width

MOST_PATCHES = 4096  # whether each of their tokens attends to each is kept


def attends(model: Classifier, images: Tensor) -> Tensor:
    """Whether token i attends to token j anywhere in the model, (L, L), read in raster order.

    As the paper's appendix does it: by the attention weights where a layer has them, by the pattern of
    Longformer's windows, and otherwise by the gradient of outputs with respect to inputs. Token 0 is the
    class token, or what is read out in its place.
    """
    was_training = model.training
    model.eval()
    tokens = model.tokens(images).detach()
    if isinstance(model.backbone, Longformer):
        found = _by_token(model.backbone.attends(tokens.shape[1]), model.backbone.readout)
    elif any(hasattr(module, "weights") for module in model.backbone.modules()):
        found = _by_token(_by_weights(model.backbone, tokens), str(model.backbone.readout))
    else:
        found = _by_gradient(model.backbone, tokens)
    model.train(was_training)
    return found


def _by_token(found: Tensor, readout: str) -> Tensor:
    """Which slots attend to which, (L, L), as tokens; a mean that is read out attends to all."""
    slot_of = invert(class_token_place(len(found), readout))
    found = found[slot_of][:, slot_of]
    if readout == "mean":
        found[0] = True
    if readout == "last_patch":
        found[0] = found[-1]
    return found


@torch.no_grad()
def _by_weights(backbone: nn.Module, tokens: Tensor) -> Tensor:
    """The largest attention weight over layers, heads and images is above zero."""
    largest = tokens.new_zeros(tokens.shape[1], tokens.shape[1])

    def look(module: Any, inputs: tuple[Tensor, ...]) -> None:
        torch.maximum(largest, module.weights(*inputs).amax((0, 1)), out=largest)

    attentions = [module for module in backbone.modules() if hasattr(module, "weights")]
    handles = [module.register_forward_pre_hook(look) for module in attentions]
    backbone(tokens)
    for handle in handles:
        handle.remove()
    return largest > 0


def _by_gradient(backbone: nn.Module, tokens: Tensor) -> Tensor:
    """The gradient of an output token's norm with respect to an input token is not zero."""
    tokens = tokens.requires_grad_()
    # The final LayerNorm fixes the plain norm of a token, so its outputs are weighted before.
    weight = torch.linspace(0.5, 1.5, tokens.shape[2], device=tokens.device)
    norms = (backbone(tokens) * weight).norm(dim=2).sum(0)
    rows = [torch.autograd.grad(norm, tokens, retain_graph=True)[0] for norm in norms]
    return torch.stack(rows).abs().amax((1, 3)) > 0


def coverage(image_size: int = 224, patch_size: int = 32, size: str = "mini") -> dict[str, Any]:
    """For each model, how many tokens attend to the class token and to each patch (rows, columns)."""
    rows, columns = grid_of(image_size, patch_size)
    if rows * columns > MOST_PATCHES:
        raise ValueError(f"coverage is counted for at most {MOST_PATCHES:,} patches, got {rows} x {columns}")
    torch.manual_seed(0)
    images = torch.randn(1, 3, image_size, image_size)
    result: dict[str, Any] = {"image_size": image_size, "patch_size": patch_size, "size": size, "models": {}}
    for name in BACKBONES:
        model = create_model(name, size, image_size, patch_size)
        counts = attends(model, images).sum(0)
        result["models"][name] = {
            "class_token": int(counts[0]),
            "patches": counts[1:].view(model.grid).tolist(),
        }
    return result


def write_coverage(result: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result) + "\n")
