"""Pools, reshapes and other nodes next to quantized tensors have their own rows, distinct from tunable ops."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import diagnosis_models as models
import numpy as np
import onnx
import onnxruntime as ort
import pandas as pd
import pytest
from test_diagnosis_quantized_files import diagnosed, made_by_onnx_runtime, own_file

import quaver


def others(found: quaver.Diagnosis) -> dict[str, Any]:
    return {row.op: row for row in found.layers if not row.tunable}


def test_a_node_that_passes_integers_on_has_a_row_with_its_scale() -> None:
    found = diagnosed(models.classifier())
    rows, ops = others(found), {row.op: row for row in found.layers if row.tunable}
    assert {(row.op, row.kind, row.precision) for row in rows.values()} == {
        ("largest", "MaxPool", "int8"), ("flat", "Flatten", "int8"),
    }  # fmt: skip
    assert rows["largest"].scales == rows["largest"].input_scales == ops["both"].scales
    flat, mean = rows["flat"], ops["mean"]
    for name, value in mean.cumulative.items():  # the same numbers in another shape
        assert flat.cumulative[name] == pytest.approx(value, rel=1e-6)
    step = flat.scales[0]
    assert 0 < flat.local["max_abs_error"] <= 0.51 * step
    assert flat.local["mean_squared_error"] == pytest.approx(step**2 / 12, rel=0.2)


def test_the_figures_of_a_pool_are_those_of_its_tensor(tmp_path: Path) -> None:
    """The integers that the pool writes in the file, made real by hand, beside what it writes in the float model."""
    model, images = models.classifier(), models.images()
    path = own_file(model, tmp_path / "int8.onnx", "qoperator")
    row = others(diagnosed(model, path))["largest"]
    seen = []
    for one, kind in ((model, onnx.TensorProto.FLOAT), (onnx.load(path), onnx.TensorProto.UINT8)):
        name = next(node.output[0] for node in one.graph.node if node.name == "largest")
        one.graph.output.append(onnx.helper.make_tensor_value_info(name, kind, None))
        seen.append(ort.InferenceSession(one.SerializeToString()).run([name], {"x": images})[0])
    gap = (seen[1].astype(np.float64) - row.zero_points[0]) * row.scales[0] - seen[0]
    assert row.cumulative["mean_squared_error"] == pytest.approx(np.mean(gap**2), rel=1e-4)
    assert row.cumulative["max_abs_error"] == pytest.approx(np.abs(gap).max(), rel=1e-4)


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
def test_an_8_bit_softmax_of_a_file_has_a_row(form: str, tmp_path: Path) -> None:
    model = models.attention()
    row = others(diagnosed(model, made_by_onnx_runtime(model, tmp_path, form, False)))["softmax"]
    assert (row.kind, row.precision) == ("Softmax", "int8") and row.error > 0
    assert row.scales[0] == pytest.approx(1 / 256, rel=0.01) and len(row.input_scales) == 1
    ours = others(diagnosed(model))["softmax"]
    assert ours.precision == "fp32" and np.isnan(ours.error) and ours.scales and not ours.input_scales
    assert ours.cumulative["mean_squared_error"] > 0


def test_rows_of_other_nodes_come_last_and_have_no_advice(tmp_path: Path) -> None:
    found = diagnosed(models.classifier())
    found.save(tmp_path)
    file = io.StringIO()
    found.layer_statistics_dump(file)
    table = pd.read_csv(io.StringIO(file.getvalue()))
    assert list(table.columns)[-2:] == ["tensor_id", "tunable"]
    assert list(table["tunable"]) == [True] * len(found.ops) + [False] * 2
    assert set(table.loc[~table["tunable"], "op_name"]) == {"largest", "flat"} <= set(found.layer_statistics)
    assert {row.op for row in found.activations} == {op.name for op in found.ops}
    names = {"largest", "flat"}
    assert not names & set(found.rules) and not names & {cause.op for cause in found.causes}
    assert not names & set(json.loads((tmp_path / "error.node_data.json").read_text())["results"])
    assert not any("flat" in entry["regex"] for entry in json.loads((tmp_path / "recipe.json").read_text()))
