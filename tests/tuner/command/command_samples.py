"""Small models, evaluations in files, and the real command in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

COMMAND = (sys.executable, "-m", "quaver.command.main")
ODD = "[bold]head[/bold] :smile: \x1b[31m/Gemm"

EVAL = """
import numpy as np
import beside

with np.load(beside.HERE / "test.npz") as test:
    images, labels = test["images"], test["labels"]


def _called():
    with open(beside.HERE / "calls", "a") as file:
        file.write("x")


def _quantized(model):
    return any(node.op_type in ("QuantizeLinear", "MatMulNBits") for node in model.model.graph.node)


def accuracy(model):
    _called()
    return float((model(images).argmax(axis=1) == labels).mean())


def right(model):
    for first in range(0, len(images), 16):
        yield {"top1": model(images[first : first + 16]).argmax(axis=1) == labels[first : first + 16]}


def half_right(model):
    for batch in right(model):
        yield {"top1": batch["top1"] * (0.5 if _quantized(model) else 1.0)}


def error(model):
    return 1.5 - accuracy(model)


def only_fp32(model):
    _called()
    return 0.5 if _quantized(model) else 1.0


def always(model):
    return 1.0


def broken(model):
    return 1 / 0


def broken_in_int8(model):
    if _quantized(model):
        raise RuntimeError("no [red]int8[/red] today")
    return 1.0


NUMBER = 3
"""


def environment(**extra: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "FORCE_COLOR")}
    return {**kept, "TERM": "xterm", **extra}


def quaver(folder: Path, *words: object, **extra: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, words)],
        cwd=folder,
        env=environment(**extra),
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )


def make_model(path: Path, gemms: int = 1, last: str = ODD) -> onnx.ModelProto:
    """Two convolutions and some fully connected layers, the last of which has an odd name."""
    rng = np.random.default_rng(0)
    constants, nodes = [], []

    def weight(name: str, *shape: int) -> str:
        scale = np.sqrt(2 / np.prod(shape[1:]))
        constants.append(numpy_helper.from_array((rng.normal(size=shape) * scale).astype(np.float32), name))
        return name

    def node(kind: str, inputs: list[str], output: str, name: str, **attributes: object) -> str:
        nodes.append(helper.make_node(kind, inputs, [output], name=name, **attributes))
        return output

    x = node("Conv", ["image", weight("w0", 8, 1, 3, 3)], "c0", "stem/Conv", pads=[1, 1, 1, 1])
    x = node("Relu", [x], "r0", "stem/Relu")
    x = node("Conv", [x, weight("w1", 8, 8, 3, 3)], "c1", "body/Conv", pads=[1, 1, 1, 1])
    x = node("Relu", [x], "r1", "body/Relu")
    x = node("Flatten", [x], "flat", "flatten")
    width = 8 * 64
    for index in range(gemms):
        name = last if index == gemms - 1 else f"layer{index}/Gemm"
        x = node("Gemm", [x, weight(f"g{index}", 10, width)], f"y{index}", name, transB=1)
        width = 10
    graph = helper.make_graph(
        nodes,
        "sample",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 1, 8, 8])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, ["n", 10])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path)
    return model


def make_folder(folder: Path, **model: object) -> Path:
    """A folder with model.onnx, calib.npz, and my_eval.py with the file it imports."""
    import onnxruntime as ort

    made = make_model(folder / "model.onnx", **model)  # type: ignore[arg-type]
    rng = np.random.default_rng(1)
    images = rng.uniform(size=(256, 1, 8, 8)).astype(np.float32)
    session = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    labels = session.run(None, {"image": images})[0].argmax(axis=1)
    np.savez(folder / "test.npz", images=images, labels=labels)
    np.savez(folder / "calib.npz", image=images[:64], label=labels[:64])
    (folder / "beside.py").write_text("from pathlib import Path\n\nHERE = Path(__file__).parent\n")
    (folder / "my_eval.py").write_text(EVAL)
    return folder


def tune(folder: Path, *words: object, function: str = "accuracy", **extra: str) -> subprocess.CompletedProcess[str]:
    """`quaver tune` with everything it needs, by strategy basic in the workspace `run`."""
    return quaver(folder, *tune_words(*words, function=function), **extra)


def tune_words(*words: object, function: str = "accuracy") -> list[str]:
    given = [str(word) for word in words]
    parts = {"--calib": "calib.npz", "--strategy": "basic", "--workspace": "run"}
    if "--resume" in given:
        del parts["--workspace"]
    filled = [part for flag, value in parts.items() if flag not in given for part in (flag, value)]
    return ["tune", *given, "--model", "model.onnx", "--eval", f"my_eval.py:{function}", *filled]
