"""Saved models in onnxruntime-web, as docs/deploy-web.md runs them: in Node and in chromium.

`make test-deploy` installs the package into build/web.
"""

from __future__ import annotations

import http.server
import json
import re
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import pytest
from saved_models import SavedModel, block, relative_error, run

PAGE = "docs/deploy-web.md"
HERE = Path(__file__).parent
MODULES = HERE.parents[1] / "build" / "web" / "node_modules"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
BROWSER_FILES = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
MAX_ERROR = 1e-3

pytestmark = pytest.mark.skipif(
    shutil.which("node") is None or not (MODULES / "onnxruntime-web").is_dir(),
    reason="no onnxruntime-web for Node: `make test-deploy` installs it",
)


def in_node(script: str, model: Path, inputs: str, folder: Path) -> str:
    """Return what a script for Node prints."""
    if not (folder / "node_modules").exists():
        (folder / "node_modules").symlink_to(MODULES)
    (folder / "script.mjs").write_text(script)
    (folder / "inputs.json").write_text(inputs)
    command = ["node", "script.mjs", str(model), "inputs.json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(params=["cnn", "tagger"])
def saved(request: pytest.FixtureRequest) -> SavedModel:
    model: SavedModel = request.getfixturevalue(request.param)
    return model


def test_a_saved_model_answers_in_node_as_in_python(saved: SavedModel, tmp_path: Path) -> None:
    found = json.loads(in_node(block(PAGE, "js"), saved.path, saved.inputs_json(), tmp_path))
    assert relative_error(found, saved.outputs()) < MAX_ERROR


def test_the_same_kernels_run_in_node_and_in_python(saved: SavedModel, tmp_path: Path) -> None:
    printed = in_node((HERE / "kernels.mjs").read_text(), saved.path, saved.inputs_json(), tmp_path)
    kernels = Counter(re.findall(r'"op_name" : "(\w+)"', printed))
    assert any(name.startswith(("QLinear", "QGemm", "MatMulInteger")) for name in kernels)
    assert kernels == saved.kernels(tmp_path)


def test_products_with_4_bit_weights_take_float_activations_in_node(texts: SavedModel, tmp_path: Path) -> None:
    """On x86 their activations are rounded to 8 bits (accuracy_level 4), for which WebAssembly has no kernel."""
    found = json.loads(in_node(block(PAGE, "js"), texts.path, texts.inputs_json(), tmp_path))
    rounded = relative_error(found, texts.outputs())
    assert MAX_ERROR < rounded < 0.02
    model = onnx.load(texts.path)
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "accuracy_level":
                attribute.i = 0
    onnx.save(model, tmp_path / "float-activations.onnx")
    assert relative_error(found, run(tmp_path / "float-activations.onnx", texts.inputs)) < 1e-5


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Any]:
    """A page of the browser and the folder that it comes from, with the files that docs/deploy-web.md names."""
    api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no chromium here: apt-get install chromium")
    for name in BROWSER_FILES:
        shutil.copy(MODULES / "onnxruntime-web" / "dist" / name, tmp_path)
    (tmp_path / "index.html").write_text(block(PAGE, "html"))
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--headless", "--no-sandbox"])
        opened = browser.new_page(base_url=f"http://127.0.0.1:{server.server_port}")
        yield opened
        browser.close()
    server.shutdown()


def test_a_saved_model_answers_in_chromium_as_in_python(saved: SavedModel, page: Any, tmp_path: Path) -> None:
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    shutil.copy(saved.path, tmp_path / "model-int8.onnx")
    page.goto("/index.html")
    page.wait_for_function("globalThis.predict && document.body.textContent.startsWith('ready')", timeout=120_000)
    found = page.evaluate("inputs => predict(inputs)", json.loads(saved.inputs_json()))
    assert relative_error(found, saved.outputs()) < MAX_ERROR
    assert not errors
