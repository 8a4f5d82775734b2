"""Quantized files of any tool are diagnosed as the configurations that they hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import diagnosis_models as models
import onnx
import pytest
from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

import quaver
from quaver.adapters import AdapterOptions, load_model
from quaver.ops import INT8, OpConfig, QuantConfig
from quaver.space import TuningSpace


def made_by_onnx_runtime(model: onnx.ModelProto, folder: Path, form: str, per_channel: bool) -> Path:
    onnx.save(model, folder / "float.onnx")
    quantize_static(
        folder / "float.onnx",
        folder / "int8.onnx",
        models.Reader(),
        quant_format=QuantFormat[form],
        per_channel=per_channel,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )
    return folder / "int8.onnx"


def diagnosed(model: onnx.ModelProto, quantized: Any = None, **settings: Any) -> quaver.Diagnosis:
    return quaver.diagnose(model, quantized, models.images(), threads=1, timing=False, **settings)


def own_file(
    model: onnx.ModelProto, path: Path, quant_format: str, portable: bool = True, granularity: str | None = None
) -> Path:
    options = AdapterOptions(threads=1, quant_format=quant_format, optimise_float=False, portable=portable)
    adapter = load_model(model, options)
    adapter.calibrate(models.images())
    config = TuningSpace(adapter.ops()).default_config()
    if granularity is not None:
        config = QuantConfig(dict.fromkeys(config, OpConfig(INT8, granularity=granularity)))
    adapter.assemble(config).save(path)
    adapter.close()
    return path


@pytest.mark.parametrize("quant_format", ["qdq", "qoperator"])
@pytest.mark.parametrize("model", [models.joined(1e-3), models.outlying_activation(), models.cut_apart(1.0)])
def test_our_own_file_gives_the_figures_of_its_configuration(
    model: onnx.ModelProto, quant_format: str, tmp_path: Path
) -> None:
    by_config = diagnosed(model, op_type_dict={"*": {"repairs": []}})  # a file cannot be given repairs
    by_file = diagnosed(model, own_file(model, tmp_path / "int8.onnx", quant_format))
    assert by_file.precisions == by_config.precisions
    assert by_file.output_error == pytest.approx(by_config.output_error, rel=1e-3, abs=1e-9)
    assert {(cause.op, cause.kind) for cause in by_file.causes} == {
        (cause.op, cause.kind) for cause in by_config.causes
    }
    for row, other in zip(by_file.weights, by_config.weights, strict=True):
        assert row == other
    ours = {row.op: row for row in by_config.layers}
    for row in by_file.layers:
        assert row.error == pytest.approx(ours[row.op].error, rel=1e-3)
        assert row.cumulative["mean_squared_error"] == pytest.approx(
            ours[row.op].cumulative["mean_squared_error"], rel=1e-3
        )
        assert row.scales == pytest.approx(ours[row.op].scales) and row.zero_points == ours[row.op].zero_points


@pytest.mark.parametrize("maker", ["quaver", "onnxruntime"])
@pytest.mark.parametrize("model", [models.attention(), models.classifier()])
def test_a_file_of_integer_operators_has_the_rows_of_its_qdq_file(
    maker: str, model: onnx.ModelProto, tmp_path: Path
) -> None:
    found = []
    for form in ("QDQ", "QOperator"):
        (tmp_path / form).mkdir()
        ours = maker == "quaver"
        file = (
            own_file(model, tmp_path / form / "int8.onnx", form.lower())
            if ours
            else made_by_onnx_runtime(model, tmp_path / form, form, per_channel=False)
        )
        found.append(diagnosed(model, file))
    qdq, integer = ({row.op: row for row in one.layers if row.tunable} for one in found)
    assert found[0].precisions == found[1].precisions
    for name, row in integer.items():
        other = qdq[name]
        assert (row.tensor, row.zero_points) == (other.tensor, other.zero_points)
        assert row.scales == pytest.approx(other.scales)
        if other.input_scales[:1] == pytest.approx(row.input_scales[:1]):  # their tool gives QLinearSoftmax 1/256
            assert row.error == pytest.approx(other.error, rel=1e-2)
        # a step of rounding: the runtime quantizes a tensor before it is moved about, or after that
        step = max(integer["scores"].input_scales) if name == "key" else 0.0
        errors = row.cumulative["mean_squared_error"], other.cumulative["mean_squared_error"]
        assert errors[0] == pytest.approx(errors[1], rel=0.02, abs=step**2 / 10)


def test_each_op_of_a_file_is_rounded_where_the_file_does_it(tmp_path: Path) -> None:
    """ONNX Runtime's tool quantizes a product before its bias is added, and the bias, too."""
    model = models.attention()
    theirs = {row.op: row for row in diagnosed(model, made_by_onnx_runtime(model, tmp_path, "QDQ", True)).layers}
    ours = {row.op: row for row in diagnosed(model, own_file(model, tmp_path / "own.onnx", "qdq")).layers}
    assert theirs["embed"].scales == pytest.approx(ours["embed"].scales)
    assert theirs["embed"].error > 1.5 * ours["embed"].error


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_a_file_of_onnx_runtimes_own_tool_is_diagnosed(form: str, per_channel: bool, tmp_path: Path) -> None:
    model = models.outlying_output_channel()
    found = diagnosed(model, made_by_onnx_runtime(model, tmp_path, form, per_channel))
    granularity = "per_channel" if per_channel else "per_tensor"
    # Their tool uses all 8 bits of every weight.
    ours = diagnosed(model, own_file(model, tmp_path / "own.onnx", form.lower(), False, granularity))
    assert found.precisions == ours.precisions == {"first": "int8", "second": "int8"}
    assert [(cause.op, cause.kind) for cause in found.causes] == [(cause.op, cause.kind) for cause in ours.causes]
    assert bool(found.causes) is not per_channel
    for row, other in zip(found.layers, ours.layers, strict=True):
        assert row.op == other.op and row.error == pytest.approx(other.error, rel=0.05)
    for row, other in zip(found.weights, ours.weights, strict=True):
        assert row.mse == pytest.approx(other.mse, rel=0.05)


def test_a_file_with_some_ops_left_in_float_says_which(tmp_path: Path) -> None:
    onnx.save(models.chain(), tmp_path / "float.onnx")
    quantize_static(tmp_path / "float.onnx", tmp_path / "int8.onnx", models.Reader(), nodes_to_exclude=["second"])
    found = diagnosed(models.chain(), tmp_path / "int8.onnx")
    assert found.precisions == {"first": "int8", "second": "fp32", "third": "int8"}
    assert {row.op: row.mse == 0 for row in found.weights} == {"first": False, "second": True, "third": False}


def test_a_file_of_another_model_is_refused(tmp_path: Path) -> None:
    net = models.Net()
    net.input.name = "y"
    other = net.model(net.conv("elsewhere", "y", models.noise(16, 16, 3, 3)))
    path = tmp_path / "int8.onnx"
    adapter = load_model(other, AdapterOptions(threads=1))
    adapter.calibrate(models.images())
    adapter.assemble(TuningSpace(adapter.ops()).default_config()).save(path)
    adapter.close()
    with pytest.raises(quaver.ModelError, match="made from another model"):
        diagnosed(models.chain(), path)
    with pytest.raises(quaver.ModelError, match="no model file at"):
        diagnosed(models.chain(), tmp_path / "nowhere.onnx")
    (tmp_path / "text.onnx").write_text("no model")
    with pytest.raises(quaver.ModelError, match="cannot be read"):
        diagnosed(models.chain(), tmp_path / "text.onnx")
