"""The page about MXNet runs as it stands."""

from __future__ import annotations

from pathlib import Path

import mxnet_networks as networks
import onnx
import pytest
from pages import run_page

from quaver.demo.data import Accuracy


def test_the_page_about_mxnet_tunes_exports_recovers_and_leads_to_onnx(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    net, images = networks.plain(), networks.images()
    labels = net(networks.mx.nd.array(images)).asnumpy().argmax(axis=1)
    names = {
        "net": net,
        "loader": networks.mx.io.NDArrayIter(images, labels, 16),
        "accuracy": Accuracy(images, labels),
        "example_batch": images[:4],
        "arrays": images,
    }
    run_page("docs/mxnet.md", names)
    onnx.checker.check_model(onnx.load(str(names["path"])))
    assert Path("net-int8-symbol.json").exists() and Path("net-int8-0000.params").exists()
    assert names["accuracy"](names["again"]) > 0.9
    assert names["result"].baseline == 1  # of the ONNX model
