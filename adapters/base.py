"""What an adapter is: the one who knows a framework. The only rooms that import one are behind this door."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from numpy.typing import NDArray

from quaver.adapters.batches import Feed, InputSpec
from quaver.adapters.view import View
from quaver.errors import SettingsError
from quaver.introspection import Timing
from quaver.ops import Op, QuantConfig

Progress = Callable[[int, int | None], None]


def silent(done: int, total: int | None) -> None:
    """Progress that nobody watches."""


@dataclass(frozen=True, slots=True)
class AdapterOptions:
    """How an adapter should work.

    Attributes:
        folder: where large temporary files may lie; None is the system's place for them.
        threads: threads of one inference; 0 lets the runtime decide.
        quant_format: how int8 is written into the model, where the framework knows several ways.
        optimise_float: rewrite the float graph, exactly, so that it is fast before it is quantized.
    """

    folder: Path | None = None
    threads: int = 0
    quant_format: str = "qdq"
    optimise_float: bool = True


@dataclass(frozen=True, slots=True)
class TimingOptions:
    """How a model is run for its time.

    Attributes:
        batch: samples of one inference, where the model leaves that open.
        threads: threads of one inference; 0 lets the runtime decide.
        warmup: inferences that do not count.
        runs: inferences that do.
    """

    batch: int = 1
    threads: int = 0
    warmup: int = 5
    runs: int = 50


class RunnableModel(Protocol):
    """What `eval_func` gets, and what `recover` returns."""

    def __call__(self, *args: Any, **inputs: Any) -> Any:
        """Run the model: arrays by position, or by input name. One output comes as an array, several as a list."""

    def run(self, feed: Feed) -> Any:
        """Run the model on a dict of arrays that fit."""

    @property
    def sha256(self) -> str:
        """Hash of the complete model file."""

    @property
    def size(self) -> int:
        """Size of the complete model file in bytes."""

    def SerializeToString(self) -> bytes:  # noqa: N802 - the name that evaluation code for ONNX expects
        """The complete model file."""

    def save(self, path: str | Path) -> Path:
        """Write the complete model to a file."""

    def close(self) -> None:
        """Let go of the session."""


class Adapter(ABC):
    """One model of one framework, ready to be inspected, calibrated and rebuilt in any configuration.

    `quaver.testing.check_adapter` checks a new adapter against this contract.
    """

    name: ClassVar[str]
    frameworks: ClassVar[tuple[str, ...]]  # what users call it in `framework:`
    suffix: ClassVar[str]  # of a saved model's file name
    takes: ClassVar[str] = "what its documentation says"  # the forms of a model, for a user who gave another

    @classmethod
    @abstractmethod
    def accepts(cls, model: Any) -> bool:
        """Whether this framework can take the model. Must be cheap and must not import the framework for a stranger."""

    @classmethod
    @abstractmethod
    def open(cls, model: Any, options: AdapterOptions) -> Adapter:
        """Read the model. The user's object or file is never changed. Raises `ModelError`."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A hash of what the model computes, the same for each form it can be given in."""

    @property
    @abstractmethod
    def versions(self) -> dict[str, str]:
        """The packages on which the bytes of a built model depend."""

    @property
    @abstractmethod
    def inputs(self) -> tuple[InputSpec, ...]:
        """What the model takes."""

    @abstractmethod
    def inspect(self) -> tuple[Op, ...]:
        """The ops that can run in int8, in graph order, with their choices."""

    @abstractmethod
    def calibrate(self, data: Any, limit: int | None = None, progress: Progress = silent) -> dict[str, Any]:
        """Run `data` through the float model once, for all methods. Returns the result as builtins, and uses it."""

    @abstractmethod
    def restore(self, calibration: dict[str, Any]) -> None:
        """Use a calibration result from `calibrate`."""

    @property
    def rewrites(self) -> tuple[tuple[str, int], ...]:
        """Which rewrites made the float model faster than the one given, and how often each was applied."""
        return ()

    def as_given(self) -> RunnableModel:
        """The model just as the user gave it, which `build(None)` may be a faster form of. Raises `BuildError`."""
        return self.build(None)

    @abstractmethod
    def build(self, config: QuantConfig | None) -> RunnableModel:
        """The model of a configuration, ready to run; None is the float model. Raises `BuildError`."""

    @abstractmethod
    def rebuild(self, config: QuantConfig | None) -> RunnableModel:
        """The same model, for its bytes: a session is made only when it is called."""

    @abstractmethod
    def load(self, path: Path) -> RunnableModel:
        """A model that was saved before. It outlives the adapter."""

    @property
    @abstractmethod
    def kept(self) -> Sequence[Feed]:
        """A few calibration samples, for work that needs no labels."""

    @abstractmethod
    def keep(self, data: Any) -> None:
        """Take those samples from `data` without calibrating, for a resumed run."""

    @abstractmethod
    def watch(self, config: QuantConfig | None, ops: Sequence[str]) -> Callable[[Feed], dict[str, NDArray[Any]]]:
        """A function that runs a feed and gives the output of each of these ops, as float."""

    @abstractmethod
    def local_errors(self, config: QuantConfig) -> dict[str, tuple[float, float]]:
        """For each int8 op, fed with float inputs, its squared error on the kept samples, and the squared output."""

    @abstractmethod
    def op_seconds(self, config: QuantConfig | None) -> dict[str, float]:
        """Seconds of each op in one inference of a kept sample; "" is all the rest."""

    def look(self, quantized: Any) -> View:
        """See a quantized model from inside, for diagnosis: a configuration, or the file of a quantized model.

        An adapter that can tell more than `View` does returns a subclass; `View` needs no more than `watch`.
        """
        if isinstance(quantized, QuantConfig):
            return View(self, quantized)
        raise SettingsError(f"{self.name} cannot look into a quantized file; give a configuration or a trial")

    @classmethod
    def time(cls, model: Any, data: Any, options: TimingOptions, beside: Adapter | None = None) -> Timing:
        """Run any model of this framework, quantized or not, for its time: each kernel, and end to end.

        Kernels carry the names of the ops of `beside`, the float model, if it is given. Without `data` the inputs are
        made up.
        """
        raise SettingsError(f"models of {cls.name} cannot be profiled")

    @abstractmethod
    def close(self) -> None:
        """Remove temporary files."""
