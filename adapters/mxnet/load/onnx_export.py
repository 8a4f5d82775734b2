"""A road out of MXNet: the float model as an ONNX file, compared with what it was made from.

MXNet's own exporter does it. It was written for an onnx that had a module `mapping`, which it is given while it runs.
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
from quaver.adapters.mxnet.load.network import Network, take_in
from quaver.adapters.mxnet.load.sources import import_mxnet
from quaver.errors import ModelError
from quaver.files.temporary import temporary_folder
from quaver.types import Feed, ModelLike

# The exporter's newest set of operators, and the file format that goes with it.
OPSET, FORMAT = 13, 8
# How far the ONNX model may be from MXNet's, as a part of the largest output.
DRIFT = 1e-3


def to_onnx(model: ModelLike, path: str | os.PathLike[str], example: Any) -> Path:
    """Write a float model of MXNet as an ONNX file, for `quaver.fit` and any other runtime.

    Args:
        model: in any form that `quaver.fit` takes.
        path: of the file.
        example: one batch, in any form of calibration data. It says which shapes inputs have (the first axis stays
            open), and both models are run on it: `ModelError` if they do not agree.
    """
    network, target = take_in(model), Path(path).expanduser()
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
    with _mapping():
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
            told = str(error).strip().partition("\n")[0][:200]
            raise ModelError(f"MXNet's exporter cannot write the model as ONNX: {told}") from error
    proto = onnx.load(path)
    proto.ir_version = FORMAT
    taken = [value for value in proto.graph.input if value.name in feed]  # it lists parameters there as well
    del proto.graph.input[:]
    proto.graph.input.extend(taken)
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
        drift = float(np.max(np.abs(ours - theirs), initial=0.0)) / scale if ours.shape == theirs.shape else np.inf
        if not drift <= DRIFT:
            raise ModelError(
                f"output {at} of the ONNX model is off from MXNet's by {drift:.2%} of its largest value: "
                "MXNet's exporter got an operator wrong"
            )


@contextlib.contextmanager
def _mapping() -> Iterator[None]:
    """The module that onnx once had, with the types that numpy knows."""
    import onnx
    from onnx import helper

    if hasattr(onnx, "mapping"):
        yield
        return
    module: Any = types.ModuleType("onnx.mapping")
    known = range(1, 14)
    text = onnx.TensorProto.STRING
    module.TENSOR_TYPE_TO_NP_TYPE = {one: helper.tensor_dtype_to_np_dtype(one) for one in known if one != text}
    module.NP_TYPE_TO_TENSOR_TYPE = {kind: one for one, kind in module.TENSOR_TYPE_TO_NP_TYPE.items()}
    sys.modules["onnx.mapping"] = module
    setattr(onnx, "mapping", module)  # noqa: B010 - mypy knows no such attribute
    try:
        yield
    finally:
        del sys.modules["onnx.mapping"]
        delattr(onnx, "mapping")
