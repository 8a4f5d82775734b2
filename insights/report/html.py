"""HTML from plain text: whatever is put in is escaped, so that nothing of it is obeyed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


class Html(str):
    """A text that is HTML already."""

    __slots__ = ()


def text(content: str) -> Html:
    """A text as it stands."""
    return Html(escape(content))


def element(tag: str, *children: Html | str, **attributes: str) -> Html:
    """An element. Children that are not HTML already are escaped; so are attributes. `class_` stands for `class`."""
    listed = "".join(f' {name.rstrip("_").replace("_", "-")}="{escape(value)}"' for name, value in attributes.items())
    return Html(f"<{tag}{listed}>{''.join(map(_as_html, children))}</{tag}>")


def _as_html(child: str) -> str:
    return child if isinstance(child, Html) else escape(child)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()) -> Html:
    """A table; the columns named in `right` hold numbers."""
    sides = ["number" if head in right else "name" if head.startswith("op") else "" for head in heads]
    top = element("tr", *(element("th", text(head), class_=side) for head, side in zip(heads, sides, strict=True)))
    body = [
        element("tr", *(element("td", text(cell), class_=side) for cell, side in zip(row, sides, strict=True)))
        for row in rows
    ]
    return element("div", element("table", element("thead", top), element("tbody", *body)), class_="scroll")
