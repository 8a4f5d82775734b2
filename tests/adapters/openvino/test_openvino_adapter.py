"""Sessions, times and files of the adapter for OpenVINO."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openvino
import pytest
from onnx_models import data, space
from openvino_graphs import attention, opened, relative_error, residual_cnn

from quaver.adapters import adapter_for, load_unmodified
from quaver.adapters.openvino.adapter import OpenVinoAdapter
from quaver.adapters.openvino.session import open_session
from quaver.adapters.options import AdapterOptions, TimingOptions
from quaver.errors import BuildError, SettingsError
from quaver.testing import check_adapter


def test_it_keeps_the_contract_of_adapters() -> None:
    model = attention()
    batches = [{"x": np.random.default_rng(seed).normal(size=(2, 8, 32)).astype(np.float32)} for seed in range(3)]
    check_adapter(lambda options: OpenVinoAdapter.load(model, options), batches, model=model)


def test_a_session_is_called_like_one_of_onnx_runtime() -> None:
    with opened(residual_cnn()) as adapter:
        model, feed = adapter.build(None), data(adapter)[0]
        session = model.session
        assert [(port.name, port.type) for port in session.get_inputs()] == [("x", "tensor(float)")]
        assert session.get_inputs()[0].shape == (None, 8, 8, 8)
        name = session.get_outputs()[0].name
        assert np.array_equal(session.run(None, feed)[0], model(feed))
        assert np.array_equal(session.run([name], feed)[0], model(feed))
        with pytest.raises(ValueError, match=r"takes \['x'\], and the feed holds \['y'\]"):
            session.run(None, {"y": feed["x"]})


def test_outputs_of_a_run_do_not_change_with_the_next_one() -> None:
    with opened(residual_cnn()) as adapter:
        model, (first, second, *_) = adapter.build(None), data(adapter)
        outputs = model(first)
        copy = outputs.copy()
        model(second)
        assert np.array_equal(outputs, copy)


def test_a_session_has_the_threads_and_the_precision_it_was_asked_for() -> None:
    session = open_session(residual_cnn().SerializeToString(), 1)
    assert session.compiled.get_property("INFERENCE_NUM_THREADS") == 1
    assert session.compiled.get_property("NUM_STREAMS") == 1
    assert session.compiled.get_property("INFERENCE_PRECISION_HINT") == openvino.Type.f32


def test_a_file_that_cannot_be_loaded_is_an_error_that_names_the_reason(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    with pytest.raises(BuildError, match="OpenVINO cannot load the model"):
        open_session(tmp_path / "broken.onnx", 1)


def test_each_op_has_a_time() -> None:
    with opened(residual_cnn()) as adapter:
        ops = space(adapter)
        for config in (None, ops.default_config()):
            seconds = adapter.op_seconds(config, threads=1)
            assert seconds.keys() == {"", *(op.name for op in ops.ops)}
            assert sum(seconds.values()) > 0
            assert seconds[""] < 0.5 * sum(seconds.values())


def test_profiles_name_kernels_ops_and_precisions() -> None:
    with opened(residual_cnn()) as adapter:
        config = space(adapter).default_config()
        model = adapter.assemble(config).SerializeToString()
        timing = OpenVinoAdapter.profile(model, data(adapter), TimingOptions(threads=1, runs=10), adapter)
        assert {kernel.kernel for kernel in timing.kernels} >= {"Convolution", "FullyConnected"}
        assert timing.precisions["Conv_0"] == "int8"
        assert len(timing.latencies) == 10


def test_a_model_is_saved_as_xml(tmp_path: Path) -> None:
    with opened(residual_cnn()) as adapter:
        model, feed = adapter.build(space(adapter).default_config()), data(adapter)[0]
        assert model.save(tmp_path / "new" / "model.xml") == tmp_path / "new" / "model.xml"
        saved = openvino.Core().compile_model(
            tmp_path / "new" / "model.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
        )
        assert relative_error(model(feed), saved(feed)[0]) < 1e-5
        assert np.array_equal(adapter.load_saved(model.save(tmp_path / "model.onnx"))(feed), model(feed))


def test_large_constants_are_read_from_the_folder_of_the_run(tmp_path: Path) -> None:
    with opened(residual_cnn(), folder=tmp_path) as adapter:
        assert adapter.build(None)(data(adapter)[0]).shape == (2, 10)
        assert not list(tmp_path.glob("opened_*"))


def test_the_runtime_selects_the_adapter() -> None:
    model = residual_cnn()
    assert adapter_for(model).runtime_name == "onnxruntime"
    assert adapter_for(model, runtime="openvino") is OpenVinoAdapter
    assert adapter_for(model, "onnx", "openvino") is OpenVinoAdapter
    assert adapter_for(model, "onnxrt", "onnxruntime").name == "onnxrt"
    with pytest.raises(SettingsError, match="unknown runtime 'openvin'; did you mean 'openvino'"):
        adapter_for(model, runtime="openvin")
    with pytest.raises(SettingsError, match=r"runtime is set to 'openvino', which does not run models of litert"):
        adapter_for("model.tflite", "litert", "openvino")


def test_a_file_is_run_unmodified() -> None:
    feed = {"x": np.ones((1, 8, 8, 8), np.float32)}
    both = [load_unmodified(residual_cnn(), 1, runtime=name)(feed) for name in ("onnxruntime", "openvino")]
    assert relative_error(*both) < 1e-5


def test_rewrites_for_other_kernels_are_skipped() -> None:
    with opened(residual_cnn(), optimise_float=True) as adapter:
        assert "Elu" not in dict(adapter.rewrites)
    options = AdapterOptions(threads=1)
    assert OpenVinoAdapter.load(residual_cnn(), options).options.left_out == ()
