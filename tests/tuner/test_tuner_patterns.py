"""Patterns mean what they mean to `re`, in bounded time."""

from __future__ import annotations

import random
import re

import pytest

from quaver.patterns import Effort, Pattern, PatternError

NAMES = ["", "a", "ab", "aab", "abab", "/layer.1/MatMul", "/layer.12/attn/MatMul_3", "a\nb", "Ä", "ä-1", "a" * 40, "  "]
PATTERNS = [
    "", "a", "a*", "a+b", "(ab)*", "(a|b)*", "(a|ab)(b|ab)?", ".*", ".*MatMul.*", r"/layer\.\d+/.*",
    r"/layer\.(1|12)/.+",
    "(?!/layer).*", "(?=a).*b", ".*(?<=b)", ".*(?<!b)", "[^a]*", "[a-c]{2,3}", "(a{1,2}){2}", "(?i)A*", "(?i:Ä)",
    r"\w+", r"\W*",
    r"a\b.*", "a$", "^a", "a??b", "(?s).*", "(?m)a$.b", "(a?)*", "((a*)*)*b?", "x|", r"[\d\s]*", "a.b",
    "(?P<n>a)b", "a{0}",
    "(?:a|b|)+", "(?i)[^a]b?", r"\Aa.*\Z",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_matches_what_it_matches_for_re(pattern: str) -> None:
    mine = Pattern(pattern, Effort())
    for name in NAMES:
        if len(name) < 30 or "*)*" not in pattern:
            assert mine.matches(name) == bool(re.fullmatch(pattern, name)), name


def test_three_thousand_patterns_made_by_chance_match_what_they_match_for_re() -> None:
    rng = random.Random(14)

    def some(depth: int) -> str:
        made = ""
        for _ in range(rng.randint(1, 3)):
            match rng.randrange(7 if depth else 3):
                case 0 | 1:
                    part = rng.choice(["a", "b", "ab", ".", "[ab]", "[^a]", r"\w", "-"])
                case 2:
                    part = rng.choice(["^", "$", r"\b", "a", ""])
                case 3 | 4:
                    part = f"({some(depth - 1)})"
                case 5:
                    part = f"({some(depth - 1)}|{some(depth - 1)})"
                case 6:
                    part = f"(?{rng.choice(['=', '!'])}{some(depth - 1)})"
            made += part + (rng.choice(["", "", "*", "+", "?", "{1,2}", "*?"]) if part[-1:] not in "^$b" else "")
        return made

    for _ in range(3000):
        text = some(2)
        try:
            mine = re.compile(text) and Pattern(text, Effort())
        except (re.error, PatternError):
            continue
        for name in ("", "a", "b", "ab", "ba-", "aab", "bb-ab"):
            assert mine.matches(name) == bool(re.fullmatch(text, name)), (text, name)


ENDLESS = [
    "(a+)+b", "(a*)*b", "(a|a)*b", "(a|aa)+$b", ".*.*.*.*.*.*.*.*.*.*b", "(.*)(.*)(.*)(.*)(.*)(.*)b",
    "a?" * 40 + "a" * 40 + "b",
    "(a|a)(a|a)(a|a)" * 12 + "b", "(?!(a+)+b).*c", "((a{1,99}){1,99}){1,99}b", ".*(?<=(a+)+b)",
]  # fmt: skip


@pytest.mark.parametrize("pattern", ENDLESS)
def test_a_pattern_that_never_ends_for_re_ends_here(pattern: str) -> None:
    try:
        assert not Pattern(pattern, Effort()).matches("a" * 60)
    except PatternError as error:
        assert "takes too long" in str(error)


@pytest.mark.parametrize("pattern", [r"(a)\1", "(a)?(?(1)b|c)", "(?>a+)b", "a++b", "(", "a" * 1001, 7, None])
def test_what_is_no_pattern_or_cannot_be_bounded_is_refused(pattern: object) -> None:
    with pytest.raises(PatternError):
        Pattern(pattern, Effort())
