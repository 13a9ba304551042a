"""What `reorder prior` does: codes, measurements, then tables, prior.json and figures."""

from pathlib import Path
from typing import Any

from reorder.config import Experiment
from reorder.display import Display
from reorder.figures import save_figure
from reorder.files import check_writable, replace_file
from reorder.patches import grid_of
from reorder.prior.choice import default_cache
from reorder.prior.codes import encode_dataset
from reorder.prior.figures import match_run, points_of, prior_figure, scatter_figure
from reorder.prior.ranking import (
    check,
    describe_choice,
    describe_codes,
    markdown_tables,
    measure,
    named_orders,
    terminal_tables,
)
from reorder.run_dir import RunDir


def write_prior(
    experiment: Experiment,
    options: dict[str, Any],
    scope: str,
    order_files: list[Path],
    runs: list[RunDir],
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
    check(grid, options["images"] or 2, scope)
    named = named_orders(grid, order_files)
    matched = [match_run(run, experiment.data, grid, named) for run in runs]
    display = Display()
    codes = encode_dataset(experiment, **options, cache=cache or default_cache(), display=display)
    prior = measure(codes, named, scope, display)
    prior["data"] = {"name": experiment.data.name, "root": experiment.data.root}
    if runs:
        prior["runs"] = points_of(prior, matched)
    out.mkdir(parents=True, exist_ok=True)
    RunDir(out).write_prior(prior)
    replace_file(out / "table.md", markdown_tables(prior))
    save_figure(prior_figure(prior), out / "prior.png")
    if runs:
        save_figure(scatter_figure(prior["runs"]), out / "scatter.png")
    each = "each image" if scope == "image" else "streams of many images"
    display.say(f"reduction of {each}, compression ratio, and bits per code:")
    for table in terminal_tables(prior):
        display.console.print(table)
    for line in [describe_codes(prior), *prior["notes"], describe_choice(prior), f"saved: {out}"]:
        display.say(line)
    return prior
