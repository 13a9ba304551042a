"""Every public name says what it is and shows how it is used, and what it shows is so."""

import ast
import doctest
import importlib
import inspect
import textwrap

import pytest
import torch

import reorder

USED = {"Classifier": "create_model", "TrainedModel": "load"}  # what makes it


def docstring_of(name: str) -> str:
    """What stands below the definition of a public name; a constant has a docstring in its source alone."""
    body = ast.parse(inspect.getsource(importlib.import_module(reorder.PUBLIC[name]))).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return ast.get_docstring(node) or ""
        if isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if isinstance(target, ast.Name) and target.id == name and isinstance(after, ast.Expr):
                return inspect.cleandoc(ast.literal_eval(after.value))
    return ""


@pytest.mark.parametrize("name", sorted(reorder.PUBLIC))
def test_a_public_name_has_a_docstring_with_an_example_that_holds(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = docstring_of(name)
    first, _, rest = text.partition("\n\n")
    assert first.strip(), f"{name} has no docstring"
    if ">>>" not in rest:  # a piece of a loop, indented
        example = "\n".join(line for line in rest.splitlines() if line.startswith("    "))
        assert f"{USED.get(name, name)}(" in example, f"{name} has no example"
        compile(textwrap.dedent(example), name, "exec")
        return
    test = doctest.DocTestParser().get_doctest(text, {"reorder": reorder, "torch": torch}, name, None, None)
    assert any(used.source.count(f"reorder.{USED.get(name, name)}") for used in test.examples)
    said = []
    assert doctest.DocTestRunner().run(test, out=said.append).failed == 0, "".join(said)
