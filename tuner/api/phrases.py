"""What a result says of latencies and of conversions, for results, notebooks and the command line alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from quaver.engine.objective import MARGINS

Figures = Mapping[str, float]
# No batch has more samples, and no machine more threads.
MAX_COUNT = 1e9
# The name of the note in a history that says what was converted when the model was read.
CONVERSIONS = "conversions"
# What the phrase about the latency says in one.
LATENCY = ("latency", "latency_ms", "latency_spread", "as_given_ms", "batch", "threads")


def latency_phrase(measured: Figures, fp32: Figures) -> str:
    """The latency of a trial beside that of the float models; empty if it was not measured.

    The float model's is the one that was measured in turns with it. The other float model's, recorded once, is given
    relative to that.
    """
    if "latency" not in measured:
        return ""
    ratio = measured["latency"]
    if "latency_ms" not in measured or ratio <= 0:  # of a version that took the ratio alone
        return f"latency {ratio:.2f} of fp32"
    compared = measured["latency_ms"] / ratio
    return f"{_taken(measured, fp32)}, {ratio:.2f} of {_float_models(compared, fp32)}"


def predicted_phrase(measured: Figures, target: str) -> str:
    """The latency that is predicted for another machine; empty if none is."""
    if "predicted_latency" not in measured:
        return ""
    taken = milliseconds(measured["predicted_ms"])
    return f"predicted for {target or 'the target'}: {taken}, {measured['predicted_latency']:.2f} of fp32 there"


def fp32_phrase(fp32: Figures) -> str:
    """The latency of the float model, and of the one given if that is another; empty if it was not measured."""
    if "latency_ms" not in fp32:
        return ""
    given = f"; as given {milliseconds(fp32['as_given_ms'])}" if "as_given_ms" in fp32 else ""
    return f"{_taken(fp32, fp32)}{' as optimised' if given else ''}{given}"


def milliseconds(value: float) -> str:
    """A time in three digits, given in milliseconds; in microseconds where it is less than a tenth of one."""
    if 0 < value < 0.0995:
        return f"{value * 1e3:.3g} µs"
    return f"{value:.0f} ms" if value >= 100 else f"{value:.3g} ms"


def converted_phrase(conversions: Iterable[str]) -> str:
    """What was converted when the model was read; empty if nothing was."""
    told = ", ".join(conversions)
    return f"the model was converted from {told}" if told else ""


def conversions(notes: Mapping[str, Any]) -> tuple[str, ...]:
    """What was converted, from the notes of a history."""
    noted = notes.get(CONVERSIONS)
    return tuple(one for one in noted if isinstance(one, str)) if isinstance(noted, list | tuple) else ()


def timing_setup(fp32: Figures) -> str:
    """Return what latencies were measured with, "batch 1, 2 threads"; empty if that is not recorded."""
    batch, threads = fp32.get("batch", 0.0), fp32.get("threads", 0.0)
    if not (1 <= batch < MAX_COUNT and 1 <= threads < MAX_COUNT):  # a file may come from anywhere
        return ""
    return f"batch {batch:.0f}, {threads:.0f} thread{'' if threads == 1 else 's'}"


def _taken(measured: Figures, fp32: Figures) -> str:
    spread = f"{max(measured.get('latency_spread', 0.0), MARGINS[0]) * 100:.0f} %"
    said = f"latency {milliseconds(measured['latency_ms'])} ±{spread}"
    setup = timing_setup(fp32)
    return f"{said} ({setup})" if setup else said


def _float_models(compared: float, fp32: Figures) -> str:
    optimised, given = fp32.get("latency_ms", 0.0), fp32.get("as_given_ms", 0.0)
    if optimised <= 0 or given <= 0:
        return f"fp32 ({milliseconds(compared)})"
    if given < optimised:
        return f"fp32 as given ({milliseconds(compared)}; optimised {milliseconds(compared * optimised / given)})"
    return f"fp32 optimised ({milliseconds(compared)}; as given {milliseconds(compared * given / optimised)})"
