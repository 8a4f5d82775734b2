"""A page of a real browser, watched."""

from __future__ import annotations

from typing import Any


class StrictStrategy:
    """A page of the browser, and all that went wrong on it."""

    def __init__(self, browser: Any, **options: Any) -> None:
        self.context = browser.new_context(viewport={"width": 1360, "height": 950}, **options)
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.foreign: list[str] = []
        self.page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.errors.append(f"dialog {dialog.message}"), dialog.dismiss()))
        self.page.on("request", self._requested)

    def _requested(self, request: Any) -> None:
        if not request.url.startswith(("http://127.0.0.1", "file:", "data:", "blob:")):
            self.foreign.append(request.url)

    def view(self, name: str) -> Any:
        """Go to a view, and wait for it."""
        names = ["verdict", "trials", "tradeoff", "culprits", "ops", "op", "graph", "profile", "compare"]
        self.page.locator(".tab").nth(names.index(name)).click()
        self.page.wait_for_selector(f".view.{name}")
        return self.page
