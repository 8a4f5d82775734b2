"""ONNX Runtime's `quantize_static`, as its users call it: pre-process, quantize, look at the accuracy.

Where pre-processing fails it is done again without symbolic shapes, as its error message or the forum advises.

Variants: `default`, all arguments as they come; `per_channel`, what its documentation advises for x86: uint8
activations with int8 weights, one scale per channel.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from benchmarks.peers import job as jobs
from benchmarks.peers.onnx_session import OnnxSession


class _Reader(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, batches: jobs.Batches) -> None:
        self._left: Iterator[dict[str, Any]] = iter(batches)

    def get_next(self) -> dict[str, Any] | None:
        return next(self._left, None)


def main() -> None:
    """Quantize once."""
    job = jobs.read()
    source, target = job.bench.model_path, job.folder / f"{jobs.MODEL}.onnx"
    jobs.plain_inference(job, OnnxSession(source))
    evaluate = jobs.Recorder(job, OnnxSession)
    chosen: dict[str, Any] = {}
    if job.variant == "per_channel":
        chosen = {"per_channel": not job.per_tensor, "activation_type": QuantType.QUInt8}

    def work() -> None:
        evaluate(source)
        with tempfile.TemporaryDirectory() as folder:
            ready = Path(folder) / "ready.onnx"
            try:
                quant_pre_process(str(source), str(ready))
            except Exception:
                quant_pre_process(str(source), str(ready), skip_symbolic_shape=True)
            quantize_static(str(ready), str(target), _Reader(jobs.Batches(job)), **chosen)
        evaluate(target)

    jobs.tuning(job, work)
    jobs.report(job, target)


if __name__ == "__main__":
    main()
