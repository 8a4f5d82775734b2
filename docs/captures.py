"""Write docs/terminal.md, what a terminal of 80 and of 120 columns shows: python docs/captures.py (needs tmux)"""

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
SECONDS = 300
END = "end-of-capture"
CONV = "Conv={weight: {granularity: [per_tensor]}}"
TUNE = (
    "tune", "--model", "digits.onnx", "--calib", "calib.npz", "--eval", "eval_digits.py:accuracy", "--op-type", CONV,
    "--max-trials", "4", "--timeout", "600", "--threads", "1", "--workspace", "run",
)  # fmt: skip
COMMANDS = (
    TUNE,
    ("history", "run"),
    ("show", "run", "best", "--fp32"),
    ("show", "run", "1", "best"),
    ("diagnose", "digits.onnx", "--calib", "calib.npz", "--history", "run", "--trial", "1", "--rows", "4"),
    ("profile", "digits.onnx", "--history", "run", "--trial", "1", "--rows", "6", "--threads", "1"),
)
HEAD = """\
# What a terminal shows

Captured by `python docs/captures.py` in tmux, from the network of `quaver demo`, with one weight scale for each layer.
Colours, which do not show here: green is what meets the criterion, red what does not or is slower, yellow is fp32.
There are none with `NO_COLOR` set, or in a pipe. While `tune` and `fit` go on, a line below the trials tells what is
done now, the best so far and the time that is left; bars of `tqdm` in `eval_func` stand above it.

Where there is no terminal, `tune` and `fit` write a plain line a stage and a trial to stderr, each with the seconds
since the start, and tables are as wide as need be. `verbose=0` or `--quiet` is silent, `verbose=1` is lines
everywhere; a notebook gets lines.

`change` in the history names the earlier trial that a trial came from: the one that differs in the fewest ops.
"""


def tmux(server: str, *words: str) -> str:
    """Run tmux on a server of that name, which no other session uses."""
    done = subprocess.run(["tmux", "-L", server, "-f", "/dev/null", *words], check=True, capture_output=True)
    return done.stdout.decode()


def capture(folder: Path, words: tuple[str, ...], columns: int) -> str:
    """What is left on the terminal after a command."""
    server = f"quaver-{uuid.uuid4().hex}"
    path = f"PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH"
    script = f"cd {shlex.quote(str(folder))}; {path} {shlex.join(('quaver', *words))}; echo {END}; sleep {SECONDS}"
    size = ("-x", str(columns), "-y", str(LINES))
    tmux(server, "new-session", "-d", "-s", "one", *size, f"bash --norc -c {shlex.quote(script)}")
    try:
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            time.sleep(1)
            seen = tmux(server, "capture-pane", "-p", "-t", "one", "-S", "-500")
            if f"\n{END}" in seen:
                return "\n".join(line.rstrip() for line in seen.split(f"\n{END}")[0].splitlines())
        raise SystemExit(f"`quaver {shlex.join(words)}` did not end within {SECONDS} s")
    finally:
        tmux(server, "kill-server")


def prepare(folder: Path) -> None:
    """The files of the demo."""
    shutil.copyfile(MODEL, folder / "digits.onnx")
    np.savez(folder / "calib.npz", image=digits()[0][:CALIBRATION_IMAGES])
    (folder / "eval_digits.py").write_text(EVAL, encoding="utf-8")


def shown(columns: int) -> Iterator[str]:
    """All commands, one after the other, in a terminal of that width."""
    yield f"## {columns} columns\n"
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        prepare(folder)
        for words in COMMANDS:
            yield f"```\n$ {shlex.join(('quaver', *words))}\n{capture(folder, words, columns)}\n```\n"


PAGE.write_text("\n".join([HEAD, *(part for columns in WIDTHS for part in shown(columns))]), encoding="utf-8")
