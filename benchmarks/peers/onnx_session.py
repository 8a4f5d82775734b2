"""A model in ONNX Runtime, on one thread; for whichever version of it the tool's environment has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnxruntime as ort


class OnnxSession:
    """Callable with a feed; one output comes as an array, several as a list."""

    def __init__(self, model: Any, threads: int = 1) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        given = str(model) if isinstance(model, str | Path) else model
        if hasattr(given, "SerializeToString"):
            given = given.SerializeToString()
        self._session = ort.InferenceSession(given, options, providers=["CPUExecutionProvider"])

    def __call__(self, feed: dict[str, Any]) -> Any:
        """Run one batch."""
        outputs = self._session.run(None, feed)
        return outputs[0] if len(outputs) == 1 else outputs

    def inputs(self) -> list[str]:
        """Return the names of the inputs."""
        return [entry.name for entry in self._session.get_inputs()]
