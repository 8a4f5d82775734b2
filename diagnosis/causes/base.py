"""A reason in plain words, and what to do about it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from quaver.types import PlainDict, PlainMapping

Rules = PlainDict

# Causes that come with a way to keep an op in reduced precision.
_MENDING = ("repairable", "other_mode")


@dataclass(frozen=True, slots=True)
class Cause:
    """Why an op is bad in reduced precision.

    Attributes:
        op: its name.
        kind: which cause this is, in one word.
        sentence: the reason, with figures.
        advice: what to do, in words.
        rules: the same as `op_name_dict`, to be given to `fit`. They demand all that rules given before do; empty if
            no rule helps, or none that may be given.
        weight: how bad it is; the worst come first.
    """

    op: str
    kind: str
    sentence: str
    advice: str
    rules: PlainMapping = field(default_factory=dict)
    weight: float = 0.0

    @property
    def paste(self) -> str:
        """The rules as a keyword of `fit`."""
        return f"op_name_dict={as_python(self.rules)}" if self.rules else ""

    def __str__(self) -> str:
        rule = f": {self.paste}" if self.rules else ""
        return f"{self.op}: {self.sentence} {self.advice}{rule}"


def joined(causes: Iterable[Cause]) -> Rules:
    """The rules of several causes together. Where they differ fp32 wins, which cures every cause, else the first.

    A repair or another mode comes first of all: fp32 is for what these do not help.
    """
    rules: Rules = {}
    causes = list(causes)
    repaired = {name for cause in causes if cause.kind in _MENDING for name in cause.rules}
    for cause in causes:
        for name, rule in cause.rules.items():
            if name in repaired and cause.kind not in _MENDING:
                continue
            if name not in rules or rule == "fp32" or name in repaired:
                rules[name] = rule
    return rules


def as_python(rules: PlainMapping) -> str:
    """Rules as they are written in Python; JSON does, for what they hold."""
    return json.dumps(dict(rules), ensure_ascii=False)
