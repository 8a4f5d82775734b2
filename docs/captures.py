"""Write docs/terminal.md, the output of commands in terminals of 80 and 120 columns: python docs/captures.py

This needs tmux.
"""

import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from quaver.demo.data import digits
from quaver.demo.run import CALIBRATION_IMAGES, EVAL, MODEL

PAGE = Path(__file__).with_name("terminal.md")
WIDTHS = (80, 120)
LINES = 50
# Each command takes under a minute on two cores.
MAX_SECONDS = 300
END_MARK = "end-of-capture"
PER_TENSOR = "Conv={weight: {granularity: [per_tensor]}}"
TUNE_COMMAND = (
    "tune", "--model", "digits.onnx", "--calib", "calib.npz", "--eval", "eval_digits.py:accuracy",
    "--op-type", PER_TENSOR, "--max-trials", "4", "--timeout", "600", "--threads", "1", "--batch", "32",
    "--workspace", "run",
)  # fmt: skip
COMMANDS = (
    TUNE_COMMAND,
    ("history", "run"),
    ("show", "run", "best", "--fp32"),
    ("show", "run", "1", "best"),
    ("diagnose", "digits.onnx", "--calib", "calib.npz", "--history", "run", "--trial", "1", "--rows", "4"),
    ("profile", "digits.onnx", "--history", "run", "--trial", "1", "--rows", "6", "--threads", "1"),
)
HEAD = """\
# Terminal output

This page shows what the commands print, in terminals of 80 and 120 columns. Use it to see what to expect before a first
run, or to look up a line of the output.

`python docs/captures.py` captures the output in tmux. It uses the network of `quaver demo`, with one weight scale per
layer. Text does not show colors: green marks a trial that meets the criterion, red a trial that does not or that is
slower than fp32, and yellow marks fp32. With `NO_COLOR` set, or in a pipe, there are no colors.

While `tune` and `fit` run, a line below the trials shows the current step, the best trial so far and the remaining
time. Bars of `tqdm` in `eval_func` are above this line. Without a terminal, `tune` and `fit` write one plain line per
step and trial to stderr, with the seconds since the start. Tables then have any width. `verbose=0` or `--quiet` prints
nothing. `verbose=1` prints plain lines everywhere, as in a notebook.

In the history, the column `change` compares a trial with its parent: the earlier trial that differs in the fewest ops.
"""


def tmux(server: str, *words: str) -> str:
    """Run a tmux command on the server with this name, which no other session uses."""
    process = subprocess.run(["tmux", "-L", server, "-f", "/dev/null", *words], check=True, capture_output=True)
    return process.stdout.decode()


def capture(folder: Path, words: tuple[str, ...], columns: int) -> str:
    """Return the text of the terminal after a command."""
    server = f"quaver-{uuid.uuid4().hex}"
    # An empty cache folder, because op times of earlier runs would shorten the output.
    cache, scripts = (shlex.quote(str(path)) for path in (folder / "cache", Path(sys.executable).parent))
    variables = f"XDG_CACHE_HOME={cache} PATH={scripts}:$PATH"
    command = shlex.join(("quaver", *words))
    script = f"cd {shlex.quote(str(folder))}; {variables} {command}; echo {END_MARK}; sleep {MAX_SECONDS}"
    size = ("-x", str(columns), "-y", str(LINES))
    tmux(server, "new-session", "-d", "-s", "one", *size, f"bash --norc -c {shlex.quote(script)}")
    try:
        deadline = time.monotonic() + MAX_SECONDS
        while time.monotonic() < deadline:
            time.sleep(1)
            screen = tmux(server, "capture-pane", "-p", "-t", "one", "-S", "-500")
            if f"\n{END_MARK}" in screen:
                return "\n".join(line.rstrip() for line in screen.split(f"\n{END_MARK}")[0].splitlines())
        raise SystemExit(f"`quaver {shlex.join(words)}` did not end within {MAX_SECONDS} s")
    finally:
        tmux(server, "kill-server")


def prepare(folder: Path) -> None:
    """Write the files of the demo."""
    shutil.copyfile(MODEL, folder / "digits.onnx")
    np.savez(folder / "calib.npz", image=digits()[0][:CALIBRATION_IMAGES])
    (folder / "eval_digits.py").write_text(EVAL, encoding="utf-8")


def captures(columns: int) -> Iterator[str]:
    """Yield the section of each command, run one after the other in a terminal of this width."""
    yield f"## {columns} columns\n"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        prepare(folder)
        for words in COMMANDS:
            yield f"```\n$ {shlex.join(('quaver', *words))}\n{capture(folder, words, columns)}\n```\n"


PAGE.write_text("\n".join([HEAD, *(part for columns in WIDTHS for part in captures(columns))]), encoding="utf-8")
