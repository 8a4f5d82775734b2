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
    assert made["PAGE"].read_text(encoding="utf-8") == made["page"](), "write it anew with `make docs`"


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
