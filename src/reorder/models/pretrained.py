"""Trained image classifiers of Hugging Face and timm: hf:<name or directory>, timm:<name>."""

from typing import Any, NamedTuple

from torch import nn

from reorder.data.transform import DEVIATION, MEAN
from reorder.models.hugging_face import line_of, quiet_hub, transformers_library


class Pretrained(NamedTuple):
    model: nn.Module
    image_shape: tuple[int, int]  # (height, width) in pixels
    mean: tuple[float, ...]  # of the pixels in 0..1, by which images are normalised
    deviation: tuple[float, ...]


def load_pretrained(name: str) -> Pretrained:
    """The classifier that a name says, and what its images must be like."""
    loaded = _hugging_face(name) if name.startswith("hf:") else _timm(name)
    if min(loaded.image_shape) < 1:
        raise ValueError(f"{name} does not say for which image size it is")
    return loaded._replace(model=loaded.model.eval())


def _hugging_face(name: str) -> Pretrained:
    library, where = transformers_library(), name.removeprefix("hf:")
    try:
        with quiet_hub():
            model = library.AutoModelForImageClassification.from_pretrained(where)
    except Exception as error:  # no such model, no network, no classifier of images
        raise ValueError(f"cannot load {name} as a classifier of images: {line_of(error)}") from None
    size = getattr(model.config, "image_size", 0)
    height, width = (size, size) if isinstance(size, int) else size
    prepared = _preparation(library, where)
    mean, deviation = prepared.get("image_mean") or MEAN, prepared.get("image_std") or DEVIATION
    return Pretrained(model, (height, width), tuple(mean), tuple(deviation))


def _preparation(library: Any, where: str) -> dict[str, Any]:
    """What the model's preprocessor_config.json says; nothing if it has none."""
    try:
        with quiet_hub():
            found, _ = library.image_processing_utils.BaseImageProcessor.get_image_processor_dict(where)
    except (OSError, ValueError):
        return {}
    return dict(found)


def _timm(name: str) -> Pretrained:
    try:
        import timm
    except (ImportError, RuntimeError) as error:  # torchvision may be there and not fit
        why = line_of(error)
        raise ValueError(
            f"timm: models need timm and torchvision ({why}): pip install 'reorder[timm]'"
        ) from None
    try:
        model = timm.create_model(name.removeprefix("timm:"), pretrained=True)
    except Exception as error:  # no such model, no network
        raise ValueError(f"cannot load {name}: {line_of(error)}") from None
    settings = model.pretrained_cfg
    _, height, width = settings["input_size"]
    return Pretrained(model, (height, width), tuple(settings["mean"]), tuple(settings["std"]))
