"""ONNX's own backend suite, which the `onnx` package carries, through quaver's public API.

    python tests/suites/backend_suite.py           all of it: real models, operators of PyTorch, every node case
    python tests/suites/backend_suite.py --sample  without the node cases of ops that have no int8 form

Each model is run by plain ONNX Runtime, then opened with `quaver.open_run`. The float baseline must give the outputs
that the suite expects, and an int8 trial outputs of the same shapes and types. Counts by outcome are printed as JSON;
the exit code is 1 if a model came out wrong.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx.backend.test.case import node as node_cases

import quaver
from quaver.errors import ModelError, QuaverError

Array = NDArray[Any]
DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
FOLDERS = ("pytorch-converted", "pytorch-operator", "simple")
# Node cases of ops that can run in int8, and of some that pass 8 bits on.
SAMPLE = ("add", "averagepool", "batch_normalization", "concat", "conv", "convtranspose", "flatten", "gather", "gemm",
          "globalaveragepool", "hardsigmoid", "leakyrelu", "lstm", "matmul", "maxpool", "mul", "reducemean",
          "sigmoid", "where")  # fmt: skip
# What is no fault; all else is.
HARMLESS = ("tuned", "nothing to quantize", "not run by ONNX Runtime", "takes no tensors", "quantized already",
            "only operators of ai.onnx.ml", "ONNX Runtime differs from the suite")  # fmt: skip


class Case(NamedTuple):
    """One model of the suite with one set of inputs and the outputs that it must have."""

    name: str
    model: onnx.ModelProto
    inputs: Sequence[Any]
    outputs: Sequence[Any]
    rtol: float
    atol: float


def collect(sample: bool) -> Iterator[Case]:
    """Yield the cases of the suite; with `sample` only the node cases that are named above."""
    for folder in FOLDERS:
        for path in sorted((DATA / folder).iterdir()):
            if (path / "model.onnx").exists():
                yield from _stored(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield from _nodes(sample)


def _stored(path: Path) -> Iterator[Case]:
    """Yield the case of a folder: a model, and its first set of data."""
    data = path / "test_data_set_0"
    model = onnx.load(path / "model.onnx")
    if data.exists():
        inputs, outputs = (
            [_tensor(data / f"{kind}_{number}.pb") for number in range(len(list(data.glob(f"{kind}_*.pb"))))]
            for kind in ("input", "output")
        )
        yield Case(f"{path.parent.name}/{path.name}", model, inputs, outputs, 1e-3, 1e-5)


def _tensor(path: Path) -> Array | None:
    """Return the tensor of a file, or None if something else lies there."""
    try:
        return numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))
    except Exception:
        return None


def _nodes(sample: bool) -> Iterator[Case]:
    """Yield the node cases, which the package computes when its modules are imported."""
    if sample:
        for name in SAMPLE:
            importlib.import_module(f"{node_cases.__name__}.{name}")
        cases = list(node_cases._NodeTestCases)
    else:
        cases = node_cases.collect_testcases(None)
    for case in sorted(cases, key=lambda case: str(case.name)):
        inputs, outputs = case.data_sets[0]
        yield Case(f"node/{case.name}", case.model, inputs, outputs, max(case.rtol, 1e-3), max(case.atol, 1e-5))


def check(case: Case) -> tuple[str, str]:
    """Return what becomes of a case, and what was seen."""
    if not all(isinstance(value, np.ndarray | np.generic) for value in (*case.inputs, *case.outputs)):
        return "takes no tensors", ""
    constants = {tensor.name for tensor in case.model.graph.initializer}
    names = [value.name for value in case.model.graph.input if value.name not in constants]
    feed = dict(zip(names, map(np.asarray, case.inputs), strict=False))
    try:
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        plain = onnxruntime.InferenceSession(case.model.SerializeToString(), options).run(None, feed)
    except Exception as error:
        return "not run by ONNX Runtime", str(error)[:200]
    if _difference(case, case.outputs, plain):
        return "ONNX Runtime differs from the suite", _difference(case, case.outputs, plain)
    try:
        return _tune(case, feed)
    except ModelError as error:
        return _refusal(str(error))
    except QuaverError as error:
        return type(error).__name__, str(error)[:300]
    except Exception as error:
        return "raw exception", f"{type(error).__name__}: {error}"[:300]


def _tune(case: Case, feed: dict[str, Array]) -> tuple[str, str]:
    """Ask a run for its float baseline and its first int8 trial."""
    with (
        tempfile.TemporaryDirectory(prefix="suite-") as folder,
        quaver.open_run(
            case.model, calib_dataloader=[feed], workspace=folder, objective="int8_ops", max_trials=1, report=False,
            threads=1, allow_any_loss=True,
        ) as run,
    ):  # fmt: skip
        while (trial := run.ask()) is not None:
            outputs = trial.model.session.run(None, feed)
            if trial.number == 0 and (seen := _difference(case, case.outputs, outputs)):
                return "wrong baseline", seen
            if seen := _other_form(case.outputs, outputs):
                return "wrong int8", seen
            run.tell(trial, 1.0)
    return "tuned", ""


def _refusal(text: str) -> tuple[str, str]:
    if text.startswith("nothing in the model can run in int8"):
        return "nothing to quantize", ""
    if text.startswith("the model is quantized already"):
        return "quantized already", ""
    if text.startswith("the model imports no version of the standard operators"):
        return "only operators of ai.onnx.ml", ""
    return "refused", text[:300]


def _difference(case: Case, expected: Sequence[Any], outputs: Sequence[Any]) -> str:
    """Return where outputs differ from those expected; empty if they do not."""
    if seen := _other_form(expected, outputs):
        return seen
    for number, (before, after) in enumerate(zip(expected, outputs, strict=True)):
        if np.asarray(before).dtype.kind in "fiubc":
            if not np.allclose(after, before, rtol=case.rtol, atol=case.atol, equal_nan=True):
                return f"output {number} has other values"
        elif not np.array_equal(after, before):
            return f"output {number} is another"
    return ""


def _other_form(expected: Sequence[Any], outputs: Sequence[Any]) -> str:
    """Return where number, type, shape or finiteness of outputs differ."""
    if len(expected) != len(outputs):
        return f"{len(outputs)} outputs instead of {len(expected)}"
    for number, (before, after) in enumerate(zip(expected, outputs, strict=True)):
        left, right = np.asarray(before), np.asarray(after)
        if left.shape != right.shape or (left.dtype != right.dtype and left.dtype.kind not in "OSU"):
            return f"output {number} is {right.dtype}{list(right.shape)} instead of {left.dtype}{list(left.shape)}"
        if left.dtype == np.float32 and np.isfinite(left).all() and not np.isfinite(right).all():
            return f"output {number} is not finite"
    return ""


def main() -> int:
    """Check all cases, print the counts and what is wrong; 1 if something is."""
    parser = argparse.ArgumentParser(description="run ONNX's backend suite through quaver")
    parser.add_argument("--sample", action="store_true", help="leave out most node cases")
    sample = parser.parse_args().sample
    os.environ.setdefault("QUAVER_CACHE", tempfile.mkdtemp(prefix="suite-cache-"))
    counts: dict[str, Counter[str]] = {}
    wrong = []
    for case in collect(sample):
        outcome, detail = check(case)
        counts.setdefault(case.name.partition("/")[0], Counter())[outcome] += 1
        if outcome not in HARMLESS:
            wrong.append(f"{case.name}: {outcome}: {detail}")
    print(json.dumps({"counts": counts, "wrong": wrong}, indent=1))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
