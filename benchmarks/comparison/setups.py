"""On what the tools are compared."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import onnx

from benchmarks import unseen
from benchmarks.models.fetch import CACHE
from benchmarks.peers.environments import Environment
from benchmarks.peers.job import find_bench
from benchmarks.peers.launch import Tool

CONVERTER = Environment("tf2onnx", ("tf2onnx==1.17.0", "tensorflow-cpu==2.21.0"))


@dataclass(frozen=True, slots=True)
class Setup:
    """A model and the rules of its runs.

    Attributes:
        model: a name of `benchmarks.models` or `benchmarks.unseen`.
        transformer: tools that want to know are told.
    """

    model: str
    transformer: bool = False

    @property
    def was_looked_at(self) -> bool:
        """Return True if the model was used while quaver was written."""
        return self.model not in unseen.NEWEST

    def source(self, tool: Tool) -> Path | None:
        """Return the float model in the format that the tool takes; None if there is none."""
        path = find_bench(self.model).model_path
        if path.suffix in tool.suffixes:
            return path
        if path.suffix == ".keras" and ".onnx" in tool.suffixes:
            return onnx_of(self.model)
        return None

    def flags(self, tool: Tool) -> list[str]:
        """Return the options of a job."""
        source = self.source(tool)
        other = [] if source == find_bench(self.model).model_path else ["--file", str(source)]
        return ["--transformer"] * self.transformer + other


SETUPS = {
    setup.model: setup
    for setup in (
        Setup("resnet8_cifar10"),
        Setup("mobilenetv2_cifar10"),
        Setup("ppocr_cls180"),
        Setup("ppocrv4_en_rec"),
        Setup("magika_filetype"),
        Setup("minilm_imdb", transformer=True),
        Setup("minilm_retrieval", transformer=True),
        Setup("fashion_dscnn"),
        Setup("page_orientation"),
        Setup("silero_vad"),
        *(Setup(name, transformer=name == "gte_small") for name in unseen.NEWEST),
    )
}
QUICK_SETUPS = ("ppocr_cls180", "magika_filetype")  # ready within a minute or two
QUICK_TOOLS = ("quaver", "ORT static, default", "ORT static, per channel")


def onnx_of(model: str) -> Path:
    """Return a Keras model as ONNX, by TensorFlow's converter and tf2onnx, with the inputs of its data."""
    target = CACHE / "converted" / f"{model}.onnx"
    if not target.exists():
        import tensorflow as tf

        bench = find_bench(model)
        target.parent.mkdir(parents=True, exist_ok=True)
        lite = target.with_suffix(".tflite")
        keras = tf.keras.models.load_model(bench.model_path)
        lite.write_bytes(tf.lite.TFLiteConverter.from_keras_model(keras).convert())
        made = convert(lite, target.with_suffix(".made.onnx"))
        named = _renamed(onnx.load(made), list(bench.eval_func.inputs))
        onnx.save(named, made)
        made.rename(target)
    return target


def convert(path: Path, target: Path) -> Path:
    """Write a LiteRT model as ONNX, by tf2onnx in an environment of its own."""
    command = [str(CONVERTER.python()), "-m", "tf2onnx.convert", "--tflite", str(path), "--opset", "17"]
    subprocess.run([*command, "--output", str(target)], check=True, capture_output=True, timeout=600)
    return target


def _renamed(model: onnx.ModelProto, names: list[str]) -> onnx.ModelProto:
    """Give the inputs of a model these names, in order."""
    new = {value.name: name for value, name in zip(model.graph.input, names, strict=True)}
    for value in model.graph.input:
        value.name = new[value.name]
    for node in model.graph.node:
        for index, name in enumerate(node.input):
            node.input[index] = new.get(name, name)
    return model
