"""A model in OpenVINO: one thread, latency hint, an explicit precision, and shapes that are fixed where they can be."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov

CORE = ov.Core()


def options(threads: int, precision: str) -> dict[str, Any]:
    """Return the options of a session. Without the hint, OpenVINO takes bf16 where the processor has it."""
    return {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": precision,
    }


def read_model(path: Path, shapes: Mapping[str, list[int]] | None = None) -> Any:
    """Return a model with fixed shapes; -1 stands for a size that differs between samples."""
    model = CORE.read_model(path)
    if shapes:
        model.reshape({name: ov.PartialShape(shape) for name, shape in shapes.items()})
    return model


class OpenVinoSession:
    """Callable with a feed; one output comes as an array, several as a list.

    Args:
        model: a model, the path of one, or a compiled model, which keeps its options.
        threads: threads of one inference.
        precision: of the float part, "f32" or "bf16".
        shapes: shapes to fix before the model is compiled.
    """

    def __init__(
        self, model: Any, threads: int = 1, precision: str = "f32", shapes: Mapping[str, list[int]] | None = None
    ) -> None:
        if isinstance(model, str | Path):
            model = read_model(Path(model), shapes)
        if not isinstance(model, ov.CompiledModel):
            model = CORE.compile_model(model, "CPU", options(threads, precision))
        self.compiled = model
        self._request = model.create_infer_request()
        first = model.inputs[0].get_partial_shape()
        self._single = len(first) > 0 and first[0].is_static and first[0].get_length() == 1

    def __call__(self, feed: Mapping[str, Any]) -> Any:
        """Run one batch, sample by sample if the model takes one sample only."""
        samples = len(next(iter(feed.values())))
        if not self._single or samples == 1 or any(len(values) != samples for values in feed.values()):
            outputs = self._run(feed)
        else:
            runs = [self._run({name: v[i : i + 1] for name, v in feed.items()}) for i in range(samples)]
            outputs = [np.concatenate(parts) for parts in zip(*runs, strict=True)]
        return outputs[0] if len(outputs) == 1 else outputs

    def _run(self, feed: Mapping[str, Any]) -> list[Any]:
        results = self._request.infer({name: np.ascontiguousarray(values) for name, values in feed.items()})
        return [np.array(results[index]) for index in range(len(self.compiled.outputs))]
