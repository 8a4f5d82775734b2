"""Compares a model as it is with what quaver makes of it: in float the same, in int8 what can be run."""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from graph_builder import Array, Feed, make_feeds, session_of
from graph_reasons import STEPS_MARGIN, error_of_steps, outputs_of_other_branch
from onnx import numpy_helper

import quaver
from quaver.adapters.abilities import weight_errors
from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.adapters.options import AdapterOptions
from quaver.adapters.registry import load_with
from quaver.errors import BuildError, CalibrationError, ModelError, QuaverError
from quaver.ops import QuantConfig
from quaver.space import TuningSpace
from quaver.types import PlainDict

# The calibrated ranges of tensors, by method.
Ranges = Mapping[str, Mapping[str, tuple[float, float]]]
# Models that ONNX Runtime by itself, with its usual optimisations, does not load or makes something else of.
OPTIMISER = "changed by ONNX Runtime's optimiser"
# What is no fault; all else is.
HARMLESS = ("equal", "tuned", "nothing to quantize", "refused", "not run by ONNX Runtime", "not finite as given",
            "depends on rounding", "batch is fixed inside", "takes another branch in int8", OPTIMISER)  # fmt: skip
# A difference of float outputs, as a part of the largest value of the output, that rounding may explain.
TOLERANCE = 2e-3
# A difference of a calibrated range, as a part of its width. Optimised kernels may make a few thousandths of it.
RANGE_TOLERANCE = 1e-2
# The same as a number: a normalization of equal values divides what rounding leaves of them, 1e-7, by the root of 1e-5.
ROUNDED_RANGE = 1e-4
# The squared error of one int8 op as a part of its squared output. Coarse steps make up to a few hundredths of it.
MAX_LOCAL_ERROR = 0.2


class Outcome(NamedTuple):
    """What became of a model.

    Attributes:
        kind: one of `HARMLESS`, or what went wrong.
        detail: what was seen.
        deviation: the largest difference of the float baseline from the model as given, as a part of the output.
    """

    kind: str
    detail: str = ""
    deviation: float = 0.0

    @property
    def harmless(self) -> bool:
        return self.kind in HARMLESS


class _Fault(Exception):
    """Something that must not be; its text begins with the kind of the outcome."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.outcome = Outcome(kind, detail)


def check_model(model: onnx.ModelProto, seed: int = 0, tuned: bool = False, probed: bool = False) -> Outcome:
    """Return what becomes of a valid model in quaver.

    Args:
        model: a model that says what its inputs are fed with.
        seed: decides which configurations are built.
        tuned: run a whole `quaver.fit` instead of builds of the adapter.
        probed: measure errors of single ops too, as for a part of the seeds.
    """
    feeds = make_feeds(model)
    try:
        expected = [run_plainly(model, feed) for feed in feeds]
    except Exception as error:
        return Outcome("not run by ONNX Runtime", first_line(error))
    if not all(_is_finite(values) for values in expected):
        return Outcome("not finite as given")
    try:
        if tuned:
            return _tune(model, feeds, expected)
        return _build(model, feeds, expected, np.random.default_rng(seed), probed)
    except _Fault as fault:
        return fault.outcome
    except ModelError as error:
        return _refusal(model, error)
    except BuildError as error:
        return Outcome("BuildError" if _run_optimised(model, feeds) is not None else OPTIMISER, first_line(error))
    except CalibrationError as error:
        fixed = not _has_open_batch(model, feeds[0])
        return Outcome("batch is fixed inside" if fixed else "CalibrationError", first_line(error))
    except QuaverError as error:
        return Outcome(f"{type(error).__name__}", first_line(error))
    except Exception as error:
        ours = [entry for entry in traceback.extract_tb(error.__traceback__) if "quaver" in entry.filename]
        where = f" in {Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else ""
        return Outcome("raw exception", f"{type(error).__name__}{where}: {first_line(error)}")


def run_plainly(model: onnx.ModelProto, feed: Feed) -> list[Array]:
    """Return the outputs of the model exactly as it is written."""
    values: list[Array] = session_of(model.SerializeToString()).run(None, feed)
    return values


def _refusal(model: onnx.ModelProto, error: ModelError) -> Outcome:
    """Return the outcome of a refusal, which has to name what cannot be done."""
    text = str(error)
    if text.startswith("nothing in the model can run in int8"):
        return Outcome("nothing to quantize")
    if "damaged" not in text and any(node.op_type in text for node in model.graph.node):
        return Outcome("refused", first_line(error))
    return Outcome("refused without a reason", first_line(error))


def _build(
    model: onnx.ModelProto, feeds: Sequence[Feed], expected: list[list[Array]], rng: Any, probed: bool
) -> Outcome:
    """Build and run the float model and several int8 ones."""
    form = "qoperator" if rng.random() < 0.08 else None
    options = AdapterOptions(threads=1, quant_format=form, portable=bool(rng.random() < 0.6))
    adapter = load_with(OnnxAdapter, model.SerializeToString(), options)
    try:
        calibration = adapter.calibrate(list(feeds))
        _check_ranges(adapter, calibration["ranges"], feeds)
        baseline = adapter.build(None)
        deviation = 0.0
        for feed, values in zip(feeds, expected, strict=True):
            result = baseline.session.run(None, feed)
            _compare_forms("float", values, result)
            deviation = max(deviation, largest_difference(values, result))
        if deviation > TOLERANCE:
            return _explained(model, baseline.model, feeds, expected, deviation)
        branching = False
        configs = _configs(TuningSpace(adapter.ops()), rng)
        for config in configs:
            built = adapter.assemble(config)
            branching = _run_int8(model, built, feeds[:2], expected[:2], config) or branching
        if rng.random() < 0.3 or probed:
            steady = all(node.op_type != "If" for node in model.graph.node)  # ranges of one branch do not fit the other
            ranges = calibration["ranges"] if steady else None
            _probe(adapter, feeds, rng, _has_open_batch(model, feeds[0]), ranges)
        if rng.random() < 0.1 or probed:
            _check_rebuilt(model, adapter, calibration, configs[1])
        if adapter.options.left_out and not calibration["comparison"]["obstacle"]:
            outcome = _look_at_rewrites(model, options, feeds, expected)
            if not outcome.harmless:
                return outcome
    finally:
        adapter.close()
    return Outcome("takes another branch in int8" if branching else "equal", deviation=deviation)


def _look_at_rewrites(
    model: onnx.ModelProto, options: AdapterOptions, feeds: Sequence[Feed], expected: list[list[Array]]
) -> Outcome:
    """Return what the float model would be with the rewrites that the comparison with the given model left out.

    The comparison leaves a wrong rewrite out, and so hides it.
    """
    adapter = load_with(OnnxAdapter, model.SerializeToString(), options)
    try:
        built = adapter.assemble(None).model
    finally:
        adapter.close()
    results = [run_plainly(built, feed) for feed in feeds]
    for values, result in zip(expected, results, strict=True):
        _compare_forms("float before rewrites are left out", values, result)
    deviation = max(map(largest_difference, expected, results))
    if deviation <= TOLERANCE or deviation < 30 * rounding(model, feeds, expected):
        return Outcome("equal", deviation=deviation)
    return Outcome("wrong rewrite", f"differs by {deviation:.3g} of the output", deviation)


def _check_ranges(adapter: OnnxAdapter, ranges: Ranges, feeds: Sequence[Feed]) -> None:
    """Raise a fault if a calibrated range is not that of the values, which are computed here without optimisations."""
    source = adapter._builder.assemble(None, tuple(name for name in ranges if name in adapter._model.graph.producers))
    session = session_of(b"".join(map(bytes, source.chunks())))
    names = [output.name for output in session.get_outputs()]
    runs = [{**dict(zip(names, session.run(names, feed), strict=True)), **feed} for feed in feeds]
    for name, by_method in ranges.items():
        values = [np.asarray(run[name], np.float64) for run in runs]
        low = min(float(array.min(initial=0.0)) for array in values)
        high = max(float(array.max(initial=0.0)) for array in values)
        allowed = max(RANGE_TOLERANCE * (high - low), ROUNDED_RANGE)
        minmax = by_method["minmax"]
        if not np.allclose(minmax, (low, high), rtol=0, atol=allowed):
            raise _Fault("wrong range", f"{name!r}: minmax {minmax} instead of {(low, high)}")
        for method, (least, largest) in by_method.items():
            if not low - allowed <= least <= 0.0 <= largest <= high + allowed:
                raise _Fault("wrong range", f"{name!r}: {method} {(least, largest)} is not within {(low, high)}")


def _check_rebuilt(model: onnx.ModelProto, adapter: OnnxAdapter, calibration: PlainDict, config: QuantConfig) -> None:
    """Raise a fault if another adapter does not build the same bytes from the recorded calibration."""
    expected = adapter.assemble(config).SerializeToString()
    other = load_with(OnnxAdapter, model.SerializeToString(), adapter.options)
    try:
        other.restore(calibration)
        if other.assemble(config).SerializeToString() != expected:
            raise _Fault("other bytes when rebuilt", str(config.int8_ops)[:200])
    finally:
        other.close()


def _run_int8(
    model: onnx.ModelProto, built: Any, feeds: Sequence[Feed], expected: Sequence[list[Array]], config: QuantConfig
) -> bool:
    """Run an int8 model, and raise if its outputs cannot be right.

    Returns:
        True if it took another branch of an If than the given model does.
    """
    branching = False
    for feed, values in zip(feeds, expected, strict=True):
        try:
            result = built.session.run(None, feed)
            _compare_forms("int8", values, result)
        except Exception as error:
            other = outputs_of_other_branch(model, built.model, feed)
            if other is None or (other == [] and isinstance(error, _Fault)):
                raise
            branching = True
            if other == []:  # the given model fails in that branch, too
                continue
            result = built.session.run(None, feed)
            _compare_forms("int8", other, result)
        if not _is_finite(result):
            raise _Fault("not finite in int8", str(config.int8_ops)[:200])
    return branching


def _explained(
    model: onnx.ModelProto, built: onnx.ModelProto, feeds: Sequence[Feed], expected: list[list[Array]], deviation: float
) -> Outcome:
    """Return the outcome of a model whose float outputs differ: what explains it, or that nothing does.

    Args:
        model: the model as given.
        built: the float model that quaver made.
        feeds: what was run.
        expected: the outputs of the model as given.
        deviation: the largest difference of outputs.
    """
    if deviation < 30 * rounding(model, feeds, expected):
        return Outcome("depends on rounding", deviation=deviation)
    plain = [run_plainly(built, feed) for feed in feeds]
    if max(map(largest_difference, expected, plain)) > TOLERANCE:
        return Outcome("wrong values", f"differ by {deviation:.3g} of the output", deviation)
    optimised = _run_optimised(model, feeds)
    if optimised is None or max(map(largest_difference, expected, optimised)) > TOLERANCE:
        return Outcome(OPTIMISER, deviation=deviation)
    return Outcome("wrong values", f"differ by {deviation:.3g} of the output once optimised", deviation)


def _run_optimised(model: onnx.ModelProto, feeds: Sequence[Feed]) -> list[list[Array]] | None:
    """Return what ONNX Runtime makes of the model as given with its usual optimisations; None if it fails."""
    try:
        session = session_of(model.SerializeToString(), optimised=True)
        return [session.run(None, feed) for feed in feeds]
    except Exception:
        return None


def _configs(space: TuningSpace, rng: Any) -> list[QuantConfig]:
    """Return configurations to build: all in int8, and random ones, at times repaired."""

    def randomly(share: float) -> Callable[[Any], Any]:
        def choose(op: Any) -> Any:
            quantized = [choice for choice in op.choices if choice.precision != "fp32"]
            floats = [choice for choice in op.choices if choice.precision == "fp32"]
            chosen = quantized if not floats or (quantized and rng.random() < share) else floats
            return chosen[rng.integers(len(chosen))]

        return choose

    configs = [space.default_config(), *(space.configure(randomly(share)) for share in (0.9, 0.5))]
    if space.repairs:
        configs.append(space.repair(configs[0], space.repairs[rng.integers(len(space.repairs))]))
    return configs


def _has_open_batch(model: onnx.ModelProto, feed: Feed) -> bool:
    """Return whether a model that leaves the length of its first axis open runs with parts of a batch.

    Some have the length inside all the same. quaver may cut their batches only where they say so.
    """
    is_open = {
        value.name: not value.type.tensor_type.HasField("shape")
        or any(dim.dim_value <= 0 for dim in value.type.tensor_type.shape.dim[:1])
        for value in model.graph.input
    }
    for part in (slice(0, 1), slice(1, None)):
        parts = {name: array[part] if array.ndim and is_open[name] else array for name, array in feed.items()}
        if not all(array.size for array in parts.values()):
            continue
        try:
            run_plainly(model, parts)
        except Exception:
            return False
    return True


def _probe(adapter: OnnxAdapter, feeds: Sequence[Feed], rng: Any, timed: bool, ranges: Ranges | None) -> None:
    """Ask the adapter what strategies and diagnosis ask it.

    Args:
        adapter: the adapter, calibrated.
        feeds: samples.
        rng: decides what is asked.
        timed: measure times as well.
        ranges: the calibrated ranges to judge errors of single ops by; None to judge none.
    """
    space = TuningSpace(adapter.ops())
    config, names = space.default_config(), [op.name for op in space.ops]
    errors = adapter.local_errors(config)
    if not all(np.isfinite(pair).all() for pair in errors.values()):
        raise _Fault("not finite in int8", "local errors")
    if ranges is not None:
        _look_for_other_kernels(adapter, feeds, errors, ranges)
    for wanted in (None, config):
        adapter.record_outputs(wanted, names)(feeds[0])
    if timed and rng.random() < 0.3:
        adapter.op_seconds(config)
        adapter.unquantizable(timed=True)
        weight_errors(adapter, config)


def _look_for_other_kernels(
    adapter: OnnxAdapter, feeds: Sequence[Feed], errors: Mapping[str, tuple[float, float]], ranges: Ranges
) -> None:
    """Raise a fault where one op alone, in int8 with exact inputs, makes something else than the float op does.

    Local errors are of single samples. A model that mixes the samples of a batch computes something else of these, so
    that a large one is measured again on all batches that the ranges come from. An error that the 8-bit steps of the
    ranges make by themselves, where products cancel out, is a loss of quantization and no fault.
    """
    space = TuningSpace(adapter.ops())
    for name, (noise, signal) in errors.items():
        if signal > 1e-6 and noise > MAX_LOCAL_ERROR * signal:
            configs = None, (only := space.only_int8(name))
            before, after = (
                [watch(feed)[name] for feed in feeds] for watch in [adapter.record_outputs(c, [name]) for c in configs]
            )
            pairs = [(np.asarray(x, np.float64), np.asarray(y, np.float64)) for x, y in zip(before, after, strict=True)]
            part = sum(np.square(y - x).sum() for x, y in pairs) / max(sum(np.square(x).sum() for x, _ in pairs), 1e-6)
            allowed = STEPS_MARGIN * error_of_steps(adapter, ranges, name, only[name], feeds)
            if part > max(MAX_LOCAL_ERROR, allowed):
                raise _Fault("another function in int8", f"{space[name].kind} {name!r} has {part:.3g} of its signal")


def _tune(model: onnx.ModelProto, feeds: Sequence[Feed], expected: list[list[Array]]) -> Outcome:
    """Run a whole `fit` whose score is how far the outputs agree with those of the model as given."""
    differences: list[float] = []
    baseline = onnx.ModelProto()

    def agreement(candidate: Any) -> float:
        total = 0.0
        if not differences:
            baseline.CopyFrom(candidate.model)
        for feed, values in zip(feeds, expected, strict=True):
            result = candidate.session.run(None, feed)
            _compare_forms("tuned", values, result)
            if not _is_finite(result):
                raise _Fault("not finite in int8", "in a trial")
            total = max(total, largest_difference(values, result))
        differences.append(total)
        return 1.0 - min(1.0, total)

    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        result = quaver.fit(
            model.SerializeToString(), calib_dataloader=list(feeds), eval_func=agreement, objective="int8_ops",
            relative=0.1, max_trials=3, verbose=0, workspace=folder, threads=1,
        )  # fmt: skip
    if not differences:
        return Outcome("wrong values", "no baseline")
    if differences[0] > TOLERANCE:
        return _explained(model, baseline, feeds, expected, differences[0])
    failures = [trial.error for trial in result.trials if trial.error]
    if failures:
        return Outcome("failed trial", str(failures[0])[:300], differences[0])
    return Outcome("tuned", deviation=differences[0])


def _compare_forms(what: str, expected: Sequence[Array], result: Sequence[Array]) -> None:
    """Raise a fault where number, types or shapes of outputs differ."""
    forms = [[(np.asarray(value).dtype, np.asarray(value).shape) for value in values] for values in (expected, result)]
    if forms[0] != forms[1]:
        raise _Fault(f"wrong shapes in {what}", f"{forms[0]} became {forms[1]}"[:300])


def largest_difference(expected: Sequence[Array], result: Sequence[Array]) -> float:
    """Return the largest difference of outputs, each as a part of its largest value."""
    worst = 0.0
    for before, after in zip(expected, result, strict=True):
        if before.dtype.kind in "fiub" and before.size:
            left, right = before.astype(np.float64), np.asarray(after).astype(np.float64)
            if not np.isfinite(right).all():
                return float("inf")
            worst = max(worst, float(np.abs(left - right).max() / max(np.abs(left).max(), 1e-4)))
    return worst


def rounding(model: onnx.ModelProto, feeds: Sequence[Feed], expected: list[list[Array]]) -> float:
    """Return how far outputs move when inputs and constants move by as much as float32 rounds.

    Constants below the smallest normal number become zero, as on a processor that flushes them.
    """
    rng = np.random.default_rng(0)
    moved = onnx.ModelProto()
    moved.CopyFrom(model)
    for tensor in _constants(moved.graph):
        if tensor.data_type == onnx.TensorProto.FLOAT:
            array = numpy_helper.to_array(tensor)
            noisy = np.asarray(array * (1 + 1e-6 * rng.standard_normal(array.shape)), np.float32)
            noisy = np.where(np.abs(noisy) < np.finfo(np.float32).tiny, np.float32(0), noisy)
            tensor.CopyFrom(numpy_helper.from_array(noisy, tensor.name))
    worst = 0.0
    for feed, values in zip(feeds, expected, strict=True):
        noisy_feed = {
            name: np.asarray(array * (1 + 1e-6 * rng.standard_normal(array.shape)), array.dtype)
            if array.dtype.kind == "f" else array
            for name, array in feed.items()
        }  # fmt: skip
        try:
            result = run_plainly(moved, noisy_feed)
        except Exception:
            return float("inf")
        if [value.shape for value in result] != [value.shape for value in values]:
            return float("inf")
        worst = max(worst, largest_difference(values, result))
    return worst


def _constants(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Yield the constants of a graph and of the bodies in it."""
    yield from graph.initializer
    for node in graph.node:
        if _is_constant(node):
            yield node.attribute[0].t
        for entry in node.attribute:
            if entry.type == onnx.AttributeProto.GRAPH:
                yield from _constants(entry.g)


def _is_constant(node: onnx.NodeProto) -> bool:
    return node.op_type == "Constant" and node.attribute[0].name == "value"


def _is_finite(values: Sequence[Array]) -> bool:
    return all(np.isfinite(value).all() for value in values if np.asarray(value).dtype.kind == "f")


def first_line(error: BaseException) -> str:
    """Return the beginning of what an exception says."""
    return " ".join(str(error).split())[:300]
