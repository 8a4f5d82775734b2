"""ddddocr's two networks: one finds the characters on a picture, one reads a line of them."""

from __future__ import annotations

import ast
import random
import string
from pathlib import Path

import numpy as np
import onnx
from PIL import Image, ImageDraw, ImageFont

from benchmarks.models.bench import Array, write
from benchmarks.models.fetch import Package
from benchmarks.models.lines import FONTS
from benchmarks.unseen.detections import CAPTCHA
from benchmarks.unseen.phrases import phrases
from benchmarks.unseen.pictures import pictures, square
from benchmarks.unseen.readers import cjk_font

DDDDOCR = Package("pypi", "ddddocr", "1.6.1", "c7c70f4ae2d0335440ae8b272eea48c9f6888ecef46785fe2311f0c97a133935")
CALIBRATION, TO_FIND, TO_READ = 32, 120, 200


def ddddocr_det(folder: Path) -> None:
    """Where are the characters that were drawn on the picture?"""
    onnx.save(onnx.load(DDDDOCR.fetch() / "ddddocr" / "common_det.onnx"), folder / "model.onnx")
    chance = random.Random(6)
    grounds = pictures(seed=6)
    signs = sorted({sign for text in phrases("zh_Hans") for sign in text if "\u4e00" <= sign <= "\u9fff"})
    made = [_scene(square(chance.choice(grounds), CAPTCHA), signs, chance) for _ in range(CALIBRATION + TO_FIND)]
    inputs = np.stack([picture for picture, _ in made])
    labels = [boxes for _, boxes in made]
    write(folder, {"images": inputs[:CALIBRATION]}, {"images": inputs[CALIBRATION:]}, labels[CALIBRATION:])


def ddddocr_line(folder: Path) -> None:
    """Which letters and digits are in the line? Lines differ in width."""
    onnx.save(onnx.load(DDDDOCR.fetch() / "ddddocr" / "common.onnx"), folder / "model.onnx")
    alphabet = _alphabet()
    chance = random.Random(7)
    fonts = sorted(path for package in FONTS for path in package.fetch().rglob("*.ttf"))
    # Letters that look alike in upper and lower case, or like digits, are left out.
    signs = "".join(sorted(set(string.ascii_lowercase + string.digits) - set("cosvwxzkpuil01")))
    texts = ["".join(chance.choices(signs, k=chance.randint(4, 7))) for _ in range(CALIBRATION + TO_READ)]
    inputs = [_line(text, ImageFont.truetype(chance.choice(fonts), 44), chance) for text in texts]
    labels: list[Array] = [np.array([alphabet.index(sign) for sign in text]) for text in texts]
    write(folder, {"input1": inputs[:CALIBRATION]}, {"input1": inputs[CALIBRATION:]}, labels[CALIBRATION:])


def _alphabet() -> list[str]:
    """The last of two lists of characters in the package's source; the first is of the older model."""
    tree = ast.parse((DDDDOCR.fetch() / "ddddocr" / "charsets.py").read_text(encoding="utf-8"))
    *_, signs = (node for node in ast.walk(tree) if isinstance(node, ast.List))
    return [str(sign) for sign in ast.literal_eval(signs)]


def _scene(image: Image.Image, signs: list[str], chance: random.Random) -> tuple[Array, Array]:
    """A picture with three to six characters apart from each other, blue first, and their boxes."""
    boxes: list[list[float]] = []
    cells = chance.sample(range(9), chance.randint(3, 6))
    for cell in cells:
        font = cjk_font(chance.randint(38, 60), chance)
        sign = chance.choice(signs)
        left, top, right, bottom = font.getbbox(sign)
        stamp = Image.new("L", (int(right - left) + 4, int(bottom - top) + 4))
        ImageDraw.Draw(stamp).text((2 - left, 2 - top), sign, fill=255, font=font)
        stamp = stamp.rotate(chance.uniform(-30, 30), Image.Resampling.BICUBIC, expand=True)
        stamp = stamp.crop(stamp.getbbox())
        x = 137 * (cell % 3) + chance.randint(0, max(0, 137 - stamp.width))
        y = 137 * (cell // 3) + chance.randint(0, max(0, 137 - stamp.height))
        colour = tuple(chance.choice((chance.randint(0, 80), chance.randint(175, 255))) for _ in range(3))
        image.paste(Image.new("RGB", stamp.size, colour), (x, y), stamp)
        boxes.append([x, y, x + stamp.width, y + stamp.height, 0])
    return np.asarray(image, np.float32)[:, :, ::-1].transpose(2, 0, 1)[None].copy(), np.array(boxes)


def _line(text: str, font: ImageFont.FreeTypeFont, chance: random.Random) -> Array:
    """A line 64 pixels high, with strokes across it and noise."""
    left, top, right, bottom = font.getbbox(text)
    size = (int(right - left) + 24, 64)
    image = Image.new("L", size, chance.randint(180, 255))
    pen = ImageDraw.Draw(image)
    pen.text((12 - left, (64 - (bottom - top)) / 2 - top), text, fill=chance.randint(0, 90), font=font)
    for _ in range(2):
        ends = [(chance.randint(0, size[0]), chance.randint(0, 64)) for _ in range(2)]
        pen.line(ends, fill=chance.randint(60, 140), width=1)
    noise = np.random.default_rng(chance.getrandbits(32)).normal(0, chance.uniform(10, 60), (64, size[0]))
    return (np.clip(np.asarray(image) + noise, 0, 255) / 255).astype(np.float32)[None, None]
