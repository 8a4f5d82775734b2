"""A snapshot is data. A forged one that would do more is refused before it does anything."""

from __future__ import annotations

import os
import pickle
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from history_samples import BASELINE, OPS, a_header, forged, payloads, record_sample

from quaver.errors import HistoryError
from quaver.history import FILE_NAME, History, read_snapshot
from quaver.history.frames import MAGIC, PICKLED, pack
from quaver.history.records.header import from_header
from quaver.history.records.trials import from_trial

PLACES = {op.name: place for place, op in enumerate(OPS)}


class Command:
    """Pickles as a call of os.system."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("place", ["instead of the header", "header", "run", "measured", "note", "items"])
def test_a_pickle_that_would_run_a_command_is_refused_and_nothing_runs(
    tmp_path: Path, protocol: int, place: str
) -> None:
    witness = tmp_path / "it-ran"
    path = tmp_path / FILE_NAME
    whole = record_sample(path)
    command = Command(f"touch {witness}")
    if place == "instead of the header":
        path.write_bytes(MAGIC + PICKLED.frame(pickle.dumps(command, protocol)))
    elif place == "header":
        path.write_bytes(
            MAGIC + PICKLED.frame(pickle.dumps({**from_header(a_header()), "calibration": command}, protocol))
        )
    else:
        inside = {"run": "settings", "measured": "figures", "note": "data", "items": "items"}[place]
        record = {"kind": place, "name": "n", "number": 3, inside: {"seed": command}}
        path.write_bytes(whole + PICKLED.frame(pickle.dumps(record, protocol)))
    before = path.read_bytes()
    for opens in (read_snapshot, History.resume):
        with pytest.raises(HistoryError, match=r"frame \d+ is refused.*Do not trust") as caught:
            opens(path)
        assert str(path) in str(caught.value)
    assert not witness.exists()
    assert path.read_bytes() == before
    pickle.loads(pickle.dumps(command, protocol))
    assert witness.exists(), "the command itself should have worked"


def nested(opening: bytes, closing: bytes, depth: int) -> bytes:
    return b"\x80\x04" + opening * depth + b"N" + closing * depth + b"."


LAUGHS = b"\x80\x04]\x94" + b"".join(b"](h" + bytes([n]) + b"h" + bytes([n]) + b"e\x94" for n in range(60)) + b"."

BOMBS = {
    "memo index of two billion": b"\x80\x04Nr\xff\xff\xff\x7f.",
    "memo index in text": b"\x80\x04Np2000000000\n.",
    "memo index of 255": b"\x80\x04Nq\xff.",
    "memoize": b"\x80\x04}\x94.",
    "billion laughs": LAUGHS,
    "a million lists in each other": nested(b"](", b"e", 10**6),
    "a million tuples in each other": nested(b"", b"\x85", 10**6),
    "a million tuples as a key": b"\x80\x04}" + b"N" + b"\x85" * 10**6 + b"Ns.",
    "a key of many tuples, by marks": b"\x80\x04}" + b"(" * 10**6 + b"t" * 10**6 + b"Ns.",
    "bytes of an exabyte": b"\x80\x04\x8e" + (2**60).to_bytes(8, "little") + b".",
    "bytes of two gigabytes": b"\x80\x04B\xff\xff\xff\x7f.",
    "text of two gigabytes": b"\x80\x04X\xff\xff\xff\x7f.",
    "a bytearray": b"\x80\x05\x96" + (2**40).to_bytes(8, "little") + b".",
    "an int of a megabyte": b"\x80\x04\x8b" + (2**20).to_bytes(4, "little") + b"\1" * 2**20 + b".",
    "a frame of an exabyte": b"\x80\x04\x95" + (2**60).to_bytes(8, "little") + b"N.",
    "a frame that ends in a value": b"\x80\x04\x95" + (4).to_bytes(8, "little") + b"}\x8c\x04kindNs.",
    "a frame in a frame that ends before it": b"\x80\x04"
    + b"".join(b"\x95" + size.to_bytes(8, "little") for size in (10, 2))
    + b"N.",
    "a frame of negative length": b"\x80\x04\x95" + b"\xff" * 8 + b"N.",
    "an int in text": b"\x80\x04I" + b"9" * 10**5 + b"\n.",
    "a global": b"\x80\x04cos\nsystem\n.",
    "a stack global": b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
    "an instance": b"(S'true'\nios\nsystem\n.",
    "an extension": b"\x80\x04\x82\1.",
    "a persistent id": b"\x80\x04NQ.",
    "a persistent id in text": b"Pid\n.",
    "a buffer": b"\x80\x05\x97.",
    "a set": b"\x80\x04\x8f.",
    "dup": b"\x80\x04}2.",
    "protocol 2": pickle.dumps({"kind": "header"}, 2),
    "two protocols": b"\x80\x04\x80\x04}.",
    "two values": b"\x80\x04}}.",
    "no value": b"\x80\x04.",
    "no end": b"\x80\x04}",
    "more after the end": b"\x80\x04}.}",
    "an open mark": b"\x80\x04(}.",
    "a list added to nothing": b"\x80\x04Na.",
    "an odd number of items": b"\x80\x04}(Nu.",
    "an unhashable key": b"\x80\x04}]Ns.",
    "a list": b"\x80\x04].",
    "nothing": b"",
    "text that is not utf-8": b"\x80\x04\x8c\x01\xff.",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_pickle_bomb_is_refused_without_time_or_memory(tmp_path: Path, name: str) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes(MAGIC + PICKLED.frame(BOMBS[name]))
    tracemalloc.start()
    started = time.perf_counter()
    try:
        with pytest.raises(HistoryError, match="frame 1 is refused"):
            read_snapshot(path)
        assert tracemalloc.get_traced_memory()[1] < 100 * 2**20
    finally:
        tracemalloc.stop()
    assert time.perf_counter() - started < 20


def header_with(**changes: Any) -> list[bytes]:
    return [forged({**from_header(a_header()), **changes})]


def trial_with(**changes: Any) -> list[bytes]:
    return [*header_with(), forged({**from_trial(BASELINE, PLACES), **changes})]


def old_header_with(**changes: Any) -> list[bytes]:
    old = {"schema": 1, "settings": {}, "versions": {}}
    return [forged({**from_header(a_header()), **old, **changes})]


def old_trial_with(**changes: Any) -> list[bytes]:
    return [*old_header_with(), forged({**from_trial(BASELINE, PLACES), "loss": 0.0, "met": True, **changes})]


def after_a_trial(kind: str, **fields: Any) -> list[bytes]:
    return [*trial_with(), forged({"kind": kind, **fields})]


def a_run_with(**changes: Any) -> list[bytes]:
    return after_a_trial("run", **{"number": 1, "started": "now", "settings": {}, "versions": {}, **changes})


CHOICE = ("int8", "minmax", "per_channel", "asym")
OP = ("/a", "Conv", ("/a",), b"\0")


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        (header_with(schema="1"), "frame 1 .*field 'schema' of the header must be int, not str"),
        (header_with(schema=0), "'schema' must be at least 1"),
        (header_with(adapter=None), "'adapter' of the header must be str, not NoneType"),
        (header_with(versions={}), "'versions' of the header is not known"),
        (old_header_with(versions={"a": 1}), r"versions\['a'\]"),
        (header_with(extra=1), "'extra' of the header is not known"),
        (header_with(ops=[("a", "b")]), r"ops\[0\] must be a tuple"),
        (header_with(ops=[("a", "b", (1,), b"")]), r"nodes of ops\[0\]"),
        (header_with(ops=[("a", "b", (), bytes(2**20))]), r"'ops' holds 1,048,576 choices, more than 1,000,000"),
        (header_with(ops=[("a", "b", (), b"\x09")]), r"ops\[0\] points to choice 9, and there are 3"),
        (header_with(ops=[OP, OP]), "two ops of the same name"),
        (header_with(ops=[("\udc80", *OP[1:])]), "not valid Unicode"),
        (header_with(choices=[CHOICE, CHOICE]), "same choice twice"),
        (header_with(choices=[CHOICE[:3]]), r"choices\[0\] must be a tuple of four str"),
        (
            header_with(choices=[(*CHOICE, "static")]),
            "must be a tuple of four str, or of five and a tuple",
        ),
        (header_with(choices=[(*CHOICE, 1, ())]), r"choices\[0\] must be a tuple"),
        (header_with(choices=[CHOICE, (*CHOICE, "static", ())]), "same choice twice"),
        (
            header_with(choices=[(*CHOICE, "lunar", ())]),
            r"choices\[0\]: unknown mode 'lunar'; known are static",
        ),
        (header_with(choices=[("fp32", "", "", "", "", ())]), r"choices\[0\]: unknown mode ''"),
        (header_with(choices=[(*CHOICE, "static", ["smooth"])]), r"repairs of choices\[0\] must be a tuple of str"),
        (header_with(choices=[(*CHOICE, "static", (1,))]), r"repairs of choices\[0\] must be a tuple of str"),
        (header_with(choices=[(*CHOICE, "static", ("a b",))]), r"repairs of choices\[0\] .* without spaces, not 'a b'"),
        (header_with(choices=[(*CHOICE, "static", ("",))]), "without spaces, not ''"),
        (header_with(choices=[(*CHOICE, "static", ("\udc80",))]), "not valid Unicode"),
        (header_with(choices=[("octal", *CHOICE[1:])]), r"choices\[0\]: 'octal' is not a precision"),
        (old_header_with(settings=[]), "'settings' of the header must be dict, not list"),
        (old_header_with(settings={b"a": 1}), "frame 1 .*keys are not of type str"),
        (header_with(calibration={"x": 2**2000}), "frame 1 .*an int of 2008 bits, more than 1024"),
        ([PICKLED.frame(header_with()[0][PICKLED.prefix_size :] + b"N.")], "more or less than one value"),
        (header_with(kind="trial"), "a header must come first"),
        (
            [*header_with(), *header_with(adapter="other")],
            "frame 2 .*a header must .*another cannot follow",
        ),
        ([*header_with(), forged({"kind": "model", "x": 1})], "'kind' must be header, run, .* or items, not 'model'"),
        ([*header_with(), forged({"kind": ["a"], "x": 1})], "'kind' must be"),
        ([*header_with(), forged({"name": "a", "data": 1})], "'kind' must be"),
        ([*header_with(), forged({"kind": "note", "data": 1})], "'name' of the note is missing"),
        ([*header_with(), forged({"kind": "note", "name": 1, "data": 1})], "'name' of the note must be str, not int"),
        (
            [*header_with(), forged({"kind": "note", "name": "a", "data": 1, "five": 5})],
            "'five' of the note is not known",
        ),
        (trial_with(number=-1), "frame 2 .*'number'"),
        (trial_with(number=True), "'number' of the trial must be int, not bool"),
        (trial_with(state="running"), "'state' must be one of complete, stopped, failed, unscored, not 'running'"),
        (trial_with(score=1), "'score' of the trial must be float or None, not int"),
        (trial_with(score=float("nan")), "'score' must be finite"),
        (trial_with(measured={1: 1.0}), "measured"),
        (trial_with(measured={"latency": "fast"}), r"measured\['latency'\] must be a float"),
        (trial_with(picks=b"\0"), "'picks' is for 1 ops, and the header has 3"),
        (trial_with(picks=b"\0\0\7"), "picks points to choice 7, and there are 1"),
        (trial_with(picks=[0, 0, 0]), "'picks' of the trial must be bytes, not list"),
        (trial_with(choices=[]), "picks points to choice 0, and there are 0"),
        ([*trial_with(number=1), *trial_with(number=1)[1:]], "frame 3 .*trial 1 is there already"),
        (trial_with(loss=0.0, met=True), "'loss' of the trial is not known"),
        (old_trial_with(loss=1), "'loss' of the trial must be float or None, not int"),
        (old_trial_with(met=1), "'met' of the trial must be bool, not int"),
        (old_trial_with(best=True), "'best' of the trial is not known"),
        ([*old_header_with(), *trial_with(met=True)[1:]], "'met' of the trial is not known"),
        ([*header_with(), forged({"kind": "measured", "number": 0, "figures": {}})], "frame 2 .*there is no trial 0"),
        (after_a_trial("measured", number=7, figures={}), "frame 3 .*there is no trial 7"),
        (after_a_trial("measured", number="0", figures={}), "'number' of the measured must be int, not str"),
        (after_a_trial("measured", number=0, figures=[]), "'figures' of the measured must be dict, not list"),
        (after_a_trial("measured", number=0, figures={"size": 1}), r"figures\['size'\] must be a float"),
        (after_a_trial("measured", number=0, figures={}, met=True), "'met' of the measured is not known"),
        (after_a_trial("measured", number=0), "'figures' of the measured is missing"),
        (a_run_with(number=2), "frame 3 .*run 2 follows 0 runs"),
        (a_run_with(number=True), "'number' of the run must be int, not bool"),
        (a_run_with(started=None), "'started' of the run must be str, not NoneType"),
        (a_run_with(settings={"a": {1.5: 1}}), "frame 3 .*keys are not of type str"),
        (a_run_with(versions={"onnx": 1}), r"versions\['onnx'\] must be a str"),
        (a_run_with(user="me"), "'user' of the run is not known"),
        ([*a_run_with(), *a_run_with(started="later")[2:]], "frame 4 .*run 1 follows 1 runs"),
        (after_a_trial("begun", number=1, fingerprint="ab"), "frame 3 .*'number' and 'fingerprint'"),
        (after_a_trial("begun", number=-1, fingerprint="ab" * 32), "frame 3 .*'number' and 'fingerprint'"),
        (after_a_trial("begun", number=1, fingerprint=7), "'fingerprint' of the begun must be str, not int"),
        (after_a_trial("dropped", number=1, why="so"), "'why' of the dropped is not known"),
        (
            [
                *after_a_trial("measured", number=0, figures={str(n): 1.0 for n in range(999)}),
                forged({"kind": "measured", "number": 0, "figures": {"one more": 1.0, "two": 2.0}}),
            ],
            "frame 4 .*trial 0 has more than 1,000 figures",
        ),
        ([forged({"kind": "run", "number": 1})], "frame 1 .*a header must come first"),
        (after_a_trial("items", name="a", items=[]), "'items' of the items must be dict, not list"),
        (after_a_trial("items", name="a", items={1: 1}), "items must have keys of type str, not int"),
        (after_a_trial("items", name=b"a", items={}), "'name' of the items must be str, not bytes"),
        (after_a_trial("items", name="a", items={}, data=1), "'data' of the items is not known"),
        (
            [*after_a_trial("note", name="a", data=[1]), forged({"kind": "items", "name": "a", "items": {"b": 1}})],
            "frame 4 .*the note 'a' is not a dict",
        ),
    ],
)
def test_a_wrong_field_is_named_with_its_frame(tmp_path: Path, frames: list[bytes], message: str) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes(MAGIC + b"".join(frames))
    with pytest.raises(HistoryError, match=message):
        read_snapshot(path)


def test_a_newer_schema_is_refused_with_advice_to_upgrade(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes(MAGIC + pack({"kind": "header", "schema": 4, "something": "else"}))
    for opens in (read_snapshot, History.resume):
        with pytest.raises(HistoryError, match=r"newer quaver: it has schema 4, .* Upgrade quaver") as caught:
            opens(path)
        assert str(path) in str(caught.value)


def test_our_own_pickles_hold_no_memo_and_no_global(tmp_path: Path) -> None:
    record_sample(tmp_path / FILE_NAME)
    for payload in payloads(tmp_path / FILE_NAME):
        assert payload.startswith(b"\x80\x04\x95")
        assert b"quaver.ops" not in payload
        assert b"Precision" not in payload
