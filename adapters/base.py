"""What an adapter is: the one who knows a framework. The only rooms that import one are behind this door."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from quaver.adapters.calibration.calibrator import Enough, Progress, StreamingCalibrator, never, silent
from quaver.adapters.comparison import MAX_SAMPLES, Comparison, compare_models, comparison_feeds, runner_of
from quaver.adapters.data import InputSpec, Rest, feeds, is_finite, samples
from quaver.adapters.inspection import QuantizedView, View
from quaver.adapters.model import Model
from quaver.adapters.model_errors import as_model_error
from quaver.adapters.samples import KEPT_SAMPLES, cut, keep, timing_feed
from quaver.affine import as_float
from quaver.errors import SettingsError
from quaver.introspection import Timing
from quaver.ops import Op, QuantConfig
from quaver.processors import Portability, this_processor
from quaver.suggestions import hint
from quaver.types import Array, Feed, ModelLike, PlainDict, PlainMapping
from quaver.unquantizable import Unquantizable


@dataclass(frozen=True, slots=True)
class AdapterOptions:
    """How an adapter should work.

    Attributes:
        folder: where large temporary files may lie; None is the system's place for them.
        threads: threads of one inference; 0 lets the runtime decide.
        quant_format: how int8 is written into the model, where the framework knows several ways; None is its default.
        optimise_float: rewrite the float graph, exactly, so that it is fast before it is quantized.
        batch: samples of one inference that is timed, where the model leaves that open.
        shared: other processes of this machine work on the same model with the same folder: large weights need lie
            there but once. Whoever made the folder removes what is in it.
        left_out: rewrites of the float graph that must not be applied, because they change what the model computes.
        portable: build int8 weights so that the model gives the same answers on x86 processors without VNNI.
    """

    folder: Path | None = None
    threads: int = 0
    quant_format: str | None = None
    optimise_float: bool = True
    batch: int = 1
    shared: bool = False
    left_out: tuple[str, ...] = ()
    portable: bool = False


@dataclass(frozen=True, slots=True)
class TimingOptions:
    """How a model is run for its time.

    Attributes:
        batch: samples of one inference, where the model leaves that open.
        threads: threads of one inference; 0 lets the runtime decide.
        warmup: inferences that do not count.
        runs: inferences that do.
    """

    batch: int = 1
    threads: int = 0
    warmup: int = 5
    runs: int = 50


class Adapter(ABC):
    """One model of one framework, ready to be inspected, calibrated and rebuilt in any configuration.

    A new adapter is a subclass that names itself (`name`, `frameworks`, `suffix`, `accepted_forms`) and writes

    - `accepts` and `load`, which calls this class's `__init__` with the options and what the model takes;
    - `fingerprint` and `versions`: what the model is, and what the bytes of a built one depend on;
    - `ops`: the ops, with their choices;
    - `calibrator`: what runs the float model and shows its tensors, and `restore`: use what calibration found;
    - `assemble`: the `Model` of a configuration, and `load_saved`: one that was saved;
    - `record_outputs` and `op_seconds`: the outputs of ops, and how long they take, for strategies.

    Everything else has a default here that a subclass may improve: `local_errors`, `inspect_quantized`,
    `inspect_standalone` and `profile` if the framework shows more; `load_unmodified` if it runs quantized files;
    `unquantizable` and `conversions` to describe the model; `close` to remove files; `_on_probe_samples` to be called
    when there are samples. `build_unmodified` is the user's own model where a converted or rewritten one is tuned;
    `compare` then makes sure that both compute the same. `quant_formats` and `implied_formats` name the ways to write
    int8 into a model, if there are several.

    `quaver.testing.check_adapter` checks a new adapter against this contract. `examples/custom_adapter.py` is one.
    """

    name: ClassVar[str]
    frameworks: ClassVar[tuple[str, ...]]  # what users call it in `framework:`
    suffix: ClassVar[str]  # of a saved model's file name
    accepted_forms: ClassVar[str] = "what its documentation says"  # the forms of a model, for a user who gave another
    quant_formats: ClassVar[tuple[str, ...]] = ()  # what `quant_format` may be, the default first
    implied_formats: ClassVar[Mapping[str, str]] = MappingProxyType({})  # of names in `frameworks` that say it, too
    # Why answers are the same on every x86 processor: "built" so if `portable`, "inherent" in the kernels, "" if not.
    portability: ClassVar[str] = ""

    def __init__(self, options: AdapterOptions, inputs: Sequence[InputSpec]) -> None:
        self._options = options
        self._inputs = tuple(inputs)
        self._probe_samples: list[Feed] = []
        self._rest = Rest()

    @classmethod
    @abstractmethod
    def accepts(cls, model: ModelLike) -> bool:
        """Whether this framework can take the model. Must be cheap and must not import the framework for a stranger."""

    @classmethod
    @abstractmethod
    def load(cls, model: ModelLike, options: AdapterOptions) -> Adapter:
        """Read the model. The user's object or file is never changed. Raises `ModelError`."""

    @classmethod
    def resolve_quant_format(cls, wanted: str | None, framework: str | None = None) -> str | None:
        """How int8 is written into models: as wanted, as the framework's name says, or as is usual.

        Raises `SettingsError` for what the adapter does not know, and where two wishes contradict each other.
        """
        implied = cls.implied_formats.get(framework or "")
        if wanted is None:
            return implied or next(iter(cls.quant_formats), None)
        wanted = wanted.lower()
        if not cls.quant_formats:
            raise SettingsError(f"{cls.name} knows no quant_format, and this one is {wanted!r}: leave it out")
        if wanted not in cls.quant_formats:
            raise SettingsError(
                f"unknown quant_format {wanted!r} for {cls.name}; {hint(str(wanted), cls.quant_formats)}"
            )
        if implied not in (None, wanted):
            raise SettingsError(
                f"framework {framework!r} means quant_format {implied!r}, and quant_format is {wanted!r}: give one only"
            )
        return wanted

    @classmethod
    def resolve_portable(cls, wanted: bool | None) -> bool:
        """Return whether int8 models are to give the same answers on every x86 processor, as wanted or by default.

        Raises:
            SettingsError: if it is wanted and this framework's models cannot be built so.
        """
        if wanted and not cls.portability:
            raise SettingsError(
                f"`portable` is True, and {cls.name} cannot promise it: int8 sums may saturate on processors without "
                "VNNI. Leave `portable` out, or export the model to ONNX and tune that"
            )
        return bool(cls.portability) if wanted is None else wanted

    def portability_of(self, config: QuantConfig | None) -> Portability:
        """Return on which processors a configuration gives the answers that it gives on this one."""
        if config is None or not config.quantized_ops:
            return Portability(this_processor(), "float")
        return Portability(this_processor(), "inherent" if self.portability == "inherent" else "")

    @classmethod
    def recorded_quant_format(cls, settings: PlainMapping) -> str | None:
        """The format of an earlier run. Version 0.1.0 wrote one into its settings for adapters that know none, too."""
        recorded = settings.get("quant_format")
        return recorded if recorded in cls.quant_formats else cls.resolve_quant_format(None)

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A hash of what the model computes, the same for each form it can be given in."""

    @property
    @abstractmethod
    def versions(self) -> dict[str, str]:
        """The packages on which the bytes of a built model depend."""

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        """What the model takes."""
        return self._inputs

    @abstractmethod
    def ops(self) -> tuple[Op, ...]:
        """The ops that can run in int8, in graph order, with their choices."""

    def calibrate(
        self, data: Any, limit: int | None = None, progress: Progress = silent, enough: Enough = never
    ) -> PlainDict:
        """Run `data` through the float model once, for all methods. Returns the result as builtins, and uses it.

        At most `limit` samples are taken, and no more once `enough` says so; one at least. How `data` is cut into
        batches does not matter where the model takes samples one by one. Before that the float model is compared with
        the model as given on the first samples; the result is part of what is returned.
        """
        calibrator, options = self.calibrator(), self._options
        stream = self._keeping(data, limit, calibrator.takes_one)
        first = _first_samples(stream, enough)
        # Calibration refuses data that is not finite, and names the tensor.
        comparison = self.compare(first) if first and all(map(is_finite, first)) else None
        if self._options != options:  # a rewrite was left out, and the graph is another one
            calibrator = self.calibrator()
        calibration = calibrator.run(itertools.chain(first, stream), limit, progress, enough)
        if comparison is not None:
            calibration["comparison"] = comparison.to_dict()
        self._on_probe_samples()
        self.restore(calibration)
        return calibration

    def compare(self, feeds: Sequence[Feed] = ()) -> Comparison:
        """Compare the float model that is tuned with the model as given, on these feeds or on made-up inputs.

        A rewrite that changes what the model computes is left out from then on: ask `ops` for the ops after this.

        Raises:
            ModelError: if the model was changed when it was converted; the message names the op.
        """
        return self._compare(feeds)

    def _compare(self, feeds: Sequence[Feed]) -> Comparison:
        """Compare both models. An adapter that tunes the model exactly as given has nothing to compare."""
        chosen = comparison_feeds(feeds, self._inputs)
        if type(self).build_unmodified is Adapter.build_unmodified:
            return Comparison(batches=tuple(map(samples, chosen)))
        return compare_models(chosen, self._inputs, runner_of(self.build_unmodified()), runner_of(self.assemble(None)))

    @property
    def options(self) -> AdapterOptions:
        """How this adapter works, with the rewrites that it leaves out."""
        return self._options

    @abstractmethod
    def calibrator(self) -> StreamingCalibrator:
        """What runs the float model and shows the tensors whose range some configuration may need."""

    @abstractmethod
    def restore(self, calibration: PlainDict) -> None:
        """Use a calibration result from `calibrate`."""

    @property
    def rewrites(self) -> tuple[tuple[str, int], ...]:
        """Which rewrites made the float model faster than the one given, and how often each was applied."""
        return ()

    @property
    def conversions(self) -> tuple[str, ...]:
        """What was converted when the model was read, such as ("opset 11 to 17",)."""
        return ()

    @property
    def ops_with_mask_values(self) -> tuple[str, ...]:
        """The ops that would quantize real values together with what stands for infinity, as calibration showed.

        They stay in fp32: no range has steps for both.
        """
        return ()

    def unquantizable(self, timed: bool = False) -> Sequence[Unquantizable]:
        """What computes in the model and is part of no op, by kind, so that nobody takes it for quantized.

        `timed` asks for its share of the time, too, which takes a kept sample and one profile of the float model.
        """
        return ()

    def build_unmodified(self) -> Model:
        """The model just as the user gave it, which `build(None)` may be a faster form of. Raises `BuildError`."""
        return self.build(None)

    @classmethod
    def load_unmodified(cls, model: ModelLike, threads: int = 0) -> Model:
        """Any model of this framework, float or quantized, whoever made it, just as it is. Raises `ModelError`.

        It takes and gives real numbers, also where the file's own inputs and outputs are integers with a scale.
        """
        with as_model_error(f"the model for {cls.name}"):
            adapter = cls.load(model, AdapterOptions(threads=threads))
        return adapter.build_unmodified()

    def build(self, config: QuantConfig | None) -> Model:
        """The model of a configuration, ready to run; None is the float model. Raises `BuildError`."""
        model = self.assemble(config)
        model.session  # noqa: B018 - a model that does not load must fail here
        model.start_hashing()
        return model

    @abstractmethod
    def assemble(self, config: QuantConfig | None) -> Model:
        """The same model, for its bytes: a session is made only when it is called."""

    @abstractmethod
    def load_saved(self, path: Path) -> Model:
        """A model that was saved before. It outlives the adapter."""

    @classmethod
    def read_provenance(cls, path: Path) -> tuple[dict[str, str], str]:
        """Return what `Model.add_provenance` wrote into a file, and the sha256 of the model in it without that.

        The properties are empty if there are none, and the hash is empty if it cannot be told.
        """
        return {}, ""

    @property
    def probe_samples(self) -> Sequence[Feed]:
        """A few calibration samples, for work that needs no labels: one in each feed, where the model takes that."""
        return self._probe_samples

    @property
    def timing_feed(self) -> Feed:
        """Return the batch that models are timed on: `batch` kept samples, or the batch that the model fixes."""
        return timing_feed(self._probe_samples, self._inputs, self._options.batch)

    def keep_probe_samples(self, data: Any) -> None:
        """Take those samples from `data` without calibrating, for a resumed run."""
        for _ in self._keeping(data, KEPT_SAMPLES, lambda feed: self.calibrator().takes_one(feed)):
            pass
        self._on_probe_samples()

    @property
    def has_data_left(self) -> bool:
        """Whether the limit of the last calibration left samples over, or may have."""
        return self._rest.more

    def _keeping(self, data: Any, limit: int | None, takes_one: Callable[[Feed], bool]) -> Iterator[Feed]:
        self._rest = Rest()
        return keep(cut(feeds(data, self._inputs, limit, self._rest), self._inputs, takes_one), self._probe_samples)

    def _on_probe_samples(self) -> None:  # noqa: B027 - few have something to do
        """Called when there are samples."""

    @abstractmethod
    def record_outputs(self, config: QuantConfig | None, ops: Sequence[str]) -> Callable[[Feed], dict[str, Array]]:
        """A function that runs a feed and gives the output of each of these ops, as float."""

    def local_errors(self, config: QuantConfig) -> dict[str, tuple[float, float]]:
        """For each int8 op, fed with float inputs, its squared error on the kept samples, and the squared output.

        Here each op is built alone in int8; an adapter may have a way to see all at once.
        """
        record_outputs = self.record_outputs(None, config.quantized_ops)
        expected = [record_outputs(feed) for feed in self._probe_samples]
        errors = {}
        for name in config.quantized_ops:
            alone = self.record_outputs(config.fallback(*(other for other in config if other != name)), [name])
            pairs = [(fp32[name], alone(feed)[name]) for fp32, feed in zip(expected, self._probe_samples, strict=True)]
            noise = sum(float(np.square(np.subtract(int8, fp32, dtype=np.float64)).sum()) for fp32, int8 in pairs)
            errors[name] = noise, sum(float(np.square(fp32, dtype=np.float64).sum()) for fp32, _ in pairs)
        return errors

    @classmethod
    def board_script(cls) -> str | None:
        """The source of a script that times models where there is nothing of quaver; None if there is none."""
        return None

    @classmethod
    def emulation_script(cls) -> Path:
        """Return the script that runs a model in a process of its own, for `quaver.engine.emulation`.

        Raises:
            SettingsError: if there is none.
        """
        raise SettingsError(f"models of {cls.name} cannot be run on an emulated processor: leave out `cpu`")

    def op_seconds_from_kernels(self, kernels: Mapping[str, float], graph: bytes) -> dict[str, float]:
        """Seconds of each op, and of all that belongs to none, from what such a script says of kernels."""
        raise NotImplementedError

    def weight_errors(self, config: QuantConfig) -> dict[str, float]:
        """For each reduced op whose weight is known, its squared error as a part of the weight. It takes no samples."""
        errors = {}
        for weight in self.inspect_quantized(config).weights():
            if config[weight.op].quantized:
                before, after = np.asarray(weight.fp32, np.float64), as_float(weight.optimized)
                signal = float(np.square(before).sum())
                errors[weight.op] = float(np.square(after - before).sum()) / signal if signal > 0 else 0.0
        return errors

    @abstractmethod
    def op_seconds(self, config: QuantConfig | None, threads: int | None = None) -> dict[str, float]:
        """Return the seconds of each op in one inference of `timing_feed`; "" is the time outside all ops."""

    def int8_edges(self) -> Mapping[str, tuple[str, ...]]:
        """For each op that hands its result on in 8 bits, the ops that take it so; empty if that is not known."""
        return {}

    def inspect_quantized(self, quantized: Any) -> View:
        """See a quantized model from inside, for diagnosis: a configuration, or the file of a quantized model.

        An adapter that can tell more than `View` does returns a subclass; `View` needs no more than `record_outputs`.
        """
        if isinstance(quantized, QuantConfig):
            return View(self, quantized)
        raise SettingsError(f"{self.name} cannot look into a quantized file; give a configuration or a trial")

    @classmethod
    def inspect_standalone(cls, quantized: Any, threads: int = 0) -> QuantizedView:
        """See a quantized model from inside with no float model to compare with."""
        raise SettingsError(f"{cls.name} cannot look into a quantized model by itself; give the float model, too")

    @classmethod
    def profile(
        cls, model: ModelLike, data: Any, options: TimingOptions, float_adapter: Adapter | None = None
    ) -> Timing:
        """Run any model of this framework, quantized or not, for its time: each kernel, and end to end.

        Kernels carry the names of the ops of `float_adapter`, if it is given. Without `data` the inputs are
        made up.
        """
        raise SettingsError(f"models of {cls.name} cannot be profiled")

    def close(self) -> None:  # noqa: B027 - few have something to remove
        """Remove temporary files."""


def _first_samples(stream: Iterator[Feed], enough: Enough) -> list[Feed]:
    """Take a few feeds of a stream to compare models on; one, if that took all the time there is."""
    first: list[Feed] = []
    for feed in stream:
        first.append(feed)
        if len(first) == MAX_SAMPLES or enough():
            break
    return first
