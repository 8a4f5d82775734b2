"""Run a whole tuning: `quaver.fit`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

from quaver.api.config.config import Config, Settings
from quaver.api.config.resolve import ConfigLike, ResolvedSettings, resolve_settings
from quaver.api.display.choose import display
from quaver.api.result import TuneResult
from quaver.api.session import TuningRun
from quaver.api.signals import terminating
from quaver.engine.inspection.diagnose import replayable
from quaver.engine.observers import Observer, make_observers
from quaver.errors import SettingsError
from quaver.scores import too_many_scores
from quaver.types import CalibrationData, EvalFunc, ModelLike


def check_direction(eval_func: EvalFunc, config: Config) -> None:
    """Refuse a metric that is better when lower, or higher, than the settings say. A resumed run was checked before."""
    own = getattr(eval_func, "higher_is_better", None)
    if not isinstance(own, bool) or config.resume is not None:
        return
    given, name = config.higher_is_better, getattr(eval_func, "name", "eval_func")
    said = given.get(name, True) if isinstance(given, Mapping) else given
    if own is not said:
        better = "higher" if own else "lower"
        raise SettingsError(f"{name} is better when it is {better}: give `higher_is_better={own}`")


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
    """Find the configuration that is best by the objective and loses no more accuracy than the criterion allows.

    Args:
        model: the float model: a path, an `onnx.ModelProto`, bytes, or what an installed adapter takes.
        config: a YAML file, a dict or a `Config`; keywords override it.
        calib_dataloader: an iterable of batches (arrays, tuples, dicts by input name, or (input, label) pairs), an
            array, or a dict of arrays. Without it ops run with ranges taken as the model runs, or with their weights
            alone in 8 bits, where they can. Not needed for a resumed run, unless its strategy measures ops.
        eval_func: called with a model object, returns the score as one number, as an array with the score of each
            sample, as a dict of named metrics, or as a generator that yields scores batch by batch (docs/scores.md).
            Without one nothing is evaluated: the result is the model that the strategy would try first, chosen without
            labels, and `result.met` is None.
        confirm: a second eval_func, on data that takes no part in choosing: it scores the winner and the fp32 model
            once, and the next best trials if the winner misses the criterion there.
        observer: called with an event for all that happens (see `quaver.Observer`); a list for several.
        verbose: what is shown meanwhile: None is a display in a terminal, and plain lines in a notebook and elsewhere
            (on stderr); 0 is nothing, 1 is always lines.
        executor: a `concurrent.futures.Executor` or a `dask.distributed.Client` whose workers evaluate, instead of
            `n_jobs` processes.
        strategy: who proposes: a name (`quaver strategies` lists them), a Strategy class or an instance.
        strategy_options: keywords for the strategy's constructor.
        relative: allowed loss as a fraction of the fp32 score: 0.01 is 1 %, and the default. By metric as a dict.
        absolute: allowed loss in units of the score, instead of `relative`. By metric as a dict.
        higher_is_better: False for scores like perplexity. By metric as a dict.
        slices: parts of the samples that are judged by themselves: a name for each sample, or indices or masks by name.
        slice_limit: the loss allowed on each slice, or by slice as a dict; as on all samples if None.
        confidence: demand to be so sure (0.95) that the loss on such data is within the criterion.
        early_stop: whether an evaluation that yields its scores is ended when they rule the trial out.
        early_stop_delta: the chance at most that a trial is ended so which all samples would accept.
        confirm_tries: how many trials are scored by `confirm` at most, the best first.
        start_from: the snapshot or workspace of a run on an earlier version of the model: its winner is tried first.
        allow_any_loss: True to allow a `relative` of 0.5 and more.
        timeout: seconds to go on improving; 0 stops at the first success, which with a budget is a trial within it
            that loses nothing.
        max_trials: how many trials may be evaluated in all.
        objective: what decides between trials that meet the criterion: "latency", "size", "int8_ops" or a function;
            "accuracy" for the most accurate model within a budget instead of a criterion.
        max_latency: that budget: latency as a fraction of the fp32 model's, such as 0.6.
        max_size: that budget: file size as a fraction of the fp32 model's.
        cost_model: a file with op times of the machine that the model is meant for (see `quaver profile --save`).
        seed: the only source of chance.
        calibration_sampling_size: how many calibration samples to use; at most 256 if None. Of a list of sizes each
            gets a run, until one meets the criterion.
        op_name_dict: rules by op name, such as {"/head/.*": "fp32"} (see `quaver.rules`).
        op_type_dict: rules by op type, such as {"Softmax": "fp32"}.
        quant_format: how int8 is written, where a framework knows several ways; for ONNX "qdq" or "qoperator",
            for TensorFlow "float_io" or "full_integer" (int8 inputs and outputs).
        timing_cache: whether to use and to keep what is measured of ops on this machine, so that the same call gives
            the same model.
        optimise_float: whether the float graph is made fast, exactly, before it is quantized.
        portable: whether int8 models give the same answers on x86 processors without VNNI as on those with it; None is
            True where the framework's adapter can do it.
        threads: threads of one inference, as it will be deployed; 0 lets the runtime decide, and latency is then
            measured on one.
        batch: samples of one inference, as it will be deployed: latency is measured at this batch.
        diagnosis: whether to say at the end which ops are bad in int8 and why: tables and causes are printed (unless
            verbose is 0), written into the workspace, and are `result.diagnosis`.
        report: whether to look into the best model at the end, and to write report.html into the workspace.
        insights: True to show the run on a web page of this machine, live; its address is told to the observers.
        provenance: whether saved models say where they come from (see `quaver.read_provenance`); False to keep scores
            and versions out of a file that you give to others.
        workspace: the folder of the run; a dated one under quaver_workspace/ if None.
        resume: the snapshot or workspace of an earlier run; whatever is not given is as it was there.
        framework: the framework whose adapter takes the model; usually left to the model itself.
        n_jobs: trials to evaluate at once, each in a process of its own; -1 is one for each core, or for each worker
            of a cluster. None is one, or what `joblib.parallel_config` says.
        backend: who has the workers: "loky" (processes of this machine), "dask" or "ray"; None is joblib's active one.
        scheduler: the address of the cluster, such as "tcp://host:8786"; None is the one that is connected.
        isolate: evaluate in a process of its own even if there is but one, so that a crash or a hang ends no run.
        trial_timeout: seconds that an evaluation may take before its process is ended and the trial has failed; or
            "10x" for ten times what the fp32 model took. It implies `isolate`.
        width: how many trials a strategy proposes at once; None is as many as are evaluated at once. The same width
            gives the same trials on any number of workers.

    Returns:
        A `TuneResult`, also when nothing meets the criterion (`result.met` is False) and after Ctrl-C or SIGTERM.
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
    if eval_func is not None and not callable(eval_func):
        raise SettingsError(f"eval_func must be a function of the model that returns its score, not {eval_func!r}")
    if confirm is not None and not callable(confirm):
        raise SettingsError(f"confirm must be a function of the model, as eval_func is, not {confirm!r}")
    count = getattr(eval_func, "sample_scores", None)  # a ready-made metric, or a function that says it
    if isinstance(count, int) and (why := too_many_scores(count)):
        raise SettingsError(f"eval_func has too many samples: {why}")
    if confirm is not None and eval_func is None:
        raise SettingsError("confirm scores the winner of a run on other data, and without eval_func there is none")
