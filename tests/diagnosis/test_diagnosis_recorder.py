"""Diagnosis is cheap, and its memory does not grow with the samples."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import diagnosis_models as models
import onnx
import pytest
from onnx import TensorProto

import quaver
from quaver.adapters import AdapterOptions, load_model
from quaver.adapters.onnxrt.run import session as sessions
from quaver.diagnosis import Recorder
from quaver.engine.inspection.diagnose import DiagnosisOptions, examine
from quaver.engine.observers import silent
from quaver.space import TuningSpace


class Sessions:
    """Stands in for the making of sessions, and counts what goes through each."""

    def __init__(self) -> None:
        self.models: list[onnx.ModelProto] = []
        self.samples: list[int] = []
        self._create = sessions.create

    def create(self, model: bytes, *rest: Any) -> Any:
        at, session = len(self.models), self._create(model, *rest)
        self.models.append(onnx.load_model_from_string(model))
        self.samples.append(0)

        class Counted:
            def run(_, names: Any, feed: dict[str, Any]) -> Any:  # noqa: N805
                self.samples[at] += len(feed["x"])
                return session.run(names, feed)

        return Counted()


def test_each_sample_runs_once_through_two_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """What that takes, as a multiple of the float model's time, is measured by benchmarks/diagnosing.py."""
    net, last = models.Net(), "x"
    for at in range(100):
        last = net.add("Relu", f"relu{at}", net.conv(f"conv{at}", last, models.noise(16, 16, 1, 1, seed=at)))
    data = [models.images(7, seed=at) for at in range(5)]
    adapter = load_model(net.model(last), AdapterOptions(threads=1))
    adapter.calibrate(data)
    config = TuningSpace(adapter.ops()).default_config()
    counted = Sessions()
    monkeypatch.setattr(sessions, "create", counted.create)
    found = examine(adapter, adapter.inspect_quantized(config), config, data, DiagnosisOptions(timing=False), silent)
    adapter.close()
    assert found.samples == 35 and len(found.layers) == 100
    repairs = {one for op in adapter.ops() for one in op.repairs}
    # Half of those kept: plain, and by repair. Four tell if the outputs have parts.
    assert counted.samples == [35, 35, *[16] * (1 + len(repairs)), 4]
    beside, whole = (Counter(node.op_type for node in model.graph.node) for model in counted.models[:2])
    assert beside["Conv"] == 200 and whole["Conv"] == 100  # each in float and in int8 beside it; each in int8
    assert beside["QuantizeLinear"] == 200 and whole["QuantizeLinear"] == 101  # what an op reads, and what it writes
    given = Counter(value.type.tensor_type.elem_type for model in counted.models[:2] for value in model.graph.output)
    assert given[TensorProto.UINT8] == 200  # a quarter of the bytes


def test_batches_are_joined_and_split_to_fit_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small batches are few large ones: what each costs besides is spent seldom."""
    counts: list[int] = []
    add = Recorder.add

    def noted(self: Recorder, local: Any, whole: Any, samples: int) -> None:
        counts.append(samples)
        add(self, local, whole, samples)

    monkeypatch.setattr(Recorder, "add", noted)
    quaver.diagnose(models.chain(), None, [models.images(2, seed=at) for at in range(40)], timing=False, threads=1)
    assert counts == [1, 79]
    counts.clear()
    tensor = 16 * 36  # values; three ops have a float and two bytes for each, and there are the input and two outputs
    monkeypatch.setattr("quaver.engine.inspection.diagnose.BATCH_BYTES", 10 * tensor * (3 * 6 + 3 * 4))
    quaver.diagnose(models.chain(), None, models.images(65), timing=False, threads=1)
    assert counts == [1, *[10] * 6, 4]


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
