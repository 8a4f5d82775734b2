"""Tune a small network for handwritten digits, save the result, and rebuild one of its trials."""

import quaver
from quaver.demo.data import digits
from quaver.demo.run import MODEL

train, _, images, labels = digits()


def accuracy(model):
    """Return the share of test images that the model classifies correctly."""
    return float((model(images).argmax(axis=1) == labels).mean())


result = quaver.fit(
    MODEL,
    calib_dataloader=train[:256],
    eval_func=accuracy,
    strategy="auto",
    relative=0.01,
    op_type_dict={"Conv": {"weight": {"granularity": ["per_tensor"]}}},  # some hardware needs this
)
print(result)
if result.met:
    result.save("model-int8.onnx")

again = quaver.recover(MODEL, result.history_path, result.best.number)
print(f"trial {result.best.number}, rebuilt: accuracy {accuracy(again):.4f}, {again.size:,} bytes")
print(f"best: {len(result.best.config.fp32_ops)} ops in fp32, {result.model.size:,} bytes")
