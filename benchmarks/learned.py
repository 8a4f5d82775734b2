"""Compare `bayesian` and `tpe` without a warm start to random points of the same space.

    python -m benchmarks.learned [CASE...]   # of benchmarks.planted; some minutes

On nets with planted outliers (`benchmarks.planted`), each run has the same number of evaluations. A row tells how many
ops are in fp32 in the best model that meets the criterion, and after how many evaluations it was found.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx

import quaver
from benchmarks import planted, result_files
from quaver.demo.data import Accuracy, digits

CASES = ("W1", "W2", "A1 minmax", "A2 minmax")
SEEDS = (0, 1)
MAX_TRIALS = 30
PACKAGES = ("scikit-optimize", "optuna")
# Random points are the first proposals of `bayesian`, which are all that it makes here.
STRATEGIES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "random points": ("bayesian", {"warm_start": False, "random_points": MAX_TRIALS}),
    "bayesian": ("bayesian", {"warm_start": False}),
    "tpe": ("tpe", {}),
}


def measure(case: str, label: str, seed: int) -> dict[str, Any]:
    """Return the row of one run."""
    train, _, images, labels = digits()
    strategy, options = STRATEGIES[label]
    with tempfile.TemporaryDirectory() as folder:
        result = quaver.fit(
            planted.plant(onnx.load(planted.MODEL), planted.CASES[case]),
            calib_dataloader=train[: planted.CALIBRATION_IMAGES],
            eval_func=Accuracy(images, labels),
            strategy=strategy,
            strategy_options=options,
            relative=0.01,
            timeout=3600,
            max_trials=MAX_TRIALS,
            objective="int8_ops",
            op_name_dict=planted.CASES[case].rules,
            seed=seed,
            threads=1,
            verbose=0,
            report=False,
            workspace=Path(folder) / "run",
        )
    assert result.best is not None
    return {
        "case": case,
        "strategy": label,
        "seed": seed,
        "evaluations": result.evaluations,
        "met": result.met,
        "fp32_ops": len(result.best.config.fp32_ops),
        "found_after": result.best.number + 1,
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "cases", nargs="*", metavar="CASE", help=f"of benchmarks.planted; by default {', '.join(CASES)}"
    )
    rows = []
    for case in parser.parse_args().cases or CASES:
        for label in STRATEGIES:
            for seed in SEEDS:
                rows.append(measure(case, label, seed))
                print(rows[-1], flush=True)
    title = "Fewest ops in fp32 that strategies find from random points"
    result_files.write("learned", title, rows, replaces=["case", "strategy", "seed"], packages=PACKAGES)


if __name__ == "__main__":
    main()
