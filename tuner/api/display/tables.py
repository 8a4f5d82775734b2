"""Print tables on stdout: folded in a terminal, and as wide as needed in a pipe unless they have a width there."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from quaver import formatting

# The colours of cells. Without a terminal, or with NO_COLOR set, there are none.
MET, NOT_MET, FP32, SLOWER, BEST = "green", "red", "yellow", "red", "bold"


def cell(text: str, style: str = "") -> Text:
    """Return a cell in a style. Its text is never interpreted as markup."""
    return Text(formatting.printable(text), style=style)


# The width of a table of sentences where nothing tells another: that of a classic terminal.
PIPE_WIDTH = 80
# Spaces between two columns.
GAP = 2


def write(
    headings: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    right: Iterable[str] = (),
    pipe_width: int | None = None,
) -> None:
    """Print a table.

    Args:
        headings: the names of the columns.
        rows: the cells.
        right: columns with figures, which are aligned right and never folded.
        pipe_width: fold the other columns in a pipe, too, to this width.
    """
    right = frozenset(right)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for heading in headings:
        figures = heading in right
        table.add_column(Text(heading), justify="right" if figures else "left", overflow="fold", no_wrap=figures)
    widest = sum(map(len, headings))
    for row in rows:
        cells = [item if isinstance(item, Text) else cell(item) for item in row]
        widest = max(widest, sum(map(len, cells)))
        table.add_row(*cells)
    width = None
    if not sys.stdout.isatty():
        width = 2 * widest + 20 * len(headings) + 80 if pipe_width is None else pipe_width
    console(width).print(table)


def line(*parts: Text | str) -> None:
    """Print a sentence of styled parts, folded between words in a terminal only."""
    whole = Text().join(part if isinstance(part, Text) else cell(part) for part in parts)
    console(None if sys.stdout.isatty() else len(whole) + 1).print(whole)


def console(width: int | None = None) -> Console:
    """Return a console that writes on stdout."""
    return Console(file=sys.stdout, width=width, markup=False, highlight=False, emoji=False)


def natural_widths(headings: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> list[int]:
    """Return the width of each column that nothing folds."""
    widths = list(map(len, headings))
    for row in rows:
        widths = [max(width, len(item)) for width, item in zip(widths, row, strict=True)]
    return widths


def columns() -> int | None:
    """Return the width of the terminal; None in a pipe, where lines may be long."""
    return console().width if sys.stdout.isatty() else None
