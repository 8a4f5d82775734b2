"""Scores of samples on real models: what early stop saves, and what a winner scores on the half it was not chosen by.

    python -m benchmarks.verdicts [NAME...]   # models of benchmarks.models whose score is an accuracy

Each model is tuned with one weight scale a layer, which costs it accuracy, by a strategy that goes by whether a trial
is met: with early stop and without. The samples are shuffled once, as early stop wants them.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import quaver
from benchmarks import models, result_files
from benchmarks.models.bench import Evaluation, feeds

NAMES = ("mobilenetv2_cifar10", "ppocr_cls180")
PER_TENSOR = {"*": {"weight": {"granularity": ["per_tensor"]}, "activation": {"mode": ["static"]}, "repairs": []}}
BATCH = 20


class RightAnswers:
    """An eval_func: yields for each sample whether the largest output is the right one."""

    def __init__(self, evaluation: Evaluation) -> None:
        order = np.random.default_rng(0).permutation(len(evaluation.labels))
        self._inputs = {name: np.asarray(values)[order] for name, values in evaluation.inputs.items()}
        self._labels = np.asarray(evaluation.labels)[order]

    def __call__(self, model: Any) -> Iterator[Any]:
        """Score a model batch by batch."""
        done = 0
        for feed in feeds(self._inputs, BATCH):
            answers = np.asarray(model(feed)).argmax(axis=-1)
            yield answers == self._labels[done : done + len(answers)]
            done += len(answers)


def run(name: str, folder: Path) -> dict[str, Any]:
    """The figures of a model."""
    bench = models.load(name)
    result = {}
    for early in (True, False):
        result[early] = quaver.fit(
            str(bench.model_path), calib_dataloader=bench.calib, eval_func=RightAnswers(bench.eval_func),
            confirm=RightAnswers(bench.held_out_eval_func), confirm_tries=1, strategy="mse_v2", objective="size",
            op_type_dict=PER_TENSOR, early_stop=early, max_trials=40, threads=1, report=False, verbose=0,
            workspace=folder / f"{name} {early}",
        )  # fmt: skip
    early, full = result[True], result[False]
    (confirmed,) = early.confirmations
    return {
        "model": name,
        "trials": len(early.trials),
        "stopped": sum(trial.stopped for trial in early.trials),
        "samples": sum(trial.seen for trial in early.trials),
        "without early stop": sum(trial.seen for trial in full.trials),
        "same winner": early.best.config == full.best.config,
        "loss": early.best.loss,
        "interval": early.best.interval,
        "loss on the other half": confirmed.loss,
        "its interval": confirmed.interval,
    }


def main() -> None:
    """All models, printed and kept."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [run(name, Path(folder)) for name in sys.argv[1:] or NAMES]
    result_files.write("verdicts", "Scores of samples on real models", rows)
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
