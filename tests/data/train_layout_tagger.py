"""Train the tagger of tests/data/layout_tagger.onnx: the architecture of LayoutLMv3, small, on made-up forms.

    python tests/data/train_layout_tagger.py

Needs torch, onnx and onnxruntime; some minutes on one core. The graph is written as an exporter of that model does it,
with the same names: a mask of -3.4e38 is added to the scores, and a division, a maximum and a subtraction stand between
it and the Softmax. As in the large model, two channels of what the feed-forward layers write are far from all others
(here they are born so); LayerNorm takes them away, and its factors make up for the others.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from forms import KEYS, LENGTH, PLACES, WORDS, f1, forms

PATH = Path(__file__).with_name("layout_tagger.onnx")
WIDTH, INNER, HEADS, LAYERS = 48, 96, 4, 3
FAR, ALPHA, BUCKETS = 900.0, 32.0, 2 * PLACES + 1
STEPS, BATCH, SEED = 700, 48, 0


class Attention(nn.Module):
    """Scores with biases by relative place, a mask, and CogView's way to keep them small."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.dense = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor, bias: Tensor, mask: Tensor) -> Tensor:
        def heads(y: Tensor) -> Tensor:
            return y.view(*y.shape[:2], HEADS, -1).transpose(1, 2)

        size = (WIDTH // HEADS) ** 0.5
        scores = heads(self.query(x)) / size @ heads(self.key(x)).transpose(2, 3) + bias / size + mask
        scaled = scores / ALPHA
        weights = torch.softmax((scaled - scaled.amax(-1, keepdim=True)) * ALPHA, -1)
        return self.dense((weights @ heads(self.value(x))).transpose(1, 2).reshape(x.shape))


class Layer(nn.Module):
    """Attention and feed-forward, each added to what it read and normalised behind."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.norm = Attention(), nn.LayerNorm(WIDTH, eps=1e-5)
        self.intermediate, self.dense = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)
        self.output_norm = nn.LayerNorm(WIDTH, eps=1e-5)
        with torch.no_grad():
            self.dense.bias[0], self.dense.bias[1] = FAR, -FAR
            self.output_norm.weight.fill_(FAR * (2 / WIDTH) ** 0.5)
            self.output_norm.weight[:2] = 0.05

    def forward(self, x: Tensor, bias: Tensor, mask: Tensor) -> Tensor:
        x = self.norm(self.attention(x, bias, mask) + x)
        return self.output_norm(self.dense(torch.relu(self.intermediate(x))) + x)


class Tagger(nn.Module):
    """Words and places in, tags out."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.columns, self.lines = (
            nn.Embedding(WORDS, WIDTH),
            nn.Embedding(PLACES, WIDTH),
            nn.Embedding(PLACES, WIDTH),
        )
        self.norm = nn.LayerNorm(WIDTH, eps=1e-5)
        self.across, self.down = nn.Embedding(BUCKETS, HEADS), nn.Embedding(BUCKETS, HEADS)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.classifier = nn.Linear(WIDTH, KEYS + 1)

    def forward(self, ids: Tensor, boxes: Tensor, mask: Tensor) -> Tensor:
        column, line = boxes[..., 0], boxes[..., 1]
        x = self.norm(self.words(ids) + self.columns(column) + self.lines(line))
        bias = (self.across(_apart(column)) + self.down(_apart(line))).permute(0, 3, 1, 2)
        masked = (1 - mask.float())[:, None, None] * torch.finfo(torch.float32).min
        for layer in self.layers:
            x = layer(x, bias, masked)
        return self.classifier(x)


def _apart(places: Tensor) -> Tensor:
    return places[:, :, None] - places[:, None, :] + PLACES


def train() -> Tagger:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    model = Tagger()
    optimiser = torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 4e-3, STEPS)
    for step in range(STEPS):
        inputs, tags = forms(BATCH, SEED + 1000 + step)
        logits = model(*map(torch.from_numpy, inputs.values()))
        loss = nn.functional.cross_entropy(
            logits.reshape(-1, KEYS + 1), torch.from_numpy(tags).reshape(-1), ignore_index=-1
        )
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if step % 100 == 99:
            print(step + 1, loss.item(), flush=True)
    return model.eval()


class Writer:
    """An ONNX graph, node by node."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}

    def constant(self, name: str, value: object, dtype: type = np.float32) -> str:
        array = value.detach().numpy() if isinstance(value, Tensor) else np.asarray(value)
        self.constants[name] = np.array(array, dtype, order="C")
        return name

    def node(self, kind: str, name: str, *inputs: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(kind, list(inputs), [f"{name}_output_0"], name, **attributes))
        return f"{name}_output_0"

    def dense(self, name: str, layer: nn.Linear, source: str) -> str:
        weight = self.constant(f"{name}/MatMul.weight", layer.weight.T)
        product = self.node("MatMul", f"{name}/MatMul", source, weight)
        return self.node("Add", f"{name}/Add", self.constant(f"{name}.bias", layer.bias), product)

    def norm(self, name: str, layer: nn.LayerNorm, source: str) -> str:
        weights = self.constant(f"{name}.weight", layer.weight), self.constant(f"{name}.bias", layer.bias)
        return self.node("LayerNormalization", f"{name}/LayerNormalization", source, *weights, axis=-1, epsilon=1e-5)


def write(model: Tagger) -> onnx.ModelProto:
    graph, top = Writer(), "/layoutlmv3"
    one = graph.constant("one", 1.0)
    low = graph.constant("lowest", torch.finfo(torch.float32).min)
    size, alpha = graph.constant("size", (WIDTH // HEADS) ** 0.5), graph.constant("alpha", ALPHA)
    split = graph.constant("split", [0, 0, HEADS, WIDTH // HEADS], np.int64)
    join = graph.constant("join", [0, 0, WIDTH], np.int64)
    middle, places = graph.constant("middle", [1, 2], np.int64), graph.constant("places", PLACES, np.int64)
    across, along = graph.constant("across", [1], np.int64), graph.constant("along", [2], np.int64)
    parts = []
    for name, number in (("x", 0), ("y", 1)):
        at = graph.constant(f"which_{name}", number, np.int64)
        parts.append(graph.node("Gather", f"{top}/embeddings/{name}/Gather", "bbox", at, axis=2))
    tables = [
        graph.node(
            "Gather", f"{top}/embeddings/{name}_embeddings/Gather", graph.constant(f"{name}.table", table.weight), ids
        )
        for name, table, ids in (
            ("word", model.words, "input_ids"),
            ("x", model.columns, parts[0]),
            ("y", model.lines, parts[1]),
        )
    ]
    summed = graph.node("Add", f"{top}/embeddings/Add", tables[0], tables[1])
    x = graph.norm(
        f"{top}/embeddings/LayerNorm", model.norm, graph.node("Add", f"{top}/embeddings/Add_1", summed, tables[2])
    )
    biases = []
    for name, place, table in (("x", parts[0], model.across), ("y", parts[1], model.down)):
        start = f"{top}/encoder/rel_2d_pos_{name}"
        pair = [
            graph.node("Unsqueeze", f"{start}/Unsqueeze{suffix}", place, axis)
            for suffix, axis in (("", along), ("_1", across))
        ]
        apart = graph.node("Add", f"{start}/Add", graph.node("Sub", f"{start}/Sub", *pair), places)
        looked = graph.node("Gather", f"{start}/Gather", graph.constant(f"rel_{name}.table", table.weight), apart)
        biases.append(graph.node("Transpose", f"{start}/Transpose", looked, perm=[0, 3, 1, 2]))
    bias = graph.node("Add", f"{top}/encoder/Add", *biases)
    shown = graph.node(
        "Unsqueeze", f"{top}/Unsqueeze", graph.node("Cast", f"{top}/Cast", "attention_mask", to=1), middle
    )
    masked = graph.node("Mul", f"{top}/Mul", graph.node("Sub", f"{top}/Sub", one, shown), low)
    for number, layer in enumerate(model.layers):
        x = _layer(graph, f"{top}/encoder/layer.{number}", layer, x, bias, masked, size, alpha, split, join)
    graph.dense("/classifier", model.classifier, x)
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "words", *more])
        for name, more in (("input_ids", []), ("bbox", [2]), ("attention_mask", []))
    ]
    output = helper.make_tensor_value_info("/classifier/Add_output_0", TensorProto.FLOAT, ["batch", "words", KEYS + 1])
    constants = [numpy_helper.from_array(array, name) for name, array in graph.constants.items()]
    made = helper.make_graph(graph.nodes, "layout_tagger", inputs, [output], constants)
    proto = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(proto, full_check=True)
    return proto


def _layer(graph: Writer, name: str, layer: Layer, x: str, bias: str, masked: str, *constants: str) -> str:
    size, alpha, split, join = constants
    own = f"{name}/attention/self"

    def heads(kind: str, dense: nn.Linear, order: list[int]) -> str:
        flat = graph.dense(f"{own}/{kind}", dense, x)
        return graph.node(
            "Transpose",
            f"{own}/{kind}/Transpose",
            graph.node("Reshape", f"{own}/{kind}/Reshape", flat, split),
            perm=order,
        )

    query = graph.node("Div", f"{own}/Div", heads("query", layer.attention.query, [0, 2, 1, 3]), size)
    scores = graph.node("MatMul", f"{own}/MatMul", query, heads("key", layer.attention.key, [0, 2, 3, 1]))
    scores = graph.node("Add", f"{own}/Add", scores, graph.node("Div", f"{own}/Div_1", bias, size))
    scaled = graph.node("Div", f"{own}/Div_2", graph.node("Add", f"{own}/Add_1", scores, masked), alpha)
    largest = graph.node("ReduceMax", f"{own}/ReduceMax", scaled, axes=[-1], keepdims=1)
    small = graph.node("Mul", f"{own}/Mul", graph.node("Sub", f"{own}/Sub", scaled, largest), alpha)
    weights = graph.node("Softmax", f"{own}/Softmax", small, axis=-1)
    mixed = graph.node("MatMul", f"{own}/MatMul_1", weights, heads("value", layer.attention.value, [0, 2, 1, 3]))
    flat = graph.node(
        "Reshape", f"{own}/Reshape", graph.node("Transpose", f"{own}/Transpose", mixed, perm=[0, 2, 1, 3]), join
    )
    attended = graph.dense(f"{name}/attention/output/dense", layer.attention.dense, flat)
    added = graph.node("Add", f"{name}/attention/output/Add", attended, x)
    x = graph.norm(f"{name}/attention/output/LayerNorm", layer.norm, added)
    inner = graph.node(
        "Relu", f"{name}/intermediate/Relu", graph.dense(f"{name}/intermediate/dense", layer.intermediate, x)
    )
    added = graph.node("Add", f"{name}/output/Add", graph.dense(f"{name}/output/dense", layer.dense, inner), x)
    return graph.norm(f"{name}/output/LayerNorm", layer.output_norm, added)


def main() -> None:
    model = train()
    proto = write(model)
    inputs, tags = forms(200, SEED)
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (logits,) = session.run(None, inputs)
    with torch.no_grad():
        expected = model(*map(torch.from_numpy, inputs.values())).numpy()
    np.testing.assert_allclose(logits[tags >= 0], expected[tags >= 0], rtol=1e-2, atol=1e-2)
    print(f"{PATH.name}: f1 {f1(logits.argmax(-1), tags):.4f}, {proto.ByteSize() / 1e3:.0f} KB, {LENGTH} words at most")
    onnx.save(proto, PATH)


if __name__ == "__main__":
    main()
