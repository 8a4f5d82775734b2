"""What a result says of latencies and of conversions, for results, notebooks and the command line alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from quaver.engine.objective import MARGINS

Figures = Mapping[str, float]
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


def _taken(measured: Figures, fp32: Figures) -> str:
    spread = f"{max(measured.get('latency_spread', 0.0), MARGINS[0]) * 100:.0f} %"
    said = f"latency {milliseconds(measured['latency_ms'])} ±{spread}"
    if "batch" not in fp32 or "threads" not in fp32:
        return said
    threads = int(fp32["threads"])
    return f"{said} (batch {fp32['batch']:.0f}, {threads} thread{'' if threads == 1 else 's'})"


def _float_models(compared: float, fp32: Figures) -> str:
    optimised, given = fp32.get("latency_ms", 0.0), fp32.get("as_given_ms", 0.0)
    if optimised <= 0 or given <= 0:
        return f"fp32 ({milliseconds(compared)})"
    if given < optimised:
        return f"fp32 as given ({milliseconds(compared)}; optimised {milliseconds(compared * optimised / given)})"
    return f"fp32 optimised ({milliseconds(compared)}; as given {milliseconds(compared * given / optimised)})"
