"""Record what a set of small runs produces, so that two versions of the source can be compared.

    python tools/golden.py > before.json      # on one commit
    python tools/golden.py > after.json       # on another; `diff before.json after.json` must print nothing

The record holds no times: strategies are chosen that do not measure any. It covers the trials, scores and bytes of
tuned models, a resumed run, a recovered trial, the help of every command and the public names.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.reference
from onnx import TensorProto, helper, numpy_helper

import quaver
from quaver.command.main import main

ROOT = Path(__file__).parents[1]
RESNET = ROOT / "tests" / "data" / "digits_resnet.onnx"
COMMANDS = (
    "tune",
    "history",
    "show",
    "recover",
    "strategies",
    "diagnose",
    "profile",
    "check",
    "insights",
    "report",
    "export",
)


def digits() -> tuple[Any, Any, Any]:
    """Return calibration images, test images and test labels."""
    from sklearn.datasets import load_digits

    data = load_digits()
    images = (data.images / 16).astype(np.float32)[:, None]
    return images[:128], images[1200:], data.target[1200:]


def transformer_block() -> onnx.ModelProto:
    """Make a small attention block with fixed random weights."""
    rng = np.random.default_rng(7)
    width, tokens = 32, 8
    weights = {
        name: rng.normal(0, 0.2, shape).astype(np.float32)
        for name, shape in {
            "wq": (width, width), "wk": (width, width), "wv": (width, width), "wo": (width, width),
            "w1": (width, 64), "w2": (64, width), "b1": (64,), "b2": (width,),
        }.items()
    }  # fmt: skip
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "wq"], ["q"], "query"), node("MatMul", ["x", "wk"], ["k"], "key"),
        node("MatMul", ["x", "wv"], ["v"], "value"), node("Transpose", ["k"], ["kt"], "turn", perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], ["scores"], "attention"),
        node("Softmax", ["scores"], ["shares"], "softmax", axis=-1),
        node("MatMul", ["shares", "v"], ["mixed"], "mix"), node("MatMul", ["mixed", "wo"], ["out"], "output"),
        node("Add", ["x", "out"], ["residual"], "residual"), node("MatMul", ["residual", "w1"], ["up0"], "up"),
        node("Add", ["up0", "b1"], ["up1"], "up_bias"), node("Relu", ["up1"], ["up2"], "relu"),
        node("MatMul", ["up2", "w2"], ["down0"], "down"), node("Add", ["down0", "b2"], ["y"], "down_bias"),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "block",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", tokens, width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", tokens, width])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def record(result: Any) -> dict[str, Any]:
    """Return what must not differ between two versions."""
    return {
        "trials": [
            [trial.number, trial.config.fingerprint, trial.score, trial.model_hash] for trial in result.trials
        ],
        "best": result.best.number,
        "met": result.met,
    }  # fmt: skip


def tune(model: Any, batches: Any, score: Any, folder: Path | None, **settings: Any) -> Any:
    """Run `fit` without anything that depends on the clock."""
    settings = {"strategy": "basic", "objective": "int8_ops", "report": False, "verbose": 0, **settings}
    if folder is not None:
        settings["workspace"] = folder
    return quaver.fit(model, calib_dataloader=batches, eval_func=score, timing_cache=False, **settings)


def runs(folder: Path) -> dict[str, Any]:
    """Tune a CNN and a transformer block, resume the CNN's run and recover one of its trials."""
    calib, test, labels = digits()

    def accuracy(model: Any) -> float:
        return float((np.asarray(model(test)).argmax(axis=1) == labels).mean())

    batches = np.split(calib, 8)
    records: dict[str, Any] = {}
    many = {"timeout": 3600, "max_trials": 4, "relative": 0.001}
    records["cnn"] = record(tune(str(RESNET), batches, accuracy, folder / "cnn", **many))
    records["resumed"] = record(
        tune(str(RESNET), batches, accuracy, None, resume=folder / "cnn", **{**many, "max_trials": 6})
    )
    records["mse"] = record(tune(str(RESNET), batches, accuracy, folder / "mse", **{**many, "strategy": "mse"}))
    block = transformer_block()
    tokens = np.random.default_rng(1).normal(size=(64, 8, 32)).astype(np.float32)
    expected = onnx.reference.ReferenceEvaluator(block).run(None, {"x": tokens})[0]

    def agreement(model: Any) -> float:
        return 1 - float(np.abs(np.asarray(model(tokens)) - expected).mean() / np.abs(expected).mean())

    records["transformer"] = record(tune(block, np.split(tokens, 8), agreement, folder / "block", **many))
    model = quaver.recover(str(RESNET), folder / "cnn", 2)
    model.save(folder / "second.onnx")
    records["recovered"] = hashlib.sha256((folder / "second.onnx").read_bytes()).hexdigest()
    return records


def help_texts() -> dict[str, str]:
    """Return what `--help` prints for every command."""
    texts = {}
    for command in COMMANDS:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
            main([command, "--help"])
        texts[command] = out.getvalue()
    return texts


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        golden = {"runs": runs(Path(name)), "help": help_texts(), "names": sorted(quaver.__all__)}
    json.dump(golden, sys.stdout, indent=1)
