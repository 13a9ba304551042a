"""The map of the source that newcomers are given is true."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def imported(file):
    """The modules and packages of ours that a file imports when it is itself imported."""
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module == "reorder":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("reorder."):
            yield node.module.split(".")[1]


def test_modules_import_only_from_those_listed_before_them():
    guide = (ROOT / "CONTRIBUTING.md").read_text()
    (text,) = re.findall(r"^- Modules import only from those before them: (.*?)\.$", guide, re.S | re.M)
    listed = re.findall(r"`(\w+)/?`", text)
    source = ROOT / "src" / "reorder"
    units = {path.relative_to(source).parts[0].removesuffix(".py"): path for path in source.rglob("*.py")}
    assert sorted(listed) == sorted(units.keys() - {"__init__", "__main__"})
    seen = 0
    for file in source.rglob("*.py"):
        own = file.relative_to(source).parts[0].removesuffix(".py")
        for other in set(imported(file)) - {own} if own in listed else ():
            seen += 1
            assert listed.index(other) < listed.index(own), f"{file} imports reorder.{other}"
    assert seen > 100
