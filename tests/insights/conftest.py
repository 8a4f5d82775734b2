"""One run of the demo, one of a real model and one browser for all tests of the page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from browsing import StrictStrategy
from insights_runs import RESNET, tune, tune_keras

import quaver

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# A browser that stays by itself.
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> quaver.TuneResult:
    """The demo's network, tuned to its first success."""
    return tune(tmp_path_factory.mktemp("runs") / "demo")


@pytest.fixture(scope="session")
def resnet(tmp_path_factory: pytest.TempPathFactory) -> quaver.TuneResult:
    """A residual network, with what `auto` measures."""
    return tune(tmp_path_factory.mktemp("runs") / "resnet", RESNET, strategy="auto")


@pytest.fixture(scope="session")
def keras(tmp_path_factory: pytest.TempPathFactory) -> quaver.TuneResult:
    """A Keras network, which runs in LiteRT."""
    return tune_keras(tmp_path_factory.mktemp("runs") / "keras")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's chromium; `make test` installs it where it may."""
    api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no chromium here: apt-get install chromium")
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture
def watched(browser: Any) -> Iterator[StrictStrategy]:
    one = StrictStrategy(browser)
    yield one
    one.context.close()
    assert not one.errors and not one.foreign
