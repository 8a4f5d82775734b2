"""A network of which two ops do not bear int8, and how often it agrees with its float self: a score in every form."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from networks import chain, inputs
from numpy.typing import NDArray
from onnx import numpy_helper
from onnxruntime import InferenceSession

import quaver

SAMPLES = inputs(600, seed=3)
OTHERS = inputs(600, seed=4)
BATCH = 25
SETTINGS: dict[str, Any] = {
    "strategy": "mse",
    "relative": 0.03,
    "objective": "size",
    "op_type_dict": {"Gemm": {"weight": {"granularity": ["per_tensor"]}, "activation": {"mode": ["static"]}}},
    "threads": 1,
    "report": False,
    "verbose": 0,
}


def network() -> onnx.ModelProto:
    """In layers 1 and 4 one output is a hundred times as large as the others, and the next layer takes that back."""
    model = chain(7)
    weights = {constant.name: constant for constant in model.graph.initializer}
    for layer in (1, 4):
        for name, axis, factor in ((f"w{layer}", 1, 100.0), (f"b{layer}", 0, 100.0), (f"w{layer + 1}", 0, 0.01)):
            array = numpy_helper.to_array(weights[name]).copy()
            np.moveaxis(array, axis, 0)[0] *= factor
            weights[name].CopyFrom(numpy_helper.from_array(array, name))
    return model


MODEL = network()


def _answers(samples: NDArray[np.float32]) -> NDArray[np.int64]:
    outputs = InferenceSession(MODEL.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": samples})
    return np.asarray(outputs[0].argmax(axis=1))


ANSWERS, OTHER_ANSWERS = _answers(SAMPLES), _answers(OTHERS)
# What each sample is. Models lose far more on some than on others.
CLASSES = [f"answer {answer}" for answer in ANSWERS]
# A float model that is always right would leave nothing to pair with.
ANSWERS[::17] = 0


def agrees(model: Any, first: int = 0, last: int | None = None) -> NDArray[np.bool_]:
    """On which samples a model says what it should."""
    return np.asarray(model(SAMPLES[first:last]).argmax(axis=1) == ANSWERS[first:last])


def agrees_elsewhere(model: Any) -> NDArray[np.bool_]:
    """The same on samples that nothing else sees."""
    return np.asarray(model(OTHERS).argmax(axis=1) == OTHER_ANSWERS)


def as_number(model: Any) -> float:
    return float(agrees(model).mean())


def as_array(model: Any) -> NDArray[np.bool_]:
    return agrees(model)


def as_dict(model: Any) -> dict[str, Any]:
    return {"agreement": agrees(model)}


def as_batches(model: Any) -> Iterator[NDArray[np.bool_]]:
    for first in range(0, len(SAMPLES), BATCH):
        yield agrees(model, first, first + BATCH)


def as_batches_of_dicts(model: Any) -> Iterator[dict[str, NDArray[np.bool_]]]:
    for scores in as_batches(model):
        yield {"agreement": scores}


FORMS = (as_number, as_array, as_dict, as_batches, as_batches_of_dicts)


def tune(workspace: Path, eval_func: Any = as_batches, **changes: Any) -> quaver.TuneResult:
    """A run on the network; a setting of None is left out."""
    settings = {"calib_dataloader": inputs(), "workspace": workspace, **SETTINGS, **changes}
    given = {name: value for name, value in settings.items() if value is not None}
    return quaver.fit(MODEL, eval_func=eval_func, **given)


def essence(result: quaver.TuneResult) -> Any:
    """What must not depend on the form of the score, nor on who evaluates."""
    trials = [(trial.number, trial.config.fingerprint, trial.score, trial.loss, trial.met) for trial in result.trials]
    return trials, result.best and result.best.number, result.baseline, result.reason
