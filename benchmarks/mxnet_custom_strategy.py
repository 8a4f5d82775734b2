"""A strategy for Neural Compressor with the interface that the custom strategy of MXNet's examples uses.

It reads tensors through the adaptor, leaves ops in fp32 whose exclusion lowers the errors of the others, and then lets
Neural Compressor's own optimizer choose calibrations.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import numpy as np

from quaver.neural_compressor.strategy.strategy import TuneStrategy, strategy_registry

NAME = "mycustom"
# Mean relative error of an op above which its exclusion is tried, and the mean gain at which it stays excluded.
MIN_ERROR, MIN_GAIN = 0.01, 0.007

Config = dict[str, Any]
Tensors = dict[str, Any]


def relative_errors(exact: Tensors, observed: Tensors) -> dict[str, float]:
    """Return the mean error of each op's output relative to its mean value."""
    return {
        name: np.abs(observed[name][name] - exact[name][name]).mean() / np.abs(exact[name][name]).mean()
        for name in observed
    }


@strategy_registry
class MyCustomTuneStrategy(TuneStrategy):
    """Exclude ops by the errors of their outputs, then tune the calibrations of the others."""

    def _tensors(self, config: Config, names: list[str]) -> Tensors:
        qmodel = self.adaptor.quantize(config, self.model, self.calib_dataloader)
        tensors: Tensors = self.adaptor.inspect_tensor(qmodel, self.calib_dataloader, names, [1])["activation"][0]
        return tensors

    def next_tune_cfg(self) -> Iterator[Config]:
        """Propose all ops in int8, then the config without the excluded ops, then other calibrations."""
        chosen, numbers = OrderedDict(), {}
        for key, choices in self.opwise_tune_cfgs.items():
            chosen[key] = choices[-1]
            for number, choice in enumerate(choices):
                if choice["activation"]["algorithm"] == "minmax":
                    chosen[key], numbers[key] = choice, number
                    break
        config = {
            "calib_iteration": int(self.calib_iter[0]),
            "calib_sampling_size": int(self.calib_sampling_size[0]),
            "op": chosen,
        }
        yield config

        names = [name for name, kind in chosen]
        exact = self.adaptor.inspect_tensor(self.model, self.calib_dataloader, names, [1])["activation"][0]
        errors = relative_errors(exact, self._tensors(config, names))
        for key, choice in chosen.items():
            if "fp32" in self.opwise_tune_space[key]["activation"]["dtype"] and errors[key[0]] > MIN_ERROR:
                before = choice["activation"]["dtype"]
                choice["activation"]["dtype"] = "fp32"
                changed = relative_errors(exact, self._tensors(config, names))
                if sum(errors[name] - changed[name] for name in changed) >= MIN_GAIN * len(changed):
                    errors.update(changed)
                    numbers.pop(key, None)
                else:
                    choice["activation"]["dtype"] = before
        yield config
        yield from self._calibrated(config, numbers)

    def _calibrated(self, base: Config, numbers: dict[Any, int]) -> Iterator[Config]:
        from quaver.neural_compressor.strategy.bayesian import BayesianOptimization

        bounds = {
            key: (0, len(choices))
            for key, choices in self.opwise_quant_cfgs.items()
            if key in numbers and len(choices) > 1
        }
        config = copy.deepcopy(base)
        optimizer = BayesianOptimization(pbounds=bounds, random_seed=self.cfg.tuning.random_seed)
        optimizer._space.register(numbers, self.last_tune_result[0])
        while True:
            params = optimizer.gen_next_params()
            for key, choices in self.opwise_quant_cfgs.items():
                if key in params:
                    config["op"][key] = copy.deepcopy(choices[min(int(params[key]), len(choices) - 1)])
            yield config
            try:
                optimizer._space.register(params, self.last_tune_result[0])
            except KeyError:
                pass
