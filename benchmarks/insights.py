"""How fast the page is on a large run: 5,000 trials of 2,000 ops, in the browser: python -m benchmarks.insights"""

from __future__ import annotations

import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import result_files
from quaver.history import Header, History
from quaver.insights import FollowedRun, write_report
from quaver.insights.page.serve import serve
from quaver.ops import FLOAT, INT8, Op, OpConfig, QuantConfig
from quaver.trial import Trial, TrialState

TRIALS, OPS = 5000, 2000
LIVE_TRIALS = 30
# Trials of a second each; a file is touched when one is on the disk.
SLOW_RUN = """
import sys, time
from pathlib import Path
import quaver
from quaver.demo.data import digits
from quaver.demo.run import MODEL, RULES
folder = Path(sys.argv[1])
scores = iter([0.9] + [0.1] * 1000)
def slow(model):
    time.sleep(1)
    return next(scores)
def recorded(event):
    if isinstance(event, quaver.events.TrialFinished):
        (folder.parent / str(event.trial.number)).touch()
quaver.fit(MODEL, calib_dataloader=digits()[0][:16], eval_func=slow, strategy="random", max_trials=int(sys.argv[2]),
           threads=1, op_type_dict=RULES, objective="int8_ops", report=False, workspace=folder, observer=recorded,
           verbose=0)
"""
# The row of a trial; the grid makes none that are out of sight.
ROW_OF = """number => {
    const grid = document.querySelector('.view.trials .ag-body-viewport');
    grid?.scrollTo(0, grid.scrollHeight);
    return document.querySelector(`.ag-row[row-id='${number}']`);
}"""
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]


def write(folder: Path, trials: int = TRIALS, ops: int = OPS) -> None:
    """A run of that size."""
    rng, choice = random.Random(0), OpConfig(INT8)
    names = [f"/layer{place // 40}/block{place // 8 % 5}/op{place}" for place in range(ops)]
    listed = tuple(Op(name, "Conv", (name,), (choice, FLOAT)) for name in names)
    folder.mkdir(parents=True)
    with History.create(folder / "history.snapshot") as history:
        history.begin(Header("f" * 64, "onnxrt", listed, {}, "2025-01-01T00:00:00+00:00"))
        history.start_run({"relative": 0.01, "strategy": "random"}, {})
        default_config = QuantConfig((name, choice) for name in names)
        history.append(Trial(0, default_config.fallback(*names), TrialState.COMPLETE, 0.9, model_size=10**8))
        inside = {name: {"before": names[place - 1 : place], "error": rng.random()} for place, name in enumerate(names)}
        history.note("inside.ops", {**inside, names[0]: {"before": []}})
        history.note("inside.about", {"trial": 1, "samples": 8})
        for number in range(1, trials + 1):
            history.append(trial(number, default_config, names, rng))


def trial(number: int, config: QuantConfig, names: list[str], rng: random.Random) -> Trial:
    """One with a few ops in fp32."""
    fallen = config.fallback(*rng.sample(names, rng.randint(1, 20)))
    score = 0.85 + 0.05 * rng.random()
    measured = {"latency": 0.5 + rng.random() / 4} if score > 0.891 else {}
    return Trial(number, fallen, TrialState.COMPLETE, score, seconds=1.0, model_size=5 * 10**7, measured=measured)


def main() -> None:
    from playwright.sync_api import sync_playwright

    folder = Path(tempfile.mkdtemp(prefix="quaver-insights-")) / "large"
    write(folder)
    begin = time.perf_counter()
    run = FollowedRun(folder)
    data = run.poll()
    assert data is not None
    figures = {"trials": TRIALS, "ops": OPS, "reading s": time.perf_counter() - begin}
    begin = time.perf_counter()
    report = write_report(folder)
    figures |= {"report s": time.perf_counter() - begin, "report MB": report.stat().st_size / 1e6}
    with sync_playwright() as playwright, serve([folder], port=0) as served:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page()
        begin = time.perf_counter()
        page.goto(served.url)
        page.wait_for_selector(".view.verdict .headline")
        page.wait_for_selector(".js-plotly-plot .main-svg")
        figures["first view s"] = time.perf_counter() - begin
        for place, view, drawn in ((1, "trials", ".ag-row"), (4, "ops", ".ag-row"), (6, "graph", "canvas")):
            begin = time.perf_counter()
            page.locator(".tab").nth(place).click()
            page.wait_for_selector(f".view.{view} {drawn}")
            figures[f"{view} s"] = time.perf_counter() - begin
        page.locator(".tab").nth(0).click()
        page.wait_for_selector(".view.verdict .headline")
        figures["update s"] = update(folder, page)
        page.goto("about:blank")
        figures |= live(page)
        browser.close()
    shutil.rmtree(folder.parent)
    result_files.write("insights", "The page on a large run", [figures])
    print(json.dumps(figures, indent=1))


def live(page: Any) -> dict[str, float]:
    """Return the seconds from the record of a trial to its row on the page, in an active run of another process."""
    folder = Path(tempfile.mkdtemp(prefix="quaver-insights-"))
    run = subprocess.Popen([sys.executable, "-c", SLOW_RUN, str(folder / "run"), str(LIVE_TRIALS)])
    delays: list[float] = []
    with serve([folder], port=0) as served:
        page.goto(served.url)
        page.wait_for_selector("#state.running", timeout=120_000)
        page.locator(".tab").nth(1).click()
        for number in range(1, LIVE_TRIALS + 1):
            page.wait_for_function(ROW_OF, arg=number, timeout=60_000)
            recorded = (folder / f"{number}").stat().st_mtime
            delays.append(time.time() - recorded)
        page.goto("about:blank")
    run.wait()
    shutil.rmtree(folder)
    return {"live trials": LIVE_TRIALS, "shown after s, median": statistics.median(delays), "at most s": max(delays)}


def update(folder: Path, page: object) -> float:
    """Seconds from a tick of the page that finds a new trial to what it shows of it, without the wait for the tick."""
    names = [op.name for op in FollowedRun(folder).poll().ops]  # type: ignore[union-attr]
    config = QuantConfig((name, OpConfig(INT8)) for name in names)
    taken: list[float] = []
    with History.resume(folder) as history:
        for number in range(TRIALS + 1, TRIALS + 4):
            history.append(trial(number, config, names, random.Random(number)))
            with page.expect_response(lambda answer: b"figure" in (answer.request.post_data_buffer or b"")) as found:  # type: ignore[attr-defined]
                pass
            found.value.finished()
            timing = found.value.request.timing
            taken.append(max(timing["responseEnd"], 0.0) / 1e3)
    return sorted(taken)[len(taken) // 2]


if __name__ == "__main__":
    main()
