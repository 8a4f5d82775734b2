"""Real models beyond the eight of the comparison, to judge by what nobody tuned on."""

from __future__ import annotations

from hashlib import sha256

from benchmarks.models.bench import Bench
from benchmarks.models.registry import Entry, Registry
from benchmarks.models.retrieval import GROUP, matches
from benchmarks.unseen import boxes, detections, embedding, hearing, maps, masks, reading, tags
from benchmarks.unseen.reading import characters_right

__all__ = ["FAMILIES", "HELD_BACK", "MODELS", "NAMES", "REGISTRY", "WORKING", "Bench", "find", "load", "split"]

# Alike models stand together, so that either half gets some of each family.
FAMILIES: dict[str, dict[str, Entry]] = {
    "detectors": {
        "yolov8n_nms": Entry("yolo", "things on a picture", boxes.f1, batch=0, keep=detections.yolo_boxes),
        "blazeface": Entry("faces", "near faces", boxes.f1, batch=0, keep=detections.face_boxes),
        "ddddocr_det": Entry("captchas", "characters on a picture", boxes.f1, batch=0, keep=detections.character_boxes),
        "ppocrv4_det": Entry("documents", "text on a page", masks.between, batch=1, keep=masks.text_area),
        "u2netp": Entry("saliency", "the thing in front", masks.overlap, batch=0, keep=masks.thing_area),
    },
    "readers": {
        "ppocrv3_ja_rec": Entry("readers", "read Japanese", characters_right, batch=8, keep=reading.most_likely),
        "ppocrv2_zh_rec": Entry("readers", "read Chinese", characters_right, batch=8, keep=reading.most_likely),
        "ddddocr_line": Entry("captchas", "read a captcha", characters_right, batch=0, keep=reading.one_line),
    },
    "texts": {
        "paraphrase_minilm": Entry("texts", "find a review's half", matches, batch=2 * GROUP, keep=embedding.last),
        "chars2vec_words": Entry("texts", "find the word meant", matches, batch=2 * GROUP),
        "tashkeel": Entry("texts", "vowel signs of Arabic", tags.places_right, batch=0, keep=tags.vowels),
        "lac_tags": Entry("texts", "words of Chinese", tags.places_right, batch=0, keep=reading.most_likely),
    },
    "sounds": {
        "nsnet2": Entry("sounds", "speech without noise", hearing.cleanness, batch=0, keep=hearing.gains),
        "silero_vad": Entry("sounds", "speech or not", tags.places_right, batch=0, keep=hearing.speaking),
        "wakeword_embedding": Entry("sounds", "which word was said"),
        "basic_pitch": Entry("sounds", "notes of music", masks.f1, batch=1, keep=hearing.notes),
    },
    "classifiers": {
        "page_orientation": Entry("documents", "which side is up"),
        "open_nsfw": Entry("nsfw", "thing on a picture", batch=4),
        "iris_logreg": Entry("flowers", "kind of iris", maps.certainty, batch=0, keep=maps.probabilities),
    },
}  # fmt: skip
MODELS = {name: entry for family in FAMILIES.values() for name, entry in family.items()}
NAMES = tuple(MODELS)
REGISTRY = Registry("benchmarks.unseen", MODELS)
find, load = REGISTRY.find, REGISTRY.load


def split() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Family by family, each sorted by the hashes of its names: one by one to the first half and to the second."""
    order = [
        name
        for family in FAMILIES.values()
        for name in sorted(family, key=lambda name: sha256(name.encode()).hexdigest())
    ]
    return tuple(order[0::2]), tuple(order[1::2])


WORKING, HELD_BACK = split()
