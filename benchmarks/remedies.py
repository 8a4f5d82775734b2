"""What each remedy brings: `auto` as it is and with one remedy switched off, beside the best of `quantize_static`.

    python -m benchmarks.remedies [NAME...]   # models of benchmarks.models and benchmarks.unseen

For each model: `fit` with timeout 0 in each setting, and ONNX Runtime's `quantize_static` in four (per tensor or per
channel, all ops or those with weights), of which the fastest that meets the criterion counts. All models that come out
are then timed interleaved on one thread. Latency is relative to the original fp32 model.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import onnx

import quaver
from benchmarks import models, result_files, unseen
from benchmarks.models import Bench
from benchmarks.peers.onnx_session import OnnxSession

RELATIVE = 0.01
# Small models of several kinds, of the half that may be looked at.
QUICK = ("magika_filetype", "ppocr_cls180", "paraphrase_minilm", "wakeword_embedding", "page_orientation")
WITH_WEIGHTS = ["Conv", "ConvTranspose", "Gemm", "MatMul"]
ROUNDS = 60

AUTO = "auto"
SETTINGS: dict[str, dict[str, Any]] = {
    AUTO: {},
    "float graph as given": {"optimise_float": False},
    "no choice of ops": {"strategy_options": {"mixtures": False}},
    "fallback by sensitivity alone": {"strategy_options": {"front": False}},
    "none of these": {"optimise_float": False, "strategy_options": {"mixtures": False, "front": False}},
}


def find(name: str) -> Bench:
    """A model of either collection."""
    return (unseen if name in unseen.NAMES else models).load(name)


def measure(name: str, settings: dict[str, dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """A row for each setting: evaluations, score, latency."""
    bench = find(name)
    rows: list[dict[str, Any]] = []
    for label, given in settings.items():
        result = quaver.fit(
            str(bench.model_path),
            calib_dataloader=bench.calib,
            eval_func=bench.eval_func,
            relative=RELATIVE,
            threads=1,
            workspace=folder / f"{name} {label}",
            **given,
        )
        assert result.best is not None and result.best.score is not None
        rows.append(
            {
                "model": name,
                "setting": label,
                "evaluations": result.evaluations,
                "met": result.met,
                "score": round(result.best.score, 4),
                "baseline": round(result.baseline, 4),
                "int8_ops": len(result.best.config.int8_ops),
                "fp32_ops": len(result.best.config.fp32_ops),
                "path": result.model_path,
            }
        )
    rows += _static(bench, rows[0]["baseline"], folder)
    sessions = [OnnxSession(bench.model_path), *(OnnxSession(row["path"]) for row in rows)]
    base, *times = in_turns(sessions, bench.calib[0])
    for row, seconds in zip(rows, times, strict=True):
        row["latency"] = round(seconds / base, 3)
        row["size"] = round(row.pop("path").stat().st_size / bench.model_path.stat().st_size, 3)
    return rows


def _static(bench: Bench, baseline: float, folder: Path) -> Iterator[dict[str, Any]]:
    """What `quantize_static` gives, each way that works."""
    from onnxruntime.quantization import QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    ready = folder / "ready.onnx"
    for skipped in (False, True):
        with suppress(Exception):
            quant_pre_process(str(bench.model_path), str(ready), skip_symbolic_shape=skipped)
            break
    else:
        return
    # Scales per channel need opset 13; a user would convert the model.
    if next(one.version for one in onnx.load(ready).opset_import if one.domain in ("", "ai.onnx")) < 13:
        with suppress(Exception):
            onnx.save(onnx.version_converter.convert_version(onnx.load(ready), 17), ready)
    for per_channel in (False, True):
        for kinds in (None, WITH_WEIGHTS):
            target = folder / f"{bench.name} {per_channel} {kinds is None}.onnx"
            label = f"quantize_static, per {'channel' if per_channel else 'tensor'}{', weights' if kinds else ''}"
            with suppress(Exception):  # invalid graphs are not ours to mend
                quantize_static(
                    str(ready),
                    str(target),
                    _Reader(bench.calib),
                    per_channel=per_channel,
                    op_types_to_quantize=kinds,
                    activation_type=QuantType.QUInt8,
                    weight_type=QuantType.QInt8,
                )
                score = bench.eval_func(OnnxSession(target))
                yield {
                    "model": bench.name,
                    "setting": label,
                    "evaluations": 2,
                    "met": score >= (1 - RELATIVE) * baseline,
                    "score": round(score, 4),
                    "baseline": baseline,
                    "path": target,
                }


class _Reader:
    """Calibration data in the form that `quantize_static` asks for."""

    def __init__(self, batches: Any) -> None:
        self._left = iter(batches)

    def get_next(self) -> Any:
        return next(self._left, None)


def in_turns(sessions: list[OnnxSession], feed: Any) -> list[float]:
    """Return the seconds of each by the thread's own clock: the 20 % quantile of interleaved runs."""
    import time

    for session in sessions:
        session(feed)
    taken: list[list[float]] = [[] for _ in sessions]
    for _ in range(ROUNDS):
        for runs, session in zip(taken, sessions, strict=True):
            start = time.thread_time()
            session(feed)
            runs.append(time.thread_time() - start)
    return [float(np.quantile(runs, 0.2)) for runs in taken]


def summary(rows: list[dict[str, Any]]) -> str:
    """A table: latency and evaluations of each model in each setting, and the means."""
    names = list(dict.fromkeys(row["model"] for row in rows))
    labels = [label for label in SETTINGS if any(row["setting"] == label for row in rows)]
    lines = [f"| model | {' | '.join(labels)} | quantize_static |", f"|---{'|---' * (len(labels) + 1)}|"]
    columns: dict[str, list[dict[str, Any]]] = {label: [] for label in labels}
    for name in names:
        own = {row["setting"]: row for row in rows if row["model"] == name}
        static = [row for label, row in own.items() if label not in SETTINGS and row["met"]]
        cells = []
        for label in labels:
            row = own[label]
            columns[label].append(row)
            cells.append(f"{row['latency']:.2f} ({row['evaluations']}){'' if row['met'] else ' not met'}")
        best = f"{min(row['latency'] for row in static):.2f}" if static else "none meets it"
        lines.append(f"| {name} | {' | '.join(cells)} | {best} |")
    means = []
    for column in columns.values():
        latency = math.exp(fmean(math.log(row["latency"]) for row in column))
        means.append(f"{latency:.3f} ({fmean(row['evaluations'] for row in column):.1f})")
    return "\n".join([*lines, f"| mean | {' | '.join(means)} | |"])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"models; {', '.join(QUICK)} by default")
    parser.add_argument("--only-auto", action="store_true", help="no remedy switched off")
    given = parser.parse_args()
    settings = {AUTO: SETTINGS[AUTO]} if given.only_auto else SETTINGS
    rows: list[dict[str, Any]] = []
    for name in given.names or QUICK:
        with tempfile.TemporaryDirectory() as folder:
            rows += measure(name, settings, Path(folder))
        print(summary(rows[-len([row for row in rows if row["model"] == name]) :]), flush=True)
    print(summary(rows))
    if not given.names:
        result_files.write("remedies", "What each remedy brings", rows)


if __name__ == "__main__":
    main()
