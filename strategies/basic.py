"""`basic`: other calibrations and fallbacks, one after another; it needs evaluations and no probe."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from quaver.ops import DETAILS, FLOAT, Op, OpConfig, QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.strategies.base import Proposals, Strategy
from quaver.strategies.registry import register_strategy
from quaver.strategies.steps.search import evaluate_batch
from quaver.strategies.steps.weight_bits import fewer_bits
from quaver.trial import Trial


@register_strategy
class Basic(Strategy):
    """Try other calibrations per type, then single fallbacks, then fallbacks added up in order of their effect.

    1. All ops in int8 by their default choice. When the objective is size, before that with weights of fewer bits: for
       all ops that offer them, then for one op type.
    2. For each op type, the most frequent first, the other calibration methods, the other weight granularity and the
       other modes and repairs for all its ops; the best is kept. When the objective is latency, no mode that an adapter
       lists behind fp32, because it is slower.
    3. On the best of these, each op alone in fp32.
    4. On the best of these, ops in fp32 one after another, the one that helped most in step 3 first.

    Needs at most 1 + a + n + (n - 1) evaluations, for `a` alternatives in step 2 and n ops. Those of one op type in
    step 2, and all of steps 3 and 4, run in parallel.
    """

    name = "basic"

    def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
        """Propose configurations as described in the class."""
        if self.traits.rewards_small_files:
            yield from evaluate_batch(_narrower(space), self.width)
        best: Trial = yield space.default_config()
        for kind in space.kinds:
            for trial in (yield from evaluate_batch(self._alternatives(space, best.config, kind), self.width)):
                best = _better(best, trial)
        names = space.able_to_fall_back(best.config)
        trials = yield from evaluate_batch([best.config.fallback(name) for name in names], self.width)
        singles = sorted(
            zip(names, trials, strict=True),
            key=lambda single: float("inf") if single[1].loss is None else single[1].loss,
        )
        added = accumulate([name for name, _ in singles], QuantConfig.fallback, initial=best.config)
        yield from evaluate_batch(list(added)[2:], self.width)

    def worst_case(self, space: TuningSpace) -> int:
        """Return 1 + alternatives + n + (n - 1), and with fewer bits one for each op type and one for all."""
        start = space.default_config()
        narrower = len(_narrower(space)) if self.traits.rewards_small_files else 0
        alternatives = sum(1 for kind in space.kinds for _ in self._alternatives(space, start, kind))
        ops = len(space.able_to_fall_back(start))
        return narrower + 1 + alternatives + ops + max(ops - 1, 0)

    def _alternatives(self, space: TuningSpace, config: QuantConfig, kind: str) -> Iterator[QuantConfig]:
        """Yield the configuration with another calibration, granularity, mode or repair for all ops of one kind."""
        names = [name for name in space.of_kind(kind) if config[name].quantized]
        if not names:
            return
        default = config[names[0]]
        for wanted in _neighbours(space, names, default, slower=not self.traits.rewards_speed):
            changes = {name: wanted for name in names if wanted in space[name].choices}
            yield config.replace(changes)
        for repair in space.repairs:
            whole = space.repair(config, repair)
            changed = config.replace({name: whole[name] for name in names})
            if changed != config:
                yield changed


def _narrower(space: TuningSpace) -> list[QuantConfig]:
    """Return configurations with weights of fewer bits: for all ops that offer them, then for each op type."""
    start = space.default_config()
    narrow = {name: choice for name, pick in start.items() if (choice := fewer_bits(space[name], pick)) is not None}
    each = [{name: narrow[name] for name in space.of_kind(kind) if name in narrow} for kind in space.kinds]
    return [config for config in dict.fromkeys(map(start.replace, [narrow, *each])) if config != start]


def _better(best: Trial, trial: Trial) -> Trial:
    if trial.loss is None:
        return best
    return trial if best.loss is None or trial.loss < best.loss else best


def _neighbours(space: TuningSpace, names: list[str], default: OpConfig, slower: bool) -> Iterator[OpConfig]:
    """Yield the choices that differ from the default in one detail; details that do not apply do not count."""
    for choice in dict.fromkeys(choice for name in names for choice in space[name].choices if choice.quantized):
        if not slower and choice.mode != default.mode and all(_behind_fp32(space[name], choice) for name in names):
            continue
        if choice.precision != default.precision:
            continue
        details = {field: value for field in DETAILS if (value := getattr(choice, field))}
        differences = [field for field, value in details.items() if value != getattr(default, field)]
        if len(differences) == 1 and differences[0] != "scheme":
            yield choice


def _behind_fp32(op: Op, choice: OpConfig) -> bool:
    """Return True if an op lists a choice behind fp32, as slower, or not at all."""
    return choice not in op.choices or (FLOAT in op.choices and op.choices.index(FLOAT) < op.choices.index(choice))
