"""Tables as files: what is written can be read back, and nothing in it is markup by accident."""

import csv
import io
import re

import pytest
from rich.console import Console

from reorder.report.tables import (
    Number,
    PValue,
    Table,
    escape_latex,
    escape_markdown,
    terminal_table,
    to_csv,
    to_latex,
    to_markdown,
    write_table,
)

TABLE = Table(
    "t",
    "A caption with 5% of_it.",
    ("order|", "top-1 (%)", "p"),
    [("row, fixed", Number(91.23456, 1.48), Number(0.5, digits=3)), ('a "b"', Number(7.0), "")],
    ["A note\nin two lines."],
)


def test_a_number_is_shown_with_its_error_and_digits():
    assert str(Number(91.236, 1.482)) == "91.24 ± 1.48"
    assert str(Number(1234.5678, digits=0)) == "1235"
    assert str(Number(-0.0004, 0.0, 3)) == "-0.000 ± 0.000"


def test_csv_parses_back_to_full_precision_with_errors_in_their_own_columns():
    head, first, second = csv.reader(io.StringIO(to_csv(TABLE)))
    assert head == ["order|", "top-1 (%)", "top-1 (%) standard error", "p"]
    assert first == ["row, fixed", "91.23456", "1.48", "0.5"]
    assert second == ['a "b"', "7.0", "", ""]


def test_names_are_neither_html_nor_links_nor_rows_of_their_own():
    names = (
        "<img src=x onerror=alert(1)>",
        "</td><script>",
        "<!-- all that follows",
        "[click](javascript:alert)",
        "`code` *loud* | cell\nrow",
        "&lt;b&gt;",
        "a\\",
    )
    table = Table("t", names[0], ("order", "p"), [(name, PValue(0.0001)) for name in names], [names[1]])
    text = to_markdown(table)
    assert not re.search(r"<[A-Za-z/!?]", text)
    assert len(text.splitlines()) == 1 + 1 + 2 + len(names) + 1 + 1
    rows = text.splitlines()[4:-2]
    assert all(re.fullmatch(r"\| .* \| <0\.001 \|", row) for row in rows)
    assert rows[3].startswith(r"| \[click\](javascript:alert) |")
    assert rows[4].startswith(r"| \`code\` \*loud\* \| cell row |")
    assert rows[5].startswith("| &amp;lt;b&amp;gt; |")
    assert rows[6].startswith("| a\\\\ |")
    assert "transformer_xl, p < 0.5, R&D" in escape_markdown("transformer_xl, p < 0.5, R&D")


def test_a_latex_row_does_not_take_a_name_for_an_argument():
    latex = to_latex(Table("t", "", ("order",), [("[5cm]",), ("*",), ("a\n\nb",)], []))
    assert latex.splitlines()[5:8] == [r"{[}5cm] \\", r"{*} \\", r"a b \\"]


def test_markdown_has_the_caption_a_row_each_and_the_notes():
    lines = to_markdown(TABLE).splitlines()
    assert lines[0] == TABLE.caption
    assert lines[2] == r"| order\| | top-1 (%) | p |"
    assert lines[4] == "| row, fixed | 91.23 ± 1.48 | 0.500 |"
    assert lines[-1] == "- A note in two lines."


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("transformer_xl & 5%", r"transformer\_xl \& 5\%"),
        ("#1 {a} $", r"\#1 \{a\} \$"),
        ("a\\b ^~", r"a\textbackslash{}b \textasciicircum{}\textasciitilde{}"),
        ("1 ± 2", r"1 $\pm$ 2"),
    ],
)
def test_latex_escapes(text, escaped):
    assert escape_latex(text) == escaped


def test_latex_is_a_plain_tabular_with_numbers_to_the_right():
    lines = to_latex(TABLE).splitlines()
    assert lines[1] == r"\begin{tabular}{lrr}"
    assert lines[5] == r"row, fixed & 91.23 $\pm$ 1.48 & 0.500 \\"
    assert all(line.count("&") == 2 for line in lines if line.endswith(r"\\"))
    assert r"\toprule" not in to_latex(TABLE)


def test_all_three_files_are_written_and_nothing_else(tmp_path):
    write_table(TABLE, tmp_path / "new")
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["t.csv", "t.md", "t.tex"]
    assert (tmp_path / "new" / "t.csv").read_text() == to_csv(TABLE)


def test_what_all_rows_share_is_said_once_on_the_terminal():
    rows = [("row", Number(85.8, 1.8), "digits 4x4"), ("column", Number(87.8, 1.7), "digits 4x4")]
    screen = io.StringIO()
    table = Table("orders", "", ("order", "top-1 (%)", "data"), rows, [])
    Console(file=screen, width=80).print(terminal_table(table))
    heading, _, first, second, *rest = screen.getvalue().splitlines()
    assert heading.split() == ["order", "top-1", "(%)"]
    assert first.split() == ["row", "85.80", "±", "1.80"]
    assert second.split() == ["column", "87.80", "±", "1.70"]
    assert " ".join(rest).strip() == "data digits 4x4"


def test_a_table_that_is_too_wide_for_the_terminal_breaks_between_words():
    names = (
        "order learned from column, fixed",
        "transformer_xl mini dropout=0.0 memory=16",
        "fashion-mnist 14x14",
    )
    other = ("row, fixed", "vit mini", "fashion-mnist 7x7")
    rows = [(order, model, Number(69.07, 0.4), data) for order, model, data in (names, other)]
    screen = io.StringIO()
    table = Table("t", "", ("order", "model", "top-1 (%)", "data"), rows, [])
    Console(file=screen, width=60).print(terminal_table(table))
    words = screen.getvalue().split()
    assert {word for name in (*names, *other) for word in name.split()} <= set(words)
    assert all(len(line) <= 60 for line in screen.getvalue().splitlines())


def test_a_tiny_p_value_is_not_shown_as_zero():
    assert [str(PValue(p)) for p in (0.0004, 0.0006, 0.25)] == ["<0.001", "0.001", "0.250"]
