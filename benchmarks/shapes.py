"""Models of real shape with random weights, to measure time and memory without downloading anything.

The weights are He-initialised and residual branches are damped, so activations stay finite and of order one through
the deepest graph. BatchNorm is already folded: every convolution has a bias. The seeds are fixed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Feed = dict[str, NDArray[Any]]

POSITIONS = 512
WORDS = "embeddings.word_embeddings.weight"


class Graph:
    """A graph under construction; each method adds a part and returns the name of its output.

    Names follow PyTorch's exporter: a weight is "layer1.0.conv1.weight", a node "/layer1.0/conv1/Conv".
    """

    def __init__(self, seed: int = 0) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, onnx.TensorProto] = {}
        self.rng = np.random.default_rng(seed)

    def add(self, kind: str, inputs: Sequence[str], scope: str, output: str = "", **attributes: Any) -> str:
        """Any node, named after its scope and kind."""
        name = f"{scope}/{kind}"
        output = output or f"{name}_output_0"
        self.nodes.append(helper.make_node(kind, inputs, [output], name, **attributes))
        return output

    def constant(self, name: str, values: Any, dtype: type = np.float32) -> str:
        """An initializer; asked for again, the same one."""
        if name not in self.initializers:
            self.initializers[name] = numpy_helper.from_array(np.asarray(values, dtype), name)
        return name

    def random(self, name: str, shape: Sequence[int], deviation: float, mean: float = 0.0) -> str:
        """An initializer of normally distributed numbers."""
        return self.constant(
            name, self.rng.standard_normal(shape, np.float32) * np.float32(deviation) + np.float32(mean)
        )

    def conv(
        self,
        x: str,
        scope: str,
        channels: tuple[int, int],
        kernel: int,
        stride: int = 1,
        groups: int = 1,
        gain: float = 1,
    ) -> str:
        """A convolution with bias that keeps the size, but for the stride."""
        inputs, name = channels[0] // groups, weight_name(scope)
        deviation = gain * math.sqrt(2 / (inputs * kernel**2))
        weight = self.random(f"{name}.weight", (channels[1], inputs, kernel, kernel), deviation)
        bias = self.random(f"{name}.bias", (channels[1],), 0.1 * gain)
        sizes: dict[str, Any] = {
            "kernel_shape": [kernel] * 2,
            "strides": [stride] * 2,
            "pads": [kernel // 2] * 4,
            "group": groups,
        }
        return self.add("Conv", [x, weight, bias], scope, **sizes)

    def relu6(self, x: str, scope: str) -> str:
        """Clip to 0..6."""
        return self.add("Clip", [x, self.constant("zero", 0), self.constant("six", 6)], scope)

    def linear(self, x: str, scope: str, inputs: int, outputs: int) -> str:
        """MatMul and bias, as a linear layer over tokens is exported."""
        name = weight_name(scope)
        weight = self.random(f"{name}.weight", (inputs, outputs), math.sqrt(1 / inputs))
        return self.add(
            "Add", [self.random(f"{name}.bias", (outputs,), 0.1), self.add("MatMul", [x, weight], scope)], scope
        )

    def layer_norm(self, x: str, scope: str, width: int, output: str = "") -> str:
        """LayerNormalization over the last axis."""
        name = weight_name(scope)
        scale, bias = self.random(f"{name}.weight", (width,), 0.1, 1.0), self.random(f"{name}.bias", (width,), 0.1)
        return self.add("LayerNormalization", [x, scale, bias], scope, output, axis=-1, epsilon=1e-12)

    def gelu(self, x: str, scope: str) -> str:
        """x * (erf(x / sqrt(2)) + 1) * 0.5, node by node."""
        erf = self.add("Erf", [self.add("Div", [x, self.constant("sqrt_2", math.sqrt(2))], scope)], scope)
        product = self.add("Mul", [x, self.add("Add", [erf, self.constant("one", 1)], scope)], scope)
        return self.add("Mul", [product, self.constant("half", 0.5)], f"{scope}/half")

    def model(
        self, name: str, inputs: dict[str, tuple[int, list[Any]]], outputs: dict[str, list[Any]]
    ) -> onnx.ModelProto:
        """The finished model, of inputs with type and shape and float outputs with shape."""
        arguments = [helper.make_tensor_value_info(key, kind, shape) for key, (kind, shape) in inputs.items()]
        results = [helper.make_tensor_value_info(key, TensorProto.FLOAT, shape) for key, shape in outputs.items()]
        graph = helper.make_graph(self.nodes, name, arguments, results, list(self.initializers.values()))
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def classifier(self, name: str, x: str, width: int, classes: int, image: tuple[int, int, int]) -> onnx.ModelProto:
        """The finished model of an image classifier: global average pool, flatten, Gemm."""
        x = self.add("Flatten", [self.add("GlobalAveragePool", [x], "/avgpool")], "/flatten", axis=1)
        weight = self.random("classifier.weight", (classes, width), math.sqrt(1 / width))
        bias = self.random("classifier.bias", (classes,), 0.1)
        self.add("Gemm", [x, weight, bias], "/classifier", "logits", transB=1)
        return self.model(name, {"image": (TensorProto.FLOAT, ["batch", *image])}, {"logits": ["batch", classes]})


def weight_name(scope: str) -> str:
    """The prefix of the weights of a scope: "/layer1.0/conv1" has "layer1.0.conv1"."""
    return scope.strip("/").replace("/", ".")


def resnet50() -> onnx.ModelProto:
    """ResNet-50 (stride in the 3x3 convolution): 53 convolutions, 16 residual Adds, 25.5 million weights."""
    graph = Graph()
    x = graph.add("Relu", [graph.conv("image", "/conv1", (3, 64), 7, 2)], "/relu")
    x = graph.add("MaxPool", [x], "/maxpool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    inputs = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 * 2**stage
        for block in range(blocks):
            scope, stride = f"/layer{stage + 1}.{block}", 2 if stage and not block else 1
            shortcut = x
            if not block:
                shortcut = graph.conv(x, f"{scope}/downsample", (inputs, 4 * width), 1, stride, gain=0.7)
            y = graph.add("Relu", [graph.conv(x, f"{scope}/conv1", (inputs, width), 1)], f"{scope}/relu1")
            y = graph.add("Relu", [graph.conv(y, f"{scope}/conv2", (width, width), 3, stride)], f"{scope}/relu2")
            y = graph.conv(y, f"{scope}/conv3", (width, 4 * width), 1, gain=0.3)
            x = graph.add("Relu", [graph.add("Add", [y, shortcut], scope)], scope)
            inputs = 4 * width
    return graph.classifier("resnet50", x, inputs, 1000, (3, 224, 224))


def mobilenet_v2() -> onnx.ModelProto:
    """MobileNetV2 of width 1: 52 convolutions (17 depthwise), 10 residual Adds, 3.5 million weights."""
    graph, inputs, number = Graph(), 32, 0
    x = graph.relu6(graph.conv("image", "/features.0/conv", (3, inputs), 3, 2), "/features.0")
    stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for expansion, outputs, blocks, first_stride in stages:
        for stride in (first_stride, *[1] * (blocks - 1)):
            number += 1
            scope, hidden, y = f"/features.{number}", inputs * expansion, x
            if expansion > 1:
                y = graph.relu6(graph.conv(y, f"{scope}/expand", (inputs, hidden), 1), f"{scope}/expand")
            y = graph.conv(y, f"{scope}/depthwise", (hidden, hidden), 3, stride, groups=hidden)
            y = graph.relu6(y, f"{scope}/depthwise")
            residual = stride == 1 and inputs == outputs
            y = graph.conv(y, f"{scope}/project", (hidden, outputs), 1, gain=0.3 if residual else 0.7)
            x = graph.add("Add", [x, y], scope) if residual else y
            inputs = outputs
    x = graph.relu6(graph.conv(x, "/features.18/conv", (inputs, 1280), 1), "/features.18")
    return graph.classifier("mobilenet_v2", x, 1280, 1000, (3, 224, 224))


def bert_base(layers: int = 12, hidden: int = 768, heads: int = 12, vocab: int = 30522) -> onnx.ModelProto:
    """BERT with its pooler, as exported from PyTorch: 8 MatMuls a layer, 109 million weights."""
    graph, width = Graph(), hidden // heads
    x, mask = _embeddings(graph, hidden, vocab), _mask(graph)
    split = graph.constant("split_heads", (0, 0, heads, width), np.int64)
    merge = graph.constant("merge_heads", (0, 0, hidden), np.int64)
    for layer in range(layers):
        scope = f"/encoder/layer.{layer}"
        attention, parts = f"{scope}/attention/self", {}
        for part, order in (("query", (0, 2, 1, 3)), ("key", (0, 2, 3, 1)), ("value", (0, 2, 1, 3))):
            y = graph.linear(x, f"{attention}/{part}", hidden, hidden)
            y = graph.add("Reshape", [y, split], f"{attention}/{part}")
            parts[part] = graph.add("Transpose", [y], f"{attention}/{part}", perm=order)
        scores = graph.add("MatMul", [parts["query"], parts["key"]], f"{attention}/scores")
        scores = graph.add("Div", [scores, graph.constant("sqrt_width", math.sqrt(width))], f"{attention}/scores")
        scores = graph.add("Add", [scores, mask], f"{attention}/scores")
        weights = graph.add("Softmax", [scores], f"{attention}/scores", axis=-1)
        y = graph.add("MatMul", [weights, parts["value"]], f"{attention}/context")
        y = graph.add("Transpose", [y], f"{attention}/context", perm=(0, 2, 1, 3))
        y = graph.add("Reshape", [y, merge], f"{attention}/context")
        y = graph.linear(y, f"{scope}/attention/output/dense", hidden, hidden)
        x = graph.layer_norm(graph.add("Add", [y, x], f"{scope}/attention/output"), f"{scope}/attention/output", hidden)
        y = graph.gelu(graph.linear(x, f"{scope}/intermediate/dense", hidden, 4 * hidden), f"{scope}/intermediate")
        y = graph.linear(y, f"{scope}/output/dense", 4 * hidden, hidden)
        last = "last_hidden_state" if layer == layers - 1 else ""
        x = graph.layer_norm(graph.add("Add", [y, x], f"{scope}/output"), f"{scope}/output", hidden, last)
    first = graph.add("Gather", [x, graph.constant("first", 0, np.int64)], "/pooler", axis=1)
    weight = graph.random("pooler.dense.weight", (hidden, hidden), math.sqrt(1 / hidden))
    y = graph.add("Gemm", [first, weight, graph.random("pooler.dense.bias", (hidden,), 0.1)], "/pooler/dense", transB=1)
    graph.add("Tanh", [y], "/pooler", "pooler_output")
    tokens: tuple[int, list[Any]] = (TensorProto.INT64, ["batch", "sequence"])
    inputs = dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), tokens)
    outputs = {"last_hidden_state": ["batch", "sequence", hidden], "pooler_output": ["batch", hidden]}
    return graph.model("bert", inputs, outputs)


def _embeddings(graph: Graph, hidden: int, vocab: int) -> str:
    """The normalised sum of word, segment and position embeddings, for any length up to POSITIONS."""
    scope = "/embeddings"
    words = graph.add("Gather", [graph.random(WORDS, (vocab, hidden), 0.5), "input_ids"], f"{scope}/word")
    table = graph.random("embeddings.token_type_embeddings.weight", (2, hidden), 0.5)
    segments = graph.add("Gather", [table, "token_type_ids"], f"{scope}/token_type")
    length = graph.add("Shape", ["input_ids"], scope, start=1, end=2)
    table = graph.random("embeddings.position_embeddings.weight", (POSITIONS, hidden), 0.5)
    start, axis = graph.constant("slice_start", [0], np.int64), graph.constant("slice_axis", [0], np.int64)
    positions = graph.add("Slice", [table, start, length, axis], f"{scope}/position")
    x = graph.add("Add", [words, segments], f"{scope}/word")
    return graph.layer_norm(graph.add("Add", [x, positions], f"{scope}/position"), f"{scope}/LayerNorm", hidden)


def _mask(graph: Graph) -> str:
    """What is added to the attention scores: 0 for a token, -10000 for padding."""
    axes = graph.constant("mask_axes", [1, 2], np.int64)
    mask = graph.add("Unsqueeze", ["attention_mask", axes], "/mask")
    mask = graph.add("Cast", [mask], "/mask", to=TensorProto.FLOAT)
    mask = graph.add("Sub", [graph.constant("one", 1), mask], "/mask")
    return graph.add("Mul", [mask, graph.constant("minus_10000", -10000)], "/mask")


def minilm() -> onnx.ModelProto:
    """The shape of all-MiniLM-L6: 6 layers of width 384, 22.7 million weights."""
    return bert_base(layers=6, hidden=384, heads=12)


def chain(n_ops: int, channels: int = 8, size: int = 4) -> onnx.ModelProto:
    """A residual CNN of about `n_ops` quantizable ops on tiny tensors: two convolutions and an Add a block."""
    graph, blocks = Graph(), max(1, (n_ops - 3) // 3)
    x, pair = graph.add("Relu", [graph.conv("image", "/stem", (3, channels), 3)], "/stem"), (channels, channels)
    for block in range(blocks):
        scope = f"/blocks.{block}"
        y = graph.add("Relu", [graph.conv(x, f"{scope}/conv1", pair, 3)], f"{scope}/conv1")
        y = graph.conv(y, f"{scope}/conv2", pair, 3, gain=0.5 / math.sqrt(blocks))
        x = graph.add("Relu", [graph.add("Add", [y, x], scope)], scope)
    return graph.classifier("chain", x, channels, 10, (3, size, size))


def feeds(model: onnx.ModelProto, count: int, batch: int = 1, seed: int = 0, sequence: int = 128) -> Iterator[Feed]:
    """Random inputs: normal images; tokens with padding at the end of every sequence but the first of a batch."""
    rng, sizes = np.random.default_rng(seed), {"batch": batch, "sequence": sequence}
    vocab = next((weight.dims[0] for weight in model.graph.initializer if weight.name == WORDS), 0)
    for _ in range(count):
        if not vocab:
            dims = model.graph.input[0].type.tensor_type.shape.dim
            shape = [sizes[dim.dim_param] if dim.dim_param else dim.dim_value for dim in dims]
            yield {model.graph.input[0].name: rng.standard_normal(shape, np.float32)}
            continue
        lengths = rng.integers(sequence // 2, sequence, (batch, 1), endpoint=True)
        lengths[0] = sequence
        mask = np.arange(sequence) < lengths
        segments = mask & (np.arange(sequence) >= lengths // 2)
        ids = np.where(mask, rng.integers(1, vocab, (batch, sequence)), 0)
        named = {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}
        yield {name: values.astype(np.int64) for name, values in named.items()}
