"""Real models: how soon does a strategy meet the criterion, and how fast is the model it ends with?

    python -m benchmarks.reach                                   # everything; an hour on two cores
    python -m benchmarks.reach --setups magika_filetype --strategies auto

Every strategy gets the same budget: time to go on after the first success, and the same number of trials. Latencies
are measured at the end with all models in turns, on one thread and one sample, as time of the processor, so that other
programs do not count. The held-out score is taken on samples that no decision looked at. The table goes to the
terminal, the figures to `benchmarks/results/reach.json`.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import quaver
from benchmarks.models import Bench, load
from quaver.trial import Trial

RESULTS = Path(__file__).parent / "results" / "reach.json"
STRATEGIES = ("auto", "basic", "mse_v2")
RELATIVE, TIMEOUT, MAX_TRIALS = 0.01, 900, 30
LATENCY_SECONDS, LATENCY_ROUNDS = 20, 15


@dataclass(frozen=True, slots=True)
class Setup:
    """A model and the rules of its runs."""

    model: str
    rules: Mapping[str, Any] = field(default_factory=dict)


# As for hardware that knows one scale per weight only.
PER_TENSOR = {".*": {"weight": {"granularity": ["per_tensor"]}}}
SETUPS = {
    "ppocr_cls180": Setup("ppocr_cls180"),
    "magika_filetype": Setup("magika_filetype"),
    "mobilenetv2_cifar10": Setup("mobilenetv2_cifar10"),
    "mobilenetv2_cifar10 per-tensor": Setup("mobilenetv2_cifar10", PER_TENSOR),
    "ppocrv4_en_rec": Setup("ppocrv4_en_rec"),
    "minilm_imdb": Setup("minilm_imdb"),
    "minilm_imdb per-tensor": Setup("minilm_imdb", PER_TENSOR),
    "minilm_retrieval": Setup("minilm_retrieval"),
}


@dataclass(slots=True)
class Row:
    """How one strategy fared on one model.

    Attributes:
        ops: how many ops may run in int8.
        allowed: 2 + 2 log2(ops), what `auto` may take for its first success, the baseline aside.
        evaluations: calls of eval_func in all, the baseline included.
        first_success: the number of the first trial that met the criterion; None if none did.
        first_latency: how long that trial's model takes, as a fraction of fp32.
        latency: the same of the model the run ended with.
        first_fp32, fp32_ops: how many ops of either run in fp32.
        score, held_out: of the model the run ended with, and of the fp32 model.
    """

    setup: str
    strategy: str
    ops: int
    allowed: float
    met: bool
    reason: str
    evaluations: int
    first_success: int | None
    first_fp32: int | None
    fp32_ops: int
    fp32_score: float
    score: float
    fp32_held_out: float
    held_out: float
    seconds: float
    first_latency: float | None = None
    latency: float = math.nan


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run with the two models that matter."""

    row: Row
    first: Any
    best: Any


def tune(name: str, strategy: str, folder: Path, max_trials: int = MAX_TRIALS, timeout: float = TIMEOUT) -> Run:
    """Run one strategy on one model."""
    setup = SETUPS[name]
    bench = load(setup.model)
    start = time.perf_counter()
    result = quaver.fit(
        bench.model_path,
        calib_dataloader=bench.calib,
        eval_func=bench.eval_func,
        strategy=strategy,
        relative=RELATIVE,
        timeout=timeout,
        max_trials=max_trials,
        op_name_dict=setup.rules,
        threads=1,
        workspace=folder,
    )
    seconds = time.perf_counter() - start
    best = result.best
    assert best is not None and best.score is not None
    first = next((trial for trial in result.trials if trial.met), None)
    models = {number: quaver.recover(bench.model_path, folder, number, threads=1) for number in _numbers(first, best)}
    ops = sum(1 for op in quaver.read_snapshot(result.history_path).header.ops if op.tunable)
    row = Row(
        setup=name,
        strategy=strategy,
        ops=ops,
        allowed=round(2 + 2 * math.log2(ops), 1),
        met=result.met,
        reason=str(result.reason),
        evaluations=result.evaluations,
        first_success=first.number if first else None,
        first_fp32=len(first.config.fp32_ops) if first else None,
        fp32_ops=len(best.config.fp32_ops),
        fp32_score=round(result.baseline, 4),
        score=round(best.score, 4),
        fp32_held_out=round(bench.held_out_eval_func(models[0]), 4),
        held_out=round(bench.held_out_eval_func(models[best.number]), 4),
        seconds=round(seconds, 1),
    )
    return Run(row, models[first.number] if first else None, models[best.number])


def _numbers(first: Trial | None, best: Trial) -> list[int]:
    return sorted({0, best.number, *([first.number] if first else [])})


def latencies(models: Sequence[Any], bench: Bench) -> list[float]:
    """How long each model takes on one sample as a fraction of the first one: medians over rounds of all in turns."""
    feed = dict(bench.calib[0])
    order, chance = list(range(len(models))), random.Random(0)
    rounds: list[list[float]] = []
    for model in models:
        model.run(feed)
    end = time.perf_counter() + LATENCY_SECONDS
    while len(rounds) < LATENCY_ROUNDS or time.perf_counter() < end:
        taken = [0.0] * len(models)
        chance.shuffle(order)  # a model that always came behind the same one would find the same cache
        for index in order:
            start = time.process_time()  # one thread: time that other programs take does not count
            models[index].run(feed)
            taken[index] = time.process_time() - start
        rounds.append(taken)
    medians = [statistics.median(column) for column in zip(*rounds, strict=True)]
    return [median / medians[0] for median in medians]


def compare(name: str, strategies: Sequence[str], max_trials: int = MAX_TRIALS) -> list[Row]:
    """Run the strategies on one model, then measure all their models together."""
    bench = load(SETUPS[name].model)
    with tempfile.TemporaryDirectory() as folder:
        runs = []
        for strategy in strategies:
            print(f"{name}: {strategy} ...", flush=True)
            runs.append(tune(name, strategy, Path(folder) / strategy, max_trials))
        fp32 = quaver.recover(bench.model_path, Path(folder) / strategies[0], 0, threads=1)
        models = {model.sha256: model for run in runs for model in (run.first, run.best) if model is not None}
        measured = dict(zip(models, latencies([fp32, *models.values()], bench)[1:], strict=True))
        for run in runs:
            run.row.first_latency = None if run.first is None else round(measured[run.first.sha256], 3)
            run.row.latency = round(measured[run.best.sha256], 3)
    return [run.row for run in runs]


def table(rows: Sequence[Row]) -> str:
    """The rows as text."""
    head = (
        f"{'model':31}{'strategy':9}{'ops':>4}{'met':>5}{'first success':>15}{'evaluations':>13}{'fp32 ops':>11}"
        f"{'latency':>15}{'score (fp32)':>18}{'held out (fp32)':>18}"
    )
    lines = [head]
    for row in rows:
        first = "-" if row.first_success is None else f"{row.first_success + 1} of {row.allowed + 1:.1f}"
        ops = f"{row.fp32_ops}" if row.first_fp32 is None else f"{row.first_fp32} -> {row.fp32_ops}"
        speed = f"{row.latency:.2f}" if row.first_latency is None else f"{row.first_latency:.2f} -> {row.latency:.2f}"
        lines.append(
            f"{row.setup:31}{row.strategy:9}{row.ops:4}{'yes' if row.met else 'NO':>5}{first:>15}{row.evaluations:13}"
            f"{ops:>11}{speed:>15}{f'{row.score:.4f} ({row.fp32_score:.4f})':>18}"
            f"{f'{row.held_out:.4f} ({row.fp32_held_out:.4f})':>18}"
        )
    return "\n".join(lines)


def record(rows: Sequence[Row]) -> None:
    """Write the figures, in place of older ones of the same runs."""
    RESULTS.parent.mkdir(exist_ok=True)
    old = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    new = {(row.setup, row.strategy) for row in rows}
    kept = [row for row in old if (row["setup"], row["strategy"]) not in new]
    order = {name: position for position, name in enumerate(SETUPS)}
    figures = sorted([*kept, *map(asdict, rows)], key=lambda row: (order[row["setup"]], row["strategy"]))
    RESULTS.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print and write, one model after another."""
    parser = argparse.ArgumentParser(description="How soon strategies meet the criterion on real models.")
    parser.add_argument("--setups", nargs="+", choices=SETUPS, default=list(SETUPS))
    parser.add_argument("--strategies", nargs="+", default=list(STRATEGIES))
    parser.add_argument("--max-trials", type=int, default=MAX_TRIALS)
    options = parser.parse_args(arguments)
    rows: list[Row] = []
    for name in options.setups:
        rows += compare(name, options.strategies, options.max_trials)
        record(rows)
        print(table(rows), flush=True)


if __name__ == "__main__":
    main()
