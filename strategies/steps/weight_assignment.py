"""Weights of a language model: the fewest bytes that meet a criterion, or the least divergence within a budget.

The weight table predicts the divergence of any assignment of choices. A built model tells how far the prediction is
off, without labels. A trial tells how a divergence becomes a loss. So two to four trials find the smallest model.
"""

from __future__ import annotations

import math

from quaver.ops import QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.strategies.base import Proposals
from quaver.strategies.steps.search import Search
from quaver.strategies.steps.tuning import TUNING
from quaver.target_budget import TargetBudget
from quaver.trial import Trial
from quaver.weight_table import Assignment, WeightTable


class WeightLine:
    """The best assignments of a model, from the smallest to the most accurate.

    Attributes:
        table: the options of each weight that the rules allow.
    """

    def __init__(self, table: WeightTable, space: TuningSpace, probe: Probe) -> None:
        self.table = table.allowed({op.name: op.choices for op in space.ops})
        self._start, self._probe = space.all_fp32(), probe
        self._offset, self._factor = 0.0, 1.0

    def config(self, assignment: Assignment) -> QuantConfig:
        """Return the configuration of an assignment; ops without a weight stay in fp32."""
        return self._start.replace(assignment.picks)

    def at(self, divergence: float) -> QuantConfig:
        """Return the smallest configuration of which a built model has about this divergence.

        The prediction leaves out what all kernels add by rounding activations, and what weights do together. Models
        that are built on the way tell both.
        """
        config = None
        for _ in range(TUNING.max_built_for_trial):
            wanted = max((divergence - self._offset) / self._factor, TUNING.tiny)
            assignment = self.table.within_divergence(wanted)
            last, config = config, self.config(assignment)
            if config == last or not config.quantized_ops:
                break
            actual = self._probe.divergence(config)
            if not math.isfinite(actual) or _is_near(actual, divergence):
                break
            self._learn(assignment.divergence, actual)
        assert config is not None
        return config

    def _learn(self, predicted: float, actual: float) -> None:
        """Correct later predictions by one model that was built."""
        if actual > predicted * self._factor + self._offset and self._offset == 0.0 and self._factor == 1.0:
            self._offset = self._activations_only()
        self._factor = max((actual - self._offset) / max(predicted, TUNING.tiny), TUNING.tiny)

    def _activations_only(self) -> float:
        """Return the divergence of the most accurate quantized assignment beyond its prediction."""
        finest = self.table.finest_quantized()
        return max(self._probe.divergence(self.config(finest)) - finest.divergence, 0.0)

    def within_size(self, size: float) -> QuantConfig | None:
        """Return the most accurate configuration whose file takes at most this part of fp32's; None if there is none.

        The size of a whole model is measured, because nodes and other constants take bytes, too.
        """
        smallest, largest = self.table.smallest(), self.table.in_fp32()
        least = self._probe.size(self.config(smallest))
        if least > size or least >= 1:
            return self.config(smallest) if least <= size else None
        whole = (largest.bytes - smallest.bytes) / (1 - least)
        limit = smallest.bytes + (size - least) * whole
        for _ in range(TUNING.max_size_corrections):
            assignment = self.table.within_bytes(limit)
            if assignment is None:
                break
            config = self.config(assignment)
            excess = self._probe.size(config) - size
            if excess <= 0:
                return config
            limit = min(limit, assignment.bytes) - excess * whole
        return self.config(smallest)


def assign_weights(line: WeightLine, allowed: float, target_budget: TargetBudget | None) -> Proposals:
    """Propose the most accurate configuration of a size budget, or search the smallest one that meets the criterion."""
    if target_budget is not None and target_budget.size is not None:
        config = line.within_size(target_budget.size)
        yield line.config(line.table.smallest()) if config is None else config
    else:
        yield from smallest_assignment(line, allowed)


def smallest_assignment(line: WeightLine, allowed: float) -> Search:
    """Find the smallest configuration that meets the criterion.

    The first trial has a divergence of the loss that is allowed: for a relative loss of perplexity the two are about
    equal. Each trial after that has the divergence that the last ones say to be enough.
    """
    best: Trial | None = None
    most, failed = 0.0, math.inf
    divergence = TUNING.aim_of_divergence * min(allowed, TUNING.max_first_divergence)
    tried: set[QuantConfig] = set()
    for _ in range(TUNING.max_weight_trials):
        config = line.at(divergence)
        if config in tried or not config.quantized_ops:
            break
        tried.add(config)
        trial: Trial = yield config
        if trial.loss is None:
            return best
        if trial.met:
            best, most = trial, divergence
        else:
            failed = divergence
        divergence = _next_divergence(divergence, trial.loss, allowed, most, failed)
    return best


def _next_divergence(divergence: float, loss: float, allowed: float, most: float, failed: float) -> float:
    """Return the divergence that should just meet the criterion, between one that met it and one that failed."""
    scaled = divergence * min(max(allowed / max(loss, TUNING.tiny), 1 / TUNING.max_step), TUNING.max_step)
    wanted = TUNING.aim_of_divergence * scaled
    if failed < math.inf:
        wanted = min(wanted, (most + failed) / 2 if most else failed * TUNING.aim_of_divergence)
    return max(wanted, most * TUNING.least_step)


def _is_near(actual: float, wanted: float) -> bool:
    return TUNING.near_divergence * wanted <= actual <= wanted / TUNING.near_divergence
