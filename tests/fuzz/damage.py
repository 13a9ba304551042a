"""Damage to files: to their bytes, and to the values that a JSON file holds."""

import copy
import json
from random import Random
from typing import Any

ODD_VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    3,
    1.5,
    -0.0,
    float("nan"),
    float("inf"),
    float("-inf"),
    10**400,
    2**63,
    -(2**63) - 1,
    1e308,
    "",
    "text",
    "0.5",
    "\ud800",
    "\x00",
    "[/x]",
    "<script>alert(7)</script>",
    "${oc.env:REORDER_FUZZ_SECRET}",
    "é" * 5000,
    [],
    [[]],
    [1, 2],
    ["a"],
    {},
    {"a": 1},
    {"scan": []},
]


def damage_bytes(random: Random, content: bytes) -> tuple[str, bytes]:
    """What was done to the bytes of a file, and what it holds then."""
    at = random.randrange(len(content) + 1)
    kind = random.choice(["cut", "flip", "flips", "insert", "drop", "zeros", "noise", "empty", "twice"])
    changed = bytearray(content)
    if kind == "cut":
        return f"cut to {at} bytes", content[:at]
    if kind in ("flip", "flips") and content:
        for _ in range(1 if kind == "flip" else random.randrange(2, 40)):
            changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    elif kind == "insert":
        changed[at:at] = random.randbytes(random.randrange(1, 20))
    elif kind == "drop":
        del changed[at : at + random.randrange(1, 20)]
    elif kind == "zeros":
        changed[at : at + 64] = bytes(min(64, len(content) - at))
    elif kind == "noise":
        changed = bytearray(random.randbytes(random.randrange(1, 400)))
    elif kind == "empty":
        changed = bytearray()
    elif kind == "twice":
        changed = changed + changed
    return kind, bytes(changed)


def places(content: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value inside a JSON value, but for the whole."""
    inside = content.items() if isinstance(content, dict) else enumerate(content)
    found = []
    for key, value in inside:
        found.append((*here, key))
        if isinstance(value, dict | list):
            found += places(value, (*here, key))
    return found


def damage_json(random: Random, content: Any) -> tuple[str, Any]:
    """What was done to a JSON value, and what it is then; the value itself is left alone."""
    if random.random() < 0.05 or not places(content):
        value = random.choice(ODD_VALUES)
        return f"the whole is {short(value)}", value
    changed = copy.deepcopy(content)
    said = []
    for _ in range(random.choice([1, 1, 1, 2, 4])):
        found = places(changed)
        if not found:
            break
        way = random.choice(found)
        said.append(_damage_at(random, changed, way))
    return ", ".join(said), changed


def _damage_at(random: Random, content: Any, way: tuple[Any, ...]) -> str:
    *above, key = way
    holder = content
    for step in above:
        holder = holder[step]
    name = ".".join(map(str, way))
    kind = random.choice(["value", "value", "value", "delete", "repeat", "grow"])
    if kind == "delete":
        del holder[key]
        return f"{name} is missing"
    if kind == "repeat" and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(holder[key]))
        return f"{name} is repeated"
    if kind == "grow" and isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
        holder[key] = random.choice([holder[key] * 10**9, -holder[key], holder[key] + 0.5, str(holder[key])])
        return f"{name} is {short(holder[key])}"
    holder[key] = random.choice(ODD_VALUES)
    return f"{name} is {short(holder[key])}"


def as_json(content: Any) -> bytes:
    """A value as a JSON file; what JSON has no word for as Python writes it."""
    return json.dumps(content).encode("utf-8", "surrogatepass")


def short(value: Any) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**40 else "an integer of many digits"
    return text if len(text) < 60 else f"{text[:50]}..."
