"""Tables as data: one description, written as Markdown, CSV or LaTeX."""

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

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
    body = markdown_rows(table.headings, table.rows)
    notes = [f"- {escape_markdown(note)}" for note in table.notes]
    parts = [escape_markdown(table.caption), "\n".join(body), "\n".join(notes)]
    return "\n\n".join(part for part in parts if part) + "\n"


def markdown_rows(headings: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[str]:
    """The lines of a pipe table."""
    lines = [map(escape_markdown, map(str, line)) for line in (headings, *rows)]
    head, *body = [f"| {' | '.join(line)} |" for line in lines]
    return [head, f"|{' --- |' * len(headings)}", *body]


def escape_markdown(text: str) -> str:
    """Text in one line in which nothing is HTML, a link, code, emphasis or the end of a cell.

    What cannot be mistaken, such as `p<0.001` and the underscore of `transformer_xl`, stays as it is.
    """
    text = re.sub(r"([\\`*|\[\]])", r"\\\1", " ".join(text.split()))
    text = re.sub(r"&(?=#?\w+;)", "&amp;", text)
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text)


def to_csv(table: Table) -> str:
    """Comma-separated rows at full precision; where values have standard errors, these have a column too."""
    rows = [[_value_and_error(cell) for cell in row] for row in table.rows]
    erring = [any(row[i][1] for row in rows) for i in range(len(table.headings))]
    lines = [[(heading, heading + STANDARD_ERROR) for heading in table.headings], *rows]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    for line in lines:
        pairs = zip(line, erring, strict=True)
        writer.writerow([text for pair, both in pairs for text in (pair if both else pair[:1])])
    return buffer.getvalue()


def _value_and_error(cell: Cell) -> tuple[str, str]:
    if isinstance(cell, str):
        return cell, ""
    return repr(cell.value), "" if cell.error is None else repr(cell.error)


def from_csv(text: str) -> list[dict[str, Cell]]:
    """The rows of `to_csv` again, by heading; a column that can be read as numbers is one of numbers."""
    headings, *lines = csv.reader(io.StringIO(text))
    found = [dict(zip(headings, line, strict=True)) for line in lines]
    numeric = {heading for heading in headings if all(_is_number(row[heading]) for row in found)}
    rows: list[dict[str, Cell]] = []
    for line in found:
        row: dict[str, Cell] = {}
        for heading, value in line.items():
            if heading.removesuffix(STANDARD_ERROR) in row:
                continue
            error = line.get(heading + STANDARD_ERROR)
            number = value and heading in numeric
            row[heading] = Number(float(value), float(error) if error else None) if number else value
        rows.append(row)
    return rows


def _is_number(text: str) -> bool:
    """Whether a cell is a number, or empty in a column of numbers."""
    try:
        float(text or 0)
    except ValueError:
        return False
    return True


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
