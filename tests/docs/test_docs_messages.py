"""The page that explains messages quotes messages that exist."""

from __future__ import annotations

import ast
import re

import pytest
from code_blocks import ROOT, text_of

QUOTED = re.findall(r"^### (?:`` (.*?) ``|`(.*?)`)$", text_of("docs/troubleshooting.md"), re.MULTILINE)
HEADINGS = [one or other for one, other in QUOTED]
ROOMS = ("adapters", "diagnosis", "history", "insights", "strategies", "tuner")


@pytest.fixture(scope="module")
def sentences() -> list[str]:
    """All texts of the source, with `…` for what is filled in."""
    found = []
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    parts = (part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
                    found.append("".join(map(str, parts)))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(node.value)
    return found


def test_messages_are_explained() -> None:
    assert len(HEADINGS) > 25


@pytest.mark.parametrize("heading", HEADINGS)
def test_a_message_is_one_that_quaver_says(heading: str, sentences: list[str]) -> None:
    said = ".*".join(re.escape(part) for part in heading.split("…"))
    assert any(re.search(said, sentence, re.DOTALL) for sentence in sentences), heading
