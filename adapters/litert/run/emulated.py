"""Run a .tflite in a process of its own, on this machine's processor or on an emulated one.

`quaver.adapters.onnxrt.run.emulated` says how it is used: a script that imports nothing of quaver. Scaled integer
inputs and outputs are quantized and dequantized around each run.

"""

from __future__ import annotations

import os
import pickle  # nosec B403 - between a process and the one that started it
import sys
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter
from numpy._core import _multiarray_umath  # type: ignore[attr-defined]


def run(interpreter: Any, feed: dict[str, Any]) -> list[Any]:
    """Return all outputs; the inputs come in the model's order."""
    arrays = []
    for entry, array in zip(interpreter.get_input_details(), feed.values(), strict=True):
        scale, zero = entry["quantization"]
        if scale and array.dtype.kind == "f" and np.dtype(entry["dtype"]).kind in "iu":
            limits = np.iinfo(entry["dtype"])
            array = np.clip(np.rint(array / scale) + zero, limits.min, limits.max).astype(entry["dtype"])
        arrays.append((entry["index"], np.ascontiguousarray(array)))
        interpreter.resize_tensor_input(entry["index"], array.shape)
    interpreter.allocate_tensors()
    interpreter.reset_all_variables()
    for index, array in arrays:
        interpreter.set_tensor(index, array)
    interpreter.invoke()
    outputs = []
    for entry in interpreter.get_output_details():
        output, (scale, zero) = interpreter.get_tensor(entry["index"]), entry["quantization"]
        is_scaled = bool(scale) and output.dtype.kind in "iu"
        outputs.append((output.astype(np.float32) - zero) * np.float32(scale) if is_scaled else output)
    return outputs


def main(path: str, threads: int) -> None:
    """Answer feeds until stdin ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get between the answers
    interpreter = Interpreter(path, num_threads=threads)
    features: dict[str, bool] = getattr(_multiarray_umath, "__cpu_features__", {})
    answer: object = [name for name, is_there in features.items() if is_there]
    while True:
        pickle.dump(answer, answers)
        answers.flush()
        try:
            feed = pickle.load(sys.stdin.buffer)  # nosec B301
        except EOFError:
            return
        try:
            answer = run(interpreter, feed)
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
