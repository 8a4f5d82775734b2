"""Neural Compressor 2.x: `quantization.fit` with one of its strategies, which is the variant."""

from __future__ import annotations

from typing import Any

from neural_compressor import PostTrainingQuantConfig, quantization
from neural_compressor.config import AccuracyCriterion, TuningCriterion

from benchmarks.peers import job as jobs
from benchmarks.peers.onnx_session import OnnxSession

MAX_TRIALS = 1000


class _Loader(jobs.Batches):
    batch_size = 1

    def __iter__(self) -> Any:
        return ((batch, 0) for batch in super().__iter__())


def main() -> None:
    """Tune until the first success, which is what `timeout=0` means there, too."""
    job = jobs.read()
    source, target = job.bench.model_path, job.target
    jobs.plain_inference(job, OnnxSession(source))
    loader = _Loader(job)
    config = PostTrainingQuantConfig(
        quant_format="QDQ",
        quant_level=1,  # the level at which the strategy that was asked for is used
        calibration_sampling_size=[len(loader)],
        tuning_criterion=TuningCriterion(strategy=job.variant, timeout=0, max_trials=MAX_TRIALS),
        accuracy_criterion=AccuracyCriterion(criterion="relative", tolerable_loss=jobs.RELATIVE),
    )
    evaluate = jobs.Recorder(job, OnnxSession)
    model = jobs.tuning(
        job,
        lambda: quantization.fit(str(source), config, calib_dataloader=loader, eval_func=evaluate),
    )
    if model is None:
        jobs.report(job, None, "ended without a model that meets the criterion")
    else:
        model.save(str(target))
        jobs.report(job, target)


if __name__ == "__main__":
    main()
