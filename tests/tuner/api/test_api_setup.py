"""What may be chosen where size counts: all that has a weight is reduced by default, and nothing else."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from quaver.adapters import AdapterOptions, load_model
from quaver.api.config.resolve import make_config
from quaver.api.setup import ops_by_rules
from quaver.engine.timing.objective import Size
from quaver.space import TuningSpace

MODEL = Path(__file__).parents[2] / "data" / "digits_resnet.onnx"


@pytest.mark.parametrize(
    "rule", [{"weight": {"granularity": ["per_tensor"]}}, {"activation": {"mode": ["static"]}, "weight": {}}, {}]
)
def test_rules_do_not_hide_that_an_op_has_a_weight(rule: dict[str, Any]) -> None:
    config = make_config(None, op_type_dict={"Conv": rule}, relative=0.01)
    with contextlib.closing(load_model(MODEL, AdapterOptions())) as adapter:
        space = TuningSpace(ops_by_rules(config, adapter, Size()))
    assert {space[name].kind for name in space.default_config().quantized_ops} == {"Conv", "Gemm"}
    assert {space[name].kind for name in space.default_config().fp32_ops} == {"Add", "GlobalAveragePool"}
    assert len(space.default_config().quantized_ops) == len(space.of_kind("Conv")) + 1
