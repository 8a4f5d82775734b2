"""The comparison as Markdown: everything, and the summary that README shows."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.comparison.rows import Row

# The tools of the summary, and the heads of their columns.
SUMMARY_TOOLS = {
    "quaver auto": "quaver `auto`",
    "NNCF": "NNCF",
    "NC basic": "Neural Compressor `basic`",
    "ORT default": "`quantize_static`",
    "ORT per-channel": "`quantize_static`, per-channel",
}
_HEAD = (
    "tool", "met", "evaluations: first success / all", "score", "held out", "fp32 ops", "size", "latency, 1 thread",
    "latency, 2 threads", "seconds", "MB", "calibration", "ended",
)  # fmt: skip


LEGEND = """\
All tools have the same criterion: at most 1 % worse than fp32 on the samples that the tool tunes on. A cell of the
summary holds the latency of the final model relative to fp32 (one thread, batch 1), its score on held-out samples, and
the number of evaluations to the first success, the fp32 baseline included.
quaver's defaults were chosen with some of these models in view. The defaults of the other tools were not.

- **met**, **score**, **held out**: of the final model file, measured in the same runtime for all tools. The held-out
  samples are as many as the tuning samples, and no tool saw them.
- **evaluations**: to the first score within the criterion that the tool saw, and in total. "By samples" counts a call
  over a part of the samples as that part.
- **fp32 ops**: convolutions and matrix products that run in fp32 in the graph that the runtime executes.
- **size**, **latency**: relative to fp32. Latency is the median and the quartiles over interleaved rounds.
  One thread is processor time. Two threads are wall-clock time, which is noisy on a machine with two cores.
- **seconds**, **MB**: time and peak memory of the tool without eval_func.
- **calibration**: time from the first batch to the request after the last one, relative to plain inference, and the
  number of passes if there is more than one.
"""


def page(rows: Sequence[Row], machine: Mapping[str, str], versions: Mapping[str, Mapping[str, str]]) -> str:
    """All of it."""
    where = ", ".join(f"{key} {value}" for key, value in machine.items())
    tools = "\n".join(
        f"- {name}: {', '.join(f'{package} {version}' for package, version in packages.items())}"
        for name, packages in versions.items()
    )
    parts = ["# Comparison", summary(rows), LEGEND.rstrip(), f"Machine: {where}.", tools, full(rows)]
    return "\n\n".join(parts)


def full(rows: Sequence[Row]) -> str:
    """A table for each model."""
    parts = []
    for setup, group in itertools.groupby(rows, key=lambda row: row.setup):
        of_setup = list(group)
        first = of_setup[0]
        parts += [f"### {setup}", f"fp32 scores {first.fp32_score:.4f}, held out {first.fp32_held_out:.4f}.", ""]
        parts[-2:] = [parts[-2], "", _markdown(_HEAD, [_cells(row) for row in of_setup]), ""]
    return "\n".join(parts)


def summary(rows: Sequence[Row]) -> str:
    """One line for each model: evaluations to the first success, latency and held-out score of what comes out."""
    known = {(row.setup, row.tool): row for row in rows}
    setups = list(dict.fromkeys(row.setup for row in rows))
    fp32 = {row.setup: f"{row.fp32_held_out:.3f}" for row in reversed(rows)}  # that of the first row
    lines = [[setup, fp32[setup], *(_brief(known.get((setup, tool))) for tool in SUMMARY_TOOLS)] for setup in setups]
    return _markdown(("model", "fp32 score, held-out", *SUMMARY_TOOLS.values()), lines)


def changes(old: Sequence[dict[str, Any]], rows: Sequence[Row]) -> list[str]:
    """What is not as it was at an earlier start: counts must be equal, latencies within a tenth."""
    before = {(row["setup"], row["tool"]): row for row in old}
    lines = []
    for row in rows:
        known = before.get((row.setup, row.tool))
        if known is None:
            continue
        lines += [
            f"{row.setup}, {row.tool}: {count} was {known[count]}, is {getattr(row, count)}"
            for count in ("ended", "evaluations", "first_success", "fp32_ops")
            if known[count] != getattr(row, count)
        ]
        if known["latency_1"] and row.latency_1 and abs(row.latency_1[1] / known["latency_1"][1] - 1) > 0.1:
            lines.append(f"{row.setup}, {row.tool}: latency was {known['latency_1'][1]}, is {row.latency_1[1]}")
    return lines


def _brief(row: Row | None) -> str:
    if row is None:
        return "-"
    if row.met and row.latency_1:
        score = "" if row.held_out is None else f", score {row.held_out:.3f}"
        return f"{row.latency_1[1]:.2f}x latency{score}, {row.first_success} evals"
    if row.score is not None:
        count = f", {row.first_success} evals" if row.first_success else ""  # met in the tool's own runtime
        return f"not met: {row.score:.3f}, fp32 {row.fp32_score:.3f}{count}"
    return f"{row.ended}, {row.evaluations} evals" if row.ended != "crashed" else "crashed"


def _cells(row: Row) -> list[str]:
    return [
        row.tool,
        "yes" if row.met else "**no**",
        f"{row.first_success or '-'} / {row.evaluations}{_partial(row)}",
        "-" if row.score is None else f"{row.score:.4f}",
        "-" if row.held_out is None else f"{row.held_out:.4f}",
        "-" if row.fp32_ops is None else f"{row.fp32_ops} of {row.compute_ops}",
        "-" if row.size is None else f"{row.size:.2f}",
        _spread(row.latency_1),
        _spread(row.latency_2),
        f"{row.seconds:.0f}",
        f"{row.memory}",
        "-"
        if row.calibration is None
        else f"{row.calibration:.1f}x" + f" · {row.calibrations}" * (row.calibrations > 1),
        f"{row.ended}{': ' * bool(row.message)}{_escaped(row.message)}",
    ]


def _partial(row: Row) -> str:
    """Calls over a part of the samples, if there were any."""
    return f" ({row.samples:.1f} by samples)" if abs(row.samples - row.evaluations) > 0.05 else ""


def _spread(quartiles: tuple[float, float, float] | None) -> str:
    return "-" if quartiles is None else "{1:.2f} ({0:.2f} to {2:.2f})".format(*quartiles)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
