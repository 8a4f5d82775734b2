"""The adapter for modules that were exported: ONNX Runtime runs them, and they are called like the module."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, TypeVar

from quaver.adapters.model import Model
from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.adapters.onnxrt.run.model import OnnxModel, SavedModel, UnmodifiedModel
from quaver.adapters.options import AdapterOptions
from quaver.adapters.torch.calls import ModuleCalls, ModuleRecord
from quaver.adapters.torch.export import read_record
from quaver.adapters.torch.sources import ExportedModule
from quaver.ops import QuantConfig
from quaver.types import ModelLike

ModelT = TypeVar("ModelT", bound=Model)


class TorchAdapter(OnnxAdapter):
    """The ONNX file of an exported module. Its history is that of an ONNX model, so the file alone recovers trials."""

    frameworks: ClassVar[tuple[str, ...]] = ("torch", "pytorch")
    is_default = False  # an exported module names it
    accepted_forms = "a torch.nn.Module, a pipeline or a folder of Hugging Face, or the file that one was exported to"

    _calls: ModuleCalls
    _conversion: str

    @classmethod
    def accepts(cls, model: ModelLike) -> bool:
        """Return True for the file of an exported module."""
        return isinstance(model, ExportedModule) or super().accepts(model)

    @classmethod
    def load(cls, model: ModelLike, options: AdapterOptions) -> TorchAdapter:
        """Load the file of an exported module, and how the module was called."""
        path = Path(model)
        record = ModuleRecord.from_json(read_record(path))
        adapter = super().load(path, options)
        assert isinstance(adapter, TorchAdapter)
        adapter._calls, adapter._conversion = ModuleCalls(record, path.resolve().parent), record.export
        return adapter

    @property
    def conversions(self) -> tuple[str, ...]:
        return (self._conversion, *super().conversions)

    def assemble(self, config: QuantConfig | None) -> OnnxModel:
        return self._called_like_the_module(super().assemble(config))

    def build_unmodified(self) -> UnmodifiedModel:
        return self._called_like_the_module(super().build_unmodified())

    def load_saved(self, path: Path) -> SavedModel:
        return self._called_like_the_module(super().load_saved(path))

    def _called_like_the_module(self, model: ModelT) -> ModelT:
        model.call_like(self._calls)
        return model
