"""A classifier of images whose patches are read in an order: tokens, backbone, head on the class token."""

import inspect
from types import NoneType
from typing import Any, get_args

from torch import Tensor, nn

from reorder.config import Model
from reorder.models.backbones import BACKBONES, Size, TransformerXL
from reorder.models.external import external
from reorder.models.grid import grid_of
from reorder.models.hugging_face import hugging_face
from reorder.models.patches import Tokens, initial_std
from reorder.models.sizes import size_of
from reorder.orders.read import Reading, plain

# B images, N patches, L = N + 1 tokens, D width


class Classifier(nn.Module):
    """Images (B, C, H, W) to logits (B, classes), read in an order.

    The order is (N,), one per image (B, N), None for raster, or what a learner sampled or reads in. It is
    made by `create_model`.

        >>> model = reorder.create_model("vit", "mini", image_size=8, patch_size=2, channels=1, classes=10)
        >>> model.grid, model.head.out_features
        ((4, 4), 10)
    """

    def __init__(self, tokens: Tokens, backbone: nn.Module, grid: tuple[int, int], width: int, classes: int):
        super().__init__()
        self.grid = grid
        self.tokens = tokens
        self.backbone = backbone
        self.reads_order = getattr(backbone, "reads_order", False)  # Mamba with vertical="order"
        self.norm: nn.Module = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, classes)
        for linear in (tokens.patch_embed.proj, self.head):
            nn.init.trunc_normal_(linear.weight, std=initial_std(width))
            nn.init.zeros_(linear.bias)

    def forward(self, images: Tensor, order: Reading | None = None) -> Tensor:
        if isinstance(self.backbone, TransformerXL):
            unseen = self.backbone.unseen(self.grid[0] * self.grid[1] + 1)
            tokens, _ = self.tokens.in_order(images, order, unseen)
            return self.head(self.norm(self.backbone.class_token(tokens)))
        tokens, known = self.tokens.in_order(images, order)
        tokens = self.backbone(tokens, plain(known)) if self.reads_order else self.backbone(tokens)
        return self.head(self.norm(tokens[:, 0]))


def check_options(name: str, options: dict[str, Any]) -> None:
    """Refuse options that the named backbone does not have, or values that do not fit their annotation."""
    parameters = inspect.signature(BACKBONES[name]).parameters
    accepted = {key: parameters[key].annotation for key in list(parameters)[2:]}  # after size and grid
    for key, value in options.items():
        if key not in accepted:
            choices = ", ".join(["positions", "pixel_norm", *accepted])
            raise ValueError(f"unknown option {key!r} of model {name}; choose from {choices}")
        kinds = get_args(accepted[key]) or (accepted[key],)
        number = float in kinds and type(value) is int
        if type(value) not in kinds and not number:
            expected = " or ".join("none" if kind is NoneType else kind.__name__ for kind in kinds)
            raise ValueError(f"option {key!r} of model {name} must be {expected}, got {value!r}")
        if key in ("dropout", "drop_path") and not 0 <= value < 1:
            raise ValueError(f"option {key!r} of model {name} must be in [0, 1), got {value!r}")


def create_model(
    name: str | nn.Module,
    size: str | Size = "base",
    image_size: int | tuple[int, int] = 224,
    patch_size: int = 16,
    channels: int = 3,
    classes: int = 1000,
    positions: str = "learned",
    pixel_norm: bool = True,
    **options: Any,
) -> Classifier:
    """A classifier by the name and size of its backbone; options are the backbone's own.

    The backbone may also be any module that maps tokens (B, L, D) to tokens (B, L, D), or a Hugging Face
    model that takes `inputs_embeds`; then the size is not looked at.

    >>> model = reorder.create_model("mamba", "mini", image_size=8, patch_size=2, channels=1, classes=10)
    >>> images, order = torch.zeros(5, 1, 8, 8), reorder.scan("hilbert", *model.grid)
    >>> model(images, order).shape
    torch.Size([5, 10])
    >>> encoder = torch.nn.LSTM(32, 32, batch_first=True)
    >>> reorder.create_model(encoder, image_size=8, patch_size=2, classes=10).backbone.width
    32
    """
    if isinstance(size, str):
        size = size_of(size)
    if not isinstance(pixel_norm, bool):
        raise ValueError(f"pixel_norm must be true or false, got {pixel_norm!r}")
    if classes < 1 or channels < 1:
        raise ValueError(f"channels and classes must be at least 1, got {channels} and {classes}")
    grid = grid_of(image_size, patch_size)
    length = grid[0] * grid[1] + 1
    if isinstance(name, str) and name in BACKBONES:
        check_options(name, options)
        tokens = Tokens(grid, patch_size, channels, size.width, positions, pixel_norm)
        return Classifier(tokens, BACKBONES[name](size, grid, **options), grid, size.width, classes)
    if isinstance(name, nn.Module):
        backbone = external(name, length, **options)
    elif name.startswith("hf:") and name != "hf:":
        backbone = hugging_face(name, size, length, **options)
    else:
        raise ValueError(f"unknown model {name!r}; choose from {', '.join(BACKBONES)}, hf:<name or file>")
    tokens = Tokens(grid, patch_size, channels, backbone.width, positions, pixel_norm)
    return Classifier(tokens, backbone, grid, backbone.width, classes)


def model_of(settings: Model, channels: int, classes: int) -> Classifier:
    """The classifier that a configuration describes, for data of so many channels and classes."""
    for key in settings.options:
        if key in ("name", "size", "image_size", "patch_size", "channels", "classes"):
            raise ValueError(
                f"model.options.{key} is no option of a backbone; use model.{key}, or the data's"
            )
    size, shape = settings.size, settings.image_shape
    return create_model(
        settings.name, size, shape, settings.patch_size, channels, classes, **settings.options
    )
