"""ONNX Runtime's `quantize_dynamic`, which needs no calibration data. The variant names the op types: all or matmul."""

from __future__ import annotations

from onnxruntime.quantization import quantize_dynamic

from benchmarks.peers import job as jobs
from benchmarks.peers.onnx_session import OnnxSession


def main() -> None:
    """Quantize once."""
    job = jobs.read()
    source = job.bench.model_path
    jobs.plain_inference(job, OnnxSession(source))
    evaluate = jobs.Recorder(job, OnnxSession)
    kinds = ["MatMul", "Gemm", "LSTM"] if job.variant == "matmul" else None

    def work() -> None:
        evaluate(source)
        quantize_dynamic(str(source), str(job.target), op_types_to_quantize=kinds)
        evaluate(job.target)

    jobs.tuning(job, work)
    jobs.report(job, job.target)


if __name__ == "__main__":
    main()
