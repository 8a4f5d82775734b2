"""Find words and patterns that a stranger has to read twice, and say what to write instead.

    python tools/word_list.py                     # the whole repository; exit code 1 if anything is found
    python tools/word_list.py docs tuner/engine   # some files or folders

Markdown pages are checked, and the docstrings, comments and messages of Python files. Code in backticks and code
blocks are left alone. `make lint` runs it.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("tuner", "strategies", "adapters", "history", "diagnosis", "insights", "tests", "benchmarks", "examples", "docs", "tools")  # fmt: skip  # noqa: E501
# Judgement: readable sentences have up to 25 words; 40 leaves space for lists of names.
MAX_SENTENCE_WORDS = 40
# Models, data and environments that benchmarks have downloaded.
DOWNLOADS = ROOT / "benchmarks" / "cache"
# These files name the words that are looked for.
NOT_CHECKED = frozenset({"tools/word_list.py", "tools/readability.py", "tests/tools/test_word_list.py"})


@dataclass(frozen=True)
class Rule:
    """A pattern that is not used here.

    Attributes:
        pattern: A regular expression; case does not count.
        advice: What to write instead.
        markdown_only: True for a rule about long prose, which comments cannot break.
    """

    pattern: str
    advice: str
    markdown_only: bool = False

    def matches(self, text: str) -> Iterator[re.Match[str]]:
        """Yield each place in a text that breaks the rule."""
        return re.finditer(self.pattern, text, re.IGNORECASE)


RULES = (
    Rule(r"\bso many\b(?! \w+ that\b)", 'name the number: "at most 20 rows", "this many rows"'),
    Rule(r"\banew\b", '"again", "rewrite", "recreate"'),
    # The name of the stage is recorded in histories, so it stays.
    Rule(r"(?<!best trials again, )\bin turns\b", '"interleaved", "alternating"'),
    Rule(r"\bkept back\b|\bkeeps? back\b|\bkeeping back\b", '"held out" (data), "reserved" (time), "deferred" (work)'),
    Rule(r"\bsureness\b", '"confidence"'),
    Rule(r"\b(how|so|as|must be|are|is) sure\b(?! that it is)|\bsurer\b", '"confidence", "probability"'),
    Rule(r"\bharm(s|ful|ed)?\b", '"sensitivity", "output error"'),
    Rule(r"\bmixtures?\b(?!:)", '"mixed-precision config"'),
    Rule(r"\bas (they|it) stands?\b", '"unmodified", "as is"'),
    Rule(r"\baloud\b", '"reported", "warned about"'),
    Rule(r"\bbears? it\b", '"tolerate it"'),
    Rule(
        r"\b(if that|that|it|they|which) (does|do) not do\b|\bwill do\b(?! (so|it|that|this)\b)", '"is enough", "works"'
    ),
    Rule(
        r"(^|[.;:]\s+)who (?!(else|owns|the)\b)\w+s?\b[^?]*$|\bwho means\b",
        'name the subject: "a user who ..."',
    ),
    Rule(r"\bat most that\b|\bchance at most\b", '"maximum probability"'),
    Rule(r", by which\b", "split the sentence"),
    Rule(r"\bin the mean\b", '"on average"'),
    Rule(r"\bwant of\b", '"lack of", "a full disk", "out of memory"'),
    Rule(r"\bgoing on\b|\b(go|goes|went|gone) on\b(?! to\b)", '"continue", "in progress"'),
    Rule(
        r"\b(a|the) (line|file|name|minute|number|row|strategy|command|op|trial) an? (?!few|little|lot)\w+\b",
        '"one line per event"',
    ),
    Rule(r"\bwhat is given and differs\b", '"changed settings"'),
    Rule(r"\bnobody knows\b", '"unknown"'),
    Rule(r"\btold apart\b|\btells? apart\b", '"distinguish"'),
    Rule(r"\bsaid so\b|\bis said\b|\bare said\b|\bsays it\b", '"reported", "is in the message"'),
    Rule(
        r"\bthis house\b|\bthe house\b|\brooms?\b(?! (temperature|for)\b)|\bparcels?\b|\bdialogues?\b",
        "name the folder, module or class",
    ),
    Rule(r"\breduced (ops?|choices?|form|ones?)\b", '"quantized"'),
    Rule(r"\bloss of -\d", '"a gain of"'),
    Rule(r"\bthat\b[^.,;:()|]{1,70}\bthat\b[^.,;:()|]{1,70}\bthat\b", "three clauses with that: split the sentence"),
)


@dataclass(frozen=True)
class Text:
    """A piece of prose and the line where it begins."""

    line: int
    content: str


def markdown_texts(source: str) -> Iterator[Text]:
    """Yield the paragraphs, list items and table cells of a page, without code."""
    paragraph: list[str] = []
    first = 0
    in_code = False
    for number, line in enumerate([*source.splitlines(), ""], 1):
        stripped = line.strip()
        if stripped.startswith("```"):
            in_code = not in_code
            stripped = ""
        is_row = stripped.startswith("|")
        is_start = bool(re.match(r"([-*]|\d+\.|#+|<!--)\s", stripped)) or is_row
        if (not stripped or is_start or in_code or line.startswith("    ")) and paragraph:
            yield Text(first, " ".join(paragraph))
            paragraph = []
        if not stripped or in_code or (line.startswith("    ") and not paragraph) or stripped.startswith("<!--"):
            continue
        if is_row:
            yield from (Text(number, cell.strip()) for cell in stripped.strip("|").split("|"))
        else:
            first = first if paragraph else number
            paragraph.append(re.sub(r"^([-*]|\d+\.|#+)\s+", "", stripped))
    if paragraph:
        yield Text(first, " ".join(paragraph))


def python_texts(source: str) -> Iterator[Text]:
    """Yield the comments of a module, and its strings of three words or more."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.count(" ") > 1:
            yield from (Text(node.lineno, part) for part in node.value.split("\n\n"))
    block: list[str] = []
    first = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if block and token.start[0] != last + 1:
                yield Text(first, " ".join(block))
                block = []
            first = first if block else token.start[0]
            last = token.start[0]
            block.append(token.string.lstrip("# "))
    if block:
        yield Text(first, " ".join(block))


def without_code(text: str) -> str:
    """Return a text with code, addresses of links and quoted names replaced by one word."""
    text = re.sub(r"``.*?``|`[^`]*`", "`code`", text)
    return re.sub(r"\]\([^)]*\)", "]", text)


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a paragraph; a colon before a list of names ends one, too."""
    yield from re.split(r"(?<=[.!?:;])\s+(?=[\w`*\[\"(])", text)


def problems(path: Path) -> Iterator[str]:
    """Yield one line per problem of a file."""
    source = path.read_text(encoding="utf-8")
    is_markdown = path.suffix == ".md"
    where = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    for text in markdown_texts(source) if is_markdown else python_texts(source):
        content = without_code(text.content)
        for rule in RULES:
            for match in rule.matches(content):
                quoted = " ".join(match[0].split())[:60]
                yield f'{where}:{text.line}: "{quoted}": write {rule.advice}'
        if is_markdown:
            for sentence in sentences(content):
                count = len(re.findall(r"\b[\w'-]+\b", sentence))
                if count > MAX_SENTENCE_WORDS:
                    yield f'{where}:{text.line}: a sentence of {count} words: split "{sentence[:50]}..."'


def files(chosen: Iterable[str]) -> Iterator[Path]:
    """Yield the files to check: those named, or all pages and modules of the repository."""
    places = [ROOT / place for place in chosen] or [*ROOT.glob("*.md"), *(ROOT / folder for folder in FOLDERS)]
    for place in places:
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if path.is_relative_to(DOWNLOADS):
                continue
            if path.suffix in (".md", ".py") and path.relative_to(ROOT).as_posix() not in NOT_CHECKED:
                yield path


def main() -> int:
    """Print the problems; return 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="*", metavar="PLACE", help="a file or folder; the whole repository without")
    lines = [line for path in files(parser.parse_args().places) for line in problems(path)]
    print(*lines, sep="\n")
    print(f"{len(lines)} places to rewrite" if lines else "the words are plain")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
