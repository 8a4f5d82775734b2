"""The folder of a run: history.snapshot, the settings, the log, the best model."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import yaml

from quaver.api.config.config import Config
from quaver.api.run_log import LOG, PRIVATE
from quaver.errors import HistoryError, SettingsError
from quaver.files.paths import expanded
from quaver.history import FILE_NAME, History

ROOT = Path("quaver_workspace")
SETTINGS = "quaver.yaml"


@contextlib.contextmanager
def open_workspace(config: Config) -> Iterator[tuple[Path, History]]:
    """The folder of a new or resumed run, with its history locked.

    A new one that fails before it has a baseline is removed, unless it was the history that failed. The path is
    absolute, so that it stays the same if eval_func changes the working directory.
    """
    if config.resume is not None:
        with History.resume(Path(expanded(config.resume)).absolute()) as history:
            yield history.path.parent, history
        return
    folder, made = _make_folder(config.workspace)
    try:
        with History.create(folder / FILE_NAME) as history:
            _make_private(history.path)
            new = [folder / name for name in (SETTINGS, LOG) if not (folder / name).exists()]
            try:
                yield folder, history
            except BaseException as error:
                if history.baseline is None and not isinstance(error, HistoryError):
                    history.close()
                    for path in (history.path, *new):
                        with contextlib.suppress(OSError):  # the error itself matters more
                            path.unlink(missing_ok=True)
                raise
    finally:
        with contextlib.suppress(OSError):  # only what is empty can be removed so
            for path in made:
                path.rmdir()


def _make_private(path: Path) -> None:
    """For the user alone: a history holds tracebacks of eval_func, which may show what others should not see."""
    with contextlib.suppress(OSError):  # a system without such rights
        path.chmod(PRIVATE)


def _make_folder(wanted: str | os.PathLike[str] | None) -> tuple[Path, list[Path]]:
    """The folder, and those that had to be made for it, the innermost first."""
    if wanted is not None:
        folder = Path(expanded(wanted)).absolute()
        if (folder / FILE_NAME).exists() and (folder / FILE_NAME).stat().st_size:
            raise SettingsError(
                f"{str(folder)!r} holds the history of an earlier run. Go on with it by resume={str(folder)!r}, "
                "or choose another workspace"
            )
        made = _missing(folder)
        _mkdir(folder, exist_ok=True)
        return folder, made
    stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    root = ROOT.absolute()
    made = _missing(root)
    _mkdir(root, exist_ok=True)
    for count in range(1, 1000):
        folder = root / (stamp if count == 1 else f"{stamp}_{count}")
        try:
            _mkdir(folder, exist_ok=False)
        except FileExistsError:
            continue
        return folder, [folder, *made]
    raise SettingsError(f"cannot find a free name for a workspace under {str(ROOT)!r}")


def _missing(folder: Path) -> list[Path]:
    return [path for path in (folder, *folder.parents) if not path.exists()]


def _mkdir(folder: Path, exist_ok: bool) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=exist_ok)
    except FileExistsError:
        if exist_ok:
            raise SettingsError(f"the workspace {str(folder)!r} is a file, not a folder") from None
        raise
    except OSError as error:
        raise SettingsError(f"cannot make the workspace {str(folder)!r}: {error.strerror}") from error


def write_settings(folder: Path, config: Config) -> None:
    """Keep the settings that were used, for the reader; the history has them too."""
    try:
        (folder / SETTINGS).write_text(yaml.safe_dump(config.to_dict(), sort_keys=False), encoding="utf-8")
    except OSError as error:
        logging.getLogger(__name__).warning("cannot write %s: %s", folder / SETTINGS, error.strerror)
