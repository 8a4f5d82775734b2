"""An adapter of real ONNX Runtime sessions that aborts the process, as the runtime itself does on some graphs.

It aborts in the calls that the environment names, when one op is quantized. A file counts the deaths, those of workers
included. Importing this module registers the adapter.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from quaver import QuantConfig
from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.adapters.registry import register_adapter

FATAL = "layer.2/Gemm"


def die(call: str) -> None:
    """Abort the process if this call is to."""
    if call in os.environ.get("QUAVER_TEST_ABORTS", "").split():
        with open(os.environ["QUAVER_TEST_DEATHS"], "a") as file:
            file.write(f"{call} {os.getpid()}\n")
        os.abort()


def meet(call: str, config: QuantConfig | None) -> None:
    """Abort if the op is quantized."""
    if config is not None and config[FATAL].quantized:
        die(call)


@register_adapter
class AbortingAdapter(OnnxAdapter):
    """Aborts before it does what it is asked for."""

    def assemble(self, config: QuantConfig | None) -> Any:
        meet("rebuild", config)
        return super().assemble(config)

    def record_outputs(self, config: QuantConfig | None, ops: Sequence[str]) -> Any:
        meet("watch", config)
        return super().record_outputs(config, ops)

    def local_errors(self, config: QuantConfig) -> dict[str, tuple[float, float]]:
        meet("local_errors", config)
        return super().local_errors(config)

    def op_seconds(self, config: QuantConfig | None, threads: int | None = None) -> dict[str, float]:
        meet("op_seconds", config)
        return super().op_seconds(config, threads)

    def inspect_quantized(self, quantized: Any) -> Any:
        die("look")
        return super().inspect_quantized(quantized)
