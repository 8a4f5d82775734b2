"""NNCF on OpenVINO, for which it is built: `nncf.quantize` and `nncf.quantize_with_accuracy_control`.

Variants: `performance` and `mixed`, the presets of `nncf.quantize`; `accuracy_control`, which falls back to float ops
until the criterion is met, with the preset that NNCF's documentation advises: mixed for models with activations other
than ReLU. A transformer is announced as one. Shapes are fixed before quantization: with a width left open, NNCF 3.4
takes all memory of the machine.

The validation function returns no value per sample; NNCF then ranks the ops by the outputs' error, which needs no
labels and fewer calls.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import nncf
import openvino as ov

from benchmarks.peers import job as jobs
from benchmarks.peers.openvino_session import OpenVinoSession, read_model

# Activations for which NNCF's documentation advises the preset "mixed".
NOT_RELU = {"Elu", "Gelu", "HSigmoid", "HSwish", "Mish", "PRelu", "Sigmoid", "Swish", "Tanh"}
PRESETS = {"performance": nncf.QuantizationPreset.PERFORMANCE, "mixed": nncf.QuantizationPreset.MIXED}


def main() -> None:
    """Quantize, for a relative drop if the variant is accuracy control."""
    job = jobs.read()
    shapes = jobs.fixed_shapes(job.bench)
    source = read_model(job.bench.model_path, shapes)
    target = job.folder / f"{jobs.MODEL}.xml"
    jobs.plain_inference(job, OpenVinoSession(source))
    evaluate = jobs.Recorder(job, partial(OpenVinoSession, shapes=shapes))
    model_type = nncf.ModelType.TRANSFORMER if job.transformer else None
    calibration = nncf.Dataset(jobs.Batches(job))

    def sample(start: int) -> dict[str, Any]:
        feed = job.bench.eval_func.feed(start)
        return {name: values[:1] for name, values in feed.items()} if job.bench.eval_func.batch else feed

    def validate(model: Any, items: Iterable[int]) -> tuple[float, None]:
        return evaluate.on(model, list(items)), None

    def work() -> Any:
        if job.variant != "accuracy_control":
            evaluate(source.clone())
            model = nncf.quantize(source, calibration, preset=PRESETS[job.variant], model_type=model_type)
            evaluate(model)
            return model
        return nncf.quantize_with_accuracy_control(
            source,
            calibration_dataset=calibration,
            validation_dataset=nncf.Dataset(list(evaluate.starts), sample),
            validation_fn=validate,
            max_drop=jobs.RELATIVE,
            drop_type=nncf.DropType.RELATIVE,
            preset=PRESETS["mixed" if NOT_RELU & {op.get_type_name() for op in source.get_ops()} else "performance"],
            model_type=model_type,
        )

    ov.save_model(jobs.tuning(job, work), target, compress_to_fp16=False)
    jobs.report(job, target)


if __name__ == "__main__":
    main()
