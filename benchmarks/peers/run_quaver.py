"""quaver itself, in a process like the others. The variant is the strategy.

`auto` has time to continue after the first success and make the model faster; the others stop there, as the same
strategies of other tools do.
"""

from __future__ import annotations

import quaver
from benchmarks.peers import job as jobs

PER_TENSOR = {".*": {"weight": {"granularity": ["per_tensor"]}}}


def main() -> None:
    """Tune."""
    job = jobs.read()
    source = job.bench.model_path
    evaluate = jobs.Recorder(job, lambda model: model)
    result = jobs.tuning(
        job,
        lambda: quaver.fit(
            source,
            calib_dataloader=jobs.Batches(job),
            eval_func=evaluate,
            strategy=job.variant,
            relative=jobs.RELATIVE,
            timeout=job.limit if job.variant == "auto" else 0,
            max_trials=1000,
            op_name_dict=PER_TENSOR if job.per_tensor else {},
            threads=1,
            workspace=job.folder / "workspace",
        ),
    )
    suffix = ".onnx" if source.suffix == ".onnx" else ".tflite"
    target = result.model.save(job.folder / f"{jobs.MODEL}{suffix}")
    float_model = quaver.recover(source, job.folder / "workspace", 0, threads=1)
    float_model.save(job.folder / f"{jobs.FLOAT}{suffix}")
    jobs.plain_inference(job, float_model)
    jobs.report(job, target, str(result.reason), own_fp32_ops=len(result.best.config.fp32_ops))


if __name__ == "__main__":
    main()
