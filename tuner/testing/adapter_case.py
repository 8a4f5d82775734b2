"""An adapter under test, and comparisons of the results of two models or two runs."""

from __future__ import annotations

import math
import os
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from quaver.adapters import Adapter, AdapterOptions, Model
from quaver.ops import BFLOAT, FLOAT, Op, OpConfig, QuantConfig
from quaver.space import TuningSpace
from quaver.types import Array, CalibrationData, Feed, ModelLike, PlainDict

BUILTINS = (dict, list, tuple, str, bytes, int, float, bool, type(None))
Outputs = list[Array]
# Random configurations that are built for each adapter.
RANDOM = 3


def as_list(result: Any) -> Outputs:
    """Return the outputs of a model as a list."""
    return [np.asarray(part) for part in (result if isinstance(result, list) else [result])]


def difference(expected: list[Outputs], outputs: list[Outputs]) -> float:
    """Return the largest difference as a share of the largest output; infinity where shapes differ."""
    largest = 0.0
    for before, after in zip(expected, outputs, strict=True):
        for one, other in zip(before, after, strict=True):
            if one.shape != other.shape:
                return math.inf
            scale = float(np.max(np.abs(one), initial=0.0)) or 1.0
            off = np.abs(np.subtract(one, other, dtype=np.float64))
            largest = max(largest, float(np.max(off, initial=0.0)) / scale)
    return largest


def equal_feeds(first: Sequence[Feed], second: Sequence[Feed]) -> bool:
    """Return True if two lists of feeds hold the same arrays."""
    return len(first) == len(second) and all(
        a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)
        for a, b in zip(first, second, strict=True)
    )


def not_builtin(value: Any, where: str = "the result") -> str | None:
    """Describe the first value inside that is not a plain builtin; None if there is none."""
    if type(value) not in BUILTINS:
        return f"a {type(value).__module__}.{type(value).__name__} in {where}"
    if isinstance(value, dict):
        for key, inner in value.items():
            found = not_builtin(key, f"a key of {where}") or not_builtin(inner, f"{where}[{key!r}]")
            if found:
                return found
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            if found := not_builtin(inner, f"{where}[{index}]"):
                return found
    return None


def content(model: ModelLike) -> object:
    """Return the model's bytes, to see if they change; None if it has none."""
    if isinstance(model, str | os.PathLike) and Path(model).is_file():
        return Path(model).read_bytes()
    if callable(getattr(model, "SerializeToString", None)):
        return model.SerializeToString()
    return None


@dataclass
class Case:
    """A calibrated adapter under test, with a way to load another one like it.

    Attributes:
        adapter: the adapter.
        another: loads another adapter of the same model.
        data: the calibration data.
        model: the user's model; None if it is unknown.
        scratch: folder for files of the checks.
        folder: folder for the adapter's temporary files; None for the system's.
        calibration: the result of `calibrate`.
        space: the ops.
    """

    adapter: Adapter
    another: Callable[[], Adapter]
    data: CalibrationData
    model: ModelLike
    scratch: Path
    folder: Path | None
    calibration: PlainDict
    space: TuningSpace

    @classmethod
    def prepare(
        cls,
        load_adapter: Callable[[AdapterOptions], Adapter],
        data: CalibrationData,
        model: ModelLike,
        scratch: Path,
        folder: Path | None,
    ) -> Case:
        """Load and calibrate the adapter."""

        def another() -> Adapter:
            return load_adapter(AdapterOptions(folder=folder, threads=1))

        if folder is not None:
            folder.mkdir()
        adapter = another()
        assert isinstance(adapter, Adapter), f"load must return an Adapter, not {adapter!r:.80}"
        ops = check_ops(adapter)
        calibration = adapter.calibrate(iter(data) if isinstance(data, list | tuple) else data)
        return cls(adapter, another, data, model, scratch, folder, calibration, TuningSpace(ops))

    @property
    def default_config(self) -> QuantConfig:
        """Return the config with every op in int8 that can be, also those whose default is fp32."""
        return self.space.configure(lambda op: next(iter(op.quantized_choices), FLOAT))

    def in_mode(self, mode: str) -> QuantConfig:
        """Return the config with every op in its first choice of a mode; ops without one in fp32."""

        def choose(op: Op) -> OpConfig:
            return next((choice for choice in op.quantized_choices if choice.mode == mode), FLOAT)

        return self.space.configure(choose)

    def configs(self) -> Iterator[tuple[str, QuantConfig | None]]:
        """Yield the float model and a few configurations, each with words for it."""
        yield "the float model", None
        yield "the all-int8 model", self.default_config
        for spelled in self.space.repairs:
            yield f"the all-int8 model with {spelled}", self.space.repair(self.default_config, spelled)
        if len(self.space.repairs) > 1:
            yield "the all-int8 model with all repairs", self.space.repair(self.default_config, *self.space.repairs)
        modes = dict.fromkeys(choice.mode for op in self.space.ops for choice in op.quantized_choices)
        for mode in modes if len(modes) > 1 else ():
            yield f"the model with all ops {mode} that can be", self.in_mode(mode)
        if any(op.smaller for op in self.space.ops):
            yield "the smallest model", self.space.configure(lambda op: next(iter(op.smaller), op.choices[0]))
        if any(BFLOAT in op.choices for op in self.space.ops):
            yield "the model in bf16", self.space.configure(lambda op: BFLOAT if BFLOAT in op.choices else FLOAT)
        rng = random.Random(0)
        for _ in range(RANDOM):
            yield "a model in a random configuration", self.space.configure(lambda op: rng.choice(op.choices))

    def outputs(self, model: Model) -> list[Outputs]:
        """Return the outputs of a model for each probe sample."""
        return [as_list(model.run(feed)) for feed in self.adapter.probe_samples]


def check_ops(adapter: Adapter) -> tuple[Op, ...]:
    """Check the ops of an adapter, and return them."""
    ops = adapter.ops()
    assert isinstance(ops, tuple) and ops, f"ops must return a tuple of ops, and at least one, not {ops!r:.80}"
    assert adapter.ops() == ops, "ops gives other ops when it is called again"
    names = [op.name for op in ops]
    twice = next((name for name in names if names.count(name) > 1), None)
    assert twice is None, f"two ops are called {twice!r}; names must be unique"
    for op in ops:
        assert op.nodes, f"op {op.name!r} covers no node of the graph"
        assert FLOAT in op.choices, f"fp32 is not among the choices of op {op.name!r}"
        offered = (*op.choices, *op.smaller)
        assert len(set(offered)) == len(offered), f"a choice of op {op.name!r} is listed twice"
    assert any(op.quantizable for op in ops), "int8 is not among the choices of any op, so there is nothing to tune"
    return ops


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Use a temporary folder for all temporary files."""
    with tempfile.TemporaryDirectory(prefix="check-adapter-") as folder:
        before, tempfile.tempdir = tempfile.tempdir, folder
        try:
            yield Path(folder)
        finally:
            tempfile.tempdir = before
