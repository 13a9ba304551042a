"""A trained model to use: `reorder.load` makes it of a run, a checkpoint, or what was pushed to a hub."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load as tensors_of
from torch import Tensor, nn

from reorder.config import Experiment, Model
from reorder.data.datasets import file_transform, load_dataset
from reorder.data.inputs import Inputs
from reorder.data.transform import DEVIATION, MEAN
from reorder.models.classifier import model_of
from reorder.models.grid import grid_of
from reorder.orders.image_policy import ImagePolicy, OwnOrders
from reorder.orders.order import validate
from reorder.orders.schema import LARGEST, OBJECT, Rule, check, list_of, read_file, read_json, whole
from reorder.runs.directory import DataFile, RunDir, fitting, read_checkpoint
from reorder.runs.paths import check_run
from reorder.runs.schemas import check_data
from reorder.runs.trained import image_policy_at, last_checkpoint, order_at, weights_of

# n images, b in a batch, C channels, H x W pixels, N patches

IN_MEMORY = ("digits", "clutter", "idx")  # datasets that are normalised by their own mean and deviation
REACH_OR_NONE = Rule(
    "a positive number or null",
    lambda value: value is None or (isinstance(value, float) and 0 < value < LARGEST),
)
HUB_FILES = ("config.json", "model.safetensors")  # as huggingface_hub's mixin for PyTorch names them

try:
    from huggingface_hub import PyTorchModelHubMixin
except ImportError:

    class PyTorchModelHubMixin:  # type: ignore[no-redef]
        """In its place where the library is not installed."""

        def __init_subclass__(cls, **options: Any) -> None:
            super().__init_subclass__()

        def save_pretrained(self, *arguments: Any, **options: Any) -> None:
            raise ValueError("to share a model, huggingface_hub is needed: pip install huggingface_hub")

        push_to_hub = from_pretrained = save_pretrained


class Predictions(NamedTuple):
    names: list[str]  # the most likely class of each image
    probabilities: Tensor  # (n, classes)


class TrainedModel(
    nn.Module,
    PyTorchModelHubMixin,
    library_name="reorder",
    tags=["image-classification", "patch-order"],
    paper_url="https://d3tk.github.io/REOrder/",
):
    """A trained classifier with its order, the names of its classes, and how it wants its images.

    `reorder.load` makes it. It maps normalised images (b, C, H, W) to logits (b, classes), read in its order;
    `predict` takes images as they are. With huggingface_hub it can be shared:

        model = reorder.load("runs/birds")
        model.push_to_hub("me/birds")
        model = reorder.TrainedModel.from_pretrained("me/birds")
    """

    order: Tensor  # (N,)

    def __init__(
        self, model: dict[str, Any], data: dict[str, Any], order: list[int], image_reach: float | None = None
    ):
        """`model` as in a run's config.yaml, `data` as its data.json.

        With `image_reach` every image is read in its own order, by a network that moves logits so far.
        """
        super().__init__()
        settings = Model(**model)
        check_data(data)
        self.classes, self.inputs = DataFile.of(data, settings.image_shape)
        self.classifier = model_of(settings, len(self.inputs.mean), len(self.classes))
        self.grid = self.classifier.grid
        found = validate(torch.tensor(order), self.grid[0] * self.grid[1])
        self.register_buffer("order", found, persistent=False)  # it is in the configuration
        self.policy: ImagePolicy | None = None
        if image_reach is not None:
            width = self.classifier.head.in_features
            self.policy = ImagePolicy(torch.zeros(len(found)), self.grid, width, image_reach)
            self.policy.requires_grad_(False)
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(images, self.order if self.policy is None else OwnOrders(self.policy))

    def predict(self, images: Any, batch_size: int = 64) -> Predictions:
        """The names and probabilities of images: files, images of Pillow's, or uint8 pixels; one or many.

        Pixels are a tensor (C, h, w) or (n, C, h, w), or an array (h, w), (h, w, C) or (n, h, w, C), of any
        size: they are resized, cropped and normalised as the images the model was trained on.
        """
        several = _several(images)
        found = [torch.empty(0, len(self.classes))]
        for start in range(0, len(several), batch_size):
            pixels = torch.stack([self._read(image) for image in several[start : start + batch_size]])
            found.append(self.probabilities(pixels))
        probabilities = torch.cat(found)
        return Predictions([self.classes[best] for best in probabilities.argmax(1)], probabilities)

    @torch.no_grad()
    def probabilities(self, pixels: Tensor) -> Tensor:
        """Probabilities (b, classes) of images (b, 3, H, W), uint8, of the model's size."""
        was_training = self.training
        self.eval()
        logits = self(self.inputs.prepare(pixels).to(self.order.device))
        self.train(was_training)
        return logits.float().softmax(1).cpu()

    def _read(self, image: Any) -> Tensor:
        try:
            return self.inputs.read(image)
        except (OSError, ValueError, SyntaxError) as error:  # what Pillow makes of damaged files
            what = image if isinstance(image, str | Path) else "an image"
            raise ValueError(f"cannot read {what}: {' '.join(str(error).split())}") from None


def _several(images: Any) -> Sequence[Any]:
    """A list of images, of one or of many."""
    if isinstance(images, Tensor):
        return list(images) if images.dim() == 4 else [images]
    if hasattr(images, "__array_interface__") and getattr(images, "ndim", 0) == 4:
        return list(images)
    return images if isinstance(images, list | tuple) else [images]


def load(run: str | Path) -> TrainedModel:
    """A trained model: of a run's last checkpoint, of one checkpoint, or of a directory for a hub.

    It has the weights that were validated (the averaged ones, if there are any), the order, the names of the
    classes (numbers, of a run that did not save them), and what is done to images.

        model = reorder.load("runs/birds")
        names, probabilities = model.predict(["a.jpg", "b.jpg"])
    """
    path = Path(run)
    path = path.parent if path.name == "weights.safetensors" else path
    if all((path / name).is_file() for name in HUB_FILES):
        return _from_hub_files(path)
    if path.name.startswith("step-") and path.parent.name == "checkpoints":
        directory, checkpoint = RunDir(path.parent.parent), read_checkpoint(path)
        own = directory.experiment()
    else:
        check_run(path)
        directory = RunDir(path)
        own, checkpoint = directory.experiment(), last_checkpoint(directory)
    tensors, state = checkpoint
    with fitting(directory):
        order = order_at(tensors, state, own)
        weights = weights_of(tensors)
        data = directory.data() or numbered(own, len(weights["head.bias"]))
        grid = grid_of(own.model.image_shape, own.model.patch_size)
        policy = image_policy_at(tensors, state, own, grid)
        reach = None if policy is None else policy.network.reach
        model = TrainedModel(dataclasses.asdict(own.model), data.content(), order.tolist(), reach)
        model.classifier.load_state_dict(weights)
        if model.policy is not None and policy is not None:
            model.policy.load_state_dict(policy.state_dict())
    return model


def numbered(own: Experiment, classes: int) -> DataFile:
    """What an older run did not write down: its classes as numbers; digits and the like are loaded again."""
    names = [str(number) for number in range(classes)]
    if own.data.name in IN_MEMORY:
        return DataFile(names, load_dataset(own.data, own.model.image_shape).inputs)
    return DataFile(names, Inputs(file_transform(own.data, own.model.image_shape), MEAN, DEVIATION))


def _from_hub_files(path: Path) -> TrainedModel:
    """The model in a directory that `save_pretrained` wrote."""
    rules = {"model": OBJECT, "data": OBJECT, "order": list_of(whole(0)), "image_reach": REACH_OR_NONE}

    def read_settings(file: Path) -> dict[str, Any]:
        content = read_json(file)
        check(content, OBJECT)
        content = {"image_reach": None} | content  # which older files lack
        check(content, rules)
        return {key: content[key] for key in rules}

    def build(file: Path) -> TrainedModel:
        return TrainedModel(**read_settings(file))

    settings, weights = (path / name for name in HUB_FILES)
    model: TrainedModel = read_file(settings, build, "export the model again")

    def fill(file: Path) -> None:
        model.load_state_dict(tensors_of(file.read_bytes()))

    read_file(weights, fill, "export the model again")
    return model
