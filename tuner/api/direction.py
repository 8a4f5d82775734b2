"""An error that was taken for a score would be tuned to be as large as it can be: metrics say what they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from quaver.api.settings import Config
from quaver.errors import SettingsError


def check_direction(eval_func: Callable[[Any], Any], config: Config) -> None:
    """Refuse a metric that is better when lower, or higher, than the settings say. A resumed run was checked before."""
    own = getattr(eval_func, "higher_is_better", None)
    if not isinstance(own, bool) or config.resume is not None:
        return
    given, name = config.higher_is_better, getattr(eval_func, "name", "eval_func")
    said = given.get(name, True) if isinstance(given, Mapping) else given
    if own is not said:
        better = "higher" if own else "lower"
        raise SettingsError(f"{name} is better when it is {better}: give `higher_is_better={own}`")
