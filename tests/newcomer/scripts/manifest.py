"""A manifest, verified in another folder, and after the file was changed."""

import shutil
import subprocess
from pathlib import Path

subprocess.run(
    "quaver tune --model model.onnx --calib calib.npy --eval my_eval.py:accuracy --relative 0.05 --strategy basic "
    "--workspace listed -o listed-files/digits-int8.onnx --quiet && "
    "quaver card listed --model listed-files/digits-int8.onnx -o listed-files/README.md "
    "--manifest listed-files/manifest.json",
    shell=True,
    check=True,
)
shutil.copytree("listed-files", "elsewhere")
check = ["quaver", "check", "--manifest", "elsewhere/manifest.json"]
assert subprocess.run(check, check=False).returncode == 0
with Path("elsewhere/digits-int8.onnx").open("ab") as file:
    file.write(b"x")
assert subprocess.run(check, check=False).returncode == 3
