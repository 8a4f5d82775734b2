"""Whether LiteRT survives a file of others: it believes what a file says of itself, and one that lies can crash it."""

from __future__ import annotations

import hashlib
import signal
import subprocess  # nosec B404 - it runs this interpreter alone
import sys

from quaver.errors import ModelError

# With XNNPACK and all tensors kept, as calibration does it, and without; each time it runs on zeros. What cannot be
# loaded must not be loaded anywhere else: where it is refused here, it may crash there.
_SCRIPT = """
import sys, warnings
import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType
warnings.simplefilter("ignore")
content = sys.stdin.buffer.read()
for kind in (OpResolverType.AUTO, OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES):
    try:
        interpreter = Interpreter(
            model_content=content,
            num_threads=1,
            experimental_preserve_all_tensors=True,
            experimental_op_resolver_type=kind,
        )
        interpreter.allocate_tensors()
    except Exception as error:
        print(error)
        sys.exit(3)
    for entry in interpreter.get_input_details():
        if np.dtype(entry["dtype"]).kind in "fiub":
            interpreter.set_tensor(entry["index"], np.zeros(entry["shape"], entry["dtype"]))
    interpreter.invoke()
"""
_REFUSED = 3
_CRASHES = {-int(number) for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGBUS)}
# For one that takes longer on zeros nobody can tell.
_SECONDS = 60
_survived: set[bytes] = set()


def try_out(content: bytes) -> None:
    """Load a model in a process of its own, and run it. Raises `ModelError` if it cannot be loaded, or crashes."""
    digest = hashlib.sha256(content).digest()
    if digest in _survived or not sys.executable:
        return
    command = [sys.executable, "-P", "-c", _SCRIPT]
    try:
        done = subprocess.run(  # nosec B603 - a script of ours; what others wrote comes by a pipe
            command, input=content, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    if done.returncode in _CRASHES:
        name = signal.Signals(-done.returncode).name
        raise ModelError(f"the .tflite file is damaged: LiteRT crashes on it ({name}). Convert the model anew")
    if done.returncode == _REFUSED:
        raise ModelError(f"LiteRT cannot load the model: {done.stdout.decode(errors='replace').strip()[:500]}")
    _survived.add(digest)
