"""The model object that eval_func gets: how it is called, what it gives out, and its file."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx_models import Array, Net, data, opened, space, weight

import quaver
from quaver.adapters import load_model
from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.adapters.onnxrt.run.model import OnnxModel, SavedModel
from quaver.adapters.onnxrt.runtime import ONNX_RUNTIME
from quaver.adapters.options import AdapterOptions
from quaver.errors import BuildError, CalibrationError, SettingsError

X, Y = weight(2, 8), weight(2, 8, seed=1)


def two_inputs(seed: int = 0) -> onnx.ModelProto:
    net = Net()
    one = net.Gemm(net.input(None, 8), weight(8, 512, seed=seed), weight(512))
    other = net.Gemm(net.input(None, 8, name="y"), weight(8, 512, seed=1))
    return net.model(net.Add(one, other), one)


@pytest.fixture
def adapter() -> Iterator[OnnxAdapter]:
    with opened(two_inputs()) as made:
        yield made


@pytest.fixture
def model(adapter: OnnxAdapter) -> OnnxModel:
    return adapter.build(space(adapter).default_config())


def expected(model: OnnxModel) -> list[Array]:
    return list(model.session.run(None, {"x": X, "y": Y}))


def test_a_model_is_called_in_every_usual_way(model: OnnxModel) -> None:
    calls = [
        model(X, Y),
        model([X, Y]),
        model((X, Y)),
        model({"y": Y, "x": X}),
        model(x=X, y=Y),
        model(X.tolist(), Y.tolist()),
        model(X.astype(np.float64), Y.astype(np.float64)),
        model.run({"x": X, "y": Y}),
    ]
    for outputs in calls:
        assert isinstance(outputs, list)
        assert all(np.array_equal(got, want) for got, want in zip(outputs, expected(model), strict=True))


def test_one_output_comes_as_an_array() -> None:
    net = Net()
    with opened(net.model(net.Gemm(net.input(None, 8), weight(8, 3)))) as adapter:
        result = adapter.build(None)(X)
        assert isinstance(result, np.ndarray) and result.shape == (2, 3)


def test_a_call_that_does_not_fit_says_what_the_model_takes(model: OnnxModel) -> None:
    with pytest.raises(CalibrationError, match=r"the model call has 1 array\(s\), but the model takes 2 inputs"):
        model(X)
    with pytest.raises(CalibrationError, match="the model call lacks the model input 'y'"):
        model(x=X)
    with pytest.raises(CalibrationError, match=r"the model call has shape \[2, 7\] for input 'y'"):
        model(X, Y[:, :7])


def test_a_model_is_complete_as_bytes_and_as_a_proto(model: OnnxModel) -> None:
    content = model.SerializeToString()
    assert hashlib.sha256(content).hexdigest() == model.sha256
    assert len(content) == model.size
    assert not any(constant.external_data for constant in model.model.graph.initializer)
    changed = model.model
    changed.graph.node[0].name = "changed"
    assert model.SerializeToString() == content
    assert isinstance(model.session, ort.InferenceSession) and model.session is model.session


def test_large_constants_reach_the_session_through_one_shared_file(adapter: OnnxAdapter) -> None:
    """A second configuration adds its int8 weights, and the float ones are not written again."""
    ops = space(adapter)
    store = adapter._store.path
    adapter.build(None).close()
    float_size = store.stat().st_size
    adapter.build(ops.default_config()).close()
    grown = store.stat().st_size
    adapter.build(ops.default_config(calibration="entropy")).close()
    adapter.build(ops.all_fp32()).close()
    assert 0 < float_size < grown == store.stat().st_size


def test_saving_makes_the_folder_and_replaces_the_file(model: OnnxModel, tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "model.onnx"
    assert model.save(str(path)) == path
    path.write_bytes(b"old")
    model.save(path)
    assert path.read_bytes() == model.SerializeToString()
    assert os.listdir(path.parent) == ["model.onnx"]


FOLDER = Path(__file__).parent
UMASK = """
import os, sys
sys.path[:0] = sys.argv[2:]
from test_onnx_model import opened, two_inputs
os.umask(int(sys.argv[1], 8))
def changed(mask):
    raise AssertionError("the mask of the whole process was changed")
os.umask = changed
with opened(two_inputs(), calibrate=False) as adapter:
    print(oct(adapter.build(None).save("model.onnx").stat().st_mode & 0o777))
"""


@pytest.mark.parametrize(("mask", "mode"), [("022", "0o644"), ("077", "0o600"), ("002", "0o664"), ("000", "0o666")])
def test_a_saved_file_has_the_mode_of_any_new_file(mask: str, mode: str, tmp_path: Path) -> None:
    """The mask is left alone meanwhile: other threads may be making files."""
    arguments = [sys.executable, "-c", UMASK, mask, str(FOLDER), str(FOLDER.parent)]
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == mode and os.listdir(tmp_path) == ["model.onnx"]


@pytest.mark.parametrize("suffix", [".tflite", ".keras", ".pb", ".pt", ".ort", ".TFLITE"])
def test_a_name_that_belongs_to_another_framework_is_refused(model: OnnxModel, suffix: str, tmp_path: Path) -> None:
    for some in (model, SavedModel(model.save(tmp_path / "model.onnx"), (), 1, ONNX_RUNTIME)):
        with pytest.raises(BuildError, match=rf"'.*other\{suffix}' is .* written as \.onnx: save it as 'other\.onnx'"):
            some.save(tmp_path / f"other{suffix}")
    assert os.listdir(tmp_path) == ["model.onnx"]


def test_any_other_file_name_is_accepted(model: OnnxModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("model", "model.int8", "model.v2.onnx", "MODEL.ONNX"):
        assert model.save(f"~/{name}") == tmp_path / name
        assert (tmp_path / name).read_bytes() == model.SerializeToString()


def test_a_name_that_no_file_can_have_is_refused(model: OnnxModel, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"cannot write .*null byte"):
        model.save(tmp_path / "a\0b.onnx")


def test_eval_func_gets_a_quaver_model(adapter: OnnxAdapter, tmp_path: Path) -> None:
    model = adapter.build(None)
    assert isinstance(model, quaver.Model) and isinstance(
        adapter.load_saved(model.save(tmp_path / "a.onnx")), quaver.Model
    )
    assert isinstance(model.model, onnx.ModelProto)


@pytest.mark.parametrize("quant_format", ["qdq", "qoperator"])
def test_a_failed_save_leaves_the_old_file_and_no_other(quant_format: str, tmp_path: Path) -> None:
    with opened(two_inputs(), quant_format=quant_format) as adapter:
        model = adapter.build(space(adapter).default_config())
        (tmp_path / "file").write_text("in the way")
        with pytest.raises(BuildError, match=r"cannot write '.*model\.onnx'"):
            model.save(tmp_path / "file" / "model.onnx")
        (tmp_path / "folder.onnx").mkdir()
        with pytest.raises(BuildError, match=r"'.*folder\.onnx' is a folder, but this model is written as one file"):
            model.save(tmp_path / "folder.onnx")
    assert sorted(os.listdir(tmp_path)) == ["file", "folder.onnx"]


def test_a_save_that_breaks_off_leaves_nothing(
    model: OnnxModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(source: str, target: str) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "model.onnx"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(BuildError, match="No space left on device"):
        model.save(path)
    assert os.listdir(tmp_path) == ["model.onnx"] and path.read_bytes() == b"old"


def test_a_saved_model_can_be_loaded_and_outlives_the_adapter(tmp_path: Path) -> None:
    with opened(two_inputs()) as adapter:
        model = adapter.build(space(adapter).default_config())
        wanted, size, digest = expected(model), model.size, model.sha256
        loaded = adapter.load_saved(model.save(tmp_path / "model.onnx"))
    assert all(np.array_equal(got, want) for got, want in zip(loaded(X, Y), wanted, strict=True))
    assert (loaded.size, loaded.sha256) == (size, digest)
    again = loaded.save(tmp_path / "again.onnx")
    assert again.read_bytes() == (tmp_path / "model.onnx").read_bytes() == loaded.SerializeToString()


def test_a_session_goes_on_after_the_adapter_is_closed() -> None:
    with opened(two_inputs()) as adapter:
        model = adapter.build(space(adapter).default_config())
        wanted = expected(model)
        folder = adapter._store.path.parent
    assert not folder.exists()
    assert all(np.array_equal(got, want) for got, want in zip(model(X, Y), wanted, strict=True))


def test_a_closed_model_makes_its_session_anew(model: OnnxModel) -> None:
    wanted = expected(model)
    model.close()
    assert all(np.array_equal(got, want) for got, want in zip(model(X, Y), wanted, strict=True))


def test_the_weight_file_lies_in_the_folder_given_and_is_removed(tmp_path: Path) -> None:
    with opened(two_inputs(), folder=tmp_path) as adapter:
        adapter.build(space(adapter).default_config()).close()
        assert adapter._store.path.parent == tmp_path
    assert os.listdir(tmp_path) == []


def test_a_file_that_a_killed_run_left_behind_is_removed(tmp_path: Path) -> None:
    adapter = OnnxAdapter.load(two_inputs(), AdapterOptions(folder=tmp_path))
    adapter.build(None).close()
    left = adapter._store.path
    content = left.read_bytes()
    with opened(two_inputs(), folder=tmp_path):
        assert left.exists()  # whoever made it is alive
    adapter.close()
    left.write_bytes(content)
    with opened(two_inputs(), folder=tmp_path):
        assert not left.exists()


@pytest.mark.parametrize(
    "name",
    [
        "weights-of-mine.cache", "weights-0123456789abcdef.cache", "quaver-weights-mine.cache",
        "quaver-weights-0123456789abcdef.cache",
    ],
)  # fmt: skip
def test_other_files_in_the_folder_are_left_alone(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"not to be lost")
    (tmp_path / "quaver-weights-0000000000000000.cache").symlink_to(tmp_path / name)
    with opened(two_inputs(), folder=tmp_path) as adapter:
        adapter.build(space(adapter).default_config()).close()
    assert (tmp_path / name).read_bytes() == b"not to be lost"
    assert len(os.listdir(tmp_path)) == 2


def test_two_adapters_can_share_a_folder(tmp_path: Path) -> None:
    with opened(two_inputs(), folder=tmp_path) as one:
        model = one.build(space(one).default_config())
        wanted, digest = expected(model), model.sha256
        with opened(two_inputs(seed=5), folder=tmp_path) as other:
            assert other.build(space(other).default_config()).sha256 != digest
        model.close()
        assert all(np.array_equal(got, want) for got, want in zip(model(X, Y), wanted, strict=True))
        assert hashlib.sha256(model.SerializeToString()).hexdigest() == digest


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"cannot write the weight file into '.*nowhere'"):
        load_model(two_inputs(), AdapterOptions(folder=tmp_path / "nowhere"))


def test_an_unknown_format_is_named() -> None:
    with pytest.raises(SettingsError, match="unknown quant_format 'tflite' for onnxrt; known are: 'qdq', 'qoperator'"):
        load_model(two_inputs(), AdapterOptions(quant_format="tflite"))


def test_an_adapter_says_what_its_bytes_depend_on(adapter: OnnxAdapter) -> None:
    assert set(adapter.versions) == {"onnx", "onnxruntime", "numpy"}
    assert [str(spec) for spec in adapter.inputs] == ["'x' (float32, [?, 8])", "'y' (float32, [?, 8])"]
    assert data(adapter)[0]["y"].shape == (2, 8)
