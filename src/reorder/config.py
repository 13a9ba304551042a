"""Typed configuration of one experiment, validated when built: unknown or ill-typed keys are errors."""

import dataclasses
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

TOKENIZERS = ("kmeans", "vqvae", "chameleon")
FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")  # of Debian's package dataset-fashion-mnist


def _choose(key: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{key}: unknown value {value!r}; choose from {', '.join(choices)}")


def _absolute(key: str, path: str) -> str:
    """A path that holds wherever the run is continued from."""
    try:
        return str(Path(path).expanduser().resolve())
    except (OSError, RuntimeError, ValueError) as error:
        raise ValueError(f"{key}: cannot use the path {path!r}: {error}") from None


def _at_least(key: str, value: float, least: float) -> None:
    if not least <= value < math.inf:
        raise ValueError(f"{key} must be a finite number of at least {least}, got {value}")


@dataclass
class Model:
    name: str = "transformer_xl"
    size: str = "base"
    image_size: Any = 224  # an int for a square, or [height, width]
    patch_size: int = 16
    options: dict[str, Any] = field(default_factory=dict)  # the backbone's own: dropout, window, segment, ...

    def __post_init__(self) -> None:
        sides = self.image_size if isinstance(self.image_size, list | tuple) else [self.image_size]
        whole = all(type(side) is int and side > 0 for side in sides)
        if not whole or len(sides) > 2 or (isinstance(self.image_size, list | tuple) and len(sides) != 2):
            raise ValueError(
                f"model.image_size must be N or [height,width] in pixels, got {self.image_size!r}"
            )
        if len(set(sides)) == 1:
            self.image_size = sides[0]  # [8, 8] is 8, so that both are one run
        _at_least("model.patch_size", self.patch_size, 1)
        path = self.name.removeprefix("hf:")
        if path != self.name and ("/" in path or path.endswith(".json")) and Path(path).exists():
            self.name = f"hf:{_absolute('model.name', path)}"

    @property
    def label(self) -> str:
        """The name in a few words: of a configuration file, that of its directory or its own."""
        path = Path(self.name.removeprefix("hf:"))
        if not path.is_absolute():
            return self.name
        return f"hf:{path.parent.name if path.name == 'config.json' else path.stem}"

    @property
    def image_shape(self) -> tuple[int, int]:
        """(height, width) in pixels."""
        if isinstance(self.image_size, int):
            return self.image_size, self.image_size
        return self.image_size[0], self.image_size[1]


@dataclass
class Data:
    name: str = "digits"
    root: str | None = None  # the dataset's directory; of hf:, where downloads are kept
    augment: str = "flip"
    workers: int | None = None  # processes that decode; by default none for few images, else by the cores
    max_broken: int = 10  # unreadable images to replace before the run is stopped
    max_pixels: int | None = None  # of one image; larger ones count as broken. By default the dataset's limit
    train_images: int | None = None  # train on so many, the same whatever the seed; by default on all
    validation_images: int | None = None  # validate on so many, chosen in the same way
    held_out: int | None = None  # so many training images are validated on, not trained on, and no others
    train_list: str | None = None  # a file of paths relative to the root, instead of the training split
    validation_list: str | None = None
    crop_to_box: bool = False  # fmow: only what is inside the annotated box
    move: str = "none"  # digits, idx: `shift`, scaled and anywhere on the canvas; `rotate`, turned anyhow
    place: str = "fixed"  # clutter: where the digit is, or `anywhere`
    cell: int = 4  # clutter: pixels of a cell's side; a digit is 3x3 cells
    stream: bool = False  # hf: fetch into a temporary file instead of the library's cache

    def __post_init__(self) -> None:
        _choose("data.augment", self.augment, ("flip", "none"))
        _at_least("data.max_broken", self.max_broken, 0)
        for key in ("workers", "max_pixels", "train_images", "validation_images", "held_out"):
            if getattr(self, key) is not None:
                _at_least(f"data.{key}", getattr(self, key), 0 if key == "workers" else 1)
        _choose("data.move", self.move, ("none", "shift", "rotate"))
        _choose("data.place", self.place, ("fixed", "anywhere"))
        _at_least("data.cell", self.cell, 3)
        for key, kind in (
            ("crop_to_box", "fmow"),
            ("stream", "hf"),
            ("place", "clutter"),
            ("cell", "clutter"),
        ):
            if getattr(self, key) not in (False, "fixed", 4) and self.name.partition(":")[0] != kind:
                raise ValueError(f"data.{key} is for {kind}, not for data.name={self.name}")
        if self.move != "none" and self.name not in ("digits", "idx"):
            raise ValueError(f"data.move is for digits and idx, not for data.name={self.name}")
        for key in ("root", "train_list", "validation_list"):
            if (path := getattr(self, key)) is not None:
                setattr(self, key, _absolute(f"data.{key}", path))
        if self.name.startswith("hf:") and Path(path := self.name.removeprefix("hf:")).is_dir():
            self.name = f"hf:{_absolute('data.name', path)}"


@dataclass
class Train:
    """The paper's recipe, section 4: AdamW (0.9, 0.999), cosine decay after a linear warm-up."""

    epochs: int = 100
    batch_size: int = 640  # over all devices; the paper's for one GPU of 80 GB, its totals are in presets.py
    learning_rate: float = 1e-4
    weight_decay: float = 0.03
    warmup_epochs: float = 5.0
    hold_epochs: float = 0.0  # at the peak rate, between the warm-up and the cosine
    learning_rate_floor: float = 0.0  # part of the rate at which the cosine ends
    clip: float = 5.0  # largest norm of the model's gradient; the paper does not speak of clipping
    decay_all: bool = True  # as in the paper; false spares norms, biases, positions and the class token
    precision: str = "float32"
    accumulate: int = 1  # parts a batch is computed in, to save memory
    ema: float = 0.0  # decay of an average of the weights, used for evaluation; 0 for none
    compile: bool = False
    threads: int = 0  # of a process on the CPU; 0 for what torch chooses
    checkpoint_minutes: float = 10.0  # besides the end of every epoch
    checkpoint_steps: int = 0  # as well; 0 for by the clock alone
    keep: int = 2  # checkpoints
    timeout_minutes: float = 30.0  # that a process waits for the others
    seed: int = 0
    compare: Any = False  # also train row-major and the start, fixed (true), or the arms in a list of names
    track: str = "none"  # where to send the metrics besides metrics.jsonl

    def __post_init__(self) -> None:
        self.compare = bool(self.compare) if isinstance(self.compare, int) else self.compare
        named = isinstance(self.compare, list) and all(isinstance(arm, str) for arm in self.compare)
        if not (named and self.compare) and not isinstance(self.compare, bool):
            raise ValueError(
                f"train.compare: must be true, false or a list such as [row,noise], got {self.compare!r}"
            )
        _choose("train.track", self.track, ("none", "tensorboard", "wandb", "trackio"))
        _at_least("train.epochs", self.epochs, 1)
        _at_least("train.batch_size", self.batch_size, 1)
        _choose("train.precision", self.precision, ("float32", "bfloat16", "float16", "auto"))
        _at_least("train.accumulate", self.accumulate, 1)
        _at_least("train.threads", self.threads, 0)
        _at_least("train.keep", self.keep, 1)
        _at_least("train.checkpoint_steps", self.checkpoint_steps, 0)
        if not 0 <= self.ema < 1:
            raise ValueError(f"train.ema must be in [0, 1), got {self.ema}")
        if self.batch_size % self.accumulate:
            raise ValueError(
                f"train.batch_size={self.batch_size} is not divisible by train.accumulate={self.accumulate}"
            )
        _at_least("train.seed", self.seed, 0)
        if self.seed >= 2**63:
            raise ValueError(f"train.seed must be below 2**63, got {self.seed}")
        for key in ("learning_rate", "weight_decay", "warmup_epochs", "hold_epochs", "checkpoint_minutes"):
            _at_least(f"train.{key}", getattr(self, key), 0)
        if not 0 <= self.learning_rate_floor <= 1:
            raise ValueError(f"train.learning_rate_floor must be in [0, 1], got {self.learning_rate_floor}")
        if not 0 < self.timeout_minutes <= 43_200:
            raise ValueError(
                f"train.timeout_minutes must be above 0 and at most 43200, got {self.timeout_minutes}"
            )
        if not self.clip > 0:
            raise ValueError(f"train.clip must be above 0, got {self.clip}")


class Curriculum(NamedTuple):
    """When a policy learns, in parts of a run, and what is read before."""

    warmup_fraction: float
    policy_fraction: float
    warmup_order: str


PAPERS = Curriculum(0.15, 0.30, "row")  # N = 15 and M = 30 of 100 epochs
OURS = Curriculum(0.05, 0.25, "random")
ESTIMATORS = {
    "paper": PAPERS,
    "exact": PAPERS,
    "scaled": PAPERS,
    "paired": OURS,
    "straight-through": OURS,
}


def curriculum_of(estimator: str) -> Curriculum:
    """The curriculum of an estimator, where nothing else is asked for."""
    return ESTIMATORS[estimator]


LEARNED = ("global", "blocks", "image")
POLICIES = ("none", *LEARNED, "noise", "random")


@dataclass
class Order:
    """The order that is read, or from which the policy starts, and how the policy learns."""

    scan: str = "row"  # a scan, `random` for one random order, `prior`, or the path of an order file
    tokenizer: str = "kmeans"  # of `prior`: what turns patches into codes
    weights: str | None = None  # of the tokenizer chameleon: a directory, or a name on the hub
    # `global`: one order for all images is learned; `blocks`: one of blocks, times one of the patches in
    # every block; `image`: one for each image; `noise`: the noise of `global`, but nothing is learned;
    # `random`: another random order for every batch
    policy: str = "none"
    block: int = 8  # of `blocks`: patches of a side
    estimator: str = "straight-through"  # paper, exact, scaled, paired
    temperature: float = 0.2  # the peak: midway through the policy stage in the paper, at its start in ours
    orders_per_image: int = 4  # of `paired`: how many orders are compared on an image
    # By default those of the estimator: the paper's, or ours
    learning_rate: float | None = None
    warmup_fraction: float | None = None
    policy_fraction: float | None = None
    warmup_order: str | None = None
    # Where REINFORCE's running baseline starts: at the first reward, or at zero, as in the authors' release
    baseline_start: str = "first"
    # The authors' release, where it differs from the paper (docs/paper.md):
    inverse_logits: bool = False  # the policy starts at the inverse of the scan
    temperature_advances: str = "step"  # or `epoch`: by an entry of its table of steps once an epoch
    clip: float | None = None  # largest norm of the policy's gradient

    def __post_init__(self) -> None:
        if self.scan.endswith(".json"):
            self.scan = _absolute("order.scan", self.scan)
        _choose("order.tokenizer", self.tokenizer, TOKENIZERS)
        if self.weights is not None and Path(self.weights).is_dir():
            self.weights = _absolute("order.weights", self.weights)
        _choose("order.policy", self.policy, POLICIES)
        _choose("order.estimator", self.estimator, tuple(ESTIMATORS))
        if self.policy == "image" and ESTIMATORS[self.estimator] is PAPERS:
            raise ValueError(
                f"order.estimator={self.estimator} gives all images one order: with order.policy=image "
                "choose straight-through or paired"
            )
        if self.warmup_order is not None:
            _choose("order.warmup_order", self.warmup_order, ("row", "init", "random"))
        _choose("order.baseline_start", self.baseline_start, ("first", "zero"))
        _choose("order.temperature_advances", self.temperature_advances, ("step", "epoch"))
        if self.temperature_advances == "epoch" and self.estimator != "paper":
            raise ValueError(
                f"order.temperature_advances=epoch is for order.estimator=paper, not for {self.estimator}"
            )
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"order.clip must be above 0, got {self.clip}")
        for key in ("temperature", "learning_rate", "warmup_fraction", "policy_fraction"):
            if getattr(self, key) is not None:
                _at_least(f"order.{key}", getattr(self, key), 0)
        _at_least("order.orders_per_image", self.orders_per_image, 2)
        _at_least("order.block", self.block, 1)
        warmup, policy, *_ = self.curriculum
        if warmup + policy > 1:
            raise ValueError(
                "order.warmup_fraction and order.policy_fraction add up to more than the run: "
                f"{warmup} + {policy} > 1"
            )

    @property
    def curriculum(self) -> Curriculum:
        """The stages of the run: the estimator's, but for what is given."""
        usual = curriculum_of(self.estimator)
        given = {key: getattr(self, key) for key in Curriculum._fields}
        return usual._replace(**{key: value for key, value in given.items() if value is not None})


# Keys that say how and where a run is computed, not what: runs that differ in nothing else are the same.
NEUTRAL = (
    "data.workers",
    "data.max_broken",
    "train.threads",
    "train.checkpoint_minutes",
    "train.checkpoint_steps",
    "train.keep",
    "train.timeout_minutes",
    "train.compare",
    "train.track",
)


# Keys that may change when a run is continued.
RESUME_MAY_CHANGE = (
    "train.epochs",
    "train.threads",
    "train.keep",
    "train.checkpoint_minutes",
    "train.checkpoint_steps",
    "train.timeout_minutes",
    "train.learning_rate",
    "train.clip",
    "train.precision",
    "train.track",
    "data.root",
    "data.workers",
    "data.max_broken",
)


@dataclass
class Experiment:
    model: Model = field(default_factory=Model)
    data: Data = field(default_factory=Data)
    train: Train = field(default_factory=Train)
    order: Order = field(default_factory=Order)


# What each policy reads of order.*; `blocks` reads all.
_READ_BY_NOISE = {
    *("policy", "scan", "estimator", "temperature", "temperature_advances", "inverse_logits"),
    *Curriculum._fields,
}
_ALIKE_IN_NOISE = {"paper": "scaled", "exact": "scaled", "paired": "straight-through"}
_READ_BY = {"none": {"policy", "scan"}, "random": {"policy", "scan"}, "noise": _READ_BY_NOISE}
_READ_BY["global"] = _READ_BY["image"] = {key.name for key in dataclasses.fields(Order)} - {"block"}
_READ_BY_PRIOR = {"tokenizer", "weights"}


def reading_of(policy: str, start: str, estimator: str = "") -> str:
    """What a run reads in, from its policy, the name of its scan or order, and its estimator."""
    names = {
        "none": f"{start}, fixed",
        "global": f"{'Algorithm 1' if estimator == 'paper' else 'learned'} from {start}",
        "blocks": f"{'Algorithm 1' if estimator == 'paper' else 'learned'} in blocks from {start}",
        "image": f"each image's own, learned from {start}",
        "noise": f"{start}, equal noise",
        "random": "random every batch",
    }
    return names[policy]


def images_of(data: Data) -> str:
    """The name of the images: of a reader that serves many datasets, that of their directory."""
    if data.name == "idx":
        return Path(data.root or FASHION_MNIST).name
    return Path(data.root).name if data.name == "image_folder" and data.root else data.name


def defaults() -> dict[str, Any]:
    """Every key with the value that it has unless another is given."""
    return {
        f"{section}.{key}": value
        for section, values in dataclasses.asdict(Experiment()).items()
        for key, value in values.items()
    }


def keys_that_matter(experiment: Experiment) -> dict[str, Any]:
    """The keys that decide what a run computes, with their values.

    Of the data's root the name counts, where it tells the data: they may lie elsewhere on another machine.
    """
    found = {
        f"{section}.{key}": value
        for section, values in dataclasses.asdict(experiment).items()
        for key, value in values.items()
        if f"{section}.{key}" not in NEUTRAL
    }
    order = experiment.order
    found |= {f"order.{key}": value for key, value in order.curriculum._asdict().items()}
    if order.policy == "noise":
        found["order.estimator"] = _ALIKE_IN_NOISE.get(order.estimator, order.estimator)
    read = _READ_BY.get(order.policy, set(dataclasses.asdict(order)))
    read = read | _READ_BY_PRIOR if order.scan == "prior" else read - _READ_BY_PRIOR
    images = images_of(experiment.data)
    found["data.root"] = None if images in (experiment.data.name, FASHION_MNIST.name) else images
    return {
        key: value
        for key, value in found.items()
        if not key.startswith("order.") or key.removeprefix("order.") in read
    }


def notes(experiment: Experiment) -> list[str]:
    """What is accepted, but does not do what it looks like: a line for each."""
    train, options, found = experiment.train, experiment.model.options, []
    if train.warmup_epochs >= train.epochs:
        share = min(1.0, train.epochs / train.warmup_epochs)
        found.append(
            f"train.warmup_epochs={train.warmup_epochs:g} does not end before train.epochs={train.epochs}: "
            f"the learning rate only rises, to {share:.0%} of train.learning_rate"
        )
    elif train.hold_epochs and train.warmup_epochs + train.hold_epochs >= train.epochs:
        found.append(
            f"train.hold_epochs={train.hold_epochs:g} does not end before train.epochs={train.epochs}: "
            "the learning rate never falls"
        )
    if experiment.model.name == "transformer_xl" and "memory" in options and options.get("segment") is None:
        found.append(
            f"model.options.memory={options['memory']} has no effect without model.options.segment: "
            "all patches are read at once"
        )
    if experiment.data.held_out is not None and experiment.data.validation_images is not None:
        found.append(
            f"data.validation_images={experiment.data.validation_images} has no effect with data.held_out: "
            "the validation split is not looked at"
        )
    return found + _readout_notes(experiment.model, experiment.order)


def _readout_notes(model: Model, order: Order) -> list[str]:
    options, found = model.options, []
    readout, causal = options.get("readout"), model.name == "transformer_xl" or options.get("scans") == 1
    if model.name == "vit" and readout in ("middle", "last"):
        found.append(f"model.options.readout={readout} is the same as first: a ViT is indifferent to slots")
    if readout == "middle" and causal:
        found.append("model.options.readout=middle answers after half of the patches: nothing reads the rest")
    learns_from_tokens = order.policy in LEARNED and order.estimator == "straight-through"
    stops = options.get("segment") is not None and not options.get("memory_gradient", False)
    if readout in ("middle", "last") and stops and learns_from_tokens:
        found.append(
            "order.estimator=straight-through learns from the class token's segment alone: "
            "its memory passes no gradient on without model.options.memory_gradient=true"
        )
    return found


def check_continuation(overrides: list[str]) -> None:
    """Refuse changes that a run, once it is begun, cannot take."""
    for override in overrides:
        if (key := override.split("=")[0]) not in RESUME_MAY_CHANGE:
            raise ValueError(f"--resume cannot change {key!r}; it may change {', '.join(RESUME_MAY_CHANGE)}")


def difference(experiment: Experiment, other: Experiment) -> str:
    """The first key in which two experiments differ, but for NEUTRAL ones, with both values, or nothing."""
    for section in dataclasses.fields(Experiment):
        ours, theirs = getattr(experiment, section.name), getattr(other, section.name)
        for key in dataclasses.fields(ours):
            pair, full = (getattr(ours, key.name), getattr(theirs, key.name)), f"{section.name}.{key.name}"
            if pair[0] != pair[1] and full not in NEUTRAL:
                return f"{full} is {pair[0]}, not {pair[1]}"
    return ""


def build(base: Experiment, file: Path | None = None, overrides: list[str] | None = None) -> Experiment:
    """An experiment from another one, changed by a YAML file and then by `key=value` overrides.

    Nothing is filled in from elsewhere: `${...}`, which OmegaConf would replace, is refused wherever it is.
    """
    _check(dataclasses.asdict(base))
    config = OmegaConf.structured(base)
    if file is not None:
        config = _merge(config, _load_yaml(file), str(file))
    for override in overrides or []:
        key, equals, value = override.partition("=")
        if not equals or not key:
            raise ValueError(f"not a preset, a YAML file or a key=value override: {override!r}")
        try:
            change = yaml.load(value, _Loader)
        except (yaml.YAMLError, ValueError, RecursionError):
            raise ValueError(f"{key}: cannot read the value {value!r}") from None
        for name in reversed(key.split(".")):
            change = {name: change}
        _check(change)
        config = _merge(config, change, override)
    return _to_experiment(config)


class _Loader(yaml.SafeLoader):
    """YAML without aliases and repeated keys, in which `1:30:00`, `010` and dates are the text they are.

    YAML 1.1 makes 5,400 of the first and 8 of the second, and takes `1e-4` for text.
    """

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise yaml.composer.ComposerError(
                None, None, f"the alias *{event.anchor}; write the value itself", event.start_mark
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if twice := [key for key in keys if keys.count(key) > 1]:
            raise yaml.constructor.ConstructorError(
                None, None, f"{twice[0]!r} is given twice", node.start_mark
            )
        return super().construct_mapping(node, deep)


_YAML_TAG = "tag:yaml.org,2002:"
_Loader.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in found if tag.removeprefix(_YAML_TAG) in ("bool", "null")]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _kind, _form in (
    ("int", r"[-+]?(0|[1-9][0-9_]*|0x[0-9a-fA-F]+)"),
    ("float", r"[-+]?([0-9][0-9_]*(\.[0-9_]*)?|\.[0-9][0-9_]*)([eE][-+]?[0-9]+)|[-+]?\.(inf|Inf|INF)"),
    ("float", r"[-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)|\.(nan|NaN|NAN)"),
):
    _Loader.add_implicit_resolver(f"{_YAML_TAG}{_kind}", re.compile(f"^({_form})$"), list("-+.0123456789"))

_SWITCHES = {key for key, value in defaults().items() if isinstance(value, bool)}
DEEPEST = 6  # levels of nested values; model.options.KEY has three
LONGEST = 4096  # characters of a value; no path is longer
LARGEST_FILE = 1_000_000  # bytes; a complete configuration has about 1,500


def _load_yaml(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as opened:
            content = opened.read(LARGEST_FILE + 1)
    except OSError as error:
        raise ValueError(f"cannot read {file}: {error.strerror}") from None
    if len(content) > LARGEST_FILE:
        raise ValueError(f"{file} is not a YAML configuration: it has more than {LARGEST_FILE:,} bytes")
    try:
        found = yaml.load(content, _Loader)
    except yaml.MarkedYAMLError as error:
        where = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ValueError(f"{file} is not a YAML configuration: {error.problem}{where}") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise ValueError(f"{file} is not a YAML configuration") from None
    if not isinstance(found or {}, dict):
        raise ValueError(f"{file} is not a YAML configuration: it has no keys")
    try:
        _check(found or {})
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    return found or {}


def _check(value: Any, key: str = "", depth: int = 0) -> None:
    """Refuse values that no key takes, before OmegaConf meets them."""
    if isinstance(value, dict | list | tuple):
        if depth > DEEPEST:
            raise ValueError(f"{key[:60]}: more than {DEEPEST} levels of nested values")
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            if name == "":
                raise ValueError(_unknown_key(f"{key}."))
            if isinstance(value, dict) and not isinstance(name, str):
                raise ValueError(f"{key or 'the configuration'}: {name!r} is not the name of a key")
            _check(inner, f"{key}.{name}" if key else str(name), depth + 1)
    elif isinstance(value, str) and len(value) > LONGEST:
        raise ValueError(f"{key}: a text of {len(value)} characters; no value has more than {LONGEST}")
    elif isinstance(value, str) and any("\ud800" <= sign <= "\udfff" for sign in value):
        raise ValueError(f"{key}: {value!r} has half a character, which no file can hold")
    elif value == "???":  # which OmegaConf would take for a value that comes later
        raise ValueError(f"{key}: no value given")
    elif key in _SWITCHES and isinstance(value, int) and value not in (0, 1):
        raise ValueError(f"{key} is true or false, got {value}")
    elif isinstance(value, str) and "${" in value:
        raise ValueError(f"{key}: {value!r} has a ${{...}}, which is not filled in; write the value itself")
    elif isinstance(value, int) and abs(value) >= 2**63:
        raise ValueError(f"{key} must be below 2**63, got a number of {len(str(abs(value)))} digits")
    elif value is not None and not isinstance(value, bool | int | float | str):
        raise ValueError(f"{key}: cannot read the value {value!r}")


def to_yaml(experiment: Experiment) -> str:
    return OmegaConf.to_yaml(OmegaConf.structured(experiment))


def _merge(config: Any, change: Any, source: str) -> Any:
    try:
        return OmegaConf.merge(config, change)
    except (ConfigKeyError, ConfigAttributeError) as error:
        raise ValueError(_unknown_key(error.full_key or source)) from None
    except (OmegaConfBaseException, TypeError, ValueError, OverflowError) as error:
        key = getattr(error, "full_key", None) or source
        raise ValueError(f"{key}: {_first_line(error)}") from None


def _to_experiment(config: Any) -> Experiment:
    try:
        experiment = OmegaConf.to_object(config)
    except OmegaConfBaseException as error:
        raise ValueError(_first_line(error.__cause__ or error)) from None
    except (OSError, RuntimeError, ValueError) as error:  # of paths: too long, a loop, an unknown ~user
        raise ValueError(_first_line(error)) from None
    assert isinstance(experiment, Experiment)
    _check(dataclasses.asdict(experiment))  # a path may have become one with ${
    return experiment


def _unknown_key(key: str) -> str:
    group = str(key).split(".")[0]
    sections = {f.name: f.default_factory for f in dataclasses.fields(Experiment)}
    if group in sections and str(key) != group:
        choices = [f"{group}.{f.name}" for f in dataclasses.fields(sections[group])]  # type: ignore[arg-type]
    else:
        choices = [f"{section}.*" for section in sections]
    return f"unknown key {str(key)!r}; choose from {', '.join(choices)}"


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0]
