"""Tables on stdout that lose nothing: folded in a terminal, as wide as need be in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from quaver.command import wording


def write(headings: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[str] = ()) -> None:
    """Print a table; columns named in `right` are set to the right. What cells hold is never read as markup."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in headings:
        table.add_column(Text(heading), justify="right" if heading in right else "left", overflow="fold")
    widest = sum(map(len, headings))
    for row in rows:
        cells = [wording.name(cell) for cell in row]
        widest = max(widest, sum(map(len, cells)))
        table.add_row(*(Text(cell) for cell in cells))
    width = None if sys.stdout.isatty() else 2 * widest + 20 * len(headings) + 80
    console = Console(file=sys.stdout, width=width, markup=False, highlight=False, emoji=False)
    console.print(table)
