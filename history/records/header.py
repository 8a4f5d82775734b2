"""Records of the header and of runs.

The header holds the model and its calibration. A run is one `fit`, new or resumed; its record holds the settings and
package versions that its trials were made with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from quaver.history.pickle_check import MalformedRecord
from quaver.history.records.choices import from_choice, from_indexes, to_choices, to_indexes, utf8
from quaver.history.records.fields import Fields, plain, versions
from quaver.ops import Op, OpConfig
from quaver.types import PlainDict, PlainMapping


@dataclass(frozen=True, slots=True)
class Run:
    """One `fit` that recorded trials.

    Attributes:
        number: 1 for the run that began the history; 0 if the record of the run is missing.
        started: ISO time.
        settings: criterion, strategy, rules, objective, seed, threads and the others, as plain data.
        versions: package name -> version, of the packages that the models depend on.
    """

    number: int
    started: str
    settings: PlainDict
    versions: dict[str, str]


def from_run(run: Run) -> PlainDict:
    """Return the record of a run."""
    return {
        "kind": "run",
        "number": run.number,
        "started": run.started,
        "settings": plain(run.settings, "settings"),
        "versions": run.versions,
    }


def to_run(record: PlainDict) -> Run:
    """Return the run in a record."""
    fields = Fields(record, "run")
    run = Run(
        number=fields.take("number", int),
        started=fields.take("started", str),
        settings=fields.take("settings", dict),
        versions=versions(fields.take("versions", dict)),
    )
    fields.done()
    return run


# 1: the header holds settings and versions, trials hold loss and verdict, and a note is written as a whole.
# 2: separate records for runs, figures measured later, and items added to a note. Later versions of quaver also record
#    trials that are begun, and write header and runs twice.
# 3: records as in schema 2, in a file that `pickle.load` reads record by record.
SCHEMA = 3
# Judgement: choices of all ops in one header. A file of one byte per choice must not fill the memory.
MAX_CHOICES = 1_000_000
# Judgement: repairs that one op may offer; adapters offer fewer than ten.
MAX_REPAIRS = 1000


class NewerSchema(MalformedRecord):
    """The snapshot was written by a later version of quaver."""


# The calibration of a run without calibration data.
UNCALIBRATED: PlainMapping = MappingProxyType({"ranges": {}})

# Keys of the calibration that describe the float model and its ops rather than ranges.
COMPARISON_KEY = "comparison"
OPS_VERSION_KEY = "ops_version"


@dataclass(frozen=True, slots=True)
class Header:
    """The data that `recover` needs to rebuild any trial without the calibration samples.

    Attributes:
        model_fingerprint: the fingerprint of the float model; a snapshot of another model is refused.
        adapter: the name of the adapter that wrote it.
        ops: the model's ops; trials store their choices in this order.
        calibration: the adapter's calibration result, as plain data. Large arrays are `bytes`, not lists.
        created: ISO time.
    """

    model_fingerprint: str
    adapter: str
    ops: tuple[Op, ...]
    calibration: PlainDict
    created: str

    @property
    def calibrated(self) -> bool:
        """True if there was calibration data."""
        described = {COMPARISON_KEY, OPS_VERSION_KEY}
        return {name: part for name, part in self.calibration.items() if name not in described} != UNCALIBRATED


class Opening(NamedTuple):
    """The content of a snapshot's first record.

    Attributes:
        header: what the trials belong to.
        schema: the schema in which the file was begun. A resumed file continues with records of the newest schema.
        run: the first run, if this schema has it in the header.
    """

    header: Header
    schema: int
    run: Run | None


def from_header(header: Header) -> PlainDict:
    """Return the record of a header. Distinct choices are stored once; each op holds indexes into them."""
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
    """Return the header in a record, whose schema this version must know."""
    fields = Fields(record, "header")
    schema = fields.take("schema", int)
    if schema > SCHEMA:
        raise NewerSchema(f"it has schema {schema}, and this version of quaver knows schemas up to {SCHEMA}")
    if schema < 1:
        raise MalformedRecord(f"field 'schema' must be at least 1, not {schema}")
    choices = to_choices(fields.take("choices", list))
    ops = fields.take("ops", list)
    _check_ops(ops)
    repairs = _to_repairs(fields.take("repairs", dict) if "repairs" in fields else {})
    smaller = _to_smaller(fields.take("smaller", dict) if "smaller" in fields else {}, choices)
    header = Header(
        model_fingerprint=fields.take("model_fingerprint", str),
        adapter=fields.take("adapter", str),
        ops=tuple(_to_op(item, f"ops[{index}]", choices, repairs, smaller) for index, item in enumerate(ops)),
        calibration=fields.take("calibration", dict),
        created=fields.take("created", str),
    )
    run = None
    if schema == 1:
        run = Run(1, header.created, fields.take("settings", dict), versions(fields.take("versions", dict)))
    fields.done()
    if len({op.name for op in header.ops}) != len(header.ops):
        raise MalformedRecord("field 'ops' holds two ops of the same name")
    return Opening(header, schema, run)


def _check_ops(items: list[object]) -> None:
    """Bound the number of choices before a byte or two of the file become an object each."""
    total = 0
    for index, item in enumerate(items):
        if type(item) is not tuple or [type(part) for part in item] != [str, str, tuple, bytes]:
            raise MalformedRecord(f"ops[{index}] must be a tuple of str, str, tuple, bytes")
        total += len(item[3])
    if total > MAX_CHOICES:
        raise MalformedRecord(f"field 'ops' holds {total:,} choices, more than {MAX_CHOICES:,}")


def _to_repairs(items: PlainDict) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return the tensor that repairs apply to and the repairs on offer, by op."""
    for name, item in items.items():
        if type(item) is not tuple or [type(part) for part in item] != [str, tuple]:
            raise MalformedRecord(f"the repairs of op {name!r:.80} must be a tuple of str, tuple")
        if len(item[1]) > MAX_REPAIRS or any(type(spelled) is not str for spelled in item[1]):
            raise MalformedRecord(f"the repairs of op {name!r:.80} must be str, and no more than {MAX_REPAIRS}")
    return items


def _to_smaller(items: PlainDict, choices: list[OpConfig]) -> dict[str, tuple[OpConfig, ...]]:
    """Return the choices that only make the file smaller, by op."""
    if any(type(picks) is not bytes for picks in items.values()) or sum(map(len, items.values())) > MAX_CHOICES:
        raise MalformedRecord(f"field 'smaller' must hold bytes, and no more than {MAX_CHOICES:,} choices")
    return {
        name: tuple(choices[pick] for pick in to_indexes(picks, len(choices), "smaller"))
        for name, picks in items.items()
    }


def _to_op(
    item: tuple[str, str, tuple[str, ...], bytes],
    field: str,
    choices: list[OpConfig],
    repairs: Mapping[str, tuple[str, tuple[str, ...]]],
    smaller: Mapping[str, tuple[OpConfig, ...]],
) -> Op:
    name, kind, nodes, picks = item
    if any(type(node) is not str for node in nodes):
        raise MalformedRecord(f"the nodes of {field} must be str")
    offered = tuple(choices[pick] for pick in to_indexes(picks, len(choices), field))
    reads, repaired = repairs.get(name, ("", ()))
    return Op(utf8(name, field), kind, nodes, offered, repaired, reads, smaller.get(name, ()))
