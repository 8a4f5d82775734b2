"""The word list finds what a stranger reads twice, and leaves code and plain sentences alone."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

TOOL = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "word_list.py"))


def problems(folder: Path, text: str, name: str = "page.md") -> list[str]:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return [line.split(": ", 1)[1] for line in TOOL["problems"](path)]


@pytest.mark.parametrize(
    "text",
    [
        "The page is written anew.",
        "Who means it adds a flag.",
        "At most so many rows are printed.",
        "Most ops bear it.",
        "A line an event.",
        "The search goes on.",
        "It measures the models in turns.",
    ],
)
def test_a_word_of_the_list_is_found_with_its_replacement(text: str, tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, text)
    assert ": write " in problem


@pytest.mark.parametrize(
    "text",
    [
        "The run goes on to the next trial.",
        "Call `anew()`.",
        "```python\nanew = 1  # so many\n```",
        "This is harmless.",
        "See [the page](anew.md).",
    ],
)
def test_plain_sentences_and_code_are_left_alone(text: str, tmp_path: Path) -> None:
    assert not problems(tmp_path, text)


def test_a_sentence_over_the_limit_is_found_in_a_page(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, " ".join(["word"] * (TOOL["MAX_SENTENCE_WORDS"] + 1)) + ".")
    assert "41 words" in problem
    assert not problems(tmp_path, "Short. " + " ".join(["word"] * 30) + ".\n\n| " + " ".join(["cell"] * 30) + " |")


def test_docstrings_comments_and_messages_of_a_module_are_checked(tmp_path: Path) -> None:
    source = '"""Do it anew."""\n\nanew = 1\n# Who means it says so.\nmessage = f"{anew} is written aloud"\n'
    assert len(problems(tmp_path, source, "module.py")) >= 3
