"""Run a whole tuning: `quaver.fit`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

from quaver.api.config.config import Config
from quaver.api.config.keywords import Settings
from quaver.api.config.resolve import ConfigLike, ResolvedSettings, resolve_settings
from quaver.api.display.choose import display
from quaver.api.fastest import is_fastest, tune_fastest
from quaver.api.result import TuneResult
from quaver.api.session import TuningRun
from quaver.api.signals import terminating
from quaver.engine.inspection.diagnose import replayable
from quaver.engine.observers import Observer, make_observers
from quaver.errors import SettingsError
from quaver.scores import too_many_scores
from quaver.types import CalibrationData, EvalFunc, ModelLike


def check_direction(eval_func: EvalFunc, config: Config) -> None:
    """Refuse a metric whose direction contradicts `higher_is_better`. For a resumed run it was checked before."""
    direction = getattr(eval_func, "higher_is_better", None)
    if not isinstance(direction, bool) or config.resume is not None:
        return
    setting, name = config.higher_is_better, getattr(eval_func, "name", "eval_func")
    configured = setting.get(name, True) if isinstance(setting, Mapping) else setting
    if direction is not configured:
        better = "higher" if direction else "lower"
        raise SettingsError(f"{name} is better when it is {better}: pass `higher_is_better={direction}`")


# Rows of each diagnosis table that are printed: about half a terminal. The files in the workspace hold all rows.
PRINTED_ROWS = 10


def fit(
    model: ModelLike,
    config: ConfigLike = None,
    *,
    calib_dataloader: CalibrationData = None,
    eval_func: EvalFunc | None = None,
    confirm: EvalFunc | None = None,
    observer: Observer | Iterable[Observer] | None = None,
    verbose: int | None = None,
    executor: Any = None,
    **settings: Unpack[Settings],
) -> TuneResult:
    """Find the quantization config that is best by the objective and loses no more accuracy than allowed.

    Args:
        model: The float model: a path, an `onnx.ModelProto`, bytes, a `torch.nn.Module`, a folder or pipeline of
            Hugging Face, or what an installed adapter accepts.
        config: A YAML file, a dict or a `Config`; keywords override it.
        calib_dataloader: Calibration data: an iterable of batches (arrays, tuples, dicts by input name, or (input,
            label) pairs), an array, or a dict of arrays. Without it, only ops that support dynamic ranges
            or weight-only quantization are quantized. A resumed run needs it only if its strategy measures ops.
        eval_func: Takes a model object and returns the score: one number, an array with the score of each sample, a
            dict of named metrics, or a generator that yields scores batch by batch (docs/scores.md). The object for a
            torch module is called like the module. Without eval_func nothing is evaluated: the result is the model that
            the strategy would try first, and `result.met` is None.
        confirm: A second eval_func, on data that takes no part in the search. It scores the winner and the fp32 model
            once, and the next best trials if the winner misses the criterion there.
        observer: Called with every event (see `quaver.Observer`); a list for several observers.
        verbose: What is shown during the run: None is a live display in a terminal and plain lines on stderr elsewhere,
            0 is nothing, 1 is always plain lines.
        executor: A `concurrent.futures.Executor` or a `dask.distributed.Client` whose workers evaluate, instead of
            `n_jobs` processes.
        relative: Allowed loss as a fraction of the fp32 score. The default is 0.01 (1 %), unless `absolute` or a target
            budget is set. A dict sets it per metric.
        absolute: Allowed loss in units of the score, instead of `relative`. A dict sets it per metric.
        higher_is_better: False for scores such as perplexity, where lower is better. A dict sets it per metric.
        slices: Parts of the samples that are judged separately. A slice name for each sample, or a dict of indices or
            masks by slice name.
        slice_limit: Allowed loss on each slice; by default the limit for all samples. A dict sets it per slice.
        confidence: Required confidence that the loss on new data is within the criterion, such as 0.95. It needs a
            score for each sample. By default the measured score alone decides.
        allow_any_loss: Allow a `relative` of 0.5 or more, which is refused otherwise. A loss of 1 % is 0.01.
        max_latency: With objective="accuracy": maximum latency as a fraction of the fp32 latency.
        max_size: With objective="accuracy": maximum file size, as a fraction of the fp32 file or in bytes, such as
            "130MB".
        max_bits: With objective="accuracy": maximum mean bits of a weight, all in the file counted; the fp32 model has
            32.
        early_stop: Stop an evaluation as soon as its scores rule the trial out. This needs an eval_func that yields
            scores batch by batch.
        early_stop_delta: Maximum probability of wrongly stopping a trial that would pass.
        confirm_tries: Maximum number of trials that `confirm` scores, best first.
        strategy: The search strategy: a name (see `quaver strategies`), a Strategy class or an instance.
        strategy_options: Keyword arguments for the constructor of the strategy.
        objective: What to minimize among trials that meet the criterion: "latency", "size", "int8_ops" or a function of
            the model. "accuracy" looks for the most accurate model within a target budget (`max_latency`, `max_size`,
            `max_bits`) instead of a criterion.
        timeout: Seconds to keep improving; 0 stops at the first success. With a target budget, success is a trial
            within it that loses no accuracy; if there is none, the strategy runs to its end.
        max_trials: Maximum number of evaluated trials, those of a resumed run included.
        seed: Seed of every random choice.
        effort: Work spent on measurements without labels: low, normal or high. low and normal use fewer samples for
            larger models, whatever the speed of the machine; high uses 16 samples for each op and 32 for each
            configuration. A resumed run keeps it.
        start_from: Workspace or snapshot of a run on an earlier version of the model; its best config is tried first.
        width: Trials that a strategy proposes at once; by default as many as are evaluated at once. The same width
            gives the same trials on any number of workers.
        calibration_sampling_size: Number of calibration samples; by default at most 256. `fit` tries a list of sizes in
            order until one meets the criterion; other calls use the largest.
        op_name_dict: Rules by op name, such as {"/head/.*": "fp32"}. See docs/rules.md.
        op_type_dict: Rules by op type, such as {"Softmax": "fp32"}.
        quant_format: Format of the int8 model: "qdq" or "qoperator" for ONNX, "float_io" or "full_integer" for
            TensorFlow. "full_integer" has int8 inputs and outputs. None is the default of the framework.
        optimise_float: Rewrite the float graph before quantization so that it runs faster and computes the same.
        portable: Make int8 models compute the same on x86 processors with and without VNNI. True limits weights so that
            no sum overflows without VNNI. By default it is on where the adapter supports it.
        framework: The framework whose adapter loads the model; by default the model decides.
        runtime: What runs the model: `onnxruntime` (the default), `openvino`, or `fastest` of both; for ONNX.
        threads: Threads of one inference, as deployed; 0 lets the runtime choose. With 0, latency is measured on one
            thread.
        batch: Samples per inference, as deployed; latency is measured at this batch. A model with a fixed batch is
            measured at that batch, and any number but 1 is refused.
        timing_cache: Reuse op times that earlier runs on this model measured on this machine, and store new ones. The
            same call then gives the same model, even on a busy machine.
        cost_model: Op times of another machine, from `quaver profile --save`; latency is predicted for that machine.
            The latency on this machine is reported separately.
        n_jobs: Trials to evaluate at once, each in its own process; -1 uses every core, or every worker of a cluster.
            By default 1, or what `joblib.parallel_config` sets.
        backend: Where workers run: "loky" (processes on this machine), "dask" or "ray"; by default the active joblib
            backend.
        scheduler: Address of the cluster, such as "tcp://host:8786"; by default the connected cluster.
        isolate: Evaluate in a separate process, so that a crash or a hang of eval_func does not end the run.
        trial_timeout: Maximum seconds of one evaluation, or "10x" for ten times the fp32 evaluation; implies `isolate`.
            A longer evaluation is stopped, and the trial has failed.
        workspace: Folder of the run; by default a dated folder in quaver_workspace/.
        resume: Workspace or snapshot of an earlier run to continue. Settings that are not passed keep their earlier
            values.
        report: Inspect the best model at the end, and write report.html into the workspace.
        insights: Show the run live on a local web page. Observers are told its address.
        diagnosis: Find out at the end which ops are bad in int8 and why; tables and causes go to the workspace. They
            are `result.diagnosis`, too, and printed unless `verbose` is 0.
        provenance: Record in saved models which versions, float model, criterion and scores they have; see
            `read_provenance`.

    Returns:
        A `TuneResult`, even if nothing meets the criterion (`result.met` is False) and after Ctrl-C or SIGTERM.
    """
    request = TuneRequest(
        model,
        resolve_settings(config, settings),
        calib_dataloader=calib_dataloader,
        eval_func=eval_func,
        confirm=confirm,
        observer=observer,
        verbose=verbose,
        executor=executor,
    )
    result = tune(request)
    if result.diagnosis is not None and verbose != 0:
        from quaver.api.display.diagnosis import write  # imports rich, which a run without diagnosis does not need

        write(result.diagnosis, PRINTED_ROWS)
    return result


@dataclass(frozen=True)
class TuneRequest:
    """The arguments of `fit`, with the settings resolved."""

    model: ModelLike
    settings: ResolvedSettings
    calib_dataloader: CalibrationData = None
    eval_func: EvalFunc | None = None
    confirm: EvalFunc | None = None
    observer: Observer | Iterable[Observer] | None = None
    verbose: int | None = None
    executor: Any = None


def tune(request: TuneRequest) -> TuneResult:
    """Tune without printing the diagnosis. `fit` and `quaver tune` call this."""
    _check_functions(request.eval_func, request.confirm)
    config = request.settings.config
    if request.eval_func is not None:
        check_direction(request.eval_func, config)
    if is_fastest(config):
        return tune_fastest(
            request, lambda settings, data: tune(replace(request, settings=settings, calib_dataloader=data))
        )
    if isinstance(config.calibration_sampling_size, tuple) and config.resume is None:
        return _tune_each_size(request, config.calibration_sampling_size)
    with contextlib.ExitStack() as stack:
        stack.enter_context(terminating())
        observers = [*make_observers(request.observer), *stack.enter_context(display(request.verbose))]
        run = stack.enter_context(
            TuningRun(request.model, request.settings, request.calib_dataloader, observers, request.executor)
        )
        if request.confirm is not None:
            run.require_confirmation()
        if request.eval_func is None:
            run.quantize()
        else:
            run.drive(request.eval_func)
        if request.confirm is not None:
            run.confirm(request.confirm)
        return run.result()


def _tune_each_size(request: TuneRequest, sizes: tuple[int, ...]) -> TuneResult:
    """Tune with each calibration size until a run meets the criterion; return the best run if none does.

    Each run has its own workspace: the names of later ones end in their size.
    """
    workspace = request.settings.config.workspace
    request = replace(request, calib_dataloader=replayable(request.calib_dataloader))
    best: TuneResult | None = None
    for number, size in enumerate(sizes):
        folder = None if workspace is None else Path(workspace)
        if folder is not None and number:
            folder = folder.with_name(f"{folder.name}_{size}")
        settings = request.settings.replace(calibration_sampling_size=size, workspace=folder)
        result = tune(replace(request, settings=settings))
        if result.met is not False:
            return result
        if best is None or _loss(result) < _loss(best):
            best = result
    assert best is not None
    return best


def _loss(result: TuneResult) -> float:
    loss = None if result.best is None else result.best.loss
    return float("inf") if loss is None else loss


def _check_functions(eval_func: object, confirm: object) -> None:
    """Refuse an eval_func or a confirm that is not a function, and a confirm alone."""
    if eval_func is not None and not callable(eval_func):
        raise SettingsError(f"eval_func must be a function of the model that returns its score, not {eval_func!r}")
    if confirm is not None and not callable(confirm):
        raise SettingsError(f"confirm must be a function of the model, like eval_func, not {confirm!r}")
    count = getattr(eval_func, "sample_scores", None)  # metrics of `quaver.metrics` have it
    if isinstance(count, int) and (reason := too_many_scores(count)):
        raise SettingsError(f"eval_func has too many samples: {reason}")
    if confirm is not None and eval_func is None:
        raise SettingsError("confirm scores the winner on other data, but without eval_func there is no winner")
