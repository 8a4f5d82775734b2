"""Planted culprits in single branches of detectors: does the label-free error see them beside the other outputs?

    python -m benchmarks.planted_branches [NAME...]

A culprit is planted in one convolution near the outputs: a channel of its input is computed twice, once with a large
weight and once with the opposite one. The float model stays the same up to rounding, but in int8 all weights of that
convolution share a scale with the large ones. The planted op is ranked among all ops of the model by the error at the
outputs when only this op is quantized: by `OutputMetric`, which `auto` uses, and by the squared error over each whole
output, which earlier versions used. Results: `benchmarks/results/planted_branches.json`.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from benchmarks import result_files
from benchmarks.tune_once import load
from quaver.adapters import Adapter, AdapterOptions, load_model
from quaver.adapters.data import count_samples
from quaver.engine.inspection.output_error import OutputErrors, as_outputs, relative_error
from quaver.ops import QuantConfig
from quaver.space import TuningSpace

# Detectors of three families, one of them with all branches in one output.
MODELS = ("blazeface", "ddddocr_det", "picodet_layout")
# The large weight, in multiples of the largest one. With it int8 leaves about two steps for the other weights.
FACTOR = 64.0
SAMPLES = 4
MAX_BRANCHES = 6


class Errors(NamedTuple):
    """The error of an op by itself: by parts, and over whole outputs."""

    parts: float
    whole: float


def last_convolutions(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Return the convolutions with no other one between them and an output."""
    writers = {name: node for node in model.graph.node for name in node.output}
    last: dict[str, onnx.NodeProto] = {}
    waiting, done = [output.name for output in model.graph.output], set[str]()
    while waiting:
        name = waiting.pop()
        node = writers.get(name)
        if name in done or node is None:
            continue
        done.add(name)
        if node.op_type == "Conv":
            last[node.name] = node
        else:
            waiting += node.input
    return [node for node in model.graph.node if node.name in last]


def plant(model: onnx.ModelProto, culprit: str) -> onnx.ModelProto | None:
    """Return the model with a culprit; None if the convolution has groups or computed weights."""
    planted = onnx.ModelProto()
    planted.CopyFrom(model)
    graph = planted.graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    place = next(index for index, node in enumerate(graph.node) if node.name == culprit)
    node = graph.node[place]
    groups = next((item.i for item in node.attribute if item.name == "group"), 1)
    if groups != 1 or node.input[1] not in weights:
        return None
    weight = numpy_helper.to_array(weights[node.input[1]])
    extra = np.full_like(weight[:, :1], FACTOR * np.abs(weight).max())
    twice = np.concatenate([weight[:, :1] - extra, weight[:, 1:], extra], axis=1)
    bounds = {"planted.start": [0], "planted.end": [1], "planted.axis": [1]}
    graph.initializer.extend(numpy_helper.from_array(np.array(value, np.int64), key) for key, value in bounds.items())
    graph.initializer.append(numpy_helper.from_array(twice, "planted.weight"))
    added = [
        helper.make_node("Slice", [node.input[0], *bounds], ["planted.channel"], name="planted.slice"),
        helper.make_node(
            "Concat", [node.input[0], "planted.channel"], ["planted.input"], name="planted.concat", axis=1
        ),
    ]
    node.input[0], node.input[1] = "planted.input", "planted.weight"
    for step in reversed(added):
        graph.node.insert(place, step)
    return planted


@contextlib.contextmanager
def opened(model: Any, calib: Sequence[Any]) -> Iterator[tuple[Adapter, TuningSpace, OutputErrors]]:
    """Load and calibrate a model as `fit` does."""
    with contextlib.closing(load_model(model, AdapterOptions(threads=1))) as adapter:
        adapter.calibrate(list(calib))
        space = TuningSpace(adapter.ops())
        feeds = [feed for feed in adapter.probe_samples if count_samples(feed) == 1][:SAMPLES]
        yield adapter, space, OutputErrors(adapter, space.ops[-1].name, feeds)


def errors_alone(space: TuningSpace, errors: OutputErrors, names: Sequence[str]) -> dict[str, Errors]:
    """Return the errors of ops, each alone in int8."""
    metric = errors.metric(SAMPLES)
    reference = [as_outputs(sample) for sample in errors.outputs(None, SAMPLES)]
    alone = {}
    for name in names:
        config: QuantConfig = space.float_config().replace({name: space.default_config()[name]})
        outputs = errors.outputs_of(config, SAMPLES)
        whole = relative_error(reference, [as_outputs(sample) for sample in outputs])
        alone[name] = Errors(metric.error(outputs), whole)
    return alone


def rank(error: Errors, others: Mapping[str, Errors], field: str) -> int:
    """Return the rank of an error among those of other ops; the largest error has rank 1."""
    return 1 + sum(getattr(other, field) > getattr(error, field) for other in others.values())


def measure(name: str) -> list[dict[str, Any]]:
    """Return a row for each culprit that can be planted in a model."""
    bench = load(name)
    model = onnx.load(bench.model_path)
    with opened(str(bench.model_path), bench.calib) as (_, space, errors):
        quantized = [op for op in space.tunable if space.default_config()[op].quantized]
        clean = errors_alone(space, errors, quantized)
    rows: list[dict[str, Any]] = []
    for node in last_convolutions(model):
        planted = plant(model, node.name) if len(rows) < MAX_BRANCHES else None
        if planted is None:
            continue
        with opened(planted, bench.calib) as (_, space, errors):
            op = next((op.name for op in space.ops if node.name in op.nodes), None)
            if op is None:
                continue
            error = errors_alone(space, errors, [op])[op]
        others = {other: value for other, value in clean.items() if other != op}
        rows.append(
            {
                "model": name,
                "culprit": node.name,
                "ops": len(clean),
                "rank": rank(error, others, "parts"),
                "rank_whole_outputs": rank(error, others, "whole"),
                "error": round(error.parts, 6),
                "error_before_planting": round(clean[op].parts, 6) if op in clean else None,
            }
        )
        print(rows[-1], flush=True)
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write the results; rows of models that are not named stay as they are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"models (default: {', '.join(MODELS)})")
    for name in parser.parse_args(arguments).names or MODELS:
        title = "Rank of a culprit that is planted in one branch of a detector"
        result_files.write("planted_branches", title, measure(name), replaces=["model", "culprit"])


if __name__ == "__main__":
    main()
