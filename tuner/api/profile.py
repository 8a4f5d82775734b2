"""`profile`: where the time of a model goes, and of a quantized one beside it."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from typing import Any

from quaver.adapters import Adapter, AdapterOptions, TimingOptions, adapter_for, load_with
from quaver.adapters.abilities import SupportsProfiling, require
from quaver.adapters.options import recorded_quant_format
from quaver.api.arguments import keywords_checked
from quaver.api.subject import Target, find_target
from quaver.diagnosis import Profile, make_profile
from quaver.engine.compatibility import check_same_model, restore
from quaver.errors import HistoryError, ModelError, SettingsError
from quaver.files.paths import expanded
from quaver.files.temporary import temporary_folder
from quaver.types import ModelLike


@keywords_checked
def profile(
    model: ModelLike,
    against: Any = None,
    calib_dataloader: Any = None,
    *,
    history: str | os.PathLike[str] | None = None,
    batch: int = 1,
    threads: int = 0,
    warmup: int = 5,
    runs: int = 50,
) -> Profile:
    """Time a model, op by op and end to end.

    Args:
        model: any model of a known framework, float or quantized.
        against: a quantized model to set beside it: a file or bytes, a `TuneResult` (its best trial), or a
            `QuantConfig`, a `Trial` or the number of one, which need `history`.
        calib_dataloader: typical inputs, as for `fit`; without them inputs are made up.
        history: the earlier run (a snapshot, or the workspace it lies in) that trials, their calibration and their
            format come from.
        batch: samples of one inference, where the model leaves that open.
        threads: threads of one inference; 0 lets the runtime decide.
        warmup: inferences that do not count.
        runs: inferences that do.

    Returns:
        A `Profile`: ops sorted by what they take, percentiles of the latency, throughput.
    """
    for name, value, least in (("batch", batch, 1), ("threads", threads, 0), ("warmup", warmup, 0), ("runs", runs, 1)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise SettingsError(f"`{name}` must be a whole number of at least {least}, not {value!r}")
    target = find_target(against, history, "profile")
    if target.config is not None and target.snapshot is None:
        raise SettingsError("a trial or a configuration needs its calibration: pass the run's workspace as history")
    if target.config is None and target.snapshot is not None:
        raise SettingsError("history holds many trials: say which one is meant, such as profile(model, 3, history=...)")
    data = calib_dataloader
    if isinstance(data, Iterator):
        data = list(itertools.islice(data, batch))  # both models need it
    model = expanded(model)
    kind = adapter_for(model)
    profiler = require(kind, SupportsProfiling)
    timing = TimingOptions(batch, threads, warmup, runs)
    quant_format = recorded_quant_format(kind, target.settings)
    with (
        temporary_folder() as folder,
        _opened(
            kind,
            model,
            AdapterOptions(
                folder,
                threads,
                quant_format,
                target.optimised,
                left_out=target.left_out,
                portable=target.portable,
                ops_version=target.ops_version,
            ),
        ) as adapter,
    ):
        other = _other(target, adapter)
        beside = None if other is None else profiler.profile(other, data, timing, adapter)
        source = model if adapter is None else adapter.assemble(None).SerializeToString()
        first = profiler.profile(source, data, timing, adapter)
    return make_profile(first, beside)


@contextlib.contextmanager
def _opened(kind: type[Adapter], model: ModelLike, options: AdapterOptions) -> Iterator[Adapter | None]:
    """The model with its ops, if it has any: a quantized one can be timed, but not taken apart."""
    try:
        adapter = load_with(kind, model, options)
    except ModelError:
        yield None
        return
    with contextlib.closing(adapter):
        yield adapter


def _other(target: Target, adapter: Adapter | None) -> Any:
    """The other model as the framework takes it; None without one."""
    if target.config is None or target.snapshot is None:
        return target.file
    if adapter is None:
        raise SettingsError("a trial can only be set beside the float model that it was made from")
    check_same_model(adapter, target.snapshot.header, target.snapshot.path)
    restore(adapter, target.snapshot.header, target.snapshot.path)
    try:
        return adapter.assemble(target.config).SerializeToString()
    except KeyError as error:
        raise HistoryError(f"the configuration does not fit the ops of the model: {error}") from error
