"""Match names with regular expressions in linear time, because a rule may come from someone else's file.

`re` backtracks: "(a+)+b" takes longer than anybody waits on a name of 40 letters. RE2 does not, and knows all of the
syntax but lookarounds and back references (https://github.com/google/re2/wiki/Syntax).
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import re2

# Longer than any pattern that a person writes; judgement.
MAX_LENGTH = 1000
# Bytes that one compiled pattern may use. RE2's own default is 8 MB, and its cache holds 128 patterns.
MAX_MEMORY = 1 << 20
# A unit took 0.015 to 0.07 us for eleven patterns, seven of them made to be slow (one core of a server, RE2 1.1), so
# all rules together take at most about 1.5 seconds.
MAX_COST = 20_000_000
# What a match costs beside the characters it reads.
_COST_OF_A_MATCH = 10
# Instructions of a compiled pattern that cost as much as one: typical patterns of rules have 10 to 40.
_TYPICAL_PROGRAM = 32
# What `re` knows and RE2 does not, by its sign in the error.
_UNSUPPORTED = {r"\(\?<?[=!]": "lookarounds", r"\\[1-9]": "back references"}


class PatternError(ValueError):
    """A pattern is not valid, or matching it would take too long."""


class MatchBudget:
    """Limits the time that many patterns take on many names.

    Attributes:
        cost: units that are left.
    """

    def __init__(self, cost: int = MAX_COST) -> None:
        self.cost = cost

    def spend(self, cost: int) -> None:
        """Raise `PatternError` if the budget is used up."""
        self.cost -= cost
        if self.cost < 0:
            raise PatternError("it takes too long to match: write it more simply, or use fewer rules")


class Pattern:
    """A regular expression that matches whole names."""

    def __init__(self, text: object, budget: MatchBudget) -> None:
        if not isinstance(text, str):
            raise PatternError(f"it is a {type(text).__name__}, not a text")
        if len(text) > MAX_LENGTH:
            raise PatternError(f"it has {len(text):,} characters, more than {MAX_LENGTH:,}")
        self._compiled = _compile(text)
        self._budget = budget
        self._factor = 1 + self._compiled.programsize // _TYPICAL_PROGRAM

    def matches(self, name: str) -> bool:
        """Return True if the whole name matches."""
        self._budget.spend((len(name) + _COST_OF_A_MATCH) * self._factor)
        return self._compiled.fullmatch(name) is not None


def _compile(text: str) -> Any:
    re2, options = _re2()
    try:
        return re2.compile(text, options)
    except re2.error as error:
        message = error.args[0] if error.args else error
        reason = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
    except UnicodeError as error:
        reason = str(error)
    unsupported = next((name for sign, name in _UNSUPPORTED.items() if re.search(sign, reason)), "")
    raise PatternError(f"{reason}; {unsupported} are not supported" if unsupported else reason)


@functools.cache
def _re2() -> tuple[Any, re2.Options]:
    """Import RE2 when the first pattern is used: `import quaver` does without it."""
    import re2

    options = re2.Options()
    options.max_mem = MAX_MEMORY
    options.log_errors = False  # the error is raised, too
    return re2, options
