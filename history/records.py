"""Header, trials and notes to plain builtins and back, with every field checked.

What is about to be written is checked by the code that reads, so nothing can be written that would be refused later.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from quaver.history.choices import from_choice, from_indexes, to_choices, to_indexes, utf8
from quaver.history.frames import MAX_DEPTH, Malformed
from quaver.ops import Op, OpConfig, QuantConfig
from quaver.trial import Trial, TrialState

SCHEMA = 1

_ATOMS = frozenset((str, float, bool, bytes, type(None)))


class NewerSchema(Malformed):
    """The snapshot was written by a later version."""


@dataclass(frozen=True, slots=True)
class Header:
    """What `recover` needs to rebuild any trial without the calibration data.

    Attributes:
        model_fingerprint: of the float model, so that a snapshot of another model is refused.
        adapter: the name of the adapter that wrote it.
        versions: package name -> version, of what the models depend on.
        settings: the settings of the run, as plain data.
        ops: the model's ops; trials store their choices in this order.
        calibration: the adapter's calibration result, as plain data. Large arrays belong in `bytes`, not in lists.
        created: ISO time.
    """

    model_fingerprint: str
    adapter: str
    versions: dict[str, str]
    settings: dict[str, Any]
    ops: tuple[Op, ...]
    calibration: dict[str, Any]
    created: str


def plain(value: Any, field: str, depth: int = MAX_DEPTH - 4) -> Any:
    """A copy of `value` if it is made of builtins alone, else `Malformed` that names the part which is not."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is int:
        if value.bit_length() > 1024:
            raise Malformed(f"{field} is an int of {value.bit_length()} bits, more than 1024")
        return value
    if kind not in (list, tuple, dict):
        raise Malformed(f"{field} must be made of plain builtins, not {_type_name(value)}")
    if depth == 0:
        raise Malformed(f"{field:.200} is nested more than {MAX_DEPTH - 4} deep, or holds itself")
    if kind is dict:
        copy = {}
        for key, item in value.items():
            if type(key) not in (str, int):
                raise Malformed(f"{field} must have keys of type str or int, not {_type_name(key)}")
            where = f"{field}[{plain(key, f'a key of {field}')!r:.80}]"
            copy[key] = plain(item, where, depth - 1)
        return copy
    return kind(
        item if type(item) in _ATOMS else plain(item, f"{field}[{index}]", depth - 1)
        for index, item in enumerate(value)
    )


def from_header(header: Header) -> dict[str, Any]:
    """The record of a header. Choices are stored once; each op holds indexes into them."""
    table: dict[OpConfig, int] = {}
    picks = [[table.setdefault(choice, len(table)) for choice in op.choices] for op in header.ops]
    return {
        "kind": "header",
        "schema": SCHEMA,
        "model_fingerprint": header.model_fingerprint,
        "adapter": header.adapter,
        "versions": header.versions,
        "settings": header.settings,
        "choices": [from_choice(choice) for choice in table],
        "ops": [
            (op.name, op.kind, tuple(op.nodes), from_indexes(pick, len(table)))
            for op, pick in zip(header.ops, picks, strict=True)
        ],
        "calibration": header.calibration,
        "created": header.created,
    }


def to_header(record: dict[str, Any]) -> Header:
    """The header in a record, whose schema this version must know."""
    taken = _Fields(record, "header")
    schema = taken.take("schema", int)
    if schema > SCHEMA:
        raise NewerSchema(f"it has schema {schema}, and this version of quaver knows schemas up to {SCHEMA}")
    if schema < 1:
        raise Malformed(f"field 'schema' must be at least 1, not {schema}")
    choices = to_choices(taken.take("choices", list))
    header = Header(
        model_fingerprint=taken.take("model_fingerprint", str),
        adapter=taken.take("adapter", str),
        versions=plain(taken.take("versions", dict), "versions"),
        settings=plain(taken.take("settings", dict), "settings"),
        ops=tuple(_to_op(item, f"ops[{index}]", choices) for index, item in enumerate(taken.take("ops", list))),
        calibration=plain(taken.take("calibration", dict), "calibration"),
        created=taken.take("created", str),
    )
    taken.done()
    for name, version in header.versions.items():
        if type(name) is not str or type(version) is not str:
            raise Malformed(f"versions[{name!r}] must be a str under a str")
    if len({op.name for op in header.ops}) != len(header.ops):
        raise Malformed("field 'ops' holds two ops of the same name")
    return header


def from_trial(trial: Trial, names: Sequence[str]) -> dict[str, Any]:
    """The record of a trial. Its config becomes the distinct choices and one index an op, in the order of `names`."""
    if len(trial.config) != len(names) or any(name not in trial.config for name in names):
        raise Malformed("its config does not cover exactly the ops of the header")
    table: dict[OpConfig, int] = {}
    indexes = [table.setdefault(trial.config[name], len(table)) for name in names]
    return {
        "kind": "trial",
        "number": trial.number,
        "state": str(trial.state),
        "choices": [from_choice(choice) for choice in table],
        "picks": from_indexes(indexes, len(table)),
        "score": _from_number(trial.score),
        "loss": _from_number(trial.loss),
        "met": trial.met,
        "seconds": _from_number(trial.seconds),
        "build_seconds": _from_number(trial.build_seconds),
        "model_hash": trial.model_hash,
        "model_size": trial.model_size,
        "measured": {name: _from_number(value) for name, value in trial.measured.items()},
        "error": trial.error,
    }


def to_trial(record: dict[str, Any], names: Sequence[str]) -> Trial:
    """The trial in a record, its config spread over the ops of the header."""
    taken = _Fields(record, "trial")
    choices = to_choices(taken.take("choices", list))
    picks = to_indexes(taken.take("picks", bytes), len(choices), "picks")
    if len(picks) != len(names):
        raise Malformed(f"field 'picks' is for {len(picks)} ops, and the header has {len(names)}")
    state = taken.take("state", str)
    if state not in set(TrialState):
        raise Malformed(f"field 'state' must be one of {', '.join(TrialState)}, not {state!r:.80}")
    trial = Trial(
        number=taken.take("number", int),
        config=QuantConfig(zip(names, (choices[pick] for pick in picks), strict=True)),
        state=TrialState(state),
        score=taken.take("score", float, type(None)),
        loss=taken.take("loss", float, type(None)),
        met=taken.take("met", bool),
        seconds=taken.take("seconds", float),
        build_seconds=taken.take("build_seconds", float),
        model_hash=taken.take("model_hash", str),
        model_size=taken.take("model_size", int),
        measured=plain(taken.take("measured", dict), "measured"),
        error=taken.take("error", str, type(None)),
    )
    taken.done()
    _check_trial(trial)
    return trial


def from_note(name: str, data: Any) -> dict[str, Any]:
    """The record of a note."""
    return {"kind": "note", "name": name, "data": data}


def to_note(record: dict[str, Any]) -> tuple[str, Any]:
    """The name and the data of a note."""
    taken = _Fields(record, "note")
    name = taken.take("name", str)
    data = plain(taken.any("data"), "data")
    taken.done()
    return name, data


def _check_trial(trial: Trial) -> None:
    if not 0 <= trial.number < 2**63 or not 0 <= trial.model_size < 2**63:
        raise Malformed("fields 'number' and 'model_size' must be 0 or more")
    if not trial.failed and trial.score is None:
        raise Malformed("field 'score' must be a float, because the trial is complete")
    if not trial.failed and trial.loss is None and trial.number > 0:
        raise Malformed("field 'loss' must be a float, because the trial is complete")
    if trial.score is not None and not math.isfinite(trial.score):
        raise Malformed(f"field 'score' must be finite, not {trial.score}; without a usable score the trial has failed")
    for name, value in trial.measured.items():
        if type(name) is not str or type(value) is not float:
            raise Malformed(f"measured[{name!r:.80}] must be a float under a str, not {_type_name(value)}")


class _Fields:
    """Takes the fields out of one record, each exactly once and of the right type."""

    def __init__(self, record: dict[str, Any], kind: str) -> None:
        self._left = {name: value for name, value in record.items() if name != "kind"}
        self._kind = kind

    def any(self, name: str) -> Any:
        if name not in self._left:
            raise Malformed(f"field {name!r} of the {self._kind} is missing")
        return self._left.pop(name)

    def take(self, name: str, *types: type) -> Any:
        value = self.any(name)
        if type(value) not in types:
            wanted = " or ".join("None" if kind is type(None) else kind.__name__ for kind in types)
            raise Malformed(f"field {name!r} of the {self._kind} must be {wanted}, not {_type_name(value)}")
        return plain(value, name) if type(value) is int else value

    def done(self) -> None:
        if self._left:
            raise Malformed(f"field {next(iter(self._left))!r:.80} of the {self._kind} is not known")


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _from_number(value: Any) -> Any:
    """An int where a float is meant, as a float; all else is left for the check."""
    return float(value) if type(value) is int and value.bit_length() <= 1023 else value


def _to_op(item: Any, field: str, choices: list[OpConfig]) -> Op:
    if type(item) is not tuple or [type(part) for part in item] != [str, str, tuple, bytes]:
        raise Malformed(f"{field} must be a tuple of str, str, tuple, bytes")
    name, kind, nodes, picks = item
    if any(type(node) is not str for node in nodes):
        raise Malformed(f"the nodes of {field} must be str")
    return Op(utf8(name, field), kind, nodes, tuple(choices[pick] for pick in to_indexes(picks, len(choices), field)))
