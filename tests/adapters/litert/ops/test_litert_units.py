"""What LiteRT can run in float alone is named, with its share of the time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import litert_models as models
import numpy as np

import quaver


def test_an_lstm_is_named_and_timed_without_labels(tmp_path: Path) -> None:
    samples = np.random.default_rng(0).standard_normal((6, 12, 4)).astype(np.float32)
    result = quaver.fit(
        models.recurrent(),
        calib_dataloader=samples,
        eval_func=lambda model: 1.0,
        strategy="basic",
        workspace=tmp_path / "w",
    )
    found = {one.kind: one for one in result.unquantizable}
    recurrent = [one for kind, one in found.items() if "LSTM" in kind or kind == "WHILE"]
    assert len(recurrent) == 1 and recurrent[0].count == 1
    assert recurrent[0].share is not None and 0.1 < recurrent[0].share <= 1
    assert f"{recurrent[0].kind} (1)" in str(result)
    assert not {"RESHAPE", "TRANSPOSE", "STRIDED_SLICE", "FULLY_CONNECTED"} & found.keys()
    assert result.fp32_measured["threads"] == 1 and "1 thread)" in str(result)


def test_a_network_of_ops_alone_reports_nothing_unquantizable(digits_model: Any) -> None:
    adapter, _ = models.opened(digits_model, models.digits()[0][:8])
    assert {one.kind for one in adapter.unquantizable()} <= {"SOFTMAX"}
