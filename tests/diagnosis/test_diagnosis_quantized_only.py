"""A quantized model without a float model: how it uses its integers, checked against those that it really writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import diagnosis_models as models
import numpy as np
import onnx
import onnxruntime as ort
import pandas as pd
import pytest
from test_diagnosis_quantized_files import made_by_onnx_runtime, own_file

import quaver
from quaver.command.main import main


def written(path: Path, name: str, data: Any) -> Any:
    """The integers of a tensor of a file."""
    model = onnx.load(path)
    model.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.UINT8, None))
    return ort.InferenceSession(model.SerializeToString()).run([name], {"x": data})[0]


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
@pytest.mark.parametrize("maker", ["quaver", "onnxruntime"])
def test_ranges_saturation_and_levels_are_those_of_the_integers(form: str, maker: str, tmp_path: Path) -> None:
    model, data = models.classifier(), 1.5 * models.images()  # half as large again as what was calibrated with
    path = (
        own_file(model, tmp_path / "int8.onnx", form.lower())
        if maker == "quaver"
        else made_by_onnx_runtime(model, tmp_path, form, per_channel=True)
    )
    found = quaver.diagnose_quantized(path, data, threads=1)
    assert found.samples == len(data) and not found.layers and found.layer_statistics == {}
    assert len(found.weights) == 6 and {row.scales for row in found.weights[:4]} == {16}
    kinds = {row.op.removesuffix("_quant"): row.kind for row in found.tensors}
    assert kinds["x"] == "input" and "third" in kinds
    for row in found.tensors:
        values = written(path, row.tensor, data).astype(np.int64)
        assert row.elements == values.size and row.levels == len(np.unique(values)) and row.of_levels == 256
        assert row.high == pytest.approx((values.max() - row.zero_point) * row.scale, rel=1e-5)
        assert row.low == pytest.approx((values.min() - row.zero_point) * row.scale, rel=1e-5)
        assert row.saturated_high == pytest.approx(np.mean(values == 255), rel=1e-6, abs=1e-9)
        assert row.saturated_low == pytest.approx(np.mean(values == 0) if row.zero_point else 0.0, rel=1e-6, abs=1e-9)
    assert found.suspicious and all(row.saturated > 0 for row in found.suspicious)
    assert not quaver.diagnose_quantized(path, models.images(), threads=1).suspicious


def test_a_tensor_of_few_levels_is_named(tmp_path: Path) -> None:
    data = models.images()
    path = own_file(models.chain(), tmp_path / "int8.onnx", "qdq")
    found = quaver.diagnose_quantized(path, data * np.float32(0.01), threads=1, workspace=tmp_path / "tables")
    assert "x" in {row.op for row in found.suspicious} and "of 256 levels" in str(found)
    table = pd.read_csv(tmp_path / "tables" / "quantized_tensors.csv").set_index("op_name")
    assert table.loc["x", "levels"] < 16 and (tmp_path / "tables" / "quantized_weights.csv").is_file()
    assert json.loads((tmp_path / "tables" / "quantized.json").read_text())["samples"] == len(data)


def test_impossible_diagnoses_are_refused_with_a_reason(tmp_path: Path) -> None:
    path = own_file(models.chain(), tmp_path / "int8.onnx", "qdq")
    with pytest.raises(quaver.SettingsError, match="worst compare with float values"):
        quaver.diagnose_quantized(path, models.images(), layer_metrics={"worst": np.max})
    with pytest.raises(quaver.SettingsError, match="pass float_model"):
        quaver.diagnose_quantized(path, models.images(), model_metrics={"same": lambda f, q: 1.0})
    (tmp_path / "text.onnx").write_text("no model")
    with pytest.raises(quaver.ModelError, match="cannot be read"):
        quaver.diagnose_quantized(tmp_path / "text.onnx", models.images())
    with pytest.raises(quaver.ModelError, match="is it the quantized model"):
        quaver.diagnose_quantized(models.chain(), models.images())
    same = {"same": lambda f, q: float(np.abs(f[0] - q[0]).max() < 1)}
    found = quaver.diagnose_quantized(path, models.images(), model_metrics=same, float_model=models.chain())
    assert found.model_statistics == {"same": 1.0}


def test_diagnose_prints_the_statistics_of_a_quantized_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = own_file(models.chain(), tmp_path / "int8.onnx", "qoperator")
    np.savez(tmp_path / "calib.npz", x=models.images())
    assert (
        main(["diagnose", "--alone", str(path), "--calib", str(tmp_path / "calib.npz"), "-o", str(tmp_path / "t")]) == 0
    )
    printed = capsys.readouterr().out
    assert "saturated" in printed and "none is suspicious" in printed and "The tables are in" in printed
    assert main(["diagnose", "--alone", str(path), str(path), "--calib", str(tmp_path / "calib.npz")]) != 0
