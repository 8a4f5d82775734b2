"""Compare the float model that is tuned with the user's own, output by output.

Converters and rewrites must not change what a model computes. This is checked on the user's own calibration data, at
two batch sizes where the model takes both.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from quaver.adapters.data import InputSpec, count_samples, has_open_batch, head
from quaver.adapters.model import Model
from quaver.adapters.samples import make_batch
from quaver.errors import ModelError, SettingsError
from quaver.types import Array, Feed, PlainDict

log = logging.getLogger(__name__)

# Relative difference above which outputs differ, unless rounding explains it (ROUNDING, ROUNDING_MARGIN). Two sums of
# the same products differ by about 1e-6 of the largest value in one layer, and by more behind many. Judgement.
TOLERANCE = 1e-4
# Weights are changed by a millionth to measure the effect of rounding on an output; a difference of up to four times
# that effect counts as rounding. Judgement.
ROUNDING, ROUNDING_MARGIN = 1e-6, 4.0
# Share of integers and booleans that may differ, because rounding decides near a tie. Judgement.
MAX_FLIPPED = 1e-3
# Relative difference allowed for a converted model, which other kernels run. Judgement.
OTHER_KERNELS = 1e-3
# Smallest value that a difference is divided by.
_TINY = 1e-30
# Samples in the larger of the two batches that are compared. Judgement.
MAX_SAMPLES = 4

# Runs a model on a feed and returns its outputs; raises if the model does not take the feed.
Runner = Callable[[Feed], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Difference:
    """The largest difference between two results of a model.

    Attributes:
        error: the largest difference as a part of the output's largest value; infinite where shape or type differ.
        output: the output where it was found.
        reason: what differs, in words.
    """

    error: float = 0.0
    output: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Evidence that the float model that is tuned computes the same as the user's own.

    Attributes:
        difference: the largest difference of an output, as a part of that output's largest value.
        output: the output where it was found; empty if nothing differs.
        batches: sizes of the batches that were compared; empty if nothing was.
        made_up: True if the inputs were made up, because there was no calibration data.
        left_out: rewrites that would have changed the result of this model and are not applied.
        obstacle: why nothing was compared; empty if it was.
        when_optimized: what the runtime's own optimizations change in the float model as it runs; empty if nothing.
        slow: rewrites that are not applied because they make the model slower on this machine.
    """

    difference: float = 0.0
    output: str = ""
    batches: tuple[int, ...] = ()
    made_up: bool = False
    left_out: tuple[str, ...] = ()
    obstacle: str = ""
    when_optimized: str = ""
    slow: tuple[str, ...] = ()

    @property
    def skipped(self) -> tuple[str, ...]:
        """Return all rewrites that the float model is built without."""
        return tuple(dict.fromkeys([*self.left_out, *self.slow]))

    def to_dict(self) -> PlainDict:
        """Return the comparison as builtins, for a history."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, record: Any) -> Comparison | None:
        """Return the comparison that a history recorded; None if it recorded none that makes sense."""
        if isinstance(record, Mapping):
            record = {"when_optimized": "", "slow": (), **record}  # earlier histories do not have them
        if not isinstance(record, Mapping) or {field.name for field in fields(cls)} != set(record):
            return None
        difference, batches = record["difference"], record["batches"]
        texts = [record["output"], record["obstacle"], record["when_optimized"]]
        if not isinstance(difference, float) or not difference >= 0 or not isinstance(record["made_up"], bool):
            return None
        if not isinstance(batches, list | tuple) or not all(type(size) is int for size in batches):
            return None
        names = [record["left_out"], record["slow"]]
        if not all(isinstance(part, list | tuple) for part in names):
            return None
        if not all(isinstance(text, str) for text in itertools.chain(texts, *names)):
            return None
        left_out, slow = map(tuple, names)
        output, obstacle, when_optimized = texts
        made_up = record["made_up"]
        return cls(difference, output, tuple(batches), made_up, left_out, obstacle, when_optimized, slow)

    def __str__(self) -> str:
        if self.obstacle:
            return f"the float model could not be compared with the model as given: {self.obstacle}"
        sizes = " and ".join(map(str, dict.fromkeys(self.batches)))
        inputs = "made-up inputs" if self.made_up else "calibration data"
        where = f" of the largest value of {self.output!r}" if self.difference else ""
        statement = (
            f"the float model equals the model as given: largest difference {self.difference:.1e}{where} on {inputs}"
        )
        skipped = f"; left out, because they change it: {', '.join(self.left_out)}" if self.left_out else ""
        skipped += f"; left out, because it is slower with them: {', '.join(self.slow)}" if self.slow else ""
        return f"{statement}, batch {sizes}{skipped}" + (f". But {self.when_optimized}" if self.when_optimized else "")


def comparison_feeds(feeds: Sequence[Feed], inputs: Sequence[InputSpec]) -> list[Feed]:
    """Return feeds to compare a model on: one sample, then several, out of the first feeds of the calibration data.

    A model that fixes its batch gets the first feeds as they are.
    """
    if not feeds or not has_open_batch(inputs):
        return list(feeds[:MAX_SAMPLES])
    several = head(feeds[0], MAX_SAMPLES)
    if count_samples(several) == 1:
        several = _joined(feeds[:MAX_SAMPLES])
    single = head(feeds[0], 1)
    return [single] if count_samples(several) == 1 else [single, several]


def runner_of(model: Model) -> Runner:
    """Return a function that runs a model and gives its outputs as a list."""

    def run(feed: Feed) -> list[Any]:
        outputs = model.run(feed)
        return outputs if isinstance(outputs, list) else [outputs]

    return run


def compare_models(feeds: Sequence[Feed], inputs: Sequence[InputSpec], unmodified: Runner, tuned: Runner) -> Comparison:
    """Compare two models of a framework, where other kernels run the second one.

    Args:
        feeds: what to run both on; one sample is made up if there are none.
        inputs: what the models take.
        unmodified: runs the model as the user gave it.
        tuned: runs the float model that is tuned.

    Raises:
        ModelError: if they differ.
    """
    made_up = not feeds
    try:
        feeds = feeds or [make_batch(None, inputs, 1)]
    except SettingsError as error:
        return Comparison(made_up=True, obstacle=str(error))
    try:
        count = len(unmodified(feeds[-1]))
    except Exception as error:
        return Comparison(made_up=made_up, obstacle=f"it does not run: {str(error).partition(chr(10))[0][:200]}")
    names = [f"output {index}" for index in range(count)]
    difference, sizes = compare(feeds, unmodified, tuned, names)
    if difference.error > OTHER_KERNELS:
        raise ModelError(
            f"the model is not tuned, because converting it changes what it computes: {difference.reason}. Layers that "
            "behave otherwise in training, or that draw random numbers, are the usual cause"
        )
    return Comparison(difference.error, difference.output, sizes, made_up)


def _joined(feeds: Sequence[Feed]) -> Feed:
    """Join the feeds that have the first one's shape into one batch."""
    same_shape = [feed for feed in feeds if all(feed[name].shape == array.shape for name, array in feeds[0].items())]
    if any(array.ndim == 0 or len(array) != count_samples(feeds[0]) for array in feeds[0].values()):
        return feeds[0]
    return {name: np.concatenate([feed[name] for feed in same_shape]) for name in feeds[0]}


def compare(
    feeds: Sequence[Feed],
    unmodified: Runner,
    tuned: Runner,
    names: Sequence[str],
    rounded: Runner | None = None,
    bounded: Collection[str] = (),
) -> tuple[Difference, tuple[int, ...]]:
    """Return the largest difference between two models on all feeds that the user's model accepts, and the batch sizes.

    Args:
        feeds: what to run both on.
        unmodified: runs the model as the user gave it.
        tuned: runs the float model that is tuned.
        names: of the outputs that both return.
        rounded: runs the tuned model with its weights changed by `ROUNDING`, to see what rounding does. A difference
            that rounding explains is not counted.
        bounded: names of outputs between 0 and 1. Their differences are absolute, not relative to the largest value,
            which may be close to 0.
    """
    worst, sizes = Difference(), []
    for feed in feeds:
        try:
            expected = unmodified(feed)
        except Exception as error:  # runtimes have no exception class of their own for a batch size
            log.debug("the model as given does not take a batch of %d: %s", count_samples(feed), error)
            continue
        sizes.append(count_samples(feed))
        difference = _run_and_compare(feed, expected, tuned, names, rounded, bounded)
        if difference.error > worst.error or not worst.output:
            worst = difference
        if math.isinf(worst.error):
            break
    return worst, tuple(sizes)


def _run_and_compare(
    feed: Feed,
    expected: Sequence[Any],
    tuned: Runner,
    names: Sequence[str],
    rounded: Runner | None,
    bounded: Collection[str],
) -> Difference:
    try:
        actual = tuned(feed)
    except Exception as error:
        reason = str(error).strip().partition("\n")[0][:200]
        return Difference(math.inf, "", f"the float model does not run on a batch of {count_samples(feed)}: {reason}")
    worst = Difference()
    suspicious: list[tuple[int, Difference]] = []
    for index, name in enumerate(names):
        difference = compare_values(name, expected[index], actual[index], 1.0 if name in bounded else _TINY)
        if difference.error > TOLERANCE:
            suspicious.append((index, difference))
        elif difference.error >= worst.error:
            worst = difference
    if not suspicious:
        return worst
    perturbed_outputs = _outputs_or_none(rounded, feed)
    for index, difference in suspicious:
        if perturbed_outputs is not None:
            rounding = compare_values(names[index], actual[index], perturbed_outputs[index])
            if difference.error <= ROUNDING_MARGIN * rounding.error:
                continue
        if difference.error >= worst.error:
            worst = difference
    return worst


def compare_optimized(
    feeds: Sequence[Feed], unmodified: Runner, optimized: Runner, names: Sequence[str], tolerance: float
) -> Difference:
    """Return the largest difference that a runtime's own optimizations make, beyond rounding.

    Integers and booleans count by type and shape alone: rounding may decide each of them.

    Args:
        feeds: what to run both on.
        unmodified: runs the model as the user gave it, without optimizations.
        optimized: runs a model with the optimizations that it runs with outside of comparisons.
        names: of the outputs that both return.
        tolerance: relative difference of values that other kernels explain.
    """
    worst = Difference()
    for feed in feeds:
        try:
            expected = unmodified(feed)
        except Exception as error:
            log.debug("the model as given does not take a batch of %d: %s", count_samples(feed), error)
            continue
        try:
            actual = optimized(feed)
        except Exception as error:
            reason = str(error).strip().partition("\n")[0][:200]
            return Difference(math.inf, "", f"it does not run on a batch of {count_samples(feed)}: {reason}")
        for name, first, second in zip(names, expected, actual, strict=True):
            difference = compare_values(name, first, second)
            same_form = np.shape(first) == np.shape(second) and np.asarray(first).dtype == np.asarray(second).dtype
            if difference.error > max(worst.error, tolerance) and not (
                same_form and np.asarray(first).dtype.kind in "iub"
            ):
                worst = difference
    return worst


def _outputs_or_none(runner: Runner | None, feed: Feed) -> Sequence[Any] | None:
    if runner is None:
        return None
    try:
        return runner(feed)
    except Exception as error:
        log.debug("the model with rounded weights does not run: %s", error)
        return None


def compare_values(name: str, expected: Any, actual: Any, min_scale: float = _TINY) -> Difference:
    """Return how far two values of one output lie apart, as a part of its largest value or of `min_scale`.

    They may be arrays, numbers, or lists and dicts of those.
    """
    worst = Difference(0.0, name)
    for part, first, second in _arrays(name, expected, actual):
        difference = _compare_arrays(part, first, second, min_scale)
        if difference.error >= worst.error:
            worst = difference
    return worst


def _arrays(name: str, expected: Any, actual: Any) -> Iterator[tuple[str, Array, Array]]:
    """Yield the arrays of two values, in pairs. Containers that differ give arrays of different shapes."""
    if isinstance(expected, Mapping) and isinstance(actual, Mapping) and list(expected) == list(actual):
        for key in expected:
            yield from _arrays(f"{name}[{key!r}]", expected[key], actual[key])
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for index, (first, second) in enumerate(zip(expected, actual, strict=True)):
            yield from _arrays(f"{name}[{index}]", first, second)
    elif isinstance(expected, Mapping | list) or isinstance(actual, Mapping | list):
        yield name, np.zeros(_container_length(expected)), np.zeros((_container_length(actual), 1))
    else:
        yield name, np.asarray(expected), np.asarray(actual)


def _container_length(value: Any) -> int:
    return len(value) if isinstance(value, Mapping | list) else 1


def _compare_arrays(name: str, expected: Array, actual: Array, min_scale: float) -> Difference:
    if expected.dtype != actual.dtype:
        return Difference(math.inf, name, f"{name!r} is of type {actual.dtype} instead of {expected.dtype}")
    if expected.shape != actual.shape:
        shapes = f"{list(actual.shape)} instead of {list(expected.shape)}"
        return Difference(math.inf, name, f"{name!r} has the shape {shapes}")
    if expected.dtype.kind not in "fc":
        count = int(np.count_nonzero(expected != actual))
        if count <= MAX_FLIPPED * expected.size:
            return Difference(0.0, name)
        return Difference(math.inf, name, f"{name!r} differs in {count:,} of {expected.size:,} values")
    finite = np.isfinite(expected)
    same = np.array_equal(finite, np.isfinite(actual))
    if not same or not np.array_equal(expected[~finite], actual[~finite], equal_nan=True):
        return Difference(math.inf, name, f"{name!r} has NaN or infinity in other places")
    if not finite.any():
        return Difference(0.0, name)
    largest = max(float(np.abs(expected[finite]).max()), min_scale)
    error = float(np.abs(expected[finite].astype(np.float64) - actual[finite]).max()) / largest
    return Difference(error, name, f"{name!r} differs by {error:.1e} of its largest value")
