"""A model that exists in name only: its score follows from the configuration, so a run takes no time.

`FakeFloat({"a": 0.1, "b": 0.0})` has two ops. In int8 `a` costs 0.1 of the score, and `b` costs nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quaver.adapters import Adapter, AdapterOptions, Model
from quaver.adapters.calibration.calibrator import StreamingCalibrator, Values
from quaver.adapters.data import InputSpec
from quaver.adapters.repairs.base import refuse_repairs
from quaver.budget import Budget, StopReason
from quaver.criterion import Criterion
from quaver.engine.events import TrialSlow
from quaver.engine.executors.in_process import InProcess
from quaver.engine.observers import Observer, silent
from quaver.engine.run.loop import drive as drive_run
from quaver.engine.run.run import Run
from quaver.engine.run.run_setup import RunSetup
from quaver.engine.timing.objective import Objective, Size
from quaver.errors import ModelError
from quaver.history import Header, History
from quaver.ops import FLOAT, INT8, Op, OpConfig, QuantConfig
from quaver.probe import Observed, OpTime, Probe
from quaver.space import TuningSpace
from quaver.strategies import Strategy
from quaver.time_model import TimeModel
from quaver.trial import Trial
from quaver.types import Feed

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


class FakeModel(Model):
    """A built model. `quality` is its score, `config` what it was built from; None is the float model.

    Its file has 1 byte for each int8 op, a letter for the choice, and 4 for each fp32 op.
    """

    suffix = ".fake"

    def __init__(self, float_model: FakeFloat, config: QuantConfig | None) -> None:
        super().__init__(INPUTS, threads=1)
        self.config = config
        self.quality = float_model.quality(config)
        self._float_model = float_model

    def _open(self) -> None:
        return None

    def _outputs(self, feed: Feed) -> list[Any]:
        return [np.array([self.quality])]

    def chunks(self) -> Iterator[bytes]:
        for op in self._float_model.ops:
            pick = self.config[op.name] if self.config is not None else FLOAT
            yield b"fp32" if pick == FLOAT else bytes([ord("A") + op.choices.index(pick)])


class FakeCalibrator(StreamingCalibrator):
    """Sees what goes in."""

    def values(self, feed: Feed) -> Values:
        return [("x", feed["x"])]

    def origin_of(self, tensor: str) -> str:
        return "an input"


class FakeAdapter(Adapter):
    """A framework whose models are `FakeFloat` objects."""

    name = "fake"
    frameworks = ("fake",)
    suffix = ".fake"

    def __init__(self, model: FakeFloat, options: AdapterOptions | None = None) -> None:
        super().__init__(options or AdapterOptions(), INPUTS)
        self._model = model
        self.built: list[QuantConfig | None] = []
        self.broken: Callable[[QuantConfig], bool] = lambda config: False

    @classmethod
    def accepts(cls, model: Any) -> bool:
        return isinstance(model, FakeFloat)

    @classmethod
    def load(cls, model: Any, options: AdapterOptions) -> FakeAdapter:
        if not model.damage:
            raise ModelError("nothing in the model can run in int8")
        return cls(model, options)

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(repr(self._model).encode()).hexdigest()

    @property
    def versions(self) -> dict[str, str]:
        return {"fake": "1"}

    def ops(self) -> tuple[Op, ...]:
        return self._model.ops

    def calibrator(self) -> FakeCalibrator:
        return FakeCalibrator(INPUTS, ["x"])

    def restore(self, calibration: dict[str, Any]) -> None:
        assert "ranges" in calibration

    def build(self, config: QuantConfig | None) -> Model:
        self.built.append(config)
        if config is not None and self.broken(config):
            raise RuntimeError("the framework refuses this model")
        return super().build(config)

    def assemble(self, config: QuantConfig | None) -> FakeModel:
        refuse_repairs(config, self.name)
        return FakeModel(self._model, config)

    def load_saved(self, path: Path) -> FakeModel:
        picks = re.findall(b"fp32|[A-Z]", path.read_bytes())
        config = QuantConfig(
            (op.name, FLOAT if pick == b"fp32" else op.choices[ord(pick) - ord("A")])
            for op, pick in zip(self._model.ops, picks, strict=True)
        )
        return FakeModel(self._model, config)

    def record_outputs(
        self, config: QuantConfig | None, ops: Sequence[str]
    ) -> Callable[[Feed], dict[str, NDArray[Any]]]:
        return lambda feed: {name: np.array([self._model.quality(config)]) for name in ops}

    def local_errors(self, config: QuantConfig) -> dict[str, tuple[float, float]]:
        return {name: (self._model.damage[name], 1.0) for name in config.int8_ops}

    def op_seconds(self, config: QuantConfig | None, threads: int | None = None) -> dict[str, float]:
        int8 = config.int8_ops if config is not None else ()
        return {"": 0.0} | {name: 1.0 if name in int8 else 2.0 for name in self._model.damage}


class FakeProbe(Probe):
    """Answers with the damage, which is the truth."""

    def __init__(self, model: FakeFloat) -> None:
        self._model = model

    def sensitivity(self, config: QuantConfig | None = None) -> Mapping[str, float]:
        return self._model.damage

    def mse(self) -> Mapping[str, float]:
        return self._model.damage

    def local_error(self, config: QuantConfig | None = None) -> Mapping[str, float]:
        return self._model.damage

    def latency(self) -> Mapping[str, OpTime]:
        return {name: OpTime(2.0, 1.0) for name in self._model.damage}

    def output_error(self, config: QuantConfig) -> float:
        return self._model.score - self._model.quality(config)

    def time_model(self, config: QuantConfig) -> TimeModel:
        return TimeModel(dict.fromkeys(self._model.damage, 2.0), dict.fromkeys(self._model.damage, 1.0))

    def speed(self, config: QuantConfig) -> float:
        return 1.0 - 0.5 * len(config.int8_ops) / len(config)

    def size(self, config: QuantConfig) -> float:
        return 1.0 - 0.75 * len(config.int8_ops) / len(config)

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
        history.begin(Header(adapter.fingerprint, adapter.name, adapter.ops(), {}, "now"))
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
        setup = RunSetup(
            adapter,
            space or TuningSpace(model.ops),
            criterion or Criterion(absolute=0.01, relative=None),
            budget or Budget(),
            objective or Size(),
            history,
            observer or silent,
        )
        run = Run(setup)
        run.begin(strategy, FakeProbe(model))
        told = observer or silent
        executor = InProcess(counted, lambda *slow: told(TrialSlow(*slow, run.usual() or 0.0)))
        reason = drive_run(run, executor, told)
        return Outcome(reason, run.judge.best, list(run.judge.trials), evaluated)
