"""Weights of four bits in blocks: on offer for size alone, by rules or by the objective, exact, small, and rebuilt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx_models import Array, Net, data, kernels, opened, space, weight

import quaver
from quaver.adapters.abilities import weight_errors
from quaver.adapters.onnxrt.build.blocks import packed, quantize_blocks, unpacked
from quaver.adapters.onnxrt.ops.blocks import BLOCK, INT4_PER_BLOCK
from quaver.engine.scoring.judge import judge_snapshot
from quaver.errors import BuildError, ModelError, SettingsError
from quaver.history import read_snapshot
from quaver.insights import write_report
from quaver.ops import FLOAT, INT4, INT8, OpConfig, QuantConfig

ROWS, WIDTH = 300, 128
PRODUCTS = ("MatMul", "Gemm", "Gemm with transB")


def product(which: str, inputs: int = 100, outputs: int = 72) -> onnx.ModelProto:
    net = Net()
    x = net.input(None, inputs)
    if which == "MatMul":
        return net.model(net.MatMul(x, weight(inputs, outputs), name="op"))
    if which == "Gemm":
        return net.model(net.Gemm(x, weight(inputs, outputs), weight(outputs), name="op"))
    return net.model(net.Gemm(x, weight(outputs, inputs), weight(outputs), transB=1, name="op"))


def lookup(table: Array | None = None, **axis: int) -> onnx.ModelProto:
    net = Net()
    rows = net.input(None, 6, name="words", dtype=TensorProto.INT64)
    return net.model(net.Gather(weight(ROWS, WIDTH) if table is None else table, rows, name="op", **axis))


def text() -> onnx.ModelProto:
    """Words, a product of activations, and products with weights: what a text model is made of."""
    net = Net()
    x = net.Gather(weight(ROWS, WIDTH), net.input(None, 6, name="words", dtype=TensorProto.INT64), name="word")
    y = net.Add(net.MatMul(x, weight(WIDTH, WIDTH), name="inner"), weight(WIDTH))
    scores = net.MatMul(y, net.Transpose(x, perm=[0, 2, 1]), name="scores")
    z = net.MatMul(net.Softmax(scores), net.Tanh(y), name="mixed")
    return net.model(net.MatMul(z, weight(WIDTH, WIDTH, seed=1), name="outer"))


def batches(count: int = 4) -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, ROWS, (2, 6)) for _ in range(count)]


def closeness(model: onnx.ModelProto) -> Any:
    with opened(model, calibrate=False) as adapter:
        expected = [adapter.build(None)(batch) for batch in batches()]

    def near(other: Any) -> float:
        errors = [np.square(other(x) - y).sum() / np.square(y).sum() for x, y in zip(batches(), expected, strict=True)]
        return float(1 - np.mean(errors))

    return near


def by_definition(rows: Array) -> Array:
    """Each block of a row over its whole range in fifteen steps, with an exact zero."""
    found = np.zeros_like(rows)
    for at in range(0, rows.shape[1], BLOCK):
        block = rows[:, at : at + BLOCK]
        low, high = np.minimum(block.min(1), 0), np.maximum(block.max(1), 0)
        scale = ((high - low) / 15)[:, None]
        zero = np.rint(-low[:, None] / scale)
        found[:, at : at + BLOCK] = (np.clip(np.rint(block / scale) + zero, 0, 15) - zero) * scale
    return found


# --- the arithmetic ---


@pytest.mark.parametrize("width", [64, 100, 128, 129])
def test_blocks_are_rounded_over_their_own_range(width: int) -> None:
    rows = weight(7, width) * np.linspace(0.01, 10, width, dtype=np.float32)
    assert np.allclose(quantize_blocks(rows).dequantized(width), by_definition(rows), atol=1e-5)


@pytest.mark.parametrize("value", [0.0, 3.0, -3.0, 1e-45, 1e38])
def test_a_block_of_one_value_keeps_it(value: float) -> None:
    rows = np.full((2, BLOCK), value, np.float32)
    assert np.allclose(quantize_blocks(rows).dequantized(BLOCK), rows, rtol=1e-6, atol=1e-44)


def test_unpacking_undoes_packing() -> None:
    steps = np.random.default_rng(0).integers(0, 16, (3, 9)).astype(np.uint8)
    assert packed(steps).shape == (3, 5)
    assert np.array_equal(unpacked(packed(steps))[:, :9], steps)


# --- what is on offer ---


@pytest.mark.parametrize("model", [*map(product, PRODUCTS), lookup()])
def test_four_bits_are_no_choice_by_themselves(model: onnx.ModelProto) -> None:
    with opened(model) as adapter:
        (op,) = adapter.ops()
        assert op.smaller[0] == INT4_PER_BLOCK and INT4_PER_BLOCK not in op.choices
        assert op.with_smaller().choices == (*op.choices, *op.smaller)
        assert INT4 not in {choice.precision for choice in op.choices}


@pytest.mark.parametrize(
    "model",
    [
        product("MatMul", inputs=31, outputs=200),
        product("MatMul", inputs=64, outputs=63),
        lookup(weight(ROWS, 100)),
        lookup(weight(WIDTH, ROWS), axis=1),
    ],
    ids=["less than a block", "few numbers", "rows that end within a block", "columns"],
)
def test_four_bits_are_not_offered_without_a_kernel_or_a_saving(model: onnx.ModelProto) -> None:
    with opened(model) as adapter:
        assert [op.smaller for op in adapter.ops()] == [()]


def test_a_weight_that_two_ops_read_is_not_offered_in_four_bits() -> None:
    net = Net()
    shared, x = net.constant(weight(64, 64)), net.input(None, 64)
    with opened(net.model(net.MatMul(net.Tanh(net.MatMul(x, shared)), shared))) as adapter:
        assert [op.smaller for op in adapter.ops()] == [(), ()]


# --- what is built ---


@pytest.mark.parametrize("which", PRODUCTS)
def test_a_product_computes_with_the_rounded_matrix(which: str) -> None:
    with opened(product(which), calibrate=False) as adapter:
        config = QuantConfig({"op": INT4_PER_BLOCK})
        assert kernels(adapter, config) == {"op": "MatMulNBits"}
        x = np.random.default_rng(1).normal(size=(5, 100)).astype(np.float32)
        (seen,) = adapter.inspect_quantized(config).weights()
        stored = weight(72, 100) if which == "Gemm with transB" else weight(100, 72).T
        matrix = by_definition(stored)
        assert np.allclose(seen.optimized, matrix if which == "Gemm with transB" else matrix.T, atol=1e-6)
        expected = x @ matrix.T + (0 if which == "MatMul" else weight(72))
        assert np.abs(adapter.build(config)(x) - expected).max() < 0.02 * np.abs(expected).max()
        assert 1e-3 < weight_errors(adapter, config)["op"] < 0.02


def test_rows_are_those_of_the_rounded_table() -> None:
    words = np.array([[0, 1, -1, ROWS - 1, -ROWS, 7]])
    with opened(lookup(), calibrate=False) as adapter:
        config = QuantConfig({"op": INT4_PER_BLOCK})
        assert kernels(adapter, config) == {"op": "GatherBlockQuantized"}
        assert np.allclose(adapter.build(config)(words), by_definition(weight(ROWS, WIDTH))[words], atol=1e-6)


@pytest.mark.parametrize("model", [product("Gemm", 256, 256), lookup()])
def test_the_file_has_a_little_over_half_of_the_bytes_of_eight_bits(model: onnx.ModelProto, tmp_path: Path) -> None:
    with opened(model, calibrate=False) as adapter:
        (op,) = adapter.ops()
        usual = next(choice for choice in op.choices if choice.mode == "weight_only")
        four, eight = (adapter.build(QuantConfig({"op": choice})) for choice in (INT4_PER_BLOCK, usual))
        assert 0.5 < four.size / eight.size < 0.65
        assert four.save(tmp_path / "four.onnx").stat().st_size == four.size


def test_a_broken_weight_is_named() -> None:
    table = weight(ROWS, WIDTH).copy()
    table[3, 3] = np.nan
    with opened(lookup(table), calibrate=False) as adapter, pytest.raises(ModelError, match="holds NaN or infinity"):
        adapter.assemble(QuantConfig({"op": INT4_PER_BLOCK}))


def test_other_forms_of_four_bits_are_refused() -> None:
    with opened(product("MatMul")) as adapter, pytest.raises(BuildError, match="cannot run as 'int4 weight_only"):
        adapter.assemble(QuantConfig({"op": OpConfig(INT4, mode="weight_only")}))


def test_the_operator_format_holds_the_same_kernels() -> None:
    with opened(text()) as plain, opened(text(), quant_format="qoperator") as operators:
        config = space(plain).configure(lambda op: next(iter(op.smaller), op.choices[0]))
        assert {kernels(operators, config)[name] for name in config.ops_in(INT4)} == {
            "MatMulNBits",
            "GatherBlockQuantized",
        }
        feed = data(plain)[0]
        one, other = (adapter.build(config).session.run(None, feed)[0] for adapter in (plain, operators))
        assert np.abs(one - other).max() < 1e-3 * np.abs(one).max()


# --- in a run ---


def tuned(tmp_path: Path, **settings: Any) -> quaver.TuneResult:
    model = text()
    return quaver.fit(
        model, calib_dataloader=batches(), eval_func=closeness(model), threads=1, workspace=tmp_path / "run", **settings
    )


def test_the_size_objective_uses_four_bits_and_trials_are_recovered_byte_for_byte(tmp_path: Path) -> None:
    result = tuned(tmp_path, objective="size", relative=0.2)
    assert result.met and result.best is not None
    assert set(result.best.config.ops_in(INT4)) == {"word", "inner", "outer"}
    saved = result.save(tmp_path / "small.onnx")
    assert quaver.read_provenance(saved).model == result.best.model_hash
    snapshot = read_snapshot(result.history_path)
    assert snapshot.header.ops[0].smaller[0] == INT4_PER_BLOCK
    told = judge_snapshot(snapshot).best
    assert told is not None and told.number == result.best.number  # what the page and the report go by
    again = quaver.recover(text(), result.history_path, result.best.number)
    assert again.sha256 == result.best.model_hash
    assert again.save(tmp_path / "again.onnx").read_bytes() == saved.read_bytes()


def test_an_op_that_loses_too_much_falls_back_to_eight_bits(tmp_path: Path) -> None:
    # With rounding, all weights of this model keep four bits.
    result = tuned(tmp_path, objective="size", relative=0.005, op_type_dict={"*": {"repairs": []}})
    assert result.met and result.best is not None
    assert INT8 in {result.best.config[name].precision for name in ("word", "inner", "outer")}
    assert all(result.best.config[name].quantized for name in ("word", "inner", "outer"))


def test_other_objectives_use_four_bits_only_by_a_rule(tmp_path: Path) -> None:
    result = tuned(tmp_path, objective="int8_ops", relative=0.2, strategy="exhaustive", max_trials=30, timeout=60)
    assert not any(trial.config.ops_in(INT4) for trial in result.trials)


@pytest.mark.parametrize(
    "said",
    [
        {"dtype": ["int4"]},
        {"dtype": "uint4", "granularity": "per_block", "scheme": "asym"},
        {"bits": 4, "group_size": 64},
        {"bits": 4, "group_size": 32},
    ],
    ids=str,
)
def test_a_rule_on_a_type_means_those_that_have_a_weight(said: dict[str, Any], tmp_path: Path) -> None:
    result = tuned(tmp_path, relative=0.2, op_type_dict={"MatMul": {"weight": said}})
    assert result.best is not None
    assert set(result.best.config.ops_in(INT4)) == {"inner", "outer"}
    assert result.best.config["word"].precision in (INT8, FLOAT.precision)


def test_a_rule_for_what_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="leaves no int4 choice for op 'scores'"):
        tuned(tmp_path, op_name_dict={"scores": "int4"})
    with pytest.raises(SettingsError, match="'sym' is not possible, each block of a weight has a zero point"):
        tuned(tmp_path, op_type_dict={"MatMul": {"weight": {"bits": 4, "scheme": "sym"}}})
    with pytest.raises(SettingsError, match="16 is not possible"):
        tuned(tmp_path, op_type_dict={"MatMul": {"weight": {"bits": 4, "group_size": 16}}})


# --- seen from inside ---


def test_a_diagnosis_says_how_many_bits_an_op_has(tmp_path: Path) -> None:
    result = tuned(tmp_path, objective="size", relative=0.2)
    found = quaver.diagnose(text(), result.best, calib_dataloader=batches(), history=result.history_path)
    assert {found.precisions[name] for name in ("word", "inner", "outer")} == {"int4"}
    assert "3 int4" in str(found)
    errors = {row.op: row.mse for row in found.weights}
    assert all(errors[name] > 0 for name in ("word", "inner", "outer"))


def test_a_file_of_four_bits_is_seen_as_what_it_is(tmp_path: Path) -> None:
    with opened(text()) as adapter:
        config = space(adapter).configure(lambda op: next(iter(op.smaller), FLOAT))
        path = adapter.build(config).save(tmp_path / "four.onnx")
        view, own = adapter.inspect_quantized(path), adapter.inspect_quantized(config)
        assert {name for name, precision in view.precisions.items() if precision == "int4"} == set(config.ops_in(INT4))
        for in_file, expected in zip(view.weights(), own.weights(), strict=True):
            assert in_file.op == expected.op and np.allclose(in_file.optimized, expected.optimized, atol=1e-6)


def test_the_report_says_how_many_ops_have_four_bits(tmp_path: Path) -> None:
    result = tuned(tmp_path, objective="size", relative=0.2)
    told = write_report(result.history_path, tmp_path / "report.html").read_text(encoding="utf-8")
    assert ">3 (3 int4)<" in told and ">int4 weight_only<" in told
