"""`fit`: the road of one run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Unpack

from quaver.api.keywords import Settings
from quaver.api.open_run import open_run
from quaver.api.result import TuneResult
from quaver.api.settings import Config
from quaver.api.terminating import terminating
from quaver.engine.events import Observer
from quaver.errors import SettingsError


def fit(
    model: Any,
    config: Config | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    *,
    calib_dataloader: Any = None,
    eval_func: Callable[[Any], Any],
    observer: Observer | Iterable[Observer] | None = None,
    **settings: Unpack[Settings],
) -> TuneResult:
    """Find the configuration that is best by the objective and loses no more accuracy than the criterion allows.

    Args:
        model: the float model: a path, an `onnx.ModelProto`, bytes, or what an installed adapter takes.
        config: a YAML file, a dict or a `Config`; keywords override it.
        calib_dataloader: an iterable of batches (arrays, tuples, dicts by input name, or (input, label) pairs), an
            array, or a dict of arrays. Not needed for a resumed run, unless its strategy measures ops.
        eval_func: called with a model object, returns the score as one number.
        observer: called with an event for all that happens (see `quaver.Observer`); a list for several.
        strategy: who proposes: a name (`quaver strategies` lists them), a Strategy class or an instance.
        strategy_options: keywords for the strategy's constructor.
        relative: allowed loss as a fraction of the fp32 score: 0.01 is 1 %, and the default.
        absolute: allowed loss in units of the score, instead of `relative`.
        higher_is_better: False for scores like perplexity.
        allow_any_loss: True to allow a `relative` of 0.5 and more.
        timeout: seconds to go on improving; 0 stops at the first success.
        max_trials: how many trials may be evaluated in all.
        objective: what decides between trials that meet the criterion: "latency", "size", "int8_ops" or a function.
        seed: the only source of chance.
        calibration_sampling_size: how many calibration samples to use; at most 256 if None.
        op_name_dict: rules by op name, such as {"/head/.*": "fp32"} (see `quaver.rules`).
        op_type_dict: rules by op type, such as {"Softmax": "fp32"}.
        quant_format: how int8 is written, where a framework knows several ways; for ONNX "qdq" or "qoperator".
        optimise_float: whether the float graph is made fast, exactly, before it is quantized.
        threads: threads of one inference, as it will be deployed; 0 lets the runtime decide, and latency is then
            measured on one.
        diagnosis: whether to say at the end which ops are bad in int8 and why.
        workspace: the folder of the run; a dated one under quaver_workspace/ if None.
        resume: the snapshot or workspace of an earlier run; whatever is not given is as it was there.
        framework: the framework whose adapter takes the model; usually left to the model itself.

    Returns:
        A `TuneResult`, also when nothing meets the criterion (`result.met` is False) and after Ctrl-C or SIGTERM.
    """
    if not callable(eval_func):
        raise SettingsError(f"eval_func must be a function of the model that returns a number, not {eval_func!r}")
    with (
        terminating(),
        open_run(model, config, calib_dataloader=calib_dataloader, observer=observer, **settings) as run,
    ):
        run.drive(eval_func)
        return run.result()
