"""The seam for repairs, with a real one: a bias correction that is asked for, calibrated, built, kept and rebuilt."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx_graphs import NETWORKS
from onnx_models import Array, Net, kernels, opened, space, tensor, weight

from quaver.adapters import BiasCorrection, Repair, RepairableOp, Statistic, register_repair
from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.adapters.repairs import base as repairs
from quaver.errors import BuildError, CalibrationError, SettingsError
from quaver.history import Header, History, read_snapshot
from quaver.ops import QuantConfig

f32 = np.float32
NAME = "bias_correction"


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bias correction alone, so that others can be added to it."""
    monkeypatch.setattr(repairs, "_registered", {})
    register_repair(BiasCorrection)


def convolution(groups: int = 1, bias: bool = True) -> Net:
    net = Net()
    parts = [weight(8, 4 // groups, 3, 3), *([weight(8)] if bias else [])]
    net.last = net.Conv(net.input(None, 4, 8, 8), *parts, group=groups, name="op")
    return net


def product(transposed: bool = False, bias: bool = True) -> Net:
    net = Net()
    parts = [weight(*((6, 16) if transposed else (16, 6))), *([weight(6)] if bias else [])]
    net.last = net.Gemm(net.input(None, 16), *parts, transB=int(transposed), name="op")
    return net


def matmul(left: bool) -> Net:
    net = Net()
    made = net.MatMul(net.input(None, 5, 16), weight(16, 6), name="op")
    net.last = net.Add(weight(6), made) if left else net.Add(made, weight(6))
    return net


OPS = {
    "Conv": lambda: convolution(),
    "Conv without bias": lambda: convolution(bias=False),
    "Conv in groups": lambda: convolution(groups=2),
    "depthwise Conv": lambda: convolution(groups=4),
    "Gemm": lambda: product(),
    "Gemm turned": lambda: product(transposed=True),
    "Gemm without bias": lambda: product(bias=False),
    "MatMul and Add": lambda: matmul(left=False),
    "Add of MatMul": lambda: matmul(left=True),
}


def one_sided(adapter: OnnxAdapter, count: int = 24) -> list[Array]:
    """Data whose mean is far from zero, other in each channel: the mean error of a rounded weight shows."""
    (spec,) = adapter.inputs
    rng = np.random.default_rng(3)
    shape = [8 if dim is None else dim for dim in spec.shape or ()]
    channels = 1 if len(shape) == 4 else len(shape) - 1
    level = rng.uniform(1, 4, shape[channels]).reshape([-1 if at == channels else 1 for at in range(len(shape))])
    return [(level + 0.2 * rng.normal(size=shape)).astype(f32) for _ in range(count)]


@contextmanager
def calibrated(model: Any, **options: Any) -> Iterator[tuple[OnnxAdapter, dict[str, Any]]]:
    with opened(model, calibrate=False, **options) as adapter:
        yield adapter, adapter.calibrate(one_sided(adapter))


def repaired(config: QuantConfig, *names: str) -> QuantConfig:
    changed = {name: replace(choice, repairs=names or (NAME,)) for name, choice in config.items() if choice.quantized}
    return config.replace(changed)


def mean_error(adapter: OnnxAdapter, config: QuantConfig) -> float:
    """How far the mean output of each channel is off, over all calibration data."""
    models = adapter.build(None), adapter.build(config)
    data = one_sided(adapter)
    outputs = [np.concatenate([model(x) for x in data]) for model in models]
    axis = 1 if outputs[0].ndim == 4 else -1
    others = tuple(dim for dim in range(outputs[0].ndim) if dim != axis % outputs[0].ndim)
    return float(np.abs((outputs[1].astype(np.float64) - outputs[0]).mean(axis=others)).mean())


@pytest.mark.parametrize("which", OPS)
@pytest.mark.parametrize("granularity", ["per_channel", "per_tensor"])
def test_a_bias_correction_reduces_the_mean_error(which: str, granularity: str) -> None:
    net = OPS[which]()
    with calibrated(net.model(net.last)) as (adapter, _):
        config = space(adapter).default_config(granularity=granularity)
        before, after = mean_error(adapter, config), mean_error(adapter, repaired(config))
        assert after < 0.6 * before
        assert kernels(adapter, repaired(config)) == kernels(adapter, config) != {}


@pytest.mark.parametrize("which", OPS)
def test_repaired_models_are_rebuilt_byte_for_byte(which: str) -> None:
    net = OPS[which]()
    model = net.model(net.last)
    with calibrated(model) as (one, calibration), opened(model, calibrate=False) as other:
        other.restore(pickle.loads(pickle.dumps(calibration)))
        for granularity in ("per_channel", "per_tensor"):
            plain = space(one).default_config(granularity=granularity)
            assert other.assemble(repaired(plain)).sha256 == one.assemble(repaired(plain)).sha256
            assert other.assemble(plain).sha256 == one.assemble(plain).sha256 != one.assemble(repaired(plain)).sha256


def test_repairs_survive_a_snapshot(tmp_path: Path) -> None:
    model = product().model("op.out")
    with calibrated(model) as (adapter, calibration):
        config = repaired(space(adapter).default_config())
        digest = adapter.assemble(config).sha256
        header = Header(adapter.fingerprint, adapter.name, adapter.ops(), calibration, "now")
    with History.create(tmp_path / "history.snapshot") as history:
        history.begin(header)
    with opened(model, calibrate=False) as again:
        again.restore(read_snapshot(tmp_path).header.calibration)
        assert again.assemble(config).sha256 == digest


@pytest.mark.parametrize("which", NETWORKS)
def test_models_without_repairs_are_unchanged(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the bytes of a configuration without repairs, nor a calibration when none is registered."""
    with opened(NETWORKS[which], calibrate=False) as adapter:
        data = [array[:4] for array in one_sided(adapter, 2)]
        with_repairs = adapter.calibrate(data)
        ops = space(adapter)
        configs = [None, ops.default_config(), ops.default_config(granularity="per_tensor"), ops.all_fp32()]
        hashes = [adapter.assemble(config).sha256 for config in configs]
        monkeypatch.setattr(repairs, "_registered", {})
        without = adapter.calibrate(data)
        assert list(without) == ["ranges", "comparison"] and without["ranges"] == with_repairs["ranges"]
        assert [adapter.assemble(config).sha256 for config in configs] == hashes


@pytest.mark.parametrize("which", NETWORKS)
def test_a_whole_network_is_repaired_op_by_op(which: str) -> None:
    with opened(NETWORKS[which], calibrate=False) as adapter:
        data = [np.abs(array[:8]) for array in one_sided(adapter, 2)]
        adapter.calibrate(data)
        config = space(adapter).default_config()
        weighty = [unit.op.name for unit in adapter._builder.units if unit.weight is not None]
        changed = config.replace({name: replace(config[name], repairs=(NAME,)) for name in weighty})
        assert kernels(adapter, changed) == kernels(adapter, config)
        plain, better = adapter.local_errors(config), adapter.local_errors(changed)
        assert sum(better[name][0] for name in weighty) < sum(plain[name][0] for name in weighty)
        others = set(config) - set(weighty)
        assert all(better[name] == pytest.approx(plain[name]) for name in others)


def test_the_local_error_of_an_op_counts_its_repair() -> None:
    for make in OPS.values():
        net = make()
        with calibrated(net.model(net.last)) as (adapter, _):
            config = space(adapter).default_config(granularity="per_tensor")
            assert adapter.local_errors(repaired(config))["op"][0] < adapter.local_errors(config)["op"][0]


def test_statistics_are_those_of_the_one_pass() -> None:
    """Of a tensor that was moved about they are taken as the op reads it."""
    net = Net()
    x = net.Relu(net.Conv(net.input(None, 4, 8, 8), weight(4, 4, 3, 3), weight(4), name="first"), outputs=["hidden"])
    model = net.model(net.Gemm(net.Flatten(x, outputs=["flat"]), weight(144, 3), weight(3), name="last"))
    with calibrated(model) as (adapter, found):
        data = np.concatenate(one_sided(adapter))
        kept = {item["tensor"]: item for item in found["statistics"]}
        assert list(kept) == ["x", "flat"] and list(found["ranges"]) == ["x", "hidden"]
        mean = np.frombuffer(kept["x"]["data"], kept["x"]["dtype"]).reshape(kept["x"]["shape"])
        assert mean == pytest.approx(data.mean(axis=(0, 2, 3), dtype=np.float64), rel=1e-12)
        probe = onnx.ModelProto()
        probe.CopyFrom(model)
        probe.graph.output.append(tensor("flat", None, 144))
        with opened(probe, calibrate=False) as seen:
            flat = seen.build(None)(data)[1]
        assert np.frombuffer(kept["flat"]["data"]) == pytest.approx(flat.mean(axis=0, dtype=np.float64), rel=1e-5)


def test_two_repairs_are_done_in_order() -> None:
    @register_repair
    class Halved(Repair):
        name = "halved"

        def statistics(self, op: RepairableOp) -> Iterable[Statistic]:
            return ()

        def apply(self, op: RepairableOp, statistics: Any, quantized: Any) -> RepairableOp:
            return replace(op, weight=op.weight / 2)

    net = product()
    with calibrated(net.model(net.last)) as (adapter, _):
        config = space(adapter).default_config()
        halves = adapter.build(repaired(config, "halved"))
        x = one_sided(adapter)[0]
        assert halves(x) - weight(6) == pytest.approx((adapter.build(config)(x) - weight(6)) / 2, rel=0.02, abs=0.02)
        both = {
            names: adapter.assemble(repaired(config, *names)).sha256 for names in [("halved", NAME), (NAME, "halved")]
        }
        assert len(set(both.values())) == 2


@pytest.mark.parametrize("quant_format", ["qdq", "qoperator"])
def test_the_scale_is_widened_for_a_bias_after_the_repair(quant_format: str) -> None:
    """A channel of tiny weights whose repaired bias would not fit int32 in their steps."""

    @register_repair
    class Lifted(Repair):
        name = "lifted"

        def statistics(self, op: RepairableOp) -> Iterable[Statistic]:
            return ()

        def apply(self, op: RepairableOp, statistics: Any, quantized: Any) -> RepairableOp:
            return replace(op, bias=np.full(6, 1000, f32))

    net = Net()
    small = weight(16, 6) * np.array([1, 1, 1, 1, 1, 1e-12], f32)
    with calibrated(net.model(net.Gemm(net.input(None, 16), small, name="op")), quant_format=quant_format) as (made, _):
        built = made.build(repaired(space(made).default_config(), "lifted"))
        assert built(one_sided(made)[0])[:, 5] == pytest.approx(1000, rel=1e-3)


def test_an_op_that_cannot_be_repaired_is_named() -> None:
    net = Net()
    x = net.input(None, 4, 8, 8)
    model = net.model(net.Add(net.Conv(x, weight(4, 4, 1, 1), name="op"), x, name="sum"))
    with calibrated(model) as (adapter, _):
        config = space(adapter).default_config()
        with pytest.raises(BuildError, match="repair 'bias_correction' cannot be applied to op 'sum', which is a Add"):
            adapter.build(config.replace({"sum": replace(config["sum"], repairs=(NAME,))}))
        with pytest.raises(BuildError, match="no repair is called 'bias_corection'; did you mean 'bias_correction'"):
            adapter.build(config.replace({"op": replace(config["op"], repairs=("bias_corection",))}))


def test_a_repair_that_was_not_there_when_the_run_began_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    net = product()
    model = net.model(net.last)
    registered = dict(repairs._registered)
    monkeypatch.setattr(repairs, "_registered", {})
    with calibrated(model) as (adapter, _):
        monkeypatch.setattr(repairs, "_registered", registered)
        with pytest.raises(BuildError, match=r"needs the mean of tensor 'x', which calibration did not take.*again"):
            adapter.build(repaired(space(adapter).default_config()))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"weight": np.ones((5, 16), f32)}, "returns a weight of another shape"),
        ({"weight": np.full((6, 16), np.nan, f32)}, "returns a weight .* holds NaN"),
        ({"bias": np.ones(5, f32)}, "returns a bias of another shape"),
        ({"bias": np.full(6, np.inf, f32)}, "returns a bias .* infinity"),
    ],
)
def test_a_repair_that_goes_wrong_is_named(change: dict[str, Any], sentence: str) -> None:
    @register_repair
    class Wrong(Repair):
        name = "wrong"

        def statistics(self, op: RepairableOp) -> Iterable[Statistic]:
            return ()

        def apply(self, op: RepairableOp, statistics: Any, quantized: Any) -> RepairableOp:
            return replace(op, **change)

    net = product()
    with (
        calibrated(net.model(net.last)) as (adapter, _),
        pytest.raises(BuildError, match=f"repair 'wrong' of op 'op' {sentence}"),
    ):
        adapter.build(repaired(space(adapter).default_config(), "wrong"))


def test_a_product_without_an_addition_takes_no_bias() -> None:
    @register_repair
    class Biased(BiasCorrection):
        name = "biased"

        def apply(self, op: RepairableOp, statistics: Any, quantized: Any) -> RepairableOp:
            assert not op.takes_bias and op.bias is None
            return replace(op, bias=np.ones(6, f32))

    net = Net()
    model = net.model(net.MatMul(net.input(None, 16), weight(16, 6), name="op"))
    with calibrated(model) as (adapter, calibration):
        assert "statistics" not in calibration
        config = space(adapter).default_config()
        assert mean_error(adapter, repaired(config)) == mean_error(adapter, config)
        with pytest.raises(BuildError, match="repair 'biased' of op 'op' returns a bias, and the op takes none"):
            adapter.build(repaired(config, "biased"))


def test_statistics_that_cannot_be_read_are_refused() -> None:
    net = product()
    with calibrated(net.model(net.last)) as (adapter, calibration):
        broken = copy.deepcopy(calibration)
        broken["statistics"][0]["data"] = b"short"
        with pytest.raises(CalibrationError, match="statistics that cannot be read"):
            adapter.restore(broken)


def test_a_repair_needs_a_name() -> None:
    with pytest.raises(SettingsError, match="repair class Nameless needs a `name`"):
        register_repair(type("Nameless", (BiasCorrection,), {"name": ""}))
