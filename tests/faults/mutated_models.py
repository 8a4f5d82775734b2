"""Models changed at random, opened and used in processes of their own: none may crash, hang, or raise what has no name.

Half of them are changed as bytes, half as parts of the model: numbers, names, shapes, lists. A worker that dies or
takes too long is reported with the number of its model, and another one continues after that model.
"""

from __future__ import annotations

import contextlib
import copy
import math
import multiprocessing
import os
import random
import resource
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from mutation import mutated

CORPUS = Path(__file__).parents[1] / "fuzz" / "corpus"
DATA = Path(__file__).parents[1] / "data"
KINDS = ("onnx", "litert")
# Seconds of the processor that one model may take, and after how many seconds of any kind it is given up.
SECONDS, GIVEN_UP = 2.0, 30.0
# What all of it may take in memory, besides what the process has once all is imported.
BYTES = 2**30
_LARGEST = 10**6
_NUMBERS = (0, 1, -1, 2, 3, 7, 16, 127, 128, 255, 2**31 - 1, -(2**31), 2**31, 2**40, 2**63 - 1, -(2**63))


@dataclass
class Told:
    """What became of them.

    Attributes:
        outcomes: how many were refused, or how far they got: opened, built in float and int8, run.
        wrong: anything else: raw exceptions, crashes, more than `SECONDS`.
        slowest: seconds of the processor.
        memory: the most that a worker held, in bytes.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    slowest: float = 0.0
    memory: int = 0


def use_mutated(kind: str, count: int, seed: int) -> Told:
    """Mutate and use a number of models of a kind."""
    told, number = Told(), 0
    context = multiprocessing.get_context("spawn")
    while number < count:
        ours, theirs = context.Pipe(duplex=False)
        worker = context.Process(target=_work, args=(theirs, kind, number, count, seed))
        worker.start()
        theirs.close()
        number = _listen(ours, worker, told, f"{kind} of seed {seed}", number)
    return told


def _listen(pipe: Any, worker: Any, told: Told, name: str, number: int) -> int:
    """Note what a worker tells; the number with which the next one has to begin."""
    patience = 120.0  # until all is imported
    try:
        while True:
            if not pipe.poll(patience):
                told.wrong.append(f"number {number} of {name} takes more than {patience:.0f} s")
                worker.kill()
                return number + 1
            outcome, seconds, memory = pipe.recv()
            patience = GIVEN_UP
            told.memory = max(told.memory, memory)
            if outcome == "ready":
                continue
            told.slowest = max(told.slowest, seconds)
            if outcome in ("refused", "opened", "built", "run"):
                told.outcomes[outcome] += 1
            else:
                told.wrong.append(f"number {number} of {name}: {outcome}")
            if seconds > SECONDS:
                told.wrong.append(f"number {number} of {name} took {seconds:.1f} s")
            number += 1
    except EOFError:
        worker.join()
        if worker.exitcode:
            told.wrong.append(f"number {number} of {name} ended the process: {worker.exitcode}")
            return number + 1
        return number
    finally:
        worker.join()


def _work(pipe: Any, kind: str, start: int, count: int, seed: int) -> None:
    """Use models from one number on."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    silence = os.open(os.devnull, os.O_WRONLY)  # what native code says of them fills the screen
    os.dup2(silence, 1), os.dup2(silence, 2)
    for path in _sound(kind):
        _use(kind, path.read_bytes())
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + BYTES, resource.RLIM_INFINITY))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pipe.send(("ready", 0.0, 0))
    for number in range(start, count):
        data = model_of(kind, number, seed)
        begin = time.process_time()
        outcome = _use(kind, data)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        pipe.send((outcome, time.process_time() - begin, 1024 * grown))


def _sound(kind: str) -> list[Path]:
    return sorted([*(CORPUS / kind).iterdir(), *(DATA.glob("*.onnx") if kind == "onnx" else ())])


def model_of(kind: str, number: int, seed: int) -> bytes:
    """The mutated model of a number, to look at it again."""
    rng = random.Random(f"{kind} {seed} {number}")
    data = rng.choice(_sound(kind)).read_bytes()
    if number % 2:
        return mutated(rng, data)
    for _ in range(100):  # some changes cannot be written
        with contextlib.suppress(Exception):
            return _CHANGED[kind](rng, data)
    return data


def _use(kind: str, data: bytes) -> str:
    """Open a model, look at it, calibrate it, build it in float and in int8, and run that."""
    from quaver.adapters import AdapterOptions, load_with
    from quaver.adapters.litert.adapter import LiteRTAdapter
    from quaver.adapters.onnxrt.adapter import OnnxAdapter
    from quaver.errors import QuaverError
    from quaver.space import TuningSpace

    try:
        adapter = load_with(OnnxAdapter if kind == "onnx" else LiteRTAdapter, data, AdapterOptions(threads=1))
        with contextlib.closing(adapter):
            space = TuningSpace(adapter.ops())
            adapter.unquantizable()
            shapes = {spec.name: [dim or 1 for dim in spec.shape or ()] for spec in adapter.inputs}
            if max(map(math.prod, shapes.values()), default=0) > _LARGEST:  # there is no sample for it
                return "opened"
            feed = {spec.name: np.zeros(shapes[spec.name], spec.dtype) for spec in adapter.inputs}
            adapter.calibrate([feed])
            models = [adapter.build(config) for config in (None, space.default_config())]
            try:
                for model in models:
                    model.run(feed)
            except Exception:  # eval_func is told by the runtime itself that a model does not run on its data
                return "built"
    except QuaverError:
        return "refused"
    except BaseException as error:
        return f"{error!r:.300}"
    return "run"


def _changed_onnx(rng: random.Random, data: bytes) -> bytes:
    import onnx

    model = onnx.load_model_from_string(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        message, entry = rng.choice(list(_fields(model)))
        _change_field(rng, message, entry, model)
    return bytes(model.SerializeToString())


def _fields(message: Any) -> Any:
    """All fields that are set, with the message they are in."""
    for entry, value in message.ListFields():
        yield message, entry
        if entry.message_type is not None:
            for one in [value] if not _repeated(entry) else value:
                yield from _fields(one)


def _repeated(entry: Any) -> bool:
    return bool(entry.is_repeated)


def _change_field(rng: random.Random, message: Any, entry: Any, model: Any) -> None:
    value = getattr(message, entry.name)
    if _repeated(entry):
        _change_list(rng, value, None if entry.message_type is not None else lambda one: _other(rng, one))
    elif entry.message_type is not None or rng.random() < 0.1:
        message.ClearField(entry.name)
    else:
        setattr(message, entry.name, _other(rng, value))


def _change_list(rng: random.Random, values: Any, other: Callable[[Any], Any] | None) -> None:
    """Take something out of a list, put it in twice, exchange two, or change one."""
    place, second = rng.randrange(len(values)), rng.randrange(len(values))
    match rng.randrange(4):
        case 0:
            del values[place]
        case 1 if other is None and hasattr(values, "add"):
            values.add().CopyFrom(values[place])
        case 1:
            values.append(values[place])
        case 2 if other is not None:
            values[place] = other(values[place])
        case _:
            kept = [copy.deepcopy(one) for one in values]
            kept[place], kept[second] = kept[second], kept[place]
            del values[:]
            values.extend(kept)


def _other(rng: random.Random, value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice((value + 1, value - 1, -value, value * 2, *_NUMBERS))
    if isinstance(value, float):
        return rng.choice((0.0, -value, value * 1e30, float("nan"), float("inf"), 1e-45))
    if isinstance(value, bytes):
        return mutated(rng, value)
    return rng.choice(
        ("", value + "_", value[:1], "x", "y", "w", "\0", "Loop", "Relu", "ai.onnx.ml", "../x", "é" * 300)
    )


def _changed_litert(rng: random.Random, data: bytes) -> bytes:
    from quaver.adapters.litert.load import graph

    model = graph.read(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        owner, name = rng.choice(list(_attributes(model)))
        value = getattr(owner, name)
        if isinstance(value, np.ndarray):
            value = value.copy()
            value[rng.randrange(len(value))] = rng.choice(_NUMBERS) % 256
        elif isinstance(value, list):
            value = list(value)
            _change_list(rng, value, None if not isinstance(value[0], int) else lambda one: _other(rng, one))
        elif isinstance(value, bool | int | float | bytes | str):
            value = _other(rng, value)
        else:
            value = None
        setattr(owner, name, value)
    return bytes(graph.write(model))


def _attributes(owner: Any) -> Any:
    """All parts that are there, with what they are in."""
    for name, value in vars(owner).items():
        if value is not None and not (isinstance(value, list | np.ndarray | bytes) and len(value) == 0):
            yield owner, name
        for one in value if isinstance(value, list) else [value]:
            if hasattr(one, "__dict__"):
                yield from _attributes(one)


_CHANGED = {"onnx": _changed_onnx, "litert": _changed_litert}
