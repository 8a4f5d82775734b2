"""One network in all its forms, made once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import litert_models as models
import pytest
import tensorflow as tf

from quaver.adapters.litert.adapter import LiteRTAdapter
from quaver.adapters.options import AdapterOptions


@pytest.fixture(scope="session")
def digits_model() -> Any:
    """The trained network."""
    return models.trained()


@pytest.fixture(scope="session")
def forms(digits_model: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The trained network in every form that `fit` takes."""
    folder: Path = tmp_path_factory.mktemp("forms")
    digits_model.save(folder / "digits.keras")
    digits_model.save(folder / "digits.h5")
    digits_model.export(folder / "saved", verbose=False)
    function = tf.function(
        lambda x: digits_model(x, training=False), input_signature=[tf.TensorSpec([None, 8, 8, 1], name="image")]
    )
    float_model = LiteRTAdapter.load(digits_model, AdapterOptions()).assemble(None)
    return {
        "object": digits_model,
        "keras": folder / "digits.keras",
        "h5": str(folder / "digits.h5"),
        "saved_model": folder / "saved",
        "graph": models.frozen(digits_model, folder / "frozen.pb"),
        "function": function,
        "concrete": function.get_concrete_function(),
        "tflite": float_model.save(folder / "float.tflite"),
        "bytes": float_model.SerializeToString(),
    }


@pytest.fixture(scope="session")
def float_tflite(forms: dict[str, Any]) -> Path:
    """The trained network as a float .tflite."""
    path: Path = forms["tflite"]
    return path
