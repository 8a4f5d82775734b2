"""A run: one `fit`, new or resumed. Its record tells by which settings and with which packages trials were made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from quaver.history.pickle_check import Malformed
from quaver.history.records.choices import from_choice, from_indexes, to_choices, to_indexes, utf8
from quaver.history.records.fields import Fields, plain, versions
from quaver.ops import Op, OpConfig
from quaver.types import PlainDict, PlainMapping


@dataclass(frozen=True, slots=True)
class Run:
    """One `fit` that recorded trials.

    Attributes:
        number: 1 for the run that began the history; 0 stands for one whose record is not there.
        started: ISO time.
        settings: criterion, strategy, rules, objective, seed, threads, ..., as plain data.
        versions: package name -> version, of what the models depend on.
    """

    number: int
    started: str
    settings: PlainDict
    versions: dict[str, str]


def from_run(run: Run) -> PlainDict:
    """The record of a run."""
    return {
        "kind": "run",
        "number": run.number,
        "started": run.started,
        "settings": plain(run.settings, "settings"),
        "versions": run.versions,
    }


def to_run(record: PlainDict) -> Run:
    """The run in a record."""
    taken = Fields(record, "run")
    run = Run(
        number=taken.take("number", int),
        started=taken.take("started", str),
        settings=taken.take("settings", dict),
        versions=versions(taken.take("versions", dict)),
    )
    taken.done()
    return run


# 1: settings and versions stand in the header, loss and verdict in the trials, and each note is written as a whole.
# 2: a record for each run, for figures that are measured later and for what is added to a note; later also for trials
#    that are begun, and header and runs twice.
SCHEMA = 2
# Ways to run ops in one header, all ops together.
MAX_CHOICES = 1_000_000
# Repairs that one op may offer.
MAX_REPAIRS = 1000


class NewerSchema(Malformed):
    """The snapshot was written by a later version."""


# The calibration of a run without calibration data.
UNCALIBRATED: PlainMapping = MappingProxyType({"ranges": {}})


@dataclass(frozen=True, slots=True)
class Header:
    """What `recover` needs to rebuild any trial without the calibration data.

    Attributes:
        model_fingerprint: of the float model, so that a snapshot of another model is refused.
        adapter: the name of the adapter that wrote it.
        ops: the model's ops; trials store their choices in this order.
        calibration: the adapter's calibration result, as plain data. Large arrays belong in `bytes`, not in lists.
        created: ISO time.
    """

    model_fingerprint: str
    adapter: str
    ops: tuple[Op, ...]
    calibration: PlainDict
    created: str

    @property
    def calibrated(self) -> bool:
        """Whether there was calibration data."""
        return {name: part for name, part in self.calibration.items() if name != "comparison"} != UNCALIBRATED


class Opening(NamedTuple):
    """What the first record of a snapshot holds.

    Attributes:
        header: what the trials belong to.
        schema: how the file was begun. A resumed file goes on in the newest schema.
        run: the first run, where the schema has it in the header.
    """

    header: Header
    schema: int
    run: Run | None


def from_header(header: Header) -> PlainDict:
    """The record of a header. Choices are stored once; each op holds indexes into them."""
    table: dict[OpConfig, int] = {}
    picks = [[table.setdefault(choice, len(table)) for choice in op.choices] for op in header.ops]
    repairs = {op.name: (op.reads, tuple(op.repairs)) for op in header.ops if op.repairs}
    smaller = {
        op.name: [table.setdefault(choice, len(table)) for choice in op.smaller] for op in header.ops if op.smaller
    }
    return {
        "kind": "header",
        "schema": SCHEMA,
        "model_fingerprint": header.model_fingerprint,
        "adapter": header.adapter,
        "choices": [from_choice(choice) for choice in table],
        "ops": [
            (op.name, op.kind, tuple(op.nodes), from_indexes(pick, len(table)))
            for op, pick in zip(header.ops, picks, strict=True)
        ],
        "calibration": plain(header.calibration, "calibration"),
        "created": header.created,
        **({"repairs": repairs} if repairs else {}),
        **({"smaller": {name: from_indexes(pick, len(table)) for name, pick in smaller.items()}} if smaller else {}),
    }


def to_header(record: PlainDict) -> Opening:
    """The header in a record, whose schema this version must know."""
    taken = Fields(record, "header")
    schema = taken.take("schema", int)
    if schema > SCHEMA:
        raise NewerSchema(f"it has schema {schema}, and this version of quaver knows schemas up to {SCHEMA}")
    if schema < 1:
        raise Malformed(f"field 'schema' must be at least 1, not {schema}")
    choices = to_choices(taken.take("choices", list))
    ops = taken.take("ops", list)
    _check_ops(ops)
    repairs = _to_repairs(taken.take("repairs", dict) if "repairs" in taken else {})
    smaller = _to_smaller(taken.take("smaller", dict) if "smaller" in taken else {}, choices)
    header = Header(
        model_fingerprint=taken.take("model_fingerprint", str),
        adapter=taken.take("adapter", str),
        ops=tuple(_to_op(item, f"ops[{index}]", choices, repairs, smaller) for index, item in enumerate(ops)),
        calibration=taken.take("calibration", dict),
        created=taken.take("created", str),
    )
    run = None
    if schema == 1:
        run = Run(1, header.created, taken.take("settings", dict), versions(taken.take("versions", dict)))
    taken.done()
    if len({op.name for op in header.ops}) != len(header.ops):
        raise Malformed("field 'ops' holds two ops of the same name")
    return Opening(header, schema, run)


def _check_ops(items: list[Any]) -> None:
    """Before choices are spread over ops: a byte or two of the file become an entry each."""
    spread = 0
    for index, item in enumerate(items):
        if type(item) is not tuple or [type(part) for part in item] != [str, str, tuple, bytes]:
            raise Malformed(f"ops[{index}] must be a tuple of str, str, tuple, bytes")
        spread += len(item[3])
    if spread > MAX_CHOICES:
        raise Malformed(f"field 'ops' holds {spread:,} choices, more than {MAX_CHOICES:,}")


def _to_repairs(items: dict[Any, Any]) -> dict[str, tuple[str, tuple[str, ...]]]:
    """By op, the tensor that repairs are about, and those on offer."""
    for name, item in items.items():
        if type(item) is not tuple or [type(part) for part in item] != [str, tuple]:
            raise Malformed(f"the repairs of op {name!r:.80} must be a tuple of str, tuple")
        if len(item[1]) > MAX_REPAIRS or any(type(spelled) is not str for spelled in item[1]):
            raise Malformed(f"the repairs of op {name!r:.80} must be str, and no more than {MAX_REPAIRS}")
    return items


def _to_smaller(items: dict[Any, Any], choices: list[OpConfig]) -> dict[str, tuple[OpConfig, ...]]:
    """By op, the choices that only make the file smaller."""
    if any(type(picks) is not bytes for picks in items.values()) or sum(map(len, items.values())) > MAX_CHOICES:
        raise Malformed(f"field 'smaller' must hold bytes, and no more than {MAX_CHOICES:,} choices")
    return {
        name: tuple(choices[pick] for pick in to_indexes(picks, len(choices), "smaller"))
        for name, picks in items.items()
    }


def _to_op(
    item: tuple[Any, ...],
    field: str,
    choices: list[OpConfig],
    repairs: Mapping[str, tuple[str, tuple[str, ...]]],
    smaller: Mapping[str, tuple[OpConfig, ...]],
) -> Op:
    name, kind, nodes, picks = item
    if any(type(node) is not str for node in nodes):
        raise Malformed(f"the nodes of {field} must be str")
    offered = tuple(choices[pick] for pick in to_indexes(picks, len(choices), field))
    reads, repaired = repairs.get(name, ("", ()))
    return Op(utf8(name, field), kind, nodes, offered, repaired, reads, smaller.get(name, ()))
