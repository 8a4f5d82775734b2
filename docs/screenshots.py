"""Make the pictures of docs/insights.md: tune the demo and a real model, open the page, and take screenshots.

The folder docs/insights/views gets every view of the demo in light, dark and narrow, to be looked at.

    python docs/screenshots.py [FOLDER]

FOLDER stores the runs, so that a second call only takes the pictures. This needs the extra `insights`, playwright,
chromium, and for the real model the packages in benchmarks/requirements.txt.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import quaver
from quaver.demo.data import Accuracy, digits
from quaver.demo.run import MODEL, RULES
from quaver.insights.page.serve import serve

ROOT = Path(__file__).resolve().parents[1]
PICTURES = Path(__file__).with_name("insights")
NAME = "mobilenetv2_cifar10"
VIEWS = ("verdict", "trials", "tradeoff", "culprits", "ops", "op", "graph", "profile", "compare")
STYLES: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "dark"},
    "narrow": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
}
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


def tune_demo(folder: Path) -> None:
    """Tune the network of the demo, with one weight scale per layer."""
    train, _, images, labels = digits()
    quaver.fit(
        MODEL, calib_dataloader=train[:256], eval_func=Accuracy(images, labels), workspace=folder, threads=1,
        op_type_dict=RULES, strategy="mse_v2",
    )  # fmt: skip


def tune_mobilenet(folder: Path) -> None:
    """Tune MobileNetV2 with one weight scale per layer, as the hardware in the example of the page requires."""
    sys.path.insert(0, str(ROOT))
    from benchmarks.models import load

    bench = load(NAME)
    quaver.fit(
        bench.model_path, calib_dataloader=bench.calib, eval_func=bench.eval_func, workspace=folder, threads=1,
        op_type_dict=RULES, strategy="mse_v2", relative=0.02, max_trials=15, calibration_sampling_size=64,
    )  # fmt: skip


class Camera:
    """A browser that takes pictures of the views of the page."""

    def __init__(self, browser: Any, url: str) -> None:
        self.page = browser.new_page(viewport={"width": 1280, "height": 860}, device_scale_factor=1)
        self.page.goto(url)
        self.page.wait_for_selector(".view.verdict .headline")

    def take(self, view: str, name: str, height: int = 860) -> None:
        """Take one picture of a view."""
        self.page.locator(".tab").nth(VIEWS.index(view)).click()
        self.page.wait_for_selector(f".view.{view}")
        self.page.wait_for_timeout(2500)
        self.page.screenshot(path=PICTURES / f"{name}.png", clip={"x": 0, "y": 0, "width": 1280, "height": height})


def take_views(browser: Any, url: str) -> None:
    """Take every view, as the system of a reader shows it: light, dark, and on a telephone."""
    folder = PICTURES / "views"
    folder.mkdir(exist_ok=True)
    for style, options in STYLES.items():
        context = browser.new_context(**options)
        page = context.new_page()
        page.goto(url)
        page.wait_for_selector(".view.verdict .headline")
        for place, view in enumerate(VIEWS):
            page.locator(".tab").nth(place).click()
            page.wait_for_selector(f".view.{view}")
            page.wait_for_timeout(2500)
            page.screenshot(path=folder / f"{view}_{style}.png")
        context.close()


def main() -> None:
    """Tune the models that FOLDER does not contain, and take the pictures."""
    from playwright.sync_api import sync_playwright

    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="quaver-pictures-"))
    for name, tune in (("digits", tune_demo), ("mobilenet_v2", tune_mobilenet)):
        if not (folder / name / "report.html").exists():
            tune(folder / name)
    PICTURES.mkdir(exist_ok=True)
    chromium = shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        for run, prefix, views in (
            ("digits", "digits", {"verdict": 1000, "graph": 860, "op": 1000}),
            ("mobilenet_v2", "mobilenet", {"verdict": 1000, "trials": 1100, "ops": 1400, "op": 1300, "culprits": 1100,
                                           "graph": 860, "profile": 1200, "tradeoff": 700}),
        ):  # fmt: skip
            with serve([folder / run], port=0) as page:
                camera = Camera(browser, page.url)
                for view, height in views.items():
                    camera.page.set_viewport_size({"width": 1280, "height": height})
                    camera.take(view, f"{prefix}_{view}", height)
                camera.page.close()
        with serve([folder / "digits"], port=0) as page:
            take_views(browser, page.url)
        with serve([folder], port=0) as page:
            camera = Camera(browser, page.url)
            camera.take("compare", "compare")
        browser.close()


if __name__ == "__main__":
    main()
