"""Serves the page: for a command that waits, or beside a run in a thread of its own."""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from quaver.errors import MissingPackageError, SettingsError

# Where it is tried first; another free port does as well.
PORT = 8765
HOST = "127.0.0.1"


class Page:
    """A page that is being served, until it is closed.

    Attributes:
        url: its address, with the token if there is one.
    """

    def __init__(self, folders: Sequence[str | os.PathLike[str]], host: str, port: int | None, token: str) -> None:
        """Use `serve`."""
        try:
            from werkzeug.serving import make_server

            from quaver.insights.page.app import make_app
            from quaver.insights.page.auth import is_loopback
        except ImportError as error:
            raise MissingPackageError(
                f"the page needs {error.name}, which is not installed: pip install 'quaver[insights]'"
            ) from error
        if not token and not is_loopback(host):
            raise SettingsError(
                f"the page would be open to everybody who reaches {host!r}: give a token (`--token auto` makes one up)"
            )
        token = secrets.token_urlsafe(24) if token == "auto" else token  # nosec B105 - a word for "make one up"
        logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line for each request helps nobody
        app = make_app(folders, host, token)
        ports = [port] if port is not None else [PORT, 0]
        for tried in ports:
            try:
                self._server = make_server(host, tried, app.server, threaded=True)
                break
            except (OSError, SystemExit) as error:
                if tried == ports[-1]:
                    raise SettingsError(f"the page cannot be served on {host}:{tried}: {error}") from error
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._server.port}/" + (f"?token={token}" if token else "")
        self._thread = threading.Thread(target=self._server.serve_forever, name="quaver-insights", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Until it is closed, or Ctrl-C."""
        self._thread.join()

    def close(self) -> None:
        """Serve it no more. More than once does no harm."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)

    def __enter__(self) -> Page:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def serve(  # nosec B107 - no token by default is no secret
    folders: Sequence[str | os.PathLike[str]], host: str = HOST, port: int | None = None, token: str = ""
) -> Page:
    """Serve the page of all runs in some folders, in the background; `close` ends it.

    Args:
        folders: of a run, or with the folders of several.
        host: the address to serve on; any but this machine's own needs a token.
        port: 8765 or another free one if None.
        token: who does not have it is refused; "auto" makes one up.
    """
    return Page(folders, host, port, token)


def serve_folder(folder: Path) -> Page:
    """The page of one run, for as long as it goes on."""
    return serve([folder])
