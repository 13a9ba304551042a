"""From what is typed to experiments: `[STUDY | PRESET | FILE.yaml] [key=value ...]`, the one parser of it."""

import dataclasses
import itertools
import re
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from reorder.config import Experiment, build
from reorder.experiments.presets import PRESETS, preset
from reorder.experiments.studies import STUDIES, Planned
from reorder.models.grid import grid_of
from reorder.models.sizes import size_of
from reorder.orders.scans import RELEASED, SCANS

# The names in the tables of models/ and data/, which are slow to import; a test compares them.
MODELS = ("vit", "transformer_xl", "longformer", "mamba")
DATASETS = ("digits", "clutter", "idx", "image_folder", "imagenet", "fmow")
# Parameters that submitit has for every kind of cluster; any other is Slurm's.
SHARED = ("name", "timeout_min", "mem_gb", "cpus_per_task", "gpus_per_node", "stderr_to_stdout")


def parse(arguments: list[str]) -> tuple[Experiment, str]:
    """The experiment that `[PRESET | FILE.yaml] [key=value ...]` means, and a name for it."""
    first, overrides = split_first(arguments)
    base, name = base_of(first)
    experiment = build(base, overrides=overrides)
    check_names(experiment)
    return experiment, name


def check_names(experiment: Experiment) -> None:
    """Refuse names that do not exist, and patches that do not fit, before anything slow is imported."""
    model, data, scan = experiment.model, experiment.data.name, experiment.order.scan
    if model.name not in MODELS and not (model.name.startswith("hf:") and model.name != "hf:"):
        choices = f"{', '.join(MODELS)}, hf:<model type, config.json or hub name>"
        raise ValueError(f"unknown model {model.name!r}; choose from {choices}")
    size_of(model.size)
    kind, colon, rest = data.partition(":")
    if data not in DATASETS and not (kind == "hf" and colon and rest):
        raise ValueError(f"unknown dataset {data!r}; choose from {', '.join(DATASETS)}, hf:<name or path>")
    grid_of(model.image_shape, model.patch_size)
    if scan.endswith(".json"):
        check_order_file(Path(scan))
    elif scan not in (known := [*SCANS, *RELEASED, "random", "prior"]):
        raise ValueError(f"unknown scan {scan!r}; choose from {', '.join(known)}, or an order file (*.json)")


def check_order_file(path: Path) -> None:
    """Refuse an order file that cannot be opened; what is in it is looked at later."""
    try:
        path.open("rb").close()
    except OSError as error:
        raise ValueError(f"cannot read order file {path}: {error.strerror}") from None


def split_first(arguments: list[str]) -> tuple[str, list[str]]:
    """What comes before the keys, `digits` by default, and the keys."""
    if not arguments or "=" in arguments[0]:
        return "digits", arguments
    return arguments[0], arguments[1:]


def base_of(first: str) -> tuple[Experiment, str]:
    """The experiment of a preset or YAML file, and its name."""
    if first.endswith((".yaml", ".yml")):
        return build(Experiment(), Path(first)), Path(first).stem
    return preset(first), first


def plans_of(arguments: list[str]) -> tuple[list[Planned], str]:
    """The runs that `[STUDY | PRESET | FILE.yaml] [key=v1,v2,... ...]` mean, and a name for them all."""
    first, grid = split_first(arguments)
    if first in STUDIES:
        plans, name = STUDIES[first](), first.partition("/")[0]  # studies of a kind share runs
    elif first in PRESETS or first.endswith((".yaml", ".yml")):
        base, name = base_of(first)
        plans, name = [Planned(base)], f"{name}-sweep"
    else:
        near = get_close_matches(first, [*STUDIES, *PRESETS]) or list(STUDIES)
        raise ValueError(
            f"unknown study or preset {first!r}; choose from {', '.join(near)} (`reorder sweep --list` and "
            "`reorder train --list` show all), or give a YAML file"
        )
    axes = [_axis(argument) for argument in grid]
    keys = [axis[0].partition("=")[0] for axis in axes]
    if twice := {key for key in keys if keys.count(key) > 1}:
        raise ValueError(f"{min(twice)} is given twice; separate its values by commas")
    if axes:
        points = [partial(build, overrides=list(point)) for point in itertools.product(*axes)]
        plans = [plan.changed(point) for point in points for plan in plans]
    if first in STUDIES and len({plan.experiment.data.name for plan in plans}) > 1:
        plans = [plan.changed(_own_root) for plan in plans]
    for plan in plans:
        check_names(plan.experiment)
    return plans, name


def _own_root(experiment: Experiment) -> Experiment:
    """In a study of several datasets, `data.root` is where they all are, each in a directory of its name."""
    data = experiment.data
    root = None if data.root is None else str(Path(data.root) / data.name)
    return dataclasses.replace(experiment, data=dataclasses.replace(data, root=root))


def _axis(argument: str) -> list[str]:
    """The overrides that `key=v1,v2,...` means."""
    key, equals, values = argument.partition("=")
    if not equals or not key:
        raise ValueError(f"not a key=value,... of a grid: {argument!r}")
    key, split = full_key(key), split_values(values)
    if "" in split:
        raise ValueError(f"{argument}: a value is missing")
    if key == "train.compare":
        raise ValueError("a sweep compares its runs itself; leave train.compare away")
    return [f"{key}={value}" for value in split]


def full_key(key: str) -> str:
    """The configuration key that a short one, such as `seed`, is the end of."""
    if "." in key:
        return key
    known = [
        f"{section.name}.{field.name}"
        for section in dataclasses.fields(Experiment)
        for field in dataclasses.fields(getattr(Experiment(), section.name))
    ]
    found = [full for full in known if full.split(".")[1] == key]
    if len(found) > 1:
        raise ValueError(f"{key!r} may be {' or '.join(found)}; say which")
    if not found:
        near = get_close_matches(key, [full.split(".")[1] for full in known]) or ["seed", "scan", "policy"]
        raise ValueError(
            f"unknown key {key!r}; choose from {', '.join(near)}, or a full one such as model.size"
        )
    return found[0]


def split_values(text: str) -> list[str]:
    """Values separated by commas, but not by those inside brackets or braces."""
    depth, values = 0, [""]
    for letter in text:
        depth += (letter in "[{") - (letter in "]}")
        if letter == "," and depth == 0:
            values.append("")
        else:
            values[-1] += letter
    return values


def slurm_parameter(option: str) -> tuple[str, Any]:
    """submitit's parameter that `key=value` means: `partition=gpu` is slurm_partition."""
    key, equals, value = option.partition("=")
    if not (key and equals and value):
        raise ValueError(f"--slurm-option takes key=value such as partition=gpu, not {option!r}")
    if key in ("time", "slurm_time"):
        raise ValueError(f"--slurm-option {option}: submitit counts minutes; use timeout_min=MINUTES")
    full = key if key in SHARED or key.startswith("slurm_") else f"slurm_{key}"
    # YAML would make 668 of the account 01234.
    plain = re.fullmatch(r"(0|[1-9]\d*)(\.\d+)?|true|false|[\[{].*", value)
    return full, yaml.safe_load(value) if plain else value
