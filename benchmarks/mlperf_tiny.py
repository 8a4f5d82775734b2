"""MLPerf Tiny's image classification: quaver's int8 models beside the reference int8 models of MLCommons.

    python -m benchmarks.mlperf_tiny FOLDER   # a checkout of github.com/mlcommons/tiny, or the folder of its models

Quantization follows the rules of the closed division: the given float weights, the given calibration images, and
numerics that are selected by experiment. No result here is an MLPerf result: the latency is not measured on the boards
and with the runner that MLPerf prescribes. The search scores training images, so no test image takes part in a choice.

The float models run in LiteRT, and converted by tf2onnx in ONNX Runtime and OpenVINO. Latency is processor time on one
thread at batch 1, interleaved with the reference int8 model in LiteRT and with the float model of the same runtime.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

import quaver
from benchmarks import result_files
from benchmarks.comparison.measuring import latencies
from benchmarks.comparison.setups import convert
from benchmarks.models.cifar import to_judge, to_train
from benchmarks.peers.onnx_session import OnnxSession
from benchmarks.peers.tflite_session import TFLiteSession

Array = NDArray[Any]
INSIDE = Path("benchmark/training/image_classification")
CRITERIA = (0.01, 0.001)
RUNTIMES = ("litert", "onnxruntime", "openvino")
# Training images that are not in the calibration set and that the search scores.
SCORED = 4000
# Height, width and channels of an image.
IMAGE = (32, 32, 3)
# Seconds of interleaved runs for each model's latencies.
SECONDS = 12.0


@dataclass(frozen=True, slots=True)
class Task:
    """A model of the benchmark.

    Attributes:
        name: as in the table.
        float_file: the float model for LiteRT.
        int8_file: the reference int8 model.
        target: accuracy that MLPerf Tiny asks for.
    """

    name: str
    float_file: str
    int8_file: str
    target: float


TASKS = (
    Task("ResNet-8", "pretrainedResnet.tflite", "pretrainedResnet_quant.tflite", 0.85),
    Task("large ResNet", "pretrainedResnet_large_float.tflite", "pretrainedResnet_large_int8.tflite", 0.91),
)


@dataclass(frozen=True, slots=True)
class Images:
    """Images from 0 to 255 as float32, and their classes."""

    images: Array
    classes: Array

    def accuracy(self, predict: Callable[[Array], Array], batch: int = 100) -> float:
        """Return the share of images whose largest output is the right class."""
        hits = [
            np.asarray(predict(self.images[at : at + batch])).argmax(-1) == self.classes[at : at + batch]
            for at in range(0, len(self.images), batch)
        ]
        return float(np.concatenate(hits).mean())


def find_file(folder: Path, name: str) -> Path:
    """Return a file of the checkout, wherever in it the file lies.

    Raises:
        SystemExit: The folder has no such file.
    """
    for path in (folder / name, folder / INSIDE / name, *(folder / INSIDE).rglob(name)):
        if path.is_file():
            return path
    raise SystemExit(f"{folder}: has no {name}; give a checkout of https://github.com/mlcommons/tiny")


def load_images(folder: Path) -> tuple[list[Array], Images, Images]:
    """Return the calibration batches of one image, the training images to score, and all test images."""
    chosen = np.load(find_file(folder, "calibration_samples_idxs.npy"))
    images, classes = to_train(50_000)
    rest = np.setdiff1d(np.arange(len(images)), chosen)[:SCORED]
    scored = Images(images[rest].astype(np.float32), classes[rest])
    images_to_judge, classes_to_judge = to_judge(10_000)
    calibration = [images[[index]].astype(np.float32) for index in chosen]
    return calibration, scored, Images(images_to_judge.astype(np.float32), classes_to_judge)


def predictor(path: Path, runtime: str, shape: Sequence[int] = IMAGE) -> Callable[[Array], Array]:
    """Return a function from float images to the first output, in a runtime, on one thread.

    OpenVINO gets the shape of an image: it is faster with fixed shapes.
    """
    if runtime == "onnxruntime":
        session = OnnxSession(path)
        (name,) = session.inputs()
        return lambda images: np.asarray(session({name: images}))
    if runtime == "openvino":
        from benchmarks.peers.openvino_session import OpenVinoSession

        (name,) = OnnxSession(path).inputs()
        compiled = OpenVinoSession(path, shapes={name: [1, *shape]})
        return lambda images: np.asarray(compiled({name: images}))
    lite = TFLiteSession(path)
    scale, zero_point = lite.input_quantization()
    if not scale:
        return lambda images: np.asarray(lite({"images": images}))
    return lambda images: np.asarray(lite({"images": (images / scale + zero_point).round().astype(np.int8)}))


def tune(
    path: Path, runtime: str, relative: float, calibration: list[Array], scored: Images, workspace: Path
) -> quaver.TuningResult:
    """Tune a float model to a relative criterion, in a runtime."""
    return quaver.fit(
        str(path),
        calib_dataloader=calibration,
        eval_func=lambda model: scored.accuracy(model),
        relative=relative,
        runtime=None if runtime == "litert" else runtime,
        threads=1,
        workspace=workspace,
    )


def measure(task: Task, folder: Path, workspace: Path) -> list[dict[str, Any]]:
    """Return a row for each model file: the references, and quaver's in each runtime at each criterion."""
    calibration, scored, test = load_images(folder)
    lite, reference = find_file(folder, task.float_file), find_file(folder, task.int8_file)
    converted = convert(lite, workspace / f"{lite.stem}.onnx")
    floats = {"litert": lite, "onnxruntime": converted, "openvino": converted}
    rows: list[dict[str, Any]] = [{"file": "reference int8", "runtime": "litert", "path": reference}]
    for runtime in RUNTIMES:
        rows.append({"file": "float", "runtime": runtime, "path": floats[runtime]})
        for relative in CRITERIA:
            folder_of_run = workspace / f"{lite.stem} {runtime} {relative}"
            result = tune(floats[runtime], runtime, relative, calibration, scored, folder_of_run)
            rows.append(
                {
                    "file": f"quaver, {relative:.1%}",
                    "runtime": runtime,
                    "evaluations": result.evaluations,
                    "met": result.met,
                    "path": result.model_path,
                }
            )
    models = [predictor(row["path"], row["runtime"]) for row in rows]
    times = latencies(models, test.images[:1], SECONDS, process_time)
    by_float = {row["runtime"]: time[1] for row, time in zip(rows, times, strict=True) if row["file"] == "float"}
    reference_size = reference.stat().st_size
    for row, model, time in zip(rows, models, times, strict=True):
        size = row.pop("path").stat().st_size
        row |= {
            "model": task.name,
            "target": task.target,
            "accuracy": test.accuracy(model),
            "latency / reference int8": time[1],
            "latency / float": time[1] / by_float[row["runtime"]],
            "bytes": size,
            "size / reference int8": size / reference_size,
        }
    return rows


def main() -> None:
    """Measure, print, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a checkout of github.com/mlcommons/tiny")
    folder = parser.parse_args().folder
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as workspace:
        for task in TASKS:
            rows += measure(task, folder, Path(workspace))
            for row in rows:
                if row["model"] == task.name:
                    print(row, flush=True)
    title = "MLPerf Tiny, image classification: int8 models beside the reference"
    result_files.write("mlperf_tiny", title, rows, packages=["ai-edge-litert", "openvino"])


if __name__ == "__main__":
    main()
