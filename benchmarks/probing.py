"""What measurements without labels cost, and how well few samples rank ops.

    python -m benchmarks.probing [--before COMMIT] [NAME...]   # processor time and memory of whole runs, two versions
    python -m benchmarks.probing --ranking [NAME...]           # rankings by few samples and by 16

The first form tunes each model with an older version and with this one, each in a process of its own, on one thread and
with an empty timing cache. It writes the processor time outside of eval_func, what an evaluation takes, and the peak of
memory to `benchmarks/results/probing.json`.

The second form measures the error of each op by itself on 16 samples, and compares the ranking with those of each
effort: the share of the 10 and 20 most sensitive ops that are found among the first 10 and 20. It writes
`benchmarks/results/probing_ranking.json`.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import result_files, versions
from benchmarks.tune_once import load
from quaver.adapters import AdapterOptions, abilities, load_model
from quaver.adapters.data import count_samples
from quaver.engine.inspection.output_error import OutputErrors
from quaver.engine.probe_plan import EFFORTS, MAX_OP_SAMPLES, ProbePlan, make_plan
from quaver.space import TuningSpace

MODELS = ("page_orientation", "ppocrv2_zh_rec", "ppocrv4_en_rec", "ppocrv4_det", "yolov8n_nms", "paraphrase_minilm")
# How many of the most sensitive ops must be found again.
TOPS = (10, 20)


def cost(name: str, before: str) -> dict[str, Any]:
    """Return the figures of a whole run of both versions."""
    row: dict[str, Any] = {"model": name}
    for label, version in (("before", versions.installed(before)), ("after", None)):
        with tempfile.TemporaryDirectory() as folder:
            row[label] = versions.run_version(name, version, Path(folder) / "run")
    return row


def errors_by_sample(name: str) -> tuple[dict[str, list[float]], float, float, float]:
    """Return the error of each op by itself on each sample, and seconds: expected, of the model, of an op."""
    bench = load(name)
    with contextlib.closing(load_model(str(bench.model_path), AdapterOptions(threads=1))) as adapter:
        adapter.calibrate(bench.calib)
        space = TuningSpace(adapter.ops())
        default, float_config = space.default_config(), space.float_config()
        feeds = [feed for feed in adapter.probe_samples[:MAX_OP_SAMPLES] if count_samples(feed) == 1]
        errors = OutputErrors(adapter, space.ops[-1].name, feeds)
        start = time.process_time()
        metric = errors.metric(len(feeds))
        seconds = (time.process_time() - start) / len(feeds)
        rows = {}
        start = time.process_time()
        for op in space.tunable:
            if default[op].quantized:
                outputs = errors.outputs_of(float_config.replace({op: default[op]}), len(feeds))
                rows[op] = np.nan_to_num(metric.sample_errors(outputs), nan=1e9, posinf=1e9).tolist()
        op_seconds = (time.process_time() - start) / len(feeds) / max(len(rows), 1)
        return rows, abilities.expected_seconds(adapter, feeds[0]), seconds, op_seconds


def ranked(errors: np.ndarray[Any, Any], plan: ProbePlan) -> list[int]:
    """Return the ops in the order in which a plan ranks them, the most sensitive first."""
    estimated = errors[:, : plan.first].mean(axis=1)
    if plan.first < plan.leading:
        leaders = np.argsort(-estimated, kind="stable")[: plan.leading_ops(len(errors))]
        estimated[leaders] = errors[leaders, : plan.leading].mean(axis=1)
    return np.argsort(-estimated, kind="stable").tolist()


def ranking(name: str) -> dict[str, Any]:
    """Return how well the plan of each effort ranks the ops of a model."""
    rows, expected, seconds, op_seconds = errors_by_sample(name)
    errors = np.array(list(rows.values()))
    whole = errors.mean(axis=1)
    best = np.argsort(-whole, kind="stable").tolist()
    row: dict[str, Any] = {
        "model": name,
        "ops": len(rows),
        "samples": errors.shape[1],
        "expected_ms": round(1000 * expected, 1),
        "fp32_ms": round(1000 * seconds, 1),
        "op_ms": round(1000 * op_seconds, 1),
    }
    for effort in EFFORTS[:-1]:
        plan = make_plan(effort, len(rows), expected)
        order = ranked(errors, plan)
        row[effort] = {
            "first": plan.first,
            "leading": plan.leading,
            **{f"top_{top}": round(len({*best[:top]} & {*order[:top]}) / top, 2) for top in TOPS},
            "missed": round(1 - float(whole[order[: TOPS[-1]]].sum() / max(whole[best[: TOPS[-1]]].sum(), 1e-30)), 4),
        }
    return row


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write the results; rows of models that are not named stay as they are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"models (default: {', '.join(MODELS)})")
    parser.add_argument("--before", default=versions.BEFORE, metavar="COMMIT", help="the older version")
    parser.add_argument("--ranking", action="store_true", help="compare rankings instead of versions")
    options = parser.parse_args(arguments)
    for name in options.names or MODELS:
        if options.ranking:
            row = ranking(name)
            result_files.write("probing_ranking", "Rankings of ops by few samples", [row], replaces=["model"])
        else:
            row = cost(name, options.before)
            title = "Processor time outside of eval_func and peak memory of two versions"
            result_files.write("probing", title, [row], replaces=["model"], before=options.before)
        print(row, flush=True)


if __name__ == "__main__":
    main()
