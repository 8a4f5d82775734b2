"""quaver itself, in a process like the others, with default settings: it stops at the first success.

The variant is the strategy, and behind a colon the runtime if it is not the default one.
"""

from __future__ import annotations

import quaver
from benchmarks.peers import job as jobs


def main() -> None:
    """Tune."""
    job = jobs.read()
    source = job.bench.model_path
    strategy, _, runtime = job.variant.partition(":")
    evaluate = jobs.Recorder(job, lambda model: model)
    result = jobs.tuning(
        job,
        lambda: quaver.fit(
            source,
            calib_dataloader=jobs.Batches(job),
            eval_func=evaluate,
            strategy=strategy,
            runtime=runtime or None,
            relative=jobs.RELATIVE,
            max_trials=1000,
            threads=1,
            workspace=job.folder / "workspace",
        ),
    )
    suffix = ".onnx" if source.suffix == ".onnx" else ".tflite"
    target = result.model.save(job.folder / f"{jobs.MODEL}{suffix}")
    precision = ""
    if runtime == "openvino":  # which keeps some ops in fp32 while others run in bf16 in its own format only
        result.model.save(job.folder / f"{jobs.MODEL}.xml")
        precision = quaver.read_provenance(target).inference_precision
    float_model = quaver.recover(source, job.folder / "workspace", 0, threads=1)
    float_model.save(job.folder / f"{jobs.FLOAT}{suffix}")
    jobs.plain_inference(job, float_model)
    jobs.report(job, target, str(result.reason), precision=precision)


if __name__ == "__main__":
    main()
