"""Tune without labels, find the few samples that need one, and check the model like a gate in CI."""

import numpy as np

import quaver
from quaver.demo.data import digits
from quaver.demo.run import MODEL

train, _, images, labels = digits()

result = quaver.fit(
    MODEL,
    calib_dataloader=train[:256],
    eval_func=quaver.metrics.agreement(train[256:]),  # agreement with the fp32 model, sample by sample
    relative=0.01,
)
print(result)
result.save("model-int8.onnx")

numbers = quaver.metrics.disagreements(images, MODEL, "model-int8.onnx")
print(f"{len(numbers)} of {len(images)} samples need a label")

# The other samples may have any label: there both models are right, or both are wrong.
few = np.zeros(len(images), int)
few[numbers] = labels[numbers]
print(quaver.check(MODEL, "model-int8.onnx", quaver.metrics.top1(images, few), absolute=0.02))
