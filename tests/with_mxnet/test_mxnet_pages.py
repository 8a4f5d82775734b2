"""The page about MXNet runs unmodified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mxnet_networks as networks
import numpy as np
import onnx
import pytest
from pages import run_page


class Closeness:
    """1 minus the relative squared error of the outputs: on a few random images a single answer would be 2 %."""

    def __init__(self, images: Any, outputs: Any) -> None:
        self._images, self._outputs = images, outputs

    def __call__(self, model: Any) -> float:
        difference = np.square(np.asarray(model(self._images)) - self._outputs).sum()
        return float(1 - difference / np.square(self._outputs).sum())


def test_the_page_about_mxnet_tunes_exports_recovers_and_leads_to_onnx(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    net, images = networks.plain(), networks.images()
    outputs = net(networks.mx.nd.array(images)).asnumpy()
    names = {
        "net": net,
        "loader": networks.mx.io.NDArrayIter(images, outputs.argmax(axis=1), 16),
        "accuracy": Closeness(images, outputs),
        "example_batch": images[:4],
        "arrays": images,
    }
    run_page("docs/mxnet.md", names)
    onnx.checker.check_model(onnx.load(str(names["path"])))
    assert Path("net-int8-symbol.json").exists() and Path("net-int8-0000.params").exists()
    assert names["accuracy"](names["again"]) > 0.9
    assert names["result"].baseline == pytest.approx(1)  # of the ONNX model
