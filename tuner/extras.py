"""Optional packages: how to install what an extra brings, in whatever way quaver itself was installed."""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, requires

_EXTRA = re.compile(r"""extra\s*==\s*["']([^"']+)["']""")
_OLDER_PYTHON = re.compile(r"""python_version\s*<\s*["'](\d+)\.(\d+)["']""")


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an extra.

    It names the packages themselves: `pip install quaver[extra]` would look for quaver in an index, which does not have
    what was installed from a clone or a wheel.
    """
    return f"pip install {' '.join(map(_quoted, packages(extra)))}"


def packages(extra: str) -> list[str]:
    """Return the requirements of an extra; the extra itself if quaver was never installed."""
    try:
        lines = requires("quaver") or []
    except PackageNotFoundError:
        lines = []
    wanted = []
    for line in lines:
        requirement, _, marker = line.partition(";")
        found = _EXTRA.search(marker)
        older = _OLDER_PYTHON.search(marker)
        applies = older is None or sys.version_info[:2] < (int(older[1]), int(older[2]))
        if found is not None and found[1] == extra and applies:
            wanted.append(requirement.strip())
    return wanted or [f"quaver[{extra}]"]


def _quoted(requirement: str) -> str:
    return f"'{requirement}'" if re.search(r"[<>=!\[ ]", requirement) else requirement
