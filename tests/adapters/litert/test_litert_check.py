"""Verdicts on what TensorFlow's converter makes of a Keras model, with integers inside and at its ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import litert_models as models
import numpy as np
import pytest
import tensorflow as tf

import quaver
from quaver import Verdict, metrics
from quaver.adapters import load_unmodified


def converted(model: Any, scale: float = 1.0, **settings: Any) -> bytes:
    images = models.digits()[0]
    return models.lite(
        model,
        optimizations=[tf.lite.Optimize.DEFAULT],
        representative_dataset=lambda: ([scale * images[at : at + 1]] for at in range(100)),
        **settings,
    )


@pytest.fixture(scope="module")
def integers_only(digits_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("converted") / "int8.tflite"
    ops = tf.lite.TargetSpec(supported_ops=[tf.lite.OpsSet.TFLITE_BUILTINS_INT8])
    path.write_bytes(
        converted(digits_model, target_spec=ops, inference_input_type=tf.int8, inference_output_type=tf.int8)
    )
    return path


@pytest.mark.parametrize("form", ["keras", "tflite"])
def test_a_model_in_integers_from_end_to_end_takes_and_gives_real_numbers(
    form: str, forms: dict[str, Any], integers_only: Path
) -> None:
    _, _, images, labels = models.digits()
    found = quaver.check(forms[form], integers_only, metrics.top1(images, labels), relative=0.05, faster_than=1e-6)
    assert found.verdict is Verdict.MET
    assert found.limits[0].samples == len(images)
    outputs = load_unmodified(integers_only)(images[:8])
    assert outputs.dtype == np.float32
    assert outputs.sum(axis=1) == pytest.approx(np.ones(8), abs=0.1)  # a softmax


def test_a_model_that_was_calibrated_on_other_data_does_not_meet_the_limit(forms: dict[str, Any]) -> None:
    _, _, images, labels = models.digits()
    ruined = converted(forms["object"], scale=0.02)
    found = quaver.check(forms["tflite"], ruined, metrics.top1(images, labels), relative=0.05)
    assert found.verdict is Verdict.NOT_MET


def test_few_samples_are_inconclusive(forms: dict[str, Any], integers_only: Path) -> None:
    _, _, images, labels = models.digits()
    found = quaver.check(forms["tflite"], integers_only, metrics.top1(images[:60], labels[:60]), relative=0.01)
    assert found.verdict is Verdict.INCONCLUSIVE
