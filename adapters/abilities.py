"""Optional abilities of an adapter, each a protocol, and what happens where an adapter lacks one.

An adapter has an ability if its class has the protocol's members. Callers use the functions of this module: each falls
back to a default, or raises a `SettingsError` that names the adapter and the missing ability.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, TypeVar, runtime_checkable

import numpy as np

from quaver.adapters.comparison import Comparison, compare_models, comparison_feeds, runner_of
from quaver.adapters.data import count_samples
from quaver.adapters.inspection import ModelView, StandaloneView
from quaver.adapters.model import Model
from quaver.affine import as_float
from quaver.errors import SettingsError
from quaver.introspection import Timing
from quaver.ops import QuantConfig
from quaver.processors import Portability, this_processor
from quaver.types import Array, CalibrationData, Feed, ModelLike
from quaver.unquantizable import Unquantizable

if TYPE_CHECKING:
    from quaver.adapters.base import Adapter
    from quaver.adapters.options import TimingOptions

AbilityT = TypeVar("AbilityT")

# Multiply-adds a second of one core in fp32; convolutional networks reach 30 to 90 billion (benchmarks/probing.py).
MULTIPLY_ADDS = 40e9
# The seconds of a node beside its multiplications, and of a call. Judgement.
NODE_SECONDS, CALL_SECONDS = 5e-6, 1e-4
# The seconds of an inference where the adapter counts no arithmetic. Judgement: a small mobile network.
USUAL_SECONDS = 4e-3


@runtime_checkable
class SupportsUnmodified(Protocol):
    """Runs a model exactly as the user gave it, also one that is quantized already."""

    def build_unmodified(self) -> Model:
        """Return the user's own model, where `build(None)` is a converted or faster form of it.

        Raises:
            BuildError: if it does not run.
        """

    @classmethod
    def load_unmodified(cls, model: ModelLike, threads: int = 0) -> Model:
        """Load any model of this framework, float or quantized.

        The result takes and returns real numbers, also where the file's own inputs and outputs are scaled integers.

        Raises:
            ModelError: if it cannot be read.
        """


@runtime_checkable
class SupportsComparison(Protocol):
    """Compares the float model that is tuned with the user's own in a way of its own."""

    def compare(self, feeds: Sequence[Feed] = ()) -> Comparison:
        """Compare both on these feeds, or on made-up inputs. See `compare_with_unmodified`."""


@runtime_checkable
class SupportsGraphReport(Protocol):
    """Reports how the float graph was changed."""

    @property
    def rewrites(self) -> tuple[tuple[str, int], ...]:
        """Return the rewrites that make the float model faster, and how often each was applied."""

    @property
    def conversions(self) -> tuple[str, ...]:
        """Return what was converted when the model was loaded, such as ("opset 11 to 17",)."""


@runtime_checkable
class SupportsRewriteChoice(Protocol):
    """Can leave out single rewrites of the float graph, which `rewrites` names."""

    def without_rewrites(self, names: Sequence[str]) -> Adapter:
        """Return another adapter of the model, calibrated on one probe sample, for measurements. The caller closes it.

        Raises:
            ModelError: if nothing in the model can be quantized without them.
        """

    def leave_out(self, names: Sequence[str]) -> None:
        """Build the model without these rewrites from here on."""


@runtime_checkable
class SupportsMaskReport(Protocol):
    """Reports ops whose inputs mix real values with mask values."""

    @property
    def ops_with_mask_values(self) -> tuple[str, ...]:
        """Return the ops that would quantize real values together with stand-ins for infinity, as calibration showed.

        They stay in fp32: no range has steps fine enough for the real values and wide enough for the others.
        """


@runtime_checkable
class SupportsUnquantizableReport(Protocol):
    """Reports the nodes that belong to no op, because nothing runs them in int8."""

    def unquantizable(self, timed: bool = False) -> Sequence[Unquantizable]:
        """Return these nodes by kind.

        Args:
            timed: add their share of the time. It takes a probe sample and one profile of the float model.
        """


@runtime_checkable
class SupportsLocalErrors(Protocol):
    """Measures the error of all int8 ops in one run."""

    def local_errors(self, config: QuantConfig) -> dict[str, tuple[float, float]]:
        """Return for each int8 op its squared error on the probe samples, and its squared output.

        The op gets float inputs, so errors of other ops do not count.
        """


class PartialRuns(Protocol):
    """Runs the float model once, and models that differ from it in one op from that op on."""

    def outputs(self, config: QuantConfig, count: int) -> list[list[Array]] | None:
        """Return the outputs of a configuration for the first feeds; None if it has to run as a whole."""


@runtime_checkable
class SupportsPartialRuns(Protocol):
    """Runs only the part of a model that a quantized op changes."""

    def partial_runs(self, feeds: Sequence[Feed]) -> PartialRuns | None:
        """Return what runs parts of models on these feeds; None if they run as a whole."""


@runtime_checkable
class SupportsWorkload(Protocol):
    """Counts the arithmetic of the float model."""

    def workload(self, feed: Feed) -> tuple[float, int]:
        """Return the multiply-adds of an inference on this feed, and its number of nodes."""


@runtime_checkable
class SupportsInt8Edges(Protocol):
    """Knows which ops hand integers to each other."""

    def int8_edges(self) -> Mapping[str, tuple[str, ...]]:
        """Return, for each op that passes its result on in 8 bits, the ops that read it in 8 bits."""


@runtime_checkable
class SupportsPortability(Protocol):
    """Builds int8 weights so that models give the same outputs on processors without VNNI."""

    def portability_of(self, config: QuantConfig | None) -> Portability:
        """Return the processors on which a configuration gives the outputs that it gives on this one."""


@runtime_checkable
class SupportsProvenance(Protocol):
    """Reads the provenance that quaver writes into a saved model."""

    @classmethod
    def read_provenance(cls, path: Path) -> tuple[dict[str, str], str]:
        """Return the properties that `Model.add_provenance` wrote, and the sha256 of the model without them.

        The properties are empty if there are none; the hash is empty if it cannot be determined.
        """


@runtime_checkable
class SupportsInspection(Protocol):
    """Reads tensors and weights of a quantized model, for diagnosis."""

    def inspect_quantized(self, quantized: QuantConfig | ModelLike) -> ModelView:
        """Return a view of a configuration, or of the file of a quantized model."""


@runtime_checkable
class SupportsStandaloneInspection(Protocol):
    """Reads tensors and weights of a quantized model without its float model."""

    @classmethod
    def inspect_standalone(cls, quantized: ModelLike, threads: int = 0) -> StandaloneView:
        """Return a view of a quantized model."""


@runtime_checkable
class SupportsProfiling(Protocol):
    """Times a model kernel by kernel."""

    @classmethod
    def profile(
        cls,
        model: ModelLike,
        data: CalibrationData | None,
        options: TimingOptions,
        float_adapter: Adapter | None = None,
    ) -> Timing:
        """Time each kernel of any model of this framework, and the model end to end.

        Args:
            model: the model, float or quantized.
            data: inputs; None for made-up ones.
            options: batch, threads and number of runs.
            float_adapter: the adapter of the float model; kernels get the names of its ops.
        """


@runtime_checkable
class SupportsBoardKit(Protocol):
    """Times ops on a machine where quaver is not installed."""

    @classmethod
    def board_script(cls) -> str:
        """Return the source of a script that times models without quaver."""

    def op_seconds_from_kernels(self, kernels: Mapping[str, float], graph: bytes) -> dict[str, float]:
        """Return the seconds of each op, and under "" of all else, from the kernel times of that script."""


@runtime_checkable
class SupportsEmulation(Protocol):
    """Runs a model on an emulated processor."""

    @classmethod
    def emulation_script(cls) -> Path:
        """Return the script that runs a model in a process of its own, for `quaver.engine.emulation`."""


# Sentences for users who ask for an ability that the adapter lacks.
_REFUSALS: dict[type[Any], str] = {
    SupportsInspection: "{name} cannot inspect a quantized file; give a configuration or a trial",
    SupportsStandaloneInspection: "{name} cannot inspect a quantized model without its float model; give that, too",
    SupportsProfiling: "models of {name} cannot be profiled; the adapter has no method `profile`",
    SupportsBoardKit: (
        "{name} has no script that times ops without quaver: install quaver on the target, and use "
        "`quaver profile MODEL --calib DATA --save cost.json` there"
    ),
    SupportsEmulation: "models of {name} cannot be run on an emulated processor: leave out `cpu`",
}


def supports(adapter: Adapter | type[Adapter], ability: type[AbilityT]) -> TypeGuard[AbilityT]:
    """Return True if the adapter's class has the members of this protocol."""
    # The class is asked, because asking an instance would compute its properties.
    return isinstance(adapter if isinstance(adapter, type) else type(adapter), ability)


def require(adapter: Adapter | type[Adapter], ability: type[AbilityT]) -> AbilityT:
    """Return the adapter as one with this ability.

    Raises:
        SettingsError: if it lacks the ability; the message names both.
    """
    if supports(adapter, ability):
        return adapter
    refusal = _REFUSALS.get(ability, "adapter {name} lacks an ability that this call needs: " + ability.__name__)
    raise SettingsError(refusal.format(name=adapter.name))


def build_unmodified(adapter: Adapter) -> Model:
    """Return the model exactly as the user gave it."""
    return adapter.build_unmodified() if supports(adapter, SupportsUnmodified) else adapter.build(None)


def compare_with_unmodified(adapter: Adapter, feeds: Sequence[Feed] = ()) -> Comparison:
    """Compare the float model that is tuned with the user's own, on these feeds or on made-up inputs.

    A rewrite that changes what the model computes is skipped from then on: ask `ops` for the ops after this.

    Raises:
        ModelError: if the model was changed when it was converted; the message names the op.
    """
    if supports(adapter, SupportsComparison):
        return adapter.compare(feeds)
    inputs = adapter.inputs
    chosen = comparison_feeds(feeds, inputs)
    if not supports(type(adapter), SupportsUnmodified):  # nothing is converted, so there is nothing to compare
        return Comparison(batches=tuple(map(count_samples, chosen)))
    return compare_models(chosen, inputs, runner_of(build_unmodified(adapter)), runner_of(adapter.assemble(None)))


def rewrites(adapter: Adapter) -> tuple[tuple[str, int], ...]:
    """Return the rewrites that make the float model faster than the user's, and how often each was applied."""
    return adapter.rewrites if supports(adapter, SupportsGraphReport) else ()


def conversions(adapter: Adapter) -> tuple[str, ...]:
    """Return what was converted when the model was loaded."""
    return adapter.conversions if supports(adapter, SupportsGraphReport) else ()


def ops_with_mask_values(adapter: Adapter) -> tuple[str, ...]:
    """Return the ops that must stay in fp32 because their inputs hold mask values."""
    return adapter.ops_with_mask_values if supports(adapter, SupportsMaskReport) else ()


def unquantizable(adapter: Adapter, timed: bool = False) -> Sequence[Unquantizable]:
    """Return the nodes that belong to no op, by kind."""
    return adapter.unquantizable(timed) if supports(adapter, SupportsUnquantizableReport) else ()


def portability_of(adapter: Adapter, config: QuantConfig | None) -> Portability:
    """Return the processors on which a configuration gives the outputs that it gives on this one."""
    if config is None or not config.quantized_ops:
        return Portability(this_processor(), "float")
    if supports(adapter, SupportsPortability):
        return adapter.portability_of(config)
    return Portability(this_processor(), "inherent" if adapter.portability == "inherent" else "")


def read_provenance(adapter: type[Adapter], path: Path) -> tuple[dict[str, str], str]:
    """Return the provenance in a saved model, and the model's sha256 without it; both empty if it cannot be read."""
    return adapter.read_provenance(path) if supports(adapter, SupportsProvenance) else ({}, "")


def inspect_quantized(adapter: Adapter, quantized: QuantConfig | ModelLike) -> ModelView:
    """Return a view of a configuration, or of the file of a quantized model, for diagnosis.

    Raises:
        SettingsError: if it is a file and the adapter shows only configurations.
    """
    if isinstance(quantized, QuantConfig) and not supports(adapter, SupportsInspection):
        return ModelView(adapter, quantized)
    return require(adapter, SupportsInspection).inspect_quantized(quantized)


def local_errors(adapter: Adapter, config: QuantConfig) -> dict[str, tuple[float, float]]:
    """Return for each int8 op, fed with float inputs, its squared error on the probe samples and its squared output."""
    if supports(adapter, SupportsLocalErrors):
        return adapter.local_errors(config)
    return local_errors_one_by_one(adapter, config)


def partial_runs(adapter: Adapter, feeds: Sequence[Feed]) -> PartialRuns | None:
    """Return what runs parts of models on these feeds; None if models run as a whole."""
    return adapter.partial_runs(feeds) if supports(adapter, SupportsPartialRuns) else None


def expected_seconds(adapter: Adapter, feed: Feed) -> float:
    """Return about how long a core takes for one sample of the float model.

    It is the same on every machine and at any load, because plans depend on it.
    """
    if not supports(adapter, SupportsWorkload):
        return USUAL_SECONDS
    try:
        multiply_adds, nodes = adapter.workload(feed)
    except Exception:  # a plan needs no exact figure
        return USUAL_SECONDS
    return (CALL_SECONDS + nodes * NODE_SECONDS + multiply_adds / MULTIPLY_ADDS) / max(count_samples(feed), 1)


def local_errors_one_by_one(adapter: Adapter, config: QuantConfig) -> dict[str, tuple[float, float]]:
    """Return the local errors from models with one int8 op each."""
    record_float = adapter.record_outputs(None, config.quantized_ops)
    expected = [record_float(feed) for feed in adapter.probe_samples]
    errors = {}
    for name in config.quantized_ops:
        only_this = config.fallback(*(other for other in config if other != name))
        record_int8 = adapter.record_outputs(only_this, [name])
        outputs = [
            (fp32[name], record_int8(feed)[name]) for fp32, feed in zip(expected, adapter.probe_samples, strict=True)
        ]
        noise = sum(float(np.square(np.subtract(int8, fp32, dtype=np.float64)).sum()) for fp32, int8 in outputs)
        errors[name] = noise, sum(float(np.square(fp32, dtype=np.float64).sum()) for fp32, _ in outputs)
    return errors


def weight_errors(adapter: Adapter, config: QuantConfig) -> dict[str, float]:
    """Return the squared error of each quantized op's weight, as a part of the weight's square. It takes no samples."""
    errors = {}
    for weight in inspect_quantized(adapter, config).weights():
        if config[weight.op].quantized:
            before, after = np.asarray(weight.fp32, np.float64), as_float(weight.optimized)
            signal = float(np.square(before).sum())
            errors[weight.op] = float(np.square(after - before).sum()) / signal if signal > 0 else 0.0
    return errors


def int8_edges(adapter: Adapter) -> Mapping[str, tuple[str, ...]]:
    """Return, for each op that passes its result on in 8 bits, the ops that read it in 8 bits; empty if unknown."""
    return adapter.int8_edges() if supports(adapter, SupportsInt8Edges) else {}
