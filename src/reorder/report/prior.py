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
from reorder.prior.ranking import measure, named_orders
from reorder.report.figures import save_figure
from reorder.report.prior_figures import prior_figure
from reorder.report.prior_tables import prior_tables
from reorder.report.tables import terminal_table, to_markdown
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
    tables = prior_tables(prior)
    replace_file(out / "table.md", "\n".join(map(to_markdown, tables)))
    save_figure(prior_figure(prior), out / "prior.png")
    each = "each image" if scope == "image" else "streams of many images"
    display.say(f"reduction of {each}, compression ratio, and bits per code:")
    for table in tables:
        display.console.print(terminal_table(table))
    for line in [*tables[-1].notes, f"saved: {out}"]:
        display.say(line)
    return prior
