"""Where an existing model's patch tokens pass, in raster order and with their positions: timm, Hugging Face.

A model of timm's VisionTransformer family has a place for patch dropout there, `patch_drop`; in EVA, whose
rotary positions follow what is kept, it says which patches it keeps. Hugging Face's have `embeddings`.
"""

from typing import NamedTuple

from torch import nn

# B images, N patches, L = prefix + N tokens, D width

HOW = 'name the module whose first input is the tokens (B, L, D): attach(model, order, at="blocks.0")'
LAST_NORMS = ("norm", "layernorm")  # the module after the blocks


class Place(NamedTuple):
    """A module that tokens enter or leave, and what is known about them there."""

    name: str
    owner: nn.Module  # which has that module
    leave: bool = False  # the tokens are what the module gives, not what it takes
    prefix: int | None = None  # tokens before the patches
    grid: tuple[int, int] | None = None
    restore: str | None = None  # the module of the owner after which tokens can be put back

    @property
    def module(self) -> nn.Module | None:
        """The module itself; None where EVA has a place for one and none is there."""
        found: nn.Module | None = getattr(self.owner, self.name)
        return found


def find_place(model: nn.Module) -> Place:
    """Where a model of timm's or Hugging Face's has its patch tokens; an error says how to point at them."""
    found = []
    for name, module in model.named_modules():
        place = _timm(module) or _hugging_face(module)
        if place is not None:
            found.append((name, place))
    if not found:
        raise ValueError(f"cannot find the patch tokens of a {type(model).__name__}: {HOW}")
    if len(found) > 1:
        names = ", ".join(f"{name}.{place.name}".lstrip(".") for name, place in found)
        raise ValueError(
            f"a {type(model).__name__} has patch tokens in {names}: attach to one of these models"
        )
    return found[0][1]


def named_place(model: nn.Module, name: str) -> Place:
    """The module that a path such as blocks.0 names, whose first input is the tokens."""
    path, _, last = name.rpartition(".")
    try:
        owner = model.get_submodule(path)
        owner.get_submodule(last)
    except AttributeError:
        choices = ", ".join(child for child, _ in model.named_children())
        raise ValueError(f"{type(model).__name__} has no module {name!r}; it has {choices}") from None
    prefix = getattr(model, "num_prefix_tokens", None)
    return Place(last, owner, prefix=prefix, restore=last)


def _timm(module: nn.Module) -> Place | None:
    if not all(
        hasattr(module, name) for name in ("patch_embed", "blocks", "patch_drop", "num_prefix_tokens")
    ):
        return None
    drop = module.patch_drop
    if getattr(module, "rope", None) is not None and isinstance(drop, nn.Identity):
        raise ValueError(f"the rotary positions of a {type(module).__name__} would not move with its patches")
    if getattr(drop, "prob", 0) > 0 and not getattr(drop, "ordered", True):
        raise ValueError("patch dropout shuffles what it keeps: set model.patch_drop.ordered = True")
    grid = getattr(module.patch_embed, "grid_size", None)
    prefix = int(module.num_prefix_tokens)  # type: ignore[arg-type]
    return Place("patch_drop", module, prefix=prefix, grid=_pair(grid), restore=_last_norm(module))


def _hugging_face(module: nn.Module) -> Place | None:
    embeddings = getattr(module, "embeddings", None)
    if not any(hasattr(embeddings, name) for name in ("patch_embeddings", "patch_embedding")):
        return None
    if hasattr(embeddings, "patch_grid"):  # Swin and its like, which merge neighbours
        return None
    config, grid = getattr(module, "config", None), None
    size, patch = _pair(getattr(config, "image_size", None)), _pair(getattr(config, "patch_size", None))
    if size and patch:
        grid = size[0] // patch[0], size[1] // patch[1]
    return Place("embeddings", module, True, _special_tokens(embeddings), grid, _last_norm(module))


def _special_tokens(embeddings: object) -> int:
    """How many class, distillation and register tokens embeddings put before the patches."""
    single = ("cls_token", "class_embedding", "distillation_token")
    registers = getattr(embeddings, "register_tokens", None)
    ones = sum(getattr(embeddings, name, None) is not None for name in single)
    return ones + (0 if registers is None else registers.shape[1])


def _last_norm(module: nn.Module) -> str | None:
    return next((name for name in LAST_NORMS if isinstance(getattr(module, name, None), nn.Module)), None)


def _pair(size: object) -> tuple[int, int] | None:
    """A size or (height, width) as the latter, if it is one."""
    if isinstance(size, int):
        return size, size
    if isinstance(size, list | tuple) and len(size) == 2:
        return int(size[0]), int(size[1])
    return None
