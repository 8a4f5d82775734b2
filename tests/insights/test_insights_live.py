"""An active run of another process on the page: trials appear, a killed run is named, a resumed one continues."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from quaver.insights.page.serve import serve

# Trials that take a while each, until the run is ended or killed.
SLOW = """
import sys, time
from pathlib import Path
import quaver
from quaver.demo.data import digits
from quaver.demo.run import MODEL, RULES
folder, most = Path(sys.argv[1]), int(sys.argv[2])
train = digits()[0]
scores = iter([0.9] + [0.1] * 1000)
def slow(model):
    time.sleep(0.3)
    return next(scores)
place = {"resume": folder} if folder.exists() else {"workspace": folder}
if "resume" in place:
    scores = iter([0.1] * 1000)
quaver.fit(MODEL, calib_dataloader=train[:16], eval_func=slow, strategy="random", max_trials=most, threads=1,
           op_type_dict=RULES, objective="int8_ops", report=False, **place)
"""


def run(folder: Path, most: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", SLOW, str(folder), str(most)])


def test_a_run_of_another_process_is_followed(watched: Any, tmp_path: Path) -> None:
    folder, page = tmp_path / "slow", watched.page
    first = run(folder, 1000)
    try:
        with serve([tmp_path], port=0) as served:
            page.goto(served.url)
            page.wait_for_selector("#state.running", timeout=120_000)
            watched.view("trials").wait_for_selector(".ag-row", timeout=60_000)
            before = page.locator(".ag-row").count()
            page.wait_for_selector(f".ag-row[row-id='{before + 3}']", timeout=60_000)
            first.send_signal(signal.SIGKILL)
            first.wait()
            page.wait_for_selector("#state.killed", timeout=30_000)
            assert "killed" in page.inner_text("#state")
            shown = page.locator(".ag-row").count()
            second = run(folder, shown + 3)
            try:
                page.wait_for_selector("#state.ended", timeout=120_000)
                assert second.wait(timeout=60) == 0
            finally:
                second.kill()
            watched.view("trials").wait_for_selector(f".ag-row[row-id='{shown + 3}']", timeout=30_000)
            page.goto("about:blank")  # it would ask a server that is gone
    finally:
        first.kill()
        first.wait()
