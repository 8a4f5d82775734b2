"""What `auto` does where int8 hardly pays."""

from __future__ import annotations

import pytest

from quaver.probe import OpTime
from quaver.testing import SimulatedModel, drive


class OneThatPays(SimulatedModel):
    """All ops but the first take longer in int8."""

    @property
    def seconds(self):  # type: ignore[no-untyped-def,override]
        return {
            name: OpTime(time.fp32, (0.5 if name == "op000" else 1.5) * time.fp32)
            for name, time in super().seconds.items()
        }


@pytest.mark.parametrize("ops", [3, 20])
def test_if_the_one_op_that_pays_fails_the_others_are_tried(ops: int) -> None:
    trials = drive("auto", OneThatPays(ops=ops, culprits=["op000"]))
    assert set(trials[0].config.quantized_ops) == {"op000"}
    assert trials[-1].met and "op000" not in trials[-1].config.quantized_ops


def test_of_the_others_those_that_fail_fall_back() -> None:
    trials = drive("auto", OneThatPays(ops=20, culprits=["op000", "op007", "op011"]))
    assert trials[-1].met
    assert not {"op000", "op007", "op011"} & set(trials[-1].config.quantized_ops)


def test_when_the_objective_is_latency_an_evaluation_is_not_spent_on_another_calibration() -> None:
    model = SimulatedModel(ops=20, culprits=2, damage=0.006, relief={"percentile": 0.9})
    first, second, *_ = drive("auto", model)
    assert not first.met
    assert second.config.quantized_count < first.config.quantized_count
