"""The adapter for OpenVINO: the ONNX adapter, with another runtime."""

from __future__ import annotations

from types import MappingProxyType

from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.adapters.openvino.runtime import OPENVINO
from quaver.adapters.openvino.session import core
from quaver.adapters.options import AdapterOptions
from quaver.types import ModelLike


class OpenVinoAdapter(OnnxAdapter):
    """One ONNX model that runs in OpenVINO."""

    runtime = OPENVINO

    name = "openvino"
    frameworks = ("openvino",)
    runtime_name = OPENVINO.name
    bf16_setting = 'OpenVINO\'s setting {"INFERENCE_PRECISION_HINT": "bf16"}'
    is_default = False
    quant_formats = ("qdq",)
    implied_formats = MappingProxyType({})

    @classmethod
    def check_installed(cls) -> None:
        core()

    @classmethod
    def load(cls, model: ModelLike, options: AdapterOptions) -> OnnxAdapter:
        cls.check_installed()  # reported before any work
        return super().load(model, options)
