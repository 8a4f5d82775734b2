"""The most accurate model within a budget, as `auto` finds it on real models.

    python -m benchmarks.budgets [NAME...]   # models of `BUDGETS`; all by default

For each model and budget: `fit` with `objective="accuracy"`. The score is that of the tuning half, what is held out
that of the other half; the error is that of the outputs on it, against the float model's, as a part of them.
"""

from __future__ import annotations

import argparse
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import quaver
from benchmarks import result_files
from benchmarks.models import Bench
from benchmarks.models.bench import feeds
from benchmarks.peers.onnx_session import OnnxSession
from benchmarks.remedies import find
from quaver.ops import MODES
from quaver.repairs import name_of

BUDGETS: dict[str, tuple[dict[str, float], ...]] = {
    "paraphrase_minilm": ({"max_latency": 0.45}, {"max_latency": 0.6}, {"max_size": 0.26}),
    "minilm_retrieval": ({"max_latency": 0.45}, {"max_latency": 0.6}, {"max_size": 0.26}),
    "ppocr_cls180": ({"max_latency": 0.8}, {"max_size": 0.35}),
    "ppocrv4_en_rec": ({"max_latency": 0.5}, {"max_size": 0.35}),
    "page_orientation": ({"max_latency": 0.8}, {"max_size": 0.35}),
    "wakeword_embedding": ({"max_latency": 0.5}, {"max_latency": 0.6}, {"max_size": 0.35}),
}
# Feeds of the held-out half whose outputs are compared.
COMPARED = 32


def error(bench: Bench, path: Path) -> float:
    """The squared error of what a model writes as a part of what the float model does: of each output, on average."""
    float_model, model = OnnxSession(bench.model_path), OnnxSession(path)
    scored = bench.held_out_eval_func
    found = []
    for feed in islice(feeds(scored.inputs, scored.batch), COMPARED):
        for wanted, got in zip(_outputs(float_model, feed), _outputs(model, feed), strict=True):
            found.append(np.square(wanted - got).sum() / (np.square(wanted).sum() or 1.0))
    return float(np.mean(found))


def _outputs(model: OnnxSession, feed: Any) -> list[Any]:
    outputs = model(feed)
    return [np.asarray(one, np.float64) for one in (outputs if isinstance(outputs, list) else [outputs])]


def measure(name: str, budget: dict[str, float]) -> dict[str, Any]:
    """What comes out for one budget."""
    bench = find(name)
    with tempfile.TemporaryDirectory() as folder:
        result = quaver.fit(
            str(bench.model_path),
            calib_dataloader=bench.calib,
            eval_func=bench.eval_func,
            objective="accuracy",
            threads=1,
            workspace=folder,
            verbose=0,
            report=False,
            **budget,
        )
        assert result.best is not None and result.best.score is not None and result.model_path is not None
        picks = [pick for pick in result.best.config.values() if pick.quantized]
        repairs = [name_of(one) for pick in picks for one in pick.repairs]
        return {
            "model": name,
            "budget": budget,
            "met": result.met,
            "baseline": round(result.baseline, 4),
            "score": round(result.best.score, 4),
            "held out": round(bench.held_out_eval_func(OnnxSession(result.model_path)), 4),
            "error": float(f"{error(bench, result.model_path):.2g}"),
            "evaluations": result.evaluations,
            "latency": round(result.best.measured.get("latency", float("nan")), 3),
            "size": round(result.model_path.stat().st_size / bench.model_path.stat().st_size, 3),
            "ops": {mode: sum(pick.mode == mode for pick in picks) for mode in MODES},
            "fp32": len(result.best.config.fp32_ops),
            "repairs": {one: repairs.count(one) for one in dict.fromkeys(repairs)},
        }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"models: {', '.join(BUDGETS)}; all by default")
    given = parser.parse_args()
    rows = []
    for name in given.names or BUDGETS:
        for budget in BUDGETS[name]:
            rows.append(measure(name, budget))
            print(rows[-1], flush=True)
    result_files.write("budgets", "The most accurate model within a budget", rows, replaces=["model", "budget"])


if __name__ == "__main__":
    main()
