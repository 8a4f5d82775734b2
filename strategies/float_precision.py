"""Decide in which precision ops run that are not quantized, where the runtime offers bf16 beside fp32."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from quaver.ops import BFLOAT, FLOAT, QuantConfig
from quaver.probe import Observed, OpTime, Probe
from quaver.space import TuningSpace
from quaver.strategies.base import Proposals, Strategy
from quaver.strategies.steps.search import Search, shortest_prefix
from quaver.strategies.steps.tuning import TUNING
from quaver.time_model import TimeModel
from quaver.trial import Trial
from quaver.weight_table import WeightTable


class FloatPrecision(Strategy):
    """Let any strategy fall back to bf16, and to fp32 only if bf16 misses the criterion.

    The strategy chooses between quantized and float as if there were one float precision, which is bf16. Its questions
    about times and output errors are answered for bf16.

    - The model with all ops in bf16 is a trial of its own. It comes before the first proposal that is not faster, by
      measurement, and after a few that failed.
    - If it fails, bf16 itself costs too much. The shortest prefix of ops, ranked by what bf16 does to the outputs,
      stays in fp32, and the strategy starts again with these ops.

    Without bf16 in the space, or where speed does not count, the strategy runs as it is.
    """

    def __init__(self, strategy: Strategy) -> None:
        self.name = strategy.name or type(strategy).__name__
        self._strategy = strategy

    @property
    def continues_after_success(self) -> bool:  # type: ignore[override]  # a strategy may change it while it works
        return self._strategy.continues_after_success

    def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
        """Propose configurations as described in the class."""
        view = FloatView(space)
        return self._propose(view, probe) if view.offers_bf16 else self._strategy.propose(space, probe)

    def _propose(self, view: FloatView, probe: Probe) -> Proposals:
        """Propose configurations of a space that offers bf16."""
        if not self._rewards_speed or probe.weight_table() is not None:
            yield from self._translated(view.without_bf16(), probe)
            return
        alone = yield from self._beside_bf16(view, probe)
        if alone is None or alone.met:
            return
        met = yield from _fewest_in_fp32(alone, view, probe, self.width)
        remaining = view.without_bf16() if met is None else view.with_fp32(met.config.fp32_ops)
        yield from self._translated(remaining, probe)

    @property
    def _rewards_speed(self) -> bool:
        budget = self.target_budget
        return self.traits.rewards_speed or (budget is not None and budget.latency is not None)

    def _translated(self, view: FloatView, probe: Probe) -> Proposals:
        """Run the strategy with one float precision for each op."""
        proposals = self._strategy.propose(view.space, FloatProbe(probe, view))
        answer: Any = None
        while True:
            try:
                proposal = proposals.send(answer)
            except StopIteration:
                return
            answer = view.answer(proposal, (yield view.proposal(proposal)))

    def _beside_bf16(self, view: FloatView, probe: Probe) -> Search:
        """Run the strategy with bf16 as its float precision. Return the all-bf16 trial once it fails, or at the end."""
        proposals = self._strategy.propose(view.space, FloatProbe(probe, view))
        answer: Any = None
        alone: Trial | None = None
        count, least, succeeded = 0, math.inf, False
        in_bf16 = view.all_bf16()
        try:
            while alone is None or alone.met:
                proposal = proposals.send(answer)
                outer = view.proposal(proposal)
                configs = [outer] if isinstance(outer, QuantConfig) else list(outer)
                if alone is None and configs:
                    if _comes_first(in_bf16, configs, probe, count >= TUNING.max_trials_before_bf16 and not succeeded):
                        alone = yield in_bf16
                        if not alone.met:
                            break
                    count += len(configs)
                trials = yield outer
                answer = view.answer(proposal, trials)
                met = [trial for trial in ([trials] if isinstance(trials, Trial) else trials) if trial.met]
                succeeded |= bool(met)
                least = min([least, *(probe.speed(trial.config) for trial in met if probe.has_samples)])
        except StopIteration:
            pass
        finally:
            proposals.close()
        if alone is None and (not succeeded or probe.speed(in_bf16) < least):
            alone = yield in_bf16
        return alone

    def worst_case(self, space: TuningSpace) -> int | None:
        """Return twice that of the strategy, and the search for ops that need fp32."""
        return self._with_search(self._strategy.worst_case(FloatView(space).space), space)

    def first_success(self, space: TuningSpace) -> int | None:
        """Return twice that of the strategy, and the search for ops that need fp32."""
        return self._with_search(self._strategy.first_success(FloatView(space).space), space)

    def _with_search(self, evaluations: int | None, space: TuningSpace) -> int | None:
        view = FloatView(space)
        if evaluations is None or not view.offers_bf16 or not self._rewards_speed:
            return evaluations
        depth = math.ceil(math.log2(max(len(view.free), 1)))
        at_once = min(self.width, TUNING.max_width)
        return 2 * evaluations + 1 + at_once * (depth + TUNING.max_searches * (depth + 1))


def _comes_first(in_bf16: QuantConfig, configs: Sequence[QuantConfig], probe: Probe, is_due: bool) -> bool:
    """Return True if the all-bf16 model is tried before these: none of them is faster, or several failed."""
    if is_due or not probe.has_samples:
        return True
    bf16, *others = probe.speeds([in_bf16, *configs])
    return bf16 <= TUNING.tie * min(others)


def _fewest_in_fp32(alone: Trial, view: FloatView, probe: Probe, width: int) -> Search:
    """Find the fewest ops that must stay in fp32 for the model in bf16 to meet the criterion."""
    fp32 = view.outer.all_fp32()
    errors = probe.output_errors([fp32.replace({name: BFLOAT}) for name in view.free])
    ranking = [name for _, name in sorted(zip(errors, view.free, strict=True), key=lambda item: -item[0])]
    return (yield from shortest_prefix(alone, ranking, min(width, TUNING.max_width)))


class FloatView:
    """A space as a strategy sees it that knows one float precision, and the translation of its configurations.

    Attributes:
        outer: the space with bf16 and fp32.
        space: the space in which fp32 stands for either.
        free: the ops that may run in bf16 and in fp32.
    """

    def __init__(self, outer: TuningSpace, fp32: Collection[str] = ()) -> None:
        self.outer = outer
        self._in_bf16 = {op.name for op in outer.ops if BFLOAT in op.choices and op.name not in fp32}
        self.free = tuple(op.name for op in outer.ops if {BFLOAT, FLOAT} <= {*op.choices})
        if not self._in_bf16 and not self.free:
            self.space = outer
            return
        self.space = TuningSpace(
            replace(op, choices=tuple(dict.fromkeys(FLOAT if choice == BFLOAT else choice for choice in op.choices)))
            for op in outer.ops
        )

    @property
    def offers_bf16(self) -> bool:
        """True if any op can run in bf16."""
        return any(BFLOAT in op.choices for op in self.outer.ops)

    def with_fp32(self, names: Collection[str]) -> FloatView:
        """Return the view in which these ops fall back to fp32."""
        return FloatView(self.outer, frozenset(names))

    def without_bf16(self) -> FloatView:
        """Return the view in which all ops fall back to fp32 that may."""
        return self.with_fp32(self.free)

    def all_bf16(self) -> QuantConfig:
        """Return the configuration with no quantized op, as far as the rules allow."""
        return self.to_outer(self.space.all_fp32())

    def to_outer(self, config: QuantConfig) -> QuantConfig:
        """Return a configuration of the strategy with the float precision that each op has."""
        return config.replace({name: BFLOAT for name in self._in_bf16 if config[name] == FLOAT})

    def proposal(self, proposal: QuantConfig | Sequence[QuantConfig]) -> QuantConfig | Sequence[QuantConfig]:
        """Return what a strategy proposes, with the float precision that each op has."""
        if isinstance(proposal, QuantConfig):
            return self.to_outer(self.space.check(proposal))
        return [self.to_outer(self.space.check(config)) for config in proposal]

    def answer(self, proposal: QuantConfig | Sequence[QuantConfig], trials: Any) -> Any:
        """Return the trials of a proposal, with the configurations that the strategy proposed."""
        if isinstance(proposal, QuantConfig):
            return replace(trials, config=proposal)
        return [replace(trial, config=config) for trial, config in zip(trials, proposal, strict=True)]


class FloatProbe(Probe):
    """Answers a strategy that knows one float precision."""

    def __init__(self, probe: Probe, view: FloatView) -> None:
        self._probe, self._view = probe, view

    @property
    def has_samples(self) -> bool:
        return self._probe.has_samples

    def sensitivity(self, config: QuantConfig | None = None) -> Mapping[str, float]:
        return self._probe.sensitivity(config)

    def mse(self) -> Mapping[str, float]:
        return self._probe.mse()

    def local_error(self, config: QuantConfig | None = None) -> Mapping[str, float]:
        return self._probe.local_error(config)

    def latency(self) -> Mapping[str, OpTime]:
        default = self._view.space.default_config()
        model = self.time_model(default)
        return {
            name: OpTime(model.fp32.get(name, 0.0), model.quantized.get(name, 0.0))
            for name in self._view.space.quantizable
        }

    def output_error(self, config: QuantConfig) -> float:
        return self._probe.output_error(self._view.to_outer(config))

    def output_errors(self, configs: Sequence[QuantConfig]) -> list[float]:
        return self._probe.output_errors([self._view.to_outer(config) for config in configs])

    def time_model(self, config: QuantConfig) -> TimeModel:
        return self._probe.time_model_beside(self._view.to_outer(config), self._view.all_bf16())

    def speed(self, config: QuantConfig) -> float:
        return self._probe.speed(self._view.to_outer(config))

    def speeds(self, configs: Sequence[QuantConfig]) -> list[float]:
        return self._probe.speeds([self._view.to_outer(config) for config in configs])

    def size(self, config: QuantConfig) -> float:
        return self._probe.size(self._view.to_outer(config))

    def inspect(self, config: QuantConfig, ops: Sequence[str]) -> Mapping[str, Observed]:
        return self._probe.inspect(self._view.to_outer(config), ops)

    def weight_table(self) -> WeightTable | None:
        return self._probe.weight_table()

    def divergence(self, config: QuantConfig) -> float:
        return self._probe.divergence(self._view.to_outer(config))
