"""Write a strategy: move the most sensitive ops to fp32, one by one."""

import quaver
from quaver.demo.data import Accuracy, digits
from quaver.demo.run import MODEL, RULES


@quaver.register_strategy
class WorstFirst(quaver.Strategy):
    """Move the most sensitive ops to fp32, one by one."""

    name = "worst_first"

    def propose(self, space, probe):
        """Propose the default configuration, then one more fallback each time."""
        config = space.default_config()
        yield config
        for op in probe.ranking():
            config = config.fallback(op)
            yield config


train, _, images, labels = digits()
result = quaver.fit(
    MODEL, calib_dataloader=train[:256], eval_func=Accuracy(images, labels), strategy="worst_first", op_type_dict=RULES
)
print(result)
