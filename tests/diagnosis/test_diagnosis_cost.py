"""Diagnosis is cheap, and its memory does not grow with the samples."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import diagnosis_models as models
import numpy as np
import onnx
import pytest

from quaver.adapters import AdapterOptions, open_model
from quaver.diagnosing import Wishes, examine
from quaver.space import TuningSpace
from quaver.watch import Observer

SAMPLES = 32


def deep(ops: int = 100, channels: int = 32, size: int = 28) -> onnx.ModelProto:
    """As many convolutions, about as much work for each value as in a common network."""
    net = models.Net(channels, size)
    last = "x"
    for at in range(ops):
        weight = models.noise(channels, channels, 3, 3, seed=at) * np.float32(np.sqrt(2))
        last = net.add("Relu", f"relu{at}", net.add("Conv", f"conv{at}", last, weight, pads=[1] * 4))
    return net.model(last)


def test_a_model_of_a_hundred_ops_costs_at_most_six_passes_of_the_float_model() -> None:
    """In processor time, which others on the machine do not add to; sessions, weights and causes included."""
    data = models.images(SAMPLES, 32, size=28)
    adapter = open_model(deep(), AdapterOptions(threads=1))
    adapter.calibrate(data)
    config = TuningSpace(adapter.inspect()).all_int8()
    model = adapter.build(None)
    model.run({"x": data[:8]})
    begin = time.process_time()
    for start in range(0, SAMPLES, 8):
        model.run({"x": data[start : start + 8]})
    once = time.process_time() - begin
    begin = time.process_time()
    found = examine(adapter, adapter.look(config), config, data, Wishes(timing=False), Observer())
    passes = (time.process_time() - begin) / once
    adapter.close()
    assert found.samples == SAMPLES and len(found.layers) == 100
    assert passes <= 6, f"{passes:.1f} passes"


MEMORY = """
import sys
import numpy as np
import diagnosis_models as models
import quaver

count = int(sys.argv[1])

class Batches:
    def __iter__(self):
        for at in range(count):
            yield models.images(8, 16, seed=at, size=32)

net = models.Net(16, 32)
last = "x"
for at in range(12):
    last = net.conv(f"conv{at}", last, models.noise(16, 16, 3, 3, seed=at))
found = quaver.diagnose(net.model(last), None, Batches(), samples=None, timing=False, threads=1)
assert found.samples == 8 * count
with open("/proc/self/status") as status:  # ru_maxrss would count the process that started this one
    print(next(line.split()[1] for line in status if line.startswith("VmHWM")))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak from /proc")
def test_memory_does_not_grow_with_the_samples() -> None:
    def peak(batches: int) -> int:
        done = subprocess.run(
            [sys.executable, "-c", MEMORY, str(batches)],
            cwd=Path(__file__).parent, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return int(done.stdout)

    few, many = peak(30), peak(150)
    assert many < few + 20_000, f"{few} KB with 240 samples, {many} KB with 1,200"
