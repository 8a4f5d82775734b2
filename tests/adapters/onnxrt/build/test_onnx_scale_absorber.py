"""Factors of channels that go into what makes a tensor: exact in float, free, and the same again from a history."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx_graphs import NETWORKS
from onnx_models import Array, Net, data, kernels, opened, random_config, space, weight
from unrounded import proto, unrounded

from quaver import diagnose
from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.errors import BuildError
from quaver.ops import FLOAT, INT8, Op, OpConfig, QuantConfig
from quaver.space import TuningSpace

f32 = np.float32
SMOOTH, EQUAL = "smoothing:0.7", "equalisation"
CHANNELS = 16
LARGE = np.ones(CHANNELS, f32)
LARGE[[3, 11]] = 50, 30


def wide(*shape: int, axis: int = 0) -> Array:
    """A weight that makes two channels stand out."""
    return weight(*shape) * LARGE.reshape([-1 if at == axis else 1 for at in range(len(shape))])


def narrow(*shape: int, axis: int = 1) -> Array:
    """A weight under which they count as much as others."""
    return weight(*shape, seed=1) / LARGE.reshape([-1 if at == axis else 1 for at in range(len(shape))])


def image(between: Callable[[Net, str], str], groups: int = 1) -> onnx.ModelProto:
    net = Net()
    x = net.Conv(net.input(None, 4, 8, 8), wide(CHANNELS, 4, 3, 3), wide(CHANNELS) / 4, name="first")
    x = between(net, x)
    parts = [narrow(CHANNELS, 1, 3, 3, axis=0)] if groups > 1 else [narrow(6, CHANNELS, 3, 3), weight(6)]
    return net.model(net.Sigmoid(net.Conv(x, *parts, group=groups, name="last")))


def pooled(pool: Callable[[Net, str], str]) -> onnx.ModelProto:
    net = Net()
    x = net.Conv(net.input(None, 4, 8, 8), wide(CHANNELS, 4, 3, 3), wide(CHANNELS) / 4, name="first")
    return net.model(net.Gemm(pool(net, net.Relu(x)), narrow(CHANNELS, 6, axis=0), weight(6), name="last"))


def row(first: Callable[[Net, str], str]) -> onnx.ModelProto:
    net = Net()
    x = first(net, net.input(None, 5, 8))
    return net.model(net.Add(net.MatMul(x, narrow(CHANNELS, 6, axis=0), name="last"), weight(6)))


def product(net: Net, x: str, name: str = "first", shift: bool = True) -> str:
    made = net.MatMul(x, wide(8, CHANNELS, axis=1), name=name)
    return str(net.Add(made, wide(CHANNELS))) if shift else str(made)


def plain(net: Net, x: str) -> str:
    return str(net.MatMul(x, weight(8, CHANNELS, seed=3), name="gate"))


def dense(transposed: bool) -> onnx.ModelProto:
    net = Net()
    first = wide(CHANNELS, 8) if transposed else wide(8, CHANNELS, axis=1)
    x = net.Relu(net.Gemm(net.input(None, 8), first, wide(CHANNELS), transB=int(transposed), name="first"))
    return net.model(net.Gemm(x, narrow(CHANNELS, 6, axis=0), weight(6), name="last"))


def normalized(net: Net, x: str) -> str:
    mean, variance = np.zeros(CHANNELS, f32), np.ones(CHANNELS, f32)
    return str(net.BatchNormalization(x, LARGE, LARGE / 2, mean, variance))


def through_concat(between: Callable[[Net, str], str]) -> onnx.ModelProto:
    net = Net()
    x = net.input(None, 8, 6, 6)
    x = net.Relu(between(net, net.Concat(net.Tanh(x), net.Erf(x), axis=1)))
    return net.model(net.Conv(x, narrow(6, CHANNELS, 1, 1), weight(6), name="last"))


COLUMN = LARGE[:, None, None]
BY_AN_OP = {
    "a convolution": lambda: image(lambda net, x: x),
    "a convolution and a Relu": lambda: image(lambda net, x: net.Relu(x)),
    "a Clip without an upper bound": lambda: image(lambda net, x: net.Clip(x, np.array(0, f32))),
    "a LeakyRelu": lambda: image(lambda net, x: net.LeakyRelu(x, alpha=0.2)),
    "a MaxPool": lambda: image(lambda net, x: net.MaxPool(net.Relu(x), kernel_shape=[2, 2], strides=[2, 2])),
    "an AveragePool": lambda: image(lambda net, x: net.AveragePool(net.Relu(x), kernel_shape=[2, 2])),
    "a Pad": lambda: image(lambda net, x: net.Pad(net.Relu(x), np.array([0, 0, 1, 1, 0, 0, 1, 1]))),
    "Transposes": lambda: image(
        lambda net, x: net.Transpose(net.Relu(net.Transpose(x, perm=[0, 2, 3, 1])), perm=[0, 3, 1, 2])
    ),
    "a number": lambda: image(lambda net, x: net.Mul(net.Relu(x), np.array(0.5, f32))),
    "a depthwise convolution": lambda: image(lambda net, x: net.Relu(x), groups=CHANNELS),
    "a Flatten of one point": lambda: pooled(lambda net, x: net.Flatten(net.GlobalAveragePool(x))),
    "a Reshape of one point": lambda: pooled(lambda net, x: net.Reshape(net.GlobalMaxPool(x), np.array([0, -1]))),
    "a mean over an image": lambda: pooled(lambda net, x: net.ReduceMean(x, axes=[2, 3], keepdims=0)),
    "a Gemm": lambda: dense(transposed=False),
    "a turned Gemm": lambda: dense(transposed=True),
    "a product": lambda: row(lambda net, x: product(net, x, shift=False)),
    "a product and a sum": lambda: row(lambda net, x: net.Relu(product(net, x))),
    "a gate": lambda: row(lambda net, x: net.Mul(net.Sigmoid(plain(net, x)), product(net, x))),
}  # fmt: skip
BY_CONSTANTS = {
    "a Mul": lambda: row(lambda net, x: net.Mul(net.Erf(plain(net, x)), LARGE)),
    "a Mul from the left": lambda: row(lambda net, x: net.Mul(LARGE, net.Erf(plain(net, x)))),
    "a Div": lambda: row(lambda net, x: net.Div(net.Erf(plain(net, x)), 1 / LARGE)),
    "a Mul and an Add": lambda: row(lambda net, x: net.Add(net.Mul(net.Erf(plain(net, x)), LARGE), LARGE / 2)),
    "a BatchNormalization": lambda: through_concat(normalized),
    "a Mul of channels": lambda: through_concat(lambda net, x: net.Mul(x, COLUMN)),
}
FOLDED = BY_AN_OP | BY_CONSTANTS


def given(config: QuantConfig, *names: str, repairs: tuple[str, ...] = (SMOOTH,)) -> QuantConfig:
    wanted = names or ("last",)
    return config.replace({name: replace(config[name], repairs=repairs) for name in wanted})


def _static(op: Op) -> Op:
    return replace(op, choices=tuple(one for one in op.choices if one.mode in ("static", "")))


def ran(model: onnx.ModelProto, adapter: OnnxAdapter) -> list[Array]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [session.run(None, feed)[0] for feed in data(adapter)]


def off(adapter: OnnxAdapter, config: QuantConfig) -> float:
    """The relative squared error of the output."""
    right, found = (np.concatenate(ran(proto(adapter, one), adapter)) for one in (None, config))
    return float(np.square(found - right).sum() / np.square(right).sum())


@pytest.mark.parametrize("which", FOLDED)
def test_smoothing_adds_no_node_keeps_the_kernels_and_cuts_the_error(which: str) -> None:
    with opened(FOLDED[which]()) as adapter:
        config = space(adapter).default_config()
        kinds = [[node.op_type for node in proto(adapter, one).graph.node] for one in (config, given(config))]
        assert sorted(kinds[0]) == sorted(kinds[1])
        assert kernels(adapter, given(config)) == kernels(adapter, config)
        assert adapter.local_errors(given(config))["last"][0] < 0.5 * adapter.local_errors(config)["last"][0]
        assert off(adapter, given(config)) < 0.8 * off(adapter, config)


@pytest.mark.parametrize("which", FOLDED)
def test_nothing_changes_in_float_whatever_else_is_chosen(which: str) -> None:
    with opened(FOLDED[which]()) as adapter:
        right = ran(proto(adapter, None), adapter)
        rng, ops = np.random.default_rng(4), space(adapter)
        static = [_static(op) for op in ops.ops]
        passthrough = {
            unit.op.name: FLOAT for unit in adapter._builder.units if unit.is_passthrough
        }  # these clip integers
        for repair_name in (one for one in ops["last"].repairs if one != "bias_correction"):
            for _ in range(3):
                mixed = random_config(TuningSpace(static), rng).replace({"last": OpConfig(INT8)} | passthrough)
                made = unrounded(adapter, given(mixed, repairs=(repair_name,)))
                for one, other in zip(right, ran(made, adapter), strict=True):
                    assert other == pytest.approx(one, rel=2e-4, abs=2e-4 * float(np.abs(one).max()))


@pytest.mark.parametrize("which", FOLDED)
def test_recorded_outputs_have_the_values_of_the_float_model(which: str) -> None:
    """Ops on the way write divided channels; those who look at them do not notice."""
    with opened(FOLDED[which]()) as adapter:
        config = given(space(adapter).default_config())
        ops = [op.name for op in adapter.ops() if config[op.name].quantized]
        for feed in data(adapter):
            right, found = (adapter.record_outputs(one, ops)(feed) for one in (None, config))
            for name in ops:
                assert np.square(found[name] - right[name]).sum() < 0.05 * np.square(right[name]).sum(), name
        errors = adapter.local_errors(config)
        assert all(error < 0.05 * signal for error, signal in errors.values())


@pytest.mark.parametrize("which", FOLDED)
def test_rescaled_models_are_rebuilt_byte_for_byte(which: str) -> None:
    model = FOLDED[which]()
    with opened(model, calibrate=False) as one, opened(model, calibrate=False) as other:
        other.restore(pickle.loads(pickle.dumps(one.calibrate(data(one)))))
        plain = space(one).default_config(granularity="per_tensor")
        ways = [(SMOOTH,), (SMOOTH, "bias_correction"), *([(EQUAL,)] if which in BY_AN_OP else [])]
        hashes = []
        for repairs in ways:
            config = given(plain, repairs=repairs)
            hashes.append(one.assemble(config).sha256)
            assert other.assemble(config).sha256 == hashes[-1] != one.assemble(plain).sha256
        assert len(set(hashes)) == len(ways)


@pytest.mark.parametrize("which", BY_AN_OP)
def test_equalisation_helps_where_a_weight_has_one_scale(which: str) -> None:
    with opened(BY_AN_OP[which]()) as adapter:
        assert EQUAL in next(op for op in adapter.ops() if op.name == "last").repairs
        config = space(adapter).default_config(granularity="per_tensor")
        assert off(adapter, given(config, repairs=(EQUAL,))) < 0.5 * off(adapter, config)
        assert kernels(adapter, given(config, repairs=(EQUAL,))) == kernels(adapter, config)


@pytest.mark.parametrize("which", BY_CONSTANTS)
def test_equalisation_needs_an_op_with_a_weight_on_both_sides(which: str) -> None:
    with opened(BY_CONSTANTS[which]()) as adapter:
        last = next(op for op in adapter.ops() if op.name == "last")
        assert EQUAL not in last.repairs and SMOOTH in last.repairs


def test_smoothing_of_an_equalised_tensor_is_smoothing() -> None:
    with opened(BY_AN_OP["a convolution"]()) as adapter:
        config = space(adapter).default_config()
        both = given(config, repairs=(SMOOTH, EQUAL))
        assert adapter.assemble(both).sha256 == adapter.assemble(given(config)).sha256


def flattened() -> onnx.ModelProto:
    net = Net()
    x = net.Relu(net.Conv(net.input(None, 4, 3, 3), wide(CHANNELS, 4, 2, 2), name="first"))
    return net.model(net.Gemm(net.Flatten(x), weight(4 * CHANNELS, 6), weight(6), name="last"))


NOT_FOLDED = {
    "a Clip with an upper bound": lambda: image(lambda net, x: net.Clip(x, np.array(0, f32), np.array(6, f32))),
    "a Sigmoid": lambda: image(lambda net, x: net.Sigmoid(x)),
    "a sum": lambda: image(lambda net, x: net.Add(net.Relu(x), net.Sigmoid(x))),
    "two that read it": lambda: image(lambda net, x: net.Mul(net.Sigmoid(x), x)),
    "a Flatten of more points": lambda: flattened(),
}


@pytest.mark.parametrize("which", NOT_FOLDED)
def test_convolutions_behind_nodes_without_absorber_offer_no_rescaling(which: str) -> None:
    with opened(NOT_FOLDED[which]()) as adapter:
        last = next(op for op in adapter.ops() if op.name == "last")
        assert not [one for one in last.repairs if one != "bias_correction"]
        with pytest.raises(BuildError, match="its input cannot be rescaled"):
            adapter.build(given(space(adapter).default_config()))


@pytest.mark.parametrize("mode", ["dynamic", "weight_only"])
@pytest.mark.parametrize("which", ["first", "other"])
def test_an_op_between_floats_is_left_as_it_is(mode: str, which: str) -> None:
    """It has no part in the calibration: a Mul divides what is rescaled then."""
    net = Net()
    x = net.Relu(product(net, net.input(None, 5, 8)))
    outputs = [net.MatMul(x, narrow(CHANNELS, 6, axis=0), name=name) for name in ("last", "other")]
    with opened(net.model(*outputs)) as adapter:
        plain = space(adapter).default_config()
        config = given(plain.replace({which: OpConfig(INT8, mode=mode)}), *{"last", "other"} - {which})
        kinds = [[node.op_type for node in proto(adapter, one).graph.node] for one in (plain, config)]
        assert kinds[1].count("Mul") > kinds[0].count("Mul")
        assert off(adapter, config) < 0.01


def test_ops_that_want_different_things_read_copies() -> None:
    net = Net()
    x = net.Relu(net.Conv(net.input(None, 4, 8, 8), wide(CHANNELS, 4, 3, 3), name="first"))
    outputs = [net.Conv(x, narrow(6, CHANNELS, 1, 1), name=name) for name in ("last", "other")]
    with opened(net.model(*outputs)) as adapter:
        plain = space(adapter).default_config()
        right = ran(proto(adapter, None), adapter)
        for config in (given(plain), given(given(plain), "other", repairs=("smoothing:0.5",))):
            for one, other in zip(right, ran(unrounded(adapter, config), adapter), strict=True):
                assert other == pytest.approx(one, rel=2e-4, abs=2e-4 * float(np.abs(one).max()))
            assert kernels(adapter, config) == kernels(adapter, plain)


def test_an_fp32_op_on_either_side_compensates_for_the_factors() -> None:
    net = Net()
    x = net.Relu(net.Conv(net.input(None, 4, 8, 8), wide(CHANNELS, 4, 3, 3), wide(CHANNELS), name="first"))
    outputs = [net.Conv(x, narrow(6, CHANNELS, 1, 1), name=name) for name in ("last", "other")]
    with opened(net.model(*outputs)) as adapter:
        config = given(space(adapter).default_config().replace({"first": FLOAT, "other": FLOAT}))
        model, right = adapter.build(config), adapter.build(None)
        for feed in data(adapter):
            assert model(feed)[1] == pytest.approx(right(feed)[1], rel=1e-4, abs=1e-4)
        assert set(kernels(adapter, config)) == {"last"}


@pytest.mark.parametrize("which", ["a convolution", "a Gemm", "a Mul"])
def test_diagnosis_sees_the_ops_as_they_are(which: str) -> None:
    model = FOLDED[which]()
    with opened(model) as adapter:
        plain = space(adapter).default_config()
        found = [diagnose(model, one, data(adapter), timing=False) for one in (plain, given(plain))]
    errors = [{row.op: row.error for row in one.layers} for one in found]
    assert errors[1]["last"] < 0.5 * errors[0]["last"]
    assert all(error < 10 * errors[0][name] for name, error in errors[1].items())


@pytest.mark.parametrize("which", NETWORKS)
def test_rescaling_changes_no_kernel_in_any_mixed_precision_config(which: str) -> None:
    with opened(NETWORKS[which]) as adapter:
        ops, rng = space(adapter), np.random.default_rng(6)
        for _ in range(4):
            plain = random_config(ops, rng, share=0.8)
            picks = {op.name: op.repaired(plain[op.name], str(rng.choice(op.repairs))) for op in ops.ops if op.repairs}
            assert set(kernels(adapter, plain.replace(picks))) == set(kernels(adapter, plain))
