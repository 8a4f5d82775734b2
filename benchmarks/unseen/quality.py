"""DNSMOS, which says how good speech sounds to people."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx

from benchmarks.models.bench import Array, write
from benchmarks.models.fetch import Package
from benchmarks.unseen.sounds import sentence
from benchmarks.unseen.speech import RATE, noise, say

MOS = Package("pypi", "speechmos", "0.0.1.1", "31c4c9d3234f6ee10102edff74333014c50006a3f389daf7ecacae34e68ebbf7")
CALIBRATION, PAIRS = 64, 200
FRAMES, BANDS, WINDOW, HOP = 900, 120, 321, 160
LENGTH = FRAMES * HOP


def dnsmos(folder: Path) -> None:
    """Of the same speech with more and with less noise, the clearer one must be thought better."""
    onnx.save(onnx.load(MOS.fetch() / "speechmos" / "dnsmos_models" / "model_v8.onnx"), folder / "model.onnx")
    chance = random.Random(40)
    sounds = [each for _ in range(CALIBRATION // 2 + PAIRS) for each in _pair(chance)]
    inputs = np.stack([_spectrogram(sound) for sound in sounds])
    labels = np.zeros(2 * PAIRS, np.int64)
    write(folder, {"input_1": inputs[:CALIBRATION]}, {"input_1": inputs[CALIBRATION:]}, labels)


def _pair(chance: random.Random) -> tuple[Array, Array]:
    """Nine seconds of speech, clearer first: the second has up to 6 dB more of the same noise."""
    speech = np.zeros(0, np.float32)
    while len(speech) < LENGTH:
        pause = np.zeros(int(RATE * chance.uniform(0.1, 0.4)), np.float32)
        speech = np.concatenate([speech, say(sentence(chance), chance), pause])
    speech = speech[:LENGTH]
    around = noise(LENGTH, float(speech.std()) * 10 ** chance.uniform(-1.75, -0.25), chance)
    return speech + around, speech + around * 10 ** chance.uniform(0.05, 0.3)


def _spectrogram(sound: Array) -> Array:
    """Loudness of bands as wide as the ear's, from -80 dB at -1 to the loudest at 1."""
    padded = np.pad(sound, WINDOW // 2)
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP][:FRAMES]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    power = np.abs(np.fft.rfft(frames * window, axis=1)) ** 2 @ _bands().T
    decibels = 10 * np.log10(np.maximum(power, 1e-10) / power.max())
    return ((np.maximum(decibels, -80) + 40) / 40).astype(np.float32)


def _bands() -> Array:
    """Triangles of equal area, evenly spaced on Slaney's scale: linear up to 1 kHz, then logarithmic."""
    step = np.log(6.4) / 27
    top = 15 + np.log(RATE / 2 / 1000) / step
    scale = np.linspace(0, top, BANDS + 2)
    edges = np.where(scale < 15, scale * 200 / 3, 1000 * np.exp(step * (scale - 15)))
    frequencies = np.fft.rfftfreq(WINDOW, 1 / RATE)
    low, middle, high = (edges[start : start + BANDS, None] for start in range(3))
    rising, falling = (frequencies - low) / (middle - low), (high - frequencies) / (high - middle)
    return np.maximum(0, np.minimum(rising, falling)) * 2 / (high - low)
