"""`check`: does a quantized model, whoever made it, keep what was asked for?"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from quaver.adapters import Model, open_given
from quaver.adapters.batches import Feed, samples
from quaver.adapters.one_batch import one_batch
from quaver.api.checked import keywords_checked
from quaver.api.direction import check_direction
from quaver.api.settings import make_config
from quaver.api.verdict import CheckResult, LimitVerdict, SpeedVerdict, Verdict, together
from quaver.criterion import Criterion
from quaver.engine.evaluation import referred, score
from quaver.engine.latency import measure
from quaver.engine.losses import Losses, Lost
from quaver.engine.standard import Standard
from quaver.errors import SettingsError
from quaver.metrics import Metric
from quaver.paths import expanded
from quaver.scores import Score
from quaver.statistics import Interval, corrected, paired_interval, sureness


@keywords_checked
def check(
    model: Any,
    quantized: Any,
    eval_func: Callable[[Any], Any],
    *,
    relative: float | Mapping[str, float] | None = None,
    absolute: float | Mapping[str, float] | None = None,
    higher_is_better: bool | Mapping[str, bool] = True,
    slices: Any = None,
    slice_limit: float | Mapping[str, float] | None = None,
    confidence: float | None = 0.95,
    faster_than: float | None = None,
    data: Any = None,
    threads: int = 0,
) -> CheckResult:
    """Judge a model that exists, made by anybody: ONNX Runtime's tool, TensorFlow's converter, quaver.

    Both models are run just as they are. Where eval_func gives the score of each sample, the loss on all such data lies
    within an interval; if that holds the limit, these samples cannot tell, and the verdict is inconclusive.

    Args:
        model: the float model, in any form that `fit` takes.
        quantized: the quantized model: a file or bytes.
        eval_func: called with each model, returns its score in any form that `fit` takes.
        relative: the loss allowed as a fraction of the float model's score, by metric if a dict; 0.01 when neither this
            nor `absolute` is given.
        absolute: the loss allowed in units of the score, by metric if a dict.
        higher_is_better: False for scores that are errors.
        slices: parts of the samples that are judged by themselves, as for `fit`.
        slice_limit: the loss allowed on each slice.
        confidence: how sure a verdict must be, where scores of samples are given; None lets the scores alone decide.
        faster_than: how many times as fast as the float model it must be, such as 1.0; None measures no time.
        data: typical inputs to measure the time on, as `calib_dataloader` of `fit`; those of a metric, or made up, if
            None.
        threads: threads of one inference; 0 lets the runtime decide, and measures time on one.

    Returns:
        A `CheckResult`: the verdict, and what it rests on.
    """
    if not callable(eval_func):
        raise SettingsError(f"eval_func must be a function of the model that returns its score, not {eval_func!r}")
    if confidence is not None and not 0.5 <= confidence < 1:
        raise SettingsError(f"`confidence` must be between 0.5 and 1, such as 0.95, or None, not {confidence!r}")
    if faster_than is not None and not (faster_than > 0 and math.isfinite(faster_than)):
        raise SettingsError(f"`faster_than` must be a number above 0, such as 1.0, not {faster_than!r}")
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
    fp32, int8 = (open_given(expanded(one), threads) for one in (model, quantized))
    bound = referred(eval_func, lambda: fp32)
    baseline = score(bound, fp32, Standard(config.criterion))
    losses = Losses(config.criterion, baseline)
    losses.check()
    found = score(bound, int8, Standard(config.criterion, baseline))
    limits = _judged(losses, baseline, found, confidence)
    speed = None if faster_than is None else _speed(fp32, int8, faster_than, eval_func if data is None else data)
    verdicts = [one.verdict for one in limits] + ([] if speed is None else [speed.verdict])
    known = confidence if any(one.interval is not None for one in limits) else None
    return CheckResult(together(verdicts), limits, speed, known, fp32.size, int8.size)


def _judged(losses: Losses, baseline: Score, found: Score, confidence: float | None) -> tuple[LimitVerdict, ...]:
    """Each limit. With several of them all intervals must be right together."""
    level = None if confidence is None else corrected(confidence, len(losses.limits))
    return tuple(_one(lost, losses.criterion, baseline, found, level) for lost in losses.of(found))


def _one(lost: Lost, criterion: Criterion, baseline: Score, found: Score, level: float | None) -> LimitVerdict:
    limit, verdict = lost.limit, Verdict.MET if lost.met else Verdict.NOT_MET
    interval: Interval | None = None
    sure: float | None = None
    samples = 0
    if limit.metric in baseline.samples:
        before, after = (one.samples[limit.metric].array for one in (baseline, found))
        if limit.slice and criterion.slices is not None:
            members = criterion.slices.each()[limit.slice]
            before, after = before[members], after[members]
        samples = len(before)
        sure = sureness(before, after, limit.allowed, limit.relative, limit.higher_is_better)
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


def _speed(fp32: Model, int8: Model, faster_than: float, data: Any) -> SpeedVerdict:
    """Both models in turns, on one sample; what differs by less than the measurement may be off is no failure."""
    threads = fp32.threads or 1
    models = [one.on_threads(threads) for one in (fp32, int8)]
    feeds = [_sample(one, data) for one in models]
    slow, fast = measure(models, feeds)
    speedup, spread = slow.seconds / fast.seconds, slow.spread + fast.spread
    verdict = Verdict.MET if speedup * (1 + spread) >= faster_than else Verdict.NOT_MET
    taken = 1e3 * slow.seconds, 1e3 * fast.seconds
    return SpeedVerdict(verdict, faster_than, speedup, *taken, spread, threads, samples(feeds[0]))


def _sample(model: Model, data: Any) -> Feed:
    if isinstance(data, Metric):
        data = data.sample(model)
    return one_batch(None if callable(data) else data, model.inputs, 1)
