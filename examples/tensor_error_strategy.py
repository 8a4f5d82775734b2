"""Compose strategies: first exclude ops whose output tensors are wrong in int8, then leave the rest to `bayesian`."""

import numpy as np

import quaver
from quaver.demo.data import Accuracy, digits
from quaver.demo.run import MODEL, RULES
from quaver.strategies import Bayesian


class TensorError(quaver.Strategy):
    """Ops with a relative tensor error above `limit` stay in fp32; `bayesian` searches the others."""

    name = "tensor_error"

    def __init__(self, limit: float = 0.3) -> None:
        self.limit = limit

    def propose(self, space, probe):
        """Inspect the output of every op in the default configuration, then delegate a smaller tuning space."""
        bad = [
            name
            for name, tensors in probe.inspect(space.default_config(), space.tunable).items()
            if error(tensors) > self.limit
        ]
        print(f"{len(bad)} of {len(space.tunable)} ops are off by more than {self.limit:.0%}")
        yield from Bayesian().propose(space.keep_fp32(*bad), probe)  # with the seed and objective of this run


def error(tensors):
    """Return the squared error of an op's output relative to its squared signal."""
    pairs = list(zip(tensors.fp32, tensors.quantized, strict=True))
    return sum(np.square(a - b).sum() for a, b in pairs) / max(sum(np.square(a).sum() for a, _ in pairs), 1e-12)


train, _, images, labels = digits()
result = quaver.fit(
    MODEL, calib_dataloader=train[:256], eval_func=Accuracy(images, labels), strategy=TensorError(), op_type_dict=RULES
)
print(result)
