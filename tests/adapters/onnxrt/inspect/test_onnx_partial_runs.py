"""A model with one quantized op gives the same outputs, whether it runs as a whole or from that op on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from captured_tensors import make
from onnx_graphs import NETWORKS, attention, residual
from onnx_models import Net, data, opened, space, weight

from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.adapters.onnxrt.inspect import partial_runs
from quaver.engine.inspection.output_error import OutputErrors
from quaver.ops import QuantConfig

TOLERANCE = 1e-5


@pytest.fixture(autouse=True)
def _short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut the small graphs of these tests in many places."""
    monkeypatch.setattr(partial_runs, "MIN_NODES", 2)


def network(name: str) -> Callable[[], Path]:
    return lambda: NETWORKS[name]


def small(build: Callable[[Net], str]) -> Callable[[], onnx.ModelProto]:
    def model() -> onnx.ModelProto:
        net = Net()
        return net.model(build(net))

    return model


def several_outputs(net: Net) -> onnx.ModelProto:
    x = net.Relu(net.Conv(net.input(None, 4, 8, 8), weight(4, 4, 3, 3)))
    pooled = net.MaxPool(x, kernel_shape=[2, 2])
    return net.model(net.Conv(pooled, weight(4, 4, 1, 1)), net.Flatten(pooled), x)


MODELS: dict[str, Callable[[], Any]] = {
    **{name: network(name) for name in NETWORKS},
    "residual graph": small(residual),
    "attention": small(attention),
    "several outputs": lambda: several_outputs(Net()),
    **{f"{body} after {between}": lambda b=body, m=between: make(b, m, True)
       for body, between in (("If", "MaxPool"), ("Loop", "Reshape"), ("Scan", "nothing"))},
}  # fmt: skip


def single_ops(adapter: OnnxAdapter) -> Iterator[QuantConfig]:
    """Yield a configuration for each op and each of its choices."""
    ops = space(adapter)
    for op in ops.ops:
        for choice in op.quantized_choices:
            yield ops.float_config().replace({op.name: choice})


@pytest.mark.parametrize("name", MODELS)
def test_the_outputs_of_each_op_alone_are_those_of_the_whole_model(name: str) -> None:
    with opened(MODELS[name]()) as adapter:
        feeds = data(adapter, count=2)
        runs = partial_runs.PartialRuns(adapter._builder, feeds, 1)
        assert name in BODIES or len(runs._segments) > 1
        configs = [space(adapter).float_config(), *single_ops(adapter)]
        for config in configs[:: max(len(configs) // 40, 1)]:
            parts = runs.outputs(config, len(feeds))
            model = adapter.assemble(config)
            for feed, outputs in zip(feeds, parts or (), strict=True):
                for part, whole in zip(outputs, model.session.run(None, feed), strict=True):
                    assert np.abs(part - whole).max() <= TOLERANCE * np.abs(whole).max()


BODIES = [name for name in MODELS if " after " in name]


def test_configurations_that_change_more_than_one_place_run_as_a_whole() -> None:
    with opened(NETWORKS["residual"]) as adapter:
        runs = partial_runs.PartialRuns(adapter._builder, data(adapter), 1)
        assert runs.outputs(space(adapter).default_config(), 1) is None


def test_feeds_that_do_not_fit_into_memory_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(NETWORKS["residual"]) as adapter:
        feeds, config = data(adapter), list(single_ops(adapter))[3]
        kept = partial_runs.PartialRuns(adapter._builder, feeds, 1).outputs(config, 4)
        monkeypatch.setattr(partial_runs, "MAX_KEPT_BYTES", 0)
        runs = partial_runs.PartialRuns(adapter._builder, feeds, 1)
        again = runs.outputs(config, 4)
        assert not runs._kept
    for before, after in zip(kept or (), again or (), strict=True):
        np.testing.assert_array_equal(before, after)


def test_models_whose_parts_differ_from_the_whole_are_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = partial_runs.PartialRuns.outputs
    ran = []

    def wrong(runs: partial_runs.PartialRuns, config: QuantConfig, count: int) -> Any:
        ran.append(config)
        return [[array + 1 for array in results] for results in outputs(runs, config, count) or ()]

    with opened(NETWORKS["residual"]) as adapter:
        config = next(single_ops(adapter))
        errors = OutputErrors(adapter, space(adapter).ops[-1].name, data(adapter))
        whole = errors.metric(2).error(errors.outputs(config, 2))
        monkeypatch.setattr(partial_runs.PartialRuns, "outputs", wrong)
        assert [errors.error(config, 2) for _ in range(2)] == [whole, whole]
    assert len(ran) == 1


def test_errors_on_few_feeds_need_the_float_outputs_of_few() -> None:
    with opened(NETWORKS["residual"]) as adapter:
        config = space(adapter).default_config()
        feeds = [{name: array[:1] for name, array in feed.items()} for feed in data(adapter, count=20)]
        many, few = (OutputErrors(adapter, "", feeds[:count]) for count in (20, 8))
        assert many.error(config, 6) == few.error(config, 6)
        assert list(many._metrics) == [8]
        assert many.error(config, 20) > 0 and list(many._metrics) == [8, 20]
