"""Models that lie about themselves are refused as a whole, by the name of the tensor or the node that does."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx_models import Net, weight

import quaver
from quaver.adapters import AdapterOptions, load_model
from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.adapters.onnxrt.load import model_file
from quaver.adapters.onnxrt.load.structure import check_structure
from quaver.errors import ModelError


def small() -> ModelProto:
    net = Net()
    hidden = net.Relu(net.Conv(net.input("batch", 4, 8, 8), net.constant(weight(8, 4, 3, 3), "kernel"), name="conv"))
    return net.model(net.Conv(hidden, net.constant(weight(8, 8, 1, 1), "second"), name="other"))


def kernel(model: ModelProto) -> TensorProto:
    return next(entry for entry in model.graph.initializer if entry.name == "kernel")


def outside(folder: Path, **said: str) -> Path:
    """A model whose kernel lies in another file, about which it says this."""
    model, path = small(), folder / "model.onnx"
    entry = kernel(model)
    (folder / "data").write_bytes(entry.raw_data)
    entry.ClearField("raw_data")
    entry.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "data", **said}.items():
        entry.external_data.add(key=key, value=value)
    path.write_bytes(model.SerializeToString())
    return path


def refused(model: object, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        OnnxAdapter.load(model, AdapterOptions())
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("kind", ["STRING", "INT4", "UINT4"])
def test_external_data_that_is_not_of_plain_numbers_is_never_mapped(kind: str, tmp_path: Path) -> None:
    path = outside(tmp_path)
    model = onnx.load_model(path, load_external_data=False)
    kernel(model).data_type = TensorProto.DataType.Value(kind)
    path.write_bytes(model.SerializeToString())
    refused(path, f"external data of 'kernel' is of type {kind}: only plain numbers can lie outside")
    with pytest.raises(ModelError, match="'kernel'"):
        quaver.fit(path, calib_dataloader=weight(2, 4, 8, 8), eval_func=lambda _: 1.0, workspace=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"offset": "-4"}, r"offset .* 'kernel' is '-4', and must be a number of bytes"),
        ({"offset": "twelve"}, r"offset .* 'kernel' is 'twelve'"),
        ({"offset": "\0"}, r"offset .* 'kernel' is '\\x00'"),
        ({"offset": ""}, r"offset .* 'kernel' is ''"),
        ({"offset": "9" * 5000}, r"offset .* 'kernel' is '9{40}'"),
        ({"offset": "9" * 19}, r"external data of 'kernel', .* is too short"),
        ({"offset": "0x10"}, r"offset .* 'kernel' is '0x10'"),
        ({"offset": "1_0"}, r"offset .* 'kernel' is '1_0'"),
        ({"offset": "٣"}, r"offset .* 'kernel'"),
        ({"length": "-1"}, r"length .* 'kernel' is '-1'"),
        ({"length": "7"}, r"'kernel' is declared with 7 bytes; its shape \[8, 4, 3, 3\] and type float32 need 1152"),
        ({"location": "da\0ta"}, r"external data of 'kernel' is declared at 'da\\x00ta'"),
        ({"location": "d" * 5000}, r"external data of 'kernel'"),
        ({"location": "."}, r"external data of 'kernel', .* is missing"),
        ({"location": "/dev/zero"}, r"external data of 'kernel' .* outside the model's folder"),
    ],
)
def test_declared_external_data_is_checked(said: dict[str, str], message: str, tmp_path: Path) -> None:
    refused(outside(tmp_path, **said), message)


def _dims(*dims: int) -> Callable[[ModelProto], None]:
    def change(model: ModelProto) -> None:
        del kernel(model).dims[:]
        kernel(model).dims.extend(dims)

    return change


def _field(**changes: object) -> Callable[[ModelProto], None]:
    def change(model: ModelProto) -> None:
        for name, value in changes.items():
            setattr(kernel(model), name, value)

    return change


def _sparse(dims: list[int], values: np.ndarray, indices: np.ndarray) -> Callable[[ModelProto], None]:
    def change(model: ModelProto) -> None:
        model.graph.initializer.remove(kernel(model))
        made = model.graph.sparse_initializer.add()
        made.dims.extend(dims)
        made.values.CopyFrom(numpy_helper.from_array(values, "kernel"))
        made.indices.CopyFrom(numpy_helper.from_array(indices, "indices"))

    return change


def _inputs(*names: str) -> Callable[[ModelProto], None]:
    def change(model: ModelProto) -> None:
        del model.graph.node[0].input[:]
        model.graph.node[0].input.extend(names)

    return change


def _no_output(model: ModelProto) -> None:
    del model.graph.node[0].output[:]


def _empty_constant(model: ModelProto) -> None:
    model.graph.node.insert(0, helper.make_node("Constant", [], ["c"], "nothing"))


def _constant_of(**changes: object) -> Callable[[ModelProto], None]:
    def change(model: ModelProto) -> None:
        tensor = TensorProto(name="inner", data_type=1, **changes)
        model.graph.node.insert(0, helper.make_node("Constant", [], ["c"], "holder", value=tensor))

    return change


def _element_type(model: ModelProto) -> None:
    model.graph.input[0].type.tensor_type.elem_type = 777


ONE = np.ones(1, np.float32)
AT = np.zeros(1, np.int64)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_dims(-8, 4, 3, 3), r"constant 'kernel' has the shape \[-8, 4, 3, 3\]: no dimension can be below 0"),
        (_dims(-1), r"constant 'kernel' has the shape \[-1\]"),
        (_dims(2**62, 2**62), r"constant 'kernel' has the shape .* of more elements than there can be"),
        (_dims(2**61, 2), r"constant 'kernel' of shape .* does not hold what it says"),
        (_dims(*[2**63 - 1] * 100), r"constant 'kernel' has the shape .* of more elements"),
        (_dims(0, 2**62), r"constant 'kernel'"),
        (_dims(8, 4, 3, 2), r"constant 'kernel' of shape \[8, 4, 3, 2\] does not hold what it says"),
        (_field(raw_data=b"123"), r"constant 'kernel' of shape .* does not hold what it says"),
        (_field(raw_data=b""), r"constant 'kernel' of shape .* does not hold what it says"),
        (_field(data_type=0), r"constant 'kernel'"),
        (_field(data_type=777), r"constant 'kernel' is of the unknown type 777"),
        (_field(data_type=TensorProto.STRING), r"constant 'kernel' of shape .* does not hold what it says"),
        (_field(data_type=TensorProto.INT4), r"constant 'kernel' of shape .* does not hold what it says"),
        (_sparse([10**12], ONE, AT), r"sparse constant 'kernel' of 1 value.* would take 4,000,000,000,000 bytes"),
        (_sparse([10**9], ONE, AT), r"sparse constant 'kernel' of 1 value.* would take 4,000,000,000 bytes"),
        (_sparse([10**6] * 4, ONE, AT), r"sparse constant 'kernel'|constant 'kernel' has the shape"),
        (_sparse([-4], ONE, AT), r"constant 'kernel' has the shape \[-4\]"),
        (_sparse([4], ONE, AT + 4), r"indices of the sparse constant 'kernel' do not fit"),
        (_sparse([4, 4], ONE, np.array([[-1, 2]])), r"indices of the sparse constant 'kernel' do not fit"),
        (_sparse([4, 4], ONE, np.array([[1, 2, 3]])), r"indices of the sparse constant 'kernel' do not fit"),
        (_sparse([4], ONE, np.zeros(1, np.float32)), r"sparse constant 'kernel' needs"),
        (_sparse([4], ONE, np.zeros(3, np.int64)), r"sparse constant 'kernel' needs"),
        (_sparse([4], np.array(["a"], object), AT), r"sparse constant 'kernel' needs"),
        (_inputs(), r"node 'conv' \(Conv\) has 0 input\(s\); the operator takes 2 to 3"),
        (_inputs("x"), r"node 'conv' \(Conv\) has 1 input"),
        (_inputs(*["x"] * 9), r"node 'conv' \(Conv\) has 9 input"),
        (_no_output, r"node 'conv' \(Conv\) has no output"),
        (_empty_constant, r"node 'nothing' \(Constant\) must have one value, not 0"),
        (_constant_of(dims=[-3]), r"constant 'inner' has the shape \[-3\]"),
        (_constant_of(dims=[4], raw_data=b"1"), r"constant 'inner' of shape \[4\] does not hold what it says"),
        (_element_type, r"input 'x' is of the unknown element type 777"),
    ],
)
def test_an_invalid_part_is_named(change: Callable[[ModelProto], None], message: str) -> None:
    model = small()
    change(model)
    refused(model, message)


def test_a_sparse_constant_of_a_few_values_is_still_written_out() -> None:
    model = small()
    values = numpy_helper.to_array(kernel(model))
    _sparse([8, 4, 3, 3], values.reshape(-1), np.arange(values.size))(model)
    whole, sparse = (OnnxAdapter.load(one, AdapterOptions()) for one in (small(), model))
    assert sparse.ops() == whole.ops() and sparse.fingerprint == whole.fingerprint
    whole.close()
    sparse.close()


def test_an_input_of_any_size_costs_no_memory() -> None:
    """A rewrite is checked on inputs that are made up; those of 10^14 elements are not."""
    net = Net()
    hidden = net.Conv(net.input("batch", 4, 10**7, 10**7), weight(4, 4, 1, 1))
    assert load_model(net.model(net.Mul(hidden, np.float32(2))), AdapterOptions()).ops()


def test_an_unexpected_exception_becomes_a_model_error_with_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise KeyError("of our own")

    monkeypatch.setattr("quaver.adapters.onnxrt.load.model_file.check_structure", fail)
    with pytest.raises(
        ModelError, match=re.escape("cannot be loaded: it is damaged or of an unsupported kind")
    ) as caught:
        load_model(small(), AdapterOptions())
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_graph_with_a_cycle_or_a_tensor_that_is_written_twice_is_refused() -> None:
    ring = small()
    ring.graph.node[0].input[0] = ring.graph.node[1].output[0]
    refused(ring, r"node 'conv' \(Conv\) waits for its own result: the graph has a cycle")
    twice = small()
    twice.graph.node[1].output[0] = twice.graph.node[0].output[0]
    refused(twice, r"is written twice, the second time by node '.*' \(Relu\)")


def test_nodes_may_stand_in_any_order() -> None:
    model = small()
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(reversed(nodes))
    check_structure(model)


def test_a_chain_of_thousands_of_relus_is_taken_in() -> None:
    """The readers of a tensor are looked up, not searched for. A search took minutes on this model."""
    net = Net()
    hidden = net.Gemm(net.input("n", 4), weight(4, 4))
    for _ in range(2000):
        hidden = net.Relu(hidden)
    graph = model_file.load_model(net.model(hidden)).graph
    assert len(graph.nodes) == 2001
