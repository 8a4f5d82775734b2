"""The emulated runner: runs an ONNX model in a process of its own, on this processor or on an emulated one.

This file is a script that imports numpy and onnxruntime and nothing of quaver, which an emulator would take long to
import. `quaver.engine.emulation` starts it with the path of a model and the number of threads. It first writes the
instruction sets of the processor, then answers every feed from stdin with a list of outputs, or with an error's text.
"""

from __future__ import annotations

import os
import pickle  # nosec B403 - between a process and the one that started it
import sys

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime as ort
from numpy._core import _multiarray_umath  # type: ignore[attr-defined]


def main(path: str, threads: int) -> None:
    """Answer feeds until stdin ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not mix with the answers
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    # The features that this process sees; /proc/cpuinfo would show those of the host.
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
            answer = session.run(None, feed)
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
