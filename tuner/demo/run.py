"""The demo: tune a small network and explain which ops moved to fp32."""

from __future__ import annotations

import contextlib
import math
import shutil
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import quaver
from quaver import formatting
from quaver.adapters import AdapterOptions, load_model
from quaver.command import sentences
from quaver.demo.data import Accuracy, Images, digits
from quaver.engine.event_base import Event
from quaver.engine.events import BaselineScored, Planned, StageStarted, TrialFinished
from quaver.engine.observers import silent
from quaver.engine.probe import AdapterProbe
from quaver.engine.scoring.benefit import LATENCY, Benefit
from quaver.engine.timing.latency import relative_latency
from quaver.history import History
from quaver.limit import loss_phrase
from quaver.rules import apply_rules
from quaver.space import TuningSpace
from quaver.trial import Trial

NAME = "digits_dscnn.onnx"
MODEL = Path(__file__).with_name(NAME)
CALIBRATION_IMAGES = 256
RELATIVE = 0.01
# One weight scale per layer, as some hardware requires.
PER_TENSOR = {"weight": {"granularity": ["per_tensor"]}}
RULES = {"Conv": PER_TENSOR, "Gemm": PER_TENSOR}
LATENCY_IMAGES, LATENCY_TIMES = 32, 3
# `auto` ends by itself long before. Continuing after the first success makes the model faster.
GOES_ON = 300.0
# Sensitivity relative to the median op from which an op counts as a culprit (judgement).
CULPRIT_RATIO = 10.0

EVAL = '''\
"""Score a model on digits that it was not trained on."""

from quaver.demo.data import digits

_, _, images, labels = digits()


def accuracy(model):
    """Return the share of images that the model classifies correctly."""
    return float((model(images).argmax(axis=1) == labels).mean())
'''

INTRODUCTION = """\
A depthwise CNN reads handwritten digits. The target hardware of this demo requires one weight scale per layer.
Depthwise layers tolerate that badly: each channel has its own filter, and one scale leaves small filters only a few of
the 256 levels. Which layers lose accuracy, and is it enough to keep those in fp32?

Strategy {strategy!r} searches for the answer. The criterion allows a loss of {allowed:.0%} of the fp32 score.
"""


def run(folder: Path, strategy: str = "auto") -> quaver.TuneResult:
    """Tune the demo's network in `folder` and print what happens."""
    train, _, images, labels = digits()
    calibration = train[:CALIBRATION_IMAGES]
    print(INTRODUCTION.format(strategy=strategy, allowed=RELATIVE))
    result = quaver.fit(
        MODEL,
        calib_dataloader=calibration,
        eval_func=Accuracy(images, labels),
        observer=tell,
        verbose=0,
        strategy=strategy,
        relative=RELATIVE,
        op_type_dict=RULES,
        workspace=folder,
        threads=1,
        batch=LATENCY_IMAGES,
        timeout=GOES_ON if strategy == "auto" else 0,
    )
    model = _lay_out(folder, calibration)
    if result.best is None:
        print(f"\nNo result ({result.reason}).")
        return result
    errors = sensitivities(result, calibration)
    _tell_fallbacks(result.best, errors, quaver.read_snapshot(result.history_path).notes.get("probe.latency", {}))
    _tell_figures(result, images)
    _tell_next(result, folder, model, strategy)
    return result


def tell(event: Event) -> None:
    """Print a line for each event of interest."""
    match event:
        case StageStarted(stage):
            print(stage, flush=True)
        case Planned():
            print(event, flush=True)
        case BaselineScored(trial):
            print(f"  fp32      accuracy {trial.score:.2%}", flush=True)
        case TrialFinished(trial, _):
            if trial.failed:
                outcome = f"failed: {formatting.last_line(trial.error)}"
            else:
                outcome = f"accuracy {trial.score:.2%}, {_loss(trial)}, {formatting.verdict(trial)}"
            print(f"  trial {trial.number:<3} {outcome}, {formatting.op_counts(trial)} ops", flush=True)


def sensitivities(result: quaver.TuneResult, calibration: Images) -> Mapping[str, float]:
    """Return the output error of each op alone in int8, from the history if it is recorded there."""
    opened = load_model(MODEL, AdapterOptions(threads=1))
    with contextlib.closing(opened) as adapter, History.resume(result.history_path) as history:
        assert history.header is not None
        adapter.restore(history.header.calibration)
        adapter.keep_probe_samples(calibration)
        space = TuningSpace(apply_rules(adapter.ops(), op_type_dict=RULES))
        return AdapterProbe(adapter, space, history, silent).sensitivity()


def _lay_out(folder: Path, calibration: Images) -> Path:
    """Write the files that `quaver tune` and `quaver recover` need into the folder."""
    model = Path(shutil.copyfile(MODEL, folder / NAME))
    np.savez(folder / "calib.npz", image=calibration)
    (folder / "eval_digits.py").write_text(EVAL, encoding="utf-8")
    return model


def _tell_fallbacks(best: Trial, errors: Mapping[str, float], seconds: Mapping[str, Sequence[float]]) -> None:
    """Print which ops moved to fp32 and why; `seconds` holds op times in fp32 and int8 if they were measured."""
    moved = best.config.fp32_ops
    if not moved:
        print("\nNo op moved to fp32.")
        return
    median = statistics.median(errors.values())
    everything = "" if best.config.quantized_ops else " These are all ops: nothing was quantized."
    print(f"\n{len(moved)} of {len(best.config)} ops moved to fp32.{everything}")
    ordered = sorted(moved, key=lambda name: -errors.get(name, math.inf))
    culprits = [name for name in ordered if errors.get(name, math.inf) >= CULPRIT_RATIO * median] or ordered
    for name in culprits[:10]:
        fp32, int8 = seconds.get(name, (1.0, 0.0))
        slow = "; int8 is not faster" if int8 >= fp32 else ""
        print(f"  {formatting.printable(name)}\n    {_why(errors.get(name), median)}{slow}")
    if len(culprits) > 10:
        print(f"  ... and {len(culprits) - 10} more")
    if count := len(moved) - len(culprits):
        print(f"  {count} more are less sensitive, but beside fp32 ops their conversions cost more than int8 saves.")


def _why(error: float | None, median: float) -> str:
    if error is None:
        return "its sensitivity was not measured"
    if median <= 0:
        return f"alone in int8 its output error is {error:.2g} of the signal"
    times = error / median
    if not math.isfinite(times):
        return "alone in int8 it makes the output useless"
    if times < 1:
        return "alone in int8 its output error is below that of the median op"
    return f"alone in int8 its output error is {times:,.{0 if times >= 10 else 1}f}x that of the median op"


def _tell_figures(result: quaver.TuneResult, images: Images) -> None:
    """Print the fp32 model, the first trial and the best trial side by side."""
    assert result.best is not None
    compared_trials = {f"trial {trial.number}": trial for trial in (result.trials[0], result.best)}
    fp32 = quaver.recover(MODEL, result.history_path, 0, threads=1)
    models = [quaver.recover(MODEL, result.history_path, trial.number, threads=1) for trial in compared_trials.values()]
    feed = {"image": images[:LATENCY_IMAGES]}
    ratios = [sorted(relative_latency(model, fp32, feed) for _ in range(LATENCY_TIMES)) for model in models]
    rows = [
        ("", "fp32", *compared_trials),
        ("int8 ops", "0", *(str(trial.config.quantized_count) for trial in compared_trials.values())),
        ("accuracy", f"{result.baseline:.2%}", *(_percent(trial.score) for trial in compared_trials.values())),
        ("file size", formatting.file_size(fp32.size), *(formatting.file_size(model.size) for model in models)),
        ("latency", "1.00", *(f"{statistics.median(runs):.2f}" for runs in ratios)),
        ("  lowest", "", *(f"{runs[0]:.2f}" for runs in ratios)),
        ("  highest", "", *(f"{runs[-1]:.2f}" for runs in ratios)),
    ]
    print()
    for label, *cells in rows:
        print(f"  {label:11}" + "".join(f"{cell:>10}" for cell in cells))
    print(
        f"  Latency of {LATENCY_IMAGES} images on one thread relative to fp32, measured interleaved: the median, "
        f"lowest and highest of {LATENCY_TIMES} measurements."
    )
    best, (lowest, *_, highest) = statistics.median(ratios[-1]), ratios[-1]
    compared = Benefit(LATENCY, best, (highest - lowest) / (2.0 * best))
    if not compared.is_gain:
        slower = "slower" if compared.is_loss else "no faster"
        print(f"  The best model is {slower} than fp32 on this machine: fp32 ops between int8 ops need conversions.")


def _loss(trial: Trial) -> str:
    """Return "loss 2.90%", padded to the width of a loss of up to 99.99%."""
    return f"{loss_phrase(trial.loss or 0.0, relative=True):11}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2%}"


def _tell_next(result: quaver.TuneResult, folder: Path, model: Path, strategy: str) -> None:
    best = result.best
    assert best is not None and result.model_path is not None
    evaluation = f"{folder / 'eval_digits.py'}:accuracy"
    data = ("--model", model, "--calib", folder / "calib.npz", "--eval", evaluation)
    steps: list[tuple[str, tuple[Any, ...]]] = [
        ("all trials", ("history", folder)),
        ("how the best trial runs each op", ("show", folder, best.number)),
        ("the model of the first trial", ("recover", model, folder, 1, "-o", folder / "trial1.onnx")),
        ("the same network with one weight scale per channel", ("tune", *data, "--strategy", strategy)),
    ]
    print(f"\nThe files are in {sentences.path(folder)}; the best model is {result.model_path.name}.\n\nNext:")
    for title, words in steps:
        print(f"  {title}\n    {sentences.command('quaver', *words)}")
