"""The blocks of which the report consists: paragraphs, tables, figures and so on.

A block is plain data. The template `report.html` renders each kind with the macro that the block names, and escapes
every text, because names in a run come from model files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from quaver.insights.data.summary import Fact, card_columns

if TYPE_CHECKING:
    import plotly.graph_objects as go

# Judgement: pixels of a figure without a height of its own.
DEFAULT_HEIGHT = 300


@dataclass(frozen=True)
class Paragraph:
    """A paragraph; `style` is its CSS class."""

    template: ClassVar[str] = "paragraph"
    text: str
    style: str = ""


@dataclass(frozen=True)
class Heading:
    """A heading within a section."""

    template: ClassVar[str] = "heading"
    text: str
    level: int = 3


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        heads: the titles of the columns.
        cells: the texts, row by row.
        numbers: the titles of the columns that hold numbers, which are aligned to the right.
    """

    template: ClassVar[str] = "table"
    heads: Sequence[str]
    cells: Iterable[Sequence[str]]
    numbers: Sequence[str] = ()

    @property
    def columns(self) -> list[tuple[str, str]]:
        """The title and the CSS class of each column."""
        return [(head, self._style(head)) for head in self.heads]

    @property
    def rows(self) -> Iterator[Iterator[tuple[str, tuple[str, str]]]]:
        """The cells, each with its column."""
        columns = self.columns
        return (zip(row, columns, strict=True) for row in self.cells)

    def _style(self, head: str) -> str:
        return "number" if head in self.numbers else "name" if head.startswith("op") else ""


@dataclass(frozen=True)
class Cards:
    """Facts, each in its own card."""

    template: ClassVar[str] = "cards"
    facts: Sequence[Fact]

    @property
    def columns(self) -> int:
        """The number of cards in one row."""
        return card_columns(len(self.facts))


@dataclass(frozen=True)
class FactList:
    """Facts in two columns."""

    template: ClassVar[str] = "facts"
    facts: Sequence[Fact]


@dataclass(frozen=True)
class CommandList:
    """Facts whose values are commands, each with a button that copies it."""

    template: ClassVar[str] = "commands"
    facts: Sequence[Fact]


@dataclass(frozen=True)
class Code:
    """One line of code with a button that copies it."""

    template: ClassVar[str] = "code"
    text: str


@dataclass(frozen=True)
class FigureBlock:
    """A plotly figure.

    Attributes:
        json: the figure as JSON that cannot end the script element around it.
        height: the least height in pixels, reserved until the figure is drawn.
    """

    template: ClassVar[str] = "figure"
    json: str
    height: int


@dataclass(frozen=True)
class Details:
    """Blocks that are hidden until the reader opens them."""

    template: ClassVar[str] = "details"
    title: str
    blocks: Sequence[Block]


Block = Paragraph | Heading | Table | Cards | FactList | CommandList | Code | FigureBlock | Details


@dataclass(frozen=True)
class Section:
    """One section of the report, with the blocks in it."""

    title: str
    blocks: Sequence[Block]

    @property
    def id(self) -> str:
        """The anchor of the section."""
        return self.title.lower().replace(" ", "-")


def figure_block(figure: go.Figure) -> FigureBlock:
    """Return a figure as a block of the report."""
    # Six digits are more than a figure shows, and a third of the bytes of a float.
    content = json.loads(figure.to_json(), parse_float=lambda text: float(f"{float(text):.6g}"))
    text = (
        json.dumps(content, separators=(",", ":"))
        .replace("<", "\\u003c")
        .replace("\u2028", "\\u2028")
        .replace("\u2029", "\\u2029")
    )
    return FigureBlock(text, int(figure.layout.height or DEFAULT_HEIGHT))
