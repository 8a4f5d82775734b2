"""Two runs side by side."""

import subprocess

TUNE = "quaver tune --model model.onnx --calib calib.npy --eval my_eval.py:accuracy --relative 0.05 --quiet"
subprocess.run(f"{TUNE} --strategy basic --workspace one", shell=True, check=True)
subprocess.run(f"{TUNE} --strategy mse_v2 --workspace two", shell=True, check=True)
done = subprocess.run("quaver compare one two", shell=True, check=True, capture_output=True, text=True)
print(done.stdout)
assert "basic" in done.stdout and "mse_v2" in done.stdout
