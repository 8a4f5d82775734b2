"""Which adapter takes a model: by itself, or by the name of a framework; and plug-ins, installed for real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import networks
import onnx
import pytest
from fake import FakeAdapter, FakeFloat, quality

import quaver
from quaver.adapters import AdapterOptions, adapter_for, load_model, register_adapter, registry
from quaver.adapters.litert.adapter import LiteRTAdapter
from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.adapters.options import recorded_quant_format, resolve_quant_format
from quaver.errors import ModelError, SettingsError

MODEL = networks.chain(3)
SUPPORT = Path(networks.__file__).parent


@pytest.mark.parametrize("framework", [None, *OnnxAdapter.frameworks])
def test_each_framework_name_selects_its_adapter(framework: str | None) -> None:
    assert adapter_for(MODEL, framework) is OnnxAdapter


@pytest.mark.parametrize("framework", LiteRTAdapter.frameworks)
def test_another_framework_has_another_adapter(framework: str, tmp_path: Path) -> None:
    (tmp_path / "model.tflite").touch()
    assert adapter_for(tmp_path / "model.tflite", framework) is LiteRTAdapter


@pytest.mark.parametrize(
    ("framework", "hint"), [("onx", "did you mean 'onnx'"), ("paddle", "unknown framework 'paddle'; ")]
)
def test_an_unknown_framework_is_refused_before_any_work(framework: str, hint: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=hint):
        quaver.fit(
            MODEL, calib_dataloader=networks.inputs(), eval_func=len, framework=framework, workspace=tmp_path / "run"
        )
    assert not (tmp_path / "run").exists()


def test_a_framework_that_refuses_the_model_names_the_accepted_forms(tmp_path: Path) -> None:
    with pytest.raises(
        SettingsError, match="set to 'keras', but adapter litert does not accept a ModelProto: it accepts a K"
    ):
        quaver.fit(
            MODEL, calib_dataloader=networks.inputs(), eval_func=len, framework="keras", workspace=tmp_path / "a"
        )
    with pytest.raises(ModelError, match=r"no model at 'nowhere\.onnx'"):
        adapter_for("nowhere.onnx", "keras")
    assert not (tmp_path / "a").exists()


def test_a_framework_name_can_imply_a_quant_format() -> None:
    formats = {name: resolve_quant_format(OnnxAdapter, None, name) for name in (None, *OnnxAdapter.frameworks)}
    assert formats == {
        None: "qdq", "onnxrt": "qdq", "onnx": "qdq", "onnxruntime": "qdq", "onnxrt_qdq": "qdq",
        "onnxrt_qlinearops": "qoperator",
    }  # fmt: skip
    assert (
        resolve_quant_format(OnnxAdapter, "qoperator", "onnx")
        == resolve_quant_format(OnnxAdapter, "qoperator")
        == "qoperator"
    )
    with pytest.raises(SettingsError, match="'onnxrt_qdq' implies quant_format 'qdq', but quant_format is 'qoperator'"):
        resolve_quant_format(OnnxAdapter, "qoperator", "onnxrt_qdq")
    with pytest.raises(SettingsError, match="unknown quant_format 'qoprator' for onnxrt; did you mean 'qoperator'"):
        load_model(MODEL, AdapterOptions(quant_format="qoprator"))


def test_an_adapter_refuses_quant_formats_of_others() -> None:
    assert resolve_quant_format(LiteRTAdapter, None) == "float_io"
    for framework in (None, "keras"):
        with pytest.raises(SettingsError, match="unknown quant_format 'qdq' for litert"):
            resolve_quant_format(LiteRTAdapter, "qdq", framework)


def test_the_quant_format_of_an_earlier_run_is_used_again() -> None:
    """Version 0.1.0 wrote "qdq" into the settings of every run, and heeded only that."""
    assert recorded_quant_format(OnnxAdapter, {"quant_format": "qdq", "framework": "onnxrt_qlinearops"}) == "qdq"
    assert recorded_quant_format(OnnxAdapter, {"quant_format": "qoperator"}) == "qoperator"
    assert recorded_quant_format(OnnxAdapter, {"quant_format": None}) == recorded_quant_format(OnnxAdapter, {}) == "qdq"
    assert recorded_quant_format(LiteRTAdapter, {"quant_format": "qdq"}) == "float_io"


def kinds(path: Path) -> set[str]:
    return {node.op_type for node in onnx.load_model(path).graph.node}


@pytest.mark.parametrize(
    ("settings", "integer"),
    [({"framework": "onnxrt_qlinearops"}, True), ({"framework": "onnxrt_qdq"}, False), ({}, False)],
    ids=["qlinearops", "qdq", "no framework"],
)
def test_a_run_writes_the_implied_format_and_is_recovered_and_resumed_with_it(
    settings: dict[str, Any], integer: bool, tmp_path: Path
) -> None:
    score = networks.Closeness(MODEL)
    common: dict[str, Any] = {
        "calib_dataloader": networks.inputs(),
        "eval_func": score,
        "strategy": "basic",
        "threads": 1,
    }
    common |= {"objective": "size", "absolute": 10.0}
    result = quaver.fit(MODEL, **common, **settings, workspace=tmp_path / "run")
    assert result.model_path is not None and result.best is not None
    assert ("QGemm" in kinds(result.model_path), "DequantizeLinear" in kinds(result.model_path)) == (
        integer,
        not integer,
    )
    recovered = quaver.recover(MODEL, result.history_path, result.best.number)
    assert recovered.sha256 == result.best.model_hash
    again = quaver.fit(MODEL, **common, **settings, resume=tmp_path / "run")
    assert again.best == result.best
    assert quaver.read_snapshot(tmp_path / "run").run.settings["quant_format"] == ("qoperator" if integer else "qdq")


class Net:
    """What every module of PyTorch has."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def forward(self, x: Any) -> Any:
        return x


def test_a_torch_module_is_exported_by_fit_alone() -> None:
    base = type("Module", (), {"__module__": "torch.nn.modules.module"})
    derived = type("Mine", (base,), {"__module__": "__main__"})()
    for module, framework in ((Net(), None), (base(), None), (derived, "onnx")):
        with pytest.raises(ModelError, match=r"is a PyTorch model, which `quaver\.fit` and `quaver\.open_run` export"):
            load_model(module, AdapterOptions(), framework)


class Point:
    """An entry point, loaded or not."""

    def __init__(self, name: str, value: str, result: Any) -> None:
        self.name, self.value, self.result, self.loads = name, value, result, 0
        self.dist: Any = type("Distribution", (), {"name": "theirs", "version": "2.1"})

    def load(self) -> Any:
        self.loads += 1
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result


def installed(monkeypatch: pytest.MonkeyPatch, *points: Any) -> None:
    known = registry.Installed(iter(points))
    monkeypatch.setattr(registry, "adapters", lambda: known)


class Failing(FakeAdapter):
    """An adapter that cannot even say whether it takes a model."""

    name = "failing"
    frameworks = ("failing",)

    @classmethod
    def accepts(cls, model: Any) -> bool:
        raise KeyError("model")


def test_quavers_own_are_asked_first_and_no_other_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Point("aaa", "theirs:Adapter", ImportError("no module named 'gone'"))
    own = EntryPoint("onnxrt", "quaver.adapters.onnxrt.adapter:OnnxAdapter", registry.GROUP)
    installed(monkeypatch, broken, own)
    assert list(registry.adapters()) == ["onnxrt", "aaa"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert adapter_for(MODEL) is adapter_for(MODEL, "onnxrt") is OnnxAdapter
    assert broken.loads == 0


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (ImportError("no module named 'gone'"), "cannot be loaded: ImportError: no module named 'gone'"),
        (SystemExit(3), "cannot be loaded: SystemExit: 3"),
        (dict, "is no subclass of quaver.adapters.Adapter but <class 'dict'>"),
    ],
)
def test_a_plug_in_that_cannot_be_loaded_is_named_and_left_out(
    result: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, working = Point("aaa", "theirs:Adapter", result), Point("fake", "fake:FakeAdapter", FakeAdapter)
    installed(monkeypatch, broken, working)
    with pytest.warns(RuntimeWarning, match=rf"adapter 'aaa', entry point 'theirs:Adapter' of theirs 2\.1, {said}"):
        assert adapter_for(FakeFloat({"a": 0.0})) is FakeAdapter
    with pytest.raises(SettingsError, match=f"'theirs:Adapter' of theirs 2\\.1, {said}"):
        adapter_for(FakeFloat({"a": 0.0}), "aaa")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert adapter_for(FakeFloat({"a": 0.0}), "fake") is FakeAdapter
    assert (broken.loads, working.loads) == (1, 1)


def test_a_plug_in_that_fails_in_accepts_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, Point("failing", "theirs:Adapter", Failing), Point("fake", "fake:FakeAdapter", FakeAdapter))
    with pytest.warns(RuntimeWarning, match="adapter 'failing' failed to check a model: KeyError: 'model'"):
        assert adapter_for(FakeFloat({"a": 0.0})) is FakeAdapter


def test_an_adapter_registered_here_is_asked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})

    @register_adapter
    class Mine(FakeAdapter):
        name = "mine"
        frameworks = ("mine", "ours")

    assert adapter_for(FakeFloat({"a": 0.0})) is adapter_for(FakeFloat({"a": 0.0}), "ours") is Mine
    assert adapter_for(FakeFloat({"a": 0.0}), "mine") is Mine and adapter_for(MODEL) is OnnxAdapter


def test_the_fake_can_be_tuned_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed(monkeypatch, Point("fake", "fake:FakeAdapter", FakeAdapter))
    result = quaver.fit(
        FakeFloat({"a": 0.0}), calib_dataloader=[[[0.0, 1.0]]], eval_func=quality, objective="size", framework="fake",
        strategy="basic", workspace=tmp_path / "run",
    )  # fmt: skip
    assert result.met
    with pytest.raises(SettingsError, match="fake has no quant_format setting"):
        quaver.fit(FakeFloat({"a": 0.0}), calib_dataloader=[], eval_func=quality, quant_format="qdq")


SCRIPT = """
import json, sys, warnings
import quaver
from fake import FakeFloat, quality
from networks import Closeness, chain, inputs

def attempt(model, **settings):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            result = quaver.fit(model, threads=1, **settings)
            outcome = [result.met, len(result.trials)]
        except quaver.QuaverError as error:
            outcome = [type(error).__name__, str(error)]
    told = [str(warning.message) for warning in said if warning.category is RuntimeWarning]
    print(json.dumps([outcome, told, "broken_adapter" in sys.modules]), flush=True)

model = chain(3)
onnx = {"calib_dataloader": inputs(), "eval_func": Closeness(model), "strategy": "auto", "absolute": 10.0}
toy = {"calib_dataloader": [[[0.0, 1.0]]], "eval_func": quality, "strategy": "auto", "objective": "size"}
attempt(model, **onnx)
attempt(FakeFloat({"a": 0.0}), framework="toy", **toy)
attempt(FakeFloat({"a": 0.0}), **toy)
attempt(FakeFloat({"a": 0.0}), framework="broken", **toy)
"""


def install(folder: Path, package: str, version: str, code: str, point: str) -> None:
    """A package with one entry point, as an installer leaves it."""
    (folder / f"{package}.py").write_text(code)
    info = folder / f"{package}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[quaver.adapters]\n{point}\n")


def test_a_broken_plug_in_beside_a_working_one(tmp_path: Path) -> None:
    """An ONNX model does not touch them; a model of the working one is tuned, and the user told of the other."""
    site = tmp_path / "site"
    site.mkdir()
    working = (
        "from fake import FakeAdapter\n\nclass Toy(FakeAdapter):\n    name, frameworks = 'toys', ('toy', 'toys')\n"
    )
    install(site, "broken_adapter", "0.3", "import a_module_that_is_gone\n", "broken = broken_adapter:Adapter")
    install(site, "toy_adapter", "1.0", working, "toys = toy_adapter:Toy")
    path = os.pathsep.join([str(site), str(SUPPORT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    onnx, by_name, by_itself, asked = map(json.loads, done.stdout.splitlines())
    told = (
        "adapter 'broken', entry point 'broken_adapter:Adapter' of broken_adapter 0.3, cannot be loaded: "
        "ModuleNotFoundError: No module named 'a_module_that_is_gone'"
    )
    assert onnx[0][0] is True and onnx[1:] == [[], False]
    assert by_name[0][0] is True and set(by_name[1]) == {f"{told}. It is skipped"}
    assert by_itself[0][0] is True and set(by_itself[1]) == {f"{told}. It is skipped"}
    assert asked[0] == ["SettingsError", told]


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("model.pt", r"load_state_dict\(torch\.load\('.*model\.pt'\)\)`, and pass the module"),
        ("model.pt2", r"pass `torch\.export\.load\('.*model\.pt2'\)\.module\(\)`"),
        ("model.safetensors", r"load_state_dict\(load_file\('.*model\.safetensors'\)\)"),
    ],
)
def test_a_file_of_weights_gets_advice(name: str, advice: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    with pytest.raises(ModelError, match=advice):
        adapter_for(tmp_path / name)


def test_a_folder_of_hugging_face_is_recognized_without_its_packages(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ModelError, match=r"is a folder of Hugging Face, which `quaver\.fit`"):
        adapter_for(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ModelError, match="no adapter accepts"):
        adapter_for(tmp_path)
