"""Rounding by second moments: less error in the output, the same bytes from the same history."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx_models import Array, opened, space
from tiny_decoder import decoder, tokens

from quaver.adapters.onnxrt.build.rounding import best_ranges, factor, in_blocks, quantize_blocks, round_blocks
from quaver.adapters.onnxrt.ops.blocks import ROUNDING
from quaver.errors import BuildError, CalibrationError
from quaver.ops import FLOAT, INT4, QuantConfig


def inputs(width: int, count: int = 500) -> Array:
    """Inputs that depend on each other, as activations do."""
    rng = np.random.default_rng(1)
    return (rng.normal(size=(count, 12)) @ rng.normal(size=(12, width)) + 0.1 * rng.normal(size=(count, width))).astype(
        np.float32
    )


@pytest.mark.parametrize(("width", "size"), [(128, 32), (128, 64), (100, 64)])
def test_the_output_changes_less_than_with_nearest_rounding(width: int, size: int) -> None:
    rows = np.random.default_rng(0).normal(size=(24, width)).astype(np.float32)
    x = inputs(width)
    errors = [
        np.square(x @ (blocks.dequantized(width) - rows).T).sum()
        for blocks in (quantize_blocks(rows, 4, size), round_blocks(rows, factor(x.T @ x), 4, size))
    ]
    assert errors[1] < 0.2 * errors[0]


def test_inputs_without_correlation_leave_nearest_rounding() -> None:
    rows = np.random.default_rng(0).normal(size=(8, 64)).astype(np.float32)
    stored = round_blocks(rows, factor(np.eye(64, dtype=np.float32)), 4, 32)
    step = stored.scale.repeat(32, axis=1)
    inside = np.abs(rows) < 5 * step
    assert (np.abs(stored.dequantized(64) - rows) <= 0.5001 * step)[inside].all()


def test_the_factor_is_that_of_the_inverse() -> None:
    x = inputs(16)
    moments = (x.T @ x).astype(np.float64)
    moments[np.diag_indices(16)] += 0.01 * (np.diag(moments) + np.trace(moments) / 16)
    upper = factor(x.T @ x).astype(np.float64)
    assert np.allclose(upper, np.triu(upper)) and np.allclose(upper.T @ upper @ moments, np.eye(16), atol=1e-3)


def test_outliers_and_rounded_sums_need_more_damping_and_raise_nothing() -> None:
    x = inputs(64, 8)
    x[:, 5] *= 1e4
    assert np.isfinite(factor(x.T @ x)).all()
    assert np.isfinite(factor(np.where(np.eye(64), 1e-6, -1).astype(np.float32))).all()


def test_inputs_that_are_always_zero_do_no_harm() -> None:
    rows = np.ones((2, 32), np.float32)
    stored = round_blocks(rows, factor(np.zeros((32, 32), np.float32)), 4, 32)
    assert np.allclose(stored.dequantized(32), rows, atol=1e-6)


def test_ranges_have_no_more_error_than_the_whole_range() -> None:
    rows = np.random.default_rng(0).normal(size=(16, 128)).astype(np.float32)
    blocks = in_blocks(rows, 32)
    scale, zero = best_ranges(blocks, 4)
    level = np.clip(np.rint(blocks / scale[..., None]) + zero[..., None], 0, 15)
    error = np.square((level - zero[..., None]) * scale[..., None] - blocks).sum()
    assert error < np.square(quantize_blocks(rows, 4, 32).dequantized(128) - rows).sum()


def test_rounding_needs_samples_and_is_rebuilt_from_the_calibration(tmp_path: Path) -> None:
    with opened(decoder(), calibrate=False) as adapter:
        config = space(adapter).configure(
            lambda op: next((c for c in op.choices if ROUNDING in c.repairs and c.block_size == 32), FLOAT)
        )
        assert len(config.ops_in(INT4)) == len(config)
        with pytest.raises(BuildError, match="needs calibration samples"):
            adapter.assemble(config)
        calibration = adapter.calibrate([{"input_ids": batch} for batch in tokens(8)])
        first = adapter.build(config)
    with opened(decoder(), calibrate=False) as other:
        other.restore(calibration)
        assert other.build(config).sha256 == first.sha256
    with opened(decoder(), calibrate=False) as bare:
        bare.restore({**calibration, "rounding_samples": []})
        assert not any(choice.repairs for op in bare.ops() for choice in op.choices)
        with pytest.raises(CalibrationError, match="samples that cannot be read"):
            bare.restore({**calibration, "rounding_samples": [{"x": {"dtype": "O", "shape": [1], "data": b""}}]})


def test_rounded_weights_bring_the_model_nearer_to_fp32() -> None:
    with opened(decoder(), calibrate=False) as adapter:
        adapter.calibrate([{"input_ids": batch} for batch in tokens(16)])

        def config(rounded: bool) -> QuantConfig:
            return space(adapter).configure(
                lambda op: next(
                    c for c in op.choices if c.precision == INT4 and c.block_size == 32 and bool(c.repairs) == rounded
                )
            )

        # Its random inputs hardly depend on each other, so there is little to gain.
        assert adapter.divergence(config(True)) < adapter.divergence(config(False))
