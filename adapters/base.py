"""`Adapter`, the contract between quaver and a framework."""

from __future__ import annotations

import functools
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from quaver.adapters.abilities import SupportsRewriteChoice, compare_with_unmodified, require
from quaver.adapters.calibration.calibrator import IsEnough, Progress, StreamingCalibrator, never_enough, no_progress
from quaver.adapters.comparison import MAX_SAMPLES, Comparison
from quaver.adapters.data import InputSpec, RemainingData, feeds, is_finite
from quaver.adapters.model import Model
from quaver.adapters.options import AdapterOptions, resolve_quant_format
from quaver.adapters.samples import MAX_PROBE_SAMPLES, keep_first_samples, split_samples, timing_feed
from quaver.ops import Op, QuantConfig
from quaver.types import Array, CalibrationData, Feed, ModelLike, PlainDict

# Names rewrites of the float graph that make a model slower on this machine.
SlowRewrites = Callable[["Adapter"], Sequence[str]]


def no_rewrites(_: Adapter) -> Sequence[str]:
    """Keep all rewrites."""
    return ()


class Adapter(ABC):
    """One model of one framework, ready to be calibrated and built in any configuration.

    A new adapter is a subclass that sets `name`, `frameworks`, `suffix` and `accepted_forms`, and implements

    - `accepts` and `load`, which calls this class's `__init__` with the options and the model's inputs;
    - `fingerprint` and `versions`, which identify the model and the packages that its bytes depend on;
    - `ops`: the ops with their choices;
    - `calibrator`, which runs the float model and reads its tensors, and `restore`, which uses the result;
    - `assemble`: the `Model` of a configuration, and `load_saved`: one from a file;
    - `record_outputs` and `op_seconds`: the output and the time of each op, for strategies.

    Everything else is optional. `quaver.adapters.abilities` has a protocol for each optional ability, such as
    profiling, inspection and the report of unquantizable nodes. Override `close` if there are files to remove, and
    `_on_probe_samples` if something has to be prepared from samples.

    `quaver.testing.check_adapter` checks an adapter against this contract; `examples/custom_adapter.py` is a complete
    one.

    Attributes:
        name: the adapter's name.
        frameworks: the values of `framework` that select it.
        suffix: ending of a saved model's file name.
        accepted_forms: the forms of a model that it accepts, for the error about another one.
        quant_formats: the values of `quant_format`, in lower case, the default first.
        implied_formats: the `quant_format` that a name in `frameworks` implies.
        portability: why outputs are the same on every x86 processor: "built" if they are with `portable`, "inherent"
            if the kernels ensure it, "" if they are not.
        runtime_name: the value of `runtime` that selects it; empty for a framework with one runtime.
        bf16_setting: what tells the runtime to run float ops in bf16, where a configuration may say so.
        is_default: False if it takes only models of runs that name it, because another adapter has the same models.
    """

    name: ClassVar[str]
    frameworks: ClassVar[tuple[str, ...]]
    suffix: ClassVar[str]
    accepted_forms: ClassVar[str] = "what its documentation says"
    quant_formats: ClassVar[tuple[str, ...]] = ()
    implied_formats: ClassVar[Mapping[str, str]] = MappingProxyType({})
    portability: ClassVar[str] = ""
    runtime_name: ClassVar[str] = ""
    bf16_setting: ClassVar[str] = ""
    is_default: ClassVar[bool] = True

    def __init__(self, options: AdapterOptions, inputs: Sequence[InputSpec]) -> None:
        quant_format = resolve_quant_format(type(self), options.quant_format)
        self._options = replace(options, quant_format=quant_format)
        self._inputs = tuple(inputs)
        self._probe_samples: list[Feed] = []
        self._rest = RemainingData()

    @classmethod
    @abstractmethod
    def accepts(cls, model: ModelLike) -> bool:
        """Return True if this framework can load the model.

        It must be cheap, and must not import the framework to look at a model of another one.
        """

    @classmethod
    @abstractmethod
    def load(cls, model: ModelLike, options: AdapterOptions) -> Adapter:
        """Load a model. The user's object or file is never changed.

        Raises:
            ModelError: if the model cannot be tuned. `quaver.adapters.load_with` turns other exceptions into one.
        """

    @classmethod  # noqa: B027 - most adapters import their packages
    def check_installed(cls) -> None:
        """Raise a `SettingsError` if a package is missing that runs the models."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Return a hash of what the model computes, the same for each form that it can be given in."""

    @property
    @abstractmethod
    def versions(self) -> dict[str, str]:
        """Return the versions of the packages on which the bytes of a built model depend."""

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        """Return the inputs of the model."""
        return self._inputs

    @property
    def options(self) -> AdapterOptions:
        """Return the options, with the rewrites that were skipped since."""
        return self._options

    @abstractmethod
    def ops(self) -> tuple[Op, ...]:
        """Return the ops that can run in int8, in graph order, with their choices."""

    @abstractmethod
    def calibrator(self) -> StreamingCalibrator:
        """Return a calibrator: it runs the float model and reads every tensor whose range a configuration may need."""

    def calibrate(
        self,
        data: CalibrationData,
        limit: int | None = None,
        progress: Progress = no_progress,
        enough: IsEnough = never_enough,
        slow_rewrites: SlowRewrites = no_rewrites,
    ) -> PlainDict:
        """Run `data` through the float model once, for all calibration methods, and use the result.

        Before that, the float model is compared with the user's own on the first samples. Where the model takes single
        samples, the result does not depend on how `data` is cut into batches.

        Args:
            data: calibration data.
            limit: maximum number of samples; None for all.
            progress: called with the number of samples so far.
            enough: asked after each sample; True ends calibration. At least one sample is used.
            slow_rewrites: asked once the models are compared, for rewrites to leave out because they do not pay.

        Returns:
            The result as builtins, for `restore`; the comparison is a part of it.
        """
        calibrator, options = self.calibrator(), self._options
        stream = self._keep_samples(data, limit, calibrator.takes_single_samples)
        first = _first_samples(stream, enough)
        # Calibration refuses data that is not finite, and names the tensor.
        comparison = self._compare(first, slow_rewrites) if first and all(map(is_finite, first)) else None
        if self._options != options:  # the comparison skipped a rewrite, so the graph is another one
            calibrator = self.calibrator()
        calibration = calibrator.run(itertools.chain(first, stream), limit, progress, enough)
        if comparison is not None:
            calibration["comparison"] = comparison.to_dict()
        self._on_probe_samples()
        calibration |= self._more_to_record()
        self.restore(calibration)
        return calibration

    def _compare(self, feeds: Sequence[Feed], slow_rewrites: SlowRewrites) -> Comparison:
        """Compare the float model with the user's own, and leave out rewrites that change it or do not pay."""
        comparison = compare_with_unmodified(self, feeds)
        slow = () if comparison.obstacle else tuple(slow_rewrites(self))
        if slow:
            require(self, SupportsRewriteChoice).leave_out(slow)
            comparison = compare_with_unmodified(self, feeds)
            wrong = tuple(name for name in comparison.left_out if name not in slow)
            comparison = replace(comparison, left_out=wrong, slow=slow)
        return comparison

    @abstractmethod
    def restore(self, calibration: PlainDict) -> None:
        """Use the result of an earlier `calibrate`."""

    @abstractmethod
    def assemble(self, config: QuantConfig | None) -> Model:
        """Return the model of a configuration without a session, which is created when the model is first called.

        Args:
            config: how each op runs; None for the float model.
        """

    def build(self, config: QuantConfig | None) -> Model:
        """Return the model of a configuration, ready to run.

        Args:
            config: how each op runs; None for the float model.

        Raises:
            BuildError: if it does not load.
        """
        model = self.assemble(config)
        model.session  # noqa: B018 - a model that does not load must fail here
        model.start_hashing()
        return model

    @abstractmethod
    def load_saved(self, path: Path) -> Model:
        """Load a model that was saved before. It outlives the adapter."""

    @abstractmethod
    def record_outputs(self, config: QuantConfig | None, ops: Sequence[str]) -> Callable[[Feed], dict[str, Array]]:
        """Return a function that runs a feed and returns the output of each of these ops, as float."""

    @abstractmethod
    def op_seconds(self, config: QuantConfig | None, threads: int | None = None) -> dict[str, float]:
        """Return the seconds of each op in one inference of `timing_feed`; "" is the time outside all ops."""

    @property
    def probe_samples(self) -> Sequence[Feed]:
        """Return a few calibration samples, for measurements without labels.

        Each feed holds one sample where the model takes single samples.
        """
        return self._probe_samples

    def keep_probe_samples(self, data: CalibrationData) -> None:
        """Take the probe samples from `data` without calibrating, for a resumed run."""
        calibrator = functools.cache(self.calibrator)
        for _ in self._keep_samples(data, MAX_PROBE_SAMPLES, lambda feed: calibrator().takes_single_samples(feed)):
            pass
        self._on_probe_samples()

    @property
    def timing_feed(self) -> Feed:
        """Return the batch that models are timed on: `batch` probe samples, or the batch that the model fixes."""
        return timing_feed(self._probe_samples, self._inputs, self._options.batch)

    @property
    def has_data_left(self) -> bool:
        """Return True if the limit of the last calibration left samples over, or may have."""
        return self._rest.more

    def close(self) -> None:  # noqa: B027 - most adapters have nothing to remove
        """Remove temporary files."""

    def _keep_samples(
        self, data: CalibrationData, limit: int | None, takes_single_samples: Callable[[Feed], bool]
    ) -> Iterator[Feed]:
        self._rest = RemainingData()
        stream = feeds(data, self._inputs, limit, self._rest)
        return keep_first_samples(split_samples(stream, self._inputs, takes_single_samples), self._probe_samples)

    def _more_to_record(self) -> PlainDict:
        """Return what else belongs to the result of a calibration, as builtins."""
        return {}

    def _on_probe_samples(self) -> None:  # noqa: B027 - most adapters have nothing to do
        """Prepare what needs probe samples; called when they are available."""


def _first_samples(stream: Iterator[Feed], enough: IsEnough) -> list[Feed]:
    """Return the first feeds of a stream, to compare models on; a single one if that used up the time."""
    first: list[Feed] = []
    for feed in stream:
        first.append(feed)
        if len(first) == MAX_SAMPLES or enough():
            break
    return first
