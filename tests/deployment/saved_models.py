"""Models that were tuned and saved, with inputs and with the outputs in Python."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import code_blocks
import numpy as np
import onnx
import onnxruntime as ort
from forms import f1, forms
from onnx import TensorProto, helper, numpy_helper

import quaver
from quaver.demo.data import Accuracy, digits
from quaver.demo.run import MODEL

DATA = Path(__file__).parents[1] / "data"


@dataclass(frozen=True)
class SavedModel:
    """A saved int8 file and inputs for it."""

    path: Path
    inputs: dict[str, np.ndarray]

    def outputs(self) -> dict[str, np.ndarray]:
        """Return the outputs in Python, with default options as in the pages."""
        return run(self.path, self.inputs)

    def inputs_json(self) -> str:
        """Return the inputs in the form that the scripts of the pages take."""
        items = self.inputs.items()
        return json.dumps(
            {name: {"type": str(x.dtype), "dims": x.shape, "data": x.ravel().tolist()} for name, x in items}
        )

    def kernels(self, folder: Path) -> Counter[str]:
        """Return how often Python runs each kernel."""
        options = ort.SessionOptions()
        options.enable_profiling, options.profile_file_prefix = True, str(folder / "profile")
        session = ort.InferenceSession(str(self.path), options)
        session.run(None, self.inputs)
        events = json.loads(Path(session.end_profiling()).read_text())
        return Counter(event["args"]["op_name"] for event in events if "op_name" in event.get("args", {}))


def run(model: Path, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    session = ort.InferenceSession(str(model))
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


def relative_error(found: dict[str, Any], expected: dict[str, np.ndarray]) -> float:
    """Return the largest relative error of an output, in the form that the scripts print."""
    assert set(found) == set(expected)
    errors = []
    for name, values in expected.items():
        assert list(found[name]["dims"]) == list(values.shape)
        difference = np.asarray(found[name]["data"], np.float64) - values.ravel()
        errors.append(float(np.linalg.norm(difference) / np.linalg.norm(values)))
    return max(errors)


def block(page: str, language: str) -> str:
    """Return the first code block of a page in a language."""
    return next(block.code for block in code_blocks.blocks(page) if block.language == language)


def tune_cnn(folder: Path) -> SavedModel:
    """Tune the network of the demo: depthwise and pointwise convolutions on images of digits."""
    train, _, images, labels = digits()
    result = quaver.fit(
        MODEL, calib_dataloader=train[:64], eval_func=Accuracy(images, labels), objective="int8_ops", verbose=0,
        workspace=folder / "run",
    )  # fmt: skip
    assert result.met
    return SavedModel(result.save(folder / "model-int8.onnx"), {"image": images[:8]})


def tune_tagger(folder: Path) -> SavedModel:
    """Tune a small transformer that tags the words of a page."""
    pages, tags = forms(60, 1)
    calibration = {name: values[:16] for name, values in forms(16, 2)[0].items()}
    result = quaver.fit(
        DATA / "layout_tagger.onnx", calib_dataloader=[calibration], verbose=0, objective="int8_ops",
        eval_func=lambda model: f1(np.asarray(model(pages)).argmax(-1), tags), workspace=folder / "run",
    )  # fmt: skip
    assert result.met
    return SavedModel(result.save(folder / "model-int8.onnx"), {name: values[:4] for name, values in pages.items()})


def tune_texts(folder: Path) -> SavedModel:
    """Quantize all weights of a small text model to 4 bits in blocks: a table of words and a product."""
    rng = np.random.default_rng(0)
    constants = {"table": rng.standard_normal((500, 128)), "weight": rng.standard_normal((128, 64)) / 8}
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["words"], "words"),
        helper.make_node("ReduceMean", ["words"], ["mean"], "mean", axes=[1], keepdims=0),
        helper.make_node("MatMul", ["mean", "weight"], ["scores"], "scores"),
    ]
    graph = helper.make_graph(
        nodes, "texts", [helper.make_tensor_value_info("ids", TensorProto.INT64, ["n", 12])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 64])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    ids = rng.integers(0, 500, (32, 12))
    four_bits = {"weight": {"dtype": ["int4"]}}
    result = quaver.fit(
        model, calib_dataloader=[{"ids": ids}], op_type_dict={"Gather": four_bits, "MatMul": four_bits}, verbose=0,
        workspace=folder / "run",
    )  # fmt: skip
    path = result.save(folder / "model-int8.onnx")
    kinds = {node.op_type for node in onnx.load(path).graph.node}
    assert {"GatherBlockQuantized", "MatMulNBits"} <= kinds, kinds
    return SavedModel(path, {"ids": ids[:8]})
