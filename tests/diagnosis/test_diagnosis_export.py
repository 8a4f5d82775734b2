"""The files of a diagnosis, read by other tools: pandas, YAML, ONNX Runtime, Model Explorer and quaver itself."""

from __future__ import annotations

import json
import re
from pathlib import Path

import diagnosis_models as models
import numpy as np
import onnx
import pandas
import pytest
import yaml
from onnxruntime.quantization import quantize_static

import quaver
from quaver.api.config.resolve import make_config
from quaver.diagnosis import export, read_histograms
from quaver.diagnosis.statistics.weights import histogram
from quaver.introspection import OpWeight
from quaver.rules import apply_rules

ONE_SCALE = {"Conv": {"weight": {"granularity": ["per_tensor"]}, "repairs": []}}


@pytest.fixture(scope="module")
def found() -> quaver.Diagnosis:
    return quaver.diagnose(
        models.outlying_activation(), None, models.images(), threads=1, timing=False, op_type_dict=ONE_SCALE
    )


@pytest.fixture(scope="module")
def files(found: quaver.Diagnosis, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return found.save(tmp_path_factory.mktemp("tables"))


def test_the_columns_have_the_names_that_other_tools_read(files: dict[str, Path]) -> None:
    heads = {name: files[name].read_text().splitlines()[0] for name in ("activations_table.csv", "weights_table.csv")}
    assert heads["activations_table.csv"] == "OP name,MSE,Activation min,Activation max"
    parts = ("min", "max", "mean", "standard deviation", "variance")
    columns = [f"{which} model {part}" for which in ("Input", "Optimized") for part in parts]
    assert heads["weights_table.csv"].split(",") == ["OP name", "MSE", *columns]


def test_pandas_reads_the_layer_statistics_and_yaml_their_lists(
    found: quaver.Diagnosis, files: dict[str, Path]
) -> None:
    lists = ("scales", "zero_points", "input_scales", "input_zero_points")
    table = pandas.read_csv(files["layer_statistics.csv"], converters=dict.fromkeys(lists, yaml.safe_load))
    assert list(table["op_name"]) == [row.op for row in found.layers]
    for index, row in enumerate(found.layers):
        assert table["mean_squared_error"][index] == pytest.approx(row.local["mean_squared_error"])
        assert table["scales"][index] == list(row.scales) and table["zero_points"][index] == list(row.zero_points)
        assert all(isinstance(scale, float) for scale in table["input_scales"][index])


def test_tiny_scales_stay_numbers_in_yaml() -> None:
    from quaver.diagnosis.tables import _list

    assert yaml.safe_load(_list((1e-05, 2.5e-30, 0.5, 3e20))) == [1e-05, 2.5e-30, 0.5, 3e20]


def test_the_statistics_can_be_dumped_into_an_open_file(
    found: quaver.Diagnosis, files: dict[str, Path], tmp_path: Path
) -> None:
    with open(tmp_path / "stats.csv", "w") as file:
        found.layer_statistics_dump(file)
    assert (tmp_path / "stats.csv").read_text() == files["layer_statistics.csv"].read_text()
    assert found.layer_statistics["first"]["mean_squared_error"] > 0


def test_the_rules_file_is_a_valid_configuration(found: quaver.Diagnosis, files: dict[str, Path]) -> None:
    chosen = apply_rules(found.ops, make_config(files["rules.yaml"]).op_name_dict)
    assert {op.name for op in chosen if not op.quantizable} == {"first", "second"} == set(found.fallback)


def test_onnx_runtime_leaves_out_the_nodes_to_exclude(files: dict[str, Path], tmp_path: Path) -> None:
    nodes = json.loads(files["nodes_to_exclude.json"].read_text())
    assert nodes == ["first", "relu", "second"]
    onnx.save(models.outlying_activation(), tmp_path / "float.onnx")
    quantize_static(tmp_path / "float.onnx", tmp_path / "int8.onnx", models.Reader(), nodes_to_exclude=nodes)
    kinds = {node.op_type for node in onnx.load(tmp_path / "int8.onnx").graph.node}
    assert "QuantizeLinear" not in kinds


def test_the_recipe_names_the_int8_ops_by_the_tensor_they_write(
    found: quaver.Diagnosis, files: dict[str, Path]
) -> None:
    assert set(found.fallback) == {row.op for row in found.layers}
    assert json.loads(files["recipe.json"].read_text()) == []
    first, *ends = export.recipe({"a": "x.1", "b": "x|1"}, ["b"])
    assert re.search(first["regex"], "x.1;") and not re.search(first["regex"], "x|1;")
    assert first["op_config"]["compute_precision"] == "INTEGER"
    assert [(rule["operation"], rule["algorithm_key"]) for rule in ends] == [
        ("INPUT", "no_quantize"),
        ("OUTPUT", "no_quantize"),
    ]


def test_the_graph_viewer_gets_a_value_for_every_node(found: quaver.Diagnosis, files: dict[str, Path]) -> None:
    errors = json.loads(files["error.node_data.json"].read_text())
    assert {"first", "relu", "second"} <= set(errors["results"])
    assert -10 < errors["results"]["first"]["value"] < 10
    assert [stop["stop"] for stop in errors["gradient"]] == [0, 0.6, 1]
    precisions = json.loads(files["precision.node_data.json"].read_text())["results"]
    assert precisions["first"]["value"] == 8 and precisions["first"]["bgColor"].startswith("#")


@pytest.mark.parametrize("name", ["error.node_data.json", "precision.node_data.json"])
def test_node_data_follow_the_schema_of_the_graph_viewer(files: dict[str, Path], name: str) -> None:
    """`GraphNodeData` of ai-edge-model-explorer 0.1.34 (node_data_builder.py); its colours are hex or names."""
    data = json.loads(files[name].read_text())
    assert {"results"} <= set(data) <= {"results", "name", "thresholds", "gradient"}
    for key, entry in data["results"].items():
        assert key and {"value"} <= set(entry) <= {"value", "bgColor", "textColor"}
        assert type(entry["value"]) in (int, float)
        assert re.fullmatch("#[0-9a-f]{6}", entry.get("bgColor", "#000000"))
    stops = data.get("gradient", [])
    assert [stop["stop"] for stop in stops] == sorted({stop["stop"] for stop in stops})
    for stop in stops:
        assert set(stop) == {"stop", "bgColor"} and 0 <= stop["stop"] <= 1
        assert re.fullmatch("#[0-9a-f]{6}", stop["bgColor"])


def test_the_graph_viewer_gets_no_value_for_a_nan_error() -> None:
    ops = quaver.diagnose(models.chain(), None, models.images(16), threads=1, timing=False).ops
    data = export.error_data(ops, {}, {"first": float("inf"), "second": 0.0, "third": float("nan")})
    assert data["results"] == {"second": {"value": -120.0}}


def test_histograms_are_saved(found: quaver.Diagnosis, files: dict[str, Path]) -> None:
    with np.load(files["histograms.npz"], allow_pickle=False) as arrays:
        ops = list(arrays["ops"])
        assert ops == ["first", "second"] and arrays["activation_counts"].shape == (2, 256)
        assert arrays["activation_counts"].sum(axis=1).min() > 1000
        for op, edges in zip(ops, arrays["activation_edges"], strict=True):
            row = next(row for row in found.activations if row.op == op)
            assert edges[0] <= row.low and edges[-1] >= row.high
        number = list(arrays["weight_ops"]).index("second")
        counts, edges = arrays[f"weight_counts_{number}"], arrays[f"weight_edges_{number}"]
        assert counts.shape == (16, 128) and counts.sum() == 16 * 16 * 9 and len(edges) == 129
        assert arrays["activation_channels_0"].shape == (2, 16)


def test_histograms_are_read_again_by_op(found: quaver.Diagnosis, files: dict[str, Path]) -> None:
    for place in (files["histograms.npz"], files["histograms.npz"].parent):
        pictures = read_histograms(place)
        assert list(pictures.activations) == ["first", "second"] and set(pictures.weights) == {"first", "second"}
        bars, weight = pictures.activations["first"], pictures.weights["second"]
        row = next(row for row in found.activations if row.op == "first")
        assert bars.counts.shape == (256,) and bars.edges[0] <= row.low and bars.edges[-1] >= row.high
        assert (bars.channel_low.min(), bars.channel_high.max()) == (row.low, row.high)
        assert int(np.argmax(bars.channel_high)) == 3  # the outlier
        assert weight.counts.shape == (16, 128) and len(weight.edges) == 129


def test_missing_and_invalid_histogram_files_are_refused(files: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(quaver.SettingsError, match=r"no histograms at .*histograms.npz"):
        read_histograms(tmp_path)
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    for name in (tmp_path / "other.npz", files["causes.txt"]):
        with pytest.raises(quaver.SettingsError, match="does not hold the histograms"):
            read_histograms(name)


def test_histograms_of_very_many_channels_stay_small() -> None:
    values = np.random.default_rng(0).standard_normal((5000, 3)).astype(np.float32)
    bars = histogram(OpWeight("op", values, values, 0, 1))
    assert bars is not None and len(bars.counts) <= 1024 and bars.counts.sum() == values.size
    exact, _ = np.histogram(values[:5], bars.edges)
    assert np.abs(bars.counts[0] - exact).sum() <= 2


def test_the_report_holds_everything_as_json(found: quaver.Diagnosis, files: dict[str, Path]) -> None:
    report = json.loads(files["diagnosis.json"].read_text())
    assert report["samples"] == 64 and len(report["layers"]) == 2 and report["rules"] == found.rules
    assert [cause["kind"] for cause in report["causes"]] == [cause.kind for cause in found.causes]
    assert files["causes.txt"].read_text().splitlines() == [str(cause) for cause in found.causes]


def test_tables_that_cannot_be_written_are_an_error_with_the_path(found: quaver.Diagnosis, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(quaver.SettingsError, match=r"cannot write the tables into .*taken"):
        found.save(tmp_path / "taken")
