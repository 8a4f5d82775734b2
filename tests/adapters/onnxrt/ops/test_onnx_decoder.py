"""A decoder offers its weights alone; a head that is the embedding's transpose is stored once in every precision."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx_models import Net, data, kernels, opened, space, weight
from tiny_decoder import INNER, VOCABULARY, WIDTH, decoder, tokens

from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.adapters.onnxrt.ops.blocks import weight_bytes
from quaver.ops import FLOAT, INT4, INT8, Op, OpConfig, QuantConfig

PRODUCTS = 2 * 7


def choices(adapter: OnnxAdapter, bits: int, size: int = 64) -> QuantConfig:
    def nearest(op: Op) -> OpConfig:
        in_blocks = [choice for choice in op.choices if choice.block_size and choice.precision.bits == bits]
        return min(in_blocks, key=lambda choice: abs(choice.block_size - size))

    return space(adapter).configure(nearest)


@pytest.mark.parametrize("tied", [True, False])
def test_the_ops_of_a_decoder_are_its_weights(tied: bool) -> None:
    with opened(decoder(tied=tied), calibrate=False) as adapter:
        ops = adapter.ops()
        assert [op.kind for op in ops].count("MatMul") == PRODUCTS + 1 and len(ops) == PRODUCTS + 2
        for op in ops:
            eight, *others, last = op.choices
            assert eight.precision == INT8 and eight.block_size == (128 if op.name.startswith("down") else 64)
            assert last == FLOAT and {choice.precision for choice in others} == {INT8, INT4} - {
                *([INT8] if op.name == "embedding" else [])
            }


def test_a_model_with_past_keys_is_a_decoder_and_an_encoder_with_a_head_is_none() -> None:
    with opened(decoder(past=True), calibrate=False) as adapter:
        assert len(adapter.ops()) == PRODUCTS + 2
    with opened(decoder(causal=False), calibrate=False) as adapter:
        assert {"Add", "Mul"} <= {op.kind for op in adapter.ops()}


def test_runs_of_older_versions_keep_their_ops() -> None:
    with opened(decoder(), calibrate=False, ops_version=3) as adapter:
        assert len(adapter.ops()) > PRODUCTS + 2


def test_the_float_model_stores_a_tied_weight_once() -> None:
    with opened(decoder(), calibrate=False) as tied, opened(decoder(tied=False), calibrate=False) as untied:
        table = 4 * VOCABULARY * WIDTH
        assert 0.95 * table < untied.assemble(None).size - tied.assemble(None).size < 1.05 * table
        feed = {"input_ids": tokens(1)[0]}
        expected = tied.build_unmodified().session.run(None, feed)[0]
        assert np.allclose(tied.build(None).session.run(None, feed)[0], expected, atol=1e-3)


@pytest.mark.parametrize(("bits", "size"), [(8, 64), (4, 64), (4, 32)])
def test_a_tied_weight_is_quantized_once_for_both_ops(bits: int, size: int) -> None:
    with opened(decoder(), calibrate=False) as adapter:
        config = choices(adapter, bits, size)
        names = kernels(adapter, config)
        assert names["embedding"] == "GatherBlockQuantized" and names["head"] == "MatMulNBits"
        both, only = adapter.assemble(config), adapter.assemble(config.replace({"embedding": FLOAT}))
        assert only.size - both.size > 0.95 * 4 * VOCABULARY * WIDTH
        alone = next(op for op in adapter.ops() if op.name == "embedding")
        stored = weight_bytes((VOCABULARY, WIDTH), config["embedding"])
        assert config["embedding"] in alone.choices and stored < 4 * VOCABULARY * WIDTH / (32 / bits) * 1.3
        feed = {"input_ids": tokens(1)[0]}
        fp32, quantized = (adapter.build(item).session.run(None, feed)[0] for item in (None, config))
        error = np.square(fp32 - quantized).sum() / np.square(fp32).sum()
        assert 0 < error < (0.01 if bits == 8 else 0.2)


def test_eight_bits_in_blocks_are_read_back_from_a_file(tmp_path: Path) -> None:
    with opened(decoder(), calibrate=False) as adapter:
        config = choices(adapter, 8)
        path = adapter.build(config).save(tmp_path / "eight.onnx")
        view, own = adapter.inspect_quantized(path), adapter.inspect_quantized(config)
        assert set(view.precisions.values()) == {"int8"}
        for in_file, expected in zip(view.weights(), own.weights(), strict=True):
            assert in_file.op == expected.op and np.allclose(in_file.optimized, expected.optimized, atol=1e-6)


def test_a_decoder_needs_no_ranges() -> None:
    with opened(decoder(), calibrate=False) as adapter:
        calibration = adapter.calibrate([{"input_ids": batch} for batch in tokens()])
        assert not calibration["ranges"] and adapter.probe_samples
        assert data(adapter)[0]["input_ids"].shape == (2, 2)


@pytest.mark.parametrize(
    ("width", "sizes"), [(128, [64, 32, 128]), (96, [32]), (1000, [64, 32, 128]), (40, [32]), (31, [])]
)
def test_blocks_are_offered_if_they_take_fewer_bytes_than_smaller_ones(width: int, sizes: list[int]) -> None:
    net = Net()
    model = net.model(net.MatMul(net.input(None, width), weight(width, 256), name="op"))
    with opened(model) as adapter:
        (op,) = adapter.ops()
        offered = [choice.block_size for choice in op.smaller]
        assert sorted(offered) == sorted(sizes)
        assert all(isinstance(choice, OpConfig) and choice.precision == INT4 for choice in op.smaller)


def test_bytes_of_blocks_are_those_of_the_file() -> None:
    with opened(decoder(), calibrate=False) as adapter:
        four, eight = choices(adapter, 4), choices(adapter, 8)
        change = adapter.assemble(eight).size - adapter.assemble(eight.replace({"up0": four["up0"]})).size
        expected = weight_bytes((INNER, WIDTH), eight["up0"]) - weight_bytes((INNER, WIDTH), four["up0"])
        assert abs(change - expected) < 64
