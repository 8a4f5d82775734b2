"""How long an evaluation may take before its process is ended."""

from __future__ import annotations

import math
import re
from typing import Any

from quaver.errors import SettingsError

# However short the evaluation of the fp32 model was, one of so many seconds does not hang yet.
LEAST = 1.0


def check_limit(value: Any) -> float | str | None:
    """`trial_timeout` as users write it: seconds, or "10x" for ten times what the fp32 model took; None is no limit."""
    if value is None:
        return None
    if isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?x", value.strip()) and float(value.strip()[:-1]) > 1:
        return value.strip()
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0:
        return float(value)
    raise SettingsError(
        f"`trial_timeout` must be seconds above 0, or a text such as '10x' for ten times what the fp32 model took, "
        f"not {value!r}"
    )


def limit(wanted: float | str | None, usual: float | None) -> float | None:
    """Seconds that an evaluation may take; `usual` is what that of the fp32 model took, if it is known."""
    if wanted is None or isinstance(wanted, float):
        return wanted
    return None if usual is None else max(float(wanted[:-1]) * usual, LEAST)
