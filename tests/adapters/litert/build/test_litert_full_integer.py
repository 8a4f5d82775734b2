"""A .tflite whose inputs and outputs are in int8, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import litert_models as models
import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

import quaver


@pytest.fixture(scope="module")
def result(digits_model: Any, tmp_path_factory: pytest.TempPathFactory) -> quaver.TuneResult:
    return quaver.fit(
        digits_model,
        calib_dataloader=models.digits()[0][:64],
        eval_func=models.accuracy,
        strategy="basic",
        quant_format="full_integer",
        relative=0.05,
        workspace=tmp_path_factory.mktemp("full") / "run",
        verbose=0,
    )


def test_inputs_and_outputs_are_in_int8_and_eval_func_gets_floats(result: quaver.TuneResult, tmp_path: Path) -> None:
    assert result.met
    path = result.save(tmp_path / "full.tflite")
    interpreter = Interpreter(model_path=str(path))
    ends = [*interpreter.get_input_details(), *interpreter.get_output_details()]
    assert {entry["dtype"] for entry in ends} == {np.int8}
    assert result.model is not None and result.model(models.digits()[2][:3]).dtype == np.float32


def test_it_is_recovered_byte_for_byte(digits_model: Any, result: quaver.TuneResult) -> None:
    assert result.best is not None
    again = quaver.recover(digits_model, result.history_path, result.best.number)
    assert again.sha256 == result.best.model_hash


def test_other_formats_are_refused_by_name(digits_model: Any) -> None:
    with pytest.raises(quaver.SettingsError, match="full_integer"):
        quaver.fit(digits_model, calib_dataloader=models.digits()[0][:4], quant_format="qdq", verbose=0)


def test_without_calibration_data_it_is_refused(digits_model: Any, tmp_path: Path) -> None:
    with pytest.raises(quaver.CalibrationError, match="inputs and outputs in int8 need calibrated ranges"):
        quaver.fit(
            digits_model,
            eval_func=models.accuracy,
            objective="size",
            quant_format="full_integer",
            workspace=tmp_path / "run",
            verbose=0,
        )
