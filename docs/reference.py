"""Write the reference of the public interface, from its docstrings: python docs/reference.py [DIRECTORY]."""

import inspect
import sys
from importlib import import_module
from pathlib import Path

import pdoc
from torch import nn

import reorder

TORCHS = [inspect.getdoc(inherited) for inherited in (nn.Module.__init__, nn.Module.forward)]


def main(directory: Path) -> None:
    for name in reorder.PUBLIC:  # pdoc sees only what is loaded
        setattr(reorder, name, getattr(reorder, name))
    module = pdoc.doc.Module(reorder)
    for name, place in reorder.PUBLIC.items():  # a constant's docstring stands where it is made
        home = pdoc.doc.Module(import_module(place))
        module.members[name].docstring = home.members[name].docstring
    for name in reorder.PUBLIC:
        for member in getattr(module.members[name], "own_members", []):
            if member.docstring in TORCHS:
                member.docstring = ""
    pdoc.render.configure(docformat="markdown", show_source=False)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "index.html").write_text(pdoc.render.html_module(module, {"reorder": module}))
    print(directory / "index.html")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/reference"))
