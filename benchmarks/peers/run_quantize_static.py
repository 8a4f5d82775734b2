"""ONNX Runtime's `quantize_static`, as its users call it: pre-process, quantize, look at the accuracy.

Where pre-processing fails it is done again without symbolic shapes, as its error message or the forum advises.

Variants: `default`, all arguments as they come; `all`, `all_per_channel`: what its documentation advises for x86,
uint8 activations with int8 weights, one scale or one per channel; `weights`, `weights_per_channel`: the same for
convolutions and matrix products alone.
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

WITH_WEIGHTS = ["Conv", "MatMul", "Gemm"]


class _Reader(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, batches: jobs.Batches) -> None:
        self._left: Iterator[dict[str, Any]] = iter(batches)

    def get_next(self) -> dict[str, Any] | None:
        return next(self._left, None)


def arguments(variant: str) -> dict[str, Any]:
    """Return the arguments of a variant."""
    if variant == "default":
        return {}
    options: dict[str, Any] = {"activation_type": QuantType.QUInt8, "per_channel": variant.endswith("per_channel")}
    return options | ({"op_types_to_quantize": WITH_WEIGHTS} if variant.startswith("weights") else {})


def main() -> None:
    """Quantize once."""
    job = jobs.read()
    source, target = job.bench.model_path, job.target
    jobs.plain_inference(job, OnnxSession(source))
    evaluate = jobs.Recorder(job, OnnxSession)

    def work() -> None:
        evaluate(source)
        with tempfile.TemporaryDirectory() as folder:
            ready = Path(folder) / "ready.onnx"
            try:
                quant_pre_process(str(source), str(ready))
            except Exception:
                quant_pre_process(str(source), str(ready), skip_symbolic_shape=True)
            quantize_static(str(ready), str(target), _Reader(jobs.Batches(job)), **arguments(job.variant))
        evaluate(target)

    jobs.tuning(job, work)
    jobs.report(job, target)


if __name__ == "__main__":
    main()
