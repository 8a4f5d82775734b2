"""SwiftF0, which hears how high a voice is."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx

from benchmarks.models.bench import Array, write
from benchmarks.models.fetch import Package
from benchmarks.unseen.speech import RATE, noise

SWIFT = Package("pypi", "swift-f0", "0.1.2", "212715116025a490be70db0afda8fb27b1eadf267a3b18ed8df4866c1574e717")
CALIBRATION, SONGS = 64, 400
HOP, LENGTH = 256, RATE
LOWEST, HIGHEST = 80.0, 900.0


def swift_f0(folder: Path) -> None:
    """The pitch of each frame of 16 ms of somebody singing in noise."""
    onnx.save(onnx.load(SWIFT.fetch() / "swift_f0" / "model.onnx"), folder / "model.onnx")
    chance = random.Random(35)
    sounds, pitches = zip(*(_song(chance) for _ in range(CALIBRATION + SONGS)), strict=True)
    inputs = np.stack(sounds)[:, None]
    write(
        folder,
        {"input_audio": inputs[:CALIBRATION]},
        {"input_audio": inputs[CALIBRATION:]},
        np.stack(pitches[CALIBRATION:]),
    )


def _song(chance: random.Random) -> tuple[Array, Array]:
    """A second of a gliding, trembling tone with overtones, and its pitch in the middle of each frame."""
    time = np.arange(LENGTH) / RATE
    low, high = np.log2(LOWEST), np.log2(HIGHEST)
    knots = [chance.uniform(low, high)]
    for _ in range(3):
        knots.append(float(np.clip(knots[-1] + chance.gauss(0, 0.3), low, high)))
    tremble = chance.uniform(0, 0.03) * np.sin(2 * np.pi * chance.uniform(4, 7) * time)
    pitch = 2 ** (np.interp(time, np.linspace(0, 1, len(knots)), knots) + tremble)
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    fall, resonance = chance.uniform(0.5, 1.5), chance.uniform(400, 1500)
    sound = sum(
        np.sin(k * phase + chance.uniform(0, 6)) / k**fall / (1 + (np.log2(k * pitch / resonance)) ** 2)
        for k in range(1, 13)
    )
    sound = 0.1 * sound / np.std(sound)
    sound = sound + noise(LENGTH, float(sound.std()) * chance.uniform(0.2, 1.5), chance)
    middles = np.arange(HOP // 2, LENGTH, HOP)
    return sound.astype(np.float32), pitch[middles].astype(np.float32)
