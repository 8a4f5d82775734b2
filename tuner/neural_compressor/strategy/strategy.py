"""Strategies of Neural Compressor: classes with a generator `next_tune_cfg`, which quaver's loop runs."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from quaver.errors import StrategyError
from quaver.neural_compressor.model import to_op_dict
from quaver.neural_compressor.run_context import DEFAULT_SAMPLES, current_run
from quaver.neural_compressor.settings_view import SettingsView
from quaver.neural_compressor.strategy.adaptor import Adaptor
from quaver.ops import FLOAT, Op, OpConfig, QuantConfig
from quaver.probe import Probe
from quaver.rules import apply_rules
from quaver.space import TuningSpace
from quaver.strategies import Strategy, register_strategy
from quaver.strategies.base import Proposals
from quaver.trial import Trial
from quaver.types import PlainDict, PlainMapping

_SUFFIX = "tunestrategy"


class TuneStrategy:
    """Base class: write `next_tune_cfg` as a generator and decorate the class with `@strategy_registry`.

    Yield {"op": {(name, type): {"activation": {"dtype": "fp32"}}}}, the inner mapping alone, names without types, or a
    `QuantConfig`. Ops that are not named run in int8 with their default choice.

    Attributes:
        tuning_space: a `quaver.TuningSpace`.
        probe: measurements that need no labels: `probe.ranking()`, `probe.mse()`, `probe.inspect(config, ops)`, ...
        capability: {"opwise": {(name, type): [choice, ...]}}, the default choice first.
        last_tune_result: (score, [latency]) of the last trial; the score is None if it failed.
        last_trial: the last trial as a `quaver.Trial`, with its loss and whether it meets the criterion.
        allowed: the loss that the criterion allows, in the unit of `last_trial.loss`.
        model: the float model; None outside of a run of this package.
        calib_dataloader: the calibration data, likewise.
        cfg: the settings of the run by their sections: `cfg.tuning.random_seed`.
        adaptor: reads tensors: `adaptor.inspect_tensor(adaptor.quantize(config), op_list=names)`.
        calib_sampling_size, calib_iter: numbers of samples and batches to calibrate with, as lists. They are for
            configurations that name them; a run calibrates once.
    """

    tuning_space: TuningSpace
    probe: Probe
    allowed: float
    model: Any = None
    calib_dataloader: Any = None
    cfg: SettingsView
    adaptor: Adaptor
    calib_sampling_size: Sequence[int] = (DEFAULT_SAMPLES,)
    last_trial: Trial | None = None
    last_tune_result: tuple[float | None, list[float | None]] = (None, [None])

    def __init__(self, *args: Any, **keywords: Any) -> None:
        """Accept the arguments that subclasses pass on; none is used."""

    def next_tune_cfg(self) -> Iterator[Any]:
        """Yield one configuration after another."""
        raise NotImplementedError

    @property
    def capability(self) -> PlainDict:
        """Return the choices of each op."""
        return {
            "opwise": {
                (op.name, op.kind): [to_op_dict(choice) for choice in op.choices] for op in self.tuning_space.ops
            }
        }

    @property
    def calib_iter(self) -> list[int]:
        """Return how many batches hold the samples; one sample makes a batch if the data does not tell."""
        size = getattr(self.calib_dataloader, "batch_size", None) or 1
        return [max(1, samples // size) for samples in self.calib_sampling_size]

    @property
    def opwise_tune_cfgs(self) -> dict[tuple[str, str], list[PlainDict]]:
        """Return all choices of each op that can be quantized, the default first."""
        return {
            (op.name, op.kind): [to_op_dict(choice) for choice in op.choices]
            for op in self.tuning_space.ops
            if op.quantizable
        }

    @property
    def opwise_quant_cfgs(self) -> dict[tuple[str, str], list[PlainDict]]:
        """Return the quantized choices of each op."""
        return {
            (op.name, op.kind): [to_op_dict(choice) for choice in op.quantized_choices]
            for op in self.tuning_space.ops
            if op.quantizable
        }

    @property
    def opwise_tune_space(self) -> dict[tuple[str, str], PlainDict]:
        """Return the values of each detail that an op offers: `["activation"]["dtype"]` and others."""
        return {key: _values(choices) for key, choices in self.opwise_tune_cfgs.items()}

    def initial_tuning_cfg(self) -> PlainDict:
        """Return the configuration with every op in int8 by its default choice, to be changed and yielded."""
        config = self.tuning_space.default_config()
        return {"op": {(op.name, op.kind): to_op_dict(config[op.name]) for op in self.tuning_space.ops}}


def strategy_registry(cls: type[TuneStrategy]) -> type[TuneStrategy]:
    """Register a strategy by its class name in lower case without `TuneStrategy`: MyTuneStrategy becomes "my"."""
    registered_name = cls.__name__.lower().removesuffix(_SUFFIX) or cls.__name__.lower()
    if not inspect.isgeneratorfunction(getattr(cls, "next_tune_cfg", None)):
        raise StrategyError(f"{cls.__name__}.next_tune_cfg must be a generator: `yield` each configuration")

    class Bridged(Strategy):
        __doc__ = cls.__doc__ or f"{cls.__name__}, by its next_tune_cfg."
        name = registered_name

        def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
            """Yield every configuration of `next_tune_cfg` and pass its trial back."""
            inner = cls.__new__(cls)
            inner.tuning_space, inner.probe, inner.allowed = space, probe, self.allowed
            inner.adaptor = Adaptor(space, probe, _config)
            context = current_run.get()
            settings = {"seed": self.seed} if context is None else {**context.settings, "seed": self.seed}
            inner.cfg = SettingsView(settings)
            if context is not None:
                inner.model, inner.calib_dataloader = context.model, context.data
                inner.calib_sampling_size = context.calibration_sizes
            inner.__init__(*_required_arguments(cls))  # type: ignore[misc]
            for proposal in inner.next_tune_cfg():
                trial: Trial = yield _config(proposal, space)
                inner.last_trial, inner.last_tune_result = trial, (trial.score, [trial.measured.get("latency")])

    Bridged.__qualname__ = Bridged.__name__ = cls.__name__
    register_strategy(Bridged)
    return cls


def _values(choices: Sequence[PlainDict]) -> PlainDict:
    """Return the values of each detail over all choices, each once."""
    found: PlainDict = {}
    for choice in choices:
        for part, details in choice.items():
            for name, value in details.items():
                values = found.setdefault(part, {}).setdefault(name, [])
                if value not in values:
                    values.append(value)
    return found


def _required_arguments(cls: type[TuneStrategy]) -> list[None]:
    """Return None for each required argument of a constructor: model, conf and data are not needed here."""
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [None for entry in parameters if entry.kind in kinds and entry.default is inspect.Parameter.empty]


def _config(proposal: Any, space: TuningSpace) -> QuantConfig:
    if isinstance(proposal, QuantConfig):
        return proposal
    if not isinstance(proposal, Mapping):
        raise StrategyError(f"next_tune_cfg must yield mappings of ops or QuantConfigs, not {proposal!r:.80}")
    rules = {key[0] if isinstance(key, tuple) else key: rule for key, rule in proposal.get("op", proposal).items()}
    rules.pop("calib_sampling_size", None)
    picks = {op.name: _pick(op, rules[op.name]) for op in space.ops if op.name in rules}
    unknown = [name for name in rules if name not in space]
    if unknown:
        raise StrategyError(f"next_tune_cfg names the op {unknown[0]!r}, which the model does not have")
    return space.default_config().replace(picks)


def _pick(op: Op, rule: OpConfig | PlainMapping) -> OpConfig:
    """Return the first choice of an op that follows the rule."""
    if isinstance(rule, OpConfig):
        return rule
    if isinstance(rule, Mapping) and rule.get("activation", {}).get("dtype") in ("fp32", ["fp32"]):
        return FLOAT
    (narrowed,) = apply_rules([op], {op.name: rule})
    return narrowed.choices[0]
