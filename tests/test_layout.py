"""Folders are the stages of the pipeline: each imports only from those above it."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src/reorder"
STAGES = (
    "config", "orders", "data", "models", "integrations", "prior", "runs", "training", "experiments",
    "report", "cli",
)  # fmt: skip
FILES = sorted(SOURCE.rglob("*.py"))


def imported(tree: ast.AST) -> set[str]:
    """The parts of reorder that a module imports, at its top or inside functions."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("reorder.")}


def test_the_package_has_these_parts_and_no_others():
    found = {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in FILES}
    assert found - {"__init__", "__main__"} == set(STAGES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_imports_only_from_its_own_folder_and_those_above(path):
    own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if own in ("__init__", "__main__"):
        return
    allowed = set(STAGES[: STAGES.index(own) + 1])
    if own == "report":
        allowed.remove("training")  # it reads what runs left on disk
    assert imported(ast.parse(path.read_text())) - allowed == set()


def test_the_check_sees_imports_of_every_kind():
    text = "import reorder.cli\nif 1:\n    from reorder.training import loop\n    from reorder import report"
    assert imported(ast.parse(text)) == {"cli", "training", "report"}
