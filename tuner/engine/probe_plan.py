"""The plan of the label-free measurements: how many samples each gets.

A plan follows from the model and from the setting `effort`, never from a clock. So a busy machine plans what a quiet
one does, and both make the same trials. It is recorded in the history, and a resumed run keeps it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

from quaver.types import PlainDict

# The most samples for single ops, and for whole configurations, which differ less. Judgement.
MAX_OP_SAMPLES = 16
MAX_CONFIG_SAMPLES = 32
# The fewest samples: one alone may be empty or odd. Two, and more for the leading ops, found 40 to 100 % of the ten
# most sensitive ops on four models (benchmarks/probing.py).
MIN_OP_SAMPLES = 2
MIN_CONFIG_SAMPLES = 4
# Of all ops, this share leads after the first samples and gets more: what is left of the time, but at least this many
# times as many. benchmarks/probing.py.
LEADING_SHARE = 0.25
MIN_LEADING_OPS = 16
LEADING_FACTOR = 3
# Seconds that a quiet core may spend on either kind of error, by effort. Judgement: with "normal" both take 20 s.
SECONDS = {"low": 3.0, "normal": 10.0}
# A model with one quantized op runs from that op on: about this share of an inference (benchmarks/probing.py).
PARTIAL_SHARE = 0.6
# Whole configurations that a search compares: calibrations, repairs and the points of a front. Judgement.
CONFIGS = 60

EFFORTS = ("low", "normal", "high")
"""The values of the setting `effort`; "high" measures everything on all samples that any plan uses."""


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """The samples that label-free measurements run on.

    Attributes:
        effort: the setting that it was made for.
        first: samples for each op by itself.
        leading: samples for the ops that lead the ranking then.
        configs: samples for whole configurations.
    """

    effort: str = "high"
    first: int = MAX_OP_SAMPLES
    leading: int = MAX_OP_SAMPLES
    configs: int = MAX_CONFIG_SAMPLES

    def leading_ops(self, ops: int) -> int:
        """Return how many of these ops get more samples than the others."""
        return max(MIN_LEADING_OPS, round(LEADING_SHARE * ops))

    def to_dict(self) -> PlainDict:
        """Return the plan as builtins."""
        return asdict(self)

    @classmethod
    def from_dict(cls, noted: Any) -> Self | None:
        """Return the plan that was noted; None if there is none, or if it is damaged."""
        names = [field.name for field in fields(cls)]
        if not isinstance(noted, dict) or sorted(noted) != sorted(names) or not isinstance(noted["effort"], str):
            return None
        counts = [noted[name] for name in names[1:]]
        return cls(**noted) if all(isinstance(count, int) and count > 0 for count in counts) else None


def make_plan(effort: str, ops: int, seconds: float) -> ProbePlan:
    """Plan the samples of label-free measurements.

    Args:
        effort: one of `EFFORTS`.
        ops: how many ops are measured by themselves.
        seconds: what the float model should take for one sample on one core, by its arithmetic.
    """
    if effort not in SECONDS:
        return ProbePlan(effort)
    runs = SECONDS[effort] / seconds
    op_runs, ops = runs / PARTIAL_SHARE, max(ops, 1)
    configs = min(max(int(runs / CONFIGS), MIN_CONFIG_SAMPLES), MAX_CONFIG_SAMPLES)
    if op_runs >= MAX_OP_SAMPLES * ops:
        return ProbePlan(effort, configs=configs)
    plan = ProbePlan(effort, max(int(op_runs / (2 * ops)), MIN_OP_SAMPLES), configs=configs)
    leading = int((op_runs - plan.first * ops) / plan.leading_ops(ops))
    return replace(plan, leading=min(max(leading, LEADING_FACTOR * plan.first), MAX_OP_SAMPLES))
