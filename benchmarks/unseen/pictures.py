"""Pictures of people and things, and what a worse camera makes of them."""

from __future__ import annotations

import random

import numpy as np
from PIL import Image, ImageEnhance, ImageFilter, ImageSequence

from benchmarks.models.bench import Array
from benchmarks.models.fetch import Package

# Sample pictures of an image tool; moving ones give three.
SAMPLES = Package(
    "pypi",
    "comfyui-workflow-templates-media-assets-02",
    "0.1.24",
    "ddc94f46da4987ec6e9a4ced6007eaaca126899beea6242ece786e49cd14b065",
)
FRAMES = (0.0, 0.5, 0.95)


def pictures(seed: int) -> list[Image.Image]:
    """All pictures, in a random order."""
    found: list[Image.Image] = []
    for path in sorted(SAMPLES.fetch().rglob("*.webp")):
        with Image.open(path) as image:
            count = getattr(image, "n_frames", 1)
            wanted = {int(count * share) for share in FRAMES}
            for number, frame in enumerate(ImageSequence.Iterator(image)):
                if number in wanted:
                    found.append(frame.convert("RGB"))
                if number >= max(wanted):
                    break
    random.Random(seed).shuffle(found)
    return found


def worse(image: Image.Image, chance: random.Random) -> Image.Image:
    """The same picture, slightly blurred, noisy, and lighter or darker."""
    image = image.filter(ImageFilter.GaussianBlur(chance.uniform(0, 1)))
    image = ImageEnhance.Brightness(image).enhance(chance.uniform(0.8, 1.2))
    noise = np.random.default_rng(chance.getrandbits(32)).normal(
        0, chance.uniform(0, 8), (image.height, image.width, 3)
    )
    return Image.fromarray(np.clip(np.asarray(image) + noise, 0, 255).astype(np.uint8))


def square(image: Image.Image, side: int) -> Image.Image:
    """The largest square in the middle, at this size."""
    size = min(image.size)
    left, top = (image.width - size) // 2, (image.height - size) // 2
    return image.crop((left, top, left + size, top + size)).resize((side, side), Image.Resampling.BILINEAR)


def planes(image: Image.Image) -> Array:
    """Red, green and blue as floats of 0 to 255, the channel first."""
    return np.asarray(image, np.float32).transpose(2, 0, 1)
