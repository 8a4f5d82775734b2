"""What the bodies of If, Loop and Scan capture reaches them as float, in builds that ONNX Runtime loads and runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from captured_tensors import BETWEEN, BODIES
from onnx_models import Net, deviation, kernels, opened, space, weight


@pytest.mark.parametrize("body", BODIES)
def test_a_body_reads_an_int8_result_behind_ops_that_pass_it_on(body: str) -> None:
    script = Path(__file__).parents[1] / "captured_tensors.py"
    done = subprocess.run([sys.executable, script, body], capture_output=True, text=True, timeout=300, check=False)
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert done.returncode == 0, f"behind {lines[-1] if lines else 'nothing'}: {done.stderr[-2000:]}"
    assert [(between, goes_on) for between, goes_on, *_ in lines] == [
        (between, goes_on) for between in BETWEEN for goes_on in ("False", "True")
    ]
    for between, goes_on, as_float, as_int8, *ran in lines:
        assert float(as_float) == 0, between
        assert float(as_int8) < 0.05, between
        assert "Conv_0" in ran, between
        assert any(name.startswith("Sigmoid") for name in ran) == (goes_on == "True"), between


def test_a_captured_tensor_that_a_float_op_reads_too_has_one_guard() -> None:
    net = Net()
    rows = net.Flatten(net.Conv(net.input(2, 4, 8, 8), weight(4, 4, 1, 1)))
    outputs = BODIES["Loop"](net, rows), net.Gemm(rows, weight(256, 8))
    model = net.model(*outputs)
    with opened(model) as adapter:
        config = space(adapter).only_int8("Conv_0")
        nodes = adapter.build(config).model.graph.node
        assert len({node.name for node in nodes}) == len(nodes)
        assert set(kernels(adapter, config)) == {"Conv_0"}
        assert deviation(model, adapter, config) < 0.05


def test_there_is_no_local_error_where_no_op_is_int8() -> None:
    net = Net()
    model = net.model(net.Exp(net.ConvTranspose(net.input(2, 4, 8, 8), weight(4, 4, 1, 1))))
    with opened(model) as adapter:
        ops = space(adapter)
        assert adapter.local_errors(ops.all_fp32()) == {}
        assert all(np.isfinite(adapter.local_errors(ops.only_int8("ConvTranspose_0"))["ConvTranspose_0"]))
