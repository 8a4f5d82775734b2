"""The same model with integer operators (QLinearConv, ...) instead of Quantize/Dequantize pairs."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnxruntime as ort

from quaver.adapters.onnxrt.build.provenance import tail
from quaver.adapters.onnxrt.run import session as sessions
from quaver.adapters.onnxrt.run.model import OnnxModel
from quaver.adapters.temporary import temporary_folder


class QOperatorModel(OnnxModel):
    """A model as ONNX Runtime's own optimiser writes it: fused, and with the integer kernels named in the graph."""

    @functools.cached_property
    def _optimised(self) -> bytes:
        with temporary_folder() as folder:
            path = folder / "optimised.onnx"
            options: Any = sessions.options(1)
            # Beyond this level the layout is rewritten for the machine at hand, and the file would not travel.
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
            options.optimized_model_filepath = str(path)
            sessions.create(b"".join(self._assembly.chunks()), options)
            return path.read_bytes()

    def start_hashing(self) -> None:
        """Begin to compute `sha256` aside, once the bytes are there."""
        self._optimised  # noqa: B018
        super().start_hashing()

    def source(self) -> tuple[bytes, Path | None]:
        """What sessions are made from: the model, which holds all its constants."""
        return self._optimised, None

    def chunks(self) -> Iterator[bytes | memoryview]:
        """The bytes of the complete model."""
        yield self._optimised

    @property
    def size(self) -> int:
        """Size of the complete model file in bytes."""
        return len(self._optimised) + len(tail(self._provenance))
