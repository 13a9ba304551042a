"""search.json: what a search has tried and found, written whole after every rung."""

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reorder.orders.disk import replace_file
from reorder.runs.schemas import read

SEARCH = "search.json"


@dataclass
class PlannedRung:
    source: str  # where its candidates come from
    candidates: int  # trained in it; of the best, beside row-major
    epochs: int  # that each of them has been trained for at its end
    cost: int  # epochs of training


@dataclass
class Candidate:
    name: str
    made: str  # what it is, or of what it was made
    order: list[int]


@dataclass
class Score:
    """A candidate at the end of a rung; differences are in points, to row-major on the same images."""

    name: str
    top1: float
    top1_sem: float
    loss: float
    difference: float
    difference_sem: float


@dataclass
class Rung:
    source: str
    epochs: int
    images: int  # that were held out
    scores: list[Score]


@dataclass
class Arm:
    """What was trained in full at the end, with every seed; the difference is to row-major trained alike."""

    name: str
    order: str  # a scan, the name of a candidate, or how each image has its own
    epochs: int
    runs: list[str]  # their directories, in that of the search
    top1: float
    top1_sem: float
    difference: float
    difference_sem: float


@dataclass
class Search:
    settings: dict[str, Any]  # what was asked for; another search has others
    grid: tuple[int, int]
    plan: list[PlannedRung]
    candidates: list[Candidate]
    rungs: list[Rung] = field(default_factory=list)  # that are over
    chosen: str | None = None  # the candidate that was found
    arms: list[Arm] = field(default_factory=list)
    verdict: str | None = None
    seconds: float = 0.0  # that the search took so far

    def order_of(self, name: str) -> list[int]:
        return next(candidate.order for candidate in self.candidates if candidate.name == name)

    def standing(self) -> list[Score]:
        """The candidates that have been trained longest, the best first.

        A candidate counts once; at equal top-1 the lower loss decides.
        """
        scores = [
            score for rung in self.rungs if rung.epochs == self.rungs[-1].epochs for score in rung.scores
        ]
        return sorted(scores, key=rank)

    def furthest(self, names: list[str]) -> str | None:
        """Which of several candidates got furthest, and was best there; None if none was tried."""
        for rung in reversed(self.rungs):
            if found := [score for score in rung.scores if score.name in names]:
                return min(found, key=rank).name
        return None


def rank(score: Score) -> tuple[float, float]:
    """What scores are sorted by; a loss that is not a number is the worst."""
    return -score.top1, score.loss if score.loss == score.loss else float("inf")


def write_search(directory: Path, search: Search) -> None:
    """Write search.json, whole or not at all."""
    replace_file(directory / SEARCH, json.dumps(dataclasses.asdict(search), indent=1) + "\n")


def read_search(directory: Path) -> Search | None:
    """The search in a directory, None if there is none."""
    path = directory / SEARCH
    if not path.exists():
        return None
    content = read(path)
    return Search(
        settings=content["settings"],
        grid=(content["grid"][0], content["grid"][1]),
        plan=[_made(PlannedRung, rung) for rung in content["plan"]],
        candidates=[_made(Candidate, candidate) for candidate in content["candidates"]],
        rungs=[
            _made(Rung, rung | {"scores": [_made(Score, score) for score in rung["scores"]]})
            for rung in content["rungs"]
        ],
        chosen=content["chosen"],
        arms=[_made(Arm, arm) for arm in content["arms"]],
        verdict=content["verdict"],
        seconds=content["seconds"],
    )


def _made(kind: type, content: dict[str, Any]) -> Any:
    return kind(**{field.name: content[field.name] for field in dataclasses.fields(kind)})
