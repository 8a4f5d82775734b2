"""Pages with lines of text at known places."""

from __future__ import annotations

import random
import re

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from benchmarks.models.bench import Array
from benchmarks.models.lines import FONTS, WORDS

Box = tuple[float, float, float, float]


def page(width: int, height: int, chance: random.Random) -> tuple[Image.Image, list[Box]]:
    """A page with paragraphs in one font and the boxes of its lines."""
    fonts = sorted(path for package in FONTS for path in package.fetch().rglob("*.ttf"))
    words = sorted(set(re.findall(r"[A-Za-z][a-z]{2,}", WORDS.read_text(encoding="utf-8"))))
    paper, ink = chance.randint(190, 255), chance.randint(0, 90)
    image = Image.new("L", (width, height), paper)
    pen = ImageDraw.Draw(image)
    path = chance.choice(fonts)
    boxes: list[Box] = []
    y = float(chance.randint(10, 40))
    while y < height - 50:
        font = ImageFont.truetype(path, chance.choice((16, 20, 26)))
        x = float(chance.randint(10, 60))
        for _ in range(chance.randint(1, 4)):
            text = " ".join(chance.choices(words, k=chance.randint(1, 6)))
            while text and font.getbbox(text)[2] + x > width - 10:
                text = text.rpartition(" ")[0]
            left, top, right, bottom = font.getbbox(text)
            if y + bottom > height - 10 or not text:
                break
            pen.text((x, y), text, fill=ink, font=font)
            boxes.append((x + left, y + top, x + right, y + bottom))
            y += 1.4 * font.size
        y += chance.randint(10, 40)
    return _scanned(image, chance), boxes


def _scanned(image: Image.Image, chance: random.Random) -> Image.Image:
    """Blurred and noisy."""
    image = image.filter(ImageFilter.GaussianBlur(chance.uniform(0, 0.8)))
    noise = np.random.default_rng(chance.getrandbits(32)).normal(0, chance.uniform(0, 12), (image.height, image.width))
    return Image.fromarray(np.clip(np.asarray(image) + noise, 0, 255).astype(np.uint8)).convert("RGB")


def areas(boxes: list[Box], width: int, height: int) -> Array:
    """The cores of the boxes, which a detector by differentiable binarisation is taught to light up, and the boxes."""
    masks = np.zeros((2, height, width), bool)
    for left, top, right, bottom in boxes:
        wide, high = right - left, bottom - top
        for mask, rim in zip(masks, (wide * high * (1 - 0.4**2) / (2 * (wide + high)), 0.0), strict=True):
            mask[round(top + rim) : round(bottom - rim), round(left + rim) : round(right - rim)] = True
    return masks
