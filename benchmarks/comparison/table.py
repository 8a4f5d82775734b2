"""The comparison as Markdown: the summary that README shows, the tables of the docs, and a page with everything."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, geometric_mean
from typing import Any

from benchmarks import result_files
from benchmarks.comparison.rows import Row
from benchmarks.comparison.setups import SETUPS
from benchmarks.peers.launch import TOOLS

_OPENVINO = ("openvino", "openvino bf16")
_STATIC = tuple(f"ORT static{way}" for way in (", default", "", ", per channel", ", weights", ", weights, per channel"))
# The columns of the summary: the tools of each, of which the fastest that meets the criterion counts, and the runtimes.
COLUMNS: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "ONNX Runtime: quaver": (("quaver",), ("onnxruntime",)),
    "`quantize_static`, best of 4": (_STATIC, ("onnxruntime",)),
    "`quantize_dynamic`": (("ORT dynamic",), ("onnxruntime",)),
    "Neural Compressor `basic`": (("NC basic",), ("onnxruntime",)),
    "OpenVINO: quaver": (("quaver for OpenVINO",), _OPENVINO),
    "bf16 alone": (("OpenVINO bf16",), _OPENVINO),
    "`nncf.quantize`, best of 2 presets": (("NNCF quantize", "NNCF quantize, mixed"), _OPENVINO),
    "NNCF accuracy control": (("NNCF accuracy control",), _OPENVINO),
}
_HEAD = (
    "tool", "runs in", "met", "evaluations: first success / all", "score", "held out", "float ops", "size", "latency",
    "seconds", "MB", "calibration", "ended",
)  # fmt: skip


LEGEND = """\
All tools have the same criterion: at most 1 % worse than fp32 on the samples that the tool tunes on, with the same
calibration samples and the same eval_func. A cell of the summary holds the latency of the final model relative to fp32
in ONNX Runtime (one thread, batch 1), its score on held-out samples, and the number of evaluations to the first
success, the fp32 baseline included. quaver's defaults were chosen with some of these models in view; models marked *
were not looked at before. The defaults of the other tools were not chosen with any of them in view.

- **met**, **score**, **held out**: of the final model file, measured in the runtime of the row. The held-out samples
  are as many as the tuning samples, and no tool saw them.
- **runs in**: a tool has a row for each runtime that opens its model if it reached the criterion in its own.
- **evaluations**: to the first score within the criterion that the tool saw, and in total. "By samples" counts a call
  over a part of the samples as that part.
- **float ops**: convolutions and matrix products that run in float in the graph that the runtime executes.
- **size**, **latency**: relative to fp32 in ONNX Runtime. Latency is processor time on one thread, the median and the
  quartiles over interleaved rounds. OpenVINO runs with one stream, the latency hint, fixed shapes and an explicit
  precision.
- **seconds**, **MB**: processor time and peak memory of the tool without eval_func.
- **calibration**: time from the first batch to the request after the last one, relative to plain inference, and the
  number of passes if there is more than one.
"""


def read(name: str = "comparison") -> list[Row]:
    """Return the rows of a result file, in the order of models and tools."""
    rows = [Row(**row) for row in result_files.rows_of(name)]
    setups, tools = list(SETUPS), list(TOOLS)
    return sorted(rows, key=lambda row: (setups.index(row.setup), tools.index(row.tool), row.runtime))


def page(rows: Sequence[Row], machine: Mapping[str, str], versions: Mapping[str, Mapping[str, str]]) -> str:
    """Return all of it."""
    where = ", ".join(f"{key} {value}" for key, value in machine.items())
    tools = "\n".join(
        f"- {name}: {', '.join(f'{package} {version}' for package, version in packages.items())}"
        for name, packages in versions.items()
    )
    parts = ["# Comparison", summary(rows), LEGEND.rstrip(), f"Machine: {where}.", tools, full(rows)]
    return "\n\n".join(parts)


def full(rows: Sequence[Row]) -> str:
    """Return a table for each model."""
    parts = []
    for setup, group in itertools.groupby(rows, key=lambda row: row.setup):
        of_setup = list(group)
        first = of_setup[0]
        parts += [f"### {setup}", "", f"fp32 scores {first.fp32_score:.4f}, held out {first.fp32_held_out:.4f}.", ""]
        parts += [_markdown(_HEAD, [_cells(row) for row in of_setup]), ""]
    return "\n".join(parts)


def summary(rows: Sequence[Row]) -> str:
    """Return a line for each model: latency, held-out score and evaluations of the best model of each kind of tool."""
    columns = {head: column for head, column in COLUMNS.items() if any(row.tool in column[0] for row in rows)}
    lines, chosen = [], {head: list[Row | None]() for head in columns}
    for setup, group in _by_setup(rows):
        if not any(_is_onnx(row) for row in group):
            continue
        best = {head: fastest(group, *column) for head, column in columns.items()}
        for head, row in best.items():
            if row is not None:
                chosen[head].append(row if row.met else None)
        star = "" if SETUPS[setup].was_looked_at else "*"
        lines.append([f"{setup}{star}", f"{group[0].fp32_held_out:.3f}", *map(_brief, best.values())])
    met = [f"{sum(row is not None for row in of_tool)} of {len(of_tool)}" for of_tool in chosen.values()]
    means = [f"{geometric_mean(map(_latency, of_tool)):.3f}x" if of_tool else "" for of_tool in chosen.values()]
    counts = [f"{_mean_evaluations(of_tool):.1f}" if any(of_tool) else "-" for of_tool in chosen.values()]
    lines += [
        ["**meets the criterion**", "", *met],
        ["**geometric mean, a miss counted as fp32**", "", *means],
        ["**evaluations to success, mean**", "", *counts],
    ]
    return _markdown(("model", "fp32 score, held-out", *columns), lines)


def in_openvino(rows: Sequence[Row]) -> str:
    """Return quaver's latency in OpenVINO beside the best of NNCF that meets the criterion, and bf16 alone."""
    lines, ratios = [], []
    for setup, group in _by_setup(rows):
        ours = fastest(group, *COLUMNS["OpenVINO: quaver"])
        if ours is None:
            continue
        nncf = [row for row in group if row.tool.startswith("NNCF")]
        rivals = [fastest(nncf, [row.tool for row in nncf], _OPENVINO), fastest(group, *COLUMNS["bf16 alone"])]
        meeting = [_latency(row) for row in rivals if row is not None and row.met]
        ratio = _latency(ours) / min(meeting) if meeting and ours.met else None
        ratios += [ratio] if ratio is not None else []
        control = [row for row in nncf if row.tool == "NNCF accuracy control"]
        validations = f"{control[0].samples:.1f}" if control else "-"
        cells = ["-" if ratio is None else f"{ratio:.2f}", str(ours.evaluations), validations]
        lines.append([setup, _brief(ours), *map(_brief, rivals), *cells])
    head = (
        "model", "quaver in OpenVINO", "best of NNCF", "bf16 alone", "quaver / the better of both",
        "evaluations of quaver", "of NNCF accuracy control",
    )  # fmt: skip
    mean = f"{geometric_mean(ratios):.2f}" if ratios else "-"
    return _markdown(head, [*lines, ["geometric mean", "", "", "", mean, "", ""]])


def across_runtimes(rows: Sequence[Row]) -> str:
    """Return the latency of quaver's files in the runtime they were tuned for, and in the other one."""
    lines = []
    for setup, group in _by_setup(rows):
        cells = [
            _brief(next((row for row in group if row.tool == tool and row.runtime.startswith(runtime)), None))
            for tool in ("quaver", "quaver for OpenVINO")
            for runtime in ("onnxruntime", "openvino")
        ]
        float_row = next((row for row in group if row.tool == "OpenVINO fp32"), None)
        if _is_onnx(group[0]):
            lines.append([setup, _brief(float_row), *cells])
    head = (
        "model", "fp32 in OpenVINO", "tuned for ONNX Runtime: in ONNX Runtime", "in OpenVINO",
        "tuned for OpenVINO: in ONNX Runtime", "in OpenVINO",
    )  # fmt: skip
    return _markdown(head, lines)


def in_litert(rows: Sequence[Row]) -> str:
    """Return the models in LiteRT."""
    lines = [[row.setup, row.tool, _brief(row)] for row in rows if row.runtime == "litert"]
    return _markdown(("model", "tool", "latency (held-out score, evaluations)"), lines)


def costs(rows: Sequence[Row]) -> str:
    """Return what each tool spent: evaluations, processor time and memory, over all models."""
    lines = []
    for tool in dict.fromkeys(row.tool for row in rows):
        own = [row for row in rows if row.tool == tool and row.own]
        met = sum(row.met for row in own)
        seconds = sorted(row.seconds for row in own)
        lines.append([
            tool, f"{met} of {len(own)}", f"{fmean(row.samples for row in own):.1f}",
            f"{seconds[len(seconds) // 2]:.0f} (up to {seconds[-1]:.0f})", f"{max(row.memory for row in own):,}",
        ])  # fmt: skip
    head = ("tool", "meets the criterion in its own runtime", "evaluations, mean", "seconds, median", "MB, at most")
    return _markdown(head, lines)


def failures(rows: Sequence[Row]) -> str:
    """Return what failed, with the message."""
    lines = [
        [row.setup, row.tool, row.runtime, f"{row.ended}, {row.evaluations} evaluations", _escaped(row.message)]
        for row in rows
        if row.score is None
    ]
    return _markdown(("model", "tool", "runs in", "ended", "message"), lines)


def worse(rows: Sequence[Row], earlier: Sequence[Mapping[str, Any]]) -> str:
    """Return where quaver in ONNX Runtime got slower, less accurate or dearer than in an earlier table.

    Args:
        rows: the rows of now.
        earlier: setup, latency, held-out score, its fp32 score, evaluations and seconds of the earlier table.
    """
    own = {row.setup: row for row in rows if row.tool == "quaver" and row.runtime == "onnxruntime" and row.latency}
    lines = []
    for old in earlier:
        row = own.get(old["setup"])
        if row is None or row.held_out is None or row.first_success is None:
            continue
        loss, was = row.fp32_held_out - row.held_out, old["fp32_held_out"] - old["held_out"]
        named = {
            "latency": _latency(row) > 1.02 * old["latency"],
            "held-out loss": loss > was + 0.002,
            "evaluations": row.first_success > old["first_success"],
            "seconds": row.seconds > 1.1 * old["seconds"],
        }
        lines.append([
            row.setup, f"{old['latency']:.2f}x → {_latency(row):.2f}x", f"{was:+.3f} → {loss:+.3f}",
            f"{old['first_success']} → {row.first_success}", f"{old['seconds']:.0f} → {row.seconds:.0f}",
            ", ".join(name for name, is_worse in named.items() if is_worse) or "-",
        ])  # fmt: skip
    head = ("model", "latency", "loss on held-out samples", "evaluations", "seconds", "got worse")
    return _markdown(head, lines)


# The tables of README and docs by name.
TABLES: dict[str, Callable[[Sequence[Row]], str]] = {
    "comparison": summary,
    "comparison-openvino": in_openvino,
    "comparison-across": across_runtimes,
    "comparison-litert": in_litert,
    "comparison-costs": costs,
    "comparison-failures": failures,
    "comparison-worse": lambda rows: worse(rows, result_files.read("comparison")["earlier"]),
}


def written(name: str) -> str:
    """Return a table from the result file, with a line break at its end."""
    return TABLES[name](read()) + "\n"


def fastest(rows: Sequence[Row], tools: Sequence[str], runtimes: Sequence[str]) -> Row | None:
    """Return the fastest row that meets the criterion; if none does, the one with the best score, or any."""
    fitting = [row for row in rows if row.tool in tools and row.runtime in runtimes]
    # quaver chooses the precision of the float part; for others, a user tries both.
    fitting = [row for row in fitting if row.own or not row.tool.startswith("quaver")]
    meeting = [row for row in fitting if row.met and row.latency]
    if meeting:
        return min(meeting, key=_latency)
    return max(fitting, key=lambda row: -1.0 if row.score is None else row.score, default=None)


def changes(old: Sequence[dict[str, Any]], rows: Sequence[Row]) -> list[str]:
    """Return what is not as it was at an earlier start: counts must be equal, latencies within a tenth."""
    before = {(row["setup"], row["tool"], row["runtime"]): row for row in old}
    lines = []
    for row in rows:
        former = before.get((row.setup, row.tool, row.runtime))
        if former is None:
            continue
        where = f"{row.setup}, {row.tool}, {row.runtime}"
        lines += [
            f"{where}: {count} was {former[count]}, is {getattr(row, count)}"
            for count in ("ended", "evaluations", "first_success", "fp32_ops")
            if former[count] != getattr(row, count)
        ]
        if former["latency"] and row.latency and abs(row.latency[1] / former["latency"][1] - 1) > 0.1:
            lines.append(f"{where}: latency was {former['latency'][1]}, is {row.latency[1]}")
    return lines


def _by_setup(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    return [(setup, list(group)) for setup, group in itertools.groupby(rows, key=lambda row: row.setup)]


def _is_onnx(row: Row) -> bool:
    return row.runtime != "litert"


def _latency(row: Row | None) -> float:
    return 1.0 if row is None or row.latency is None else row.latency[1]


def _mean_evaluations(rows: Iterable[Row | None]) -> float:
    return fmean(row.first_success or row.evaluations for row in rows if row is not None)


def _brief(row: Row | None) -> str:
    if row is None:
        return "-"
    if row.met and row.latency:
        return f"{row.latency[1]:.2f}x ({row.held_out:.3f}, {row.first_success or row.evaluations})"
    if row.score is not None:
        return f"misses: {row.score:.3f}, fp32 {row.fp32_score:.3f}"
    return f"{row.ended}, {row.evaluations} evaluations" if row.ended.startswith("stopped") else row.ended


def _cells(row: Row) -> list[str]:
    return [
        row.tool,
        row.runtime,
        "yes" if row.met else "**no**",
        f"{row.first_success or '-'} / {row.evaluations}{_partial(row)}",
        "-" if row.score is None else f"{row.score:.4f}",
        "-" if row.held_out is None else f"{row.held_out:.4f}",
        "-" if row.fp32_ops is None else f"{row.fp32_ops} of {row.compute_ops}",
        "-" if row.size is None else f"{row.size:.2f}",
        _spread(row.latency),
        f"{row.seconds:.0f}",
        f"{row.memory}",
        "-"
        if row.calibration is None
        else f"{row.calibration:.1f}x" + f" · {row.calibrations}" * (row.calibrations > 1),
        f"{row.ended}{': ' * bool(row.message)}{_escaped(row.message)}",
    ]


def _partial(row: Row) -> str:
    """Return the calls over a part of the samples, if there were any."""
    return f" ({row.samples:.1f} by samples)" if abs(row.samples - row.evaluations) > 0.05 else ""


def _spread(quartiles: tuple[float, float, float] | None) -> str:
    return "-" if quartiles is None else "{1:.2f} ({0:.2f} to {2:.2f})".format(*quartiles)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def _markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
