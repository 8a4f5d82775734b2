"""Three trained networks (depthwise, residual, transformer) in many configurations: what is built is what was asked."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx_graphs import NETWORKS
from onnx_models import as_given, kernels, opened, random_config, space

from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.ops import QuantConfig
from quaver.space import TuningSpace
from quaver.types import Feed

COUNT = 30


@dataclass(frozen=True)
class Network:
    path: Path
    adapter: OnnxAdapter
    ranges: dict[str, object]
    ops: TuningSpace
    configs: list[QuantConfig]
    feed: Feed


@pytest.fixture(scope="module", params=NETWORKS)
def network(request: pytest.FixtureRequest) -> Iterator[Network]:
    path = NETWORKS[request.param]
    rng = np.random.default_rng(5)
    with opened(path, calibrate=False) as adapter:
        (spec,) = adapter.inputs
        shape = [8 if dim is None else dim for dim in spec.shape or ()]
        batches = [rng.random(shape).astype(np.float32) for _ in range(4)]
        ranges = adapter.calibrate(batches)
        ops = space(adapter)
        shares = np.linspace(0.05, 0.95, COUNT)
        configs = [ops.default_config(), *(random_config(ops, rng, share) for share in shares)]
        yield Network(path, adapter, ranges, ops, configs, {spec.name: batches[0]})


def test_int8_ops_run_in_integers_and_fp32_ops_do_not(network: Network) -> None:
    assert len({config.fingerprint for config in network.configs}) == COUNT + 1
    for config in network.configs:
        assert set(kernels(network.adapter, config)) == set(config.int8_ops)


def test_every_model_is_valid_and_keeps_its_signature(network: Network) -> None:
    given = onnx.load_model(network.path)
    for config in network.configs:
        built = network.adapter.assemble(config).model
        onnx.checker.check_model(built, full_check=True)
        assert list(built.graph.input) == list(given.graph.input)
        assert list(built.graph.output) == list(given.graph.output)
        assert list(built.metadata_props) == list(given.metadata_props)
        assert (built.producer_name, built.graph.name) == (given.producer_name, given.graph.name)


def test_the_saved_file_is_the_model(network: Network, tmp_path: Path) -> None:
    one_thread = ort.SessionOptions()
    one_thread.intra_op_num_threads = 1
    for index, config in enumerate(network.configs):
        model = network.adapter.build(config)
        path = model.save(tmp_path / f"{index}.onnx")
        assert hashlib.sha256(path.read_bytes()).hexdigest() == model.sha256
        assert path.stat().st_size == model.size
        plain = ort.InferenceSession(path, one_thread, providers=["CPUExecutionProvider"])
        assert np.array_equal(plain.run(None, network.feed)[0], model.run(network.feed))


def test_bytes_depend_on_nothing_but_model_calibration_and_configuration(network: Network) -> None:
    """A second adapter, given the ranges, that has built all the others first and in the opposite order."""
    expected = {config: network.adapter.assemble(config).sha256 for config in network.configs}
    with opened(network.path.read_bytes(), calibrate=False) as other:
        other.restore(network.ranges)
        for config in reversed(network.configs):
            assert other.assemble(config).sha256 == expected[config]


def test_the_fp32_model_computes_what_the_user_gave(network: Network) -> None:
    (expected,) = as_given(onnx.load_model(network.path), network.feed)
    for config in (None, network.ops.all_fp32()):
        assert np.allclose(network.adapter.build(config).run(network.feed), expected, rtol=1e-4, atol=1e-4)


def test_all_int8_is_smaller_and_near(network: Network) -> None:
    model, exact = network.adapter.build(network.ops.default_config()), network.adapter.build(None)
    assert model.size < 0.7 * exact.size
    difference = model.run(network.feed) - exact.run(network.feed)
    assert 0 < np.abs(difference).mean() < 0.1 * np.abs(exact.run(network.feed)).mean() + 0.05
