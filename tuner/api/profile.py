"""Profile a model op by op, alone or compared with a quantized one: `profile`."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator

from quaver.adapters import Adapter, AdapterOptions, TimingOptions, adapter_for, load_with
from quaver.adapters.abilities import SupportsProfiling, require
from quaver.adapters.options import recorded_quant_format
from quaver.api.arguments import keywords_checked
from quaver.api.subject import Subject, find_subject
from quaver.diagnosis import Profile, make_profile
from quaver.engine.compatibility import check_same_model, restore
from quaver.errors import HistoryError, ModelError, SettingsError
from quaver.files.paths import expanded
from quaver.files.temporary import temporary_folder
from quaver.types import CalibrationData, ModelLike


@keywords_checked
def profile(
    model: ModelLike,
    against: ModelLike = None,
    calib_dataloader: CalibrationData = None,
    *,
    history: str | os.PathLike[str] | None = None,
    batch: int = 1,
    threads: int = 0,
    warmup: int = 5,
    runs: int = 50,
    runtime: str | None = None,
) -> Profile:
    """Time a model, op by op and end to end.

    Args:
        model: any model of a known framework, float or quantized.
        against: a quantized model to compare with: a file or bytes, a `TuneResult` (its best trial), or a
            `QuantConfig`, a `Trial` or the number of one, which need `history`.
        calib_dataloader: typical inputs, as for `fit`; random inputs if None.
        history: the earlier run (a snapshot, or the workspace it lies in) that trials, their calibration and their
            format come from.
        batch: samples of one inference, where the model leaves that open.
        threads: threads of one inference; 0 lets the runtime decide.
        warmup: inferences before the timed ones.
        runs: timed inferences.
        runtime: the runtime that is timed; by default that of `history`, or the usual one of the framework.

    Returns:
        A `Profile`: ops sorted by their time, percentiles of the latency, throughput.
    """
    for name, value, minimum in (
        ("batch", batch, 1),
        ("threads", threads, 0),
        ("warmup", warmup, 0),
        ("runs", runs, 1),
    ):
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise SettingsError(f"`{name}` must be a whole number of at least {minimum}, not {value!r}")
    subject = find_subject(against, history, "profile")
    if subject.config is not None and subject.snapshot is None:
        raise SettingsError(
            "a trial or a configuration needs its calibration: pass the workspace of the run as history"
        )
    if subject.config is None and subject.snapshot is not None:
        raise SettingsError("history holds many trials: name one, as in profile(model, 3, history=...)")
    data = calib_dataloader
    if isinstance(data, Iterator):
        data = list(itertools.islice(data, batch))  # both models are run on it
    model = expanded(model)
    kind = adapter_for(model, None, runtime or subject.settings.get("runtime"))
    profiler = require(kind, SupportsProfiling)
    timing = TimingOptions(batch, threads, warmup, runs)
    quant_format = recorded_quant_format(kind, subject.settings)
    with (
        temporary_folder() as folder,
        _opened(
            kind,
            model,
            AdapterOptions(
                folder,
                threads,
                quant_format,
                subject.optimised,
                left_out=subject.left_out,
                portable=subject.portable,
                ops_version=subject.ops_version,
                name_modules=subject.snapshot is None,
            ),
        ) as adapter,
    ):
        other = _other(subject, adapter)
        comparison = None if other is None else profiler.profile(other, data, timing, adapter)
        source = model if adapter is None else adapter.assemble(None).SerializeToString()
        first = profiler.profile(source, data, timing, adapter)
    return make_profile(first, comparison)


@contextlib.contextmanager
def _opened(kind: type[Adapter], model: ModelLike, options: AdapterOptions) -> Iterator[Adapter | None]:
    """Yield the opened model; None for a quantized model, which can be timed but not opened."""
    try:
        adapter = load_with(kind, model, options)
    except ModelError:
        yield None
        return
    with contextlib.closing(adapter):
        yield adapter


def _other(subject: Subject, adapter: Adapter | None) -> ModelLike:
    """Return the model to compare with, as the framework accepts it; None without one."""
    if subject.config is None or subject.snapshot is None:
        return subject.file
    if adapter is None:
        raise SettingsError("a trial can only be compared with the float model that it was made from")
    check_same_model(adapter, subject.snapshot.header, subject.snapshot.path)
    restore(adapter, subject.snapshot.header, subject.snapshot.path)
    try:
        return adapter.assemble(subject.config).SerializeToString()
    except KeyError as error:
        raise HistoryError(f"the configuration does not fit the ops of the model: {error}") from error
