"""The adapter for MXNet, which is imported only when a model of its own is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quaver.adapters.base import Adapter
from quaver.adapters.calibration.stored import stored_ranges
from quaver.adapters.inspection import ModelView
from quaver.adapters.mxnet.load import sources
from quaver.adapters.options import AdapterOptions, TimingOptions
from quaver.errors import ModelError
from quaver.introspection import Timing
from quaver.ops import Op, QuantConfig
from quaver.types import ModelLike, PlainDict
from quaver.unquantizable import Unquantizable, with_shares

if TYPE_CHECKING:
    from quaver.adapters.mxnet.inspect.local_runs import OutputRecorder
    from quaver.adapters.mxnet.load.network import Network
    from quaver.adapters.mxnet.run.model import MXNetModel
    from quaver.adapters.mxnet.run.session import Calibrator

PACKAGES = ("mxnet", "numpy")


class MXNetAdapter(Adapter):
    """One network, quantized by MXNet's own pass for each trial and run by oneDNN."""

    name = "mxnet"
    frameworks = ("mxnet",)
    suffix = ".params"
    accepted_forms = sources.ACCEPTED_FORMS

    def __init__(self, network: Network, options: AdapterOptions) -> None:
        from quaver.adapters.mxnet.build.builder import Builder
        from quaver.adapters.mxnet.load.network import fingerprint

        super().__init__(options, network.inputs)
        self._network = network
        self._fingerprint = fingerprint(network)
        self._builder = Builder(network)

    @classmethod
    def accepts(cls, model: ModelLike) -> bool:
        """Return True for a model of MXNet's, or a path that looks like its files."""
        return sources.accepts(model)

    @classmethod
    def load(cls, model: ModelLike, options: AdapterOptions) -> MXNetAdapter:
        """Read the model, add oneDNN's subgraphs, and find its ops."""
        from quaver.adapters.mxnet.load.network import load_network

        adapter = cls(load_network(model), options)
        if not adapter._builder.units:
            kinds = sorted({node.kind for node in adapter._builder.graph.in_order()})
            listed = ", ".join(kinds[:8]) + (", ..." if len(kinds) > 8 else "")
            raise ModelError(f"nothing in the model can run in int8: it holds {listed or 'no node that computes'}")
        return adapter

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    @property
    def versions(self) -> dict[str, str]:
        return {name: version(name) for name in PACKAGES}

    def ops(self) -> tuple[Op, ...]:
        return tuple(unit.op for unit in self._builder.units)

    def unquantizable(self, timed: bool = False) -> list[Unquantizable]:
        from quaver.adapters.mxnet.ops.units import unquantizable
        from quaver.adapters.mxnet.profile.op_profile import seconds_by_kind

        graph, quantizable = self._builder.graph, {*self._builder.by_name, *self._builder.followers}
        kinds = unquantizable(graph, quantizable)
        if not timed or not kinds:
            return kinds
        sample = self.timing_feed
        return with_shares(kinds, *seconds_by_kind(self._builder, sample))

    def calibrator(self) -> Calibrator:
        from quaver.adapters.mxnet.run.session import Calibrator

        return Calibrator(self._builder, self._options.threads)

    def restore(self, calibration: PlainDict) -> None:
        self._builder.calibrate(stored_ranges(calibration))

    def assemble(self, config: QuantConfig | None) -> MXNetModel:
        from quaver.adapters.mxnet.run.model import MXNetModel

        return MXNetModel(self._builder.build(config), self._options.threads)

    def build_unmodified(self) -> MXNetModel:
        from quaver.adapters.mxnet.run.model import MXNetModel

        return MXNetModel(self._network, self._options.threads)

    @classmethod
    def load_unmodified(cls, model: ModelLike, threads: int = 0) -> MXNetModel:
        return cls.load(model, AdapterOptions(threads=threads)).build_unmodified()

    def load_saved(self, path: Path) -> MXNetModel:
        from quaver.adapters.mxnet.run.model import load_saved_model

        return load_saved_model(path, self._inputs, self._options.threads)

    @classmethod
    def read_provenance(cls, path: Path) -> tuple[dict[str, str], str]:
        from quaver.adapters.mxnet.run.model import load_saved_model

        model = load_saved_model(path, None, 0)
        return dict(model.provenance), model.sha256 if model.provenance else ""

    def record_outputs(self, config: QuantConfig | None, ops: Sequence[str]) -> OutputRecorder:
        from quaver.adapters.mxnet.inspect.local_runs import record_outputs

        return record_outputs(self._builder, config, ops, self._options.threads)

    def local_errors(self, config: QuantConfig) -> dict[str, tuple[float, float]]:
        from quaver.adapters.mxnet.inspect.local_runs import local_errors

        return local_errors(self._builder, config, self._probe_samples, self._options.threads)

    def op_seconds(self, config: QuantConfig | None, threads: int | None = None) -> dict[str, float]:
        from quaver.adapters.mxnet.profile.op_profile import op_seconds

        sample = self.timing_feed
        used = self._options.threads if threads is None else threads
        return op_seconds(self._builder, self._builder.build(config), sample, used)

    def int8_edges(self) -> Mapping[str, tuple[str, ...]]:
        return self._builder.int8_edges()

    def inspect_quantized(self, quantized: Any) -> ModelView:
        from quaver.adapters.mxnet.inspect.views import NetworkView

        return NetworkView(self, quantized, self._builder, self._options.threads)

    @classmethod
    def profile(
        cls, model: ModelLike, data: Any, options: TimingOptions, float_adapter: Adapter | None = None
    ) -> Timing:
        from quaver.adapters.mxnet.profile.op_profile import time_model

        return time_model(
            model, data, options, float_adapter._builder if isinstance(float_adapter, MXNetAdapter) else None
        )
