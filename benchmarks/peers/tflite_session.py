"""A model in LiteRT; batches of any size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter


class TFLiteSession:
    """Callable with a feed; gives the first output. The order of the inputs in the feed is that of the model."""

    def __init__(self, model: Any, threads: int = 1) -> None:
        content = model.read_bytes() if isinstance(model, Path) else model
        self._interpreter = Interpreter(model_content=content, num_threads=threads)
        self._interpreter.allocate_tensors()

    def __call__(self, feed: dict[str, Any]) -> Any:
        """Run one batch."""
        interpreter = self._interpreter
        inputs = interpreter.get_input_details()
        arrays = [np.ascontiguousarray(value) for value in feed.values()]
        resized = False
        for detail, array in zip(inputs, arrays, strict=True):
            if tuple(detail["shape"]) != array.shape:
                interpreter.resize_tensor_input(detail["index"], array.shape)
                resized = True
        if resized:
            interpreter.allocate_tensors()
        for detail, array in zip(inputs, arrays, strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])

    def input_quantization(self) -> tuple[float, int]:
        """Return scale and zero point of the first input; a scale of 0 means that it takes floats."""
        scale, zero_point = self._interpreter.get_input_details()[0]["quantization"]
        return float(scale), int(zero_point)
