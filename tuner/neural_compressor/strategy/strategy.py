"""Strategies of Neural Compressor: classes with a generator `next_tune_cfg`, run by quaver's loop."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from quaver.errors import StrategyError
from quaver.neural_compressor.model import as_words
from quaver.ops import FLOAT, Op, OpConfig, QuantConfig
from quaver.probe import Probe
from quaver.rules import apply_rules
from quaver.space import TuningSpace
from quaver.strategies import Strategy, register_strategy
from quaver.strategies.base import Proposals
from quaver.trial import Trial
from quaver.types import PlainDict

_ENDING = "tunestrategy"


class TuneStrategy:
    """Subclass it, write `next_tune_cfg` as a generator, and put `@strategy_registry` on it.

    What it yields says how ops run: {"op": {(name, type): {"activation": {"dtype": "fp32"}}}}, the inner mapping alone,
    names without types, or a `QuantConfig`. Ops that it does not name run in int8 by their default.

    Attributes:
        tuning_space: a `quaver.TuningSpace`.
        probe: what can be asked without labels: `probe.ranking()`, `probe.mse()`, `probe.inspect(config, ops)`, ...
        capability: {"opwise": {(name, type): [how it may run, ...]}}, the default first.
        last_tune_result: (score, [latency]) of what was yielded last; the score is None if it failed.
        last_trial: the same as a `quaver.Trial`, with its loss, and whether it meets the criterion.
        allowed: the loss that the criterion allows, in the unit of `last_trial.loss`.
    """

    tuning_space: TuningSpace
    probe: Probe
    allowed: float
    last_trial: Trial | None = None
    last_tune_result: tuple[float | None, list[float | None]] = (None, [None])

    def __init__(self, *args: Any, **keywords: Any) -> None:
        """Takes what a subclass hands on, and needs nothing of it."""

    def next_tune_cfg(self) -> Iterator[Any]:
        """Yield one configuration after the other."""
        raise NotImplementedError

    @property
    def capability(self) -> PlainDict:
        """How each op may run."""
        return {"opwise": {(op.name, op.kind): [as_words(one) for one in op.choices] for op in self.tuning_space.ops}}

    def initial_tuning_cfg(self) -> PlainDict:
        """All ops in int8 by their default choice, to be changed and yielded."""
        config = self.tuning_space.default_config()
        return {"op": {(op.name, op.kind): as_words(config[op.name]) for op in self.tuning_space.ops}}


def strategy_registry(cls: type[TuneStrategy]) -> type[TuneStrategy]:
    """Make a strategy known by its class's name in small letters, without `TuneStrategy`: MyTuneStrategy is "my"."""
    known = cls.__name__.lower().removesuffix(_ENDING) or cls.__name__.lower()
    if not inspect.isgeneratorfunction(getattr(cls, "next_tune_cfg", None)):
        raise StrategyError(f"{cls.__name__}.next_tune_cfg must be a generator: `yield` each configuration")

    class Bridged(Strategy):
        __doc__ = cls.__doc__ or f"{cls.__name__}, by its next_tune_cfg."
        name = known

        def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
            """Ask `next_tune_cfg` again and again."""
            own = cls.__new__(cls)
            own.tuning_space, own.probe, own.allowed = space, probe, self.allowed
            own.__init__(*_needed(cls))  # type: ignore[misc]
            for said in own.next_tune_cfg():
                trial: Trial = yield _config(said, space)
                own.last_trial, own.last_tune_result = trial, (trial.score, [trial.measured.get("latency")])

    Bridged.__qualname__ = Bridged.__name__ = cls.__name__
    register_strategy(Bridged)
    return cls


def _needed(cls: type[TuneStrategy]) -> list[None]:
    """Nothing for each argument that a constructor cannot do without: model, conf and data are not its business."""
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [None for one in parameters if one.kind in kinds and one.default is inspect.Parameter.empty]


def _config(said: Any, space: TuningSpace) -> QuantConfig:
    if isinstance(said, QuantConfig):
        return said
    if not isinstance(said, Mapping):
        raise StrategyError(f"next_tune_cfg must yield mappings of ops or QuantConfigs, not {said!r:.80}")
    wishes = {key[0] if isinstance(key, tuple) else key: wish for key, wish in said.get("op", said).items()}
    wishes.pop("calib_sampling_size", None)
    picks = {op.name: _pick(op, wishes[op.name]) for op in space.ops if op.name in wishes}
    strange = [name for name in wishes if name not in space]
    if strange:
        raise StrategyError(f"next_tune_cfg names {strange[0]!r}, and the model has no such op")
    return space.default_config().replace(picks)


def _pick(op: Op, wish: Any) -> OpConfig:
    """The first choice of an op that does what is asked."""
    if isinstance(wish, OpConfig):
        return wish
    if isinstance(wish, Mapping) and wish.get("activation", {}).get("dtype") in ("fp32", ["fp32"]):
        return FLOAT
    (narrowed,) = apply_rules([op], {op.name: wish})
    return narrowed.choices[0]
