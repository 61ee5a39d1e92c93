"""Chromium for the browser tests: one for each file; every test opens pages of its own."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
HOSTILE = "<img src=x onerror='window.__pwned=1'> ${window.__pwned=2} {{x}}"
OURS = re.compile(r"(http://127\.0\.0\.1|data:|blob:)")


@pytest.fixture(scope="module", autouse=True)
def browser() -> Iterator[Any]:
    """A Chromium without a window. Where there is none, the tests of the file are skipped before anything else is started."""
    if not Path(CHROMIUM).exists():
        pytest.skip("there is no Chromium")
    playwright = pytest.importorskip("playwright.sync_api")
    playwright.expect.set_options(timeout=20_000)  # a busy machine is slow, not wrong
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield chromium
        chromium.close()


def note_faults(page: Any, faults: list[str]) -> None:
    """Collect errors of the page's scripts, and requests to any machine but this one."""
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda request: None if OURS.match(request.url) else faults.append(request.url))


@pytest.fixture
def open_page(browser: Any, server: Any) -> Iterator[Callable[..., Any]]:
    """Opens the app of the file's own ``server``, or of the one ``at``.

    At the end no page may have had a script error or asked another machine.
    """
    faults: list[str] = []
    contexts = []

    def open_at(query: str = "", width: int = 1440, height: int = 900, at: Any = None) -> Any:
        context = browser.new_context(viewport={"width": width, "height": height}, accept_downloads=True)
        contexts.append(context)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = context.new_page()
        page.set_default_timeout(20_000)
        note_faults(page, faults)
        page.goto((at or server).url + query)
        return page

    yield open_at
    for context in contexts:
        context.close()
    assert faults == []
