"""The walk of MXNet's documentation: a ResNet50 v2 that int8 ruins, tuned by each strategy, in MXNet and in ONNX.

    make .venv-mxnet/mxnet && .venv-mxnet/bin/python -m benchmarks.mxnet_walk

Evaluations are calls of eval_func, the baseline's among them. Speed is that of the fp32 model as the runtime fuses it,
by the time of the thread that computes, interleaved.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import quaver
from benchmarks import mxnet_resnet as resnet
from quaver.adapters import Adapter, AdapterOptions
from quaver.adapters.mxnet import to_onnx
from quaver.adapters.mxnet.adapter import MXNetAdapter
from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.demo.data import Accuracy
from quaver.engine.timing.latency import relative_latency
from quaver.space import TuningSpace

CRITERION = 0.015
MAX_TRIALS = 500
# Of Neural Compressor 1.13 with MXNet on another network of this kind; it is not run here. `bayesian` found nothing in
# the 500 trials of MXNet's documentation.
PEER = {"basic": "88", "mse": "26", "bayesian": "500, not met"}
STRATEGIES = ("basic", "mse", "bayesian", "random", "custom", "auto")


class WorstFirst(quaver.Strategy):
    """The document's own kind of strategy: ops back to fp32 one by one, those that hurt most first."""

    name = "custom"

    def propose(self, space: Any, probe: Any) -> Iterator[Any]:
        """Ask for the ranking, and walk along it."""
        config = space.default_config()
        yield config
        for op in probe.ranking():
            config = config.fallback(op)
            yield config


@dataclass(frozen=True)
class Walk:
    """The network in one framework, with what a run on it needs."""

    model: Any
    data: Any
    accuracy: Callable[[Any], float]
    adapter: Adapter


class StrictStrategy:
    """An eval_func that knows how often it was called, and for how long."""

    def __init__(self, score: Callable[[Any], float]) -> None:
        self._score, self.calls, self.seconds = score, 0, 0.0

    def __call__(self, model: Any) -> float:
        begin = time.perf_counter()
        score = self._score(model)
        self.calls, self.seconds = self.calls + 1, self.seconds + time.perf_counter() - begin
        return score


def in_mxnet(net: Any, folder: Path) -> Walk:
    """The network as it is."""
    images, labels, held_out, truth = resnet.digits()
    data = resnet.mx.io.NDArrayIter(images[:192], labels[:192], 64)
    return Walk(net, data, resnet.Accuracy(held_out, truth), MXNetAdapter.load(net, AdapterOptions(threads=1)))


def in_onnx(net: Any, folder: Path) -> Walk:
    """The same network as MXNet exports it."""
    images, _, held_out, truth = resnet.digits()
    path = to_onnx(net, folder / "resnet.onnx", images[:8])
    adapter = OnnxAdapter.load(path, AdapterOptions(threads=1))
    return Walk(path, images[:192], Accuracy(held_out[:400], truth[:400]), adapter)  # the 400 that MXNet's batches hold


FRAMEWORKS = {"mxnet": in_mxnet, "onnx": in_onnx}


def main() -> None:
    """Train, plant, tune, and print a table for each framework."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strategies", nargs="*", default=STRATEGIES)
    parser.add_argument("--frameworks", nargs="*", default=tuple(FRAMEWORKS), choices=FRAMEWORKS)
    wanted = parser.parse_args()
    net = resnet.trained()
    resnet.plant(net)
    with tempfile.TemporaryDirectory() as folder:
        for name in wanted.frameworks:
            walk = FRAMEWORKS[name](net, Path(folder))
            print(f"\n{name}: ", end="")
            _all_int8(walk)
            for strategy in wanted.strategies:
                print(tuned(strategy, walk), flush=True)


def _all_int8(walk: Walk) -> None:
    """The head of a table: what happens when nothing is tuned."""
    adapter = walk.adapter
    adapter.calibrate(walk.data)
    space, fp32 = TuningSpace(adapter.ops()), adapter.build(None)
    print(f"{len(space.ops)} ops; fp32 {walk.accuracy(fp32):.4f}")
    print("| | evaluations | of its namesake | fp32 ops | accuracy | speed-up | seconds outside eval_func |")
    print("|---|---|---|---|---|---|---|")
    for method in ("minmax", "entropy"):
        config = space.configure(
            lambda op, method=method: next(
                (pick for pick in op.quantized_choices if pick.calibration == method), op.quantized_choices[0]
            )
        )
        model = adapter.build(config)
        speed = 1 / relative_latency(model, fp32, adapter.probe_samples[0])
        print(f"| all int8, {method} | | | 0 | {walk.accuracy(model):.4f} | {speed:.2f} | |")


def tuned(name: str, walk: Walk) -> str:
    """A row of the table: one run of one strategy."""
    accuracy, start = StrictStrategy(walk.accuracy), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        result = quaver.fit(
            walk.model,
            calib_dataloader=walk.data,
            eval_func=accuracy,
            strategy=WorstFirst() if name == WorstFirst.name else name,
            relative=CRITERION,
            max_trials=MAX_TRIALS,
            workspace=Path(folder),
            verbose=0,
            report=False,
        )
    outside = time.perf_counter() - start - accuracy.seconds
    assert result.best is not None
    fallen = result.best.config.fp32_ops
    told = f"{len(fallen)}: {', '.join(fallen)}" if len(fallen) <= 3 else f"{len(fallen)}"
    speed = 1 / result.best.measured["latency"]
    score = f"{result.best.score:.4f}{'' if result.met else ' (not met)'}"
    return f"| {name} | {accuracy.calls} | {PEER.get(name, '')} | {told} | {score} | {speed:.2f} | {outside:.0f} |"


if __name__ == "__main__":
    main()
