"""`quaver insights`: show runs on a local web page."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from quaver.errors import SettingsError
from quaver.files.paths import expanded

DESCRIPTION = """\
Show runs on a local web page that updates while they run. It only reads files. Ctrl-C ends it.

  quaver insights                                  all runs in quaver_workspace/ and nc_workspace/
  quaver insights quaver_workspace/RUN             one run
  quaver insights RUNS OTHER/RUN --port 9000
"""


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Describe the command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "insights", help="show runs on a web page", description=DESCRIPTION
    )
    parser.add_argument(
        "folders",
        metavar="FOLDER",
        nargs="*",
        help="workspace of a run, or a folder of several (default: quaver_workspace and nc_workspace)",
    )
    parser.add_argument(
        "--host", metavar="ADDRESS", default="127.0.0.1", help="address to serve on (default: 127.0.0.1)"
    )
    parser.add_argument("--port", metavar="N", type=int, help="port to serve on (default: 8765, or another free port)")
    parser.add_argument("--token", metavar="TOKEN", default="", help="require this token; auto creates one")
    return parser


def run(args: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C."""
    from quaver.api.workspace import NEURAL_COMPRESSOR_ROOT, ROOT
    from quaver.insights.page.serve import serve

    folders = [Path(expanded(folder)) for folder in args.folders]
    if not folders:
        roots = (ROOT, NEURAL_COMPRESSOR_ROOT)
        folders = [root for root in roots if root.exists()]
        if not folders:
            raise SettingsError(
                f"there is neither {roots[0]} nor {roots[1]} here; change to the folder in which the run was started, "
                "or pass the workspace of a run"
            )
    for folder in folders:
        if not folder.exists():
            raise SettingsError(
                f"there is no folder {str(folder)!r}; pass the workspace of a run, or a folder of workspaces"
            )
    with serve(folders, args.host, args.port, args.token) as page:
        print(f"quaver insights is on {page.url}\nCtrl-C ends it.", flush=True)
        try:
            page.wait()
        except KeyboardInterrupt:
            print()
    return 0
