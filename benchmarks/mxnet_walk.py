"""The walk of MXNet's documentation: a ResNet50 v2 that int8 ruins, tuned by each strategy.

    make .venv-mxnet/test && .venv-mxnet/bin/python -m benchmarks.mxnet_walk

Evaluations are calls of eval_func, the baseline's among them. Speed is that of the fp32 model with oneDNN's subgraphs,
by the time of the thread that computes, in turns.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import quaver
from benchmarks import mxnet_resnet as resnet
from quaver.adapters import AdapterOptions
from quaver.adapters.mxnet.adapter import MXNetAdapter
from quaver.engine.latency import relative_latency
from quaver.space import TuningSpace

CRITERION = 0.015
# Of Neural Compressor 1.13 on the network that its document tunes.
PEER = {"basic": 88, "mse": 26}


class WorstFirst(quaver.Strategy):
    """The document's own kind of strategy: ops back to fp32 one by one, those that hurt most first."""

    name = "custom"

    def propose(self, space: Any, probe: Any) -> Iterator[Any]:
        """Ask for the ranking, and walk along it."""
        config = space.all_int8()
        yield config
        for op in probe.ranking():
            config = config.fallback(op)
            yield config


def main() -> None:
    """Train, plant, tune, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strategies", nargs="*", default=["basic", "mse", "bayesian", "random", "custom", "auto"])
    wanted = parser.parse_args().strategies
    net = resnet.trained()
    resnet.plant(net)
    images, labels, held_out, truth = resnet.digits()
    accuracy = resnet.Accuracy(held_out, truth)
    adapter = MXNetAdapter.open(net, AdapterOptions(threads=1))
    adapter.calibrate(images[:192])
    space, fp32 = TuningSpace(adapter.inspect()), adapter.build(None)
    print(f"{len(space.ops)} ops; fp32 {accuracy(fp32):.4f}")
    print("| | evaluations | of its namesake | fp32 ops | accuracy | speed-up | seconds outside eval_func |")
    print("|---|---|---|---|---|---|---|")
    for method in ("minmax", "entropy"):
        config = space.configure(
            lambda op, method=method: next(pick for pick in op.reduced_choices if pick.calibration == method)
        )
        model = adapter.build(config)
        speed = 1 / relative_latency(model, fp32, adapter.kept[0])
        print(f"| all int8, {method} | | | 0 | {accuracy(model):.4f} | {speed:.2f} | |")
    for name in wanted:
        print(_tuned(name, net, (images, labels), accuracy), flush=True)


def _tuned(name: str, net: Any, data: Any, accuracy: resnet.Accuracy) -> str:
    images, labels = data
    accuracy.calls, start, inside = 0, time.perf_counter(), 0.0

    def timed(model: Any) -> float:
        nonlocal inside
        begin = time.perf_counter()
        score = accuracy(model)
        inside += time.perf_counter() - begin
        return score

    with tempfile.TemporaryDirectory() as folder:
        result = quaver.fit(
            net,
            calib_dataloader=resnet.mx.io.NDArrayIter(images[:192], labels[:192], 64),
            eval_func=timed,
            strategy=WorstFirst() if name == WorstFirst.name else name,
            relative=CRITERION,
            max_trials=500,
            workspace=Path(folder),
            verbose=0,
            report=False,
        )
    outside = time.perf_counter() - start - inside
    fallen = result.best.config.fp32_ops
    told = f"{len(fallen)}: {', '.join(fallen)}" if len(fallen) <= 3 else f"{len(fallen)}"
    speed = 1 / result.best.measured["latency"]
    met = "" if result.met else " (not met)"
    peer = PEER.get(name, "")
    return (
        f"| {name} | {accuracy.calls} | {peer} | {told} | {result.best.score:.4f}{met} | {speed:.2f} | {outside:.0f} |"
    )


if __name__ == "__main__":
    main()
