"""Speech made by espeak-ng, which a package carries as a library."""

from __future__ import annotations

import ctypes
import random
from functools import cache

import numpy as np

from benchmarks.models.bench import Array
from benchmarks.models.fetch import Package

LOADER = Package(
    "pypi",
    "espeakng-loader",
    "0.2.4",
    "08721baf27d13d461f6be6eed9a65277e70d68234ff484fd8b9897b222cdcb6d",
    platform="manylinux_2_17_x86_64",
)
RATE = 16_000
VOICES = ("en-us", "en-gb", "en-gb-scotland", "en-us+f2", "en-us+f4", "en-gb+m3", "en-us+m7", "en-gb+f3")
_SYNCHRONOUS, _UTF8, _SPEED, _PITCH, _SEED = 2, 1, 1, 3, 1
_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


class _Speaker:
    """The library, opened once."""

    def __init__(self) -> None:
        home = LOADER.fetch() / "espeakng_loader"
        self._library = ctypes.CDLL(str(next(home.glob("libespeak-ng.so*"))))
        self._rate = self._library.espeak_Initialize(_SYNCHRONOUS, 0, str(home / "espeak-ng-data").encode(), 0)
        self._parts: list[Array] = []
        self._callback = _Callback(self._take)
        self._library.espeak_SetSynthCallback(self._callback)

    def _take(self, samples: ctypes._Pointer[ctypes.c_short], count: int, _: int) -> int:
        if samples and count:
            self._parts.append(np.ctypeslib.as_array(samples, (count,)).astype(np.float32))
        return 0

    def say(self, text: str, voice: str, speed: int, pitch: int) -> Array:
        """What it says, at 16 kHz, within -1 and 1."""
        self._parts = []
        self._library.espeak_ng_SetRandSeed(ctypes.c_long(_SEED))  # else by the clock, for voices that breathe
        self._library.espeak_SetVoiceByName(voice.encode())
        self._library.espeak_SetParameter(_SPEED, speed, 0)
        self._library.espeak_SetParameter(_PITCH, pitch, 0)
        content = text.encode()
        self._library.espeak_Synth(content, len(content) + 1, 0, 1, 0, _UTF8, None, None)
        sound = np.concatenate(self._parts) / 32768
        places = np.arange(0, len(sound), self._rate / RATE)
        return np.interp(places, np.arange(len(sound)), sound).astype(np.float32)


@cache
def _speaker() -> _Speaker:
    return _Speaker()


def say(text: str, chance: random.Random) -> Array:
    """The text in a random voice, without the silence around it."""
    sound = _speaker().say(text, chance.choice(VOICES), chance.randint(130, 210), chance.randint(25, 75))
    loud = np.flatnonzero(np.abs(sound) > 0.01)
    return sound[loud[0] : loud[-1] + 1] * chance.uniform(0.4, 1)


def noise(count: int, loudness: float, chance: random.Random) -> Array:
    """Noise whose power falls with the frequency, more or less."""
    generator = np.random.default_rng(chance.getrandbits(32))
    spectrum = np.fft.rfft(generator.normal(0, 1, count))
    spectrum /= np.maximum(np.arange(len(spectrum)), 10) ** chance.uniform(0, 0.7)
    sound = np.fft.irfft(spectrum, count)
    return (loudness * sound / sound.std()).astype(np.float32)
