"""Verification: compare the float graph that is tuned with the user's model, and find the rewrite that changes it.

The user's model is run unmodified, by plain ONNX Runtime with all optimisations off.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import onnxruntime as ort
from onnx import ModelProto, NodeProto, TensorProto, TensorShapeProto, ValueInfoProto, helper

from quaver.adapters.comparison import (
    ROUNDING,
    TOLERANCE,
    Comparison,
    Difference,
    Runner,
    compare,
    compare_optimized,
    compare_values,
    comparison_feeds,
)
from quaver.adapters.data import InputSpec, count_samples, has_open_batch, head
from quaver.adapters.onnxrt.load.graph import Graph
from quaver.adapters.onnxrt.load.model_file import NEWEST_IR, LoadedModel, fetch_small_data, read_model_file
from quaver.adapters.onnxrt.load.shape_inference import without_large_constants
from quaver.adapters.onnxrt.optimize.pipeline import rewrite_names
from quaver.adapters.onnxrt.run import session as sessions
from quaver.adapters.onnxrt.run.session import Session
from quaver.errors import BuildError, ModelError
from quaver.types import Array, Feed, ModelLike

log = logging.getLogger(__name__)

# Batch size and size of the other open axes of made-up inputs; the first pair that the model accepts is used. Integers
# are row numbers of tables: most tables have a hundred rows, and all have two. A judgement.
_SIZES = ((2, 8), (1, 32), (1, 64), (1, 128), (1, 1))
_ROWS = (100, 2)
# Larger inputs are not made up, because a file of a few bytes may ask for any size.
_MAX_ELEMENTS = 2**24
# Ops that map any number into 0 to 1. Where all results are near 0 or 1, few digits are left to compare.
_SQUASHING = ("Sigmoid", "Softmax")
_MOVING = ("Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
# Judgement: at most this many tensors inside a model are compared to find the op at fault.
_MAX_TENSORS = 2000

# Relative difference that optimized kernels may make: measured, they add up to 0.005 on real models. Judgement.
OPTIMIZED_KERNELS = 0.02

# A function that reads the model again without some rewrites.
Reader = Callable[[Sequence[str]], LoadedModel]


class EqualityCheck:
    """Compares float graphs with the model that they were made from, on a few samples."""

    def __init__(self, source: ModelLike, inputs: Sequence[InputSpec], feeds: Sequence[Feed]) -> None:
        """Prepare to compare with `source` on `feeds`, or on made-up inputs if there are none."""
        self._model, self._folder = read_model_file(source)
        self._model.ir_version = min(self._model.ir_version, NEWEST_IR)
        fetch_small_data(self._model, self._folder)
        self._inputs = inputs
        self._made_up = not feeds
        self._is_optimized = False  # rewrites are also to be left out if ONNX Runtime's optimizer fails behind them
        self._feeds = comparison_feeds(feeds, inputs)

    def check(
        self, model: LoadedModel, built: tuple[bytes, Path | None] | None = None
    ) -> tuple[Comparison, Difference]:
        """Compare a graph, or the model that was built from it, with the unmodified model.

        Returns:
            The comparison for the record, and the difference; its error is 0 if rounding explains all of it.
        """
        graph = model.graph
        before = _before_squashing(self._model, graph)
        outputs = [value.name for value in self._model.graph.output]
        extra = list(dict.fromkeys(name for name in before.values() if name not in graph.output_names))
        names = [*outputs, *extra]
        try:
            unmodified = self._given_results(extra, names)
        except (BuildError, ValueError) as error:
            return self._incomparable(model, f"ONNX Runtime does not load it ({_first_line(error)})")
        if not self._feeds:
            return self._incomparable(model, "it runs on no input that can be made up; pass calib_dataloader")
        try:
            tuned = _graph_runner(graph, extra, names) if built is None else _built_runner(built, extra, names)
        except (BuildError, ValueError) as error:
            difference = Difference(math.inf, "", f"the float model cannot be loaded: {_first_line(error)}")
            return Comparison(), difference

        def rounded(feed: Feed) -> Sequence[Array]:
            return _graph_runner(graph, extra, names, ROUNDING)(feed)

        difference, sizes = compare(self._feeds, unmodified, tuned, names, rounded, before)
        if not sizes:
            return self._incomparable(model, "it does not run on the first batch of the calibration data")
        del tuned  # two sessions of a large model would be in memory at once
        changed = ""
        if built is not None:
            changed, fails = self._change_when_optimized(built, unmodified, outputs)
            if fails:
                self._is_optimized = True
                difference = Difference(math.inf, "", changed)
        elif self._is_optimized and difference.error <= TOLERANCE:
            difference = self._failure_when_optimized(graph, difference)
        failed = model.rewritten.failed
        return Comparison(difference.error, difference.output, sizes, self._made_up, failed, "", changed), difference

    def _failure_when_optimized(self, graph: Graph, difference: Difference) -> Difference:
        """Return an infinite difference if ONNX Runtime fails on a graph once it optimizes it."""
        try:
            _session(without_large_constants(graph), None, optimized=True)
        except (BuildError, ValueError) as error:
            return Difference(math.inf, "", f"ONNX Runtime's own optimizer fails on it: {_first_line(error)}")
        return difference

    def _change_when_optimized(
        self, built: tuple[bytes, Path | None], unmodified: Runner, outputs: Sequence[str]
    ) -> tuple[str, bool]:
        """Return what ONNX Runtime's own optimizations change in the float model as it runs; empty if nothing.

        The second value is True if the float model does not load with them, although the model as given does.
        """

        def given(feed: Feed) -> Sequence[Array]:
            return unmodified(feed)[: len(outputs)]

        def change(model: ModelProto, folder: Path | None) -> Difference:
            try:
                optimized = _runner(_session(model, folder, optimized=True), outputs)
            except (BuildError, ValueError) as error:
                return Difference(math.inf, "", f"it does not load: {_first_line(error)}")
            return compare_optimized(self._feeds, given, optimized, outputs, OPTIMIZED_KERNELS)

        difference = change(ModelProto.FromString(built[0]), built[1])
        if not difference.error:
            return "", False
        of_given = change(self._model, self._folder)
        as_well = " It changes the model as given, too." if of_given.error else ""
        text = f"ONNX Runtime's own optimizer changes what it computes when it runs: {difference.reason}.{as_well}"
        return text, math.isinf(difference.error) and not math.isinf(of_given.error)

    def _given_results(self, extra: Sequence[str], names: Sequence[str]) -> Runner:
        """Run the unmodified model on all feeds, and return a function that looks up the results.

        Its session is closed then: two sessions of a large model would be in memory at once.
        """
        run = _runner(_session(_with_outputs(self._model, extra), self._folder), names)
        if self._made_up and not self._feeds:
            self._feeds = list(_working_feeds(self._model, self._inputs, run))
        results: dict[int, Sequence[Array] | Exception] = {}
        for feed in self._feeds:
            try:
                results[id(feed)] = run(feed)
            except Exception as error:  # the batch size may not fit; the runtime has no error class for that
                results[id(feed)] = error

        def recall(feed: Feed) -> Sequence[Array]:
            result = results[id(feed)]
            if isinstance(result, Exception):
                raise result
            return list(result)

        return recall

    def _incomparable(self, model: LoadedModel, obstacle: str) -> tuple[Comparison, Difference]:
        return Comparison(made_up=self._made_up, left_out=model.rewritten.failed, obstacle=obstacle), Difference()

    def without_wrong_rewrites(self, read: Reader, left_out: Sequence[str]) -> tuple[str, ...]:
        """Find the rewrites that change what the model computes.

        Args:
            read: reads the model without the rewrites of these names.
            left_out: names that are left out already.

        Returns:
            The names of all rewrites that have to be left out for the model to equal the unmodified one.

        Raises:
            ModelError: if the model differs without any rewrite; the message names the op.
        """
        skipped = list(left_out)
        while True:
            model = read(skipped)
            if self._is_equal(model):
                return tuple(skipped)
            # All names, not the active ones alone: without one rewrite another one may become active.
            names = [name for name in rewrite_names() if name not in skipped]
            plain = read([*skipped, *names])
            if not self._is_equal(plain):
                raise self._refusal(plain)
            low, high = 0, len(names)  # invariant: equal with the first `low` rewrites, different with the first `high`
            while high - low > 1:
                middle = (low + high) // 2
                equal = self._is_equal(read([*skipped, *names[middle:]]))
                low, high = (middle, high) if equal else (low, middle)
            skipped.append(names[high - 1])

    def _is_equal(self, model: LoadedModel) -> bool:
        return self.check(model)[1].error <= TOLERANCE

    def _refusal(self, model: LoadedModel) -> ModelError:
        """Return an error that names the op which changed when the model was read."""
        difference, op = self.check(model)[1], self._op_at_fault(model)
        how = f"converting it from {model.conversions[0]}" if model.conversions else "reading it"
        where = f"The first op whose result differs is {op}. " if op else ""
        return ModelError(
            f"the model is not tuned, because {how} changes what it computes: {difference.reason}. {where}"
            "Export it again with opset 13 or newer, or replace that op"
        )

    def _op_at_fault(self, model: LoadedModel) -> str:
        """Return the first op of the user's model whose result differs; empty if that cannot be told."""
        graph = model.graph
        makers = {name: node for node in self._model.graph.node for name in node.output if name in graph.producers}
        names = [name for name in makers if graph.types.get(name) == TensorProto.FLOAT][:_MAX_TENSORS]
        extra = [name for name in names if name not in graph.output_names]
        try:
            unmodified = _runner(_session(_with_outputs(self._model, extra), self._folder), names)
            tuned = _graph_runner(graph, extra, names)
            results = zip(names, unmodified(self._feeds[0]), tuned(self._feeds[0]), strict=True)
            for name, expected, actual in results:
                if compare_values(name, expected, actual).error > TOLERANCE:
                    return _describe(makers[name])
        except Exception as error:  # the runtime has no error class for what it cannot run
            log.debug("the op at fault cannot be told: %s", error)
        return ""


def _describe(node: NodeProto) -> str:
    return f"{node.op_type} {node.name or node.output[0]!r}"


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200]


def _before_squashing(model: ModelProto, graph: Graph) -> dict[str, str]:
    """Return, by output, the tensor before its Sigmoid or Softmax, if both graphs have it: it is compared as well."""
    makers = {name: node for node in model.graph.node for name in node.output}
    sources = {}
    for value in model.graph.output:
        node = makers.get(value.name)
        while node is not None and node.op_type in _MOVING:
            node = makers.get(node.input[0])
        if node is not None and node.op_type in _SQUASHING and node.input[0] in graph.producers:
            sources[value.name] = str(node.input[0])
    return {output: source for output, source in sources.items() if source in makers}


def _with_outputs(model: ModelProto, names: Sequence[str]) -> ModelProto:
    """Return a copy of the model with more outputs."""
    copy = ModelProto()
    copy.CopyFrom(model)
    copy.graph.output.extend(ValueInfoProto(name=name) for name in names)
    return copy


def _session(model: ModelProto, folder: Path | None, optimized: bool = False) -> Session:
    """Return a session with all optimisations off, or with those that models run with."""
    options = sessions.options(1)
    options.log_severity_level = 4
    if not optimized:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return sessions.create(model.SerializeToString(), options, folder)


def _runner(session: Session, names: Sequence[str], constants: Feed | None = None) -> Runner:
    wanted = list(dict.fromkeys(names))

    def run(feed: Feed) -> list[Array]:
        results = dict(zip(wanted, session.run(wanted, {**feed, **(constants or {})}), strict=True))
        return [results[name] for name in names]

    return run


def _built_runner(built: tuple[bytes, Path | None], extra: Sequence[str], names: Sequence[str]) -> Runner:
    model = ModelProto.FromString(built[0])
    return _runner(_session(_with_outputs(model, extra), built[1]), names)


def _graph_runner(graph: Graph, extra: Sequence[str], names: Sequence[str], change: float = 0.0) -> Runner:
    """Run a graph, with weights changed slightly by `change`. Large constants are fed, and so never copied."""
    model = without_large_constants(graph)
    fed = {value.name for value in model.graph.input} - {value.name for value in graph.inputs}
    constants = {name: _changed(np.asarray(graph.constants[name]), change) for name in fed}
    return _runner(_session(_with_outputs(model, extra), None), names, constants)


def _changed(array: Array, change: float) -> Array:
    """Return a float32 array with each value changed by at most this part of it."""
    if not change or array.dtype != np.float32:
        return array
    rng = np.random.default_rng(0)
    return np.asarray(array * (1 + np.float32(change) * (2 * rng.random(array.shape, np.float32) - 1)))


def _working_feeds(model: ModelProto, inputs: Sequence[InputSpec], run: Runner) -> Iterator[Feed]:
    """Yield made-up inputs that the model runs on: one batch, and its first sample if the batch is open."""
    for feed in _made_up_feeds(model, inputs):
        try:
            run(feed)
        except Exception as error:  # the size may not fit; the runtime has no error class for that
            log.debug("a made-up input does not fit: %s", error)
            continue
        yield feed
        if has_open_batch(inputs) and count_samples(feed) > 1:
            yield head(feed, 1)
        return


def _made_up_feeds(model: ModelProto, inputs: Sequence[InputSpec]) -> Iterator[Feed]:
    """Yield made-up inputs of several sizes; none if an input is no tensor, holds strings, or has an unknown rank."""
    kinds = {value.name: value.type.tensor_type for value in model.graph.input}
    for (batch, size), rows in itertools.product(_SIZES, _ROWS):
        rng = np.random.default_rng(0)
        feed = {}
        for spec in inputs:
            kind = kinds[spec.name]
            if not kind.elem_type or not kind.HasField("shape"):
                return
            dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
            sizes = [_size(dim, size if axis else batch) for axis, dim in enumerate(kind.shape.dim)]
            if math.prod(sizes) > _MAX_ELEMENTS:
                return
            if dtype.kind == "f":
                feed[spec.name] = np.asarray(rng.standard_normal(sizes), dtype)
            elif dtype.kind in "iub":
                feed[spec.name] = np.asarray(rng.integers(0, 2 if dtype.kind == "b" else rows, sizes), dtype)
            else:
                return
        yield feed


def _size(dim: TensorShapeProto.Dimension, default: int) -> int:
    return dim.dim_value if dim.dim_value > 0 else default
