"""The C++ program of docs/deploy.md, with the library in the wheel of ONNX Runtime."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from saved_models import SavedModel, block, run

HEADER = "onnxruntime_cxx_api.h"
# The wheel has no headers. `make test-deploy` downloads them where it can.
FOLDERS = (
    Path(os.environ.get("ONNXRUNTIME_INCLUDE", "/usr/include/onnxruntime")),
    Path(__file__).parents[2] / "build" / "onnxruntime" / "usr" / "include" / "onnxruntime",
)
INCLUDE = next((folder for folder in FOLDERS if (folder / HEADER).exists()), None)
COMPILER = shutil.which("g++")


@pytest.mark.skipif(COMPILER is None or INCLUDE is None, reason=f"no g++ or no {HEADER}: `make test-deploy` fetches it")
def test_the_program_in_cpp_prints_what_python_computes(cnn: SavedModel, tmp_path: Path) -> None:
    (library,) = (Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.*")
    (tmp_path / "libonnxruntime.so.1").symlink_to(library)
    (tmp_path / "infer.cpp").write_text(block("docs/deploy.md", "cpp"))
    command = [
        str(COMPILER), "-std=c++17", "-O1", "infer.cpp", f"-I{INCLUDE}", "libonnxruntime.so.1",
        f"-Wl,-rpath,{tmp_path}", "-o", "infer",
    ]  # fmt: skip
    subprocess.run(command, cwd=tmp_path, check=True, timeout=300)
    for image in cnn.inputs["image"]:
        numbers = " ".join(str(value) for value in image.ravel())
        done = subprocess.run([tmp_path / "infer", cnn.path], input=numbers, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        expected = run(cnn.path, {"image": image[None]})["logits"]
        assert np.array_equal(np.array(done.stdout.split(), np.float32), expected.ravel())
    wrong = subprocess.run([tmp_path / "infer", "absent.onnx"], input="", capture_output=True, text=True, timeout=60)
    assert wrong.returncode == 1 and "absent.onnx" in wrong.stderr
