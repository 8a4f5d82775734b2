"""A pattern matches what it matches for `re`, in linear time."""

from __future__ import annotations

import random
import re
import time

import pytest

from quaver.patterns import MatchBudget, Pattern, PatternError

NAMES = ["", "a", "ab", "aab", "abab", "/layer.1/MatMul", "/layer.12/attn/MatMul_3", "a\nb", "Ä", "ä-1", "a" * 40, "  "]
PATTERNS = [
    "", "a", "a*", "a+b", "(ab)*", "(a|b)*", "(a|ab)(b|ab)?", ".*", ".*MatMul.*", r"/layer\.\d+/.*",
    r"/layer\.(1|12)/.+",
    "[^a]*", "[a-c]{2,3}", "(a{1,2}){2}", "(?i)A*", "(?i:Ä)",
    r"\w+", r"\W*",
    r"a\b.*", "a$", "^a", "a??b", "(?s).*", "(?m)a$.b", "(a?)*", "((a*)*)*b?", "x|", r"[\d\s]*", "a.b",
    "(?P<n>a)b", "a{0}",
    "(?:a|b|)+", "(?i)[^a]b?", r"\Aa.*",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_matches_the_same_names_as_in_re(pattern: str) -> None:
    compiled = Pattern(pattern, MatchBudget())
    flags = re.ASCII if "\\" in pattern else 0  # to RE2, \\w and \\b mean ASCII
    for name in NAMES:
        if len(name) < 30 or "*)*" not in pattern:
            assert compiled.matches(name) == bool(re.fullmatch(pattern, name, flags)), name


def test_three_thousand_random_patterns_match_the_same_names_as_in_re() -> None:
    rng = random.Random(14)

    def some(depth: int) -> str:
        made = ""
        for _ in range(rng.randint(1, 3)):
            match rng.randrange(6 if depth else 3):
                case 0 | 1:
                    part = rng.choice(["a", "b", "ab", ".", "[ab]", "[^a]", r"\w", "-"])
                case 2:
                    part = rng.choice(["^", r"\b", "a", ""])
                case 3 | 4:
                    part = f"({some(depth - 1)})"
                case 5:
                    part = f"({some(depth - 1)}|{some(depth - 1)})"
            made += part + (rng.choice(["", "", "*", "+", "?", "{1,2}", "*?"]) if part[-1:] not in "^$b" else "")
        return made

    for _ in range(3000):
        text = some(2)
        try:
            compiled = re.compile(text) and Pattern(text, MatchBudget())
        except (re.error, PatternError):
            continue
        for name in ("", "a", "b", "ab", "ba-", "aab", "bb-ab"):
            assert compiled.matches(name) == bool(re.fullmatch(text, name)), (text, name)


ENDLESS = [
    "(a+)+b", "(a*)*b", "(a|a)*b", "(a|aa)+$b", ".*.*.*.*.*.*.*.*.*.*b", "(.*)(.*)(.*)(.*)(.*)(.*)b",
    "a?" * 40 + "a" * 40 + "b",
    "(a|a)(a|a)(a|a)" * 12 + "b",
]  # fmt: skip


@pytest.mark.parametrize("pattern", ENDLESS)
def test_a_pattern_that_backtracks_for_ever_in_re_is_matched_at_once(pattern: str) -> None:
    begin = time.process_time()
    assert not Pattern(pattern, MatchBudget()).matches("a" * 60)
    assert time.process_time() - begin < 0.5


@pytest.mark.parametrize(("pattern", "name"), [(".*a.{900}", "ab" * 50_000), ("(.*a){900}", "a" * 200_000)])
def test_a_slow_pattern_is_refused(pattern: str, name: str) -> None:
    begin = time.process_time()
    with pytest.raises(PatternError, match="takes too long to match"):
        compiled = Pattern(pattern, MatchBudget())
        for _ in range(100):
            compiled.matches(name)
    assert time.process_time() - begin < 20


def test_a_budget_counts_all_patterns_and_names() -> None:
    budget = MatchBudget(cost=100)
    assert Pattern("a.*", budget).matches("abc") and not Pattern("b.*", budget).matches("abc")
    with pytest.raises(PatternError, match="use fewer rules"):
        Pattern("c.*", budget).matches("a" * 200)


@pytest.mark.parametrize(
    "pattern",
    [r"(a)\1", "(a)?(?(1)b|c)", "(?>a+)b", "a++b", "(?!a).*", ".*(?<=b)", "((a{1,99}){1,99}){1,99}b", "(", "a" * 1001,
     "\ud800", 7, None],
)  # fmt: skip
def test_a_pattern_that_is_not_valid_or_not_supported_is_refused(pattern: object) -> None:
    with pytest.raises(PatternError):
        Pattern(pattern, MatchBudget())


@pytest.mark.parametrize(
    ("pattern", "name"),
    [("(?!a).*", "lookarounds"), (".*(?=a)", "lookarounds"), (".*(?<=b)", "lookarounds"), (".*(?<!b)", "lookarounds"),
     (r"(a)\1", "back references")],
)  # fmt: skip
def test_the_error_names_what_is_not_supported(pattern: str, name: str) -> None:
    with pytest.raises(PatternError, match=f"{name} are not supported"):
        Pattern(pattern, MatchBudget())
