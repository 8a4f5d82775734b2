"""What is built in a configuration, and whether it is what the configuration says."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import mxnet_networks as networks
import numpy as np
import pytest

from quaver.adapters import AdapterOptions
from quaver.adapters.mxnet.adapter import MXNetAdapter
from quaver.adapters.mxnet.load.graph import Graph
from quaver.adapters.mxnet.load.network import load_network
from quaver.adapters.mxnet.profile.op_profile import is_quantized
from quaver.ops import FLOAT
from quaver.testing import check_adapter

mx = networks.mx


@pytest.fixture(scope="module", params=networks.NETWORKS)
def case(request: pytest.FixtureRequest) -> Any:
    return networks.opened(networks.NETWORKS[request.param](), networks.data_for(request.param))


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_the_adapter_keeps_its_contract(name: str) -> None:
    net = networks.NETWORKS[name]()
    check_adapter(lambda options: MXNetAdapter.load(net, options), networks.data_for(name), model=net)


def kernels(model: Any) -> dict[str, bool]:
    """Of each node of the graph that runs, whether it computes in int8."""
    return {node.name: is_quantized(node) for node in Graph(model.symbol).in_order()}


def test_an_op_runs_as_the_configuration_says(case: Any) -> None:
    adapter, space = case
    chance = random.Random(1)
    feed = adapter.probe_samples[0]
    for share in (0.0, 0.2, 0.5, 0.8, 1.0):
        config = space.configure(lambda op, s=share: op.choices[0] if chance.random() < s else FLOAT)
        built = adapter.build(config)
        runs = kernels(built)
        for name, pick in config.items():
            assert runs.get(f"quantized_{name}", False) == pick.quantized, name
            assert runs.get(name, True) == pick.quantized, name
        outputs = built.run(feed)
        assert all(np.isfinite(one).all() for one in (outputs if isinstance(outputs, list) else [outputs]))


def test_the_executor_computes_in_the_types_that_the_graph_says() -> None:
    """Not the graph alone: what the kernels write is 8 bits for an int8 op, and float for one in fp32."""
    adapter, space = networks.opened(networks.residual(), networks.images())
    first = space.ops[0].name
    for config, kind in ((space.default_config(), "iu"), (space.default_config().fallback(first), "f")):
        symbol, args, aux = adapter.build(config).model
        inner = symbol.get_internals()
        name = f"quantized_{first}" if kind == "iu" else first
        shown = next(output for output in inner.list_outputs() if output.startswith(f"{name}_output"))
        part = inner[shown]
        values = {one: (args | aux).get(one) for one in part.list_arguments() if one != "data"}
        states = {one: aux[one] for one in part.list_auxiliary_states()}
        executor = part.bind(mx.cpu(), {**values, "data": mx.nd.array(networks.images(2))}, aux_states=states)
        assert executor.forward()[0].asnumpy().dtype.kind in kind


def test_nodes_between_ops_follow_them() -> None:
    adapter, space = networks.opened(networks.residual(), networks.images())
    pool = "residual_pool0_fwd"
    assert pool not in {op.name for op in space.ops}
    assert kernels(adapter.build(space.default_config()))[f"quantized_{pool}"]
    assert not kernels(adapter.build(space.default_config().fallback(space.ops[0].name)))[pool]


def test_ops_are_named_as_mxnet_prints_them() -> None:
    _, space = networks.opened(networks.residual(), networks.images())
    names = [op.name for op in space.ops]
    assert names[0] == "sg_mkldnn_conv_bn_act_0"
    assert names[-1] == "sg_mkldnn_fully_connected_0"
    assert space.ops[0].nodes == ("residual_conv0_fwd", "residual_batchnorm1_fwd", "residual_relu0_fwd")
    assert {op.kind for op in space.ops} == {"Convolution", "FullyConnected"}
    assert {str(pick) for op in space.ops for pick in op.choices} == {
        "int8 minmax per_channel sym", "int8 entropy per_channel sym", "int8 minmax per_tensor sym",
        "int8 entropy per_tensor sym", "fp32",
    }  # fmt: skip


def test_convolutions_have_a_scale_for_each_channel_and_fully_connected_layers_one_for_all() -> None:
    """As their choices say. One channel of the weight is a thousand times as large; what do the others lose?"""
    chance = np.random.default_rng(0)
    x = mx.sym.var("data")
    cases = {
        "per_channel": (mx.sym.Convolution(x, num_filter=8, kernel=(3, 3), no_bias=True, name="c"), (8, 3, 3, 3)),
        "per_tensor": (
            mx.sym.FullyConnected(x, num_hidden=8, no_bias=True, name="c"),
            (8, int(np.prod(networks.SHAPE))),
        ),
    }
    for granularity, (symbol, shape) in cases.items():
        weight = (chance.standard_normal(shape) / 10).astype(np.float32)
        weight[0] *= 1000
        adapter, space = networks.opened((symbol, {"c_weight": mx.nd.array(weight)}, {}), networks.images())
        assert space.ops[0].choices[0].granularity == granularity
        ranges = {name: dict(methods) for name, methods in adapter._builder._ranges.items()}
        ranges[adapter._builder.output(adapter._builder.units[0].node)]["minmax"] = (-5.0, 5.0)  # the others' range
        adapter._builder.calibrate(ranges)
        feed = adapter.probe_samples[0]
        exact, int8 = adapter.build(None).run(feed)[:, 1:], adapter.build(space.default_config()).run(feed)[:, 1:]
        lost = float(np.abs(exact - int8).mean() / np.abs(exact).mean())
        assert lost < 0.1 if granularity == "per_channel" else lost > 0.5


def test_thresholds_by_entropy_reach_the_graph() -> None:
    data = networks.images()
    data[0, 0, 0, 0] = 500.0
    adapter, space = networks.opened(networks.plain(), data)
    entropy = space.configure(lambda op: next(pick for pick in op.choices if pick.calibration == "entropy"))
    tops = [
        float(Graph(adapter.build(config).symbol).by_name["data_quantize"].attributes["max_calib_range"])
        for config in (space.default_config(), entropy)
    ]
    assert tops[0] == 500.0
    assert tops[1] < 50.0


def test_a_tensor_without_values_does_not_break_a_trial() -> None:
    """Six digits are written of a range; one of nothing would divide by it."""
    adapter, space = networks.opened(networks.plain(), np.zeros((4, *networks.SHAPE), np.float32))
    assert np.isfinite(adapter.build(space.default_config()).run(adapter.probe_samples[0])).all()


def test_the_saved_file_is_one_of_mxnet_and_holds_all(tmp_path: Path) -> None:
    adapter, space = networks.opened(networks.plain(), networks.images())
    model = adapter.build(space.default_config())
    found = mx.nd.load(str(model.save(tmp_path / "model.params")))
    symbol = mx.sym.load_json(found.pop("symbol").asnumpy().tobytes().decode())
    assert symbol.list_outputs() == model.symbol.list_outputs()
    _, args, aux = model.model
    assert sorted(found) == sorted([*(f"arg:{name}" for name in args), *(f"aux:{name}" for name in aux)])
    for name, array in found.items():
        assert np.array_equal(array.asnumpy(), {**args, **aux}[name.partition(":")[2]].asnumpy())
        assert array.dtype == {**args, **aux}[name.partition(":")[2]].dtype


def test_exported_files_run_in_mxnet_alone(tmp_path: Path) -> None:
    adapter, space = networks.opened(networks.plain(), networks.images())
    model = adapter.build(space.default_config())
    symbol_file, params_file = model.export(tmp_path / "deep" / "net")
    block = mx.gluon.SymbolBlock.imports(str(symbol_file), ["data"], str(params_file))
    x = networks.images(4)
    assert np.allclose(block(mx.nd.array(x)).asnumpy(), model(x), atol=1e-6)
    assert np.allclose(model.block(mx.nd.array(x)).asnumpy(), model(x), atol=1e-6)
    again = load_network(symbol_file)
    assert Graph(again.symbol).by_name.keys() == Graph(model.symbol).by_name.keys()


def test_a_model_called_with_ndarrays_gives_ndarrays() -> None:
    adapter, space = networks.opened(networks.joined(), networks.images())
    model, x = adapter.build(space.default_config()), networks.images(4)
    one = model.forward(mx.nd.array(x))
    assert [type(part) for part in one] == [mx.nd.NDArray] * 2
    other = model(x)
    assert all(isinstance(part, np.ndarray) for part in other)
    assert all(np.allclose(a.asnumpy(), b) for a, b in zip(one, other, strict=True))


def test_threads_are_set_in_the_worker_thread() -> None:
    from quaver.adapters.mxnet.run import worker_thread as engine

    adapter = MXNetAdapter.load(networks.plain(), AdapterOptions(threads=2))
    adapter.build(None).run({"data": networks.images(2)})
    assert engine.call_in_worker(engine._openmp().omp_get_max_threads) == 2
    adapter.build(None).with_threads(1).run({"data": networks.images(2)})
    assert engine.call_in_worker(engine._openmp().omp_get_max_threads) == 1


def test_processor_time_includes_the_worker_thread() -> None:
    adapter = MXNetAdapter.load(networks.plain(), AdapterOptions(threads=1))
    model, feed = adapter.build(None), {"data": networks.images(400)}
    model.run(feed)
    before = model.processor_time()
    for _ in range(20):
        model.run(feed)
    own = __import__("time").thread_time
    taken, start = model.processor_time() - before, own()
    model.run(feed)
    assert taken / 20 > 2 * (own() - start)
