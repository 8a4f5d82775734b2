"""Read where a saved model comes from: `read_provenance`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from quaver.adapters import abilities, adapter_for
from quaver.adapters.model_errors import as_model_error
from quaver.errors import ModelError
from quaver.files.paths import check_regular, expanded
from quaver.provenance import Provenance


def read_provenance(path: str | os.PathLike[str]) -> Provenance:
    """Read where a model that quaver saved comes from.

        quaver.read_provenance("model-int8.onnx").scores        # {"accuracy": 0.9812}

    Args:
        path: an .onnx, a .tflite or a .params file.

    Raises:
        ModelError: there is no such file, it is no model, or it has no provenance.
    """
    place = Path(expanded(path))
    if not place.exists():
        raise ModelError(f"no model at {os.fspath(path)!r}")
    check_regular(place, "the model", ModelError)
    kind = adapter_for(str(place))
    with as_model_error(f"the provenance in {os.fspath(path)!r}"):
        properties, model_hash = abilities.read_provenance(kind, place)
    if not properties:
        raise ModelError(
            f"{os.fspath(path)!r} does not say where it comes from: quaver did not write it, or the run had "
            "provenance=False, or its version of quaver did not write provenance yet"
        )
    return Provenance.from_properties(properties, model_hash)


def provenance_lines(provenance: Provenance) -> Iterator[str]:
    """Yield the provenance of a model for people, one line per fact."""
    built_with = _listed({"quaver": provenance.quaver, **provenance.versions})
    yield f"built with {built_with}"
    if provenance.producer:
        yield f"float model made by {provenance.producer}"
    yield f"float model fingerprint {provenance.float_model}"
    yield f"config fingerprint {provenance.config}"
    yield f"criterion: {_listed(provenance.criterion, ' = ')}"
    if provenance.scores:
        yield f"scores: {_listed(provenance.scores)} (fp32: {_listed(provenance.baseline)})"
    else:
        yield "scores: none, the run had no eval_func"
    if provenance.portable is not None:
        yield f"portable: {'yes' if provenance.portable else 'no'}"
    if provenance.inference_precision:
        except_for = f", except for {len(provenance.fp32_nodes)} nodes in fp32" if provenance.fp32_nodes else ""
        yield (
            f"float ops run in {provenance.inference_precision}{except_for}: the runtime must be told when it "
            "opens the file, or they run in fp32, slower"
        )
    yield f"model sha256 {provenance.model} ({_UNCHANGED[provenance.is_unchanged]})"


_UNCHANGED = {
    True: "unchanged since it was scored",
    False: "CHANGED: the model in the file is not the one that was scored",
    None: "whether it is unchanged cannot be told from this file",
}


def _listed(values: Mapping[str, object], between: str = " ") -> str:
    texts = (f"{value:.6g}" if isinstance(value, float) else str(value) for value in values.values())
    return ", ".join(f"{name}{between}{text}" for name, text in zip(values, texts, strict=True)) or "none"
