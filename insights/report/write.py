"""Write the report of a run: all views in one HTML file, which needs no server and no network."""

from __future__ import annotations

import functools
import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING

from quaver.api.run_log import PRIVATE
from quaver.errors import HistoryError, SettingsError
from quaver.files.atomic import write_safely
from quaver.files.paths import expanded
from quaver.insights.assets import plotly_script, read_asset
from quaver.insights.data.run_reader import FollowedRun, RunData
from quaver.insights.data.text import name

if TYPE_CHECKING:
    from jinja2 import Template

FILE = "report.html"
# The file loads nothing, and a browser runs no script but its own.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:"
)


def write_report(run: str | os.PathLike[str], path: str | os.PathLike[str] | None = None) -> Path:
    """Write the report of a run.

    Without plotly the report holds tables and no figures.

    Args:
        run: the workspace of the run, or its snapshot.
        path: the file to write. By default report.html beside the snapshot, readable by the user alone, because it may
            quote errors of eval_func.

    Returns:
        The file that was written.

    Raises:
        HistoryError: there is no run.
        SettingsError: the file cannot be written.
    """
    source = Path(expanded(run))
    followed = FollowedRun(source)
    data = followed.poll()
    if data is None:
        raise HistoryError(followed.problem or f"{source} holds no run to report on; give its workspace or snapshot")
    place = data.folder / FILE if path is None else Path(expanded(path))
    _write(place, report(data), private=path is None)
    return place


def report(data: RunData) -> str:
    """Return the report of a run as HTML."""
    from quaver.insights.report.sections import sections

    plotly = script = ""
    if importlib.util.find_spec("plotly") is not None:
        plotly, script = plotly_script(), read_asset("report.js")
    return _template().render(
        title=f"quaver: {name(data.name)}",
        policy=_POLICY,
        css=read_asset("base.css"),
        sections=list(sections(data)),
        plotly=plotly,
        script=script,
    )


@functools.cache
def _template() -> Template:
    """Return the template, with every value escaped. Jinja2 is imported here, because only a report needs it."""
    from jinja2 import DictLoader, Environment, StrictUndefined

    loader = DictLoader({FILE: read_asset(FILE)})
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.get_template(FILE)


def _write(place: Path, content: str, private: bool) -> None:
    try:
        write_safely(place, [content.encode("utf-8", "backslashreplace")])
        if private:
            place.chmod(PRIVATE)
    except OSError as error:
        raise SettingsError(f"cannot write the report to {str(place)!r}: {error.strerror}") from error
