"""Two workers against one on a real model, on one thread each; what a task costs; and time to a first success."""

from __future__ import annotations

import functools
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx

import quaver
from benchmarks import planted, shapes
from benchmarks.simulated_workers import table
from quaver.demo.data import Accuracy, digits
from quaver.engine.event_base import Event, Stage
from quaver.engine.events import Progressed, TrialFinished, TrialStarted

TRIALS, SAMPLES = 30, 48
ROUNDS = 3
BARE_SECONDS = 4.0
SLOW_SECONDS = 10.0
BARE = """
import sys, time
import numpy as np
import onnxruntime as ort

options = ort.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
session = ort.InferenceSession(sys.argv[1], options)
feed = {one.name: np.zeros([size if isinstance(size, int) else 1 for size in one.shape], np.float32)
        for one in session.get_inputs()}
session.run(None, feed)
print("ready", flush=True)
sys.stdin.readline()
count, end = 0, time.perf_counter() + float(sys.argv[2])
while time.perf_counter() < end:
    session.run(None, feed)
    count += 1
print(count)
"""


class Scatter(quaver.Strategy):
    """Sends another tenth of the ops to fp32 each time, as a list."""

    name = "scatter_beside"

    def propose(self, space: quaver.TuningSpace, probe: quaver.Probe) -> Iterator[list[quaver.QuantConfig]]:
        yield [space.default_config().fallback(*space.tunable[shift::TRIALS]) for shift in range(TRIALS)]


class Probing(quaver.Strategy):
    """Measures the sensitivity of each op, and tries nothing but all int8."""

    name = "probing"

    def propose(self, space: quaver.TuningSpace, probe: quaver.Probe) -> Iterator[quaver.QuantConfig]:
        yield space.default_config()
        probe.sensitivity()


class Watch:
    """When trials begin and end, and how far the probe is."""

    def __init__(self) -> None:
        self.begun: dict[int, float] = {}
        self.ended: dict[int, float] = {}
        self.workers: dict[str, float] = {}
        self.overheads: list[float] = []
        self.probed: list[float] = []

    def __call__(self, event: Event) -> None:
        """Take an event."""
        match event:
            case TrialStarted(number):
                self.begun[number] = time.perf_counter()
            case TrialFinished(trial):
                self.ended[trial.number] = time.perf_counter()
                self.workers.setdefault(trial.worker, self.ended[trial.number])
                spent = self.ended[trial.number] - self.begun[trial.number]
                self.overheads.append(spent - trial.seconds - trial.build_seconds)
            case Progressed(Stage.SENSITIVITY):
                self.probed.append(time.perf_counter())


def running(feeds: list[Any], model: Any) -> float:
    """The eval_func: runs samples, as one would."""
    for feed in feeds:
        model.run(feed)
    return 1.0


def tuned(model: onnx.ModelProto, strategy: type[quaver.Strategy], **settings: Any) -> Watch:
    """A run, watched."""
    watch, feeds = Watch(), list(shapes.feeds(model, 4))
    with tempfile.TemporaryDirectory() as folder:
        quaver.fit(
            model, calib_dataloader=feeds[:2], eval_func=functools.partial(running, feeds * (SAMPLES // 4)),
            strategy=strategy, objective="size", timeout=3600, max_trials=TRIALS, threads=1,
            workspace=Path(folder) / "run", observer=watch, **settings,
        )  # fmt: skip
    return watch


def trial_rate(model: onnx.ModelProto, jobs: int) -> float:
    """Trials a minute, from the moment when every worker has opened the model."""
    watch = tuned(model, Scatter, n_jobs=jobs, isolate=True, width=TRIALS)
    ready = max(watch.workers.values())
    ends = sorted(end for end in watch.ended.values() if end >= ready)
    return 60 * (len(ends) - 1) / (ends[-1] - ends[0])


def probe_rate(model: onnx.ModelProto, jobs: int) -> float:
    """Ops a minute whose sensitivity is measured, without the first third, in which workers open the model."""
    seen = tuned(model, Probing, n_jobs=jobs).probed
    seen = seen[len(seen) // 3 :]
    return 60 * (len(seen) - 1) / (seen[-1] - seen[0])


def bare_rate(model: onnx.ModelProto, jobs: int) -> float:
    """Inferences a minute of as many processes that do nothing else: what the machine has to give."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        command = [sys.executable, "-c", BARE, str(path), str(BARE_SECONDS)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        processes = [subprocess.Popen(command, **pipes) for _ in range(jobs)]  # type: ignore[call-overload]
        for process in processes:
            process.stdout.readline()
        for process in processes:
            process.stdin.write("\n")
            process.stdin.flush()
        return 60 / BARE_SECONDS * sum(int(process.communicate()[0]) for process in processes)


def overhead(model: onnx.ModelProto) -> float:
    """Milliseconds from proposal to record that are neither building nor evaluating."""
    return 1e3 * statistics.median(tuned(model, Scatter, isolate=True, width=1).overheads[1:])


def slowly(accuracy: Accuracy, model: Any) -> float:
    """The eval_func of a user who waits."""
    time.sleep(SLOW_SECONDS)
    return accuracy(model)


def first_success(jobs: int) -> dict[str, Any]:
    """`auto` on a net whose culprits only fallbacks mend, with an evaluation that takes long."""
    train, _, images, labels = digits()
    case = planted.CASES["W2"]
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        result = quaver.fit(
            planted.plant(onnx.load(planted.MODEL), case), calib_dataloader=train[: planted.CALIBRATION_IMAGES],
            eval_func=functools.partial(slowly, Accuracy(images, labels)), objective="int8_ops", threads=1,
            workspace=Path(folder) / "run", n_jobs=jobs, report=False,
        )  # fmt: skip
    seconds = time.perf_counter() - begin
    evaluating = f"an evaluation of {SLOW_SECONDS:g} s"
    return {"auto, W2": evaluating, "workers": jobs, "evaluations": result.evaluations, "s": seconds, "met": result.met}


def run() -> list[dict[str, Any]]:
    """Return all figures: one worker and two, interleaved, the best round of each, because the machine may be busy."""
    model = shapes.mobilenet_v2()
    measures = {"trials": trial_rate, "sensitivity probe": probe_rate, "bare inferences": bare_rate}
    least = {"trials": 1.8, "sensitivity probe": 1.7, "bare inferences": ""}
    rows = []
    for name, measure in measures.items():
        rates = [(measure(model, 1), measure(model, 2)) for _ in range(ROUNDS)]
        one, two = (max(rate) for rate in zip(*rates, strict=True))
        rows.append({"a minute": name, "1 worker": one, "2 workers": two, "ratio": two / one, "at least": least[name]})
    task = {"overhead of a task, ms": overhead(model), "at most": 10}
    return [*rows, task, *(first_success(jobs) for jobs in (1, 2)), *table("auto", True, workers=(1, 2, 8))]
