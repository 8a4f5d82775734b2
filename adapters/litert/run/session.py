"""Interpreters of LiteRT, all made in one way: with XNNPACK, as a deployed model has it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from threading import Lock
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from numpy.typing import NDArray

from quaver.adapters.batches import Feed
from quaver.errors import BuildError

PLAIN = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES


class Session:
    """An interpreter that is fed by name, with arrays of any batch size the model takes.

    `keep_all` makes every tensor readable after a run; each operator then is a delegate of its own, with the same
    kernels. `plain` leaves XNNPACK out.
    """

    def __init__(
        self, content: bytes, inputs: Sequence[str], threads: int = 0, keep_all: bool = False, plain: bool = False
    ) -> None:
        self._inputs = tuple(inputs)
        self._lock = Lock()
        self._shapes: tuple[tuple[int, ...], ...] | None = None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # that keeping all tensors takes memory
                self.interpreter: Any = Interpreter(
                    model_content=content,
                    num_threads=threads or None,
                    experimental_preserve_all_tensors=keep_all,
                    experimental_op_resolver_type=PLAIN if plain else OpResolverType.AUTO,
                )
            self.interpreter.allocate_tensors()
        except (RuntimeError, ValueError) as error:
            raise BuildError(f"LiteRT cannot load the model: {error}") from error
        self.slots = [entry["index"] for entry in self.interpreter.get_input_details()]
        self.outputs = [entry["index"] for entry in self.interpreter.get_output_details()]

    def run(self, feed: Feed) -> list[NDArray[Any]]:
        """All outputs, as arrays of their own."""
        with self._lock:
            self.invoke(feed)
            return [self.interpreter.get_tensor(index) for index in self.outputs]

    def invoke(self, feed: Feed) -> None:
        """Run without reading anything."""
        arrays = [np.asarray(feed[name], order="C") for name in self._inputs]
        shapes = tuple(array.shape for array in arrays)
        if shapes != self._shapes:
            self._resize(shapes)
        try:
            self._feed(arrays)
        except ValueError:  # the user resized the interpreter meanwhile
            self._resize(shapes)
            self._feed(arrays)
        self.interpreter.invoke()

    def _feed(self, arrays: Sequence[NDArray[Any]]) -> None:
        # The state of recurrent layers would go on from the sample before.
        self.interpreter.reset_all_variables()
        for index, array in zip(self.slots, arrays, strict=True):
            self.interpreter.set_tensor(index, array)

    def _resize(self, shapes: tuple[tuple[int, ...], ...]) -> None:
        self._shapes = None
        for index, shape in zip(self.slots, shapes, strict=True):
            self.interpreter.resize_tensor_input(index, shape)
        self.interpreter.allocate_tensors()
        self._shapes = shapes
