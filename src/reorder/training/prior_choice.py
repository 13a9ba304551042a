"""The scan a training run starts from when its configuration says `order.scan=prior`."""

from typing import Any

from reorder.config import Experiment
from reorder.data.progress import Display
from reorder.data.ranks import from_first
from reorder.prior.cache import default_cache
from reorder.prior.codes import encode_dataset
from reorder.prior.ranking import describe_choice, measure, named_orders
from reorder.runs.directory import RunDir


def recorded_or_measured(experiment: Experiment, runs: list[RunDir], display: Display) -> dict[str, Any]:
    """The first prior that one of the runs recorded, or else that of the training images; on all ranks."""

    def make() -> dict[str, Any]:
        for run in runs:
            if (recorded := run.prior()) is not None:
                return recorded
        codes = encode_dataset(
            experiment,
            experiment.order.tokenizer,
            weights=experiment.order.weights,
            cache=default_cache(),
            display=display,
        )
        prior = measure(codes, named_orders(codes.grid, []), "image", display)
        display.say(describe_choice(prior))
        return prior

    return from_first(make)
