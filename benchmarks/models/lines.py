"""Lines of text drawn in many fonts, as a scanner might see them."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from benchmarks.models.fetch import Package

# From packages, not from the machine: the pictures are the same everywhere.
_RELEASES = (
    ("dejavu-fonts-ttf", "2.37.3", "b7013ac58f9225250619db82cfb72e99c37ca8195f2b5a06a9e6a95bc5e1c84a"),
    ("@expo-google-fonts/roboto", "0.2.3", "4a32459f190d3f32fb0da5727f7a0f4bead29b40d08e63bb1a9685264df741b6"),
    ("@expo-google-fonts/lora", "0.2.3", "2c4112736f2d005a2f032ca2e0bb2686ffde253f1851500c2376643e2ca1fd7c"),
    ("@expo-google-fonts/open-sans", "0.2.3", "3e942128881a45785222fcb83606079d5ebeb63c996f71d8ff6f65bf9bfdd795"),
    ("@expo-google-fonts/courier-prime", "0.2.3", "6f8bf586925af1c2d0b934732bbcac518c8d1ad8da361069a02539aee4a510e6"),
)
FONTS = tuple(Package("npm", *release) for release in _RELEASES)
WORDS = Path(__file__).resolve().parents[2] / "LICENSE"

Picture = NDArray[np.uint8]


def lines(count: int, seed: int, longest: int = 18) -> Iterator[tuple[str, Picture]]:
    """Return texts up to a maximum length, and their grey pictures, 48 pixels high."""
    chance = random.Random(seed)
    words = sorted(set(re.findall(r"[A-Za-z][a-z]{2,}", WORDS.read_text(encoding="utf-8"))))
    fonts = sorted(path for package in FONTS for path in package.fetch().rglob("*.ttf"))
    for _ in range(count):
        text = _text(words, longest, chance)
        yield text, draw(text, ImageFont.truetype(chance.choice(fonts), chance.randint(24, 38)), chance)


def _text(words: list[str], longest: int, chance: random.Random) -> str:
    kind = chance.random()
    if kind < 0.1:
        return f"{chance.randint(1, 28):02}/{chance.randint(1, 12):02}/{chance.randint(1980, 2030)}"
    if kind < 0.2:
        return f"{chance.choice(words).title()} {chance.randint(100, 99999)}"
    text = chance.choice(words)
    for _ in range(chance.randint(0, 3)):
        longer = f"{text} {chance.choice(words)}"
        text = longer if len(longer) <= longest else text
    return text


def draw(text: str, font: ImageFont.FreeTypeFont, chance: random.Random) -> Picture:
    """A grey picture of a line, 48 pixels high: slightly turned, blurred and noisy."""
    left, top, right, bottom = font.getbbox(text)
    paper, ink = chance.randint(170, 255), chance.randint(0, 90)
    margin = chance.randint(3, 8)
    size = (int(right - left) + 2 * margin, int(bottom - top) + 2 * margin)
    image = Image.new("L", size, paper)
    ImageDraw.Draw(image).text((margin - left, margin - top), text, fill=ink, font=font)
    image = image.rotate(chance.uniform(-1, 1), Image.Resampling.BICUBIC, fillcolor=paper)
    image = image.filter(ImageFilter.GaussianBlur(chance.uniform(0, 0.8)))
    image = image.resize((max(1, round(size[0] * 48 / size[1])), 48), Image.Resampling.BILINEAR)
    noise = np.random.default_rng(chance.getrandbits(32)).normal(0, chance.uniform(0, 12), (48, image.width))
    return np.clip(np.asarray(image) + noise, 0, 255).astype(np.uint8)
