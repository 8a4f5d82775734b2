"""The page that explains messages quotes messages that exist."""

from __future__ import annotations

import ast
import re

import pytest
from code_blocks import ROOT, text_of

QUOTED = re.findall(r"^### (?:`` (.*?) ``|`(.*?)`)$", text_of("docs/troubleshooting.md"), re.MULTILINE)
HEADINGS = [long or short for long, short in QUOTED]
FOLDERS = ("adapters", "diagnosis", "history", "insights", "strategies", "tuner")


@pytest.fixture(scope="module")
def sentences() -> list[str]:
    """Return all strings of the source, with `…` for inserted values."""
    strings = []
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    parts = (part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
                    strings.append("".join(map(str, parts)))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    strings.append(node.value)
    return strings


def test_messages_are_explained() -> None:
    assert len(HEADINGS) > 25


@pytest.mark.parametrize("heading", HEADINGS)
def test_a_message_of_the_page_exists_in_the_source(heading: str, sentences: list[str]) -> None:
    pattern = ".*".join(re.escape(part) for part in heading.split("…"))
    assert any(re.search(pattern, sentence, re.DOTALL) for sentence in sentences), heading
