"""Writes the report of a run."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from quaver.api.run_log import PRIVATE
from quaver.errors import HistoryError, SettingsError
from quaver.files.atomic import write_safely
from quaver.files.paths import expanded
from quaver.insights.data import text as wording
from quaver.insights.data.run_reader import FollowedRun, RunData
from quaver.insights.report.html import Html, element, text
from quaver.insights.report.looks import CSS
from quaver.insights.report.sections import sections

FILE = "report.html"
# The file loads nothing, and may run no script but its own.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:"
)


def write_report(run: str | os.PathLike[str], path: str | os.PathLike[str] | None = None) -> Path:
    """Write the report of a run, given its folder or snapshot, to `path`, or to report.html beside its snapshot.

    There it is for the user alone, as the history is, because it may quote errors of eval_func.
    Without plotly it holds the tables alone.
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
    """The report of a run as HTML."""
    figures = importlib.util.find_spec("plotly") is not None
    made = list(sections(data))
    links = [element("a", text(title), href=f"#{title.lower()}") for title, _ in made]
    parts = [element("section", element("h2", text(title)), *content, id=title.lower()) for title, content in made]
    if not figures:
        parts.insert(0, element("p", "The figures need plotly: pip install 'quaver[insights]'", class_="warn"))
    scripts = Html("")
    if figures:
        from quaver.insights.report.plotly_embed import scripts as plotly_scripts

        scripts = plotly_scripts()
    title = text(f"quaver: {wording.name(data.name)}")
    head = (
        f'<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{title}</title><style>{CSS}</style>"
    )
    top = element("header", element("h1", title), element("nav", *links))
    body = element("body", top, element("main", *parts), scripts)
    return f"<!doctype html><html lang=en><head>{head}</head>{body}</html>"


def _write(place: Path, content: str, private: bool) -> None:
    try:
        write_safely(place, [content.encode("utf-8", "backslashreplace")])
        if private:
            place.chmod(PRIVATE)
    except OSError as error:
        raise SettingsError(f"cannot write the report to {str(place)!r}: {error.strerror}") from error
