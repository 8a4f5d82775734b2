"""The target budget of a model: the latency, the file size and the bits of a weight that it may have."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from quaver.errors import SettingsError
from quaver.trial import Trial
from quaver.types import PlainMapping, PlainValue

# The bits of a weight of the fp32 model.
FP32_BITS = 32.0
# Judgement: a size between 1, the whole fp32 file, and this number of bytes is a mistake.
MIN_BYTES = 1024
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]*|%)", re.IGNORECASE)


def parse_size(value: PlainValue) -> float | None:
    """Return a file size as a fraction of fp32's (up to 1) or in bytes, from a number or a text such as "130MB".

    Raises:
        SettingsError: it is neither.
    """
    if value is None:
        return None
    number: object = value
    if isinstance(value, str) and (match := _SIZE.fullmatch(value.strip())) is not None:
        amount, unit = float(match[1]), match[2].lower()
        if unit == "%":
            number = amount / 100
        elif unit in _UNITS:
            number = amount * _UNITS[unit]
            if unit and number < MIN_BYTES:
                number = None
    if isinstance(number, int | float) and not isinstance(number, bool) and (0 < number <= 1 or number >= MIN_BYTES):
        return number if number <= 1 else float(int(number))
    raise SettingsError(
        f"`max_size` must be a fraction of the fp32 model's file, above 0 and up to 1, or a number of bytes such as "
        f"130_000_000 or '130MB', not {value!r}; 60 % is 0.6"
    )


@dataclass(frozen=True, slots=True)
class TargetBudget:
    """A budget for the model, in place of an accuracy criterion. At least one of its limits is set.

    Attributes:
        latency: the maximum latency of one inference, as a fraction of the fp32 model's.
        size: the maximum file size: up to 1 a fraction of the fp32 model's, above that a number of bytes.
        predicted: True if the latency is the one predicted for another machine.
        bits: the maximum mean bits of a weight, the whole file counted; the fp32 model has 32.
    """

    latency: float | None = None
    size: float | None = None
    predicted: bool = False
    bits: float | None = None

    def __post_init__(self) -> None:
        if self.latency is not None and not _is_number(self.latency, 1):
            raise SettingsError(
                f"`max_latency` must be a fraction of the fp32 model's, above 0 and up to 1, not {self.latency!r}; "
                "60 % is 0.6"
            )
        object.__setattr__(self, "size", parse_size(self.size))
        if self.bits is not None and not _is_number(self.bits, FP32_BITS):
            raise SettingsError(
                f"`max_bits` must be a number of bits above 0 and up to 32, which fp32 has, not {self.bits!r}"
            )
        if self.latency is None and self.size is None and self.bits is None:
            raise SettingsError(
                'objective="accuracy" looks for the most accurate model within a budget: give '
                "`max_latency`, `max_size` or `max_bits`"
            )

    @classmethod
    def from_settings(cls, settings: PlainMapping) -> TargetBudget | None:
        """Return the budget of a run from its recorded settings; None if it has a criterion instead."""
        try:
            return cls(
                settings.get("max_latency"),
                settings.get("max_size"),
                settings.get("cost_model") is not None,
                settings.get("max_bits"),
            )
        except SettingsError:
            return None

    def size_limit(self, fp32_size: int) -> float | None:
        """Return the maximum size as a fraction of the fp32 model's bytes; None if size is not limited."""
        limits = [] if self.bits is None else [self.bits / FP32_BITS]
        if self.size is not None:
            limits.append(self.size if self.size <= 1 else self.size / max(fp32_size, 1))
        return min(limits, default=None)

    def relative_to(self, fp32_size: int) -> TargetBudget:
        """Return the same budget with the size as one fraction of the fp32 model's bytes."""
        limit = self.size_limit(fp32_size)
        return self if limit is None else replace(self, size=min(limit, 1.0), bits=None)

    def excess(self, trial: Trial, fp32_size: int) -> float:
        """Return the used part of the budget, the larger of latency and size; infinite if it is not known."""
        used = 0.0
        if self.latency is not None:
            name = "predicted_latency" if self.predicted else "latency"
            used = trial.measured.get(name, math.inf) / self.latency
        limit = self.size_limit(fp32_size)
        if limit is not None:
            size = trial.model_size / fp32_size if trial.model_size and fp32_size else math.inf
            used = max(used, size / limit)
        return used

    def is_kept(self, trial: Trial, fp32_size: int) -> bool:
        """Return True if a trial is within the budget."""
        if self.size is not None and self.size > 1 and trial.model_size > self.size:
            return False  # bytes are compared as they are
        return self.excess(trial, fp32_size) <= 1.0

    def __str__(self) -> str:
        named = "predicted latency" if self.predicted else "latency"
        limits = [] if self.latency is None else [f"{named} of at most {self.latency:.3g} of fp32"]
        if self.size is not None:
            size = f"{self.size:.3g} of fp32" if self.size <= 1 else f"{self.size / 1e6:,.4g} MB"
            limits.append(f"size of at most {size}")
        if self.bits is not None:
            limits.append(f"at most {self.bits:.3g} bits a weight")
        return " and ".join(limits)


def _is_number(value: object, largest: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= largest
