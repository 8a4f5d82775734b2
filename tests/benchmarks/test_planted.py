"""Strategies find planted outliers in few evaluations."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import planted
from quaver.demo.data import digits

# The most evaluations, the baseline included, and the most fp32 convolutions and matrix products.
AUTO = {"W1": (8, 1), "W2": (8, 3), "A1": (8, 2), "A2": (12, 4), "A1 minmax": (8, 2), "A2 minmax": (12, 4)}
MSE = {"W1": (4, 1), "W2": (5, 2), "A1": (4, 0), "A2": (4, 0), "A1 minmax": (5, 2), "A2 minmax": (8, 4)}
WITH_PEER = ("W1", "W2", "A1", "A2")


@pytest.mark.parametrize("case", WITH_PEER)
def test_planting_changes_nothing_in_fp32_and_ruins_int8(case):
    _, _, images, _ = digits()
    model = onnx.load(planted.MODEL)
    outlier = planted.plant(model, planted.CASES[case])
    before, after = (
        ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"image": images})
        for proto in (model, outlier)
    )
    np.testing.assert_allclose(before[0], after[0], rtol=1e-4, atol=1e-4)
    assert planted.all_int8_score(outlier) < 0.5


@pytest.mark.parametrize("case", AUTO)
def test_auto_finds_the_culprits(case):
    evaluations, heavy = AUTO[case]
    row = planted.run(case, "auto")
    assert row.met
    assert row.evaluations <= evaluations
    assert row.fp32_heavy <= heavy


@pytest.mark.parametrize("case", MSE)
def test_mse_finds_the_culprits_by_the_error_that_they_add(case):
    evaluations, heavy = MSE[case]
    row = planted.run(case, "mse")
    assert row.met
    assert row.evaluations <= evaluations
    assert row.fp32_heavy <= heavy


@pytest.mark.parametrize("case", WITH_PEER)
@pytest.mark.parametrize("strategy", ["basic", "mse_v2"])
def test_fewer_evaluations_than_the_peer(strategy, case):
    row, peer = planted.run(case, strategy), planted.PEER[strategy][case]
    assert row.met
    assert row.evaluations < peer[0]


@pytest.mark.parametrize("case", WITH_PEER)
def test_bayesian_meets_the_criterion_where_the_peer_fails(case):
    row = planted.run(case, "bayesian")
    assert row.met
    assert row.evaluations <= 60
