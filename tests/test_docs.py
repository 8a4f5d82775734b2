"""The documentation that is made from the source is up to date, and its links lead somewhere."""

from __future__ import annotations

import importlib
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


@pytest.mark.parametrize("page", ["api", "settings", "supported"])
def test_a_page_that_is_written_from_the_source_is_up_to_date(page: str) -> None:
    made = runpy.run_path(str(DOCS / f"{page}.py"))
    assert made["PAGE"].read_text(encoding="utf-8") == made["page"](), "regenerate it with `make docs`"


@pytest.mark.parametrize("room", ["quaver", *(f"quaver.{room}" for room in
                                  ("adapters", "strategies", "history", "diagnosis", "testing"))])  # fmt: skip
def test_every_public_name_stands_on_the_page(room: str) -> None:
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    for name in importlib.import_module(room).__all__:
        assert re.search(rf"^### ({re.escape(room)}\.)?{name}$", page, re.MULTILINE), f"{room}.{name}"


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", *(path.relative_to(ROOT).as_posix() for path in DOCS.rglob("*.md"))]
)
def test_links_between_pages_lead_somewhere(page: str) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", (ROOT / page).read_text(encoding="utf-8")):
        place = (ROOT / page).parent / target if target else ROOT / page
        assert place.exists(), f"{page} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", place.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = [re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings]
            assert re.sub(r"-\d+$", "", anchor) in slugs, f"{page} links to {target}#{anchor}"


def test_every_thing_of_the_documents_names_a_test_that_is_there() -> None:
    page = (DOCS / "seeds.md").read_text(encoding="utf-8")
    for path in re.findall(r"`(tests/[\w/]+\.py)`", page):
        assert (ROOT / path).exists(), f"docs/seeds.md names {path}"


def test_no_thing_of_the_documents_is_left_out() -> None:
    rows = re.findall(r"^\| ([\d, –]+) \|", (DOCS / "seeds.md").read_text(encoding="utf-8"), re.MULTILINE)  # noqa: RUF001
    numbers: list[int] = []
    for part in ", ".join(rows).split(", "):
        first, _, last = part.partition("–")  # noqa: RUF001
        numbers += range(int(first), int(last or first) + 1)
    assert sorted(numbers) == list(range(1, 118))
