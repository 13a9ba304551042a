"""Order files: every one that is not exactly an order of its grid must be refused."""

import json
from pathlib import Path
from random import Random
from typing import Any

from fuzz.case import ACCEPT, EITHER, REFUSE, Case, command
from fuzz.damage import as_json, damage_bytes, damage_json
from reorder.orders.files import OrderFile, load_order

SHARE, COST = 24, 1


def make(random: Random, folder: Path, ready: Path) -> Case:
    rows, columns = random.choice([(2, 2), (1, 1), (1, 4), (3, 2), (4, 4), (14, 14)])
    numbers = list(range(rows * columns))
    random.shuffle(numbers)
    content: Any = {
        "format": "reorder.order/1",
        "grid": [rows, columns],
        "provenance": {"scan": "row", "policy": "global", "seed": 0, "top1": 0.5},
        "order": numbers,
    }
    what, written = _written(random, content)
    path = folder / random.choice(["order.json", "an order.json", "é[/x].json"])
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(written)
    grid = (rows, columns) if random.random() < 0.5 else None
    expect = _expected(written, grid)
    if random.random() < 0.03 and expect != EITHER:
        run = ready / "runs/learned"  # its grid is 2x2
        expect = _expected(written, (2, 2))
        if expect == REFUSE:
            return Case(
                f"evaluate --order: {what}", REFUSE, lambda: command("evaluate", run, "--order", path)
            )
    return Case(what, expect, lambda: load_order(path, grid), lambda found: _wrong(found, written))


def _written(random: Random, content: dict[str, Any]) -> tuple[str, bytes]:
    kind = random.choice(["good", "json", "json", "json", "order", "order", "bytes", "bytes", "deep", "text"])
    if kind == "json":
        what, changed = damage_json(random, content)
        return what, as_json(changed)
    if kind == "order":
        what = _damage_order(random, content["order"])
        return what, as_json(content)
    if kind == "bytes":
        return damage_bytes(random, as_json(content))
    if kind == "deep":
        depth = random.choice([100, 1000, 100_000])
        bracket = random.choice(["[", '{"a":'])
        return f"{depth} times {bracket}", (bracket * depth).encode()
    if kind == "text":
        coding = random.choice(["utf-16", "latin-1", "utf-8-sig", "utf-32"])
        return f"in {coding}", json.dumps(content | {"é": "é"}, ensure_ascii=False).encode(coding)
    return "as it should be", as_json(content)


def _damage_order(random: Random, numbers: list[Any]) -> str:
    at, other = random.randrange(len(numbers)), random.randrange(len(numbers))
    kind = random.choice(
        ["repeated", "swapped", "float", "true", "outside", "negative", "long", "short", "text"]
    )
    if kind == "swapped":
        numbers[at], numbers[other] = numbers[other], numbers[at]
    elif kind == "repeated":
        numbers[at] = numbers[other]
    elif kind == "float":
        numbers[at] = float(numbers[at])
    elif kind == "true":
        numbers[numbers.index(min(1, len(numbers) - 1))] = True
    elif kind == "outside":
        numbers[at] = random.choice([len(numbers), 2**31, 2**63, 10**30])
    elif kind == "negative":
        numbers[at] = -numbers[at] - 1
    elif kind == "long":
        numbers.append(random.choice([0, len(numbers)]))
    elif kind == "short":
        numbers.pop()
    else:
        numbers[at] = str(numbers[at])
    return f"an order with a number {kind}"


def _expected(written: bytes, grid: tuple[int, int] | None) -> str:
    """Whether the file holds an order, by the definition of the format."""
    try:
        content = json.loads(written.decode())
    except (ValueError, RecursionError):
        return REFUSE
    if not isinstance(content, dict) or content.get("format", "reorder.order/1") != "reorder.order/1":
        return REFUSE
    size, numbers = content.get("grid"), content.get("order")
    if not isinstance(content.get("provenance", {}), dict):
        return REFUSE
    for values in (size, numbers):
        if not isinstance(values, list) or any(type(value) is not int for value in values):
            return REFUSE
    if len(size) != 2 or min(size) < 1 or sorted(numbers) != list(range(min(size[0] * size[1], 10**6))):
        return REFUSE
    if grid is not None and tuple(size) != grid:
        return REFUSE
    plain = all(isinstance(value, str | int) for value in content.get("provenance", {}).values())
    return ACCEPT if plain else EITHER


def _wrong(found: OrderFile, written: bytes) -> str:
    content = json.loads(written)
    same = found.order.tolist() == content["order"] and list(found.grid) == content["grid"]
    return "" if same else f"read as {found.order.tolist()} of {found.grid}"
