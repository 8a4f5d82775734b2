"""Embedding tables in 8 bits: rows are looked up in integers, exactly, and nobody else's constant is touched."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import Array, Net, as_given, data, kernels, opened, random_config, space, weight
from onnxruntime.quantization import CalibrationDataReader, quantize_static

import quaver
from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.adapters.onnxrt.ops import units
from quaver.adapters.onnxrt.profile.kernels import optimised
from quaver.adapters.onnxrt.run import model as models
from quaver.adapters.options import AdapterOptions, TimingOptions
from quaver.errors import BuildError, ModelError
from quaver.ops import FLOAT, INT8, OpConfig, QuantConfig

ROWS = OpConfig(INT8, granularity="per_channel", mode="weight_only")
TENSOR = OpConfig(INT8, granularity="per_tensor", mode="weight_only")
VOCABULARY, WIDTH = 1024, 32


def table(seed: int = 0) -> Array:
    """Rows of very different size."""
    rng = np.random.default_rng(seed)
    return (weight(VOCABULARY, WIDTH, seed=seed) * rng.uniform(0.05, 4, (VOCABULARY, 1))).astype(np.float32)


def words(net: Net, name: str = "words") -> str:
    return net.input(None, 6, name=name, dtype=TensorProto.INT64)


def feed(*names: str, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {name: rng.integers(-VOCABULARY, VOCABULARY, (3, 6)) for name in names}


def simple() -> onnx.ModelProto:
    net = Net()
    return net.model(net.Gather(table(), words(net), name="look"))


def encoder() -> onnx.ModelProto:
    """Words and places, added up and normalised, a product: how text models begin."""
    net = Net()
    word = net.Gather(net.constant(table(), "words.weight"), words(net), name="word")
    place = net.Gather(net.constant(table(1), "places.weight"), words(net, "places"), name="place")
    x = net.LayerNormalization(net.Add(word, place, name="add"), weight(WIDTH), weight(WIDTH))
    return net.model(net.MatMul(x, weight(WIDTH, 4), name="out"))


def tied() -> onnx.ModelProto:
    """One matrix turns words into rows, and rows into scores of words."""
    net = Net()
    shared = net.constant(table(), "shared")
    rows = net.Reshape(net.Gather(shared, words(net), name="look"), np.array([-1, WIDTH]))
    return net.model(net.Gemm(net.Tanh(rows), shared, transB=1, name="score"))


def dequantized_rows(values: Array) -> Array:
    """By the definition of DequantizeLinear with one scale for each row."""
    scale = (np.abs(values).max(1, keepdims=True) / np.float32(127)).astype(np.float32)
    return np.rint(values / scale).astype(np.int8).astype(np.float32) * scale


def dequantized(values: Array) -> Array:
    """By the definition of DequantizeLinear with one scale."""
    low, high = float(values.min()), float(values.max())
    scale = np.float32((high - low) / 255)
    zero = np.rint(-low / np.float64(scale))
    steps = np.clip(np.rint(values / scale) + np.float32(zero), 0, 255)
    return ((steps - zero).astype(np.float32) * scale).astype(np.float32)


def constants(model: Any) -> dict[str, TensorProto]:
    return {entry.name: entry for entry in model.model.graph.initializer}


def run(adapter: OnnxAdapter, config: QuantConfig | None, given: dict[str, Array]) -> list[Array]:
    return list(adapter.build(config).session.run(None, given))


# --- what is on offer ---


def test_a_large_table_is_an_op_whose_rows_may_have_a_scale_each() -> None:
    with opened(simple(), calibrate=False) as adapter:
        (op,) = adapter.ops()
    assert (op.name, op.kind, op.choices) == ("look", "Gather", (ROWS, TENSOR, FLOAT))


def test_short_rows_share_one_scale() -> None:
    net = Net()
    with opened(net.model(net.Gather(weight(8192, 4), words(net))), calibrate=False) as adapter:
        assert adapter.ops()[0].choices == (TENSOR, FLOAT)
        assert "short" in adapter.inspect_quantized(space(adapter).default_config()).contexts()["Gather_0"].one_scale


@pytest.mark.parametrize(
    "values",
    [weight(16, 32), np.arange(2**15), weight(2**15), weight(1024, 32).astype(np.float64)],
    ids=["small", "of integers", "of numbers, not rows", "in float64"],
)
def test_other_tables_are_left_alone(values: Array) -> None:
    net = Net()
    rows = net.Cast(net.Gather(values, words(net)), to=TensorProto.FLOAT)
    with opened(net.model(net.Sigmoid(rows))) as adapter:
        assert [op.kind for op in adapter.ops()] == ["Sigmoid"]


def test_rows_that_are_always_the_same_are_left_to_the_optimiser() -> None:
    net = Net()
    net.input(None, WIDTH)
    with opened(net.model(net.Sigmoid(net.Add("x", net.Gather(table(), np.array([3])))))) as adapter:
        assert [op.kind for op in adapter.ops()] == ["Sigmoid"]


# --- what is computed ---


@pytest.mark.parametrize(("choice", "expected"), [(ROWS, dequantized_rows), (TENSOR, dequantized)])
def test_rows_are_exactly_those_of_the_dequantized_table(choice: OpConfig, expected: Any) -> None:
    with opened(simple()) as adapter:
        config = QuantConfig({"look": choice})
        (found,) = run(adapter, config, feed("words"))
        assert np.array_equal(found, expected(table())[feed("words")["words"]])
        assert kernels(adapter, config) == {"look": "Gather"}
        assert kernels(adapter, QuantConfig({"look": FLOAT})) == {}


def test_rows_that_calibration_never_saw_are_not_clipped() -> None:
    with opened(simple(), calibrate=False) as adapter:
        adapter.calibrate([{"words": np.full((1, 6), int(np.abs(table()).max(1).argmin()))}])
        (found,) = run(adapter, QuantConfig({"look": TENSOR}), feed("words"))
        assert np.abs(found - table()[feed("words")["words"]]).max() < np.ptp(table()) / 255


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("choice", [ROWS, TENSOR])
def test_a_table_of_three_axes_may_be_looked_up_along_any(axis: int, choice: OpConfig) -> None:
    values = weight(40, 36, 34)
    net = Net()
    model = net.model(net.Gather(values, words(net), axis=axis, name="look"))
    given = {"words": np.random.default_rng(0).integers(0, 34, (3, 6))}
    with opened(model) as adapter:
        config = QuantConfig({"look": choice})
        onnx.checker.check_model(adapter.assemble(config).SerializeToString(), full_check=True)
        (found,) = run(adapter, config, given)
        assert np.abs(found - np.take(values, given["words"], axis)).max() < np.ptp(values) / 250


def test_an_fp32_lookup_is_the_float_node_that_it_was() -> None:
    with opened(encoder()) as adapter:
        ops = space(adapter)
        config = ops.default_config().fallback("word")
        graph = optimised(adapter.assemble(config).SerializeToString()).graph
        kinds = {entry.name: entry.data_type for entry in graph.initializer}
        (node,) = [node for node in graph.node if node.name == "word"]
        assert kinds[node.input[0]] == TensorProto.FLOAT
        given = feed("words", "places")
        assert np.array_equal(run(adapter, ops.all_fp32(), given)[0], run(adapter, None, given)[0])
        seen = adapter.record_outputs(config, ["word"])(given)["word"]
        assert not np.array_equal(seen, adapter.record_outputs(ops.default_config(), ["word"])(given)["word"])


def test_an_int8_reader_takes_rows_of_one_scale_as_they_are() -> None:
    with opened(encoder()) as adapter:
        config = space(adapter).default_config(granularity="per_tensor")
        graph = optimised(adapter.assemble(config).SerializeToString()).graph
        (add,) = [node for node in graph.node if node.op_type == "QLinearAdd"]
        rows = {node.output[0] for node in graph.node if node.name in ("word", "place")}
        assert {add.input[0], add.input[3]} == rows


def test_a_table_in_8_bits_takes_a_quarter() -> None:
    with opened(encoder()) as adapter:
        ops = space(adapter)
        float_size, sizes = adapter.assemble(None).size, {}
        for granularity in ("per_channel", "per_tensor"):
            sizes[granularity] = adapter.assemble(ops.default_config(granularity=granularity)).size
        assert sizes["per_tensor"] < 0.27 * float_size
        assert sizes["per_channel"] < 0.30 * float_size


# --- whose table it is besides ---


def twice() -> onnx.ModelProto:
    net = Net()
    shared = net.constant(table(), "shared")
    return net.model(net.Gather(shared, words(net), name="a"), net.Gather(shared, words(net, "others"), name="b"))


@pytest.mark.parametrize("first", [ROWS, TENSOR, FLOAT])
@pytest.mark.parametrize("second", [ROWS, TENSOR, FLOAT])
def test_a_table_may_be_looked_up_in_two_ways(first: OpConfig, second: OpConfig) -> None:
    forms = {ROWS: dequantized_rows(table()), TENSOR: dequantized(table()), FLOAT: table()}
    with opened(twice()) as adapter:
        given = feed("words", "others")
        model = adapter.build(QuantConfig({"a": first, "b": second}))
        onnx.checker.check_model(model.SerializeToString(), full_check=True)
        a, b = model.session.run(None, given)
        assert np.array_equal(a, forms[first][given["words"]])
        assert np.array_equal(b, forms[second][given["others"]])
        large = [entry for entry in constants(model).values() if np.prod(entry.dims) == VOCABULARY * WIDTH]
        assert len(large) == len({first, second})


@pytest.mark.parametrize("choice", [ROWS, TENSOR, FLOAT])
@pytest.mark.parametrize("score", ["per_channel", "per_tensor", "fp32"])
def test_a_table_may_be_the_weight_of_a_product(choice: OpConfig, score: str) -> None:
    with opened(tied(), calibrate=False) as adapter:
        adapter.calibrate([feed("words")])
        other = FLOAT if score == "fp32" else OpConfig(INT8, granularity=score)
        config = QuantConfig({"look": choice, "score": other})
        model = adapter.build(config)
        onnx.checker.check_model(model.SerializeToString(), full_check=True)
        given = feed("words")
        (expected,), (found,) = as_given(tied(), given), model.session.run(None, given)
        assert np.abs(found - expected).max() < 0.03 * np.abs(expected).max()
        assert set(kernels(adapter, config)) == set(config.int8_ops)
        large = [entry for entry in constants(model).values() if np.prod(entry.dims) == VOCABULARY * WIDTH]
        together = (choice, score) in ((ROWS, "per_channel"), (FLOAT, "fp32"))
        assert len(large) == (1 if together else 2)


@pytest.mark.parametrize("choice", [ROWS, TENSOR])
def test_rows_that_a_body_reads_keep_their_name(choice: OpConfig) -> None:
    net = Net()
    rows = net.Gather(table(), words(net), name="look", outputs=["rows"])
    branches = {}
    for name, op in (("then_branch", "Neg"), ("else_branch", "Abs")):
        node = helper.make_node(op, [rows], [f"{op}.out"])
        value = helper.make_tensor_value_info(f"{op}.out", TensorProto.FLOAT, None)
        branches[name] = helper.make_graph([node], name, [], [value])
    flag = net.input(name="flag", dtype=TensorProto.BOOL)
    model = net.model(net.If(flag, **branches), rows)
    with opened(model) as adapter:
        given = feed("words") | {"flag": np.array(True)}
        negated, given_out = run(adapter, QuantConfig({"look": choice}), given)
        assert np.array_equal(negated, -given_out)
        assert 0 < np.abs(given_out - table()[given["words"]]).max() < np.ptp(table()) / 250


@pytest.mark.parametrize("choice", [ROWS, TENSOR])
def test_a_table_that_holds_no_number_is_named(choice: OpConfig) -> None:
    values = table()
    values[5, 5] = np.nan
    net = Net()
    with opened(net.model(net.Gather(values, words(net), name="look")), calibrate=False) as adapter:
        with pytest.raises(ModelError, match=r"'c0' holds NaN or infinity"):
            adapter.build(QuantConfig({"look": choice}))
        adapter.build(QuantConfig({"look": FLOAT})).close()


def test_a_table_that_holds_infinity_stays_in_float() -> None:
    values = table()
    values[5, 5] = np.inf
    net = Net()
    with pytest.raises(ModelError, match="nothing in the model can run in int8: it holds Gather"):
        OnnxAdapter.load(net.model(net.Gather(values, words(net), name="look")), AdapterOptions())


def test_a_table_cannot_be_repaired() -> None:
    with opened(simple()) as adapter:
        choice = OpConfig(INT8, mode="weight_only", repairs=("bias_correction",))
        with pytest.raises(BuildError, match="cannot be applied to op 'look', which is a Gather"):
            adapter.build(QuantConfig({"look": choice}))


# --- files and histories ---


def test_tables_in_a_second_file_are_read_from_there_and_written_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "float.onnx"
    onnx.save(encoder(), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    monkeypatch.setattr(models, "PROTOBUF_LIMIT", 4000)
    with opened(path) as adapter, opened(encoder()) as other:
        for granularity in ("per_channel", "per_tensor"):
            config = space(adapter).default_config(granularity=granularity)
            model = adapter.build(config)
            assert model.sha256 == other.assemble(config).sha256
            saved = model.save(tmp_path / granularity / "model.onnx")
            assert sorted(os.listdir(saved.parent)) == ["model.onnx", "model.onnx.data"]
            given = feed("words", "places")
            assert np.array_equal(adapter.load_saved(saved).run(given), model.run(given))


def tuned(folder: Path, **settings: Any) -> quaver.TuneResult:
    (reference,) = as_given(encoder(), feed("words", "places"))
    return quaver.fit(
        encoder(),
        calib_dataloader=[feed("words", "places", seed=seed) for seed in range(4)],
        eval_func=lambda model: -float(np.abs(model(feed("words", "places")) - reference).mean()),
        objective="size",
        relative=None,
        threads=1,
        workspace=folder,
        **settings,
    )


def test_every_trial_with_tables_can_be_rebuilt(tmp_path: Path) -> None:
    result = tuned(tmp_path, strategy="random", max_trials=6, timeout=9, absolute=0.0)
    picks = {trial.config["word"] for trial in result.trials}
    assert len(picks) > 1
    for trial in result.trials:
        assert quaver.recover(encoder(), result.history_path, trial.number).sha256 == trial.model_hash


def test_a_history_from_before_tables_were_offered_is_recovered_to_the_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(units, "_TABLE_ELEMENTS", 2**60)
        result = tuned(tmp_path, max_trials=3, absolute=1.0)
    assert "word" not in result.best.config
    again = quaver.recover(encoder(), result.history_path, result.best.number)
    assert again.sha256 == result.best.model_hash


# --- seen from inside ---


def test_the_error_of_a_table_is_that_of_its_rows() -> None:
    with opened(encoder()) as adapter:
        given = feed("words", "places")
        for granularity, form in (("per_channel", dequantized_rows), ("per_tensor", dequantized)):
            config = space(adapter).default_config(granularity=granularity)
            errors = adapter.local_errors(config)
            assert set(errors) == set(config.int8_ops)
            view = adapter.inspect_quantized(config)
            real, int8 = view.local(["word"], [])(given).ops["word"]
            expected = form(table())[given["words"]]
            assert np.array_equal(real, table()[given["words"]])
            assert np.array_equal(int8.dequantized() if hasattr(int8, "dequantized") else int8, expected)
            weights = {found.op: found for found in view.weights()}
            assert np.array_equal(weights["word"].optimized.dequantized(), form(table()))
            seconds = adapter.op_seconds(config)
            assert set(seconds) == {"", *config}
            assert seconds["word"] == 0 < seconds[""]  # next to nothing, and nothing to decide by


@pytest.mark.parametrize("granularity", ["per_channel", "per_tensor"])
def test_our_own_file_is_seen_as_the_configuration_that_it_is(granularity: str, tmp_path: Path) -> None:
    with opened(encoder()) as adapter:
        config = space(adapter).default_config(granularity=granularity)
        path = adapter.assemble(config).save(tmp_path / "int8.onnx")
        by_config, by_file = adapter.inspect_quantized(config), adapter.inspect_quantized(path)
        assert dict(by_file.precisions) == dict.fromkeys(config, "int8")
        given = feed("words", "places")
        for name in ("word", "add") if granularity == "per_tensor" else ("add",):
            one, other = (view.quantized([name])(given).ops[name] for view in (by_config, by_file))
            assert np.array_equal(_real(one), _real(other))
            one, other = (view.local([name], [])(given).ops[name][1] for view in (by_config, by_file))
            assert np.allclose(_real(one), _real(other), atol=1e-6)
        pairs = zip(by_config.weights(), by_file.weights(), strict=True)
        for expected, in_file in pairs:
            assert np.array_equal(_real(expected.optimized), _real(in_file.optimized))


def _real(found: Any) -> Array:
    return found.dequantized() if hasattr(found, "dequantized") else found


class Reader(CalibrationDataReader):
    def __init__(self) -> None:
        self._left = [feed("words", "places", seed=seed) for seed in range(4)]

    def get_next(self) -> dict[str, Array] | None:
        return self._left.pop() if self._left else None


def test_a_table_that_another_tool_quantized_is_recognised(tmp_path: Path) -> None:
    onnx.save(encoder(), tmp_path / "float.onnx")
    quantize_static(tmp_path / "float.onnx", tmp_path / "int8.onnx", Reader(), nodes_to_exclude=["place"])
    with opened(encoder()) as adapter:
        view = adapter.inspect_quantized(tmp_path / "int8.onnx")
        assert (view.precisions["word"], view.precisions["place"]) == ("int8", "fp32")
        weights = {found.op: found for found in view.weights()}
        assert weights["word"].optimized.nbytes == VOCABULARY * WIDTH
        assert weights["place"].optimized.dtype == np.float32


def test_profiling_says_that_a_table_is_in_8_bits(tmp_path: Path) -> None:
    with opened(encoder()) as adapter:
        config = space(adapter).default_config().fallback("place")
        path = adapter.assemble(config).save(tmp_path / "int8.onnx")
        timing = OnnxAdapter.profile(path, None, TimingOptions(1, 1, warmup=1, runs=3), adapter)
    assert (timing.precisions["word"], timing.precisions["place"]) == ("int8", "fp32")


def test_random_configurations_hold_together() -> None:
    rng = np.random.default_rng(0)
    for model in (encoder(), tied(), twice()):
        with opened(model) as adapter:
            for _ in range(8):
                config = random_config(space(adapter), rng)
                assert set(kernels(adapter, config)) == set(config.int8_ops)
                run(adapter, config, data(adapter)[0])
