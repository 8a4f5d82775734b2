"""Serve the page, for a command that waits or in a thread next to a run."""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from quaver.errors import MissingPackageError, SettingsError
from quaver.extras import install_command

# The port that is tried first; if it is in use, a free one is taken.
PORT = 8765
HOST = "127.0.0.1"


class Page:
    """A page that is being served until it is closed.

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
                f"the page needs {error.name}, which is not installed: {install_command('insights')}"
            ) from error
        if not token and not is_loopback(host):
            raise SettingsError(
                f"the page would be open to everyone who can reach {host!r}: set a token (`--token auto` generates one)"
            )
        token = secrets.token_urlsafe(24) if token == "auto" else token  # nosec B105 - not a password
        logging.getLogger("werkzeug").setLevel(logging.ERROR)  # one line per request would hide everything else
        app = make_app(folders, host, token)
        ports = [port] if port is not None else [PORT, 0]
        for candidate in ports:
            try:
                self._server = make_server(host, candidate, app.server, threaded=True)
                break
            except (OSError, SystemExit) as error:
                if candidate == ports[-1]:
                    raise SettingsError(f"the page cannot be served on {host}:{candidate}: {error}") from error
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._server.port}/" + (f"?token={token}" if token else "")
        self._thread = threading.Thread(target=self._server.serve_forever, name="quaver-insights", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until the page is closed, or for Ctrl-C."""
        self._thread.join()

    def close(self) -> None:
        """Stop serving the page. Closing twice is allowed."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)

    def __enter__(self) -> Page:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def serve(  # nosec B107 - an empty token is not a password
    folders: Sequence[str | os.PathLike[str]], host: str = HOST, port: int | None = None, token: str = ""
) -> Page:
    """Serve the page of all runs in some folders, in the background.

    Args:
        folders: the folder of a run, or one that holds the folders of several runs.
        host: the address to serve on; any but this machine's own needs a token.
        port: the port; None for 8765 or another free one.
        token: requests without it are refused; "auto" generates one.

    Returns:
        The page; its `close` stops the server.
    """
    return Page(folders, host, port, token)


def serve_folder(folder: Path) -> Page:
    """Serve the page of one run while it is running."""
    return serve([folder])
