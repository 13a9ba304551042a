"""The programs that people copy from run, and learn something."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
CHANCE = 0.1  # ten digits

pytestmark = pytest.mark.slow  # it trains


NEEDS = {"hf_trainer": "transformers", "lightning_loop": "lightning"}
STEPS = {"digits": 60, "own_loop": 150, "attach": 150, "larger_grid": 250}
STEPS |= {"hf_trainer": 100, "lightning_loop": 150}


@pytest.mark.parametrize(("name", "steps"), STEPS.items())
def test_an_example_trains_a_model_that_is_better_than_chance(name, steps, capsys):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    top1 = runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"](steps, seed=0)
    assert top1 > 2 * CHANCE
    assert "read in [" in capsys.readouterr().out


def test_every_example_is_tried():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(STEPS)
