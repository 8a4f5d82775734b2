"""Modules to export: a CNN, a transformer, and some that no exporter gets right."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

CLASSES, VOCABULARY = 4, 50


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.conv(x))) + x


class Images(nn.Module):
    """A residual CNN with pooling over any size."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 16, 3)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(16, CLASSES)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.stem(image)
        for block in self.blocks:
            x = block(x)
        scores: torch.Tensor = self.head(x.mean((2, 3)))
        return scores


class Texts(nn.Module):
    """A transformer with an optional mask, and a dict of outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, CLASSES)

    def forward(
        self, ids: torch.Tensor, scale: torch.Tensor | None = None, labels: torch.Tensor | None = None
    ) -> dict[str, Any]:
        hidden = self.encoder(self.embedding(ids))
        logits = self.head(hidden.mean(1))
        logits = logits if scale is None else logits * scale
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits, "hidden": (hidden, hidden[:, 0])}


class Deciding(nn.Module):
    """It takes another branch for other values, which no export can do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layer(x)
        return result if x.sum() > 0 else -result


class Pretending(nn.Module):
    """It computes something else while it is exported."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layer(x)
        is_exported = torch.compiler.is_exporting() or torch.jit.is_tracing()
        return result * 1.05 if is_exported else result


@torch.no_grad()
def agreement(module: nn.Module, inputs: torch.Tensor, output: str = "") -> Any:
    """An eval_func: how often a model chooses the class that the module chooses, called as modules are."""
    module.eval()
    results = module(inputs)
    expected = (results[output] if output else results).argmax(dim=1)

    def score(model: Any) -> float:
        results = model.eval()(inputs.to(model.device))
        scores = getattr(results, output) if output else results
        assert isinstance(scores, torch.Tensor)
        return float((scores.argmax(dim=1) == expected).float().mean())

    return score
