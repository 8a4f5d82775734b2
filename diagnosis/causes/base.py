"""A cause: a reason in plain words, and what to do about it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from quaver.types import PlainDict, PlainMapping

Rules = PlainDict

# Kinds of causes whose remedy keeps the op quantized.
_KEEPS_QUANTIZED = ("repairable", "other_mode")


@dataclass(frozen=True, slots=True)
class Cause:
    """The reason why a quantized op is inaccurate or slow, and what to do about it.

    Attributes:
        op: the op's name.
        kind: the kind of cause, in one word.
        sentence: the reason, with figures.
        advice: what to do, in words.
        rules: the advice as `op_name_dict` for `fit`, together with the rules that are in force already. Empty if no
            rule helps, or if the user's rules forbid it.
        weight: how bad it is; the worst causes come first.
    """

    op: str
    kind: str
    sentence: str
    advice: str
    rules: PlainMapping = field(default_factory=dict)
    weight: float = 0.0

    @property
    def paste(self) -> str:
        """The rules as a keyword argument of `fit`, ready to paste."""
        return f"op_name_dict={as_python(self.rules)}" if self.rules else ""

    def __str__(self) -> str:
        rule = f": {self.paste}" if self.rules else ""
        return f"{self.op}: {self.sentence} {self.advice}{rule}"


def joined_rules(causes: Iterable[Cause]) -> Rules:
    """Return the rules of several causes together.

    Where they contradict each other, a repair or another mode wins, then fp32, then the first.
    """
    rules: Rules = {}
    causes = list(causes)
    repaired = {name for cause in causes if cause.kind in _KEEPS_QUANTIZED for name in cause.rules}
    for cause in causes:
        for name, rule in cause.rules.items():
            if name in repaired and cause.kind not in _KEEPS_QUANTIZED:
                continue
            if name not in rules or rule == "fp32" or name in repaired:
                rules[name] = rule
    return rules


def as_python(rules: PlainMapping) -> str:
    """Return rules as Python source, which is the same as JSON for rules."""
    return json.dumps(dict(rules), ensure_ascii=False)
