"""Chromium for the browser tests: one for each file. Every test has tabs of its own that remember nothing; see :class:`Tabs`."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
PATIENCE = 60_000  # milliseconds: a busy machine is slow, not wrong
HOSTILE = "<img src=x onerror='window.__pwned=1'> ${window.__pwned=2} {{x}}"
OURS = re.compile(r"(http://127\.0\.0\.1|data:|blob:)")


@pytest.fixture(scope="module", autouse=True)
def browser() -> Iterator[Any]:
    """A Chromium without a window. Where there is none, the tests of the file are skipped before anything else is started."""
    if not Path(CHROMIUM).exists():
        pytest.skip("there is no Chromium")
    playwright = pytest.importorskip("playwright.sync_api")
    playwright.expect.set_options(timeout=PATIENCE)
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield chromium
        chromium.close()


class Tabs:
    """The tabs that a file's tests open, each as in a browser of its own: cookies and storage are never shared and begin empty.

    A tab that a test leaves is emptied and given to a later test, because the first page of a new one takes three times as much work:
    only there are all scripts fetched and compiled. What a page did wrong is in its ``faults``: errors of its scripts, dialogs, requests to
    any machine but this one, and what the content security policy had to refuse.
    """

    def __init__(self, browser: Any, script: str = ""):
        self.browser = browser
        self.script = script  # runs before those of any page
        self.idle: list[Any] = []
        self.taken: list[Any] = []

    def open(self, address: str, width: int = 1440, height: int = 900) -> Any:
        """A tab at the address."""
        page = self.idle.pop() if self.idle else self._new()
        self.taken.append(page)
        page.faults.clear()
        page.set_viewport_size({"width": width, "height": height})
        page.goto(address)
        return page

    def leave(self) -> list[str]:
        """The test is over: its tabs become idle ones. Returns what their pages did wrong."""
        faults = []
        for page in self.taken:
            kept = self._emptied(page)
            faults += page.faults
            self.idle.append(page) if kept else page.context.close()
        self.taken.clear()
        return faults

    def _new(self) -> Any:
        context = self.browser.new_context(accept_downloads=True)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        if self.script:
            context.add_init_script(self.script)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.faults = faults = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: None if OURS.match(request.url) else faults.append(request.url))
        page.on("console", lambda message: faults.append(message.text) if "Content Security Policy" in message.text else None)
        page.on("dialog", lambda dialog: (faults.append(f"a dialog opened: {dialog.message}"), dialog.dismiss()))
        return page

    @staticmethod
    def _emptied(page: Any) -> bool:
        """Leave the page and forget all that it stored; False where that is impossible, such as when its server is gone."""
        from playwright.sync_api import Error

        page.unroute_all()
        origin = "/".join(page.url.split("/")[:3])
        try:
            page.goto(f"{origin}/theme.css")  # of the same origin, and runs nothing that stores anything again
        except Error:
            return False
        page.evaluate("localStorage.clear(); sessionStorage.clear()")
        page.context.clear_cookies()
        page.goto("about:blank")
        page.mouse.move(0, 0)
        return True


@pytest.fixture(scope="module")
def tabs(browser: Any) -> Tabs:
    return Tabs(browser)


@pytest.fixture
def open_page(tabs: Tabs, server: Any) -> Iterator[Callable[..., Any]]:
    """Opens the app of the file's own ``server``, or of the one ``at``.

    At the end no page may have had a script error, opened a dialog of the browser, asked another machine, or broken the policy.
    """

    def open_at(query: str = "", width: int = 1440, height: int = 900, at: Any = None) -> Any:
        return tabs.open((at or server).url + query, width, height)

    yield open_at
    assert tabs.leave() == []
