"""Every form of a model and its calibration data, and the errors for forms that are not supported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mxnet_networks as networks
import numpy as np
import pytest

import quaver
from quaver.adapters import AdapterOptions, adapter_for, load_with
from quaver.adapters.mxnet.adapter import MXNetAdapter
from quaver.errors import BuildError, ModelError

mx, nn = networks.mx, networks.nn


def exported(folder: Path) -> tuple[Any, Path]:
    net = networks.plain()
    net.hybridize()
    net(mx.nd.array(networks.images(2)))
    net.export(str(folder / "net"))
    return net, folder / "net"


def test_each_form_is_the_same_model(tmp_path: Path) -> None:
    net, prefix = exported(tmp_path)
    symbol, args, aux = mx.model.load_checkpoint(str(prefix), 0)
    module = mx.mod.Module(symbol, ["data"], None)
    module.bind([("data", (2, *networks.SHAPE))], for_training=False)
    module.set_params(args, aux)
    imported = mx.gluon.SymbolBlock.imports(f"{prefix}-symbol.json", ["data"], f"{prefix}-0000.params")
    forms = (
        net, networks.plain(), (symbol, args, aux), module, imported,
        str(prefix), f"{prefix}-symbol.json", f"{prefix}-0000.params",
    )  # fmt: skip
    found = set()
    for form in forms:
        assert adapter_for(form) is MXNetAdapter, form
        found.add(MXNetAdapter.load(form, AdapterOptions()).fingerprint)
    assert len(found) == 1


def test_the_newest_epoch_of_a_prefix_is_loaded(tmp_path: Path) -> None:
    net, prefix = exported(tmp_path)
    for parameter in net.collect_params(".*dense.*").values():
        parameter.set_data(parameter.data() * 2)
    net.export(str(prefix), epoch=3)
    newest, given = (MXNetAdapter.load(form, AdapterOptions()).fingerprint for form in (str(prefix), net))
    assert newest == given
    assert MXNetAdapter.load(f"{prefix}-0000.params", AdapterOptions()).fingerprint != given


def test_the_loaded_model_computes_the_same_as_the_block() -> None:
    for name, make in networks.NETWORKS.items():
        net, data = make(), networks.data_for(name)
        batch = data[0] if isinstance(data, list) else (data[:8],)
        expected = net(*map(mx.nd.array, batch))
        model = MXNetAdapter.load(net, AdapterOptions()).build(None)
        given = model(*batch)
        pairs = zip(
            expected if isinstance(expected, list | tuple) else [expected],
            given if isinstance(given, list) else [given],
            strict=True,
        )
        assert all(np.allclose(one.asnumpy(), other, atol=1e-5) for one, other in pairs), name


def test_training_afterwards_does_not_change_the_model_that_was_read() -> None:
    net, x = networks.plain(), networks.images(4)
    adapter = MXNetAdapter.load(net, AdapterOptions())
    before = adapter.build(None)(x)
    for parameter in net.collect_params().values():
        parameter.set_data(parameter.data() * 3)
    assert np.array_equal(adapter.build(None)(x), before)


def test_training_outputs_need_no_labels() -> None:
    x = networks.images(4)
    scores = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=5, name="fc")
    args = {"fc_weight": mx.nd.random.normal(shape=(5, 432)) / 20, "fc_bias": mx.nd.zeros(5)}
    model = MXNetAdapter.load((mx.sym.SoftmaxOutput(scores, name="softmax"), args, {}), AdapterOptions()).build(None)
    plain = MXNetAdapter.load((mx.sym.softmax(scores), args, {}), AdapterOptions()).build(None)
    assert np.allclose(model(x), plain(x))
    assert np.allclose(model(x).sum(axis=1), 1)


LOADERS = {
    "NDArrayIter": lambda x, y: mx.io.NDArrayIter(x, y, 16),
    "DataLoader": lambda x, y: mx.gluon.data.DataLoader(mx.gluon.data.ArrayDataset(x, y), 16),
    "DataBatches": lambda x, y: [mx.io.DataBatch([mx.nd.array(part)], [y[:16]]) for part in np.split(x, 3)],
    "NDArrays": lambda x, y: [mx.nd.array(x[at : at + 16]) for at in (0, 16, 32)],
    "one NDArray": lambda x, y: mx.nd.array(x),
    "pairs": lambda x, y: [(x[at : at + 16], y[at : at + 16]) for at in (0, 16, 32)],
    "an array": lambda x, y: x,
}  # fmt: skip


@pytest.mark.parametrize("form", LOADERS)
def test_calibration_data_can_come_as(form: str) -> None:
    x, y = networks.images(), np.zeros(48, np.float32)
    adapter, expected = (MXNetAdapter.load(networks.plain(), AdapterOptions()) for _ in range(2))
    loader = LOADERS[form](x, y)
    for _ in range(2):  # an iterator of MXNet stands at its end after the first time
        assert adapter.calibrate(loader)["ranges"]["data"] == expected.calibrate(x)["ranges"]["data"]


def test_models_that_cannot_be_loaded_are_explained(tmp_path: Path) -> None:
    without_values = nn.HybridSequential()
    without_values.add(nn.Dense(3))
    without_values.initialize()
    imperative = nn.Sequential()
    exported(tmp_path)
    (tmp_path / "net-symbol.json").rename(tmp_path / "other-symbol.json")
    softmax = (mx.sym.softmax(mx.sym.var("data")), {}, {})
    for model, words in (
        (without_values, "has no values yet"),
        (imperative, "HybridSequential"),
        (str(tmp_path / "net-0000.params"), "only parameters"),
        (str(tmp_path / "other"), "no other-0000.params"),
        (str(tmp_path / "none-symbol.json"), "no model at"),
        (softmax, "nothing in the model can run in int8: it holds softmax"),
        (mx.nd.zeros(3), "is not a model"),
    ):
        with pytest.raises(ModelError, match=words):
            load_with(MXNetAdapter, model, AdapterOptions())


def test_a_damaged_file_is_a_model_error(tmp_path: Path) -> None:
    _, prefix = exported(tmp_path)
    for name, content in (("net-0000.params", b"\x12\x01" + bytes(40)), ("net-symbol.json", b"{")):
        good = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ModelError):
            load_with(MXNetAdapter, str(prefix), AdapterOptions())
        (tmp_path / name).write_bytes(good)


def test_saving_a_graph_alone_is_refused(tmp_path: Path) -> None:
    model = MXNetAdapter.load(networks.plain(), AdapterOptions()).build(None)
    with pytest.raises(BuildError, match="export"):
        model.save(tmp_path / "net-symbol.json")


def test_the_onnx_export_computes_the_same(tmp_path: Path) -> None:
    from quaver.adapters.mxnet import to_onnx

    net, x = networks.residual(), networks.images()
    path = to_onnx(net, tmp_path / "out" / "net.onnx", x[:2])
    expected = net(mx.nd.array(x)).asnumpy()

    def closeness(model: quaver.Model) -> float:
        return 1 - float(np.abs(model(x) - expected).mean() / np.abs(expected).mean())

    result = quaver.fit(
        path, calib_dataloader=x, eval_func=closeness, relative=0.1, workspace=tmp_path / "run", verbose=0
    )
    assert result.baseline > 0.999
    assert result.met
