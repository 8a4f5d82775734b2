"""Check that a quantized model of any tool meets a criterion: `check`."""

from __future__ import annotations

import contextlib
import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from quaver.adapters import Model, abilities, adapter_for, load_unmodified
from quaver.adapters.data import count_samples
from quaver.adapters.samples import make_batch
from quaver.api.arguments import keywords_checked
from quaver.api.check_result import (
    MAX_ERROR_RATIO,
    CheckResult,
    LimitVerdict,
    ProcessorVerdict,
    SpeedVerdict,
    Verdict,
    together,
)
from quaver.api.config.resolve import make_config
from quaver.api.fit import check_direction
from quaver.criterion import Criterion
from quaver.engine.emulation import PROCESSORS, EmulatedModel, EmulatedSession, SampleLimitReached, emulator_command
from quaver.engine.inspection.output_error import as_outputs, relative_error, same_top1
from quaver.engine.scoring.early_stop import EarlyStopReference
from quaver.engine.scoring.evaluate import bind_reference, score
from quaver.engine.scoring.losses import LimitLoss, Losses
from quaver.engine.timing.latency import measure
from quaver.errors import EvaluationError, HistoryError, SettingsError
from quaver.files.paths import expanded
from quaver.files.temporary import temporary_folder
from quaver.history import FILE_NAME, History, read_snapshot
from quaver.metrics import Metric
from quaver.processors import VERIFIED, Verification
from quaver.scores import Score
from quaver.statistics import Interval, confidence, corrected, paired_interval
from quaver.types import CalibrationData, EvalFunc, Feed, ModelLike

log = logging.getLogger(__name__)

# Samples to run on an emulated processor by default. Judgement: some minutes for most models (docs/processors.md).
CPU_SAMPLES = 64
# Relative errors below this are rounding of float kernels. Judgement: the precision of float32 sums.
FLOAT_ERROR = 1e-5


@keywords_checked
def check(
    model: ModelLike,
    quantized: ModelLike,
    eval_func: EvalFunc,
    *,
    relative: float | Mapping[str, float] | None = None,
    absolute: float | Mapping[str, float] | None = None,
    higher_is_better: bool | Mapping[str, bool] = True,
    slices: Any = None,
    slice_limit: float | Mapping[str, float] | None = None,
    confidence: float | None = 0.95,
    faster_than: float | None = None,
    data: CalibrationData = None,
    threads: int = 0,
    runtime: str | None = None,
    cpu: str | None = None,
    cpu_samples: int | None = CPU_SAMPLES,
    progress: Callable[[int], None] | None = None,
) -> CheckResult:
    """Check a quantized model made by any tool: ONNX Runtime's, TensorFlow's converter, quaver.

    Both models are run unmodified. If eval_func returns the score of each sample, the loss on such data has a
    confidence interval. If the limit lies within it, the samples are too few, and the verdict is inconclusive.

    Args:
        model: the float model, in any form that `fit` takes.
        quantized: the quantized model: a file or bytes.
        eval_func: called with each model, returns its score in any form that `fit` takes.
        relative: the loss allowed as a fraction of the float model's score, by metric if a dict; 0.01 when neither this
            nor `absolute` is given.
        absolute: the loss allowed in units of the score, by metric if a dict.
        higher_is_better: False for scores that are errors.
        slices: parts of the samples that are judged separately, as for `fit`.
        slice_limit: the loss allowed on each slice.
        confidence: required confidence of a verdict, if there are scores of samples; None compares the scores only.
        faster_than: required speed compared with the float model, such as 1.0; None measures no latency.
        data: typical inputs to measure the latency on, as `calib_dataloader` of `fit`; those of a metric, or random
            ones, if None.
        threads: threads of one inference; 0 lets the runtime decide, and measures latency on one.
        runtime: the runtime that runs both models; by default the usual one of the framework.
        cpu: an x86 processor to run the quantized model on as well: "haswell" has AVX2 and no VNNI. It is emulated by
            qemu-user, which must be installed and is about 50 times slower.
        cpu_samples: how many samples to run there. Their outputs are compared; there is a score only if eval_func
            needs no more samples. None is all of them.
        progress: called with the number of samples that have run on the emulated processor, after each inference.

    Returns:
        A `CheckResult`: the verdict, and the figures behind it.
    """
    if not callable(eval_func):
        raise SettingsError(f"eval_func must be a function of the model that returns its score, not {eval_func!r}")
    if confidence is not None and not 0.5 <= confidence < 1:
        raise SettingsError(f"`confidence` must be between 0.5 and 1, such as 0.95, or None, not {confidence!r}")
    if faster_than is not None and not (faster_than > 0 and math.isfinite(faster_than)):
        raise SettingsError(f"`faster_than` must be a number above 0, such as 1.0, not {faster_than!r}")
    if cpu_samples is not None and (isinstance(cpu_samples, bool) or cpu_samples < 1):
        raise SettingsError(f"`cpu_samples` must be a whole number of at least 1, or None for all, not {cpu_samples!r}")
    command = None if cpu is None else emulator_command(cpu)
    config = make_config(
        None,
        relative=relative,
        absolute=absolute,
        higher_is_better=higher_is_better,
        slices=slices,
        slice_limit=slice_limit,
        threads=threads,
    )
    check_direction(eval_func, config)
    fp32, int8 = (load_unmodified(expanded(source), threads, runtime=runtime) for source in (model, quantized))
    bound = bind_reference(eval_func, lambda: fp32)
    baseline = score(bound, fp32, EarlyStopReference(config.criterion))
    losses = Losses(config.criterion, baseline)
    losses.check()
    result = score(bound, int8, EarlyStopReference(config.criterion, baseline))
    limits = _limit_verdicts(losses, baseline, result, confidence)
    speed = None if faster_than is None else _speed(fp32, int8, faster_than, eval_func if data is None else data)
    processor: ProcessorVerdict | None = None
    if cpu is not None and command is not None:
        with _emulated(quantized, int8, command, cpu_samples, progress) as session:
            emulated = _score_within_limit(
                bound, EmulatedModel(int8, session), EarlyStopReference(config.criterion, baseline)
            )
            emulated_limits = () if emulated is None else _limit_verdicts(losses, baseline, emulated, confidence)
            processor = _compare(cpu, session, fp32, int8, emulated_limits)
        _record(quantized, int8, processor)
    verdicts = [part.verdict for part in (*limits, speed, processor) if part is not None]
    level = confidence if any(limit.interval is not None for limit in limits) else None
    return CheckResult(together(verdicts), limits, speed, level, fp32.size, int8.size, processor)


@contextlib.contextmanager
def _emulated(
    quantized: ModelLike, model: Model, command: list[str], limit: int | None, progress: Callable[[int], None] | None
) -> Iterator[EmulatedSession]:
    """Open the quantized model on an emulated processor."""
    with contextlib.ExitStack() as stack:
        if isinstance(quantized, str | os.PathLike):
            path = Path(expanded(quantized))
        else:
            path = model.save(stack.enter_context(temporary_folder()) / f"model{model.suffix}")
        session = EmulatedSession(path, command, model, limit, progress)
        stack.callback(session.close)
        yield session


def _score_within_limit(eval_func: EvalFunc, model: EmulatedModel, reference: EarlyStopReference) -> Score | None:
    """Return the score on the emulated processor; None if eval_func needs more samples than may run there."""
    try:
        return score(eval_func, model, reference)
    except SampleLimitReached:
        return None


def _compare(
    cpu: str, session: EmulatedSession, fp32: Model, int8: Model, limits: tuple[LimitVerdict, ...]
) -> ProcessorVerdict:
    """Compare the outputs on the emulated processor and on this one, both with the float model's."""
    if not session.runs:
        raise EvaluationError(
            "eval_func does not call the model that it gets, so nothing ran on the emulated processor: let it call "
            "model(x) or model.session.run(...)"
        )
    names = [spec.name for spec in fp32.inputs]
    reference = [as_outputs(fp32.run(dict(zip(names, feed.values(), strict=True)))) for feed, _ in session.runs]
    here = [as_outputs(int8.run(feed)) for feed, _ in session.runs]
    there = [as_outputs(outputs) for _, outputs in session.runs]
    native_error, emulated_error = (math.sqrt(relative_error(reference, outputs)) for outputs in (here, there))
    identical = all(
        np.array_equal(native, emulated, equal_nan=True)
        for run_here, run_there in zip(here, there, strict=True)
        for native, emulated in zip(run_here, run_there, strict=True)
    )
    within = emulated_error <= MAX_ERROR_RATIO * native_error + FLOAT_ERROR
    verdict = together([Verdict.MET if within else Verdict.NOT_MET, *(limit.verdict for limit in limits)])
    return ProcessorVerdict(
        verdict=verdict,
        cpu=cpu.lower(),
        kind=PROCESSORS[cpu.lower()][1],
        samples=session.samples,
        native_error=native_error,
        emulated_error=emulated_error,
        native_top1=same_top1(reference, here),
        emulated_top1=same_top1(reference, there),
        identical=identical,
        limits=limits,
    )


def _record(quantized: ModelLike, model: Model, processor: ProcessorVerdict) -> None:
    """Note the check in the history of the run, if the model is in the workspace of its run."""
    if not isinstance(quantized, str | os.PathLike):
        return
    file = Path(expanded(quantized))
    path = file.parent / FILE_NAME
    if not path.is_file():
        return
    scored_hash = abilities.read_provenance(adapter_for(str(file)), file)[
        1
    ]  # the hash of the model without its provenance
    verification = Verification(
        processor.cpu,
        processor.samples,
        processor.native_error,
        processor.emulated_error,
        processor.verdict is Verdict.MET,
        scored_hash or model.sha256,
    )
    try:
        if all(trial.model_hash != verification.model_hash for trial in read_snapshot(path).trials):
            return
        with History.resume(path) as history:
            history.extend_note(VERIFIED, {processor.cpu: asdict(verification)})
    except HistoryError as error:
        log.warning("the check on %s could not be noted in %s: %s", processor.cpu, path, error)


def _limit_verdicts(
    losses: Losses, baseline: Score, result: Score, confidence: float | None
) -> tuple[LimitVerdict, ...]:
    """Return the verdict of each limit. Of several limits the confidence is corrected, so that it holds for all."""
    level = None if confidence is None else corrected(confidence, len(losses.limits))
    return tuple(_limit_verdict(lost, losses.criterion, baseline, result, level) for lost in losses.per_limit(result))


def _limit_verdict(
    lost: LimitLoss, criterion: Criterion, baseline: Score, result: Score, level: float | None
) -> LimitVerdict:
    limit, verdict = lost.limit, Verdict.MET if lost.met else Verdict.NOT_MET
    interval: Interval | None = None
    sure: float | None = None
    samples = 0
    if limit.metric in baseline.samples:
        before, after = (scores.samples[limit.metric].array for scores in (baseline, result))
        if limit.slice and criterion.slices is not None:
            members = criterion.slices.each()[limit.slice]
            before, after = before[members], after[members]
        samples = len(before)
        sure = confidence(before, after, limit.allowed, limit.relative, limit.higher_is_better)
        if level is not None:
            interval = paired_interval(before, after, level, limit.relative, limit.higher_is_better)
            if interval.low <= limit.allowed < interval.high:
                verdict = Verdict.INCONCLUSIVE
    return LimitVerdict(
        limit.metric,
        limit.slice,
        verdict,
        lost.baseline,
        lost.score,
        lost.loss,
        limit.allowed,
        limit.relative,
        limit.higher_is_better,
        samples,
        None if interval is None else (interval.low, interval.high),
        sure,
    )


def _speed(fp32: Model, int8: Model, faster_than: float, data: CalibrationData) -> SpeedVerdict:
    """Time both models interleaved on one sample. A difference within the error bar is no failure."""
    threads = fp32.threads or 1
    models = [model.with_threads(threads) for model in (fp32, int8)]
    feeds = [_sample(model, data) for model in models]
    slow, fast = measure(models, feeds)
    speedup, spread = slow.seconds / fast.seconds, slow.spread + fast.spread
    verdict = Verdict.MET if speedup * (1 + spread) >= faster_than else Verdict.NOT_MET
    latencies = 1e3 * slow.seconds, 1e3 * fast.seconds
    return SpeedVerdict(verdict, faster_than, speedup, *latencies, spread, threads, count_samples(feeds[0]))


def _sample(model: Model, data: CalibrationData) -> Feed:
    if isinstance(data, Metric):
        data = data.sample(model)
    return make_batch(None if callable(data) else data, model.inputs, 1)
