"""The weight study of a decoder: groups, divergences, and what they say of each weight."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_models import opened
from tiny_decoder import decoder, tokens

from quaver.adapters.onnxrt.inspect.weight_study import split_divergences, token_divergences
from quaver.ops import FLOAT, QuantConfig


def test_groups_are_layers_places_and_the_rest() -> None:
    with opened(decoder(layers=3), calibrate=False) as adapter:
        assert adapter.weight_groups() == ()
        adapter.calibrate([{"input_ids": batch} for batch in tokens()])
        groups = adapter.weight_groups()
        assert groups[0] == ("q0", "k0", "v0", "o0", "gate0", "up0", "down0")
        assert groups[3] == ("q0", "q1", "q2") and len(groups) == 3 + 7 + 2
        assert {groups[-2], groups[-1]} == {("embedding",), ("head",)}


def test_a_table_predicts_what_built_models_do() -> None:
    with opened(decoder(), calibrate=False) as adapter:
        adapter.calibrate([{"input_ids": batch} for batch in tokens(16)])
        table = adapter.weight_table([adapter.group_divergence(group) for group in adapter.weight_groups()])
        assert len(table.weights) == 14 + 1  # the table of the embedding is the head's
        fp32 = QuantConfig((op.name, FLOAT) for op in adapter.ops())
        size = adapter.assemble(fp32).size
        assert adapter.divergence(fp32) < 1e-4
        for assignment in (table.smallest(), table.finest_quantized(), table.curve(5)[2]):
            built = adapter.assemble(fp32.replace(assignment.picks))
            assert abs(size - built.size - (table.in_fp32().bytes - assignment.bytes)) < 0.05 * size
        points = table.smallest(), table.within_divergence(0.3 * table.smallest().divergence), table.finest_quantized()
        smallest, middle, finest = (adapter.divergence(fp32.replace(point.picks)) for point in points)
        assert finest < middle < smallest
        assert 0.3 * table.smallest().divergence < smallest < 3 * table.smallest().divergence


def test_divergence_is_that_of_probabilities_whatever_is_added_to_all_scores() -> None:
    scores = np.log(np.array([[[0.5, 0.5], [0.9, 0.1]]], np.float32))
    other = np.log(np.array([[[0.9, 0.1], [0.9, 0.1]]], np.float32))
    expected = 0.5 * np.log(0.5 / 0.9) + 0.5 * np.log(0.5 / 0.1)
    assert np.allclose(token_divergences(scores, other + 3), [[expected, 0]], atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_cells_add_up_to_what_was_measured(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = np.outer(rng.lognormal(size=6), rng.lognormal(size=4))
    start = rng.uniform(0.5, 2, (6, 4))
    cells = split_divergences(truth.sum(1), truth.sum(0), start)
    assert np.allclose(cells.sum(1), truth.sum(1)) and np.allclose(cells.sum(0), truth.sum(0), rtol=1e-3)
    alone = split_divergences(truth.sum(1), truth.sum(0), np.ones((6, 4)))
    assert np.allclose(alone, truth, rtol=1e-6)
