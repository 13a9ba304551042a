"""How many seeds a comparison needs to see a small difference: `reorder bench power` prints the table.

Two orders, S seeds each, paired by seed and by image. The difference of a pair of runs varies because two
trainings end differently (a deviation `of_training` for each run) and because the images are a sample: on a
share q of the n images one run alone is right, which adds q / n to its variance, less the difference squared.
The test is Student's over the S differences; its power is the noncentral t's. Images that are hard for one
seed's pair are hard for another's: the sample's part is then shared by all seeds, and this holds for these
images, not for others.
"""

import math

from rich.box import SIMPLE_HEAD
from rich.table import Table
from scipy import stats

EFFECT, IMAGES = 0.007, 50_000  # 0.7 points, what Transformer-XL gains on average in the paper
DISCORDANT = 0.2  # share of images that one of two runs alone has right; an assumption
COMPARISONS = 36  # three models, two datasets, six scans


def deviation(of_training: float, effect: float, images: int, discordant: float) -> float:
    """Of the difference between two runs of one seed."""
    return math.sqrt(2 * of_training**2 + (discordant - effect**2) / images)


def power(seeds: int, of_one: float, effect: float, level: float = 0.05) -> float:
    """How often Student's test of so many differences, each of deviation `of_one`, sees the effect's sign."""
    freedom, shift = seeds - 1, effect * math.sqrt(seeds) / of_one
    critical = stats.t.ppf(1 - level / 2, freedom)
    return float(stats.nct.sf(critical, freedom, shift))


def false_alarms(of_training: float, images: int, discordant: float) -> float:
    """How often one pair of runs without any difference is 1.96 errors over images apart."""
    over_images = math.sqrt(discordant / images)
    return float(2 * stats.norm.sf(1.96 * over_images / deviation(of_training, 0.0, images, discordant)))


def seeds_for(of_one: float, effect: float, level: float, wanted: float = 0.8) -> int:
    """The fewest seeds with so much power."""
    return next(seeds for seeds in range(2, 1000) if power(seeds, of_one, effect, level) >= wanted)


def table(tiny: bool = False) -> Table:
    """Power by seeds, seeds for 80% of it with one test and with all, and false alarms of a single pair."""
    counts = (2, 3, 5, 10)
    headings = (*(f"{count} seeds" for count in counts), "for 80%", "of 36 tests", "false alarms")
    table = Table("a run (±)", *headings, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for of_training in (0.001, 0.002, 0.004):
        of_one = deviation(of_training, EFFECT, IMAGES, DISCORDANT)
        table.add_row(
            f"{100 * of_training:.1f}",
            *(f"{power(count, of_one, EFFECT):.0%}" for count in counts),
            *(str(seeds_for(of_one, EFFECT, level)) for level in (0.05, 0.05 / COMPARISONS)),
            f"{false_alarms(of_training, IMAGES, DISCORDANT):.0%}",
        )
    return table
