"""The demo's story, from the float model to the op that had to go back to fp32."""

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
# One weight scale for each layer, as some hardware wants it.
PER_TENSOR = {"weight": {"granularity": ["per_tensor"]}}
RULES = {"Conv": PER_TENSOR, "Gemm": PER_TENSOR}
LATENCY_IMAGES, LATENCY_TIMES = 32, 3
# `auto` ends by itself long before; to go on after the first success makes the model faster.
GOES_ON = 300.0
# An op that disturbs the output so many times more than the median op is a culprit.
CULPRIT = 10.0

EVAL = '''\
"""Scores a model on the digits that it was not trained on."""

from quaver.demo.data import digits

_, _, images, labels = digits()


def accuracy(model):
    """The share of images that the model gets right."""
    return float((model(images).argmax(axis=1) == labels).mean())
'''

INTRODUCTION = """\
A depthwise CNN reads handwritten digits. The hardware of this story wants one weight scale for each layer. That does
not suit depthwise layers: each of their channels is a filter of its own, and where the filters differ much in size, one
scale for all leaves the small ones a few of the 256 steps. Which layers suffer, and is it enough to spare those?

Strategy {strategy!r} looks for the answer; at most {allowed:.0%} of the fp32 score may be lost.
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
    """A line for each event of interest."""
    match event:
        case StageStarted(stage):
            print(stage, flush=True)
        case Planned():
            print(event, flush=True)
        case BaselineScored(trial):
            print(f"  fp32      accuracy {trial.score:.2%}", flush=True)
        case TrialFinished(trial, _):
            if trial.failed:
                said = f"failed: {formatting.last_line(trial.error)}"
            else:
                said = f"accuracy {trial.score:.2%}, {_loss(trial)}, {formatting.verdict(trial)}"
            print(f"  trial {trial.number:<3} {said}, {formatting.op_counts(trial)} ops", flush=True)


def sensitivities(result: quaver.TuneResult, calibration: Images) -> Mapping[str, float]:
    """How much each op disturbs the output when it alone runs in int8; from the history, if it is there."""
    opened = load_model(MODEL, AdapterOptions(threads=1))
    with contextlib.closing(opened) as adapter, History.resume(result.history_path) as history:
        assert history.header is not None
        adapter.restore(history.header.calibration)
        adapter.keep_probe_samples(calibration)
        space = TuningSpace(apply_rules(adapter.ops(), op_type_dict=RULES))
        return AdapterProbe(adapter, space, history, silent).sensitivity()


def _lay_out(folder: Path, calibration: Images) -> Path:
    """Put everything into the folder that `quaver tune` and `quaver recover` need, to play with."""
    model = Path(shutil.copyfile(MODEL, folder / NAME))
    np.savez(folder / "calib.npz", image=calibration)
    (folder / "eval_digits.py").write_text(EVAL, encoding="utf-8")
    return model


def _tell_fallbacks(best: Trial, errors: Mapping[str, float], seconds: Mapping[str, Sequence[float]]) -> None:
    """Which ops went back and why; `seconds` of an op in fp32 and in int8 are there if the strategy asked for them."""
    sent = best.config.fp32_ops
    if not sent:
        print("\nNo op had to go back to fp32.")
        return
    median = statistics.median(errors.values())
    everything = "" if best.config.quantized_ops else " That is all of them: nothing was quantized."
    print(f"\n{len(sent)} of {len(best.config)} ops went back to fp32.{everything}")
    ordered = sorted(sent, key=lambda name: -errors.get(name, math.inf))
    culprits = [name for name in ordered if errors.get(name, math.inf) >= CULPRIT * median] or ordered
    for name in culprits[:10]:
        fp32, int8 = seconds.get(name, (1.0, 0.0))
        slow = "; int8 does not make it faster" if int8 >= fp32 else ""
        print(f"  {formatting.printable(name)}\n    {_why(errors.get(name), median)}{slow}")
    if len(culprits) > 10:
        print(f"  ... and {len(culprits) - 10} more")
    if others := len(sent) - len(culprits):
        print(f"  {others} more do no such harm: beside fp32 ops they would cost more conversions than int8 saves.")


def _why(error: float | None, median: float) -> str:
    if error is None:
        return "it was not measured alone"
    if median <= 0:
        return f"alone in int8 it disturbs the output by {error:.2g} of its power"
    times = error / median
    if not math.isfinite(times):
        return "alone in int8 it ruins the output"
    if times < 1:
        return "alone in int8 it disturbs the output less than the median op"
    return f"alone in int8 it disturbs the output {times:,.{0 if times >= 10 else 1}f}x more than the median op"


def _tell_figures(result: quaver.TuneResult, images: Images) -> None:
    """The fp32 model, all in int8 (the first trial) and the best one, side by side."""
    assert result.best is not None
    shown = {f"trial {trial.number}": trial for trial in (result.trials[0], result.best)}
    fp32 = quaver.recover(MODEL, result.history_path, 0, threads=1)
    models = [quaver.recover(MODEL, result.history_path, trial.number, threads=1) for trial in shown.values()]
    feed = {"image": images[:LATENCY_IMAGES]}
    ratios = [sorted(relative_latency(model, fp32, feed) for _ in range(LATENCY_TIMES)) for model in models]
    rows = [
        ("", "fp32", *shown),
        ("int8 ops", "0", *(str(trial.config.quantized_count) for trial in shown.values())),
        ("accuracy", f"{result.baseline:.2%}", *(_percent(trial.score) for trial in shown.values())),
        ("file size", formatting.file_size(fp32.size), *(formatting.file_size(model.size) for model in models)),
        ("latency", "1.00", *(f"{statistics.median(taken):.2f}" for taken in ratios)),
        ("  lowest", "", *(f"{taken[0]:.2f}" for taken in ratios)),
        ("  highest", "", *(f"{taken[-1]:.2f}" for taken in ratios)),
    ]
    print()
    for label, *cells in rows:
        print(f"  {label:11}" + "".join(f"{cell:>10}" for cell in cells))
    print(
        f"  Latency is that of {LATENCY_IMAGES} images on one thread as a part of fp32's, both run in turns: the "
        f"median, lowest and highest of {LATENCY_TIMES} measurements."
    )
    best, (lowest, *_, highest) = statistics.median(ratios[-1]), ratios[-1]
    compared = Benefit(LATENCY, best, (highest - lowest) / (2.0 * best))
    if not compared.is_gain:
        slower = "slower" if compared.is_loss else "no faster"
        print(f"  The best model is {slower} than fp32 on this machine: fp32 ops amid int8 ones need conversions.")


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
        ("how the best one runs each op", ("show", folder, best.number)),
        ("the model of the first trial", ("recover", model, folder, 1, "-o", folder / "trial1.onnx")),
        ("the same network with a weight scale for each channel", ("tune", *data, "--strategy", strategy)),
    ]
    print(f"\nThe files are in {sentences.path(folder)}; the best model is {result.model_path.name}.\n\nNext:")
    for what, words in steps:
        print(f"  {what}\n    {sentences.command('quaver', *words)}")
