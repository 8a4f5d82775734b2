"""Traits of objectives: data that strategies and settings look up by the objective's name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ObjectiveTraits:
    """The demands of an objective on a search.

    Attributes:
        rewards_speed: True if a faster model is better. Strategies then use the times of ops and of conversions.
        rewards_small_files: True if a smaller file is better. Strategies then try weights of fewer bits, and choices
            that make the file smaller and nothing faster are on offer.
        needs_target_budget: True if a budget for the model takes the place of the accuracy criterion.
    """

    rewards_speed: bool = False
    rewards_small_files: bool = False
    needs_target_budget: bool = False


_NO_TRAITS = ObjectiveTraits()
_traits: dict[str, ObjectiveTraits] = {}


def register_traits(name: str, traits: ObjectiveTraits) -> None:
    """Record the traits of an objective. `register_objective` does this; nobody else needs to."""
    _traits[name] = traits


def traits_of(objective: object) -> ObjectiveTraits:
    """Return the traits of the objective of this name.

    A function of the user, or a name that is not registered, has none.
    """
    return _traits.get(objective, _NO_TRAITS) if isinstance(objective, str) else _NO_TRAITS
