"""Prepares the models and shows what they are.

    python -m benchmarks.models                     # all of them; half an hour from nothing, most of it training
    python -m benchmarks.models magika_filetype

The cache is `benchmarks/cache/`, or what the environment variable QUAVER_BENCH_CACHE says. All files are compared with
the hashes that were written when they were prepared; the exit code is 1 if one differs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.models import REGISTRY, Bench, Registry
from benchmarks.models.bench import Arrays
from benchmarks.models.manifest import DamagedError


def float_model(path: Path) -> Callable[[Arrays], Any]:
    """The model as it is, to be called with arrays by name; several outputs come as a list."""
    if path.suffix == ".keras":
        import keras

        network = keras.models.load_model(path)
        return lambda feed: np.asarray(network(*feed.values(), training=False))
    import onnxruntime as ort

    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])

    def run(feed: Arrays) -> Any:
        outputs = session.run(None, dict(feed))
        return outputs[0] if len(outputs) == 1 else outputs

    return run


def scores(bench: Bench) -> str:
    """What the float model scores on either half."""
    try:
        model = float_model(bench.model_path)
    except ModuleNotFoundError as error:
        return f"needs {error.name}"
    return f"{bench.eval_func(model):.4f} {bench.held_out_eval_func(model):.4f}"


def main(arguments: Sequence[str] | None = None, registry: Registry = REGISTRY) -> int:
    """Prepare, check and print; the number of models that are damaged."""
    known = tuple(registry.entries)
    parser = argparse.ArgumentParser(prog=registry.package, description="Prepare the models and check their files.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(known)}; all if there is none")
    names = parser.parse_args(arguments).names or known
    try:
        tasks = {name: registry.find(name).task for name in names}
    except ValueError as error:
        parser.error(str(error))
    rows, damaged = [], 0
    for name, task in tasks.items():
        try:
            bench = registry.load(name, verify=True)
        except DamagedError as error:
            rows.append(f"{name:21}{task:29}NO: {error}")
            damaged += 1
        else:
            rows.append(f"{name:21}{task:29}{bench.samples:>7}  {scores(bench):>15}  ok")
    print(f"{'model':21}{'task':29}{'samples':>7}  {'fp32, held out':>15}  sha256", *rows, sep="\n")
    return damaged


if __name__ == "__main__":
    sys.exit(min(1, main()))
