"""What runs in a worker process: open what the run needs, once; then build and score, task by task."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import replace

from quaver.engine.evaluation import score
from quaver.engine.executors.task import Kind, Outcome, State, Task
from quaver.engine.executors.workplace import Absent, Workplace
from quaver.engine.failures import message_of, traceback_of
from quaver.engine.measurements import carry_out
from quaver.engine.no_space import want_of_space
from quaver.errors import QuaverError

_workplaces: dict[tuple[str, str, str, int], Workplace] = {}


def name() -> str:
    """This worker, as trials record it."""
    return f"{socket.gethostname()}:{os.getpid()}"


def is_over() -> bool:
    """Whether the run that this process works for has ended, or was killed; as far as that can be seen from here."""
    return any(place.is_over for place in list(_workplaces.values()))


def prepare(task: Task) -> Outcome | None:
    """Open what tasks of this run need, unless it is; what is in the way, if something is."""
    try:
        _workplace(task)
        if task.kind is Kind.SCORE:
            _workplace(task).eval_func  # noqa: B018 - an error of its own, and no time of the trial
    except Absent as error:
        return Outcome(State.ABSENT, error=str(error), worker=name())
    except QuaverError as error:
        return Outcome(State.REFUSED, error=str(error), said=str(error), worker=name())
    except BaseException as error:
        return _failed(error, time.time())
    return None


def work(task: Task) -> Outcome:
    """Carry out a task."""
    place = _workplace(task)
    begin, started = time.monotonic(), time.time()
    built = begin
    try:
        config = task.config(place.ops)
        if task.kind is Kind.ERROR:
            assert config is not None
            value = place.bench.errors.error(config, task.samples)
            spent = time.monotonic() - begin
            return Outcome(State.DONE, value, seconds=spent, worker=name(), started=started)
        if task.measurement is not None:
            measured = carry_out(place.bench, task.measurement)
            spent = time.monotonic() - begin
            return Outcome(State.DONE, seconds=spent, worker=name(), started=started, result=measured)
        model = place.adapter.build(config)
        try:
            built = time.monotonic()
            found = score(place.eval_func, model, task.standard)
            done = time.monotonic()
            digest, size = model.sha256, model.size
        finally:
            model.close()
    except BaseException as error:  # sys.exit and KeyboardInterrupt, too: Ctrl-C does not reach workers
        failed = _failed(error, started)
        return replace(failed, seconds=time.monotonic() - built, build_seconds=built - begin)
    building = built - begin + time.monotonic() - done
    return Outcome(
        State.DONE,
        score=found,
        seconds=done - built,
        build_seconds=building,
        model_hash=digest,
        model_size=size,
        worker=name(),
        started=started,
    )


def _failed(error: BaseException, started: float) -> Outcome:
    state = State.FULL if want_of_space(error) else State.FAILED
    return Outcome(state, worker=name(), started=started, error=traceback_of(error), said=message_of(error))


def _workplace(task: Task) -> Workplace:
    key = task.site, task.model, task.calibration, task.threads
    if key not in _workplaces:
        while _workplaces:  # of an earlier run
            _workplaces.popitem()[1].close()
        _workplaces[key] = Workplace(task)
    return _workplaces[key]
