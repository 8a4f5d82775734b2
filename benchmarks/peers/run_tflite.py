"""TensorFlow's own converter to int8, as its users call it.

Variants: `int8`, all ops in int8; `dynamic`, int8 weights and ranges at run time, which needs no calibration data.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from benchmarks.peers import job as jobs
from benchmarks.peers.tflite_session import TFLiteSession


def main() -> None:
    """Convert once."""
    job = jobs.read()
    target = job.folder / f"{jobs.MODEL}.tflite"
    keras = tf.keras.models.load_model(job.bench.model_path)
    float_model = tf.lite.TFLiteConverter.from_keras_model(keras).convert()
    jobs.plain_inference(job, TFLiteSession(float_model))
    evaluate = jobs.Recorder(job, TFLiteSession)

    def samples() -> Iterator[list[Any]]:
        for batch in jobs.Batches(job):
            yield list(batch.values())

    def work() -> Path:
        evaluate(float_model)
        converter = tf.lite.TFLiteConverter.from_keras_model(keras)
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if job.variant == "int8":
            converter.representative_dataset = samples
            converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        target.write_bytes(converter.convert())
        evaluate(target)
        return target

    jobs.report(job, jobs.tuning(job, work))


if __name__ == "__main__":
    main()
