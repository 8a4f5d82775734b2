"""The workspace of a run: the folder with history.snapshot, the settings, the log and the best model."""

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
# The folder in which Neural Compressor keeps its runs, and so `quaver.neural_compressor` too.
NEURAL_COMPRESSOR_ROOT = Path("nc_workspace")
SETTINGS = "quaver.yaml"


@contextlib.contextmanager
def open_workspace(config: Config) -> Iterator[tuple[Path, History]]:
    """Open the folder of a new or resumed run, and lock its history.

    A new workspace is removed if the run fails before it has a baseline, unless the history itself failed. The path is
    absolute, because eval_func may change the working directory.
    """
    if config.resume is not None:
        with History.resume(Path(expanded(config.resume)).absolute()) as history:
            yield history.path.parent, history
        return
    folder, created = make_folder(config.workspace)
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
                        with contextlib.suppress(OSError):  # the first error matters more
                            path.unlink(missing_ok=True)
                raise
    finally:
        with contextlib.suppress(OSError):  # rmdir removes only empty folders
            for path in created:
                path.rmdir()


def _make_private(path: Path) -> None:
    """Let only the user read a history, because tracebacks of eval_func may contain private data."""
    with contextlib.suppress(OSError):  # a file system without modes
        path.chmod(PRIVATE)


def make_folder(workspace: str | os.PathLike[str] | None) -> tuple[Path, list[Path]]:
    """Return the folder, and the folders that had to be created, the innermost first."""
    if workspace is not None:
        folder = Path(expanded(workspace)).absolute()
        if (folder / FILE_NAME).exists() and (folder / FILE_NAME).stat().st_size:
            raise SettingsError(
                f"{str(folder)!r} holds the history of an earlier run. Continue it with resume={str(folder)!r}, "
                "or choose another workspace"
            )
        created = _missing(folder)
        _mkdir(folder, exist_ok=True)
        return folder, created
    stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    root = ROOT.absolute()
    created = _missing(root)
    _mkdir(root, exist_ok=True)
    for count in range(1, 1000):
        folder = root / (stamp if count == 1 else f"{stamp}_{count}")
        try:
            _mkdir(folder, exist_ok=False)
        except FileExistsError:
            continue
        return folder, [folder, *created]
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
        raise SettingsError(f"cannot create the workspace {str(folder)!r}: {error.strerror}") from error


def write_settings(folder: Path, config: Config) -> None:
    """Write the settings of the run for people; the history records them too."""
    try:
        (folder / SETTINGS).write_text(yaml.safe_dump(config.to_dict(), sort_keys=False), encoding="utf-8")
    except OSError as error:
        logging.getLogger(__name__).warning("cannot write %s: %s", folder / SETTINGS, error.strerror)
