"""The second format: integer operators by name in the file. Same numbers, same kernels, no pairs to be fused."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx_graphs import NETWORKS
from onnx_models import data, kernels, opened, random_config, space

from quaver.adapters import TimingOptions
from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.adapters.onnxrt.profile.kernels import INTEGER_KERNELS, plain_name
from quaver.adapters.onnxrt.run import session as sessions
from quaver.ops import QuantConfig

HEAVY = {"Conv", "FusedConv", "Gemm", "FusedGemm", "MatMul", "FusedMatMul"}
Pair = tuple[OnnxAdapter, OnnxAdapter, list[QuantConfig]]


@pytest.fixture(scope="module", params=NETWORKS)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """The same network in both formats, and some configurations."""
    path = NETWORKS[request.param]
    with opened(path) as qdq, opened(path, calibrate=False, quant_format="qoperator") as qoperator:
        qoperator.restore(qdq.calibrate(data(qdq, batch=8)))
        rng = np.random.default_rng(2)
        ops = space(qdq)
        yield qdq, qoperator, [ops.default_config(), ops.all_fp32(), *(random_config(ops, rng) for _ in range(5))]


def test_outputs_are_equal_to_the_bit(pair: Pair) -> None:
    qdq, qoperator, configs = pair
    feed = data(qdq, batch=8)[0]
    for config in configs:
        assert np.array_equal(qoperator.build(config).run(feed), qdq.build(config).run(feed))


def test_the_file_names_the_kernels_of_the_configuration(pair: Pair) -> None:
    _, qoperator, configs = pair
    for config in configs:
        model = qoperator.assemble(config).model
        onnx.checker.check_model(model, full_check=True)
        integer = {plain_name(node.name) for node in model.graph.node if node.op_type in INTEGER_KERNELS}
        calibrated = {name for name, choice in config.items() if choice.quantized and choice.calibrated}
        assert calibrated <= integer <= set(config.int8_ops)
        assert calibrated <= set(kernels(qoperator, config))


def test_nothing_that_should_be_int8_is_left_as_float(pair: Pair) -> None:
    _, qoperator, configs = pair
    types = {node.op_type for node in qoperator.assemble(configs[0]).model.graph.node}
    assert "QuantizeLinear" in types and not types & HEAVY


def test_the_saved_file_is_the_model_and_smaller(pair: Pair, tmp_path: Path) -> None:
    qdq, qoperator, configs = pair
    feed = data(qdq, batch=8)[0]
    for index, config in enumerate(configs[:3]):
        model = qoperator.build(config)
        path = model.save(tmp_path / f"{index}.onnx")
        assert hashlib.sha256(path.read_bytes()).hexdigest() == model.sha256
        assert path.stat().st_size == model.size
        assert np.array_equal(ort.InferenceSession(path).run(None, feed)[0], model.run(feed))
    assert qoperator.assemble(configs[0]).size < qdq.assemble(configs[0]).size


def test_signature_and_metadata_are_kept(tmp_path: Path) -> None:
    given = onnx.load_model(NETWORKS["residual"])
    given.metadata_props.add(key="labels", value="0,1,2")
    with opened(given, quant_format="qoperator") as adapter:
        built = adapter.assemble(space(adapter).default_config()).model
    assert [entry.value for entry in built.metadata_props if entry.key == "labels"] == ["0,1,2"]
    for mine, users in zip(
        (built.graph.input, built.graph.output), (given.graph.input, given.graph.output), strict=True
    ):
        assert [(value.name, value.type) for value in mine] == [(value.name, value.type) for value in users]


def test_a_qoperator_model_is_timed_with_its_own_kernels(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not as the model of pairs that has the same kernels in the end."""
    qdq, qoperator, (default_config, *_) = pair
    qoperator.keep_probe_samples(data(qdq, batch=8))
    content = qoperator.assemble(default_config).SerializeToString()
    made: list[bytes] = []
    create = sessions.create

    def noted(model: Any, *rest: Any) -> Any:
        made.append(model)
        return create(model, *rest)

    monkeypatch.setattr(sessions, "create", noted)
    seconds = qoperator.op_seconds(default_config)
    assert made[-1] == content
    assert all(seconds[name] > 0 for name in default_config.int8_ops)
    timed = qoperator.profile(content, None, TimingOptions(threads=1, warmup=1, runs=5), qoperator)
    assert {kernel.op for kernel in timed.kernels if kernel.kernel in INTEGER_KERNELS} == set(default_config.int8_ops)
    assert {name for name, precision in timed.precisions.items() if precision == "int8"} == set(default_config.int8_ops)


SCRIPT = """
import sys
sys.path[:0] = sys.argv[2:]
from onnx_models import opened, space
with opened(sys.argv[1], quant_format="qoperator") as adapter:
    print(adapter.assemble(space(adapter).default_config()).sha256, adapter.assemble(None).sha256)
"""


@pytest.mark.parametrize("which", NETWORKS)
def test_bytes_are_the_same_in_another_process(which: str) -> None:
    path = NETWORKS[which]
    with opened(path, quant_format="qoperator") as adapter:
        here = [adapter.assemble(space(adapter).default_config()).sha256, adapter.assemble(None).sha256]
    arguments = [sys.executable, "-c", SCRIPT, str(path), str(Path(__file__).parents[1])]
    there = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.split()
    assert there == here
