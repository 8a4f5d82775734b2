"""Scripts written for another tool, run with nothing changed but what they import it by."""

from __future__ import annotations

import re
import textwrap
from typing import Any


def run_script(script: str, package: str, bridge: str, **names: Any) -> dict[str, Any]:
    """Run a script with a package's name replaced in its import lines; what it leaves behind, by name."""
    text = textwrap.dedent(script)
    changed = re.sub(rf"^(from|import) {re.escape(package)}\b", rf"\1 {bridge}", text, flags=re.MULTILINE)
    assert changed != text
    scope: dict[str, Any] = {"__name__": "__main__", **names}
    exec(compile(changed, "<script>", "exec"), scope)
    return scope
