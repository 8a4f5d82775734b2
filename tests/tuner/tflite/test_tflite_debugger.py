"""A script for TFLite's debugger runs on quaver with its import line changed, and its figures are TFLite's."""

from __future__ import annotations

import io
import math

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from keras import layers
from scripts import run_script

import quaver
from quaver.tflite.debugger import QuantizationDebugger, QuantizationDebugOptions

SAMPLES = np.random.default_rng(0).normal(size=(24, 8, 8, 2)).astype(np.float32)


def representative():
    for sample in SAMPLES:
        yield [sample[None]]


def network():
    keras.utils.set_random_seed(0)
    x = image = keras.Input((8, 8, 2), name="image")
    x = layers.Conv2D(4, 3, activation="relu", name="conv1")(x)
    x = layers.MaxPooling2D(name="pool")(layers.Conv2D(8, 3, name="conv2")(x))
    flat = layers.Flatten(name="flat")(x)
    return keras.Model(image, layers.Dense(5, activation="softmax", name="dense")(flat), name="network")


@pytest.fixture(scope="module")
def models():
    """A small network as a float and as a full-integer .tflite."""
    converter = tf.lite.TFLiteConverter.from_keras_model(network())
    plain = converter.convert()
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = representative
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    return plain, converter.convert()


def test_the_walk_of_the_debugger(models, tmp_path):
    plain, quantized = models
    after = run_script(
        """
        import numpy as np
        import pandas as pd
        import yaml
        from tensorflow.lite.tools.optimize.debugging.python import debugger

        debug_options = debugger.QuantizationDebugOptions(
            layer_debug_metrics={"mean_abs_error": lambda diffs: np.mean(np.abs(diffs))},
            layer_direct_compare_metrics={"steps": lambda f, q, scale, zero: np.mean(np.abs(f / scale + zero - q))},
            model_debug_metrics={"argmax_accuracy": lambda f, q: np.argmax(f[0]) == np.argmax(q[0])},
        )
        quant_debugger = debugger.QuantizationDebugger(
            quant_debug_model_content=quantized,
            float_model_content=plain,
            debug_dataset=data_gen,
            debug_options=debug_options,
        )
        quant_debugger.run()
        for layer_name, metrics in quant_debugger.layer_statistics.items():
            print(layer_name, dict(metrics))
        with open(path, "w") as f:
            quant_debugger.layer_statistics_dump(f)
        data = pd.read_csv(path, converters={"scales": yaml.safe_load, "zero_points": yaml.safe_load})
        """,
        "tensorflow.lite.tools.optimize.debugging.python",
        "quaver.tflite",
        plain=plain,
        quantized=quantized,
        data_gen=representative,
        path=str(tmp_path / "stats.csv"),
    )
    found = after["quant_debugger"]
    assert found.model_statistics["argmax_accuracy"] > 0.9
    statistics = found.layer_statistics["conv1"]
    assert list(statistics) == [
        "num_elements", "stddev", "mean_error", "max_abs_error", "mean_squared_error", "mean_abs_error", "steps",
    ]  # fmt: skip
    assert statistics["num_elements"] == 6 * 6 * 4
    assert 0 < statistics["mean_abs_error"] <= math.sqrt(statistics["mean_squared_error"])
    assert statistics["steps"] < 1  # less than a step of its scale
    row = after["data"].iloc[list(found.layer_statistics).index("conv1")]
    assert row["op_name"] == "CONV_2D" and {name: row[name] for name in statistics} == statistics
    assert len(row["scales"]) == len(row["zero_points"]) == 1 and row["scales"][0] == row["scale"] > 0
    numbers = {detail["index"] for detail in interpreter(quantized).get_tensor_details()}
    assert row["tensor_idx"] in numbers


@pytest.fixture(scope="module")
def debug_model():
    """The same network as the document makes a debug model of it."""
    from tensorflow.lite.python import convert

    converter = tf.lite.TFLiteConverter.from_keras_model(network())
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = representative
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter._experimental_calibrate_only = True
    return convert.mlir_quantize(converter.convert(), enable_numeric_verify=True)


METRICS = {
    "layer_debug_metrics": {"mean_abs_error": lambda diffs: np.mean(np.abs(diffs))},
    "layer_direct_compare_metrics": {"steps": lambda f, q, scale, zero: np.mean(np.abs(f / scale + zero - q))},
    "model_debug_metrics": {"argmax_accuracy": lambda f, q: np.argmax(f[0]) == np.argmax(q[0])},
}
OURS = "quaver.tflite"
THEIRS = "tensorflow.lite.tools.optimize.debugging.python"


def with_debugger_of(package, script, **names):
    """Run a script of the document with TFLite's debugger, or with ours; what it leaves behind."""
    return run_script(script, "package_of_debugger", package, **names)


def assert_same_table(ours, theirs):
    """Compare all cells: names, numbers and scales are equal, figures up to float32's rounding in other kernels."""
    ours, theirs = pd.read_csv(io.StringIO(ours)), pd.read_csv(io.StringIO(theirs))
    assert list(ours.columns) == [*theirs.columns, "scales", "zero_points"]
    figures = [name for name in theirs.columns[2:-3] if name != "num_elements"]
    exact = [name for name in theirs.columns if name not in figures]
    pd.testing.assert_frame_equal(ours[exact], theirs[exact], check_exact=True)
    assert len(figures) >= 4
    for name in figures:
        worst = 0.0 if name == "steps" else theirs["max_abs_error"]  # a mean of both signs cancels
        assert (abs(ours[name] - theirs[name]) <= 1e-4 * abs(theirs[name]) + 1e-4 * worst + 1e-7).all(), name


# The document's first example, on samples of its own; then its CSV.
DEBUG_MODEL_ALONE = """
    from package_of_debugger import debugger

    quant_debugger = debugger.QuantizationDebugger(
        quant_debug_model_content=quant_debug_model,
        debug_dataset=data_gen)
    quant_debugger.run()

    import pprint
    for layer_name, metrics in quant_debugger.layer_statistics.items():
      print(layer_name)
      pprint.pprint(dict(metrics))

    with open(path, 'w') as f:
      quant_debugger.layer_statistics_dump(f)
"""


def test_a_debug_model_alone_gives_every_cell_of_tflites_own_debugger(debug_model, tmp_path, capsys):
    files, debuggers, printed = {}, {}, {}
    for package in (OURS, THEIRS):
        files[package] = tmp_path / f"{package}.csv"
        names = {"quant_debug_model": debug_model, "data_gen": representative, "path": str(files[package])}
        debuggers[package] = with_debugger_of(package, DEBUG_MODEL_ALONE, **names)["quant_debugger"]
        printed[package] = capsys.readouterr().out.splitlines()
    assert_same_table(files[OURS].read_text(), files[THEIRS].read_text())
    ours, theirs = (debuggers[package].layer_statistics for package in (OURS, THEIRS))
    assert list(ours) == list(theirs) and len(ours) == 6
    assert {name: list(figures) for name, figures in ours.items()} == {name: list(row) for name, row in theirs.items()}
    assert [line for line in printed[OURS] if line.startswith("NumericVerify/")] == list(theirs)
    assert printed[OURS][1].startswith("{'max_abs_error': 0.0")  # as the document prints it: a plain number


def test_its_csv_holds_what_layer_statistics_holds(debug_model, tmp_path):
    """The document's last example, whose `data` has lists of scales and zero points."""
    after = with_debugger_of(
        OURS,
        DEBUG_MODEL_ALONE
        + """
    import pandas as pd
    import yaml  # used to parse lists

    data = pd.read_csv(
        path,
        converters={
            'scales': yaml.safe_load,
            'zero_points': yaml.safe_load
        })
""",
        quant_debug_model=debug_model,
        data_gen=representative,
        path=str(tmp_path / "stats.csv"),
    )
    statistics, data = after["quant_debugger"].layer_statistics, after["data"]
    details = {entry["index"]: entry for entry in interpreter(debug_model).get_tensor_details()}
    for (name, figures), row in zip(statistics.items(), data.to_dict("records"), strict=True):
        assert {column: row[column] for column in figures} == figures
        assert f"/{row['tensor_name']}" in name and name.endswith(f":{row['tensor_idx']}")
        parameters = details[row["tensor_idx"]]["quantization_parameters"]
        assert row["scales"] == [row["scale"]] == [pytest.approx(float(parameters["scales"][0]))]
        assert row["zero_points"] == [row["zero_point"]] == list(parameters["zero_points"])
    assert set(data["op_name"]) == {"CONV_2D", "MAX_POOL_2D", "RESHAPE", "FULLY_CONNECTED", "SOFTMAX"}


def test_own_metrics_and_a_float_model_give_the_same_in_both(models, debug_model, tmp_path):
    script = """
        from package_of_debugger import debugger

        debug_options = debugger.QuantizationDebugOptions(**metrics)
        quant_debugger = debugger.QuantizationDebugger(
            quant_debug_model_path=quant_debug_model,
            float_model_path=float_model,
            debug_dataset=data_gen,
            debug_options=debug_options
        )
        quant_debugger.run()
        with open(path, 'w') as f:
          quant_debugger.layer_statistics_dump(f)
    """
    (tmp_path / "debug.tflite").write_bytes(debug_model)
    (tmp_path / "float.tflite").write_bytes(models[0])
    tables, statistics = {}, {}
    for package in (OURS, THEIRS):
        path = tmp_path / f"{package}.csv"
        after = with_debugger_of(
            package,
            script,
            metrics=METRICS,
            quant_debug_model=str(tmp_path / "debug.tflite"),
            float_model=str(tmp_path / "float.tflite"),
            data_gen=representative,
            path=str(path),
        )
        tables[package] = path.read_text()
        statistics[package] = after["quant_debugger"].model_statistics
    assert_same_table(tables[OURS], tables[THEIRS])
    assert statistics[OURS] == statistics[THEIRS] and statistics[OURS]["argmax_accuracy"] > 0.9


def fresh_converter():
    converter = tf.lite.TFLiteConverter.from_keras_model(network())
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = representative
    return converter


# The guide's selective quantization: the worst layers stay float, then a type of op, then both with integer inputs.
SELECTIVE = """
    from package_of_debugger import debugger

    quant_debugger = debugger.QuantizationDebugger(converter=converter, debug_dataset=data_gen)
    quant_debugger.run()
    whole = quant_debugger.get_nondebug_quantized_model()
    with open(path, 'w') as f:
      quant_debugger.layer_statistics_dump(f)
    layer_stats = pd.read_csv(path)
    layer_stats['range'] = 255.0 * layer_stats['scale']
    layer_stats['rmse/scale'] = layer_stats.apply(
        lambda row: np.sqrt(row['mean_squared_error']) / row['scale'], axis=1)
    suspected_layers = list(layer_stats[layer_stats['rmse/scale'] > 0.2]['tensor_name'])

    quant_debugger = debugger.QuantizationDebugger(
        converter=converter,
        debug_dataset=data_gen,
        debug_options=debugger.QuantizationDebugOptions(denylisted_nodes=suspected_layers))
    by_node = quant_debugger.get_nondebug_quantized_model()

    quant_debugger.options = debugger.QuantizationDebugOptions(denylisted_ops=['CONV_2D'])
    by_type = quant_debugger.get_nondebug_quantized_model()
    by_type_debug = quant_debugger.get_debug_quantized_model()

    quant_debugger.options = debugger.QuantizationDebugOptions(fully_quantize=True, denylisted_ops=['SOFTMAX'])
    quant_debugger.run()
    full = quant_debugger.get_nondebug_quantized_model()
    with open(path_of_full, 'w') as f:
      quant_debugger.layer_statistics_dump(f)
"""


def kinds_of(content):
    """The type of each op with the type of its first output."""
    runner = interpreter(content)
    types = {entry["index"]: np.dtype(entry["dtype"]).name for entry in runner.get_tensor_details()}
    return [(op["op_name"], types[op["outputs"][0]]) for op in runner._get_ops_details()]


def test_selective_quantization_makes_the_models_of_tflites_own_debugger(tmp_path):
    after = {
        package: with_debugger_of(
            package,
            SELECTIVE,
            converter=fresh_converter(),
            data_gen=representative,
            path=str(tmp_path / f"{package}.csv"),
            path_of_full=str(tmp_path / f"{package}.full.csv"),
            np=np,
            pd=pd,
        )
        for package in (OURS, THEIRS)
    }
    ours, theirs = after[OURS], after[THEIRS]
    for kind in ("", ".full"):
        assert_same_table(*((tmp_path / f"{package}{kind}.csv").read_text() for package in (OURS, THEIRS)))
    assert ours["suspected_layers"] == theirs["suspected_layers"] and ours["suspected_layers"]
    for name in ("whole", "by_node", "by_type", "by_type_debug", "full"):
        assert bytes(ours[name]) == bytes(theirs[name]), name
    assert ("CONV_2D", "int8") in kinds_of(ours["whole"])
    assert {kind for kind in kinds_of(ours["by_type"]) if kind[0] == "CONV_2D"} == {("CONV_2D", "float32")}
    assert ours["whole"] != ours["by_node"]
    converter = ours["converter"]
    assert not converter._experimental_calibrate_only  # ours leaves the converter as it was


def test_metrics_of_a_converter_need_no_float_model(caplog):
    debugger = QuantizationDebugger(
        converter=fresh_converter(),
        debug_dataset=representative,
        debug_options=QuantizationDebugOptions(
            model_debug_metrics=METRICS["model_debug_metrics"],
            denylisted_nodes=["no such tensor"],
            denylisted_ops=["MEAN"],
        ),
    )
    debugger.run()
    assert debugger.model_statistics["argmax_accuracy"] > 0.9
    assert "MEAN, no such tensor: no op of the model has this type or output" in caplog.text
    assert tf.lite.Interpreter(model_content=debugger.float_model).get_input_details()[0]["dtype"] is np.float32
    assert debugger.quant_model == debugger.get_debug_quantized_model()


def test_a_debug_model_has_a_diagnosis_of_quaver_too(debug_model):
    debugger = QuantizationDebugger(quant_debug_model_content=debug_model, debug_dataset=representative())
    assert debugger.diagnosis is None and debugger.layer_statistics == {}
    debugger.run()
    assert [row.op for row in debugger.diagnosis.layers] == list(debugger.layer_statistics)


def test_a_quantized_model_alone_tells_how_it_uses_its_integers(models):
    _, quantized = models
    found = QuantizationDebugger(quant_debug_model_content=quantized, debug_dataset=representative)
    found.run()
    assert {"conv1", "conv2", "dense", "softmax"} < set(found.layer_statistics)
    figures = found.layer_statistics["conv1"]
    runner = interpreter(quantized)
    runner.allocate_tensors()
    row = next(row for row in found.diagnosis.tensors if row.op == "conv1")
    detail = next(entry for entry in runner.get_tensor_details() if entry["index"] == row.tensor_id)
    assert detail["quantization"] == (pytest.approx(figures["scale"]), figures["zero_point"])
    scale, zero = runner.get_input_details()[0]["quantization"]
    seen = []
    for sample in SAMPLES:
        given = sample[None] if not scale else np.clip(np.rint(sample[None] / scale) + zero, -128, 127).astype(np.int8)
        runner.set_tensor(runner.get_input_details()[0]["index"], given)
        runner.invoke()
        seen.append(runner.get_tensor(row.tensor_id))
    values = np.concatenate(seen)
    assert figures["elements"] == values.size and abs(figures["levels"] - len(np.unique(values))) <= 2
    assert figures["high"] == pytest.approx((int(values.max()) - row.zero_point) * row.scale, abs=row.scale)
    assert figures["saturated_high"] == pytest.approx(np.mean(values == 127), abs=1e-3)


def test_pools_reshapes_and_a_softmax_have_rows_as_in_the_debugger(models):
    found = QuantizationDebugger(
        quant_debug_model_content=models[1], float_model_content=models[0], debug_dataset=representative
    )
    found.run()
    rows = {row.kind: row for row in found.diagnosis.layers if not row.tunable}
    assert set(rows) == {"MAX_POOL_2D", "RESHAPE", "SOFTMAX"} and len(found.layer_statistics) == 6
    assert {row.precision for row in rows.values()} == {"int8"}
    assert rows["MAX_POOL_2D"].scales == rows["RESHAPE"].scales == rows["RESHAPE"].input_scales
    assert rows["MAX_POOL_2D"].local["max_abs_error"] <= 0.51 * rows["MAX_POOL_2D"].scales[0]
    assert rows["SOFTMAX"].scales == (1 / 256,) and 0 < rows["SOFTMAX"].error < 0.01
    before, after = rows["MAX_POOL_2D"].cumulative, rows["RESHAPE"].cumulative
    assert before["mean_squared_error"] == pytest.approx(after["mean_squared_error"], rel=1e-6)


def interpreter(content):
    return tf.lite.Interpreter(model_content=content, experimental_preserve_all_tensors=True)


def test_its_maximum_is_the_mean_over_samples_and_ours_the_largest_of_all(models):
    plain, quantized = models
    found = quaver.diagnose(plain, quantized, representative, samples=None, timing=False)
    figures = found.layer_statistics["conv1"]
    assert found.samples == len(SAMPLES)
    assert figures["num_elements"] == figures["elements_per_sample"] * len(SAMPLES)
    assert figures["mean_max_abs_error"] < figures["max_abs_error"]


@pytest.mark.parametrize("form", [representative, representative(), list(representative()), SAMPLES])
def test_samples_of_any_form_are_used_whole(models, form):
    assert quaver.diagnose(*models, form, samples=None, timing=False).samples == len(SAMPLES)


def test_what_is_missing_is_said_before_any_work():
    options = QuantizationDebugOptions(model_debug_metrics={"same": lambda f, q: 1.0})
    with pytest.raises(quaver.SettingsError, match="float_model_path or float_model_content"):
        QuantizationDebugger(quant_debug_model_content=b"", debug_dataset=representative, debug_options=options)
    with pytest.raises(quaver.SettingsError, match="quant_debug_model_path or quant_debug_model_content"):
        QuantizationDebugger(debug_dataset=representative)
    with pytest.raises(quaver.SettingsError, match="debug_dataset"):
        QuantizationDebugger(quant_debug_model_content=b"1", float_model_content=b"2")
    with pytest.raises(quaver.SettingsError, match="two metrics are named 'a'"):
        QuantizationDebugOptions(layer_debug_metrics={"a": len}, model_debug_metrics={"a": len})
    plain = tf.lite.TFLiteConverter.from_keras_model(network())
    with pytest.raises(quaver.SettingsError, match=r"no optimizations: set converter\.optimizations = \["):
        QuantizationDebugger(converter=plain, debug_dataset=representative)
    plain.optimizations = [tf.lite.Optimize.DEFAULT]
    with pytest.raises(quaver.SettingsError, match="no representative_dataset"):
        QuantizationDebugger(converter=plain, debug_dataset=representative)


def test_what_needs_a_converter_or_a_run_says_so(models):
    debugger = QuantizationDebugger(quant_debug_model_content=models[1], debug_dataset=representative)
    for call in (debugger.get_nondebug_quantized_model, debugger.get_debug_quantized_model):
        with pytest.raises(quaver.SettingsError, match="converter="):
            call()
    with pytest.raises(quaver.SettingsError, match=r"call run\(\)"):
        debugger.layer_statistics_dump(io.StringIO())
    debugger.options = QuantizationDebugOptions(layer_debug_metrics={"mean_abs_error": lambda diffs: 0.0})
    with pytest.raises(quaver.SettingsError, match="mean_abs_error compare with float values"):
        debugger.run()
