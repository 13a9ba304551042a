"""Find the order in which a sequence model should read an image's patches, and train the model with it.

What is imported from here is loaded when it is first used, so that `reorder --help` need not wait for torch.
"""

import sys
from importlib import import_module
from importlib.metadata import version
from types import ModuleType
from typing import Any

__version__ = version("reorder")

PUBLIC = {  # where each public name lives
    "SCANS": "reorder.orders.scans",
    "scan": "reorder.orders.scans",
    "Classifier": "reorder.models.classifier",
    "create_model": "reorder.models.classifier",
    "load_weights": "reorder.models.published",
    "PlackettLuce": "reorder.orders.policy",
    "OrderLearner": "reorder.orders.learner",
    "read": "reorder.orders.read",
    "attach": "reorder.models.attach",
    "load_order": "reorder.orders.files",
    "save_order": "reorder.orders.files",
    "resample": "reorder.orders.resample",
    "load": "reorder.runs.loading",
    "TrainedModel": "reorder.runs.loading",
    "bootstrap_sem": "reorder.runs.statistics",
}
__all__ = sorted(PUBLIC)

FORMER = {  # modules by the names they had, and where each of their names lives now
    "order": {
        "load": "reorder.orders.files:load_order",
        "save": "reorder.orders.files:save_order",
        "OrderFile": "reorder.orders.files:OrderFile",
        "kendall_tau": "reorder.orders.distances:kendall_tau",
        "invert": "reorder.orders.order:invert",
        "validate": "reorder.orders.order:validate",
        "read_in_order": "reorder.orders.read:read_in_order",
    },
    "scans": {"SCANS": "reorder.orders.scans:SCANS", "scan": "reorder.orders.scans:scan"},
    "policy": {"PlackettLuce": "reorder.orders.policy:PlackettLuce"},
    "learner": {
        "OrderLearner": "reorder.orders.learner:OrderLearner",
        "FixedOrder": "reorder.orders.learner:FixedOrder",
        "RandomOrder": "reorder.orders.learner:RandomOrder",
    },
    "classifier": {"create_model": "reorder.models.classifier:create_model"},
}


class _Former(ModuleType):
    """A module under its former name."""

    def __getattr__(self, name: str) -> Any:
        places = FORMER[self.__name__.removeprefix("reorder.")]
        if name not in places:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        module, _, attribute = places[name].partition(":")
        return getattr(import_module(module), attribute)


for _name in FORMER:
    sys.modules[f"reorder.{_name}"] = _Former(f"reorder.{_name}")


def __getattr__(name: str) -> Any:
    if name in PUBLIC:
        return getattr(import_module(PUBLIC[name]), name)
    if name in FORMER:
        return sys.modules[f"reorder.{name}"]
    raise AttributeError(f"module 'reorder' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *PUBLIC]
