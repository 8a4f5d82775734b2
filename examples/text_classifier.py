"""Tune a text classifier with a tokenizer: batches are dicts by input name, as from Hugging Face's tokenizers.

The texts are sentences from the docstrings of installed packages, and the label is the package. The network is small:
an embedding table, the mean over the unmasked words, and two layers.
"""

import inspect
import re
from importlib import import_module

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

import quaver

SOURCES = (
    ("numpy", "numpy.linalg", "numpy.ma"),
    ("scipy.stats", "scipy.signal"),
    ("sklearn.linear_model", "sklearn.svm"),
)
LENGTH, WIDTH = 24, 64


def sentences(modules):
    """Return sentences from the docstrings of some modules, without the names of packages."""
    docs = {inspect.getdoc(value) or "" for name in modules for value in vars(import_module(name)).values()}
    parts = {re.sub(r"\W+", " ", part).strip() for doc in docs for part in re.split(r"\.\s|\n\s*\n", doc)}
    hidden = re.compile(r"\b(numpy|np|scipy|sklearn|scikit|learn)\b", re.IGNORECASE)
    chosen = sorted(text for part in parts if 6 <= len((text := hidden.sub("", part)).split()) <= 40)
    return chosen[:: max(len(chosen) // 400, 1)]


class Tokenizer:
    """Turns words into numbers, with padding and a mask."""

    def __init__(self, texts):
        self.vectorizer = TfidfVectorizer(max_features=2000).fit(texts)
        self.numbers = {word: number + 1 for word, number in self.vectorizer.vocabulary_.items()}

    def __call__(self, texts):
        """Return a dict of arrays; 0 stands for padding and unknown words."""
        ids = np.zeros((len(texts), LENGTH), np.int64)
        for row, text in zip(ids, texts, strict=True):
            numbers = [self.numbers[word] for word in re.findall(r"\w\w+", text.lower()) if word in self.numbers]
            row[: len(numbers[:LENGTH])] = numbers[:LENGTH]
        return {"input_ids": ids, "attention_mask": (ids > 0).astype(np.int64)}


def pooled(table, tokens):
    """Return the mean of the unmasked rows, which is the input of the first layer."""
    mask = tokens["attention_mask"][..., None]
    return (table[tokens["input_ids"]] * mask).sum(axis=1) / np.maximum(mask.sum(axis=1), 1)


def network(table, classifier):
    """Return the trained parts as an ONNX model."""
    constants = {"table": table, "one": np.float32(1), "axes1": np.array([1]), "axes2": np.array([2])}
    for number, (weight, bias) in enumerate(zip(classifier.coefs_, classifier.intercepts_, strict=True)):
        constants |= {f"w{number}": weight.astype(np.float32), f"b{number}": bias.astype(np.float32)}
    nodes = [
        ("Gather", ["table", "input_ids"], "words"),
        ("Cast", ["attention_mask"], "mask", {"to": TensorProto.FLOAT}),
        ("Unsqueeze", ["mask", "axes2"], "column"),
        ("Mul", ["words", "column"], "left"),
        ("ReduceSum", ["left", "axes1"], "sum", {"keepdims": 0}),
        ("ReduceSum", ["column", "axes1"], "count", {"keepdims": 0}),
        ("Max", ["count", "one"], "counted"),
        ("Div", ["sum", "counted"], "mean"),
        ("Gemm", ["mean", "w0", "b0"], "hidden"),
        ("Relu", ["hidden"], "active"),
        ("Gemm", ["active", "w1", "b1"], "logits"),
    ]
    graph_nodes = [helper.make_node(op, inputs, [name], name, **dict(*more)) for op, inputs, name, *more in nodes]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["n", LENGTH])
        for name in ("input_ids", "attention_mask")
    ]
    output = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", len(SOURCES)])
    initializers = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(graph_nodes, "text", inputs, [output], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


groups = [sentences(modules) for modules in SOURCES]
texts = [text for group in groups for text in group]
labels = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
train, test, train_labels, test_labels = train_test_split(texts, labels, random_state=0, stratify=labels)

tokenizer = Tokenizer(train)
svd = TruncatedSVD(WIDTH, random_state=0).fit(tokenizer.vectorizer.transform(train))
table = np.vstack([np.zeros(WIDTH), (svd.components_ * tokenizer.vectorizer.idf_).T * 10]).astype(np.float32)
classifier = MLPClassifier((64,), max_iter=40, random_state=0).fit(pooled(table, tokenizer(train)), train_labels)

batches = [tokenizer(test[start : start + 64]) for start in range(0, len(test), 64)]


def accuracy(model):
    """Return the share of sentences with the right package."""
    predicted = np.concatenate([model(batch).argmax(axis=1) for batch in batches])
    return float((predicted == test_labels).mean())


result = quaver.fit(
    network(table, classifier),
    calib_dataloader=[tokenizer(train[start : start + 16]) for start in range(0, 128, 16)],
    eval_func=accuracy,
    objective="size",  # most of the model is the table, which shrinks to a quarter in 8 bits
)
print(result)
print(f"{result.model.size:,} bytes; the table alone has {table.nbytes:,} in fp32")
