"""The loss of an all-int8 model by calibration samples: `python -m benchmarks.sample_counts NAME...`

Samples are drawn at random, several times, from the calibration data and the inputs of the held-out half; scored is the
other half. Each calibration method is scored, and beside it stands what can be told without labels on the samples that
the adapter keeps: the relative error of the outputs, and the share of samples on which some decision differs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks import models, result_files, unseen
from benchmarks.models.bench import Bench, feeds
from quaver.adapters import Adapter, AdapterOptions, load_model
from quaver.engine.inspection.output_error import OutputErrors
from quaver.ops import CALIBRATIONS, QuantConfig
from quaver.space import TuningSpace

COUNTS = (16, 64, 256, 400)
DRAWS = 6


def rows(name: str, counts: tuple[int, ...] = COUNTS, draws: int = DRAWS) -> Iterator[dict[str, Any]]:
    """Yield the figures of each count and draw."""
    bench: Bench = models.load(name) if name in models.NAMES else unseen.load(name)
    held_out = bench.held_out_eval_func
    pool = [*bench.calib, *feeds(held_out.inputs, min(held_out.batch, 1))]
    with contextlib.closing(load_model(str(bench.model_path), AdapterOptions(threads=1))) as adapter:
        fp32 = bench.eval_func(adapter.build(None))
        for count in counts:
            for draw in range(draws if count <= len(pool) else 0):
                chosen = np.random.default_rng(draw).permutation(len(pool))[:count]
                adapter.calibrate([pool[at] for at in chosen])
                yield {"model": name, "fp32": fp32, "samples": count, "draw": draw, **_methods(adapter, bench, fp32)}


def _methods(adapter: Adapter, bench: Bench, fp32: float) -> dict[str, Any]:
    """Return the loss, the output error and the disagreement of each calibration method."""
    space = TuningSpace(adapter.ops()).without(adapter.ops_with_mask_values)
    errors = OutputErrors(adapter, space.ops[-1].name, adapter.probe_samples)
    result: dict[str, Any] = {"loss": {}, "error": {}, "disagreement": {}}
    for method in CALIBRATIONS:
        config = space.default_config(calibration=method)
        result["loss"][method] = round(fp32 - bench.eval_func(adapter.build(config)), 4)
        result["error"][method] = round(errors.error(config, len(adapter.probe_samples)), 5)
        result["disagreement"][method] = round(_disagreement(adapter, config), 4)
    return result


def _disagreement(adapter: Adapter, config: QuantConfig) -> float:
    """Return the share of kept samples on which the largest of the last axis differs at some place of an output."""
    pair = [adapter.assemble(one) for one in (None, config)]
    different = []
    for feed in adapter.probe_samples:
        outputs = [out if isinstance(out, list) else [out] for out in (model.run(feed) for model in pair)]
        different.append(
            any(
                before.shape != after.shape or bool((before.argmax(-1) != after.argmax(-1)).any())
                for before, after in zip(*outputs, strict=True)
                if before.ndim > 1 and before.dtype.kind == "f"
            )
        )
    return float(np.mean(different))


def main() -> None:
    """Measure the models that are named, and put their figures in place of earlier ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", metavar="NAME", help="models of benchmarks.models or benchmarks.unseen")
    parser.add_argument("--draws", type=int, default=DRAWS, metavar="N", help=f"draws of each count (default: {DRAWS})")
    args = parser.parse_args()
    for name in args.names:
        measured = []
        for row in rows(name, draws=args.draws):
            print(json.dumps(row), flush=True)
            measured.append(row)
        title = "Loss of the all-int8 model by the number of calibration samples"
        result_files.write("sample_counts", title, measured, replaces=["model"])


if __name__ == "__main__":
    sys.exit(main())
