"""Tune a model for ONNX Runtime and OpenVINO, and deploy the fastest file: `pip install 'quaver[openvino]'`."""

from pathlib import Path

import quaver
from quaver.demo.data import Accuracy, digits

MODEL = Path(quaver.__file__).with_name("demo") / "digits_dscnn.onnx"


def main() -> None:
    """Tune the demo's network in both runtimes, and print which one wins."""
    train, _, images, labels = digits()
    result = quaver.fit(MODEL, calib_dataloader=train[:256], eval_func=Accuracy(images, labels), runtime="fastest")
    for outcome in result.runtimes:
        print("*" if outcome.wins else " ", outcome)
    print(f"deploy {result.model_path} in {result.model.runtime.title}")


if __name__ == "__main__":
    main()
