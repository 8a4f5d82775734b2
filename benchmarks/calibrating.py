"""What calibration by all methods costs, against plain inference of the same samples, and whether memory grows."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import onnxruntime as ort

from benchmarks import shapes
from benchmarks.peers import memory
from quaver.adapters import AdapterOptions, load_model


def time_ratio(name: str, samples: int = 60) -> dict[str, Any]:
    """Processor time of calibration and of plain inference, interleaved, the best of three."""
    model = getattr(shapes, name)()
    feeds = list(shapes.feeds(model, samples))
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    adapter = load_model(model, AdapterOptions(threads=1))
    plain, calibration = [], []
    for _ in range(3):
        start = time.process_time()
        for feed in feeds:
            session.run(None, feed)
        middle = time.process_time()
        adapter.calibrate(feeds)
        plain.append(middle - start)
        calibration.append(time.process_time() - middle)
    adapter.close()
    return {
        "model": name,
        "plain, processor ms a sample": 1e3 * min(plain) / samples,
        "calibration, processor ms a sample": 1e3 * min(calibration) / samples,
        "ratio": min(calibration) / min(plain),
    }


def peak_megabytes(name: str, samples: int) -> float:
    """Return the peak memory of a process that calibrates on a number of samples, which are made one at a time."""
    code = f"from benchmarks.calibrating import calibrate_alone; calibrate_alone({name!r}, {samples})"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    return float(json.loads(out.strip().splitlines()[-1]))


def calibrate_alone(name: str, samples: int) -> None:
    """The body of that process."""
    model = getattr(shapes, name)()
    adapter = load_model(model, AdapterOptions(threads=1))
    adapter.calibrate(shapes.feeds(model, samples))
    adapter.close()
    print(json.dumps(memory.peak()))


def run() -> list[dict[str, Any]]:
    """Time of three shapes, memory of one."""
    rows = [time_ratio(name) for name in ("resnet50", "mobilenet_v2", "minilm")]
    few, many = peak_megabytes("mobilenet_v2", 50), peak_megabytes("mobilenet_v2", 400)
    rows.append(
        {"model": "mobilenet_v2", "peak MB, 50 samples": few, "peak MB, 400 samples": many, "ratio": many / few}
    )
    return rows
