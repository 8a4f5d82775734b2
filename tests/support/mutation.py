"""Files and frames damaged or forged at random, and all that an engine does with what it reads."""

from __future__ import annotations

import random

from quaver.history import Run, Snapshot
from quaver.history.frames import MAGIC, PICKLED


def mutated(rng: random.Random, data: bytes) -> bytes:
    """`data` with one to four random flips, cuts, insertions, repetitions or overwritten runs."""
    result = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if not result:
            break
        start = rng.randrange(len(result))
        end = min(len(result), start + rng.choice((1, 2, 4, 9, 60, 300)))
        match rng.randrange(6):
            case 0:
                result[start] ^= 1 << rng.randrange(8)
            case 1:
                result[start] = rng.choice(b"\0\xff.()}]cRoib\x80\x85\x86\x87\x8a\x8c\x93\x94\x95NKJGTXBCq\x71r\x8b")
            case 2:
                del result[start:]
            case 3:
                del result[start:end]
            case 4:
                result[start:start] = rng.randbytes(rng.choice((1, 4, 20, 200)))
            case 5:
                result[start:start] = result[start:end]
    return bytes(result)


def forged(rng: random.Random, payloads: list[bytes]) -> bytes:
    """A file whose frames were changed at random, each with a right digest."""
    made = list(payloads)
    for _ in range(rng.choice((1, 1, 2))):
        number = rng.randrange(len(made))
        made[number] = mutated(rng, made[number])
    if rng.random() < 0.1:
        rng.shuffle(made)
    if rng.random() < 0.1:
        made.insert(rng.randrange(len(made)), rng.choice(made))
    return MAGIC + b"".join(map(PICKLED.frame, made))


def use(snapshot: Snapshot) -> None:
    """All that an engine does with what it reads."""
    assert repr(snapshot)
    for trial in snapshot.trials:
        assert snapshot.trial(trial.number) is trial
        assert str(trial)
        assert trial.config.fingerprint
        assert set(trial.config) == {op.name for op in snapshot.header.ops}
        assert snapshot.run_of(trial.number) in (*snapshot.runs, Run(0, snapshot.header.created, {}, {}))
        assert hash(trial) is not None
    assert snapshot.run.number == len(snapshot.runs)
