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
        """Look at every op's output in the all-int8 model, then hand over a smaller space."""
        bad = [
            name
            for name, seen in probe.inspect(space.default_config(), space.tunable).items()
            if error(seen) > self.limit
        ]
        print(f"{len(bad)} of {len(space.tunable)} ops are off by more than {self.limit:.0%}")
        yield from Bayesian().propose(space.keep_fp32(*bad), probe)  # it has this run's seed and objective, too


def error(seen):
    """Squared error over squared signal of an op's output."""
    pairs = list(zip(seen.fp32, seen.quantized, strict=True))
    return sum(np.square(a - b).sum() for a, b in pairs) / max(sum(np.square(a).sum() for a, _ in pairs), 1e-12)


train, _, images, labels = digits()
result = quaver.fit(
    MODEL, calib_dataloader=train[:256], eval_func=Accuracy(images, labels), strategy=TensorError(), op_type_dict=RULES
)
print(result)
