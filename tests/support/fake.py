"""A model that exists in name only: its score follows from the configuration, so a run takes no time.

`FakeFloat({"a": 0.1, "b": 0.0})` has two ops. In int8 `a` costs 0.1 of the score, and `b` costs nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quaver.adapters.base import Adapter, AdapterOptions, Progress
from quaver.adapters.base import silent as unwatched
from quaver.adapters.batches import Feed, InputSpec, feeds
from quaver.budget import Budget, StopReason
from quaver.criterion import Criterion
from quaver.engine.events import Observer, silent
from quaver.engine.loop import drive as drive_run
from quaver.engine.objective import Objective, Size
from quaver.engine.run import Run
from quaver.errors import ModelError
from quaver.history import Header, History
from quaver.ops import FLOAT, INT8, Op, OpConfig, QuantConfig
from quaver.probe import Observed, OpTime, Probe
from quaver.space import TuningSpace
from quaver.strategies import Strategy
from quaver.trial import Trial

MINMAX = OpConfig(INT8)
ENTROPY = OpConfig(INT8, "entropy")
PER_TENSOR = OpConfig(INT8, "minmax", "per_tensor")
SYMMETRIC = OpConfig(INT8, "entropy", "per_tensor", "sym")
INPUTS = (InputSpec("x", np.dtype(np.float32), (None, 2)),)


@dataclass(frozen=True)
class FakeFloat:
    """A float model.

    Attributes:
        damage: op name -> what the score loses when that op runs in int8.
        kinds: op name -> op type, "Conv" if not given.
        relief: calibration or granularity -> the factor that it takes the damage by.
        choices: the ways to run each op.
        score: of the fp32 model.
    """

    damage: Mapping[str, float]
    kinds: Mapping[str, str] = field(default_factory=dict)
    relief: Mapping[str, float] = field(default_factory=dict)
    choices: tuple[OpConfig, ...] = (MINMAX, ENTROPY, PER_TENSOR, SYMMETRIC, FLOAT)
    score: float = 0.9

    @property
    def ops(self) -> tuple[Op, ...]:
        return tuple(Op(name, self.kinds.get(name, "Conv"), (name,), self.choices) for name in self.damage)

    def quality(self, config: QuantConfig | None) -> float:
        """The score of a configuration."""
        lost = 0.0
        for name, op in (config or {}).items():
            if op.precision is INT8:
                relief = self.relief.get(op.calibration, 1.0) * self.relief.get(op.granularity, 1.0)
                lost += self.damage[name] * relief
        return self.score - lost


class FakeModel:
    """A built model. `quality` is its score, `config` what it was built from; None is the float model."""

    def __init__(self, float_model: FakeFloat, config: QuantConfig | None) -> None:
        self.config = config
        self.quality = float_model.quality(config)
        self._ops = len(float_model.damage)

    def __call__(self, *args: Any, **inputs: Any) -> NDArray[np.float64]:
        return np.array([self.quality])

    def run(self, feed: Feed) -> NDArray[np.float64]:
        return self()

    def SerializeToString(self) -> bytes:  # noqa: N802 - as RunnableModel has it
        return (self.config.fingerprint if self.config is not None else "float").encode()

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.SerializeToString()).hexdigest()

    @property
    def size(self) -> int:
        """An int8 op takes 1 byte, an fp32 op 4."""
        return 4 * self._ops - 3 * len(self.config.int8_ops if self.config is not None else ())

    def save(self, path: str | Path) -> Path:
        Path(path).write_bytes(self.SerializeToString())
        return Path(path)

    def close(self) -> None:
        pass


class FakeAdapter(Adapter):
    """A framework whose models are `FakeFloat` objects."""

    name = "fake"
    frameworks = ("fake",)
    suffix = ".fake"

    def __init__(self, model: FakeFloat) -> None:
        self._model = model
        self._kept: list[Feed] = []
        self.built: list[QuantConfig | None] = []
        self.broken: Callable[[QuantConfig], bool] = lambda config: False

    @classmethod
    def accepts(cls, model: Any) -> bool:
        return isinstance(model, FakeFloat)

    @classmethod
    def open(cls, model: Any, options: AdapterOptions) -> FakeAdapter:
        if not model.damage:
            raise ModelError("nothing in the model can run in int8")
        return cls(model)

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(repr(self._model).encode()).hexdigest()

    @property
    def versions(self) -> dict[str, str]:
        return {"fake": "1"}

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        return INPUTS

    def inspect(self) -> tuple[Op, ...]:
        return self._model.ops

    def calibrate(self, data: Any, limit: int | None = None, progress: Progress = unwatched) -> dict[str, Any]:
        self._kept = list(feeds(data, INPUTS, limit))
        return {"batches": len(self._kept)}

    def restore(self, calibration: dict[str, Any]) -> None:
        assert "batches" in calibration

    def build(self, config: QuantConfig | None) -> FakeModel:
        self.built.append(config)
        if config is not None and self.broken(config):
            raise RuntimeError("the framework refuses this model")
        return self.rebuild(config)

    def rebuild(self, config: QuantConfig | None) -> FakeModel:
        return FakeModel(self._model, config)

    def load(self, path: Path) -> FakeModel:
        return FakeModel(self._model, None)

    @property
    def kept(self) -> Sequence[Feed]:
        return self._kept

    def keep(self, data: Any) -> None:
        self._kept = list(feeds(data, INPUTS))

    def watch(self, config: QuantConfig | None, ops: Sequence[str]) -> Callable[[Feed], dict[str, NDArray[Any]]]:
        return lambda feed: {name: np.array([self._model.quality(config)]) for name in ops}

    def local_errors(self, config: QuantConfig) -> dict[str, tuple[float, float]]:
        return {name: (self._model.damage[name], 1.0) for name in config.int8_ops}

    def op_seconds(self, config: QuantConfig | None) -> dict[str, float]:
        int8 = config.int8_ops if config is not None else ()
        return {"": 0.0} | {name: 1.0 if name in int8 else 2.0 for name in self._model.damage}

    def close(self) -> None:
        pass


class FakeProbe(Probe):
    """Answers with the damage, which is the truth."""

    def __init__(self, model: FakeFloat) -> None:
        self._model = model

    def sensitivity(self, config: QuantConfig | None = None) -> Mapping[str, float]:
        return self._model.damage

    def mse(self) -> Mapping[str, float]:
        return self._model.damage

    def local_error(self) -> Mapping[str, float]:
        return self._model.damage

    def latency(self) -> Mapping[str, OpTime]:
        return {name: OpTime(2.0, 1.0) for name in self._model.damage}

    def output_error(self, config: QuantConfig) -> float:
        return self._model.score - self._model.quality(config)

    def speed(self, config: QuantConfig) -> float:
        return 1.0 - 0.5 * len(config.int8_ops) / len(config)

    def inspect(self, config: QuantConfig, ops: Sequence[str]) -> Mapping[str, Observed]:
        return {name: Observed([np.zeros(1)], [np.full(1, self._model.damage[name])]) for name in ops}


def quality(model: FakeModel) -> float:
    """The eval_func of a fake model."""
    return model.quality


@dataclass
class Outcome:
    """How a driven loop ended, and what it did on the way."""

    reason: StopReason
    best: Trial | None
    trials: list[Trial]
    evaluated: list[QuantConfig | None]

    @property
    def configs(self) -> list[QuantConfig]:
        return [trial.config for trial in self.trials]


@contextlib.contextmanager
def history_of(model: FakeFloat, path: Path) -> Iterator[History]:
    """The history at `path`, begun or resumed."""
    adapter = FakeAdapter(model)
    if path.exists():
        with History.resume(path) as history:
            history.start_run({}, adapter.versions)
            history.forget_trailing_failures()
            yield history
        return
    with History.create(path) as history:
        history.begin(Header(adapter.fingerprint, adapter.name, adapter.inspect(), {}, "now"))
        history.start_run({}, adapter.versions)
        yield history


def drive(
    model: FakeFloat,
    strategy: Strategy,
    path: Path,
    *,
    eval_func: Callable[[FakeModel], Any] = quality,
    criterion: Criterion | None = None,
    budget: Budget | None = None,
    objective: Objective | None = None,
    space: TuningSpace | None = None,
    observer: Observer | None = None,
    adapter: FakeAdapter | None = None,
) -> Outcome:
    """Run the one loop on a fake model, with its history at `path`."""
    evaluated: list[QuantConfig | None] = []

    def counted(built: FakeModel) -> Any:
        evaluated.append(built.config)
        return eval_func(built)

    adapter = adapter or FakeAdapter(model)
    with history_of(model, path) as history:
        run = Run(
            adapter,
            space or TuningSpace(model.ops),
            criterion or Criterion(absolute=0.01, relative=None),
            budget or Budget(),
            objective or Size(),
            history,
            observer or silent,
        )
        run.begin(strategy, FakeProbe(model))
        reason = drive_run(run, counted, observer or silent)
        return Outcome(reason, run.judge.best, list(run.judge.trials), evaluated)
