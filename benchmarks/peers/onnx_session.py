"""A model in ONNX Runtime, on one thread; for whichever version of it the tool's environment has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnxruntime as ort


class OnnxSession:
    """Callable with a feed; gives the first output."""

    def __init__(self, model: Any, threads: int = 1) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        given = str(model) if isinstance(model, str | Path) else model
        if hasattr(given, "SerializeToString"):
            given = given.SerializeToString()
        self._session = ort.InferenceSession(given, options, providers=["CPUExecutionProvider"])
        self._output = self._session.get_outputs()[0].name

    def __call__(self, feed: dict[str, Any]) -> Any:
        """Run one batch."""
        return self._session.run([self._output], feed)[0]
