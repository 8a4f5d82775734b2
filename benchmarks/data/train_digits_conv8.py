"""Train the network of `benchmarks/planted.py`: eight convolutions on scikit-learn's digits.

    python benchmarks/data/train_digits_conv8.py

Needs torch and scikit-learn; a minute on one core. One thread and a fixed seed: a run repeats itself on the same
machine. BatchNorm is folded, so that every convolution has a bias and planting an outlier is plain arithmetic.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from quaver.demo.data import digits

PATH = Path(__file__).with_name("digits_conv8.onnx")
EPOCHS, BATCH, SEED = 12, 32, 1


def conv_bn(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    """A 3x3 convolution and its BatchNorm."""
    conv = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class Block(nn.Module):
    """Two convolutions with a Relu between them, added to the input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second, self.relu = conv_bn(width, width), conv_bn(width, width), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.second(self.relu(self.first(x))) + x)


def network() -> nn.Module:
    """Stem, block, convolution with stride 2, block, and two more convolutions: eight in all."""
    return nn.Sequential(
        conv_bn(1, 16), nn.ReLU(), Block(16),
        conv_bn(16, 24, stride=2), nn.ReLU(), Block(24),
        conv_bn(24, 32, stride=2), nn.ReLU(), conv_bn(32, 32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip


def train() -> nn.Module:
    """Adam with a cosine schedule over shuffled batches."""
    torch.manual_seed(SEED)
    x, y, _, _ = digits()
    model, images, labels = network(), torch.from_numpy(x), torch.from_numpy(y)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * (len(x) // BATCH))
    for _ in range(EPOCHS):
        for chosen in torch.randperm(len(x))[: len(x) // BATCH * BATCH].split(BATCH):
            loss = nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model.eval()


def main() -> None:
    """Train, export and score."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    model = train()
    axes = {"image": {0: "batch"}, "logits": {0: "batch"}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the TorchScript exporter announces its retirement
        torch.onnx.export(
            model, (torch.zeros(1, 1, 8, 8),), PATH, opset_version=17, dynamo=False,
            input_names=["image"], output_names=["logits"], dynamic_axes=axes,
        )  # fmt: skip
    _, _, x, y = digits()
    score = (model(torch.from_numpy(x)).argmax(1).numpy() == y).mean()
    print(f"{PATH.name}: {PATH.stat().st_size / 1000:.0f} KB, accuracy {score:.4f}")


if __name__ == "__main__":
    main()
