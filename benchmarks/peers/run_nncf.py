"""NNCF: `quantize_with_accuracy_control` on ONNX.

The validation function returns no value per sample; NNCF then ranks the ops by the outputs' error, which needs no
labels and fewer calls.
"""

from __future__ import annotations

from collections.abc import Iterable

import nncf
import onnx
from nncf.quantization.advanced_parameters import AdvancedQuantizationParameters, QuantizationParameters

from benchmarks.peers import job as jobs
from benchmarks.peers.onnx_session import OnnxSession


def main() -> None:
    """Quantize under a relative drop."""
    job = jobs.read()
    source, target = job.bench.model_path, job.folder / f"{jobs.MODEL}.onnx"
    jobs.plain_inference(job, OnnxSession(source))
    evaluation, evaluate = job.bench.eval_func, jobs.Recorder(job, OnnxSession)
    starts = evaluate.starts

    def feed(start: int) -> dict[str, object]:
        return {name: values[start : start + evaluation.batch] for name, values in evaluation.inputs.items()}

    def validate(model: onnx.ModelProto, items: Iterable[int]) -> tuple[float, None]:
        return evaluate.on(model, [slice(start, start + evaluation.batch) for start in items]), None

    one_scale = QuantizationParameters(per_channel=False)
    model = jobs.tuning(
        job,
        lambda: nncf.quantize_with_accuracy_control(
            onnx.load(source),
            calibration_dataset=nncf.Dataset(jobs.Batches(job)),
            validation_dataset=nncf.Dataset(list(starts), feed),
            validation_fn=validate,
            max_drop=jobs.RELATIVE,
            drop_type=nncf.DropType.RELATIVE,
            model_type=nncf.ModelType.TRANSFORMER if job.transformer else None,
            advanced_quantization_parameters=AdvancedQuantizationParameters(weights_quantization_params=one_scale)
            if job.per_tensor
            else None,
        ),
    )
    onnx.save(model, target)
    jobs.report(job, target)


if __name__ == "__main__":
    main()
