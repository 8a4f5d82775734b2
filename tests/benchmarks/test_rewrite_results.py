"""The figures of kernels and rewrites say that what quaver rewrites pays."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import kernel_costs, result_files, rewrites
from quaver.adapters.onnxrt.optimize.pipeline import rewrite_names
from quaver.engine.timing.rewrites import MARGIN

COSTS = result_files.rows_of("kernel_costs")
# What the rewrites may cost a model that is all int8, as a part of the float latency: silero_vad loses 0.01.
MAX_LOSS = 0.02
LATENCIES = result_files.rows_of("rewrites")


def test_every_op_of_the_benchmark_has_its_figures():
    assert {row["op"] for row in COSTS} == set(kernel_costs.OPS)
    assert all(row["fp32"] > 0 and "error" not in row for row in COSTS)


@pytest.mark.parametrize("row", [row for row in COSTS if row["rewrite"]], ids=lambda row: row["op"])
def test_the_rewritten_form_of_an_op_is_not_slower(row):
    assert row["rewritten"] <= MARGIN * row["fp32"]
    assert set(row["rewrite"].split(", ")) <= set(rewrite_names())


@pytest.mark.parametrize("name", ["Elu", "PRelu, one slope", "Conv 64 x 1 on one column"])
def test_the_table_names_the_rewrite_that_changes_an_op(name):
    row = next(row for row in COSTS if row["op"] == name)
    assert kernel_costs.rewritten(kernel_costs.OPS[name])[1] == row["rewrite"]


@pytest.mark.parametrize("model", sorted({row["model"] for row in LATENCIES}))
def test_with_all_rewrites_no_model_is_slower_than_as_given(model):
    together = next(row for row in LATENCIES if row["model"] == model and row["rewrite"] == rewrites.ALL)
    assert together["fp32_on"] <= MARGIN
    assert together["int8_on"] <= together["int8_off"] + MAX_LOSS


def test_held_back_models_are_not_measured_unless_they_are_asked_for():
    assert not set(rewrites.names()) & set(rewrites.unseen.NEWEST)
    assert set(rewrites.unseen.NEWEST) < set(rewrites.names(newest=True))
