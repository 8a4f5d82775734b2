"""The weight study of a decoder: what each choice for a weight does to the model's next token, without labels.

The float model runs with its weights as inputs, in one session, so that any of them can be replaced. Several weights
are replaced in a pass: those of a layer, or those at the same place in all layers. The divergences of these groups, and
the errors that the weights make in their own outputs, tell what each weight does (`split_divergences`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from quaver.adapters.onnxrt.build import blocks
from quaver.adapters.onnxrt.build.affine import Float
from quaver.adapters.onnxrt.build.builder import Builder
from quaver.adapters.onnxrt.build.rounding import Source, quantize_blocks, round_blocks
from quaver.adapters.onnxrt.ops.blocks import INT4_PER_BLOCK, weight_bytes
from quaver.adapters.onnxrt.ops.decoder import head_outputs
from quaver.adapters.onnxrt.ops.unit import Unit
from quaver.adapters.onnxrt.run import session as sessions
from quaver.adapters.onnxrt.run.moments import SecondMoments
from quaver.ops import FLOAT, INT4, OpConfig
from quaver.types import Array, Feed
from quaver.weight_table import WeightOption, WeightTable

# Tokens on which groups of weights and whole models are compared. Judgement: layers differ by factors, and one run of a
# group costs as much as that part of an evaluation.
GROUP_POSITIONS, MODEL_POSITIONS = 128, 512
# Output channels whose errors are computed. Judgement: they stand for all, and all would take longer than the passes.
SAMPLED_ROWS = 96
# Layers in which rounding by second moments is measured: the first, the last and those between. Judgement.
_MEASURED_LAYERS = 3
# Rounds of fitting that make sums of rows and columns agree. The method converges in a few.
_ROUNDS = 30
_TINY = 1e-30
_KL, _SCORES, _TEACHER = "divergence of tokens", "log probabilities", "log probabilities of the float model"


class WeightStudy:
    """Measures divergences of one decoder.

    Args:
        builder: builds the models.
        units: the ops on offer.
        moments: the second moments of what they read.
        feeds: probe samples.
        threads: threads of the float model.
    """

    def __init__(
        self, builder: Builder, units: Sequence[Unit], moments: SecondMoments, feeds: Sequence[Feed], threads: int
    ) -> None:
        self._builder, self._moments, self._threads = builder, moments, threads
        # Weights are rounded by the first samples, so divergences are measured on the last.
        self._feeds = _first_positions(feeds[::-1], MODEL_POSITIONS)
        self._units = {unit.op.name: unit for unit in units}
        self._mark = builder.mark

    @functools.cached_property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The groups of ops whose weights are replaced together: layers, places in a layer, and all others alone."""
        layers, others = self._layers
        places = [tuple(layer[at] for layer in layers) for at in range(len(layers[0]))] if len(layers) > 1 else []
        return (*layers, *places, *((name,) for name in others))

    @functools.cached_property
    def _layers(self) -> tuple[list[tuple[str, ...]], list[str]]:
        """The layers, each with the same shapes of weights in the same order, and the ops outside of them."""
        names, shapes = (
            list(self._units),
            [self._builder.graph.constants[u.weight or ""].shape for u in self._units.values()],
        )
        best: tuple[int, int, int] = (0, 0, 0)
        for period in range(2, len(names) // 2 + 1):
            same = [shapes[at] == shapes[at + period] for at in range(len(names) - period)]
            start, run = _longest_run(same)
            count = run // period + 1 if run >= period else 0
            if count * period > best[0]:
                best = count * period, start, period
        covered, start, period = best
        layers = [tuple(names[at : at + period]) for at in range(start, start + covered, period)] if covered else []
        inside = {name for layer in layers for name in layer}
        return layers, [name for name in names if name not in inside]

    def divergence(self, names: Sequence[str]) -> float:
        """Return the divergence of the float model with the weights of these ops in four bits."""
        replaced = {self._units[name].weight or "": self._rounded(name) for name in names}
        total = [self._tokens(feed, {_TEACHER: scores} | replaced) for feed, scores in self._teacher(GROUP_POSITIONS)]
        return float(np.mean(np.concatenate(total)))

    def divergence_of(self, session: sessions.Session) -> float:
        """Return the divergence of a built model."""
        (name,) = head_outputs(self._builder.graph)[:1]
        total = []
        for feed, teacher in self._teacher(MODEL_POSITIONS):
            (scores,) = session.run([name], feed)
            total.append(token_divergences(teacher, scores)[_is_real(feed, teacher.shape[:-1])])
        return max(float(np.mean(np.concatenate(total))), 0.0)

    def table(self, divergences: Sequence[float]) -> WeightTable:
        """Return the options of each weight.

        Args:
            divergences: of each of `groups`.
        """
        errors = self._all_errors()
        alone = self._split(divergences, {name: own[_base(own)] for name, own in errors.items()})
        shared: dict[str, list[str]] = {}
        for name, unit in self._units.items():
            weight = unit.weight or ""
            shared.setdefault(self._builder.graph.tied.get(weight, weight), []).append(name)
        return WeightTable([self._options(names, errors, alone) for names in shared.values()])

    def _options(
        self, names: Sequence[str], errors: Mapping[str, Mapping[OpConfig, float]], alone: Mapping[str, float]
    ) -> list[WeightOption]:
        """Return the options of ops that share a weight: all of them store it in the same way."""
        common = [choice for choice in errors[names[0]] if all(choice in errors[name] for name in names)]
        first = self._units[names[0]]
        rows = blocks.in_rows(self._builder, first)
        options = [WeightOption(dict.fromkeys(names, FLOAT), rows.nbytes, 0.0)]
        for choice in common:
            lost = sum(
                alone[name] * errors[name][choice] / max(errors[name][_base(errors[name])], _TINY) for name in names
            )
            stored = weight_bytes((rows.shape[0], rows.shape[1]), choice)
            options.append(WeightOption(dict.fromkeys(names, choice), stored, lost))
        return options

    def _split(self, divergences: Sequence[float], errors: Mapping[str, float]) -> dict[str, float]:
        """Return the divergence of each op alone from those of the groups."""
        layers, others = self._layers
        count, period = len(layers), len(layers[0]) if layers else 0
        rows = np.array(divergences[:count])
        columns = np.array(divergences[count : count + period]) if count > 1 else np.zeros(0)
        alone = dict(zip(others, divergences[len(divergences) - len(others) :], strict=True))
        if layers:
            start = np.array([[max(errors[name], _TINY) for name in layer] for layer in layers])
            fitted = split_divergences(rows, columns, start)
            alone |= {
                name: float(value)
                for layer, values in zip(layers, fitted, strict=True)
                for name, value in zip(layer, values, strict=True)
            }
        return alone

    def _all_errors(self) -> dict[str, dict[OpConfig, float]]:
        """Return the relative error of each choice of each op in its own output.

        What rounding by second moments brings is measured in a few layers, and is alike in the others.
        """
        layers, others = self._layers
        measured = np.unique(np.linspace(0, len(layers) - 1, _MEASURED_LAYERS).astype(int)) if layers else ()
        errors = {name: self._errors(name) for name in others}
        for at in range(len(layers[0]) if layers else 0):
            known = [self._errors(layers[layer][at]) for layer in measured]
            gains = {choice: _mean_gain(known, choice) for choice in known[0] if choice.repairs}
            for layer, names in enumerate(layers):
                name = names[at]
                if layer in measured:
                    errors[name] = known[list(measured).index(layer)]
                    continue
                plain = self._errors(name, rounded=False)
                errors[name] = plain | {choice: gain * plain[_plain(choice)] for choice, gain in gains.items()}
        return {name: errors[name] for name in self._units}

    def _errors(self, name: str, rounded: bool = True) -> dict[OpConfig, float]:
        """Return the relative error that each choice in blocks makes in the output of an op."""
        unit = self._units[name]
        rows = blocks.in_rows(self._builder, unit)
        taken = np.unique(np.linspace(0, len(rows) - 1, min(SAMPLED_ROWS, len(rows))).astype(int))
        sample = np.ascontiguousarray(rows[taken])
        reads = blocks.multiplied_with(self._builder, unit)
        moments = None if unit.is_embedding else self._moments.of(Source(unit.activations[0]))
        signal = max(_energy(sample, moments), _TINY)
        errors = {}
        for choice in unit.op.choices:
            if not choice.block_size or (choice.repairs and not rounded):
                continue
            if choice.repairs:
                if reads is None:
                    continue
                stored = round_blocks(sample, self._moments.factor(reads), choice.precision.bits, choice.block_size)
            else:
                stored = quantize_blocks(sample, choice.precision.bits, choice.block_size)
            lost = stored.dequantized(sample.shape[1]) - sample
            errors[choice] = _energy(lost, moments) / signal
        return errors

    def _rounded(self, name: str) -> Float:
        unit = self._units[name]
        return np.ascontiguousarray(blocks.dequantized(self._builder, unit, _probed(unit)))

    def _tokens(self, feed: Feed, weights: Mapping[str, Array]) -> Array:
        values: Array = self._session.run([_KL], {**feed, **self._weights, **weights})[0]
        return values[_is_real(feed, values.shape)]

    @functools.cached_property
    def _weights(self) -> dict[str, Array]:
        constants = self._builder.graph.constants
        return {
            unit.weight: np.ascontiguousarray(constants[unit.weight]) for unit in self._units.values() if unit.weight
        }

    @functools.cache  # noqa: B019 - a study lives as long as its adapter
    def _teacher(self, positions: int) -> list[tuple[Feed, Float]]:
        """Return the first samples, each with the log probabilities of the float model."""
        nothing = np.zeros((1, 1, 1), np.float32)
        chosen = _first_positions(self._feeds, positions)
        return [
            (feed, self._session.run([_SCORES], {**feed, **self._weights, _TEACHER: nothing})[0]) for feed in chosen
        ]

    @functools.cached_property
    def _session(self) -> sessions.Session:
        """The float model with its weights as inputs, and the divergence of each token as an output."""
        serialized = self._builder.assemble(None)
        model = onnx.load_model_from_string(serialized.skeleton())
        names = {unit.weight or "" for unit in self._units.values()}
        graph, constants = model.graph, self._builder.graph.constants
        nodes = [node for node in graph.node if not names & set(node.output)]  # the transpose of a tied table
        initializers = [tensor for tensor in graph.initializer if tensor.name not in names]
        del graph.node[:], graph.initializer[:]
        (head,) = head_outputs(self._builder.graph)[:1]
        axis, gap, part, lost = (f"{label}{self._mark}" for label in ("axis", "gap", "part", "lost"))
        graph.node.extend(
            [
                *nodes,
                helper.make_node("LogSoftmax", [head], [_SCORES], _SCORES, axis=-1),
                helper.make_node("Sub", [_TEACHER, _SCORES], [gap], gap),
                helper.make_node("Exp", [_TEACHER], [part], part),
                helper.make_node("Mul", [part, gap], [lost], lost),
                helper.make_node("ReduceSum", [lost, axis], [_KL], _KL, keepdims=0),
            ]
        )
        graph.initializer.extend([*initializers, numpy_helper.from_array(np.array([-1]), axis)])
        for name in sorted(names):
            graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, constants[name].shape))
        graph.input.append(helper.make_tensor_value_info(_TEACHER, TensorProto.FLOAT, None))
        for name in (_SCORES, _KL):
            graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
        options = sessions.options(self._threads)
        return sessions.create(model.SerializeToString(), options, serialized.store.path.parent)


def split_divergences(rows: Array, columns: Array, start: Array) -> Array:
    """Return a divergence for each cell of a table so that the cells add up to the measured rows and columns.

    Args:
        rows: the divergence of each layer.
        columns: the divergence of each place in a layer, over all layers.
        start: a first guess, the error of each weight in its own output.
    """
    cells = start * (rows / np.maximum(start.sum(1), _TINY))[:, None]
    if len(columns) and columns.sum() > 0 and rows.sum() > 0:
        columns = columns * (rows.sum() / columns.sum())
        for _ in range(_ROUNDS):
            cells = cells * (columns / np.maximum(cells.sum(0), _TINY))
            cells = cells * (rows / np.maximum(cells.sum(1), _TINY))[:, None]
    return np.asarray(cells)


def token_divergences(teacher: Float, scores: Float) -> Float:
    """Return the divergence of each token from the log probabilities of the float model and the scores of another."""
    wide = scores.astype(np.float32)
    wide = wide - wide.max(-1, keepdims=True)
    wide -= np.log(np.exp(wide).sum(-1, keepdims=True))
    return np.asarray((np.exp(teacher) * (teacher - wide)).sum(-1))


def _probed(unit: Unit) -> OpConfig:
    """Return the choice whose effect is measured: four bits in blocks of the default size, or the nearest to it."""
    in_blocks = [choice for choice in unit.op.choices if choice.block_size and not choice.repairs]
    four = [choice for choice in in_blocks if choice.precision == INT4]
    return INT4_PER_BLOCK if INT4_PER_BLOCK in four else (four or in_blocks)[0]


def _base(errors: Mapping[OpConfig, float]) -> OpConfig:
    plain = [choice for choice in errors if not choice.repairs]
    four = [choice for choice in plain if choice.precision == INT4]
    return INT4_PER_BLOCK if INT4_PER_BLOCK in four else (four or plain)[0]


def _plain(choice: OpConfig) -> OpConfig:
    return replace(choice, repairs=())


def _mean_gain(errors: Sequence[Mapping[OpConfig, float]], choice: OpConfig) -> float:
    """Return the part of its error that a choice keeps with rounding, the geometric mean of several ops."""
    parts = [max(own[choice], _TINY) / max(own[_plain(choice)], _TINY) for own in errors]
    return float(np.exp(np.mean(np.log(parts))))


def _energy(rows: Float, moments: Float | None) -> float:
    """Return the squared output of a matrix for inputs with these second moments; its own square without them."""
    return float(np.sum((rows if moments is None else rows @ moments) * rows, dtype=np.float64))


def _is_real(feed: Feed, shape: tuple[int, ...]) -> Array:
    """Return which positions hold tokens: those of the attention mask, if there is one of this shape."""
    mask = feed.get("attention_mask")
    return np.asarray(mask, bool) if mask is not None and mask.shape == shape else np.ones(shape, bool)


def _first_positions(feeds: Sequence[Feed], limit: int) -> list[Feed]:
    chosen, positions = [], 0
    for feed in feeds:
        if positions >= limit:
            break
        chosen.append(feed)
        positions += max(array.size for array in feed.values() if array.dtype.kind in "iu")
    return chosen


def _longest_run(flags: Sequence[bool]) -> tuple[int, int]:
    """Return where the longest run of True begins, and its length."""
    best, start, length = (0, 0), 0, 0
    for at, flag in enumerate(flags):
        length = length + 1 if flag else 0
        start = at - length + 1
        if length > best[1]:
            best = start, length
    return best
