"""Prepared models: what is in the cache is complete, unchanged, and read with numpy alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.models import MODELS, __main__, load, manifest
from benchmarks.models import bench as benches

ROOT = Path(__file__).parents[2]


def write_toy(folder):
    """A model that gives its input back, and is right on three of four samples."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "toy", [x], [y])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "model.onnx"
    )
    samples = np.eye(4, dtype=np.float32)
    benches.write(folder, {"x": samples}, {"x": samples}, np.array([0, 1, 2, 0]))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache where ppocr_cls180 is prepared, though it is only a toy."""
    monkeypatch.setattr(benches, "CACHE", tmp_path)
    benches.assemble("ppocr_cls180", write_toy)
    return tmp_path / "prepared" / "ppocr_cls180"


def test_a_prepared_folder_lists_its_files(cache):
    assert manifest.NAME in os.listdir(cache)
    assert load("ppocr_cls180", verify=True).samples == 2


def test_a_file_that_was_cut_short_is_noticed(cache):
    with open(cache / "data.npz", "r+b") as file:
        file.truncate(10)
    with pytest.raises(manifest.DamagedError, match=r"has 10 bytes of data\.npz, not \d+; delete the folder"):
        load("ppocr_cls180")


def test_a_changed_file_of_the_same_size_is_noticed_when_hashes_are_asked_for(cache):
    content = (cache / "model.onnx").read_bytes()
    (cache / "model.onnx").write_bytes(content[:-1] + b"\0")
    load("ppocr_cls180")
    with pytest.raises(manifest.DamagedError, match=r"model\.onnx with sha256"):
        load("ppocr_cls180", verify=True)


@pytest.mark.parametrize("missing", ["model.onnx", manifest.NAME])
def test_a_missing_file_is_noticed(cache, missing):
    (cache / missing).unlink()
    with pytest.raises(manifest.DamagedError, match=f"has no {missing}"):
        load("ppocr_cls180")


def test_an_interrupted_preparation_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(benches, "CACHE", tmp_path)

    def interrupted(folder):
        write_toy(folder)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        benches.assemble("toy", interrupted)
    assert not list((tmp_path / "prepared").iterdir())
    assert benches.assemble("toy", write_toy).samples == 2


def test_loading_needs_numpy_alone(cache):
    blocked = ("onnx", "onnxruntime", "PIL", "sklearn", "tokenizers", "tensorflow", "keras", "quaver")
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({blocked!r}))\n"
        "from benchmarks.models import load\n"
        "bench = load('ppocr_cls180')\n"
        "print(bench.eval_func(lambda feed: feed['x']), bench.held_out_eval_func(lambda feed: feed['x']))"
    )
    environment = os.environ | {"QUAVER_BENCH_CACHE": str(cache.parents[1])}
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.stdout == "1.0 0.5\n", done.stderr


def test_a_package_that_preparing_needs_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(benches, "CACHE", tmp_path)
    monkeypatch.delitem(sys.modules, "benchmarks.models.fashion", raising=False)
    monkeypatch.setitem(sys.modules, "keras", None)
    with pytest.raises(RuntimeError, match=r"fashion_dscnn cannot be prepared without keras: pip install -r"):
        load("fashion_dscnn")


def test_the_nearest_name_is_suggested():
    with pytest.raises(ValueError, match=r"unknown model 'resnet_cifar10'; did you mean 'resnet8_cifar10'\? there are"):
        load("resnet_cifar10")


def test_each_of_the_eight_models_has_a_function_that_prepares_it():
    assert len(MODELS) == 8
    for name, entry in MODELS.items():
        source = (ROOT / "benchmarks" / "models" / f"{entry.module}.py").read_text(encoding="utf-8")
        assert f"def {name}(folder: Path) -> None:" in source


def test_the_command_shows_scores_and_whether_the_files_are_right(cache, capsys):
    assert __main__.main(["ppocr_cls180"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[-4:] == ["2", "1.0000", "0.5000", "ok"]
    (cache / "data.npz").unlink()
    assert __main__.main(["ppocr_cls180"]) == 1
    assert "NO: " in capsys.readouterr().out


def test_the_command_refuses_an_unknown_name_before_it_prepares_anything(capsys):
    with pytest.raises(SystemExit):
        __main__.main(["fashion_dscnn", "magika_file"])
    assert "did you mean 'magika_filetype'?" in capsys.readouterr().err
