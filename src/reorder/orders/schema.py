"""Rules for the content of files: what each key must hold, and one way to read what is checked by them.

What is missing, unreadable or wrong is a ValueError of one line that names the file, the key and the value.
"""

import errno
import json
import reprlib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

LARGEST = 1e300  # larger numbers overflow when they are computed with
LARGEST_INTEGER = 2**63 - 1
# Errors of the disk that speak of the file itself, not of who reads it or when.
DAMAGE = (errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.EIO)


class Unreadable(ValueError):
    """A file that may well be sound, but cannot be read here and now: without permission, for example."""


# Rules


class Rule(NamedTuple):
    """What a value must be, in words, and whether it is."""

    words: str
    holds: Callable[[Any], bool]


Rules = Mapping[str, Any]  # a rule, or more rules, for each key; one that may be missing ends in ?


def number(low: float, high: float = LARGEST) -> Rule:
    words = f"a number of at least {low:g}" if high == LARGEST else f"a number from {low:g} to {high:g}"
    return Rule(words, lambda value: type(value) in (int, float) and low <= value <= high)


def whole(low: int) -> Rule:
    return Rule(
        f"an integer from {low} up", lambda value: type(value) is int and low <= value <= LARGEST_INTEGER
    )


def one_of(choices: Collection[str]) -> Rule:
    return Rule(f"one of {', '.join(choices)}", lambda value: isinstance(value, str) and value in choices)


def list_of(rule: Rule, length: int | None = None) -> Rule:
    def holds(value: Any) -> bool:
        return isinstance(value, list) and length in (None, len(value)) and all(map(rule.holds, value))

    return Rule(f"a list of {'' if length is None else f'{length}, each '}{rule.words}", holds)


def array(types: tuple[type, ...], dimensions: int) -> Rule:
    """An array without NaN or infinity."""

    def holds(value: Any) -> bool:
        fits = isinstance(value, np.ndarray) and value.dtype in types and value.ndim == dimensions
        return fits and bool(np.isfinite(value).all())

    return Rule(f"an array of {dimensions} dimensions of finite {types[0].__name__}", holds)


ANY_NUMBER = Rule(  # a loss may be infinite, or not a number
    "a number", lambda value: type(value) is float or (type(value) is int and abs(value) <= LARGEST)
)
FRACTION = number(0, 1)
TEXT = Rule("text", lambda value: isinstance(value, str))
TEXT_OR_NONE = Rule("text or null", lambda value: value is None or isinstance(value, str))
TRUTH = Rule("true or false", lambda value: type(value) is bool)
OBJECT = Rule("an object", lambda value: isinstance(value, dict))
FLOATS = (np.float64, np.float32)


def check(value: Any, rule: Rule | Rules, name: str = "it") -> None:
    """Refuse a value that breaks a rule, or an object of which a key does."""
    if isinstance(rule, Rule):
        if not rule.holds(value):
            raise ValueError(f"{name} must be {rule.words}, found {shown(value)}")
        return
    check(value, OBJECT, name)
    for key, inner in rule.items():
        if (plain := key.removesuffix("?")) in value:
            check(value[plain], inner, f'"{plain}"' if name == "it" else f'{name[:-1]}.{plain}"')
        elif plain == key:
            raise ValueError(f'{name} lacks "{key}"')


def shown(value: Any) -> str:
    """A value in a few words."""
    if isinstance(value, np.ndarray | Tensor):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    return " ".join(reprlib.repr(value).split())


def check_order(order: Any, patches: int, name: str) -> None:
    """Refuse an order that does not name every patch once."""
    if sorted(order) != list(range(patches)):
        raise ValueError(f"{name} does not name each of {patches} patches once")


# Reading


def read_json(path: Path) -> Any:
    return json.loads(path.read_bytes())


def checked_by(rules: Rule | Rules, load: Callable[[Path], Any] = read_json) -> Callable[[Path], Any]:
    """A reader of files that one check is enough for."""

    def read_checked(path: Path) -> Any:
        content = load(path)
        check(content, rules)
        return content

    return read_checked


def read_file(path: Path, load: Callable[[Path], Any], remedy: str) -> Any:
    """What a file holds, by a reader that checks it; what cannot be read is told with what to do."""
    try:
        return load(path)
    except FileNotFoundError:
        raise ValueError(f"{path} is missing; {remedy}") from None
    except Exception as error:  # damaged files make their readers raise almost anything
        if isinstance(error, OSError) and error.strerror and error.errno not in DAMAGE:
            raise Unreadable(f"cannot read {path}: {error.strerror}") from None
        said = (str(error).replace(str(path), "it").strip() or type(error).__name__).splitlines()[0]
        raise ValueError(f"{path} is damaged: {said}; {remedy}") from error
