"""`profile`: where the time of a model goes, and of a quantized one beside it."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from typing import Any

from quaver.adapters import Adapter, AdapterOptions, TimingOptions, adapter_for
from quaver.api.result import TuneResult
from quaver.diagnosis import Profile, make_profile
from quaver.engine.diagnosing import reiterable
from quaver.engine.same_model import check_same_model
from quaver.errors import HistoryError, ModelError, SettingsError
from quaver.history import read_snapshot
from quaver.ops import QuantConfig
from quaver.trial import Trial


def profile(
    model: Any,
    against: Any = None,
    data: Any = None,
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
        against: a quantized model to set beside it: a file or bytes, a `TuneResult`, or a `QuantConfig`, a `Trial` or
            the number of one, which need `history`.
        data: typical inputs, as for `fit`; without them inputs are made up.
        history: the run that trials and their calibration come from: a snapshot, or the workspace it lies in.
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
    if isinstance(against, TuneResult):
        history = against.history_path if history is None else history
        against = against.best
    if data is not None and not reiterable(data):
        data = list(itertools.islice(data, batch))  # both models need it
    kind = adapter_for(model)
    options = TimingOptions(batch, threads, warmup, runs)
    with _opened(kind, model, threads) as adapter:
        other = None
        if against is not None:
            other = kind.time(_bytes(against, adapter, history), data, options, adapter)
        source = model if adapter is None else adapter.rebuild(None).SerializeToString()
        first = kind.time(source, data, options, adapter)
    return make_profile(first, other)


@contextlib.contextmanager
def _opened(kind: type[Adapter], model: Any, threads: int) -> Iterator[Adapter | None]:
    """The model with its ops, if it has any: a quantized one can be timed, but not taken apart."""
    try:
        adapter = kind.open(model, AdapterOptions(None, threads))
    except ModelError:
        yield None
        return
    with contextlib.closing(adapter):
        yield adapter


def _bytes(against: Any, adapter: Adapter | None, history: str | os.PathLike[str] | None) -> Any:
    """The other model as the framework takes it."""
    if not isinstance(against, int | Trial | QuantConfig) or isinstance(against, bool):
        return against
    if adapter is None:
        raise SettingsError("a trial can only be set beside the float model that it was made from")
    if history is None:
        raise SettingsError("a trial or a configuration needs its calibration: pass the run's workspace as history")
    snapshot = read_snapshot(history)
    check_same_model(adapter, snapshot.header, snapshot.path)
    adapter.restore(snapshot.header.calibration)
    found = snapshot.trial(against) if isinstance(against, int) else against
    config = found.config if isinstance(found, Trial) else found
    try:
        return adapter.rebuild(config).SerializeToString()
    except KeyError as error:
        raise HistoryError(f"the configuration does not fit the ops of the model: {error}") from error
