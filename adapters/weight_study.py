"""The ability to study the weights of a language model; `quaver.adapters.abilities` has the other abilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from quaver.ops import QuantConfig
from quaver.weight_table import WeightTable


@runtime_checkable
class SupportsWeightStudy(Protocol):
    """Measures what the choices for the weights of a language model do to its next token."""

    def weight_groups(self) -> Sequence[Sequence[str]]:
        """Return the groups of ops whose divergences `weight_table` needs; none if it is no language model."""

    def group_divergence(self, ops: Sequence[str]) -> float:
        """Return the divergence of the float model with the weights of these ops in four bits."""

    def weight_table(self, divergences: Sequence[float]) -> WeightTable:
        """Return the options of each weight, from the divergence of each group."""

    def divergence(self, config: QuantConfig) -> float:
        """Return the divergence of a built configuration on the probe samples."""
