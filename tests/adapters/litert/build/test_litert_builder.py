"""What is built in a configuration, and whether it is what the configuration says."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import litert_models as models
import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from ai_edge_quantizer import quantizer
from keras import layers

import quaver
from quaver.adapters.abilities import weight_errors
from quaver.adapters.litert.adapter import LiteRTAdapter
from quaver.adapters.litert.load.graph import Graph
from quaver.adapters.litert.ops.units import QUANTIZER_NAMES
from quaver.adapters.litert.run.model import LiteRTModel
from quaver.adapters.options import AdapterOptions
from quaver.errors import CalibrationError
from quaver.ops import FLOAT, INT8, OpConfig, QuantConfig
from quaver.space import TuningSpace, without_calibration
from quaver.testing import check_adapter

NETWORKS: dict[str, Callable[[], Any]] = {
    "digits": models.trained,
    "mixed": models.mixed,
    "transformer": models.transformer,
    "twins": models.twins,
    "recurrent": models.recurrent,
}


@pytest.fixture(scope="module", params=NETWORKS)
def case(request: pytest.FixtureRequest) -> Any:
    return models.opened(NETWORKS[request.param]())


def types(content: bytes) -> dict[str, Any]:
    interpreter = Interpreter(model_content=content)
    return {entry["name"]: entry["dtype"] for entry in interpreter.get_tensor_details()}


def test_an_op_runs_as_the_configuration_says(case: Any) -> None:
    adapter, space = case
    chance = random.Random(1)
    feed = adapter.probe_samples[0]
    for share in (0.2, 0.5, 0.8, 1.0):
        config = space.configure(lambda op, share=share: models.every_int8(op) if chance.random() < share else FLOAT)
        built = adapter.build(config)
        seen = types(built.model)
        for unit in adapter._builder.units:
            want = np.int8 if config[unit.op.name].precision is INT8 else np.float32
            assert seen[adapter._builder.output(unit.op.name)] is want, unit.op
        assert all(np.isfinite(output).all() for output in models.outputs(built, feed))


def test_int8_is_close_to_fp32(case: Any) -> None:
    adapter, space = case
    feed = adapter.probe_samples[0]
    for expected, given in zip(
        models.outputs(adapter.build(None), feed),
        models.outputs(adapter.build(space.default_config()), feed),
        strict=True,
    ):
        assert models.relative_error(expected, given) < 0.02


@pytest.mark.parametrize("form", ["tflite", "object"])
def test_the_adapter_keeps_its_contract(form: str, forms: dict[str, Any]) -> None:
    model = forms[form]
    check_adapter(lambda options: LiteRTAdapter.load(model, options), [models.digits()[0][:32]], model=model)


def test_the_contract_with_several_outputs_and_open_shapes() -> None:
    for make, data in (
        (models.mixed, [np.random.default_rng(0).normal(size=(4, 16, 16, 3)).astype(np.float32)]),
        (models.transformer, [np.arange(24, dtype=np.int32).reshape(4, 6)]),
    ):
        content = LiteRTAdapter.load(make(), AdapterOptions()).assemble(None).model
        check_adapter(lambda options, content=content: LiteRTAdapter.load(content, options), data, model=content)


def test_the_bytes_equal_those_of_the_quantizers_public_interface(case: Any) -> None:
    adapter, space = case
    config = space.default_config().fallback(*space.tunable[::4])
    builder, graph = adapter._builder, adapter._graph
    int8 = [unit for unit in builder.units if config[unit.op.name].precision is INT8]
    moved = builder._int8_passthrough({unit.operator.index for unit in int8})
    front = quantizer.Quantizer(graph.content)
    front.load_quantization_recipe([])
    for index in [*(unit.operator.index for unit in int8), *moved]:
        op = graph.operators[index]
        scope = "".join(f"{graph.tensor_name(tensor)};" for tensor in op.outputs)
        unit = next((unit for unit in int8 if unit.operator is op), None)
        per_tensor = unit is not None and config[unit.op.name].granularity == "per_tensor"
        granularity = quantizer.qtyping.QuantGranularity.TENSORWISE if per_tensor else "CHANNELWISE"
        front.add_static_config(f"^{re.escape(scope)}$", QUANTIZER_NAMES[op.kind], 8, 8, granularity)
    result = front.quantize(
        builder._statistics(config, int8, moved), enable_progress_bar=False, enable_progress_report=False
    )
    assert bytes(result.quantized_model) == adapter.assemble(config).model


def test_all_choices_of_an_op_differ(float_tflite: Path) -> None:
    adapter, space = models.opened(float_tflite, models.digits()[0][:64])
    op = space["block1_pointwise"]
    alone = QuantConfig((name, FLOAT) for name in space.quantizable)
    built = {choice: adapter.assemble(alone.replace({op.name: choice})).sha256 for choice in op.choices}
    assert len(op.choices) == 9 and len(set(built.values())) == 9
    assert built[FLOAT] == adapter.assemble(None).sha256


def test_dynamic_ops_read_float_write_float_and_need_no_calibration(float_tflite: Path) -> None:
    adapter = LiteRTAdapter.load(float_tflite, AdapterOptions(threads=1))
    adapter.restore({"ranges": {}})
    space = TuningSpace(without_calibration(adapter.ops()))
    assert {op.kind for op in space.ops if op.quantizable} == {"CONV_2D", "FULLY_CONNECTED"}
    config = space.default_config()
    assert {pick.mode for pick in config.values() if pick.quantized} == {"dynamic"}
    model = adapter.build(config)
    assert abs(models.accuracy(model) - models.accuracy(adapter.build(None))) < 0.02
    assert model.size < 0.6 * adapter.assemble(None).size
    graph = Graph(model.SerializeToString())
    assert not [op.kind for op in graph.operators if op.kind in ("QUANTIZE", "DEQUANTIZE")]
    assert {name for name, found in adapter.inspect_quantized(config).precisions.items() if found == "int8"} == set(
        config.int8_ops
    )
    assert set(weight_errors(adapter, config)) == set(config.int8_ops)
    with pytest.raises(CalibrationError, match="no ranges to quantize with"):
        adapter.assemble(TuningSpace(adapter.ops()).default_config())


def test_dynamic_and_static_ops_mix(float_tflite: Path) -> None:
    adapter, space = models.opened(float_tflite, models.digits()[0][:64])
    mixed = space.default_config().replace(
        {name: OpConfig(INT8, mode="dynamic") for name in space.of_kind("CONV_2D")[::2]}
    )
    assert adapter.build(mixed)(models.digits()[2][:4]).shape == (4, 10)
    errors = adapter.local_errors(mixed)
    assert set(errors) == set(mixed.int8_ops)
    assert all(noise < 0.05 * signal for noise, signal in errors.values())


def test_ranges_are_exact_and_one_pass_is_enough_for_all_methods(float_tflite: Path) -> None:
    images = models.digits()[0][:48]
    adapter = LiteRTAdapter.load(float_tflite, AdapterOptions(threads=1))
    ranges = adapter.calibrate(iter([images[:5], images[5:]]))["ranges"]
    seen = adapter.record_outputs(None, ["stem", "classes"])({"image": images})
    for name, values in {"image": images, **seen}.items():
        low, high = ranges[name]["minmax"]
        assert (low, high) == pytest.approx((min(values.min(), 0), max(values.max(), 0)), rel=1e-5)
        for method in ("percentile", "entropy"):
            assert low <= ranges[name][method][0] <= 0 <= ranges[name][method][1] <= high


def test_the_batches_of_the_calibration_data_do_not_matter(float_tflite: Path) -> None:
    images = models.digits()[0][:250]
    results = []
    for data in (list(images[:, None]), np.split(images, 25), np.split(images, 10), images):
        adapter = LiteRTAdapter.load(float_tflite, AdapterOptions(threads=1))
        calibration = adapter.calibrate(data)
        ops = TuningSpace(adapter.ops())
        built = [adapter.assemble(ops.default_config(calibration=method)).sha256 for method in ("minmax", "percentile")]
        results.append((calibration, built, adapter.local_errors(ops.default_config()), len(adapter.probe_samples)))
    assert all(result == results[0] for result in results)


def test_softmax_masks_and_movement_are_no_ops() -> None:
    _, space = models.opened(models.transformer())
    kinds = {op.kind for op in space.ops}
    assert not kinds & {"SOFTMAX", "RESHAPE", "TRANSPOSE", "GATHER", "NEG"}
    assert not any(op.name == "attend0/Mul" for op in space.ops)  # scales the scores just before the softmax
    slow = {op.name for op in space.ops if op.choices[0] == FLOAT}
    assert "norm0a/Rsqrt" in slow and "norm0a/moments/variance" in slow and "up0" not in slow and "head" not in slow


def test_movement_follows_its_neighbours() -> None:
    x = keras.Input((4, 6, 3), name="x")
    y = layers.Conv2D(2, 1, name="after")(layers.Permute((2, 1, 3))(layers.Conv2D(4, 1, name="before")(x)))
    adapter, space = models.opened(keras.Model(x, y))

    def moved(*fp32: str) -> type:
        graph = Graph(adapter.assemble(space.default_config().fallback(*fp32)).model)
        op = next(op for op in graph.operators if op.kind == "TRANSPOSE")
        return np.float32 if graph.is_float(op.outputs[0]) else np.int8

    assert [moved(), moved("after"), moved("before"), moved("before", "after")] == [np.int8] * 3 + [np.float32]


def test_a_dead_channel_keeps_its_bias() -> None:
    """A filter of zeros has no scale of its own, and in steps of next to nothing its bias does not fit 32 bits."""
    keras.utils.set_random_seed(0)
    x = keras.Input((8, 8, 3), name="x")
    dead = layers.Conv2D(4, 3, name="dead")
    model = keras.Model(x, dead(x))
    kernel, _ = dead.get_weights()
    kernel[..., 2] = 0
    dead.set_weights([kernel, np.array([0.1, -0.2, 0.7, 0.0], np.float32)])
    adapter, space = models.opened(model)
    for granularity in ("per_channel", "per_tensor"):
        given = adapter.build(space.default_config(granularity=granularity)).run(adapter.probe_samples[0])
        expected = adapter.build(None).run(adapter.probe_samples[0])
        np.testing.assert_allclose(given, expected, atol=0.06)


def test_a_dead_channel_does_not_depend_on_earlier_builds() -> None:
    """Dynamic and static ops share their quantized weights, so these must not depend on who asked first."""
    dead = layers.Dense(4, name="dead")
    model = keras.Model(x := keras.Input((8,), name="x"), dead(x))
    dead.set_weights([np.eye(8, 4, dtype=np.float32) * [1, 1, 0, 1], np.array([0.1, -0.2, 0.7, 0.0], np.float32)])
    built = []
    for modes in (("static", "dynamic"), ("dynamic", "static")):
        adapter, space = models.opened(model)
        configs = {mode: space.default_config().replace({"dead": OpConfig(INT8, mode=mode)}) for mode in modes}
        built.append({mode: adapter.assemble(config).sha256 for mode, config in configs.items()})
    assert built[0] == built[1]


def test_ops_whose_outputs_are_all_zero_load() -> None:
    x = keras.Input((6, 6, 4), name="x")
    y = layers.Conv2D(4, 1, name="conv")(x)
    zeros = [
        keras.ops.relu(y - 100.0),
        y * 0.0,
        y - y,
        layers.DepthwiseConv2D(3, padding="same", depthwise_initializer="zeros", name="depthwise")(y),
        layers.Conv2DTranspose(4, 1, kernel_initializer="zeros", name="grow")(y),
        layers.Concatenate(name="join")([y * 0.0, y * 0.0])[..., :4],
    ]
    total = layers.Add(name="total")([*zeros, y])
    pooled = layers.GlobalAveragePooling2D(name="pool")(zeros[0])
    adapter, space = models.opened(keras.Model(x, [total, pooled, layers.Dense(2, name="out")(pooled)]))
    expected = models.outputs(adapter.build(None), adapter.probe_samples[0])
    given = models.outputs(adapter.build(space.configure(models.every_int8)), adapter.probe_samples[0])
    assert models.relative_error(expected[0], given[0]) < 0.01
    np.testing.assert_allclose(given[1], 0, atol=0.3)
    for name in space.quantizable:
        adapter.build(space.only_int8(name)).run(adapter.probe_samples[0])


def test_an_input_that_was_always_zero_keeps_the_bias_behind_it() -> None:
    x = keras.Input((4,), name="x")
    hidden = layers.Dense(4, activation="relu", bias_initializer=keras.initializers.Constant(-100.0), name="silent")(x)
    model = keras.Model(x, layers.Dense(2, bias_initializer=keras.initializers.Constant(3.0), name="out")(hidden))
    adapter, space = models.opened(model)
    np.testing.assert_allclose(adapter.build(space.default_config()).run(adapter.probe_samples[0]), 3.0, atol=0.05)


def test_the_model_object(float_tflite: Path, tmp_path: Path) -> None:
    adapter, space = models.opened(float_tflite, models.digits()[0][:64])
    model = adapter.build(space.default_config())
    images = models.digits()[2][:5]
    assert isinstance(model, LiteRTModel) and isinstance(model.interpreter, Interpreter)
    assert model.interpreter is model.interpreter
    assert isinstance(model.model, bytes) and model.model == model.SerializeToString() and model.model[4:8] == b"TFL3"
    expected = model(images)
    for given in (model(image=images), model({"image": images}), model.run({"image": images}), model(images.tolist())):
        np.testing.assert_array_equal(given, expected)
    np.testing.assert_array_equal(model(images[0]), expected[:1])
    model.interpreter.resize_tensor_input(0, (2, 8, 8, 1))  # as evaluation code written for LiteRT does
    model.interpreter.allocate_tensors()
    np.testing.assert_array_equal(model(images[0]), expected[:1])
    model.close()
    np.testing.assert_array_equal(model(images), expected)
    path = model.save(tmp_path / "new" / "model.tflite")
    runner = Interpreter(str(path)).get_signature_runner("serving_default")
    np.testing.assert_array_equal(runner(image=images)["output_0"], expected)
    with pytest.raises(quaver.CalibrationError, match=r"the model call has shape \[5, 9, 9, 1\]"):
        model(np.zeros((5, 9, 9, 1), np.float32))
    with pytest.raises(quaver.BuildError, match="cannot write"):
        model.save(float_tflite / "below" / "model.tflite")


def test_a_calibration_of_another_model_is_refused(float_tflite: Path) -> None:
    adapter = LiteRTAdapter.load(float_tflite, AdapterOptions())
    other = LiteRTAdapter.load(models.twins(), AdapterOptions())
    with pytest.raises(quaver.CalibrationError, match="holds no range of tensor 'image'"):
        adapter.restore(other.calibrate(models.samples(other)))
    mine = models.opened(float_tflite, models.digits()[0][:4])[0].calibrate(models.digits()[0][:4])
    del mine["ranges"]["image"]
    with pytest.raises(quaver.CalibrationError, match="holds no range of tensor 'image'"):
        adapter.restore(mine)
    assert adapter.assemble(None).model == float_tflite.read_bytes()
    with pytest.raises(quaver.CalibrationError, match="nothing was calibrated"):
        adapter.assemble(quaver.TuningSpace(adapter.ops()).default_config())


def test_inputs_and_outputs_of_the_file_stay_float(case: Any) -> None:
    adapter, space = case
    graph = Graph(adapter.assemble(space.default_config()).model)
    assert graph.input_specs() == adapter.inputs
    assert all(graph.is_float(tensor) for tensor in graph.outputs)
