"""Smoothing: exact in float, better in int8, on the same kernels, and the same again from a history."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx_models import Array, Net, kernels, opened, space, weight
from unrounded import proto, unrounded

from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.errors import BuildError
from quaver.history import Header, History, read_snapshot
from quaver.ops import FLOAT, QuantConfig

f32 = np.float32
NAME = "smoothing:0.7"
CHANNELS = 32
LARGE = np.ones(CHANNELS, f32)
LARGE[[3, 11]] = 60, 40


def product(*shape: int, seed: int = 0) -> Array:
    """A weight under which the channels that stand out count as much as others, as it is in trained models."""
    return weight(*shape, seed=seed) / LARGE[:, None]


def normalized(residual: bool = False, bias: bool = True, spelled_out: bool = False) -> onnx.ModelProto:
    """Two products behind a LayerNormalization with two channels that stand out; one channel is always zero."""
    net = Net()
    x = net.input(None, 6, CHANNELS)
    scale, shift = LARGE.copy(), np.zeros(CHANNELS, f32)
    scale[5], shift[7] = 0, 0.3
    norm = net.LayerNormalization(x, scale, *([shift] if bias else []), axis=-1 if not spelled_out else 2)
    one = net.Add(net.MatMul(norm, product(CHANNELS, 24), name="one"), weight(24))
    two = net.MatMul(norm, product(CHANNELS, 24, seed=1), name="two")
    rest = [net.ReduceSum(norm, np.array([-1]))] if residual else []
    return net.model(one, two, *rest)


def unnormalized(kind: str) -> onnx.ModelProto:
    """A product of a tensor that nothing can divide in passing."""
    net = Net()
    bounded = net.Erf(net.input(None, CHANNELS))
    x = net.Sub(net.Mul(bounded, LARGE), bounded)
    parts = [product(CHANNELS, 8), weight(8)]
    if kind == "Gemm turned":
        parts[0] = np.ascontiguousarray(parts[0].T)
    made = net.MatMul(x, parts[0], name="one") if kind == "MatMul" else None
    return net.model(made or net.Gemm(x, *parts, transB=int(kind == "Gemm turned"), name="one"))


MODELS = {
    "absorbed by the normalization": lambda: normalized(),
    "absorbed, its axis counted from the front": lambda: normalized(spelled_out=True),
    "absorbed by one without a shift": lambda: normalized(bias=False),
    "by a Mul, as others read it": lambda: normalized(residual=True),
    "by a Mul before a MatMul": lambda: unnormalized("MatMul"),
    "by a Mul before a Gemm": lambda: unnormalized("Gemm"),
    "by a Mul before a turned Gemm": lambda: unnormalized("Gemm turned"),
}


@contextmanager
def calibrated(model: Any, **options: Any) -> Iterator[OnnxAdapter]:
    with opened(model, **options) as adapter:
        yield adapter


def smoothed(config: QuantConfig, *names: str, repairs: tuple[str, ...] = (NAME,)) -> QuantConfig:
    wanted = names or config.quantized_ops
    return config.replace({name: replace(config[name], repairs=repairs) for name in wanted if config[name].quantized})


def feeds(adapter: OnnxAdapter, count: int = 8) -> list[Array]:
    (spec,) = adapter.inputs
    rng = np.random.default_rng(5)
    return [rng.normal(size=[4 if dim is None else dim for dim in spec.shape or ()]).astype(f32) for _ in range(count)]


def outputs(adapter: OnnxAdapter, config: QuantConfig | None) -> list[Array]:
    model = adapter.build(config)
    found = [model(x) for x in feeds(adapter)]
    return [
        np.concatenate(part) for part in zip(*(one if isinstance(one, list) else [one] for one in found), strict=True)
    ]


def off(adapter: OnnxAdapter, config: QuantConfig, output: int = 0) -> float:
    """The relative squared error of an output."""
    right, found = outputs(adapter, None)[output], outputs(adapter, config)[output]
    return float(np.square(found - right).sum() / np.square(right).sum())


@pytest.mark.parametrize("which", MODELS)
def test_smoothing_cuts_the_error_and_keeps_the_kernels(which: str) -> None:
    with calibrated(MODELS[which]()) as adapter:
        config = space(adapter).default_config()
        assert off(adapter, smoothed(config)) < 0.3 * off(adapter, config)
        assert kernels(adapter, smoothed(config)) == kernels(adapter, config)


@pytest.mark.parametrize("which", MODELS)
def test_only_a_mul_is_added_where_the_normalization_cannot_divide(which: str) -> None:
    with calibrated(MODELS[which]()) as adapter:
        config = space(adapter).default_config()
        kinds = [[node.op_type for node in proto(adapter, one).graph.node] for one in (config, smoothed(config))]
        added = kinds[1].count("Mul") - kinds[0].count("Mul")
        assert added == (0 if which.startswith("absorbed") else 1)


@pytest.mark.parametrize("which", MODELS)
def test_nothing_changes_in_float(which: str) -> None:
    """The quantized model computes the same when neither activations nor weights are rounded."""
    with calibrated(MODELS[which]()) as adapter:
        made = unrounded(adapter, smoothed(space(adapter).default_config()))
        session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
        model = adapter.build(None)
        for x in feeds(adapter):
            right = model(x)
            right = right if isinstance(right, list) else [right]
            for one, other in zip(right, session.run(None, {"x": x}), strict=True):
                assert other == pytest.approx(one, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("which", [which for which in MODELS if which.startswith("absorbed")])
def test_an_op_that_stays_in_fp32_makes_up_for_what_the_normalization_divides(which: str) -> None:
    with calibrated(MODELS[which]()) as adapter:
        config = smoothed(space(adapter).default_config().replace({"two": FLOAT}))
        found, right = outputs(adapter, config)[1], outputs(adapter, None)[1]
        assert found == pytest.approx(right, rel=1e-4, abs=1e-4)
        assert kernels(adapter, config) == kernels(adapter, space(adapter).default_config().replace({"two": FLOAT}))


def test_an_op_that_does_not_ask_for_it_reads_what_it_read() -> None:
    with calibrated(normalized()) as adapter:
        config = space(adapter).default_config()
        one_alone = smoothed(config, "one")
        assert np.array_equal(outputs(adapter, one_alone)[1], outputs(adapter, config)[1])
        assert off(adapter, one_alone) < 0.3 * off(adapter, config)


def test_two_strengths_of_one_tensor_go_side_by_side() -> None:
    with calibrated(normalized()) as adapter:
        config = space(adapter).default_config()
        mixed = smoothed(smoothed(config, "one"), "two", repairs=("smoothing:0.5",))
        assert off(adapter, mixed, 0) < 0.3 * off(adapter, config, 0)
        assert off(adapter, mixed, 1) < 0.3 * off(adapter, config, 1)


@pytest.mark.parametrize("which", MODELS)
@pytest.mark.parametrize("repairs", [(NAME,), (NAME, "bias_correction")])
def test_smoothed_models_are_rebuilt_byte_for_byte(which: str, repairs: tuple[str, ...]) -> None:
    model = MODELS[which]()
    with opened(model, calibrate=False) as one, opened(model, calibrate=False) as other:
        other.restore(pickle.loads(pickle.dumps(one.calibrate([{"x": x} for x in feeds(one)]))))
        plain = space(one).default_config()
        for config in (smoothed(plain, repairs=repairs), smoothed(plain, "one", repairs=repairs), plain):
            assert other.assemble(config).sha256 == one.assemble(config).sha256
        assert one.assemble(plain).sha256 != one.assemble(smoothed(plain)).sha256


def test_smoothing_survives_a_snapshot(tmp_path: Path) -> None:
    model = normalized()
    with opened(model, calibrate=False) as adapter:
        calibration = adapter.calibrate([{"x": x} for x in feeds(adapter)])
        config = smoothed(space(adapter).default_config())
        digest = adapter.assemble(config).sha256
        header = Header(adapter.fingerprint, adapter.name, adapter.ops(), calibration, "now")
    with History.create(tmp_path / "history.snapshot") as history:
        history.begin(header)
    with opened(model, calibrate=False) as again:
        again.restore(read_snapshot(tmp_path).header.calibration)
        assert again.assemble(config).sha256 == digest


@pytest.mark.parametrize("which", MODELS)
def test_the_local_error_of_an_op_counts_it(which: str) -> None:
    with calibrated(MODELS[which]()) as adapter:
        config = space(adapter).default_config()
        assert adapter.local_errors(smoothed(config))["one"][0] < 0.3 * adapter.local_errors(config)["one"][0]


@pytest.mark.parametrize("which", MODELS)
def test_the_qoperator_format_is_smoothed_too(which: str) -> None:
    with calibrated(MODELS[which](), quant_format="qoperator") as adapter:
        config = space(adapter).default_config()
        assert off(adapter, smoothed(config)) < 0.3 * off(adapter, config)


def test_ops_offer_it_with_what_they_read() -> None:
    with calibrated(normalized()) as adapter:
        one, two = adapter.ops()
        assert one.repairs == ("bias_correction", "smoothing:0.5", "smoothing:0.7", "smoothing:0.85")
        assert two.repairs == one.repairs[1:] and one.reads == two.reads  # a product without an addition has no bias


def test_a_calibration_without_statistics_offers_no_repairs() -> None:
    with calibrated(normalized()) as adapter, opened(normalized(), calibrate=False) as old:
        ranges = adapter.calibrate([{"x": x} for x in feeds(adapter)])["ranges"]
        old.restore({"ranges": ranges})
        assert all(op.repairs == () for op in old.ops())
        old.assemble(space(old).default_config())


def test_the_output_of_an_int8_op_cannot_be_smoothed() -> None:
    net = Net()
    x = net.input(None, 4, 6, 6)
    hidden = net.Flatten(net.Relu(net.Conv(x, weight(4, 4, 1, 1), name="first")))
    with calibrated(net.model(net.Gemm(hidden, weight(144, 3), name="last"))) as adapter:
        config = space(adapter).default_config()
        assert [op.repairs for op in adapter.ops()] == [("bias_correction",), ("bias_correction",)]
        with pytest.raises(
            BuildError, match=r"repair 'smoothing:0\.7' cannot be applied to op 'last', which is a Gemm"
        ):
            adapter.build(smoothed(config, "last"))
