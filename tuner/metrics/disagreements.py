"""Which samples need labels: only those on which the models disagree can change a verdict."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from quaver.adapters import Model, open_given
from quaver.errors import SettingsError
from quaver.metrics.inference import Data


def disagreements(data: Any, model: Any, *quantized: Any, output: int = 0) -> NDArray[np.int64]:
    """The numbers of the samples on which a quantized model says another class than the fp32 model.

    On all others both are right or both are wrong, whatever the label: what is lost, in samples, depends on these
    alone. So label them, give all others any label (0), and judge by `top1` with `absolute=`.

    Args:
        data: samples, as for `top1`; what follows the inputs in a batch is left out.
        model: the fp32 model: what `fit` takes, or a `quaver.Model`.
        quantized: one or more quantized models, of any maker.
        output: which output of the models holds the classes, along its last axis.
    """
    if not quantized:
        raise SettingsError("disagreements needs a quantized model besides the fp32 one")
    samples = Data(data, needs_labels=False)
    expected = _classes(samples, model, output)
    differ = np.zeros(len(expected), bool)
    for one in quantized:
        found = _classes(samples, one, output)
        if found.shape != expected.shape:
            raise SettingsError(f"the models give classes of shapes {expected.shape} and {found.shape}")
        differ |= (found != expected).reshape(len(found), -1).any(axis=1)
    return np.flatnonzero(differ)


def _classes(data: Data, model: Any, output: int) -> NDArray[np.int64]:
    opened = model if isinstance(model, Model) else open_given(model)
    return np.concatenate([batch.outputs[output].argmax(axis=-1) for batch in data.run(opened)])
