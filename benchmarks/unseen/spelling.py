"""Hibari's small transformer that says how an English word is spoken."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import numpy as np
import onnx

from benchmarks.models.bench import write
from benchmarks.models.fetch import Package

HIBARI = Package("pypi", "hibari-tts", "0.2.1", "49f2abbbe451c988e7448b5afa08c8a56410535ebb855c0e7d174275df5ca1f3")
CALIBRATION, WORDS = 100, 800
SHORTEST = 5


def hibari_g2p(folder: Path) -> None:
    """The sounds of words, as a lexicon gives them."""
    home = HIBARI.fetch() / "hibari" / "assets"
    onnx.save(onnx.load(home / "oov.onnx"), folder / "model.onnx")
    known = json.loads((home / "oov.json").read_text(encoding="utf-8"))
    letters, sounds = ({sign: number for number, sign in enumerate(known[side], 1)} for side in ("in", "out"))
    lexicon: dict[str, str] = json.loads(gzip.decompress((home / "lexicon_us_gold.json.gz").read_bytes()))
    words = sorted(
        word
        for word, spoken in lexicon.items()
        if isinstance(spoken, str)
        and SHORTEST <= len(word) <= known["maxlen"]
        and set(word) <= set(letters)
        and set(spoken) <= set(sounds)
    )
    chosen = random.Random(38).sample(words, CALIBRATION + WORDS)
    ids = [np.array([[letters[sign] for sign in word]]) for word in chosen]
    labels = [np.array([sounds[sign] for sign in lexicon[word]]) for word in chosen[CALIBRATION:]]
    write(folder, {"chars": ids[:CALIBRATION]}, {"chars": ids[CALIBRATION:]}, labels)
