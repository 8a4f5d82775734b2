"""What a strategy may ask that costs no call of eval_func."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from quaver.ops import QuantConfig


class Probe(ABC):
    """Label-free measurements on a few calibration samples. Each is taken once, kept, and stored in the history."""

    @abstractmethod
    def sensitivity(self) -> Mapping[str, float]:
        """For each op, the relative error at the model's outputs when only this op runs in int8."""

    @abstractmethod
    def output_error(self, config: QuantConfig) -> float:
        """The relative error at the model's outputs of a whole configuration."""

    def ranking(self) -> list[str]:
        """The ops that hurt most first. Ties keep graph order."""
        errors = self.sensitivity()
        return sorted(errors, key=lambda name: -errors[name])
