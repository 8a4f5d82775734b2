"""What diagnosis costs, against plain inference of the same samples by the float model, and whether memory grows."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks import shapes
from benchmarks.peers import memory
from quaver.adapters import AdapterOptions, load_model
from quaver.demo.data import digits
from quaver.demo.run import MODEL
from quaver.engine.inspection.diagnose import DiagnosisOptions, examine
from quaver.engine.observers import silent
from quaver.space import TuningSpace

Feeds = list[Mapping[str, Any]]


def convolutions(ops: int = 100, channels: int = 32, size: int = 28) -> onnx.ModelProto:
    """A hundred 3x3 convolutions, about as much work for each value as in a common network."""
    random = np.random.default_rng(0)
    nodes, constants, last = [], [], "x"
    for at in range(ops):
        weight = random.standard_normal((channels, channels, 3, 3)) * np.sqrt(2 / 9 / channels)
        constants.append(numpy_helper.from_array(weight.astype(np.float32), f"w{at}"))
        nodes.append(helper.make_node("Conv", [last, f"w{at}"], [f"c{at}"], f"conv{at}", pads=[1] * 4))
        nodes.append(helper.make_node("Relu", [f"c{at}"], [f"r{at}"], f"relu{at}"))
        last = f"r{at}"
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", channels, size, size]) for name in ("x", last)]
    graph = helper.make_graph(nodes, "convolutions", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _random(model: onnx.ModelProto, samples: int) -> tuple[onnx.ModelProto, Feeds]:
    return model, list(shapes.feeds(model, samples))


def _deep() -> tuple[Any, Feeds]:
    random = np.random.default_rng(1)
    return convolutions(), [{"x": random.standard_normal((1, 32, 28, 28)).astype(np.float32)} for _ in range(64)]


def _demo() -> tuple[Any, Feeds]:
    images = digits()[0][:128]
    name = onnx.load(MODEL).graph.input[0].name
    return MODEL, [{name: images[at : at + 1]} for at in range(len(images))]


CASES: dict[str, Callable[[], tuple[Any, Feeds]]] = {
    "100 convolutions": _deep,
    "resnet50": lambda: _random(shapes.resnet50(), 24),
    "mobilenet_v2": lambda: _random(shapes.mobilenet_v2(), 128),
    "minilm": lambda: _random(shapes.minilm(), 32),
    "demo network": _demo,
}


def passes(name: str, rounds: int = 3) -> dict[str, Any]:
    """Return the processor time of a diagnosis and of plain inference, one sample at a time, interleaved on one thread.

    A diagnosis counts whole: sessions, weights, statistics, causes. Calibration and timing of ops do not belong to it.
    """
    model, feeds = CASES[name]()
    adapter = load_model(model, AdapterOptions(threads=1))
    adapter.calibrate(feeds)
    config = TuningSpace(adapter.ops()).default_config()
    plain = adapter.build(None)
    plain.run(feeds[0])
    once, whole = [], []
    for _ in range(rounds):
        begin = time.process_time()
        for feed in feeds:
            plain.run(feed)
        middle = time.process_time()
        found = examine(
            adapter, adapter.inspect_quantized(config), config, feeds, DiagnosisOptions(timing=False), silent
        )
        whole.append(time.process_time() - middle)
        once.append(middle - begin)
    adapter.close()
    return {
        "model": name,
        "ops": len(found.layers),
        "samples": found.samples,
        "fp32 pass ms": 1e3 * statistics.median(once),
        "diagnosis ms": 1e3 * statistics.median(whole),
        "fp32 passes": statistics.median(taken / one for taken, one in zip(whole, once, strict=True)),
    }


def peak_megabytes(samples: int) -> float:
    """Return the peak memory of a process that diagnoses on `count` samples, which are made one at a time."""
    code = f"from benchmarks.diagnosing import diagnose_alone; diagnose_alone({samples})"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    return float(json.loads(out.strip().splitlines()[-1]))


def diagnose_alone(samples: int) -> None:
    """The body of that process."""
    import quaver

    class Data:
        def __iter__(self) -> Any:
            return shapes.feeds(model, samples)

    model = shapes.mobilenet_v2()
    quaver.diagnose(model, None, Data(), samples=None, timing=False, threads=1)
    print(json.dumps(memory.peak()))


def run() -> list[dict[str, Any]]:
    """Time of several shapes, memory of one."""
    rows = [passes(name) for name in CASES]
    few, many = peak_megabytes(24), peak_megabytes(120)
    rows.append(
        {"model": "mobilenet_v2", "peak MB, 24 samples": few, "peak MB, 120 samples": many, "ratio": many / few}
    )
    return rows
