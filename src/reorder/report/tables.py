"""Tables as data: one description, written as Markdown, CSV or LaTeX."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import rich.table
from rich.box import SIMPLE_HEAD

from reorder.orders.disk import replace_file


class Number(NamedTuple):
    """A value, with its standard error if it has one."""

    value: float
    error: float | None = None
    digits: int = 2

    def __str__(self) -> str:
        shown = f"{self.value:.{self.digits}f}"
        return shown if self.error is None else f"{shown} ± {self.error:.{self.digits}f}"


class PValue(Number):
    """A p-value; one too small to show is not shown as zero."""

    def __str__(self) -> str:
        return "<0.001" if self.value < 0.0005 else f"{self.value:.3f}"


Cell = str | Number

STANDARD_ERROR = " standard error"  # behind a heading, that of the errors


class Table(NamedTuple):
    name: str  # a file's name without its ending
    caption: str
    headings: tuple[str, ...]
    rows: list[tuple[Cell, ...]]
    notes: list[str]


def numeric_columns(table: Table) -> list[bool]:
    """Whether each column holds numbers."""
    return [any(isinstance(row[i], Number) for row in table.rows) for i in range(len(table.headings))]


def varied_columns(table: Table) -> tuple[list[int], str]:
    """The first column and those that differ between rows, and what is the same in all rows, as text."""
    columns = [{str(row[i]) for row in table.rows} for i in range(len(table.headings))]
    varied = [i for i, cells in enumerate(columns) if i == 0 or len(table.rows) == 1 or len(cells) > 1]
    same = [f"{heading} {table.rows[0][i]}" for i, heading in enumerate(table.headings) if i not in varied]
    return varied, "; ".join(same)


def to_markdown(table: Table) -> str:
    """A pipe table between its caption and its notes."""
    lines = [map(escape_markdown, map(str, line)) for line in (table.headings, *table.rows)]
    head, *body = [f"| {' | '.join(line)} |" for line in lines]
    body = [head, f"|{' --- |' * len(table.headings)}", *body]
    notes = [f"- {escape_markdown(note)}" for note in table.notes]
    parts = [escape_markdown(table.caption), "\n".join(body), "\n".join(notes)]
    return "\n\n".join(part for part in parts if part) + "\n"


def escape_markdown(text: str) -> str:
    """Text in one line in which nothing is HTML, a link, code, emphasis or the end of a cell.

    What cannot be mistaken, such as `p<0.001` and the underscore of `transformer_xl`, stays as it is.
    """
    text = re.sub(r"([\\`*|\[\]])", r"\\\1", " ".join(text.split()))
    text = re.sub(r"&(?=#?\w+;)", "&amp;", text)
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text)


def to_csv(table: Table) -> str:
    """Comma-separated rows at full precision; where values have standard errors, these have a column too."""
    columns: dict[str, list[Any]] = {}
    for i, heading in enumerate(table.headings):
        cells = [row[i] for row in table.rows]
        columns[heading] = [cell.value if isinstance(cell, Number) else cell for cell in cells]
        errors = [cell.error if isinstance(cell, Number) else None for cell in cells]
        if any(error is not None for error in errors):
            columns[heading + STANDARD_ERROR] = errors
    return str(pd.DataFrame(columns, dtype=object).to_csv(index=False, lineterminator="\n"))


LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{sign: f"{{{sign}}}" for sign in "[*"},  # which after the end of a row are its arguments
}


def escape_latex(text: str) -> str:
    """Text in which nothing has a meaning to LaTeX."""
    return "".join(LATEX.get(sign, sign) for sign in text)


def to_latex(table: Table) -> str:
    """A plain tabular, numbers to the right and text to the left; caption and notes are comments."""
    numeric = numeric_columns(table)
    lines = [
        f"% {' '.join(table.caption.split())}",
        f"\\begin{{tabular}}{{{''.join('r' if number else 'l' for number in numeric)}}}",
        "\\hline",
    ]
    body = [
        " & ".join(escape_latex(" ".join(str(cell).split())) for cell in row) + r" \\"
        for row in (table.headings, *table.rows)
    ]
    lines += [body[0], "\\hline", *body[1:], "\\hline", "\\end{tabular}"]
    lines += [f"% {' '.join(note.split())}" for note in table.notes]
    return "\n".join(lines) + "\n"


def terminal_table(table: Table, shown: int | None = None) -> rich.table.Table:
    """The first columns of a table for the terminal, numbers to the right, words and numbers unbroken.

    What is the same in all rows is said once, below.
    """
    first = table._replace(headings=table.headings[:shown], rows=[row[:shown] for row in table.rows])
    (varied, same), numeric = varied_columns(first), numeric_columns(first)
    drawn = rich.table.Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    drawn.caption, drawn.caption_justify = same or None, "left"
    for place in varied:
        cells = [str(row[place]) for row in table.rows]
        unbroken = cells if numeric[place] else " ".join(cells).split()
        drawn.add_column(
            table.headings[place],
            min_width=max(map(len, unbroken), default=0),
            overflow="fold",  # names are worth a second line
            justify="right" if numeric[place] else "left",
        )
    for row in table.rows:
        drawn.add_row(*(str(row[place]) for place in varied))
    return drawn


def write_table(table: Table, directory: Path) -> None:
    """The table as NAME.md, NAME.csv and NAME.tex, each whole or not at all."""
    for ending, text in (("md", to_markdown(table)), ("csv", to_csv(table)), ("tex", to_latex(table))):
        replace_file(directory / f"{table.name}.{ending}", text)
