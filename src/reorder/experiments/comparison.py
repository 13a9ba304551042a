"""A run and those it is compared with, in its directory: trained as a sweep, or in turn by several ranks."""

import signal
from pathlib import Path

from reorder.config import Experiment, Order
from reorder.data.progress import Display
from reorder.data.ranks import World, from_first, on_any
from reorder.experiments.arms import comparison
from reorder.experiments.grids import Task, check, check_here, why_unusable
from reorder.experiments.here import Machine, run_here
from reorder.experiments.presets import with_order
from reorder.experiments.workers import Pool
from reorder.orders.disk import check_writable
from reorder.runs.directory import RunDir
from reorder.training.loop import train
from reorder.training.signals import Stopped, StopSignals


def compared_tasks(experiment: Experiment, directory: RunDir) -> list[Task]:
    """The run itself, in its directory, and its arms in directories of it; checked, not begun."""
    main = Task(directory.path.absolute().name, directory, experiment)
    tasks = [main]
    arms = {} if directory.handed_over else comparison(experiment)  # or another process trains the arms
    for arm, plan in arms.items():
        arranged, needs = plan.experiment, None
        if plan.learned_from is not None:
            arranged, needs = with_order(arranged, str(directory.path / "order.json")), main.name
        place = directory_name(arm, arranged.order)
        tasks.append(Task(f"{main.name}/{place}", RunDir(directory.path / place), arranged, needs))
    directory.check(experiment)
    for task in tasks:
        check(task)
        if why := why_unusable(task):
            raise ValueError(why)
    return tasks


def directory_name(arm: str, order: Order) -> str:
    """Where an arm is trained; one that reads a scan has its directory from the scan, whatever it starts."""
    if order.policy != "none":
        return arm
    return f"fixed-{arm if order.scan.endswith('.json') else Path(order.scan).name}"


def train_tasks(tasks: list[Task], display: Display, world: World, command: str) -> None:
    """Train a run and its arms: side by side on this machine, or in turn where ranks share the work."""
    if world.size == 1 and len(tasks) > 1:
        train_side_by_side(tasks, display, command)
    else:
        train_in_turn(tasks, display, world)


def train_side_by_side(tasks: list[Task], display: Display, command: str) -> None:
    """Train the runs in processes beside this one, as `reorder sweep` does; `command` continues them."""
    check_writable(tasks[0].directory.path)
    check_here(tasks)
    with StopSignals().watched() as stop:
        share_prior(tasks, display, stop)
    machine = Machine(None, len(tasks))
    with Pool(machine) as pool:
        run_here(tasks, machine, display.console, command, pool)


def train_in_turn(tasks: list[Task], display: Display, world: World) -> None:
    """Train the runs one after the other, each by all ranks of this world."""
    with StopSignals().watched() as stop:
        share_prior(tasks, display, stop)
        for task in tasks:
            train(task.experiment, task.directory, display, world, stop)
            if on_any([bool(stop.number)], world.device)[0]:
                raise Stopped(stop.number or signal.SIGTERM)


def share_prior(tasks: list[Task], display: Display, stop: StopSignals) -> None:
    """Measure the prior once, and record it in the directories of all runs that start from it."""
    waiting = [task for task in tasks if task.experiment.order.scan == "prior" and not task.finished]
    if not waiting:
        return
    from reorder.training.prior_choice import recorded_or_measured  # imported here: slow, seldom needed

    with stop.at_once():
        directories = [task.directory for task in tasks]
        prior = recorded_or_measured(waiting[0].experiment, directories, display)

    def record() -> None:
        for task in waiting:
            with task.directory.locked():
                if task.directory.prior() is None:
                    task.directory.create(task.experiment)
                    task.directory.write_prior(prior)

    from_first(record)
