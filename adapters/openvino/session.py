"""Sessions of OpenVINO, all opened in one way: on the CPU, for latency, in a precision that is always stated."""

from __future__ import annotations

import functools
import io
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from quaver.adapters.data import InputSpec
from quaver.adapters.openvino.float_precision import hint_of, prepare
from quaver.errors import BuildError, SettingsError
from quaver.extras import install_command
from quaver.types import Array

DEVICE = "CPU"


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a session, with the attributes that ONNX Runtime's `NodeArg` has.

    Attributes:
        name: its name.
        shape: its sizes; None for one that the model leaves open.
        type: its type, such as "tensor(float)".
        dtype: the same as a numpy type.
    """

    name: str
    shape: tuple[int | None, ...]
    type: str
    dtype: np.dtype[Any]


class OpenVinoSession:
    """A compiled model that is called like an `onnxruntime.InferenceSession`.

    Attributes:
        compiled: OpenVINO's `CompiledModel`.
    """

    def __init__(self, compiled: Any) -> None:
        self.compiled = compiled
        self._request = compiled.create_infer_request()
        self._lock = threading.Lock()  # a request runs one inference at a time, and eval_func may use threads
        self._inputs = [_port(port) for port in compiled.inputs]
        self._outputs = [_port(port) for port in compiled.outputs]
        self._index = {port.name: index for index, port in enumerate(self._inputs)}
        self._dtypes = {port.name: port.dtype for port in self._inputs}

    def get_inputs(self) -> list[Port]:
        """Return the inputs, in order."""
        return list(self._inputs)

    def get_outputs(self) -> list[Port]:
        """Return the outputs, in order."""
        return list(self._outputs)

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Array], *_: Any) -> list[Array]:
        """Run a feed and return the outputs of these names; all for None.

        Raises:
            ValueError: if the feed has not the inputs of the model.
        """
        if input_feed.keys() != self._index.keys():
            raise ValueError(f"the model takes {sorted(self._index)}, and the feed holds {sorted(input_feed)}")
        arrays = {
            self._index[name]: np.ascontiguousarray(values, self._dtypes[name]).reshape(np.shape(values))
            for name, values in input_feed.items()
        }
        with self._lock:
            results = self._request.infer(arrays, share_inputs=True)
            outputs = [np.array(results[index]) for index in range(len(self._outputs))]
        if not output_names:
            return outputs
        by_name = {port.name: values for port, values in zip(self._outputs, outputs, strict=True)}
        return [by_name[name] for name in output_names]

    @property
    def kernel_seconds(self) -> dict[str, float]:
        """Return the seconds of each kernel in the last inference; the session must be opened with `profiling`."""
        return {entry.node_name: entry.real_time.total_seconds() for entry in self._request.profiling_info}


def open_session(
    model: bytes | Path, threads: int, folder: Path | None = None, profiling: bool = False
) -> OpenVinoSession:
    """Open a model as it is deployed, its float part in the precision that it was made for.

    Args:
        model: the model as bytes, or the path of its file.
        threads: threads of one inference; 0 lets OpenVINO decide.
        folder: the folder of large constants that are not in the bytes.
        profiling: record the time of each kernel.

    Raises:
        BuildError: if OpenVINO cannot load the model.
    """
    options: dict[str, Any] = {
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "PERF_COUNT": profiling,
    }
    with _readable(model, folder) as source:
        try:
            graph = prepare(core(), package(), core().read_model(source))
            options["INFERENCE_PRECISION_HINT"] = hint_of(graph)
            return OpenVinoSession(core().compile_model(graph, DEVICE, options))
        except Exception as error:
            raise BuildError(f"OpenVINO cannot load the model: {_reason(error)}") from error


def core() -> Any:
    """Return the entry point of OpenVINO in this process. A forked child gets one of its own.

    Raises:
        SettingsError: if OpenVINO is not installed.
    """
    return _core(os.getpid())


@functools.lru_cache(maxsize=1)
def _core(process: int) -> Any:
    return package().Core()


def package() -> Any:
    """Return the package `openvino`.

    Raises:
        SettingsError: if it is not installed.
    """
    os.environ.setdefault("OPENVINO_TELEMETRY_DISABLE", "1")
    try:
        import openvino
    except ImportError as error:
        raise SettingsError(
            f'runtime="openvino" needs the package openvino, which cannot be imported ({error}): '
            f"{install_command('openvino')}"
        ) from error
    return openvino


def input_specs(session: OpenVinoSession) -> tuple[InputSpec, ...]:
    """Return what a model takes, as its session describes it."""
    return tuple(InputSpec(port.name, port.dtype, port.shape) for port in session.get_inputs())


@contextmanager
def _readable(model: bytes | Path, folder: Path | None) -> Iterator[Any]:
    """Yield what OpenVINO reads. It finds large constants only beside a file, so bytes are written to one."""
    if isinstance(model, Path) or folder is None or not folder.is_dir():
        yield model if isinstance(model, Path) else io.BytesIO(model)
        return
    descriptor, name = tempfile.mkstemp(suffix=".onnx", prefix="opened_", dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(model)
        yield Path(name)
    finally:
        os.unlink(name)


def _port(port: Any) -> Port:
    shape = tuple(size.get_length() if size.is_static else None for size in port.get_partial_shape())
    dtype = np.dtype(port.get_element_type().to_dtype())
    kind = {"float32": "float", "float64": "double"}.get(dtype.name, dtype.name)
    return Port(port.get_any_name(), shape, f"tensor({kind})", dtype)


def _reason(error: Exception) -> str:
    """Return the line of an OpenVINO error that says what is wrong, without the places in its source."""
    lines = [line.strip() for line in str(error).splitlines()]
    telling = [line for line in lines if line and not line.startswith(("Exception from", "Check '"))]
    return " ".join(telling)[:500] or type(error).__name__
