"""Generated documentation is up to date, and links have a target."""

from __future__ import annotations

import importlib
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


@pytest.mark.parametrize("page", ["api", "settings", "supported", "llms"])
def test_a_generated_page_is_up_to_date(page: str) -> None:
    made = runpy.run_path(str(DOCS / f"{page}.py"))
    assert made["PAGE"].read_text(encoding="utf-8") == made["page"](), "regenerate it with `make docs`"


@pytest.mark.parametrize("package", ["quaver", *(f"quaver.{package}" for package in
                                  ("adapters", "strategies", "history", "diagnosis", "testing"))])  # fmt: skip
def test_every_public_name_is_on_the_page(package: str) -> None:
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    for name in importlib.import_module(package).__all__:
        assert re.search(rf"^### ({re.escape(package)}\.)?{name}$", page, re.MULTILINE), f"{package}.{name}"


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", *(path.relative_to(ROOT).as_posix() for path in DOCS.rglob("*.md"))]
)
def test_links_between_pages_have_a_target(page: str) -> None:
    prose = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", prose):
        place = (ROOT / page).parent / target if target else ROOT / page
        assert place.exists(), f"{page} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", place.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = [re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings]
            assert re.sub(r"-\d+$", "", anchor) in slugs, f"{page} links to {target}#{anchor}"


def test_every_feature_of_the_seed_documents_names_an_existing_test() -> None:
    page = (DOCS / "seeds.md").read_text(encoding="utf-8")
    for path in re.findall(r"`(tests/[\w/]+\.py)`", page):
        assert (ROOT / path).exists(), f"docs/seeds.md names {path}"


def test_no_feature_of_the_seed_documents_is_missing() -> None:
    rows = re.findall(r"^\| ([\d, –]+) \|", (DOCS / "seeds.md").read_text(encoding="utf-8"), re.MULTILINE)  # noqa: RUF001
    numbers: list[int] = []
    for part in ", ".join(rows).split(", "):
        first, _, last = part.partition("–")  # noqa: RUF001
        numbers += range(int(first), int(last or first) + 1)
    assert sorted(numbers) == list(range(1, 118))
