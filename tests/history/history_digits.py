"""Makes `digits-<schema>.snapshot`: four trials of a real run that is not at its end.

Each was made once, with the version that wrote that schema, and is never made again: schema 1 with 0.1.0 (commit
3a61d93). In an empty folder, `python history_digits.py tests/data/digits_resnet.onnx` with both paths in full makes
`run/history.snapshot`. Schema 3 has the records of schema 2 in another layout: `quaver history --repair` made it of
that file.
"""

from __future__ import annotations

import sys
from typing import Any

import quaver
from quaver.demo.data import Accuracy, digits

SETTINGS: dict[str, Any] = {
    "strategy": "mse",
    "absolute": 0.0,
    "objective": "size",
    "op_type_dict": {"Conv": {"weight": {"granularity": ["per_tensor"]}}},
    "op_name_dict": {"/features/features.1/Add": "fp32"},
    "threads": 1,
    "seed": 11,
}
MADE = 4  # trials that are in the file

if __name__ == "__main__":
    images, _, test, labels = digits()
    quaver.fit(
        sys.argv[1],
        calib_dataloader=images[:64],
        eval_func=Accuracy(test, labels),
        workspace="run",
        max_trials=MADE,
        **SETTINGS,
    )
