"""Nodes of PyTorch's newer exporter are called after their modules."""

from __future__ import annotations

from pathlib import Path

import networks
import onnx

import quaver
from quaver.adapters import AdapterOptions, load_model
from quaver.adapters.onnxrt.load.module_names import module_of, show_modules

SCOPES = "pkg.torch.onnx.name_scopes"


def exported(layers: int = 3) -> onnx.ModelProto:
    """A model with the names and the metadata of the newer exporter."""
    model = networks.chain(layers)
    for index, node in enumerate(node for node in model.graph.node if node.op_type == "Gemm"):
        node.name = f"node_linear_{index}"
        node.metadata_props.add(key=SCOPES, value=f"['', 'blocks.{index}', 'blocks.{index}.fc', 'linear_{index}']")
    return model


def test_ops_are_named_after_their_modules_and_found_by_both_names() -> None:
    adapter = load_model(exported(), AdapterOptions())
    names = [op.name for op in adapter.ops()]
    assert names == [f"blocks.{index}.fc/node_linear_{index}" for index in range(3)]
    assert all(f"node_linear_{index}" in op.nodes for index, op in enumerate(adapter.ops()))
    adapter.close()


def test_runs_of_earlier_versions_keep_the_names_of_the_file() -> None:
    adapter = load_model(exported(), AdapterOptions(ops_version=2))
    assert [op.name for op in adapter.ops()] == [f"node_linear_{index}" for index in range(3)]
    adapter.close()


def test_rules_name_modules_and_a_file_of_another_tool_is_matched(tmp_path: Path) -> None:
    data, model = networks.inputs(), exported()
    rules = {"blocks.1": "fp32", "node_linear_2": "fp32"}
    result = quaver.fit(
        model, calib_dataloader=data, op_name_dict=rules, strategy="basic", workspace=tmp_path / "a", verbose=0
    )
    assert result.best.config.fp32_ops == ("blocks.1.fc/node_linear_1", "blocks.2.fc/node_linear_2")
    from onnxruntime.quantization import CalibrationDataReader, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        rows = iter([{"x": data}])

        def get_next(self) -> object:
            return next(self.rows, None)

    onnx.save(model, tmp_path / "float.onnx")
    quantize_static(str(tmp_path / "float.onnx"), str(tmp_path / "int8.onnx"), Reader())
    diagnosis = quaver.diagnose(tmp_path / "float.onnx", tmp_path / "int8.onnx", calib_dataloader=data)
    assert {row.op for row in diagnosis.layers if row.local} == {
        f"blocks.{index}.fc/node_linear_{index}" for index in range(3)
    }


def test_metadata_that_makes_no_sense_changes_nothing() -> None:
    for value in ("[", "'x'", "['']", "[1, 2]", "[" * 5000):
        node = onnx.NodeProto(name="node_a")
        node.metadata_props.add(key=SCOPES, value=value)
        assert module_of(node) == "" and show_modules([node]) == {} and node.name == "node_a"
