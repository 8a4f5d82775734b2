"""Write a float MXNet model as an ONNX file, and compare both.

MXNet's own exporter does it. It needs the module `onnx.mapping` of older versions, which it gets while it runs.

"""

from __future__ import annotations

import contextlib
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from quaver.adapters.data import match_inputs
from quaver.adapters.mxnet.load.network import Network, load_network
from quaver.adapters.mxnet.load.sources import import_mxnet
from quaver.errors import ModelError
from quaver.files.temporary import temporary_folder
from quaver.types import Feed, ModelLike

# The newest opset of the exporter, and the IR version for it.
OPSET, IR_VERSION = 13, 8
# Largest difference between both models, as a part of the largest output: other kernels round differently. Judgement.
MAX_DIFFERENCE = 1e-3


def to_onnx(model: ModelLike, path: str | os.PathLike[str], example: Any) -> Path:
    """Write a float MXNet model as an ONNX file, for `quaver.fit` and any other runtime.

    Args:
        model: in any form that `quaver.fit` accepts.
        path: path of the file.
        example: one batch, in any form of calibration data. It gives the shapes of inputs (the first axis stays open),
            and both models are run on it.

    Returns:
        The path of the file.

    Raises:
        ModelError: if the outputs of both models differ.
    """
    network, target = load_network(model), Path(path).expanduser()
    feed = match_inputs(example, network.inputs, "the example")
    with temporary_folder() as folder:
        written = _exported(network, feed, folder / "model.onnx")
    _compare(network, feed, written)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(written)
    return target


def _exported(network: Network, feed: Feed, path: Path) -> bytes:
    import onnx

    mx = import_mxnet()
    names = [name for name in network.symbol.list_arguments() if name in feed]
    shapes = [feed[name].shape for name in names]
    with _onnx_mapping_module():
        try:
            mx.onnx.export_model(
                network.symbol,
                network.parameters,
                shapes,
                [feed[name].dtype for name in names],
                str(path),
                dynamic=True,
                dynamic_input_shapes=[("batch", *shape[1:]) for shape in shapes],
            )
        except Exception as error:
            reason = str(error).strip().partition("\n")[0][:200]
            raise ModelError(f"MXNet's exporter cannot write the model as ONNX: {reason}") from error
    proto = onnx.load(path)
    proto.ir_version = IR_VERSION
    inputs = [value for value in proto.graph.input if value.name in feed]  # the exporter also lists parameters
    del proto.graph.input[:]
    proto.graph.input.extend(inputs)
    del proto.opset_import[:]
    proto.opset_import.add(domain="", version=OPSET)
    return bytes(proto.SerializeToString())


def _compare(network: Network, feed: Feed, written: bytes) -> None:
    import onnxruntime

    from quaver.adapters.mxnet.run.session import Session

    session = onnxruntime.InferenceSession(written, providers=["CPUExecutionProvider"])
    expected = Session(network.symbol, network.parameters).run(feed)
    names = [value.name for value in session.get_inputs()]
    for at, (ours, theirs) in enumerate(
        zip(expected, session.run(None, {name: feed[name] for name in names}), strict=True)
    ):
        scale = float(np.max(np.abs(ours), initial=1e-6))
        difference = float(np.max(np.abs(ours - theirs), initial=0.0)) / scale if ours.shape == theirs.shape else np.inf
        if not difference <= MAX_DIFFERENCE:
            raise ModelError(
                f"output {at} of the ONNX model differs from MXNet's by {difference:.2%} of its largest value: "
                "MXNet's exporter writes an operator wrongly"
            )


@contextlib.contextmanager
def _onnx_mapping_module() -> Iterator[None]:
    """Provide the module `onnx.mapping` of older versions, with the types that numpy has."""
    import onnx
    from onnx import helper

    if hasattr(onnx, "mapping"):
        yield
        return
    module: Any = types.ModuleType("onnx.mapping")
    codes = range(1, 14)
    text = onnx.TensorProto.STRING
    module.TENSOR_TYPE_TO_NP_TYPE = {code: helper.tensor_dtype_to_np_dtype(code) for code in codes if code != text}
    module.NP_TYPE_TO_TENSOR_TYPE = {kind: code for code, kind in module.TENSOR_TYPE_TO_NP_TYPE.items()}
    sys.modules["onnx.mapping"] = module
    setattr(onnx, "mapping", module)  # noqa: B010 - mypy knows no such attribute
    try:
        yield
    finally:
        del sys.modules["onnx.mapping"]
        delattr(onnx, "mapping")
