"""Files made by hand to hang, exhaust or take over whoever reads them: snapshots and configurations, each a function.

They are written to a folder; `read_bombs` opens them one by one, in a process with little memory and time.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import struct
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from history_samples import BASELINE, OPS, a_header, a_trial, forged

from quaver.api.config.resolve import make_config
from quaver.command.main import main
from quaver.errors import QuaverError
from quaver.history import History, SnapshotReader, read_snapshot, repair
from quaver.history.frames import MAGIC, PICKLED
from quaver.history.records.header import Run, from_header, from_run
from quaver.history.records.trials import from_trial

PLACES = {op.name: place for place, op in enumerate(OPS)}
HEADER = from_header(a_header())
PRIME = sys.hash_info.modulus


def opcodes(data: bytes) -> bytes:
    """A snapshot whose only frame is this pickle."""
    return MAGIC + PICKLED.frame(b"\x80\x04" + data)


def after_header(*records: dict[str, Any]) -> bytes:
    return MAGIC + forged(HEADER) + b"".join(map(forged, records))


def noted(data: Any) -> bytes:
    return after_header({"kind": "note", "name": "n", "data": data})


def keyed(keys: Iterable[bytes]) -> bytes:
    """A dict with these keys, which are not made here: that alone would take minutes."""
    return opcodes(b"}(" + b"".join(key + b"N" for key in keys) + b"u.")


def with_rules(rules: dict[Any, Any], names: list[str]) -> bytes:
    """A history whose latest run has these rules, for ops of these names."""
    choices = [("int8", "minmax", "per_channel", "asym"), ("fp32", "", "", "")]
    header = {**HEADER, "choices": choices, "ops": [(name, "Conv", (name,), b"\0\1") for name in names]}
    trial = {**from_trial(BASELINE, PLACES), "picks": bytes(len(names)), "choices": choices[:1]}
    settings = {"relative": 0.01, "op_name_dict": rules}
    run = from_run(Run(1, "now", settings, {}))
    return MAGIC + forged(header) + forged(run) + forged(trial) + forged({**trial, "number": 1})


def nested(opening: bytes, closing: bytes, depth: int) -> bytes:
    return opcodes(opening * depth + b"N" + closing * depth + b".")


def hidden() -> bytes:
    """A pickled frame that ends within a float. The unpickler skips what is left of it, and takes what follows, a text
    by the look of it, for a step that makes a table of gigabytes.
    """
    inside = b"}(\x8c\x01aG" + bytes(3)
    return opcodes(b"\x95" + len(inside).to_bytes(8, "little") + inside + bytes(5) + b"\x8c\x06er\0\0\0\x60Nu.")


def candidates() -> bytes:
    """After a damaged frame, a hundred thousand places that look like the beginning of one of 60 MB."""
    one = PICKLED.prefix(60 * 2**20, b"") + b"\x80\x04\x95" + bytes(8) + b"}(\x8c\x04kind"
    return MAGIC + forged(HEADER) + b"damaged" + one * 100_000


def alternating() -> bytes:
    """Damaged and whole frames, alternating; each damaged frame claims everything that follows."""
    note = forged({"kind": "note", "name": "n", "data": 1})
    one = PICKLED.prefix(2**20, b"") + note
    return MAGIC + forged(HEADER) + one * 20_000


SNAPSHOTS: dict[str, Callable[[], bytes]] = {
    "a regular expression that never ends": lambda: with_rules({"(a+)+b": "fp32"}, ["a" * 60]),
    "alternatives that never end": lambda: with_rules({"(a|a)*b": "fp32"}, ["a" * 60]),
    "twenty dots and stars": lambda: with_rules({".*" * 20 + "b": "fp32"}, ["a" * 200]),
    "a repeat of repeats": lambda: with_rules({"((a{1,99}){1,99}){1,99}b": "fp32"}, ["a" * 99]),
    "looking behind": lambda: with_rules({".*(?<=(a+)+b)": "fp32"}, ["a" * 200]),
    "a thousand rules for five thousand ops": lambda: with_rules(
        {f"x{n}.*y.*": "fp32" for n in range(1000)}, [f"op{n}" for n in range(5000)]
    ),
    "five hundred patterns in each other": lambda: with_rules({"(" * 499 + ")" * 499: "fp32"}, ["a"]),
    "a pattern of ten megabytes": lambda: with_rules({"a?" * 5_000_000: "fp32"}, ["a" * 100]),
    "names to be compared with a name": lambda: with_rules({"q" * 200: "fp32"}, [f"{n:0200}" for n in range(5000)]),
    "ints that collide as keys": lambda: keyed(
        b"\x8a\x0a" + (n * PRIME).to_bytes(10, "little") for n in range(1, 60_000)
    ),
    "small ints that collide as keys": lambda: keyed(b"J" + struct.pack("<i", n * 2**16) for n in range(1, 30_000)),
    "floats that collide as keys": lambda: keyed(b"G" + struct.pack(">d", n * 2.0**61) for n in range(1, 5000)),
    "tuples as keys": lambda: noted({(n,): None for n in range(1000)}),
    "a million empty lists": lambda: opcodes(b"](" + b"]" * 2**20 + b"e."),
    "eight million empty dicts": lambda: opcodes(b"](" + b"}" * 2**23 + b"e."),
    "eight million Nones": lambda: opcodes(b"](" + b"N" * 2**23 + b"e."),
    "eight million marks": lambda: opcodes(b"(" * 2**23 + b"."),
    "text that takes four bytes a letter": lambda: noted("a" * 17_000_000 + "\U0001f600"),
    "a million texts": lambda: noted(["x" * 9] * 1_200_000),
    "memo index of two billion": lambda: opcodes(b"Nr\xff\xff\xff\x7f."),
    "memo index in text": lambda: opcodes(b"Np2000000000\n."),
    "billion laughs": lambda: opcodes(
        b"]\x94" + b"".join(b"](h" + bytes([n]) + b"h" + bytes([n]) + b"e\x94" for n in range(60)) + b"."
    ),
    "dup": lambda: opcodes(b"]" + b"2" * 10**6 + b"."),
    "a million lists in each other": lambda: nested(b"](", b"e", 10**6),
    "a million tuples in each other": lambda: nested(b"", b"\x85", 10**6),
    "a key of a million tuples": lambda: opcodes(b"}N" + b"\x85" * 10**6 + b"Ns."),
    "bytes of an exabyte": lambda: opcodes(b"\x8e" + (2**60).to_bytes(8, "little") + b"."),
    "bytes of two gigabytes": lambda: opcodes(b"B\xff\xff\xff\x7f."),
    "text of two gigabytes": lambda: opcodes(b"X\xff\xff\xff\x7f."),
    "an int of a megabyte": lambda: opcodes(b"\x8b" + (2**20).to_bytes(4, "little") + b"\1" * 2**20 + b"."),
    "an int in text": lambda: opcodes(b"I" + b"9" * 10**6 + b"\n."),
    "a step hidden behind a pickled frame": hidden,
    "a pickled frame of an exabyte": lambda: opcodes(b"\x95" + (2**60).to_bytes(8, "little") + b"N."),
    "a global": lambda: opcodes(b"cos\nsystem\n."),
    "a stack global": lambda: opcodes(b"\x8c\x02os\x8c\x06system\x93."),
    "an instance": lambda: MAGIC + PICKLED.frame(b"(S'true'\nios\nsystem\n."),
    "a persistent id": lambda: opcodes(b"NQ."),
    "a frame that claims four gigabytes": lambda: MAGIC + forged(HEADER) + PICKLED.prefix(2**32 - 1, b"") + b"x",
    "a hundred thousand places that look like frames": candidates,
    "damaged frames that claim all that follows": alternating,
    "a million choices of one op": lambda: MAGIC + forged({**HEADER, "ops": [("a", "b", (), bytes(30 * 2**20))]}),
    "choices of sixty thousand ops": lambda: (
        MAGIC + forged({**HEADER, "ops": [(str(n), "b", (), bytes(100)) for n in range(60_000)]})
    ),
    "figures upon figures": lambda: after_header(
        from_trial(a_trial(1), PLACES),
        *({"kind": "measured", "number": 1, "figures": {str(n): 1.0}} for n in range(20_000)),
    ),
    "picks of another model": lambda: after_header({**from_trial(a_trial(1), PLACES), "picks": bytes(2**24)}),
    "a number of a trial that is none": lambda: after_header({**from_trial(a_trial(1), PLACES), "number": 2**62}),
    "ten thousand runs at once": lambda: after_header(from_run(Run(10_000, "now", {}, {}))),
    "a header after the header": lambda: MAGIC + forged(HEADER) + forged({**HEADER, "adapter": "other"}) * 10_000,
    "a note that becomes a table": lambda: noted([1]) + forged({"kind": "items", "name": "n", "items": {"a": 1}}),
    "control characters for the terminal": lambda: noted({"\x1b[2J": "\x1b]0;"}) + forged({"kind": "\x1b[2J"}),
}
# Name -> bytes at its beginning, and its size: the rest is a hole that takes no space on the disk.
SPARSE: dict[str, tuple[Callable[[], bytes], int]] = {
    "four gigabytes of nothing": (lambda: MAGIC + forged(HEADER), 2**32),
    "a terabyte of nothing": (lambda: MAGIC + forged(HEADER), 2**40),
    "a frame of four gigabytes that are not there": (
        lambda: MAGIC + forged(HEADER) + PICKLED.prefix(2**32 - 50, b"x"),
        2**32 + 10**4,
    ),
    "nothing but holes": (lambda: b"", 2**33),
}


def laughs(levels: int, each: str) -> str:
    lines = [f"l{n}: &l{n} {each % ', '.join([f'*l{n - 1}'] * 9)}" for n in range(1, levels)]
    return "\n".join(["l0: &l0 {a: 1}", *lines])


CONFIGS: dict[str, Callable[[], str]] = {
    "a list that holds itself": lambda: "tuning: {strategy: {options: {x: &a [*a]}}}",
    "a dict that holds itself": lambda: "quantization: {op_name_dict: &a {x: *a}}",
    "a list inside of a list that holds it": lambda: "tuning: &a [[[*a, *a]]]",
    "seven levels of laughs": lambda: laughs(7, "[%s]"),
    "forty levels of laughs": lambda: laughs(40, "[%s]"),
    "laughs by merging": lambda: laughs(9, "{<<: [%s]}"),
    "merges of 3,000 by 3,000": lambda: (
        "a: &a {" + ", ".join(f"k{n}: 1" for n in range(3000)) + "}\nb: [" + ", ".join(["{<<: *a}"] * 3000) + "]"
    ),
    "a chain of merges": lambda: "\n".join(
        ["m0: &m0 {a: 1}", *(f"m{n}: &m{n} {{<<: *m{n - 1}, k{n}: 1}}" for n in range(1, 5000))]
    ),
    "lists in each other": lambda: "tuning: " + "[" * 200_000,
    "maps in each other": lambda: "tuning: " + "{a: " * 50_000,
    "lists by indentation": lambda: "\n".join("  " * n + "-" for n in range(600)),
    "questions in each other": lambda: "? " * 100_000,
    "a number of 400,000 digits": lambda: "tuning: {random_seed: " + "1" * 400_000 + "}",
    "a number by sixties": lambda: "tuning: {random_seed: 1" + ":1" * 200_000 + "}",
    "a hexadecimal number": lambda: "tuning: {random_seed: 0x" + "f" * 400_000 + "}",
    "a number that is none": lambda: "\n".join(f"k{n}: " + "1" * 2900 + "x" for n in range(170)),
    "a python object": lambda: "tuning: !!python/object/apply:os.system ['true']",
    "a megabyte of text": lambda: "a: '" + "x" * 2**20 + "'",
    "fifty thousand keys": lambda: "\n".join(f"k{n}: 1" for n in range(50_000)),
    "fifty thousand anchors": lambda: "\n".join(f"- &a{n} x" for n in range(40_000)),
    "a key that is a list": lambda: "? [a, [b]]\n: 1",
    "a timestamp of no day": lambda: "tuning: {random_seed: 2001-99-99}",
    "not text": lambda: "\x00\x01",
}


def write_all(folder: Path) -> int:
    """Write them; how many."""
    for number, (name, make) in enumerate(SNAPSHOTS.items()):
        (folder / f"{number:03} {name}.snapshot").write_bytes(make())
    for number, (name, (begin, size)) in enumerate(SPARSE.items(), len(SNAPSHOTS)):
        path = folder / f"{number:03} {name}.snapshot"
        path.write_bytes(begin())
        os.truncate(path, size)
    for number, (name, text) in enumerate(CONFIGS.items()):
        (folder / f"{number:03} {name}.yaml").write_text(text())
    return len(SNAPSHOTS) + len(SPARSE) + len(CONFIGS)


def ways(path: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """All that opens such a file."""
    if path.suffix == ".yaml":
        yield "make_config", lambda: make_config(path)
        return
    yield "read_snapshot", lambda: read_snapshot(path)
    yield "resume", lambda: History.resume(path).close()
    yield "follow", lambda: SnapshotReader(path).poll()
    yield "quaver history", lambda: _command("history", str(path))
    yield "repair", lambda: repair(path).path.unlink()


def _command(*words: str) -> None:
    """Run the command; what it prints is of no interest here."""
    with open(os.devnull, "w") as nowhere:
        before, sys.stdout, sys.stderr = (sys.stdout, sys.stderr), nowhere, nowhere
        try:
            code = main(words)
            if code == 1:
                raise RuntimeError("an error that has no name")
            if code == 2:
                raise QuaverError
        finally:
            sys.stdout, sys.stderr = before


class TooSlow(BaseException):
    """The time is over."""


def read_bombs(folder: Path, megabytes: int, seconds: float) -> None:
    """Open all of them in each way; one line of JSON for each: file, way, what became of it, seconds, megabytes."""

    def over(*_: Any) -> None:
        raise TooSlow

    signal.signal(signal.SIGPROF, over)
    warnings.simplefilter("ignore")
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + megabytes * 2**20, resource.RLIM_INFINITY))
    for path in sorted(folder.iterdir()):
        for name, way in ways(path):
            begin = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, seconds)
            try:
                way()
                became = "read"
            except QuaverError:
                became = "refused"
            except TooSlow:
                became = "too slow"
            except BaseException as error:
                became = f"raw: {error!r:.100}"
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            print(json.dumps([path.name, name, became, round(time.process_time() - begin, 3)]), flush=True)


if __name__ == "__main__":
    read_bombs(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
