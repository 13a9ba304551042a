"""Search for an order: candidates are trained apart for a short time, the best go on, and one is judged.

A search's directory holds

search.json   what was tried and found, after every rung
candidates/   the runs of the rungs, judged on images held out of the training split
learned/      the straight-through run
orders/       the candidates that are no scans, as order files
order.json    the order found
final/        the runs that end the search: all training images, judged on the validation split
verdict.json  what they say; report/ and search.png show them

Every run is one of a sweep's; what has ended is never done again.
"""

import hashlib
import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from reorder.config import Experiment, Order, defaults, keys_that_matter
from reorder.data.datasets import load_dataset
from reorder.data.progress import Display
from reorder.data.ranks import World, accelerator
from reorder.experiments.budget import Plan, describe, plan
from reorder.experiments.final import arms_of, compared, kinds_in_full, verdict_of, wants_own_orders
from reorder.experiments.forecast import SHARING, measure, measured_pace
from reorder.experiments.grids import Task, check, check_here, clock, with_threads
from reorder.experiments.here import Machine
from reorder.experiments.rungs import Asked, Rungs, Train, searching
from reorder.models.grid import grid_of
from reorder.orders.candidates import candidates
from reorder.orders.files import load_order, save_order
from reorder.orders.named import starting_order
from reorder.orders.scans import SCANS
from reorder.runs.directory import LOCK, RunDir
from reorder.runs.searches import Candidate, Search, read_search
from reorder.runs.verdict import write_verdict

# N patches

CANDIDATES = 60  # fixed ones, if the budget has room for so many
FEW_STEPS, FEW_IMAGES = 50, 200
LEARN_NOTHING = ("noise", "random")  # policies that are controls of a run
EMPTY = {LOCK, "prior.json"}  # what a search that was stopped at its very beginning may leave


def given_orders(files: list[Path], experiment: Experiment) -> dict[str, Tensor]:
    """The orders (N,) in files, and in that of `order.scan`, by the names of the candidates they become."""
    start = [Path(experiment.order.scan)] if experiment.order.scan.endswith(".json") else []
    grid = grid_of(experiment.model.image_shape, experiment.model.patch_size)
    found: dict[str, Tensor] = {}
    for path in [*files, *start]:
        name = path.absolute().parent.name if path.name == "order.json" else path.stem
        plain = f"file-{re.sub(r'[^A-Za-z0-9_.]+', '-', name)[:60]}"
        taken = sum(other == plain or other.startswith(f"{plain}-again-") for other in found)
        found[f"{plain}-again-{taken}" if taken else plain] = (
            starting_order(str(path), grid) if path in start else load_order(path, grid).order
        )
    return found


def begin(asked: Asked) -> Search:
    """The search in the directory, as far as it has come, or a new one, which has no candidates yet."""
    if (policy := asked.experiment.order.policy) in LEARN_NOTHING:
        raise ValueError(
            f"order.policy={policy} learns no order, so a search cannot try it; choose none, global, blocks "
            "or image"
        )
    settings = settings_of(asked)
    if (search := read_search(asked.out)) is not None:
        _check_same(asked.out, search.settings, settings)
        return search
    if asked.out.exists() and (not asked.out.is_dir() or {e.name for e in asked.out.iterdir()} - EMPTY):
        raise ValueError(f"{asked.out} exists and is no search's directory; choose another --out")
    if asked.grid == (1, 1):
        raise ValueError("an image of one patch has one order; there is nothing to search for")
    count = max(CANDIDATES, len(asked.given) + 2)
    planned = plan(asked.budget, count, asked.experiment.train.epochs, asked.seeds)
    room = planned.rungs[0].candidates
    if len(asked.given) > room - 2:
        raise ValueError(
            f"--budget {asked.budget:g} has room for row-major, a scan and {room - 2} order files, not "
            f"{len(asked.given)}; give a larger budget, or fewer files"
        )
    return Search(settings, asked.grid, list(planned.rungs), [])


def first_candidates(asked: Asked, base: Experiment, count: int, display: Display) -> list[Candidate]:
    """So many fixed candidates, among them the files given and, with order.scan=prior, the prior's choice."""
    first = ""
    if base.order.scan == "prior":
        from reorder.training.prior_choice import recorded_or_measured  # imported here: slow, seldom needed

        prior = recorded_or_measured(base, [RunDir(asked.out)], display)
        RunDir(asked.out).write_prior(prior)
        first = prior["chosen"]["scan"]
    found = candidates(asked.grid, count, base.train.seed, asked.given, first)
    made = dict.fromkeys(SCANS, "scan") | dict.fromkeys(asked.given, "order file")
    made |= {first: "scan, chosen by the prior"} if first else {}
    return [Candidate(name, made.get(name, "fixed"), order.tolist()) for name, order in found.items()]


def settings_of(asked: Asked) -> dict[str, Any]:
    """What makes it this search and no other, as it is written."""
    orders = {
        name: hashlib.sha256(order.numpy().tobytes()).hexdigest()[:8] for name, order in asked.given.items()
    }
    learning = {f"order.{key}": value for key, value in asdict(asked.experiment.order).items()}
    settings = {"budget": asked.budget, "seeds": asked.seeds, "orders": orders}
    written = json.dumps(settings | keys_that_matter(asked.experiment) | learning)
    found: dict[str, Any] = json.loads(written)
    return found


def _check_same(out: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Refuse to go on with another search; one begun before there was a key has the key's default."""
    usual = defaults()
    for key in [*wanted, *found]:
        had, has = found.get(key, usual.get(key)), wanted.get(key)
        if had != has:
            raise ValueError(
                f"{out} holds another search ({key} is {had}, not {has}); choose another --out, or move it "
                "away"
            )


def run_search(asked: Asked, train: Train, machine: Machine | None, display: Display) -> Search:
    """Bring a search to its end; `machine` is what it is trained on, None for another than this one."""
    search = begin(asked)
    if search.verdict is not None:
        display.say(f"the search in {asked.out} is finished already")
        return search
    whole, *own = kinds_in_full(asked.experiment)
    images = len(load_dataset(whole.data, whole.model.image_shape).train)
    base = searching(asked, images, search.plan[0].epochs)
    rungs = Rungs(asked, base, search, train, display)
    check(Task("", RunDir(asked.out), asked.experiment))
    final = [Task("row", RunDir(asked.out / "final"), kind) for kind in (whole, *own)]
    check_here([rungs.task("row", base.train.epochs), *final])
    with RunDir(asked.out).locked():
        if not search.candidates:
            search.candidates = first_candidates(asked, base, search.plan[0].candidates, display)
        planned = plan_of(asked, search)
        for line in describe(planned):
            display.say(line)
        for note in notes_on(base, images):
            display.say(f"note: {note}")
        if machine is not None:
            display.say(time_left(planned, len(search.rungs), [base, whole, *own], machine))
        rungs.run()
        finish(asked, rungs)
    return search


def notes_on(base: Experiment, images: int) -> list[str]:
    """What is accepted, but leaves little to see: a line for each."""
    assert base.data.held_out is not None
    steps = (images - base.data.held_out) // base.train.batch_size * base.train.epochs
    notes = []
    if steps < FEW_STEPS:
        notes.append(
            f"candidates begin with {steps} steps each, in which a model hardly learns; give more --budget "
            "or train.epochs, or a smaller train.batch_size"
        )
    if base.data.held_out < FEW_IMAGES:
        notes.append(
            f"candidates are judged on {base.data.held_out} images, which tell only large differences "
            "apart; data.held_out=N gives more"
        )
    return notes


def plan_of(asked: Asked, search: Search) -> Plan:
    own = wants_own_orders(asked.experiment)
    return Plan(tuple(search.plan), asked.experiment.train.epochs, asked.seeds, own)


def time_left(planned: Plan, over: int, kinds: list[Experiment], machine: Machine) -> str:
    """How long what follows so many rungs will take here, by a few steps of each kind of run.

    The kinds are a candidate's, that of an order in full and, if they are planned, that of own orders.
    """
    world = World(0, 1, accelerator())
    kinds = [replace(kinds[0], order=Order()), *kinds[1:]]
    tasks = [with_threads(Task("", RunDir(""), kind), machine.threads) for kind in kinds]
    paces = [measured_pace(task.experiment, lambda run: measure(run, world, 0.0)) for task in tasks]
    shared = SHARING if machine.jobs > 1 and world.device.type == "cpu" else 1.0
    short, full, *own = (shared * pace.epoch for pace in paces)
    rungs = short * sum(rung.cost for rung in planned.rungs[over:]) / machine.jobs
    seconds = full * (planned.final_epochs - planned.own_epochs) + sum(own) * planned.own_epochs
    final = max(seconds / machine.jobs, full * planned.equal_epochs)
    how = f"{machine.jobs} process{'es' * (machine.jobs > 1)}"
    return f"about {clock(rungs)} for the rungs and {clock(final)} for the comparison, with {how}"


def finish(asked: Asked, rungs: Rungs) -> None:
    """Write the order found, train it and its controls in full, and compare them."""
    search = rungs.search
    assert search.chosen is not None
    candidate = next(each for each in search.candidates if each.name == search.chosen)
    about = {"candidate": candidate.name, "made": candidate.made, "search": asked.out.name}
    save_order(asked.out / "order.json", torch.tensor(candidate.order), search.grid, about)
    arms = arms_of(asked.experiment, search, asked.out, asked.seeds, plan_of(asked, search).equal_epochs)
    tasks = {task.name: task for arm in arms.values() for task in arm.tasks}
    rungs.train(list(tasks.values()))
    verdict = verdict_of(arms, len(search.candidates))
    search.arms, search.verdict = compared(arms), verdict.text
    write_verdict(asked.out / "verdict.json", verdict)
    rungs.write()
