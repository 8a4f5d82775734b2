"""Evaluate on Ray: on this machine, or with `scheduler="auto"` on its cluster.

Needs Ray, and prints how to install it if it is missing.
"""

from __future__ import annotations

from importlib.resources import files
from importlib.util import find_spec

import quaver
from quaver.demo.data import Accuracy, digits


def main() -> None:
    """Tune on two workers."""
    if find_spec("ray") is None:
        print("this example needs Ray: pip install ray")
        return
    images, _, test_images, test_labels = digits()
    result = quaver.fit(
        str(files("quaver.demo") / "digits_dscnn.onnx"),
        calib_dataloader=images[:64],
        eval_func=Accuracy(test_images, test_labels),
        backend="ray",
        n_jobs=2,
        objective="size",
        workspace="ray_run",
    )
    print(result)


if __name__ == "__main__":
    main()
