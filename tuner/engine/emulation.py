"""Run a quantized model on an emulated x86 processor, to see whether its answers hold there.

qemu-user runs a program on a processor of another kind, instruction by instruction and about 50 times slower. Here that
program is the framework's runtime with one model, and nothing else: eval_func stays in this process and calls an
`EmulatedModel`, whose inferences go through a pipe.
"""

from __future__ import annotations

import contextlib
import pickle  # nosec B403 - between this process and one that it started
import platform
import re
import shutil
import subprocess  # nosec B404 - runs qemu and this interpreter
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from quaver.adapters import Model, adapter_for
from quaver.adapters.abilities import SupportsEmulation, require
from quaver.errors import EvaluationError, SettingsError
from quaver.suggestions import hint
from quaver.types import Feed

EMULATOR = "qemu-x86_64"
INSTALL = "install qemu-user 7.2 or newer (Debian and Ubuntu: apt-get install qemu-user)"
# Earlier versions do not emulate AVX2.
MIN_VERSION = (7, 2)
# What users call a processor: what qemu calls it, and what it is an example of.
PROCESSORS: Mapping[str, tuple[str, str]] = {
    "haswell": ("Haswell", "AVX2 without VNNI: AMD Zen 1 to 3, Intel before Cascade Lake"),
    "sandybridge": ("SandyBridge", "AVX without AVX2: Intel of 2011 and 2012"),
    "nehalem": ("Nehalem", "SSE 4.2 without AVX: Intel of 2008 to 2010"),
}
# How many samples are kept with their outputs, to compare them afterwards.
RECORDED_SAMPLES = 256
# How many characters of the emulator's messages an error repeats.
MESSAGE_TAIL = 1000


class SampleLimitReached(BaseException):
    """Ends an eval_func from inside, once the emulator has run as many samples as it may.

    Not an `Exception`, so that an eval_func that survives errors of single samples does not survive this.
    """


def emulator_command(cpu: str) -> list[str]:
    """Return the command that runs a program on an emulated processor.

    Args:
        cpu: one of `PROCESSORS`, in any case.

    Raises:
        SettingsError: if the processor is unknown, this machine is not x86-64, or qemu-user is missing or too old.
    """
    if not isinstance(cpu, str) or cpu.lower() not in PROCESSORS:
        raise SettingsError(f"unknown processor {cpu!r}; {hint(str(cpu), PROCESSORS)}")
    if platform.machine().lower() not in ("x86_64", "amd64"):
        raise SettingsError(
            f"cpu={cpu!r} emulates an x86 processor for the programs of this machine, which is {platform.machine()}: "
            "check the model on an x86-64 machine"
        )
    path = shutil.which(EMULATOR)
    if path is None:
        raise SettingsError(f"cpu={cpu!r} needs {EMULATOR}, which is not installed: {INSTALL}")
    output = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout  # nosec B603
    version = re.search(r"version (\d+)\.(\d+)", output)
    if version is None or (int(version[1]), int(version[2])) < MIN_VERSION:
        first_line = output.partition("\n")[0]
        raise SettingsError(f"cpu={cpu!r} needs a newer {EMULATOR} than {first_line!r}: {INSTALL}")
    return [path, "-cpu", PROCESSORS[cpu.lower()][0]]


class EmulatedSession:
    """A model in a process of its own, on an emulated processor. It has the methods of ONNX Runtime's session.

    Args:
        path: the file of the model.
        command: runs a program on the processor; empty for that of this machine.
        native: the same model on this machine, which knows its inputs.
        limit: how many samples to run before `SampleLimitReached`; None for any number.
        progress: called after each inference with the number of samples so far.

    Attributes:
        runs: the feeds so far, with their outputs; of the first `RECORDED_SAMPLES` samples, for all need much memory.
        samples: how many samples have run.
    """

    def __init__(
        self,
        path: Path,
        command: Sequence[str],
        native: Model,
        limit: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self._native, self._limit, self._progress = native, limit, progress
        script = require(adapter_for(str(path)), SupportsEmulation).emulation_script()
        self._command = [*command, sys.executable, str(script), str(path), "1"]
        self._process: subprocess.Popen[bytes] | None = None
        self._log: Any = None
        self._features: tuple[str, ...] = ()
        self.runs: list[tuple[Feed, list[Any]]] = []
        self.samples = 0

    @property
    def features(self) -> tuple[str, ...]:
        """Return the instruction sets that the process sees, as numpy calls them."""
        self._started()
        return self._features

    def _started(self) -> subprocess.Popen[bytes]:
        """Return the process, which is started when it is first needed."""
        if self._process is None:
            self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
            self._process = subprocess.Popen(  # nosec B603
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log
            )
            self._features = tuple(self._receive(self._process))
        return self._process

    def run(self, names: Sequence[str] | None, feed: Feed) -> list[Any]:
        """Return the outputs of these names, or all of them."""
        if self._limit is not None and self.samples >= self._limit:
            raise SampleLimitReached
        process = self._started()
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # `_receive` says why the process ended
            pickle.dump(dict(feed), process.stdin)
            process.stdin.flush()
        answer = self._receive(process)
        if isinstance(answer, str):
            raise EvaluationError(f"the model fails on the emulated processor: {answer}")
        outputs = list(answer)
        if self.samples < RECORDED_SAMPLES:
            self.runs.append((feed, outputs))
        self.samples += _samples_in(feed, self._native)
        if self._progress is not None:
            self._progress(self.samples)
        if names is None:
            return outputs
        order = [output.name for output in self._native.session.get_outputs()]
        return [outputs[order.index(name)] for name in names]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native.session, name)

    def _receive(self, process: subprocess.Popen[bytes]) -> Any:
        assert process.stdout is not None
        try:
            return pickle.load(process.stdout)  # nosec B301
        except (EOFError, pickle.UnpicklingError):
            code = process.wait()
            self._log.seek(0)
            lines = self._log.read().decode(errors="replace").splitlines()
            message = "\n".join(line for line in lines if "warning: TCG" not in line)[-MESSAGE_TAIL:]
            raise EvaluationError(f"the emulated process ended with exit code {code}: {message}") from None

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


class EmulatedModel(Model):
    """A model whose inferences an `EmulatedSession` runs: what eval_func gets."""

    suffix = ""

    def __init__(self, native: Model, session: EmulatedSession) -> None:
        super().__init__(native.inputs, 1)
        self._native, self._session = native, session

    def chunks(self) -> Iterator[bytes | memoryview]:
        """Return the bytes of the complete model, piece by piece."""
        return self._native.chunks()

    def _open(self) -> EmulatedSession:
        raise EvaluationError("the emulated process was closed: eval_func must not close the model")

    def _outputs(self, feed: Feed) -> list[Any]:
        outputs: list[Any] = self.session.run(None, feed)
        return outputs


def _samples_in(feed: Feed, model: Model) -> int:
    """Return the number of samples of a feed: the length of the first open axis, or one."""
    for spec in model.inputs:
        if spec.shape and spec.shape[0] is None:
            return len(feed[spec.name])
    return 1
