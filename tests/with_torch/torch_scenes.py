"""What readers of the pages about PyTorch and Hugging Face have: a trained network, data, and a tokenizer."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from quaver.demo.data import digits

POOR = ("dull", "slow", "noisy", "broken", "bland", "late", "ugly", "weak", "stale", "rude")
FINE = ("bright", "quick", "quiet", "whole", "rich", "early", "pretty", "strong", "fresh", "kind")
PLAIN = ("the", "film", "meal", "train", "room", "was", "and", "rather", "with", "a", "story", "staff")


def train(module: nn.Module, inputs: torch.Tensor, labels: torch.Tensor, epochs: int) -> None:
    """A short training of a classifier."""
    optimizer = torch.optim.Adam(module.parameters(), 0.003)
    for _ in range(epochs):
        for rows in torch.randperm(len(inputs)).split(32):
            loss = nn.functional.cross_entropy(module(inputs[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def of_images() -> dict[str, Any]:
    """A module that reads digits as images of 224 x 224 in three channels."""
    torch.manual_seed(0)
    train_images, train_labels, images, labels = digits()
    x, y = _enlarged(train_images[:480]), torch.from_numpy(train_labels[:480])
    module = nn.Sequential(
        nn.Conv2d(3, 32, 28, stride=28), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 10),
    )  # fmt: skip
    train(module, x, y, epochs=6)
    test = _enlarged(images[:200])
    return {
        "module": module,
        "loader": DataLoader(TensorDataset(x[:64], y[:64]), batch_size=16),
        "test_loader": DataLoader(TensorDataset(test, torch.from_numpy(labels[:200])), batch_size=50),
        "images": test,
        "labels": labels[:200],
    }


def _enlarged(images: Any) -> torch.Tensor:
    return torch.from_numpy(np.kron(images, np.ones((1, 3, 28, 28), np.float32)))


class Logits(nn.Module):
    """A classifier of Hugging Face with plain tensors as its inputs and output."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask).logits
        return found


def of_texts() -> dict[str, Any]:
    """A folder `my_model` as `save_pretrained` writes it: a small DistilBERT that tells praise from blame."""
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    torch.manual_seed(0)
    texts, labels = _reviews(600)
    tokenizer = _tokenizer()
    tokenizer.save_pretrained("my_model")
    config = DistilBertConfig(
        vocab_size=len(tokenizer), dim=64, hidden_dim=128, n_layers=2, n_heads=4, max_position_embeddings=32
    )
    module = Logits(DistilBertForSequenceClassification(config))
    tokens = tokenizer(texts, padding=True, return_tensors="pt")
    optimizer = torch.optim.Adam(module.parameters(), 0.002)
    for _ in range(3):
        for rows in torch.randperm(400).split(32):
            logits = module(tokens["input_ids"][rows], tokens["attention_mask"][rows])
            loss = nn.functional.cross_entropy(logits, torch.tensor(labels)[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    module.model.save_pretrained("my_model")
    return {"train_texts": texts[:400], "test_texts": texts[400:], "test_labels": labels[400:]}


def save_onnx(module: nn.Module, tokens: tuple[torch.Tensor, ...], path: Path) -> None:
    """With both axes of the tokens left open."""
    names = ["input_ids", "bbox", "attention_mask"] if len(tokens) == 3 else ["input_ids", "attention_mask"]
    axes = {name: {0: "n", 1: "length"} for name in names} | {"logits": {0: "n"}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # this exporter announces its retirement
        torch.onnx.export(
            module.eval(), tokens, path, input_names=names, output_names=["logits"], dynamic_axes=axes,
            opset_version=17, dynamo=False,
        )  # fmt: skip


def _reviews(count: int) -> tuple[list[str], list[int]]:
    chance = np.random.default_rng(0)
    labels = chance.integers(0, 2, count).tolist()
    texts = []
    for label in labels:
        words = [*chance.choice(PLAIN, chance.integers(3, 9)), *chance.choice((POOR, FINE)[label], 2)]
        texts.append(" ".join(chance.permutation(words)))
    return texts, labels


def _tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {word: number for number, word in enumerate(("[PAD]", "[UNK]", *PLAIN, *POOR, *FINE))}
    plain = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="[PAD]", unk_token="[UNK]", model_max_length=32,
        model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip
