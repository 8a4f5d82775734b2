"""What newcomers have in their folder, and the scripts that they write first.

    python tests/newcomer/newcomers.py         # run all scripts, each in a folder of its own; `make dist` does that

`dataloader.py` needs torch, so `make test-torch` runs it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from quaver.demo.data import digits
from quaver.demo.run import MODEL

HERE = Path(__file__).parent
SCRIPTS = {path.stem: path for path in sorted((HERE / "scripts").glob("*.py"))}
EVAL = """\
import numpy as np

images, labels = np.load("images.npy"), np.load("labels.npy")


def accuracy(model):
    return float((model(images).argmax(axis=1) == labels).mean())
"""


def prepare(folder: Path) -> Path:
    """Write a model, a transformer, calibration data, test data and an evaluation into a folder."""
    train, _, images, labels = digits()
    shutil.copy(MODEL, folder / "model.onnx")
    shutil.copy(HERE.parent / "data" / "digits_encoder.onnx", folder / "encoder.onnx")
    np.save(folder / "calib.npy", train[:64])
    np.save(folder / "images.npy", images[:256])
    np.save(folder / "labels.npy", labels[:256])
    (folder / "my_eval.py").write_text(EVAL)
    return folder


def run(name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a script in a folder, with the commands of this environment."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        [sys.executable, SCRIPTS[name]], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def main() -> int:
    """Run all scripts; return 1 if one fails."""
    failed = 0
    for name in SCRIPTS:
        if name == "dataloader" and find_spec("torch") is None:
            print("newcomer: dataloader needs torch, which is not here: `make test-torch` runs it")
            continue
        with tempfile.TemporaryDirectory() as folder:
            done = run(name, prepare(Path(folder)))
        failed += done.returncode != 0
        print(f"newcomer: {name}: {'ok' if done.returncode == 0 else done.stdout[-2000:] + done.stderr[-4000:]}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
