"""What `reorder prior` does: codes, measurements, then tables, prior.json and figures."""

from pathlib import Path
from typing import Any

from reorder.config import Experiment
from reorder.data.progress import Display
from reorder.models.grid import grid_of
from reorder.orders.disk import check_writable, replace_file
from reorder.prior.cache import default_cache
from reorder.prior.codes import encode_dataset
from reorder.prior.options import check_measurable
from reorder.prior.ranking import (
    describe_choice,
    describe_codes,
    measure,
    named_orders,
)
from reorder.report.figures import save_figure
from reorder.report.prior_figures import prior_figure
from reorder.report.prior_tables import markdown_tables, terminal_tables
from reorder.runs.directory import RunDir


def write_prior(
    experiment: Experiment,
    options: dict[str, Any],
    scope: str,
    order_files: list[Path],
    out: Path,
    cache: Path | None,
) -> dict[str, Any]:
    """Measure the prior of an experiment's training images, show it, and write it with its figures.

    `options` are those of `encode_dataset`.
    """
    if (out / "config.yaml").exists():
        raise ValueError(f"{out} is a run directory, which has a prior of its own; choose another --out")
    check_writable(out)
    grid = grid_of(experiment.model.image_shape, experiment.model.patch_size)
    check_measurable(grid, options["images"] or 2, scope)
    named = named_orders(grid, order_files)
    display = Display()
    codes = encode_dataset(experiment, **options, cache=cache or default_cache(), display=display)
    prior = measure(codes, named, scope, display)
    prior["data"] = {"name": experiment.data.name, "root": experiment.data.root}
    out.mkdir(parents=True, exist_ok=True)
    RunDir(out).write_prior(prior)
    replace_file(out / "table.md", markdown_tables(prior))
    save_figure(prior_figure(prior), out / "prior.png")
    each = "each image" if scope == "image" else "streams of many images"
    display.say(f"reduction of {each}, compression ratio, and bits per code:")
    for table in terminal_tables(prior):
        display.console.print(table)
    for line in [describe_codes(prior), *prior["notes"], describe_choice(prior), f"saved: {out}"]:
        display.say(line)
    return prior
