"""`fit` resolves its settings once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import quaver
from quaver.api.config import load

MODEL = Path(__file__).parents[2] / "data" / "digits_resnet.onnx"


@pytest.mark.parametrize("sizes", ["8", "[8, 16]"])
def test_a_yaml_file_is_read_once_per_fit(sizes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "conf.yaml"
    path.write_text(f"quantization: {{calibration: {{sampling_size: {sizes}}}}}\ntuning: {{report: false}}")
    read: list[Path] = []
    load_yaml = load.load_yaml

    def counting(file: Path) -> Any:
        read.append(file)
        return load_yaml(file)

    monkeypatch.setattr(load, "load_yaml", counting)
    images = np.random.default_rng(0).random((16, 1, 8, 8), dtype=np.float32)
    quaver.fit(
        MODEL, path, calib_dataloader=images, eval_func=lambda model: 1.0, workspace=tmp_path / "run", max_trials=1,
        timing_cache=False, verbose=0,
    )  # fmt: skip
    assert read == [path]
