"""The benchmarks run, and their tables can be read on a narrow terminal."""

import io

import pytest
from rich.console import Console

from reorder.cli.bench import BENCHMARKS, load_benchmark

pytestmark = pytest.mark.slow  # it trains, or starts processes


NAMES = [path.stem for path in sorted(BENCHMARKS.glob("*.py"))]


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_runs_and_its_table_can_be_read_at_80_columns(name):
    table = load_benchmark(name).table(tiny=True)
    screen = io.StringIO()
    Console(file=screen, width=80).print(table)
    shown = screen.getvalue()
    print(shown)
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown  # nothing is cut off
    whole = io.StringIO()
    Console(file=whole, width=500).print(table)
    # Words are broken between lines only: numbers and names can be found in a column of 80.
    words = {word for word in whole.getvalue().split() if word.strip("┃│┏┓┡┩└┘━─┴┬╇┳")}
    assert [word for word in words if word not in shown.split()] == []
