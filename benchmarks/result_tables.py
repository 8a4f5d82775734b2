"""The tables of the documentation: which rows and columns of a result file each one shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, geometric_mean, median
from typing import Any

from benchmarks import result_files

Row = Mapping[str, Any]


def markdown(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table in Markdown, with a line break at its end."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def number(value: Any, digits: int = 3) -> str:
    """Return a figure with three significant digits, or nothing if there is none."""
    return "" if value is None else f"{value:.{digits}g}"


def portable() -> str:
    """What `portable` costs and brings on each model."""
    cells = []
    rows = result_files.rows_of("portable")
    for off, on, _ in zip(rows[::3], rows[1::3], rows[2::3], strict=True):
        coarser = on["coarsened"] or {"coarser_channels": 0, "channels": 0, "ops": 0}
        share = coarser["coarser_channels"] / max(coarser["channels"], 1)
        cells.append(
            (
                off["model"],
                f"{off['fp32']} / {off['score']} / {on['score']}",
                f"{number(off['latency'])} / {number(on['latency'])}",
                f"{off['int8_ops']} / {on['int8_ops']}",
                f"{share:.0%}",
                *(f"{number(row['error_native'])} → {number(row['error_haswell'])}" for row in (off, on)),
            )
        )
    head = (
        "model",
        "score: fp32 / False / True",
        "latency / fp32 latency: False / True",
        "int8 ops: False / True",
        "coarser channels",
        "relative output error, native → Haswell: False",
        "True",
    )
    return markdown(head, cells)


def portable_ways() -> str:
    """Relative output error of all ops in int8 by the way that rules overflow out."""
    ways = result_files.read("portable")["ways"]
    names = [key for key in ways[0] if key != "model"]
    head = ("model, all ops int8", *names)
    return markdown(head, [(way["model"], *(number(way[name]) for name in names)) for way in ways])


def sample_counts() -> str:
    """Loss of the default configuration by the number of calibration samples."""
    rows = result_files.rows_of("sample_counts")
    counts = sorted({row["samples"] for row in rows})
    methods = list(rows[0]["loss"])
    lines = []
    for model in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == model]
        draws = len({row["draw"] for row in own})
        for label in (*methods, "chosen"):
            losses = ([_loss(row, label) for row in own if row["samples"] == count] for count in counts)
            first = f"`{model}` ({number(own[0]['fp32'])}, {draws})" if label == methods[0] else ""
            lines.append((first, label, *map(_spread, losses)))
    return markdown(("model (fp32 score, draws)", "method", *map(str, counts)), lines)


def diagnosis() -> str:
    """Cost of a diagnosis in passes of the float model."""
    rows = result_files.rows_of("diagnosis")
    return markdown(
        ("model", "samples", "fp32 passes"),
        [(row["model"], row["samples"], number(row["fp32 passes"], 2)) for row in rows if "fp32 passes" in row],
    )


def remedies() -> str:
    """Latency with everything on, with one remedy off, and of `quantize_static`."""
    rows = result_files.rows_of("remedies")
    settings = [name for name in dict.fromkeys(row["setting"] for row in rows) if not name.startswith("quantize")]
    lines: list[tuple[str, ...]] = []
    columns: list[list[Row]] = [[] for _ in settings]
    for model in dict.fromkeys(row["model"] for row in rows):
        own = {row["setting"]: row for row in rows if row["model"] == model}
        for column, name in zip(columns, settings, strict=True):
            column.append(own[name])
        static = [row["latency"] for name, row in own.items() if name.startswith("quantize") and row["met"]]
        cells = [f"{own[name]['latency']:.2f}x ({own[name]['evaluations']})" for name in settings]
        lines.append((model, *cells, f"{min(static):.2f}x" if static else "none meets it"))
    means = [f"{_geometric(column, 'latency'):.3f}x ({_mean(column, 'evaluations'):.1f})" for column in columns]
    head = ("model", *settings, "quantize_static")
    return markdown(head, [*lines, ("geometric mean", *means, "")])


def planted() -> str:
    """Evaluations of each strategy on nets with planted outliers."""
    rows = result_files.rows_of("planted")
    strategies = list(dict.fromkeys(row["strategy"] for row in rows))
    lines = []
    for case in dict.fromkeys(row["case"] for row in rows):
        own = {row["strategy"]: row for row in rows if row["case"] == case}
        cells = [f"{own[name]['evaluations']} ({own[name]['fp32_heavy']})" for name in strategies]
        lines.append((case, number(own[strategies[0]]["all_int8"]), *cells))
    return markdown(("planted", "score of all int8", *(f"`{name}`" for name in strategies)), lines)


def overhead() -> str:
    """Time of one trial without `eval_func`."""
    columns = ("trial overhead ms", "bare session ms", "quantize_static ms")
    head = (
        "model",
        "a trial of quaver",
        "the same session alone",
        "`quantize_static`, per-channel, calibration cached",
    )
    rows = result_files.rows_of("overhead")
    return markdown(head, [(row["model"], *(f"{row[column]:,.0f} ms" for column in columns)) for row in rows])


def early_stop() -> str:
    """Share of samples that each rule saves on a path of losses."""
    rows = [
        row for row in result_files.rows_of("early_stop") if row.get("rule", "full evaluation") != "full evaluation"
    ]
    kinds = list(dict.fromkeys(row["scores"] for row in rows))
    saved = {(row["rule"], row["scores"]): row["samples saved"] for row in rows}
    rules = list(dict.fromkeys(row["rule"] for row in rows))
    return markdown(
        ("samples saved", *kinds), [(rule, *(f"{saved[rule, kind]:.0%}" for kind in kinds)) for rule in rules]
    )


def mlperf_tiny() -> str:
    """quaver's int8 models beside the reference int8 models."""
    head = ("model", "file", "runs in", "evaluations", "accuracy", "latency / reference int8", "size / reference int8")
    lines = [
        (
            row["model"],
            row["file"],
            row["runtime"],
            row.get("evaluations", ""),
            f"{row['accuracy']:.4f}",
            f"{row['latency / reference int8']:.2f}x",
            f"{row['size / reference int8']:.2f}x",
        )
        for row in result_files.rows_of("mlperf_tiny")
    ]
    return markdown(head, lines)


def kernel_costs() -> str:
    """Nanoseconds a value of each kernel, the slowest first."""
    rows = sorted(result_files.rows_of("kernel_costs"), key=lambda row: -row["fp32"])
    cells = [
        (row["op"], *(number(row.get(form)) for form in ("fp32", "rewritten", "int8")), _last_name(row["rewrite"]))
        for row in rows
    ]
    return markdown(("op", "fp32", "fp32, rewritten", "int8", "rewrite"), cells)


def _last_name(names: str) -> str:
    """Return the rewrite that changes the op; others only prepare it."""
    return f"`{names.rpartition(', ')[2]}`" if names else ""


def rewrites() -> str:
    """Latency of each model with a rewrite and without it."""
    cells = [
        (
            row["model"],
            "all" if row["rewrite"] == "all" else f"`{row['rewrite']}`",
            *(f"{number(row[f'{form}_off'])} → {number(row[f'{form}_on'])}" for form in ("fp32", "int8")),
        )
        for row in result_files.rows_of("rewrites")
    ]
    return markdown(("model", "rewrite", "fp32: off → on", "all ops in int8: off → on"), cells)


def two_versions() -> str:
    """Evaluations, latency and cost of two versions, with the fastest `quantize_static` that meets the criterion."""
    rows = [row for row in result_files.rows_of("versions") if "error" not in row["after"]]
    pairs = ("evaluations", "latency", "of_roofline", "processor_seconds", "peak_memory_mb")
    lines = []
    for row in rows:
        static = [way["latency"][1] for way in row["by_hand"].values() if way.get("met")]
        cells = [_before_and_after(row, key) for key in pairs]
        lines.append((row["model"], *cells, f"{min(static):.3g}" if static else "none meets it"))
    both = [row for row in rows if row["before"].get("latency") and row["after"].get("latency")]
    ends = ("before", "after")
    if both:
        means = [geometric_mean(row[end]["latency"][1] for row in both) for end in ends]
        bounds = [median(row[end]["of_roofline"] for row in both if "of_roofline" in row[end]) for end in ends]
        counts = [fmean(row[end]["evaluations"] for row in both) for end in ends]
        label = "mean; latency: geometric mean; roofline: median"
        lines.append((label, *(f"{a:.3g} → {b:.3g}" for a, b in (counts, means, bounds)), "", "", ""))
    head = (
        "model", "evaluations", "latency / fp32 latency", "multiple of the roofline", "s outside eval_func", "peak MB",
        "quantize_static",
    )  # fmt: skip
    return markdown(head, lines)


def _before_and_after(row: Row, key: str) -> str:
    """Return a figure of both versions; of a latency its median."""
    values = [row[end].get(key) for end in ("before", "after")]
    shown = [value[1] if isinstance(value, list) else value for value in values]
    text = " → ".join("failed" if value is None else f"{value:.4g}" for value in shown)
    return f"{text}, not met" if key == "latency" and not row["after"].get("met") else text


def planted_branches() -> str:
    """Rank of a culprit in one branch of a detector, by the error of parts and by that of whole outputs."""
    cells = [
        (row["model"], f"`{row['culprit']}`", row["ops"], row["rank"], row["rank_whole_outputs"])
        for row in result_files.rows_of("planted_branches")
    ]
    return markdown(("model", "culprit", "ops", "rank by parts", "rank by whole outputs"), cells)


def _mean(rows: Sequence[Row], column: str) -> float:
    return fmean(row[column] for row in rows)


def _geometric(rows: Sequence[Row], column: str) -> float:
    return geometric_mean(row[column] for row in rows)


def _loss(row: Row, method: str) -> float:
    return float(row["loss"][min(row["error"], key=row["error"].get) if method == "chosen" else method])


def _spread(losses: Sequence[float]) -> str:
    return f"{fmean(losses):.3f} ({min(losses):.3f} to {max(losses):.3f})" if losses else ""


def simulated_workers() -> str:
    """Simulated time to the end by the number of workers."""
    rows = result_files.rows_of("simulated_workers")
    own = {(row["strategy"], row["workers"]): row for row in rows}
    lines = []
    for workers in dict.fromkeys(row["workers"] for row in rows):
        auto, basic = own["auto", workers], own["basic", workers]
        lines.append(
            (
                workers,
                _duration(auto["hours"]),
                auto["evaluations"],
                _duration(basic["hours"]),
                basic["evaluations"],
                number(basic["times faster"], 2),
            )
        )
    head = ("workers", "`auto`, first success", "evaluations", "`basic`, complete", "evaluations", "speedup")
    return markdown(head, lines)


def simulation() -> str:
    """Evaluations that each strategy needs on simulated models."""
    # The sweep needs quaver's strategies; the other tables do not.
    from benchmarks import simulation, simulation_figures

    return f"\n{simulation_figures.tables(simulation.load())}\n"


def learned() -> str:
    """Ops left in fp32 by strategies that start from random points."""
    rows = result_files.rows_of("learned")
    strategies = list(dict.fromkeys(row["strategy"] for row in rows))
    lines = []
    for case in dict.fromkeys(row["case"] for row in rows):
        own = [row for row in rows if row["case"] == case]
        cells = [", ".join(_found(row) for row in own if row["strategy"] == name) for name in strategies]
        lines.append((case, *cells))
    return markdown(("planted", *strategies), lines)


def _found(row: Row) -> str:
    return f"{row['fp32_ops']} ({row['found_after']})" if row["met"] else "none"


def _duration(hours: float) -> str:
    return f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.1f} min"


def language_model() -> str:
    """Perplexity and divergence of a language model by size, beside ONNX Runtime's tool."""
    rows = [row for row in result_files.rows_of("language_model") if row["part"] != "times"]
    whole = next(row["bytes"] for row in rows if row["part"] == "float")
    cells = [
        (
            row["what"],
            f"{row['bytes'] / 1e6:.1f} ({row['bytes'] / whole:.3f})",
            f"{row['perplexity']:.2f}",
            number(row.get("divergence")),
            f"{row['other_perplexity']:.2f}",
            number(row.get("other_divergence")),
        )
        for row in rows
    ]
    head = (
        "SmolLM2-135M",
        "MB (part of fp32)",
        "perplexity",
        "divergence",
        "perplexity, reviews",
        "divergence, reviews",
    )
    return markdown(head, cells)


def generation() -> str:
    """Tokens that a quantized folder continues like the float folder."""
    rows = result_files.rows_of("generation")
    return markdown(("prompt", "equal tokens of 40"), [(repr(row["prompt"]), row["equal_tokens"]) for row in rows])


def rounding() -> str:
    """Size at a criterion of 1 % with weights of four bits, rounded in two ways."""
    cells = [
        (
            f"`{row['model']}` ({number(row['fp32'])})",
            row["what"],
            number(row["score"]),
            number(row["held_out"]),
            number(row["size"]),
            ", ".join(str(count) for count in row["ops"].values()),
            row["evaluations"],
        )
        for row in result_files.rows_of("rounding")
    ]
    head = (
        "model (fp32)",
        "weights of four bits",
        "score",
        "held-out",
        "size / fp32 size",
        "int4, int8, fp32",
        "evaluations",
    )
    return markdown(head, cells)
