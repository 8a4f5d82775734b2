"""A model card for a folder that is published."""

import subprocess
from pathlib import Path

subprocess.run(
    "quaver tune --model model.onnx --calib calib.npy --eval my_eval.py:accuracy --relative 0.05 --strategy basic "
    "--workspace carded -o published/digits-int8.onnx --quiet && "
    "quaver card carded --model published/digits-int8.onnx -o published/README.md --task image-classification",
    shell=True,
    check=True,
)
card = Path("published/README.md").read_text()
assert "model-index:" in card and "## How to run it" in card and str(Path.cwd()) not in card
