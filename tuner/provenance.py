"""The provenance of a saved model, which is stored in its file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from quaver.errors import ModelError
from quaver.types import PlainDict, PlainMapping

# Names of all properties start so; others in a file are the user's own.
PREFIX = "quaver."
# Written by the adapters of formats that name a producer, which is then quaver.
# Part of a model with bf16: the precision of its float part, and the nodes that stay fp32.
INFERENCE_PRECISION, FP32_NODES = f"{PREFIX}inference_precision", f"{PREFIX}fp32_nodes"
ORIGINAL_NAME, ORIGINAL_VERSION = f"{PREFIX}original_producer_name", f"{PREFIX}original_producer_version"


@dataclass(frozen=True, slots=True)
class Provenance:
    """The origin of a saved model. It holds nothing that differs between two equal runs: no time, path or run.

    Attributes:
        quaver: the version of quaver that built the model.
        float_model: fingerprint of the float model, as in the header of the history.
        config: fingerprint of the model's `QuantConfig`.
        model: sha256 of the model as it was scored, without provenance: `Trial.model_hash` in the history.
        criterion: the settings that make up the accuracy criterion or the target budget, such as {"relative": 0.01}.
        baseline: scores of the fp32 model by metric ("score" if it has no name); empty if nothing was evaluated.
        scores: scores of this model by metric.
        versions: package name -> version, of what the model was built with.
        portable: the setting `portable` of the run; None if the run had no such setting.
        producer: the producer of the float model, as its file names it; empty if it names none.
        inference_precision: "bf16" if float ops must run in bf16 for these scores and times: the runtime has to be told
            when it opens the file. Empty if they run in fp32.
        fp32_nodes: then, the nodes that stay fp32 all the same.
        is_unchanged: whether the file still holds the model that was scored, bit by bit. None if that cannot be told,
            because another tool rewrote the file or its weights lie in a second file.
    """

    quaver: str
    float_model: str
    config: str
    model: str
    criterion: PlainMapping = field(default_factory=dict, hash=False)
    baseline: Mapping[str, float] = field(default_factory=dict, hash=False)
    scores: Mapping[str, float] = field(default_factory=dict, hash=False)
    versions: Mapping[str, str] = field(default_factory=dict, hash=False)
    portable: bool | None = None
    producer: str = ""
    inference_precision: str = ""
    fp32_nodes: tuple[str, ...] = ()
    is_unchanged: bool | None = None

    def to_properties(self) -> dict[str, str]:
        """Return the texts to write into a file, by name, mappings as JSON. Empty values are left out."""
        properties = {
            "version": self.quaver,
            "float_model": self.float_model,
            "config": self.config,
            "model": self.model,
            "criterion": _to_json(self.criterion),
            "baseline": _to_json(self.baseline),
            "scores": _to_json(self.scores),
            "versions": _to_json(self.versions),
            "portable": "" if self.portable is None else json.dumps(self.portable),
        }
        return {f"{PREFIX}{name}": text for name, text in properties.items() if text}

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], model_hash: str = "") -> Provenance:
        """Return the provenance in a file.

        Args:
            properties: text by name, as `to_properties` gives it, perhaps among properties of others.
            model_hash: sha256 of the model in the file without its provenance; empty if it cannot be told.

        Raises:
            ModelError: a property does not hold what it should.
        """
        model = properties.get(f"{PREFIX}model", "")
        original = properties.get(ORIGINAL_NAME, ""), properties.get(ORIGINAL_VERSION, "")
        portable = _from_json(properties, "portable", bool)
        return cls(
            quaver=properties.get(f"{PREFIX}version", ""),
            float_model=properties.get(f"{PREFIX}float_model", ""),
            config=properties.get(f"{PREFIX}config", ""),
            model=model,
            criterion=_from_json(properties, "criterion", dict) or {},
            baseline=_from_json(properties, "baseline", dict) or {},
            scores=_from_json(properties, "scores", dict) or {},
            versions=_from_json(properties, "versions", dict) or {},
            portable=portable,
            producer=" ".join(filter(None, original)),
            inference_precision=properties.get(INFERENCE_PRECISION, ""),
            fp32_nodes=tuple(map(str, _from_json(properties, FP32_NODES.removeprefix(PREFIX), list) or ())),
            is_unchanged=model_hash == model if model_hash and model else None,
        )

    def to_dict(self) -> PlainDict:
        """Return builtins, for JSON."""
        return {
            "quaver": self.quaver,
            "float_model": self.float_model,
            "config": self.config,
            "model": self.model,
            "criterion": dict(self.criterion),
            "baseline": dict(self.baseline),
            "scores": dict(self.scores),
            "versions": dict(self.versions),
            "portable": self.portable,
            "producer": self.producer,
            "inference_precision": self.inference_precision,
            "fp32_nodes": list(self.fp32_nodes),
            "is_unchanged": self.is_unchanged,
        }


def own_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return only the properties that quaver wrote."""
    return {name: text for name, text in properties.items() if name.startswith(PREFIX)}


def _to_json(values: PlainMapping) -> str:
    return json.dumps(dict(values), sort_keys=True, default=str) if values else ""


def _from_json(properties: Mapping[str, str], name: str, kind: type) -> Any:
    text = properties.get(f"{PREFIX}{name}", "")
    if not text:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, kind):
        raise ModelError(f"the property {PREFIX + name!r} of the model file is damaged: it holds {text!r:.80}")
    return value
