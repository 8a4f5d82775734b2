"""What `make dist` runs with the wheel in a clean environment: a small run from the model to the file and back."""

from pathlib import Path

import quaver
from quaver.demo.data import Accuracy, digits
from quaver.demo.run import MODEL


def main() -> None:
    """Tune the demo's network, save the best model, rebuild it."""
    assert Path(quaver.__file__).is_relative_to(Path.cwd()), quaver.__file__
    train, _, images, labels = digits()
    data = {"calib_dataloader": train[:64], "eval_func": Accuracy(images, labels)}
    result = quaver.fit(MODEL, objective="size", workspace="run", verbose=0, **data)
    assert result.met and (result.workspace / "report.html").is_file()
    saved = result.save("int8.onnx")
    again = quaver.recover(MODEL, result.history_path, result.best.number)
    assert saved.read_bytes() == again.SerializeToString()
    print(result)


if __name__ == "__main__":
    main()
