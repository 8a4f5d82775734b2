"""The result table of MXNet's tutorial on another ResNet50 v2 that int8 ruins: each strategy, in MXNet and in ONNX.

    make .venv-mxnet/mxnet && .venv-mxnet/bin/python -m benchmarks.mxnet_walk

Evaluations are calls of eval_func, with the baseline. The speedup is over the fp32 model as the runtime fuses it, in
processor time of one thread, interleaved. "mycustom" is `mxnet_custom_strategy`, the others are quaver's own. Rows that
are measured replace those of the same framework and strategy in `benchmarks/results/mxnet_walk.json`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import quaver
from benchmarks import mxnet_custom_strategy, result_files
from benchmarks import mxnet_resnet as resnet
from quaver.adapters import Adapter, AdapterOptions
from quaver.adapters.mxnet import to_onnx
from quaver.adapters.mxnet.adapter import MXNetAdapter
from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.demo.data import Accuracy
from quaver.engine.timing.latency import relative_latency
from quaver.neural_compressor.quantization import quantized
from quaver.space import TuningSpace

Row = dict[str, Any]

CRITERION = 0.015
MAX_TRIALS = 500
STRATEGIES = ("basic", "mse", "bayesian", "mycustom", "random", "auto")


@dataclass(frozen=True)
class Walk:
    """The network in one framework, with what a run on it needs."""

    model: Any
    data: Any
    accuracy: Callable[[Any], float]
    adapter: Adapter


class CountedEvaluations:
    """An eval_func that counts its calls."""

    def __init__(self, score: Callable[[Any], float]) -> None:
        self._score, self.calls = score, 0

    def __call__(self, model: Any) -> float:
        self.calls += 1
        return self._score(model)


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
    """Train, plant, tune, and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategies", nargs="*", default=STRATEGIES, choices=STRATEGIES)
    parser.add_argument("--frameworks", nargs="*", default=tuple(FRAMEWORKS), choices=FRAMEWORKS)
    options = parser.parse_args()
    net = resnet.trained()
    resnet.plant(net)
    title = "Strategies on a ResNet50 v2 that int8 ruins"
    with tempfile.TemporaryDirectory() as folder:
        for name in options.frameworks:
            walk = FRAMEWORKS[name](net, Path(folder))
            for row in (*all_int8(walk), *(tuned(strategy, walk) for strategy in options.strategies)):
                print(name, row, flush=True)
                named = [{"framework": name, **row}]
                result_files.write("mxnet_walk", title, named, replaces=["framework", "strategy"], packages=["mxnet"])


def all_int8(walk: Walk) -> Iterator[Row]:
    """Yield the rows of the models that nothing was tuned for: fp32, and all ops in int8 by each calibration."""
    adapter = walk.adapter
    adapter.calibrate(walk.data)
    space, fp32 = TuningSpace(adapter.ops()), adapter.build(None)
    yield _row("fp32", fp32_ops=len(space.ops), accuracy=walk.accuracy(fp32), speedup=1.0)
    for method in ("minmax", "entropy"):
        config = space.configure(
            lambda op, method=method: next(
                (pick for pick in op.quantized_choices if pick.calibration == method), op.quantized_choices[0]
            )
        )
        model = adapter.build(config)
        speedup = 1 / relative_latency(model, fp32, adapter.probe_samples[0])
        yield _row(f"all int8, {method}", accuracy=walk.accuracy(model), speedup=speedup)


def tuned(name: str, walk: Walk) -> Row:
    """Return the row of one run of one strategy."""
    accuracy = CountedEvaluations(walk.accuracy)
    settings = {"relative": CRITERION, "max_trials": MAX_TRIALS, "strategy": name}
    with tempfile.TemporaryDirectory() as folder:
        keywords = {"workspace": Path(folder), "verbose": 0, "report": False}
        if name == mxnet_custom_strategy.NAME:
            result = quantized(walk.model, settings, walk.data, accuracy, keywords).result
        else:
            result = quaver.fit(walk.model, calib_dataloader=walk.data, eval_func=accuracy, **{**settings, **keywords})
    assert result is not None and result.best is not None and result.best.score is not None
    fp32_ops = result.best.config.fp32_ops
    return _row(
        name,
        evaluations=accuracy.calls,
        met=result.met,
        fp32_ops=len(fp32_ops),
        fp32_names=", ".join(fp32_ops) if len(fp32_ops) <= 3 else "",
        accuracy=result.best.score,
        speedup=1 / result.best.measured["latency"],
    )


def _row(
    strategy: str, *, accuracy: float, speedup: float, evaluations: int = 0, met: bool = True, fp32_ops: int = 0,
    fp32_names: str = "",
) -> Row:  # fmt: skip
    return {
        "strategy": strategy,
        "evaluations": evaluations,
        "met": met,
        "fp32_ops": fp32_ops,
        "fp32_names": fp32_names,
        "accuracy": round(accuracy, 4),
        "speedup": round(speedup, 2),
    }


if __name__ == "__main__":
    main()
