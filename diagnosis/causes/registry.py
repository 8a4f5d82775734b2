"""The registry of causes, and the search for them.

A new cause is one function in a module of this package, decorated with `op_cause` or `model_cause`. The modules are
found by their place in the package, so nothing else has to be edited.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from quaver.diagnosis import causes as package
from quaver.diagnosis.causes.base import Cause
from quaver.diagnosis.causes.op_evidence import ModelEvidence, OpEvidence
from quaver.ops import FP32


class Stage(IntEnum):
    """The stages of the search. Causes of equal weight are listed in this order.

    Attributes:
        MODEL: causes that need all ops at once.
        WEIGHTS: causes in the weight of an op.
        ACTIVATIONS: causes in the tensors of an op.
        REPAIRS: repairs that were tried.
        MODES: other modes that were tried; only if every remedy so far is fp32.
        TINY_CHANNELS: channels that are rounded away; only for a bad op without a cause so far.
        UNEXPLAINED: only for a bad op without any other cause.
        SPEED: ops that are slower than in fp32; listed after all other causes.
    """

    MODEL = 0
    WEIGHTS = 1
    ACTIVATIONS = 2
    REPAIRS = 3
    MODES = 4
    TINY_CHANNELS = 5
    UNEXPLAINED = 6
    SPEED = 7


OpFinder = Callable[[OpEvidence], Iterable[Cause]]
ModelFinder = Callable[[ModelEvidence], Iterable[Cause]]


@dataclass(frozen=True)
class RegisteredCause:
    """One function that finds causes of an op.

    Attributes:
        stage: when it is called.
        find: the function.
        replaces: kinds of causes that its own causes explain better, and that are dropped then.
    """

    stage: Stage
    find: OpFinder
    replaces: frozenset[str] = frozenset()


OP_CAUSES: list[RegisteredCause] = []
MODEL_CAUSES: list[tuple[Stage, ModelFinder]] = []


def op_cause(stage: Stage, replaces: Iterable[str] = ()) -> Callable[[OpFinder], OpFinder]:
    """Register a function that finds causes of one op."""

    def register(find: OpFinder) -> OpFinder:
        OP_CAUSES.append(RegisteredCause(stage, find, frozenset(replaces)))
        return find

    return register


def model_cause(stage: Stage = Stage.MODEL) -> Callable[[ModelFinder], ModelFinder]:
    """Register a function that finds causes by looking at all ops at once."""

    def register(find: ModelFinder) -> ModelFinder:
        MODEL_CAUSES.append((stage, find))
        return find

    return register


def find_causes(evidence: ModelEvidence) -> tuple[Cause, ...]:
    """Return all causes, the worst first."""
    _import_causes()
    causes = [*_model_causes(evidence, Stage.MODEL)]
    for op in evidence.ops:
        causes += _op_causes(op)
    causes.sort(key=lambda cause: -cause.weight)
    slow = sorted(_model_causes(evidence, Stage.SPEED), key=lambda cause: -cause.weight)
    return (*causes, *slow)


@functools.cache
def _import_causes() -> None:
    """Import every module of the package, because a cause registers itself when it is imported."""
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")


def _model_causes(evidence: ModelEvidence, stage: Stage) -> Iterator[Cause]:
    for its_stage, find in MODEL_CAUSES:
        if its_stage == stage:
            yield from find(evidence)


def _op_causes(op: OpEvidence) -> Sequence[Cause]:
    causes: list[Cause] = []
    for entry in sorted(OP_CAUSES, key=lambda entry: entry.stage):
        if entry.stage == Stage.MODES and not all(cause.rules.get(op.name) == FP32 for cause in causes if cause.rules):
            continue
        if entry.stage >= Stage.TINY_CHANNELS and (causes or not op.is_bad):
            continue
        new_causes = list(entry.find(op))
        if new_causes:
            causes = [cause for cause in causes if cause.kind not in entry.replaces]
        causes += new_causes
    return causes
