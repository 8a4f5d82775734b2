"""Four nets with planted outliers: how many evaluations does each strategy need to find the culprits?

    python -m benchmarks.planted                          # all cases, all strategies
    python -m benchmarks.planted --strategies auto basic

A convolution net on scikit-learn's digits is rescaled so that its function stays the same, but int8 ruins it: one
channel of a convolution's output is divided by a factor and the next convolution's weights for that channel are
multiplied by it, which the Relu between them lets through.

- W: with factor 400 the next convolution's weights hold an outlier in every output channel, so that one scale per
  output channel cannot absorb it. That convolution has to stay in fp32.
- A: with factor 1/400 the activation between them holds the outlier. Both convolutions have to stay in fp32, or the
  range must be chosen so that the outlier is cut off.

Each comes with one such pair (W1, A1) and with two (W2, A2). Entropy calibration cures A, and so do other modes; in
`A1 minmax` and `A2 minmax` both are forbidden, so that only fallbacks help. `PEER` holds what Neural Compressor 2.6
needed on another eight-convolution net (fp32 .9633) planted in the same way. The table goes to the terminal, the
figures to `benchmarks/results/planted.json`.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import onnx
from onnx import numpy_helper

import quaver
from benchmarks import result_files
from quaver.adapters import AdapterOptions, load_model
from quaver.demo.data import Accuracy, digits
from quaver.ops import QuantConfig
from quaver.space import TuningSpace

HERE = Path(__file__).parent
MODEL = HERE / "data" / "digits_conv8.onnx"
RESULTS = HERE / "results" / "planted.json"
FACTOR = 400.0
CHANNEL = 0
CALIBRATION_IMAGES = 256
MAX_TRIALS = 60
STRATEGIES = ("auto", "mse_v2", "mse", "basic", "conservative", "bayesian", "random", "exhaustive")


@dataclass(frozen=True, slots=True)
class Case:
    """What is planted.

    Attributes:
        factor: the divisor of a channel.
        convolutions: positions of the convolutions in front of each outlier.
        rules: `op_name_dict` of the run.
    """

    factor: float
    convolutions: tuple[int, ...]
    rules: Mapping[str, Any] = field(default_factory=dict)


MINMAX = {".*": {"activation": {"algorithm": ["minmax"], "mode": ["static"]}}}
CASES = {
    "W1": Case(FACTOR, (1,)),
    "W2": Case(FACTOR, (1, 6)),
    "A1": Case(1 / FACTOR, (1,)),
    "A2": Case(1 / FACTOR, (1, 6)),
    "A1 minmax": Case(1 / FACTOR, (1,), MINMAX),
    "A2 minmax": Case(1 / FACTOR, (1, 6), MINMAX),
}

# Evaluations and fp32 ops of Neural Compressor 2.6 by strategy and case; None: the criterion was never met.
PEER: dict[str, dict[str, tuple[int, int] | None]] = {
    "basic": {"W1": (58, 1), "W2": (78, 17), "A1": (82, 21), "A2": (79, 21)},
    "mse_v2": {"W1": (4, 1), "W2": (7, 3), "A1": (6, 2), "A2": (42, 4)},
    "bayesian": {"W1": None, "W2": None, "A1": None, "A2": None},
}


@dataclass(frozen=True, slots=True)
class Row:
    """How one strategy fared on one case.

    Attributes:
        evaluations: calls of eval_func, the baseline included.
        fp32_heavy: how many Conv, MatMul and Gemm ops ended in fp32.
        fp32_ops: how many ops of any kind did.
        all_int8: the score with every op in int8 by its default choice.
    """

    case: str
    strategy: str
    met: bool
    evaluations: int
    fp32_heavy: int
    fp32_ops: int
    fp32: float
    all_int8: float
    score: float
    seconds: float


def plant(model: onnx.ModelProto, case: Case) -> onnx.ModelProto:
    """The same function with an outlier between each chosen convolution and the next."""
    planted = onnx.ModelProto()
    planted.CopyFrom(model)
    constants = {tensor.name: tensor for tensor in planted.graph.initializer}
    convolutions = [node for node in planted.graph.node if node.op_type == "Conv"]
    for position in case.convolutions:
        before, after = convolutions[position], convolutions[position + 1]
        _check_chain(planted.graph, before, after)
        for name in before.input[1:3]:
            values = numpy_helper.to_array(constants[name]).copy()
            values[CHANNEL] /= case.factor
            constants[name].CopyFrom(numpy_helper.from_array(values, name))
        weight = numpy_helper.to_array(constants[after.input[1]]).copy()
        weight[:, CHANNEL] *= case.factor
        constants[after.input[1]].CopyFrom(numpy_helper.from_array(weight, after.input[1]))
    return planted


def _check_chain(graph: onnx.GraphProto, before: onnx.NodeProto, after: onnx.NodeProto) -> None:
    """Only a Relu may stand between the two: it commutes with a positive factor."""
    readers = [node for node in graph.node if before.output[0] in node.input]
    relu = readers[0]
    behind = [node for node in graph.node if relu.output[0] in node.input]
    if len(readers) != 1 or relu.op_type != "Relu" or len(behind) != 1 or behind[0].name != after.name:
        raise ValueError(f"{before.name} and {after.name} are not joined by a Relu alone")


def run(case: str, strategy: str, max_trials: int = MAX_TRIALS) -> Row:
    """Tune one case with one strategy until the criterion is met.

    The objective is the number of int8 ops: on 8x8 images the time of an op says nothing.
    """
    train, _, images, labels = digits()
    model = plant(onnx.load(MODEL), CASES[case])
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        result = quaver.fit(
            model,
            calib_dataloader=train[:CALIBRATION_IMAGES],
            eval_func=Accuracy(images, labels),
            strategy=strategy,
            relative=0.01,
            timeout=0,
            max_trials=max_trials,
            objective="int8_ops",
            op_name_dict=CASES[case].rules,
            threads=1,
            workspace=Path(folder) / "run",
        )
        seconds = time.perf_counter() - start
        best = result.best
        assert best is not None and best.score is not None
    return Row(
        case, strategy, result.met, result.evaluations, len(heavy(best.config, model)), len(best.config.fp32_ops),
        round(result.baseline, 4), round(all_int8_score(model), 4), round(best.score, 4), round(seconds, 1),
    )  # fmt: skip


def heavy(config: QuantConfig, model: onnx.ModelProto) -> list[str]:
    """The ops in fp32 that hold most of the arithmetic."""
    kinds = {node.name: node.op_type for node in model.graph.node}
    return [name for name in config.fp32_ops if kinds.get(name) in ("Conv", "ConvTranspose", "MatMul", "Gemm")]


def all_int8_score(model: onnx.ModelProto) -> float:
    """The accuracy with every op in int8 by its default choice."""
    train, _, images, labels = digits()
    with contextlib.closing(load_model(model, AdapterOptions(threads=1))) as adapter:
        adapter.calibrate(train[:CALIBRATION_IMAGES])
        return Accuracy(images, labels)(adapter.build(TuningSpace(adapter.ops()).default_config()))


def table(rows: Sequence[Row]) -> str:
    """The rows as text, with the peer's figures beside ours."""
    lines = [f"{'case':11}{'strategy':14}{'fp32':>7}{'int8':>8}{'found':>8}  met  evaluations  fp32 ops (heavy)   peer"]
    for row in rows:
        scores = f"{row.case:11}{row.strategy:14}{row.fp32:7.4f}{row.all_int8:8.4f}{row.score:8.4f}"
        verdict = f"{'yes' if row.met else 'NO':4} {row.evaluations:11}  {row.fp32_ops:8} {f'({row.fp32_heavy})':9}"
        lines.append(f"{scores}  {verdict}{_peer(row)}".rstrip())
    return "\n".join(lines)


def _peer(row: Row) -> str:
    cases = PEER.get(row.strategy, {})
    if row.case not in cases:
        return ""
    figures = cases[row.case]
    return "fails" if figures is None else f"{figures[0]} evaluations, {figures[1]} fp32 ops"


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    """Run, print, and write the figures if all were taken."""
    parser = argparse.ArgumentParser(description="Evaluations that each strategy needs on nets with planted outliers.")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--strategies", nargs="+", default=list(STRATEGIES))
    options = parser.parse_args(arguments)
    rows = [run(case, strategy) for case in options.cases for strategy in options.strategies]
    print(table(rows))
    if len(rows) == len(CASES) * len(STRATEGIES):
        title = "Evaluations that each strategy needs on nets with planted outliers"
        result_files.write(RESULTS, title, [asdict(row) for row in rows])
    return rows


if __name__ == "__main__":
    main()
