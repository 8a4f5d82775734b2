"""Weights of four bits on models that are no decoders: size at a criterion of 1 %, before and after rounding.

    python -m benchmarks.rounding                      # all models
    python -m benchmarks.rounding minilm_retrieval     # some of them

Each model is tuned with `objective="size"` in up to three ways: convolutions in 8 bits (as before they had 4 bits) and
products rounded to nearest; all weights rounded to nearest; rounded by second moments. The best model is scored on data
that took no part in the search, too.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import onnx

import quaver
from benchmarks import models, result_files
from quaver.adapters.onnxrt.adapter import OnnxAdapter

MODELS = ("mobilenetv2_cifar10", "ppocr_cls180", "ppocrv4_en_rec", "minilm_imdb", "minilm_retrieval")
EIGHT_BITS, NEAREST, ROUNDED = "convolutions in 8 bits", "nearest", "second moments"


def tuned(name: str, what: str) -> dict[str, Any]:
    """Tune a model in one way, and return a row."""
    bench = models.load(name)
    rules = {"Conv": {"weight": {"dtype": ["int8", "fp32"]}}} if what == EIGHT_BITS else {}
    patch = mock.patch.object(OnnxAdapter, "_more_to_record", lambda self: {})
    with tempfile.TemporaryDirectory() as folder:
        if what != ROUNDED:
            patch.start()
        began = time.process_time()
        result = quaver.fit(
            bench.model_path, calib_dataloader=bench.calib, eval_func=bench.eval_func, objective="size", relative=0.01,
            threads=1, workspace=Path(folder) / "run", report=False, verbose=0, op_type_dict=rules,
        )  # fmt: skip
        seconds = time.process_time() - began
        mock.patch.stopall()
        best, fp32 = result.best, result.fp32
        assert best is not None and fp32 is not None and result.model is not None
        counts = {str(kind): count for kind, count in best.config.counts.items()}
        return {
            "model": name, "what": what, "met": result.met, "fp32": result.baseline, "score": best.score,
            "size": best.model_size / fp32.model_size, "ops": counts, "evaluations": result.evaluations,
            "held_out": bench.held_out_eval_func(result.model), "cpu_seconds": seconds,
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS)
    rows = []
    for name in parser.parse_args().models:
        model = onnx.load(models.load(name).model_path, load_external_data=False)
        has_convolutions = any(node.op_type == "Conv" for node in model.graph.node)
        for what in (EIGHT_BITS, NEAREST, ROUNDED)[not has_convolutions :]:
            rows.append(tuned(name, what))
            print(rows[-1], flush=True)
            title = "Size at a criterion of 1 %: weights of four bits, rounded to nearest and by second moments"
            result_files.write("rounding", title, rows, replaces=("model", "what"))


if __name__ == "__main__":
    main()
