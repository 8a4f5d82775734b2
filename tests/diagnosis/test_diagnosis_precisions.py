"""Any precision and mode is diagnosed, with its own bits and name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from fake import FakeAdapter, FakeFloat

from quaver.adapters import ModelView
from quaver.affine import QuantizationParameters, QuantizedTensor
from quaver.engine.inspection.diagnose import DiagnosisOptions, examine
from quaver.engine.observers import silent
from quaver.introspection import LocalRun, OpContext, OpWeight, QuantizedRun
from quaver.ops import FLOAT, OpConfig, Precision
from quaver.space import TuningSpace
from quaver.types import Feed

INT4 = Precision("int4")
PER_TENSOR = OpConfig(INT4, granularity="per_tensor", mode="weight_only")
PER_CHANNEL = OpConfig(INT4, mode="weight_only")

WEIGHT = np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32)
WEIGHT[:, 5] *= 300


def rounded() -> QuantizedTensor:
    """The weight in 4 bits, with one scale for all."""
    scale = np.asarray(np.abs(WEIGHT).max() / 7, np.float32)
    return QuantizedTensor(
        np.rint(WEIGHT / scale).astype(ml_dtypes.int4), QuantizationParameters(scale, np.zeros((), ml_dtypes.int4))
    )


class Products(ModelView):
    """An op `a` that multiplies with a weight in 4 bits; its activations stay float."""

    def local(self, ops: Sequence[str], tensors: Sequence[str]) -> Callable[[Feed], LocalRun]:
        weight = rounded().dequantized()
        return lambda feed: LocalRun({"a": (feed["x"] @ WEIGHT, feed["x"] @ weight)}, {}, [feed["x"] @ WEIGHT])

    def quantized(self, ops: Sequence[str]) -> Callable[[Feed], QuantizedRun]:
        weight = rounded().dequantized()
        return lambda feed: QuantizedRun({"a": feed["x"] @ weight}, [feed["x"] @ weight])

    def weights(self) -> Iterator[OpWeight]:
        yield OpWeight("a", WEIGHT, rounded(), 1, 0)

    def contexts(self) -> Mapping[str, OpContext]:
        return {"a": OpContext("a", "a", axis=1)}

    def seconds(self) -> Mapping[str, float]:
        return {"": 0.0, "a": 1.0}


class Adapter(FakeAdapter):
    def inspect_quantized(self, quantized: Any) -> ModelView:
        return Products(self, quantized)

    def op_seconds(self, config: Any) -> dict[str, float]:
        return {"": 0.0, "a": 0.5}


def test_4_bit_weight_only_models_are_diagnosed(tmp_path: Path) -> None:
    model = FakeFloat({"a": 0.0}, choices=(PER_TENSOR, PER_CHANNEL, FLOAT))
    adapter, space = Adapter(model), TuningSpace(model.ops)
    adapter.calibrate(np.random.default_rng(1).standard_normal((32, 2)).astype(np.float32))
    config = space.default_config()
    found = examine(adapter, adapter.inspect_quantized(config), config, None, DiagnosisOptions(), silent)
    assert found.precisions == {"a": "int4"} and str(found).startswith("1 int4 and 0 int8 and 0 fp32 ops on ")
    scale, slow = found.causes
    assert scale.kind == "one_weight_scale" and "output channel 5 reach" in scale.sentence
    assert "of 7 steps" in scale.sentence
    assert scale.rules == {"a": {"weight": {"granularity": ["per_channel"]}}}
    assert slow.sentence == "it takes 1000 ms in int4 and 500 ms in fp32 (2.0x slower)." and slow.rules == {"a": "fp32"}
    files = found.save(tmp_path)
    bits = json.loads(files["precision.node_data.json"].read_text())["results"]["a"]["value"]
    assert bits == 4 and json.loads(files["error.node_data.json"].read_text())["results"]
    # Of the layer's own figures none is missing, though no activation is in integers.
    assert found.layers[0].error > 0.05 and not found.layers[0].scales and found.layers[0].precision == "int4"


def test_a_recipe_holds_the_mode_and_the_bits() -> None:
    from quaver.diagnosis.export import recipe
    from quaver.ops import INT8

    picks = {"a": PER_CHANNEL, "b": OpConfig(INT8, mode="dynamic"), "c": OpConfig(INT8), "d": FLOAT}
    rules = recipe({name: name for name in picks}, ["d"], picks)
    ways = [(rule["op_config"]["compute_precision"], rule["op_config"]["explicit_dequantize"]) for rule in rules]
    assert ways == [("FLOAT", True), ("INTEGER", False), ("INTEGER", False), ("FLOAT", False), ("FLOAT", False)]
    assert ["activation_tensor_config" in rule["op_config"] for rule in rules] == [False, False, True, False, False]
    assert [rule["op_config"]["weight_tensor_config"]["num_bits"] for rule in rules[:3]] == [4, 8, 8]
