"""Damage planted in a convolution net and in a stack of matrix products: the op, and what has to be said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from diagnosis_models import CHANNELS, SIZE, Array, Net, noise
from onnx import TensorProto, helper

import quaver

FACTOR = 400.0
# The channel that is planted.
CHANNEL = 5


@dataclass
class Case:
    """A model with one fault.

    Attributes:
        model: the model.
        data: the samples that it is diagnosed on.
        op: the op that is to blame.
        kinds: the kinds of cause that are right.
        word: what the sentence has to name.
        calibration: other samples to calibrate with; the same if None.
        settings: of the diagnosis.
    """

    model: onnx.ModelProto
    data: Array
    op: str
    kinds: tuple[str, ...]
    word: str
    calibration: Array | None = None
    settings: dict[str, Any] = field(default_factory=dict)


class Architecture:
    """Three layers with weights, called first, second and third, with a Relu behind each of the first two."""

    def __init__(self, kind: str) -> None:
        self.is_conv = kind == "conv"
        self.net = Net()
        if not self.is_conv:
            self.net.input = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", SIZE, CHANNELS])
        self.weights = {
            name: noise(CHANNELS, CHANNELS, *((3, 3) if self.is_conv else ()), seed=seed)
            for seed, name in enumerate(("first", "second", "third"), 1)
        }
        self.biases = {name: noise(CHANNELS, seed=7) for name in self.weights}

    def images(self, seed: int = 1, count: int = 64) -> Array:
        shape = (count, CHANNELS, SIZE, SIZE) if self.is_conv else (count, SIZE, CHANNELS)
        return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)

    def per_channel(self, values: Array) -> Array:
        """A vector of channels in the shape that broadcasts over an activation."""
        return np.float32(values).reshape(-1, 1, 1) if self.is_conv else np.float32(values)

    @property
    def axis(self) -> int:
        return 1 if self.is_conv else 2

    def channels(self, **chosen: float) -> Array:
        """Ones, but for the planted channel."""
        values = np.ones(CHANNELS, np.float32)
        values[CHANNEL] = chosen["planted"]
        return values

    def scale_inputs(self, layer: str, factors: Array) -> None:
        """Multiply the weights by a factor for each input channel."""
        self.weights[layer] *= factors.reshape(1, -1, *([1, 1] if self.is_conv else []))

    def scale_outputs(self, layer: str, factors: Array) -> None:
        """Multiply weights and biases by a factor for each output channel."""
        self.weights[layer] *= factors.reshape(-1, *([1] * (self.weights[layer].ndim - 1)))
        self.biases[layer] *= factors

    def layer(self, name: str, x: str) -> str:
        weight, bias = self.weights[name], self.biases[name]
        if self.is_conv:
            return str(self.net.add("Conv", name, x, weight, bias, pads=[weight.shape[2] // 2] * 4))
        product = self.net.add("MatMul", name, x, np.ascontiguousarray(weight.T))
        return str(self.net.add("Add", f"{name} bias", product, bias))

    def relu(self, name: str, x: str) -> str:
        return str(self.net.add("Relu", name, x))

    def chain(self, x: str = "x") -> onnx.ModelProto:
        """All three layers, one after another."""
        for name in ("first", "second"):
            x = self.relu(f"{name} relu", self.layer(name, x))
        return self.net.model(self.layer("third", x))


def weight_outlier_of_an_input_channel(a: Architecture) -> Case:
    """The first layer multiplies by FACTOR a channel of the data that is 1/FACTOR of the others."""
    a.scale_inputs("first", a.channels(planted=FACTOR))
    data = a.images() / a.per_channel(a.channels(planted=FACTOR))
    return Case(a.chain(), data, "first", ("weight_outlier", "tiny_channel"), f"input channel {CHANNEL}")


def weight_outlier_of_an_output_channel(a: Architecture) -> Case:
    """One output channel is large, and the rules leave one scale for all."""
    a.scale_outputs("first", a.channels(planted=FACTOR))
    a.scale_inputs("second", 1 / a.channels(planted=FACTOR))
    rules = {"first": {"weight": {"granularity": ["per_tensor"]}}}
    kinds = ("one_weight_scale",)
    return Case(a.chain(), a.images(), "first", kinds, f"output channel {CHANNEL}", settings={"op_name_dict": rules})


def activation_outlier(a: Architecture) -> Case:
    """One channel between two layers is FACTOR times as large as the others."""
    a.scale_outputs("first", a.channels(planted=FACTOR))
    a.scale_inputs("second", 1 / a.channels(planted=FACTOR))
    return Case(a.chain(), a.images(), "second", ("outlier_channel",), f"channel {CHANNEL}")


def dead_range(a: Architecture) -> Case:
    """All values lie far from zero, which a range has to hold, too."""
    data = a.images() + np.float32(FACTOR)
    return Case(a.chain(), data, "first", ("dead_range",), "no value")


def mask_constant(a: Architecture) -> Case:
    """A mask of -1e9 is added in front of a Softmax."""
    mask = np.zeros(SIZE if a.is_conv else CHANNELS, np.float32)
    mask[-2:] = -1e9
    x = a.relu("first relu", a.layer("first", "x"))
    masked = a.net.add("Add", "masked", a.layer("second", x), mask)
    ends = a.layer("third", a.net.add("Softmax", "softmax", masked, axis=-1))
    return Case(a.net.model(ends), a.images(), "masked", ("sentinel",), "infinity")


def shared_scale(a: Architecture) -> Case:
    """Two branches of very different size are joined."""
    a.scale_outputs("first", np.full(CHANNELS, FACTOR, np.float32))
    joined = a.net.add("Concat", "joined", a.layer("first", "x"), a.layer("second", "x"), axis=a.axis)
    third = noise(CHANNELS, 2 * CHANNELS, *((3, 3) if a.is_conv else ()), seed=3)
    a.weights["third"] = third
    a.scale_inputs("third", np.repeat(np.float32([1 / FACTOR, 1]), CHANNELS))
    return Case(a.net.model(a.layer("third", joined)), a.images(), "joined", ("shared_scale",), "one scale")


def saturating_activation(a: Architecture) -> Case:
    """A few channels drive a Sigmoid far into saturation; the others have only a few steps where it changes."""
    factors = np.ones(CHANNELS, np.float32)
    factors[CHANNEL] = 40 * FACTOR
    a.scale_outputs("first", factors)
    soft = a.net.add("Sigmoid", "soft", a.layer("first", "x"))
    return Case(
        a.net.model(a.layer("second", soft)), a.images(), "first", ("outlier_channel",), f"channel {CHANNEL}"
    )  # fmt: skip


def tiny_channel(a: Architecture) -> Case:
    """A channel of the data is 1/FACTOR of the others, and a layer that treats each alone makes it the largest."""
    diagonal = np.diag(a.channels(planted=4 * FACTOR))
    a.weights["first"] = diagonal.reshape(CHANNELS, CHANNELS, 1, 1) if a.is_conv else diagonal
    data = a.images() / a.per_channel(a.channels(planted=FACTOR))
    return Case(a.chain(), data, "first", ("tiny_channel",), f"input channel {CHANNEL}")


def large_bias(a: Architecture) -> Case:
    """A bias moves one channel far away, and the bias of the next layer takes it back."""
    a.biases["first"] = a.biases["first"] + FACTOR * (a.channels(planted=2) - 1)
    sums = a.weights["second"][:, CHANNEL].reshape(CHANNELS, -1).sum(axis=1)
    a.biases["second"] = a.biases["second"] - FACTOR * sums
    return Case(a.chain(), a.images(), "first" if a.is_conv else "second", ("outlier_channel",), f"channel {CHANNEL}")


def denormals(a: Architecture) -> Case:
    """A layer has denormal weights in a channel, whose activations are enormous."""
    tiny = a.channels(planted=1e-38)
    a.scale_inputs("first", tiny)
    data = (a.images().astype(np.float64) / np.float64(a.per_channel(tiny))).astype(np.float32)
    return Case(a.chain(), data, "first", ("outlier_channel", "sentinel"), f"channel {CHANNEL}")


def wrong_calibration(a: Architecture) -> Case:
    """The calibration data is a tenth of the real data."""
    return Case(a.chain(), a.images(), "first", ("clipped",), "cut off", calibration=a.images(2) / 10)


CASES: dict[str, Callable[[Architecture], Case]] = {
    "weight outlier, input channel": weight_outlier_of_an_input_channel,
    "weight outlier, output channel": weight_outlier_of_an_output_channel,
    "activation outlier": activation_outlier,
    "dead range": dead_range,
    "mask constant": mask_constant,
    "shared scale": shared_scale,
    "saturating activation": saturating_activation,
    "tiny channel": tiny_channel,
    "large bias": large_bias,
    "denormals": denormals,
    "wrong calibration data": wrong_calibration,
}
ARCHITECTURES = ("conv", "matmul")


# Only what is planted may matter: no repair, no other mode, and no rewrite that removes it from the float graph.
SETTINGS = {
    "op_type_dict": {"*": {"activation": {"mode": ["static"], "algorithm": ["minmax"]}, "repairs": []}},
    "optimise_float": False,
    "report": False,
}


def diagnosed(case: Case, folder: Path) -> quaver.Diagnosis:
    """Diagnose the model with all ops in int8."""
    result = quaver.fit(
        case.model,
        calib_dataloader=case.data if case.calibration is None else case.calibration,
        strategy="basic",
        workspace=folder / "run",
        verbose=0,
        threads=1,
        diagnosis=case.calibration is None,
        **{**SETTINGS, **case.settings},
    )
    if case.calibration is None:
        assert result.diagnosis is not None
        return result.diagnosis
    return quaver.diagnose(case.model, result.save(folder / "int8.onnx"), case.data, timing=False, threads=1)


def is_named(case: Case, diagnosis: quaver.Diagnosis) -> bool:
    """Return True if a cause has the right op, kind and word."""
    return any(
        cause.op.split()[0] == case.op and cause.kind in case.kinds and case.word in cause.sentence
        for cause in diagnosis.causes
    )
