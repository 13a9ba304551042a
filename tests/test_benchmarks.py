"""The benchmarks run, and their tables can be read on a narrow terminal."""

import io
import math
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rich.console import Console
from scipy import stats

from reorder.cli.bench import BENCHMARKS, load_benchmark

pytestmark = pytest.mark.slow  # it trains, or starts processes


NAMES = [path.stem for path in sorted(BENCHMARKS.glob("*.py"))]


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_runs_and_its_table_can_be_read_at_80_columns(name):
    if name == "gpu":
        pytest.importorskip("triton", reason="triton is not installed: `make test` installs it where it can")
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


def test_every_benchmark_is_found_from_wherever_the_command_is_given(tmp_path):
    script = "import sys; from reorder.cli.bench import load_benchmark; [*map(load_benchmark, sys.argv[1:])]"
    command = [sys.executable, "-c", script, *NAMES]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_its_timings_are_refused():
    with pytest.raises(ValueError, match=r"^the timings of GPU kernels need a GPU, and torch sees none$"):
        load_benchmark("gpu").table()


def test_a_linear_model_keeps_what_its_backward_pass_needs():
    memory = load_benchmark("memory")

    class Reader(torch.nn.Module):
        """What `saved_bytes` asks of a model: a grid, and patches of 2x2 pixels."""

        def __init__(self):
            super().__init__()
            self.grid = (2, 2)
            self.tokens = SimpleNamespace(patch_embed=SimpleNamespace(patch_size=2))
            self.first, self.second = torch.nn.Linear(48, 10), torch.nn.Linear(10, 7)

        def forward(self, images, order):
            return self.second(self.first(images.flatten(1)).relu())

    # Of an image, float32: 48 values that the first layer multiplies, and 10 that are both the result of the
    # ReLU, which its gradient needs, and the input of the second layer: one storage.
    assert memory.kept_of(Reader(), "float32") == (0, 4 * (48 + 10))


@pytest.mark.parametrize(
    ("share", "memory_gb", "parts"), [(640, 80, 2), (640, 40, 4), (320, 40, 2), (640, 200, 1)]
)
def test_the_parts_of_a_batch_are_the_fewest_that_fit(share, memory_gb, parts):
    # 2 GB of weights and 0.5 GB stay, an image takes 0.15 GB: 640 take 98.5 GB, and 90% may be filled.
    memory = load_benchmark("memory")
    assert memory.parts_that_fit(100_000_000, memory.Kept(0.5e9, 0.15e9), share, memory_gb * 1e9) == parts


def test_power_is_how_often_simulated_comparisons_see_the_difference():
    power = load_benchmark("power")
    random = np.random.default_rng(0)
    seeds, images, discordant, effect, of_training, repeats = 4, 2000, 0.2, 0.03, 0.01, 4000
    # Each run's expected accuracy varies; on the images one run alone is right on a share of them.
    shift = effect + random.normal(0, of_training, (2, repeats, seeds))[0] * math.sqrt(2)
    right = random.binomial(images, (discordant + shift) / 2)
    wrong = random.binomial(images - right, (discordant - shift) / 2 / (1 - (discordant + shift) / 2))
    found = stats.ttest_1samp((right - wrong) / images, 0, axis=1)
    seen = ((found.pvalue < 0.05) & (found.statistic > 0)).mean()
    expected = power.power(seeds, power.deviation(of_training, effect, images, discordant), effect)
    assert 0.3 < expected < 0.9
    assert seen == pytest.approx(expected, abs=4 * math.sqrt(0.25 / repeats))


def test_one_pair_of_runs_gives_false_alarms_as_often_as_simulated():
    power = load_benchmark("power")
    random = np.random.default_rng(1)
    over_images = math.sqrt(0.2 / 50_000)
    apart = random.normal(0, 0.002, (2, 100_000)).sum(0) + random.normal(0, over_images, 100_000)
    alarms = (abs(apart) > 1.96 * over_images).mean()
    assert power.false_alarms(0.002, 50_000, 0.2) == pytest.approx(alarms, abs=0.006)
    assert power.false_alarms(0.0, 50_000, 0.2) == pytest.approx(0.05, abs=1e-4)


def test_the_papers_hours_add_up_to_its_total():
    """9,336 GPU hours: so its 96 main runs are all that it counts."""
    hours = load_benchmark("hours")
    total = sum(
        hours.RUNS * hours.cost(model, data, 0.0).paper for data in hours.HOURS for model in hours.HOURS[data]
    )
    assert total == 9336
    # 100 epochs of 1,281,167 images, and a third of the time for 50,000 more: at 1 ms each 36.05 hours.
    assert hours.cost("vit", "imagenet", 0.001).ours == pytest.approx(36.05, abs=0.01)
