"""The adapter for LiteRT. TensorFlow and LiteRT are imported only when a model of theirs is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quaver.adapters.base import Adapter
from quaver.adapters.calibration.channel_statistics import from_records
from quaver.adapters.calibration.stored import stored_ranges, tensors_with_mask_values
from quaver.adapters.comparison import Comparison, compare_models, comparison_feeds, runner_of
from quaver.adapters.data import count_samples
from quaver.adapters.inspection import ModelView, StandaloneView
from quaver.adapters.litert.build.provenance import read_provenance
from quaver.adapters.litert.load import sources
from quaver.adapters.model import Model
from quaver.adapters.model_errors import as_model_error
from quaver.adapters.options import AdapterOptions, TimingOptions
from quaver.errors import ModelError
from quaver.introspection import Timing
from quaver.ops import Op, QuantConfig
from quaver.types import Feed, ModelLike, PlainDict
from quaver.unquantizable import Unquantizable, with_shares

if TYPE_CHECKING:
    from quaver.adapters.litert.inspect.local_runs import OutputRecorder
    from quaver.adapters.litert.load.model_file import LoadedModel
    from quaver.adapters.litert.run.calibrator import Calibrator
    from quaver.adapters.litert.run.model import LiteRTModel

PACKAGES = ("ai-edge-quantizer", "ai-edge-litert", "flatbuffers", "numpy")


class LiteRTAdapter(Adapter):
    """One model as a float .tflite, built by ai-edge-quantizer for each trial and run by LiteRT."""

    name = "litert"
    frameworks = ("tensorflow", "keras", "tflite", "litert")
    suffix = ".tflite"
    accepted_forms = sources.ACCEPTED_FORMS
    portability = "inherent"  # the kernels add in 32 bits on every processor
    quant_formats = ("float_io", "full_integer")

    def __init__(self, model: LoadedModel, options: AdapterOptions) -> None:
        from quaver.adapters.litert.build.builder import Builder

        super().__init__(options, model.graph.input_specs())
        self._graph, self._source_runner = model.graph, model.source
        self._converter = model.versions
        self._names = [spec.name for spec in self._inputs]
        self._full_integer = self._options.quant_format == "full_integer"
        self._builder = Builder(model.graph, self._full_integer)
        self._mask_tensors: frozenset[str] = frozenset()

    @classmethod
    def accepts(cls, model: ModelLike) -> bool:
        """Return True for a Keras model, a TensorFlow function, or a path or bytes that look like a model of theirs."""
        return sources.accepts(model)

    @classmethod
    def load(cls, model: ModelLike, options: AdapterOptions) -> LiteRTAdapter:
        """Read the model, convert it to .tflite if necessary, and find its ops."""
        sources.need(["ai_edge_litert", "ai_edge_quantizer"], "a TensorFlow, Keras or .tflite model")
        from quaver.adapters.litert.load.model_file import load_float_model

        adapter = cls(load_float_model(model), options)
        if not adapter._builder.units:
            kinds = sorted({op.kind for op in adapter._graph.operators})
            listed = ", ".join(kinds[:8]) + (", ..." if len(kinds) > 8 else "")
            raise ModelError(f"nothing in the model can run in int8: it holds {listed}")
        return adapter

    @property
    def fingerprint(self) -> str:
        return self._graph.fingerprint

    @property
    def versions(self) -> dict[str, str]:
        return {name: version(name) for name in PACKAGES} | self._converter

    def ops(self) -> tuple[Op, ...]:
        return self._builder.ops

    def unquantizable(self, timed: bool = False) -> list[Unquantizable]:
        from quaver.adapters.litert.ops.units import unquantizable, unquantizable_operators
        from quaver.adapters.litert.profile.benchmark import seconds_by_kind

        kinds = unquantizable(self._graph, self._builder.units)
        if not timed or not kinds:
            return kinds
        sample = self.timing_feed
        operators = unquantizable_operators(self._graph, self._builder.units)
        return with_shares(kinds, *seconds_by_kind(self._graph, sample, operators))

    def calibrator(self) -> Calibrator:
        from quaver.adapters.litert.run.calibrator import Calibrator

        tensors, statistics = self._builder.tensors_to_calibrate(), self._builder.wanted_statistics()
        return Calibrator(self._graph, self._inputs, tensors, statistics, self._options.threads)

    @property
    def ops_with_mask_values(self) -> tuple[str, ...]:
        name = self._graph.tensor_name
        tensors = {unit.op.name: (*unit.operator.inputs, *unit.operator.outputs) for unit in self._builder.units}
        return tuple(
            op for op, used in tensors.items() if any(name(at) in self._mask_tensors for at in used if at >= 0)
        )

    def restore(self, calibration: PlainDict) -> None:
        self._mask_tensors = tensors_with_mask_values(calibration)
        self._builder.calibrate(stored_ranges(calibration), from_records(calibration.get("statistics", ())))

    def compare(self, feeds: Sequence[Feed] = ()) -> Comparison:
        chosen = comparison_feeds(feeds, self._inputs)
        if self._source_runner is None:
            return Comparison(batches=tuple(map(count_samples, chosen)))
        return compare_models(chosen, self._inputs, self._source_runner, runner_of(self.assemble(None)))

    def _on_probe_samples(self) -> None:
        """Compare the .tflite with the model it was converted from on all samples, and release that model."""
        if self._source_runner is not None:
            compare_models(self._probe_samples, self._inputs, self._source_runner, runner_of(self.assemble(None)))
            self._source_runner = None

    def assemble(self, config: QuantConfig | None) -> LiteRTModel:
        from quaver.adapters.litert.run.model import LiteRTModel

        content = self._builder.build(config, self._full_integer)
        return LiteRTModel(content, self._inputs, self._options.threads)

    def load_saved(self, path: Path) -> LiteRTModel:
        from quaver.adapters.litert.run.model import LiteRTModel

        return LiteRTModel.loaded(path.read_bytes(), self._inputs, self._options.threads)

    @classmethod
    def read_provenance(cls, path: Path) -> tuple[dict[str, str], str]:
        return read_provenance(path)

    @classmethod
    def emulation_script(cls) -> Path:
        return Path(__file__).parent / "run" / "emulated.py"

    def build_unmodified(self) -> Model:
        return self.build(None)

    @classmethod
    def load_unmodified(cls, model: ModelLike, threads: int = 0) -> LiteRTModel:
        sources.need(["ai_edge_litert", "ai_edge_quantizer"], "a TensorFlow, Keras or .tflite model")
        from quaver.adapters.litert.load.graph import Graph
        from quaver.adapters.litert.load.model_file import load_tflite
        from quaver.adapters.litert.run.model import GivenModel

        return GivenModel(Graph(load_tflite(model)), threads)

    def record_outputs(self, config: QuantConfig | None, ops: Sequence[str]) -> OutputRecorder:
        from quaver.adapters.litert.inspect.local_runs import record_outputs

        return record_outputs(self._builder, self._names, config, ops, self._options.threads)

    def local_errors(self, config: QuantConfig) -> dict[str, tuple[float, float]]:
        from quaver.adapters.litert.inspect.local_runs import local_errors

        return local_errors(self._builder, self._names, config, self._probe_samples, self._options.threads)

    def op_seconds(self, config: QuantConfig | None, threads: int | None = None) -> dict[str, float]:
        from quaver.adapters.litert.load.graph import Graph
        from quaver.adapters.litert.profile.benchmark import op_seconds

        sample = self.timing_feed
        used = self._options.threads if threads is None else threads
        return op_seconds(self._builder, Graph(self._builder.build(config)), sample, used)

    def inspect_quantized(self, quantized: Any) -> ModelView:
        from quaver.adapters.litert.inspect.views import ConfigView, FileView

        kind = ConfigView if isinstance(quantized, QuantConfig) else FileView
        return kind(self, quantized, self._builder, self._options.threads)

    @classmethod
    def inspect_standalone(cls, quantized: Any, threads: int = 0) -> StandaloneView:
        sources.need(["ai_edge_litert", "ai_edge_quantizer"], "a .tflite model")
        from quaver.adapters.litert.inspect.standalone import StandaloneFile

        with as_model_error("the quantized model"):
            return StandaloneFile(quantized, threads)

    @classmethod
    def profile(
        cls, model: ModelLike, data: Any, options: TimingOptions, float_adapter: Adapter | None = None
    ) -> Timing:
        sources.need(["ai_edge_litert", "ai_edge_quantizer"], "a TensorFlow, Keras or .tflite model")
        from quaver.adapters.litert.profile.benchmark import time_model

        return time_model(
            model, data, options, float_adapter._builder if isinstance(float_adapter, LiteRTAdapter) else None
        )

    def close(self) -> None:
        self._source_runner = None
