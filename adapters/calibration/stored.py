"""Read a stored calibration, which may come from a damaged file, and check it."""

from __future__ import annotations

from typing import Any

from quaver.adapters.calibration.ranges import Range
from quaver.adapters.comparison import Comparison
from quaver.errors import CalibrationError
from quaver.ops import CALIBRATIONS

# The largest float32: scales are kept in that.
_LARGEST = 3.4028234e38


def stored_ranges(calibration: Any) -> dict[str, dict[str, Range]]:
    """Return the ranges of every tensor by every method.

    Raises:
        CalibrationError: for values that `StreamingCalibrator` never writes.
    """
    ranges = calibration.get("ranges") if isinstance(calibration, dict) else None
    if not isinstance(ranges, dict):
        raise CalibrationError("the calibration holds no ranges")
    return {name: _by_method(name, methods) for name, methods in ranges.items()}


def tensors_with_mask_values(calibration: Any) -> frozenset[str]:
    """Return the tensors that hold mask values beside real ones."""
    names = calibration.get("crowded_out") if isinstance(calibration, dict) else None
    return (
        frozenset(name for name in names if isinstance(name, str)) if isinstance(names, list | tuple) else frozenset()
    )


def stored_comparison(calibration: Any) -> Comparison | None:
    """Return how the float model compared with the user's own; None for a calibration before 0.3.0."""
    return Comparison.from_dict(calibration.get("comparison")) if isinstance(calibration, dict) else None


def stored_skipped_rewrites(calibration: Any) -> tuple[str, ...]:
    """Return the rewrites that the float model of a calibration is built without."""
    comparison = stored_comparison(calibration)
    return () if comparison is None else comparison.skipped


def _by_method(tensor: Any, methods: Any) -> dict[str, Range]:
    if (
        not isinstance(tensor, str)
        or not isinstance(methods, dict)
        or any(name not in methods for name in CALIBRATIONS)
    ):
        raise CalibrationError(f"the calibration of tensor {tensor!r:.80} must hold a range for each of {CALIBRATIONS}")
    return {name: _range(tensor, methods[name]) for name in CALIBRATIONS}


def _range(tensor: str, pair: Any) -> Range:
    if isinstance(pair, tuple | list) and len(pair) == 2 and all(type(value) in (float, int) for value in pair):
        low, high = pair
        if -_LARGEST <= low <= 0 <= high <= _LARGEST:  # False for NaN, too
            return float(low), float(high)
    raise CalibrationError(f"the range of tensor {tensor!r:.80} must be two numbers around 0, not {pair!r:.80}")
