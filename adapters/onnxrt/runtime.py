"""The runtime of ONNX models: it opens sessions, times ops and models, and decides in which precision an op runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import onnxruntime as ort

from quaver.adapters.data import InputSpec
from quaver.adapters.onnxrt.build.builder import Builder
from quaver.adapters.onnxrt.load.graph import Graph
from quaver.adapters.onnxrt.ops.unit import ORT_RULES, KernelRules, Unit
from quaver.adapters.onnxrt.profile import benchmark, op_profile
from quaver.adapters.onnxrt.profile.kernels import integer_kernels
from quaver.adapters.onnxrt.run import session as sessions
from quaver.adapters.onnxrt.run.model import OnnxModel, OrtModel
from quaver.adapters.options import TimingOptions
from quaver.introspection import Timing
from quaver.ops import FP32, INT8, Precision
from quaver.types import CalibrationData, Feed, ModelLike


class Runtime(ABC):
    """Runs and times the ONNX files that the builder makes.

    The builder writes the same QDQ file for each runtime. A runtime knows its sessions, kernels and times, and which
    choices of an op it can run; it does not know how to quantize.

    Attributes:
        name: the value of `runtime` that selects it.
        title: its name in messages.
        rules: what its optimiser turns into int8 by itself.
        skipped_rewrites: rewrites of the float graph that only help another runtime.
        exports: by ending, the other formats that a model can be saved in.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    rules: ClassVar[KernelRules] = ORT_RULES
    skipped_rewrites: ClassVar[tuple[str, ...]] = ()
    exports: ClassVar[Mapping[str, str]] = MappingProxyType({})

    @property
    @abstractmethod
    def versions(self) -> dict[str, str]:
        """Return the versions of the packages that run a model."""

    @abstractmethod
    def open(self, model: bytes | Path, threads: int, folder: Path | None = None) -> Any:
        """Return a session, which runs feeds.

        Args:
            model: the model as bytes, or the path of its file.
            threads: threads of one inference; 0 lets the runtime decide.
            folder: the folder of large constants that are not in the bytes.

        Raises:
            BuildError: if the runtime cannot load the model.
        """

    @abstractmethod
    def input_specs(self, session: Any) -> tuple[InputSpec, ...]:
        """Return what a model takes, as its session describes it."""

    def units(self, graph: Graph, units: Sequence[Unit]) -> list[Unit]:
        """Return the ops that this runtime can run in int8, each with the choices that it runs."""
        return list(units)

    @abstractmethod
    def precisions(self, builder: Builder, model: OnnxModel) -> dict[str, Precision]:
        """Return the precision in which each op of a built model really runs.

        Only ops with kernels that compute on integers are in the result.
        """

    def export(self, model: OrtModel, path: Path) -> None:
        """Write a model in one of the formats of `exports`."""
        raise NotImplementedError(f"{self.title} writes no {path.suffix}")

    @abstractmethod
    def op_seconds(self, builder: Builder, model: OnnxModel, feed: Feed, threads: int) -> dict[str, float]:
        """Return the seconds of each op in one inference; kernels of no op are under the empty name."""

    @abstractmethod
    def seconds_by_kind(
        self, builder: Builder, model: OnnxModel, feed: Feed, kinds: Mapping[int, str]
    ) -> tuple[dict[str, float], float]:
        """Return the seconds of each kind in one inference of a float model on one thread, and of all kernels.

        Args:
            builder: the builder of the model.
            model: the built model.
            feed: the input.
            kinds: by the index of a node in the graph, the kind it counts for.
        """

    @abstractmethod
    def time_model(
        self, model: ModelLike, data: CalibrationData, options: TimingOptions, float_builder: Builder | None = None
    ) -> Timing:
        """Time each kernel of a model, and the model end to end.

        Args:
            model: any ONNX model.
            data: its inputs.
            options: batch, threads and number of runs.
            float_builder: the builder of the float model; kernels get the names of its ops.
        """


class OnnxRuntime(Runtime):
    """ONNX Runtime, on the CPU."""

    name = "onnxruntime"
    title = "ONNX Runtime"

    @property
    def versions(self) -> dict[str, str]:
        return {"onnxruntime": ort.__version__}

    def open(self, model: bytes | Path, threads: int, folder: Path | None = None) -> sessions.Session:
        return sessions.create(model, sessions.options(threads), folder)

    def input_specs(self, session: sessions.Session) -> tuple[InputSpec, ...]:
        return sessions.input_specs(session)

    def precisions(self, builder: Builder, model: OnnxModel) -> dict[str, Precision]:
        static = [unit.op.name for unit in builder.units if unit.has_static_choice and not unit.is_embedding]
        integers = integer_kernels(model.SerializeToString(), static)
        return {name: INT8 if name in integers else FP32 for name in static}

    def op_seconds(self, builder: Builder, model: OnnxModel, feed: Feed, threads: int) -> dict[str, float]:
        return op_profile.op_seconds(builder, model, feed, threads)

    def seconds_by_kind(
        self, builder: Builder, model: OnnxModel, feed: Feed, kinds: Mapping[int, str]
    ) -> tuple[dict[str, float], float]:
        return op_profile.seconds_by_kind(builder, model, feed, kinds)

    def time_model(
        self, model: ModelLike, data: CalibrationData, options: TimingOptions, float_builder: Builder | None = None
    ) -> Timing:
        return benchmark.time_model(model, data, options, float_builder)


ONNX_RUNTIME = OnnxRuntime()
