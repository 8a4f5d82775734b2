"""Made-up forms: words at places on a page, to be tagged by the key that stands before them on their line."""

from __future__ import annotations

import numpy as np

WORDS, PLACES, KEYS, LENGTH = 64, 12, 4, 36


def forms(count: int, seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Inputs of the tagger by name, and the tag of each word; 0 is no tag, -1 is padding.

    A word that is a key (1 to 4) and those behind it on its line have its tag, up to the next key.
    """
    rng = np.random.default_rng(seed)
    ids = np.zeros((count, LENGTH), np.int64)
    boxes = np.zeros((count, LENGTH, 2), np.int64)
    mask = np.zeros((count, LENGTH), np.int64)
    tags = np.full((count, LENGTH), -1, np.int64)
    for page in range(count):
        length = int(rng.integers(LENGTH // 2, LENGTH + 1))
        column, line, tag = 0, 0, 0
        for at in range(length):
            if column >= PLACES or rng.random() < 0.12:
                column, line, tag = 0, min(line + 1, PLACES - 1), 0
            word = int(rng.integers(1, KEYS + 1)) if rng.random() < 0.2 else int(rng.integers(KEYS + 1, WORDS))
            tag = word if word <= KEYS else tag
            ids[page, at], boxes[page, at], tags[page, at], mask[page, at] = word, (column, line), tag, 1
            column += int(rng.integers(1, 3))
    return {"input_ids": ids, "bbox": boxes, "attention_mask": mask}, tags


def f1(found: np.ndarray, tags: np.ndarray) -> float:
    """Of all words that have a tag, or were given one."""
    words = tags >= 0
    right = int(np.sum((found == tags) & (tags > 0)))
    given, wanted = int(np.sum((found > 0) & words)), int(np.sum(tags > 0))
    return 2 * right / max(given + wanted, 1)
