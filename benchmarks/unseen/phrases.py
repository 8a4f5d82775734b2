"""Phrases in many languages: Django's translations."""

from __future__ import annotations

import random
import re

from benchmarks.models.filetypes import DJANGO


def phrases(locale: str) -> list[str]:
    """All translations of one line without placeholders, in a random order that is always the same."""
    files = sorted(DJANGO.fetch().rglob(f"{locale}/LC_MESSAGES/*.po"))
    texts = [text for path in files for text in re.findall(r'^msgstr "(.+)"$', path.read_text(encoding="utf-8"), re.M)]
    chosen = sorted({text for text in texts if not re.search(r"[%{\\<]", text)})
    random.Random(0).shuffle(chosen)
    return chosen


def pieces(locale: str, alphabet: str, count: int, longest: int, seed: int) -> list[str]:
    """Return parts of the phrases that an alphabet can write, of 3 or more characters without spaces."""
    chance = random.Random(seed)
    known = set(alphabet)
    texts = [
        part for text in phrases(locale) for part in re.split(r"\s+", text) if len(part) >= 3 and set(part) <= known
    ]
    found: list[str] = []
    while len(found) < count:
        text = chance.choice(texts)
        size = chance.randint(3, longest)
        start = chance.randint(0, max(0, len(text) - size))
        found.append(text[start : start + size])
    return [text for text in found if len(text) >= 3]
