"""The code blocks of the pages. A block is run, or marked as not run, or output of a program."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"))
)
LANGUAGES = ("python", "sh", "yaml", "toml")
# Programs of other languages, which tests/deployment runs. Their blocks are marked as not run.
PROGRAMS = ("cpp", "csharp", "java", "js", "html", "dockerfile")
# A block without a language, or of this one, is output of a program.
OUTPUT = ("", "text")
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)$")
_NOT_RUN = re.compile(r"^ *<!-- not run: (?P<reason>.+) -->$")
_WHOLE_PAGE = re.compile(r"^<!-- no block of this page is run: (?P<reason>.+) -->$", re.MULTILINE)
_SCENE = re.compile(r"^<!-- scene: (?P<name>\w+) -->$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block, with the line number of its first line."""

    page: str
    line: int
    language: str
    code: str
    not_run: str | None

    @property
    def is_output(self) -> bool:
        """Return True if the block shows output of a program."""
        return self.language in OUTPUT

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def text_of(page: str) -> str:
    """Return the text of a page."""
    return (ROOT / page).read_text(encoding="utf-8")


def scene_of(page: str) -> str:
    """Return the scene that a page selects with `<!-- scene: keras -->`; the default is "onnx"."""
    match = _SCENE.search(text_of(page))
    return match["name"] if match else "onnx"


def blocks(page: str) -> Iterator[Block]:
    """Yield all blocks of a page."""
    text = text_of(page)
    everywhere = _WHOLE_PAGE.search(text)
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        fence = _FENCE.match(lines[number])
        if fence is None:
            number += 1
            continue
        end = next(at for at in range(number + 1, len(lines)) if lines[at] == fence["indent"] + "```")
        marker = _NOT_RUN.match(lines[number - 1]) if number else None
        reason = (marker or everywhere or {"reason": None})["reason"]
        code = textwrap.dedent("\n".join(lines[number + 1 : end]))
        yield Block(page, number + 2, fence["language"], code, reason)
        number = end + 1


def commands(block: Block) -> Iterator[list[str]]:
    """Yield the commands of a shell block as words, without comments."""
    for line in block.code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            yield words
