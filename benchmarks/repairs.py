"""What repairs bring on models that lose accuracy: scores before any fallback, then `auto` with and without them.

    python -m benchmarks.repairs [NAME...]   # of `SETUPS`; all by default

Before fallback: all ops in int8 by min-max calibration, with no repair, with each, and with each way to rescale
together with bias correction. Then `fit` with timeout 0, without repairs in its space and with them. The two models
that come out are timed interleaved on one thread. Latency is relative to the original fp32 model.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import onnx

import quaver
from benchmarks import result_files
from benchmarks.models import Bench
from benchmarks.peers.onnx_session import OnnxSession
from benchmarks.remedies import RELATIVE, find, in_turns
from quaver.adapters import AdapterOptions, load_model
from quaver.engine.inspection.output_error import OutputErrors
from quaver.ops import QuantConfig
from quaver.repairs import name_of
from quaver.rules import apply_rules
from quaver.space import TuningSpace

PER_TENSOR = {".*": {"weight": {"granularity": ["per_tensor"]}}}


@dataclass(frozen=True, slots=True)
class Setup:
    """A model, and the rules it is tuned by; with `relu` its activations have no upper bound."""

    model: str
    rules: dict[str, Any] | None = None
    relu: bool = False


SETUPS = {
    "minilm_retrieval": Setup("minilm_retrieval"),
    "minilm_imdb": Setup("minilm_imdb"),
    "ppocrv4_en_rec": Setup("ppocrv4_en_rec"),
    "mobilenetv2_cifar10 per-tensor": Setup("mobilenetv2_cifar10", PER_TENSOR),
    "mobilenetv2_cifar10 with Relu": Setup("mobilenetv2_cifar10", relu=True),
    "mobilenetv2_cifar10 with Relu per-tensor": Setup("mobilenetv2_cifar10", PER_TENSOR, relu=True),
    "blazeface": Setup("blazeface"),
    "blazeface per-tensor": Setup("blazeface", PER_TENSOR),
    "paraphrase_minilm": Setup("paraphrase_minilm"),
    "page_orientation": Setup("page_orientation"),
}
CORRECTION = "bias_correction"
QUICK = ("paraphrase_minilm", "page_orientation")
WAYS = {"without": {"repairs": False}, "with": {"repairs": True}}


def before_fallback(name: str, setup: Setup, bench: Bench) -> Iterator[dict[str, Any]]:
    """The score and the error at the outputs of all-int8 models, each repair on all ops that offer it."""
    adapter = load_model(str(bench.model_path), AdapterOptions(threads=1))
    adapter.calibrate(bench.calib)
    space = TuningSpace(apply_rules(adapter.ops(), setup.rules))
    errors = OutputErrors(adapter, space.ops[-1].name, adapter.probe_samples)
    plain = space.default_config()
    ways: dict[str, QuantConfig] = {"none": plain}
    spelled = list(dict.fromkeys(one for op in space.ops for one in op.repairs))
    ways |= {one: space.repair(plain, one) for one in spelled}
    both = [one for one in spelled if one != CORRECTION] if CORRECTION in spelled else []
    ways |= {f"{one}, {CORRECTION}": space.repair(plain, one, CORRECTION) for one in both}
    for label, config in ways.items():
        if label == "none" or config != plain:
            yield {
                "model": name,
                "repair": label,
                "ops": sum(bool(pick.repairs) for pick in config.values()),
                "score": round(bench.eval_func(adapter.build(config)), 4),
                "output error": float(f"{errors.error(config, len(adapter.probe_samples)):.3g}"),
            }
    adapter.close()


def tuned(name: str, setup: Setup, bench: Bench, folder: Path) -> list[dict[str, Any]]:
    """`auto` without repairs and with them."""
    rows: list[dict[str, Any]] = []
    paths = []
    for label, options in WAYS.items():
        result = quaver.fit(
            str(bench.model_path),
            calib_dataloader=bench.calib,
            eval_func=bench.eval_func,
            relative=RELATIVE,
            threads=1,
            workspace=folder / f"{name} {label}",
            op_name_dict=setup.rules or {},
            strategy_options=options,
        )
        assert result.best is not None and result.best.score is not None
        used = [name_of(one) for pick in result.best.config.values() for one in pick.repairs]
        paths.append(result.model_path)
        rows.append(
            {
                "model": name,
                "repairs": label,
                "met": result.met,
                "baseline": round(result.baseline, 4),
                "score": round(result.best.score, 4),
                "evaluations": result.evaluations,
                "fp32 ops": len(result.best.config.fp32_ops),
                "repaired": ", ".join(f"{used.count(one)} {one}" for one in dict.fromkeys(used)),
            }
        )
    base, *times = in_turns([OnnxSession(bench.model_path), *(OnnxSession(path) for path in paths)], bench.calib[0])
    for row, seconds in zip(rows, times, strict=True):
        row["latency"] = round(seconds / base, 3)
    return rows


def unbounded(path: Path, folder: Path) -> Path:
    """A model with Relu in the place of each Clip: what it computes is another thing, and is compared with itself."""
    model = onnx.load(str(path))
    for node in model.graph.node:
        if node.op_type == "Clip":
            node.op_type = "Relu"
            del node.input[1:], node.attribute[:]
    onnx.save(model, str(folder / "relu.onnx"))
    return folder / "relu.onnx"


def measure(name: str) -> list[dict[str, Any]]:
    """All rows of one setup."""
    setup = SETUPS[name]
    bench = find(setup.model)
    with tempfile.TemporaryDirectory() as folder:
        if setup.relu:
            bench = replace(bench, model_path=unbounded(bench.model_path, Path(folder)))
        return [*before_fallback(name, setup, bench), *tuned(name, setup, bench, Path(folder))]


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The means of `auto` with repairs against without: of latencies geometric, of evaluations plain."""
    pairs = [[row for row in rows if row.get("repairs") == label] for label in WAYS]
    ratios = [after["latency"] / before["latency"] for before, after in zip(*pairs, strict=True)]
    evaluations = [fmean(row["evaluations"] for row in part) for part in pairs]
    return {
        "model": "all",
        "latency, with to without": round(math.exp(fmean(map(math.log, ratios))), 3),
        "worst": round(max(ratios), 3),
        "evaluations, with to without": round(evaluations[1] / evaluations[0], 3),
    }


def run() -> list[dict[str, Any]]:
    """The quick part."""
    rows = [row for name in QUICK for row in measure(name)]
    return [*rows, summary(rows)]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"setups: {', '.join(SETUPS)}; all by default")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in given.names or SETUPS:
        rows += measure(name)
        for row in rows:
            if row["model"] == name:
                print(row, flush=True)
    rows.append(summary(rows))
    print(rows[-1])
    result_files.write(
        "repairs", "What each repair brings before an op falls back", rows, replaces=["model", "repair", "repairs"]
    )


if __name__ == "__main__":
    main()
