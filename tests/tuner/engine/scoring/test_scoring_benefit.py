"""A trial is compared with the float model by what its run was tuned for, and within the error bar."""

from __future__ import annotations

from typing import Any

import pytest
from fake import MINMAX

from quaver import QuantConfig, Trial, TrialState
from quaver.engine.scoring.benefit import LATENCY, PREDICTED, SIZE, benefit
from quaver.engine.timing.objective import (
    Accuracy,
    Int8Ops,
    Latency,
    Objective,
    Predictor,
    Size,
    UserObjective,
)
from quaver.target_budget import TargetBudget

CONFIG = QuantConfig(dict.fromkeys("ab", MINMAX))
BY_SIZE = TargetBudget(size=0.5)
PREDICTOR: Predictor = lambda config: {}  # noqa: E731
FP32 = Trial(0, CONFIG.fallback(*"ab"), TrialState.COMPLETE, 0.9, model_size=1000)


def a_trial(size: int = 300, **measured: float) -> Trial:
    return Trial(1, CONFIG, TrialState.COMPLETE, 0.9, 0.0, True, model_size=size, measured=measured)


@pytest.mark.parametrize(
    ("ratio", "spread", "gain", "loss"),
    [
        (0.50, 0.01, True, False),
        (0.98, 0.01, True, False),
        (0.98, 0.04, False, False),  # 0.98 x 1.04 is above 1
        (1.00, 0.00, False, False),
        (1.02, 0.04, False, False),
        (1.12, 0.01, False, True),
        (0.97, 9.00, False, False),  # a disturbed measurement has an error bar of 5 %, no more
        (0.94, 9.00, True, False),
    ],
)
def test_a_latency_is_a_gain_only_beyond_its_error_bar(ratio: float, spread: float, gain: bool, loss: bool) -> None:
    compared = benefit(a_trial(latency=ratio, latency_ms=2.0, latency_spread=spread), Latency(), FP32)
    assert compared is not None and (compared.is_gain, compared.is_loss) == (gain, loss)
    assert compared.figure == LATENCY and compared.float_figure == pytest.approx(2.0 / ratio)


def test_a_size_is_exact() -> None:
    for size, gain, loss in ((999, True, False), (1000, False, False), (1001, False, True)):
        compared = benefit(a_trial(size), Size(), FP32)
        assert compared is not None and (compared.is_gain, compared.is_loss) == (gain, loss) and compared.margin == 0


def test_the_figure_is_the_one_that_the_run_was_tuned_for() -> None:
    measured = a_trial(latency=1.2, predicted_latency=0.5, predicted_ms=3.0)
    assert [
        None if compared is None else (compared.figure, compared.is_gain)
        for compared in (
            benefit(measured, objective, FP32)
            for objective in (Latency(), Latency(PREDICTOR), Accuracy(), Accuracy(None, PREDICTOR), Accuracy(BY_SIZE))
        )
    ] == [(LATENCY, False), (PREDICTED, True), (LATENCY, False), (PREDICTED, True), (SIZE, True)]


@pytest.mark.parametrize("objective", [Int8Ops(), UserObjective(len), Latency(), Size()])
def test_what_is_not_recorded_is_not_compared(objective: Objective) -> None:
    bare: dict[str, Any] = {} if isinstance(objective, Latency) else {"latency": 0.5}
    assert benefit(a_trial(0, **bare), objective, FP32) is None
    assert benefit(None, objective, FP32) is None and benefit(a_trial(latency=0.5), Size(), None) is None


@pytest.mark.parametrize("ratio", [float("nan"), float("inf"), 0.0, -1.0])
def test_a_figure_that_no_clock_gives_is_not_compared(ratio: float) -> None:
    assert benefit(a_trial(latency=ratio), Latency(), FP32) is None
