"""A LiteRT model with the tensors and the session that evaluation code for TensorFlow's graphs uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quaver.adapters import Model
from quaver.errors import SettingsError


@dataclass(frozen=True, slots=True)
class GraphTensor:
    """An input or output of a model: a key of `feed_dict`, and what `sess.run` fetches."""

    name: str


class GraphSession:
    """Runs a model as a session of TensorFlow does."""

    def __init__(self, model: Model, inputs: Sequence[GraphTensor], outputs: Sequence[GraphTensor]) -> None:
        self._model, self._inputs, self._outputs = model, inputs, outputs

    def run(self, fetches: Any, feed_dict: Mapping[Any, Any] | None = None) -> Any:
        """Run the model on {input: array}. One output comes as an array, a list of outputs as a list."""
        feed = {_name_of(tensor): array for tensor, array in (feed_dict or {}).items()}
        results = self._model(**{tensor.name: feed[tensor.name] for tensor in self._inputs if tensor.name in feed})
        names = [tensor.name for tensor in self._outputs]
        arrays = dict(zip(names, results if isinstance(results, list) else [results], strict=True))
        wanted = fetches if isinstance(fetches, list | tuple) else [fetches]
        unknown = [name for name in map(_name_of, wanted) if name not in arrays]
        if unknown:
            raise SettingsError(
                f"sess.run cannot fetch {unknown[0]!r}: a quantized model has only its outputs, {', '.join(names)}"
            )
        values = [arrays[_name_of(tensor)] for tensor in wanted]
        return values if isinstance(fetches, list | tuple) else values[0]


class GraphView:
    """The attributes of Neural Compressor's model of a TensorFlow graph.

    Attributes:
        input_tensor: the inputs.
        output_tensor: the outputs.
        sess: what runs the model.
    """

    names = ("input_tensor", "output_tensor", "input_tensor_names", "output_tensor_names", "sess")

    def __init__(self, model: Any) -> None:
        self.input_tensor_names = [spec.name for spec in model.inputs]
        self.output_tensor_names = [entry["name"] for entry in model.interpreter.get_output_details()]
        self.input_tensor = [GraphTensor(name) for name in self.input_tensor_names]
        self.output_tensor = [GraphTensor(name) for name in self.output_tensor_names]
        self.sess = GraphSession(model, self.input_tensor, self.output_tensor)


def _name_of(tensor: Any) -> str:
    """Return the name of a tensor; names of TensorFlow end in the number of the output."""
    return str(getattr(tensor, "name", tensor)).removesuffix(":0")
