"""Models over 2 GB, which no protobuf message can hold: the constants lie in a second file."""

from __future__ import annotations

import gc
import os
import resource
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import psutil
import pytest
from onnx import TensorProto, helper
from onnx_models import Array, Net, as_given, data, opened, space, weight

from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.adapters.onnxrt.run import model as models

WIDE = 16448
LIVE = 64  # rows of each weight that are not zero


def plain_run(path: Path, feed: dict[str, Array]) -> Array:
    """Run a saved model. Weights are used in place and not packed again, which would double the memory."""
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_prepacking", "1")
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, feed)[0]


# --- the format, on a small model ---


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "PROTOBUF_LIMIT", 4000)


def small_model() -> onnx.ModelProto:
    net = Net()
    x = net.Conv(net.input(None, 7, 9, 9), weight(33, 7, 3, 3), weight(33))  # 2,079 bytes in int8: odd offsets follow
    return net.model(net.Conv(net.Relu(x), weight(31, 33, 3, 3), weight(31)))


@pytest.mark.usefixtures("small_limit")
def test_a_model_beyond_the_limit_is_saved_as_two_files(tmp_path: Path) -> None:
    with opened(small_model()) as adapter:
        ops = space(adapter)
        for name, config in [("int8", ops.default_config()), ("mixed", ops.only_int8("Conv_0")), ("fp32", None)]:
            model = adapter.build(config)
            path = model.save(tmp_path / name / "model.onnx")
            assert sorted(os.listdir(path.parent)) == ["model.onnx", "model.onnx.data"]
            onnx.checker.check_model(path, full_check=True)
            assert np.array_equal(plain_run(path, data(adapter)[0]), model.run(data(adapter)[0]))
            together, apart = model.model.graph, onnx.load_model(path).graph
            assert list(apart.node) == list(together.node)
            assert [entry.raw_data for entry in apart.initializer] == [entry.raw_data for entry in together.initializer]


@pytest.mark.usefixtures("small_limit")
def test_constants_in_the_second_file_are_aligned(tmp_path: Path) -> None:
    """A runtime maps them where they are, and reads floats faster (or at all) at an even address."""
    with opened(small_model()) as adapter:
        path = adapter.build(space(adapter).only_int8("Conv_0")).save(tmp_path / "model.onnx")
    outside = [
        entry for entry in onnx.load_model(path, load_external_data=False).graph.initializer if entry.external_data
    ]
    offsets = [int(item.value) for entry in outside for item in entry.external_data if item.key == "offset"]
    assert len(offsets) == 2 and all(offset % 4096 == 0 for offset in offsets)


@pytest.mark.usefixtures("small_limit")
def test_two_files_can_be_loaded_tuned_and_saved_under_another_name(tmp_path: Path) -> None:
    with opened(small_model()) as adapter:
        feed = data(adapter)[0]
        path = adapter.build(None).save(tmp_path / "first.onnx")
        loaded = adapter.load_saved(path)
        assert loaded.size > 30_000
        copy = loaded.save(tmp_path / "second.onnx")
        path.unlink()
        (tmp_path / "first.onnx.data").unlink()
        (expected,) = as_given(small_model(), feed)
        assert np.allclose(plain_run(copy, feed), expected, atol=1e-5)
        with opened(copy) as again:
            assert again.ops() == adapter.ops()
            config = space(again).default_config()
            assert again.assemble(config).sha256 == adapter.assemble(config).sha256


# --- for real ---


def write_large_model(folder: Path) -> tuple[Path, list[Array]]:
    """Two weights of 1.1 GB, zero but for their first rows, in a sparse file that takes next to no space on disk."""
    nbytes = WIDE * WIDE * 4
    rows = [weight(LIVE, WIDE, seed=seed) * np.float32(16) for seed in range(2)]
    with open(folder / "weights.bin", "wb") as file:
        for index, values in enumerate(rows):
            file.seek(index * nbytes)
            file.write(values.tobytes())
        file.truncate(2 * nbytes)
    net = Net()
    x = net.Relu(net.MatMul(net.input(None, WIDE), "w0", name="first"), name="relu")
    y = net.MatMul(x, "w1", name="second", outputs=["y"])
    for index in range(2):
        constant = TensorProto(name=f"w{index}", data_type=TensorProto.FLOAT, dims=[WIDE, WIDE])
        constant.data_location = TensorProto.EXTERNAL
        for key, value in (("location", "weights.bin"), ("offset", index * nbytes), ("length", nbytes)):
            constant.external_data.add(key=key, value=str(value))
        net.initializers.append(constant)
    path = folder / "large.onnx"
    output = helper.make_tensor_value_info(y, TensorProto.FLOAT, [None, WIDE])
    made = helper.make_model(net.graph(output), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(made.SerializeToString())
    return path, rows


def test_a_model_over_2_gb_is_tuned_run_and_saved(tmp_path: Path) -> None:
    before = psutil.Process().memory_info().rss // 1024  # other tests of this process have left something
    path, rows = write_large_model(tmp_path)
    assert (tmp_path / "weights.bin").stat().st_size > 2.1e9
    x = np.random.default_rng(0).normal(size=(2, WIDE)).astype(np.float32)
    expected = np.maximum(x[:, :LIVE] @ rows[0], 0)[:, :LIVE] @ rows[1]
    with opened(path, calibrate=False) as adapter:
        assert [op.name for op in adapter.ops()] == ["first", "second"]
        adapter.calibrate([x])
        gc.collect()
        _check_int8(adapter, x, expected, tmp_path / "int8.onnx")
        gc.collect()
        saved = adapter.assemble(None).save(tmp_path / "fp32.onnx")
    gc.collect()
    assert saved.stat().st_size < 10_000
    assert (tmp_path / "fp32.onnx.data").stat().st_size > 2.1e9
    assert np.allclose(plain_run(saved, {"x": x}), expected, atol=1e-3)
    for file in tmp_path.iterdir():
        file.unlink()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 * 2**20, "kilobytes"


def _check_int8(adapter: OnnxAdapter, x: Array, expected: Array, path: Path) -> None:
    model = adapter.build(space(adapter).default_config())
    assert np.abs(model(x) - expected).max() < 0.1 * np.abs(expected).max()
    model.close()
    model.save(path)
    assert path.stat().st_size == model.size < 0.6 * 2**30
    assert not path.with_name("int8.onnx.data").exists()
