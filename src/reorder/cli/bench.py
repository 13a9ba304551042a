"""`reorder bench`."""

import importlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from reorder.data.progress import Display

APART = (
    "compiled",
    "gpu",
    "images",
    "learners",
    "long",
    "own_loop",
    "proxy",
)  # need a GPU, or take long
BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="backbones, codes, compiled, data, gpu, hours, images, learners, long, memory, own_loop, "
            "policy, power, prior, proxy; default: all that take minutes."
        ),
    ] = None,
) -> None:
    """Measure parts of the program against a peer, or what the paper's runs cost; needs a source checkout.

    Example: `reorder bench policy`
    """
    found = [path.stem for path in sorted(BENCHMARKS.glob("*.py"))]
    if not found:
        raise ValueError("the timings are part of the source checkout; clone it and run `make bench` there")
    for name in names or [name for name in found if name not in APART]:
        if name not in found:
            raise ValueError(f"unknown benchmark {name!r}; choose from {', '.join(found)}")
        Display().console.print(load_benchmark(name).table())


def load_benchmark(name: str) -> Any:
    """A module of benchmarks, which are no part of the package; some import others."""
    root = str(BENCHMARKS.parent)
    if root not in sys.path:
        sys.path.append(root)
    return importlib.import_module(f"benchmarks.{name}")
