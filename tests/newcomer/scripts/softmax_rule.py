"""The rule of `quaver tune --help` for a type that always runs in fp32."""

import subprocess

subprocess.run(
    "quaver tune --model encoder.onnx --calib calib.npy --eval my_eval.py:accuracy --strategy basic --relative 0.1 "
    "--op-type Softmax=fp32 --op-name layers.1=fp32 --workspace softmax",
    shell=True,
    check=True,
)
shown = subprocess.run("quaver show softmax best --fp32", shell=True, check=True, stdout=subprocess.PIPE, text=True)
assert "/layers/layers.1/" in shown.stdout, shown.stdout
