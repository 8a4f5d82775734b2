"""Runs to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import quaver
from quaver.demo.data import Accuracy, digits
from quaver.demo.run import MODEL, RULES

# Another network that was trained on the same digits.
RESNET = Path(__file__).parents[1] / "data" / "digits_resnet.onnx"


def tune(folder: Path | None, model: Path = MODEL, **settings: Any) -> quaver.TuneResult:
    """Tune the demo's network, with one weight scale for each layer."""
    train, _, images, labels = digits()
    wanted: dict[str, Any] = {"threads": 1, "op_type_dict": RULES, "strategy": "mse_v2", "max_trials": 12, **settings}
    if folder is not None:
        wanted["workspace"] = folder
    return quaver.fit(model, calib_dataloader=train[:64], eval_func=Accuracy(images, labels), **wanted)
