"""Part 5: what people see, in Chromium: the accessibility tree of each page and pictures of it, wide and as a phone."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path
from typing import Any

from tools.frozen.readers import workspace_of
from tools.frozen.running import Checkout, write
from tools.frozen.serving import App, served

WIDE, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
NOW = "2027-01-01T12:00:00Z"  # to the page's clock: "so many days ago" is the same each time
LOADED_SECONDS, CALM_SECONDS, LONGEST_SECONDS = 1.2, 0.45, 25.0
BUSY = ("Opening this page.", "The app is computing its own")  # what a page says that is not ready
SCROLL = """async () => {
  for (let top = 0; top < document.documentElement.scrollHeight; top += 400) {
    scrollTo(0, top);
    await new Promise((done) => setTimeout(done, 40));
  }
  scrollTo(0, 0);
}"""
"""What is drawn only once it is seen has been seen then."""
STATE = "() => document.body.innerText + document.querySelectorAll('*').length + '|' + document.querySelectorAll('[aria-busy=true]').length"
PLACES = Path(__file__).with_name("places.txt")


def collect(checkout: Checkout, out: Path, begin: str = "") -> None:
    """Writes ``pages/ADDRESS.WIDTH.txt`` and the pictures beside them, of the addresses whose names begin so."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or "/usr/bin/chromium"
    with served(checkout, workspace_of(checkout), token="") as app, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu", "--font-render-hinting=none"])
        tab = browser.new_context(reduced_motion="reduce", locale="en-GB", timezone_id="UTC").new_page()
        tab.set_default_timeout(60_000)
        tab.clock.set_fixed_time(NOW)
        for name, query in {
            **dict(line.split() for line in PLACES.read_text(encoding="utf-8").splitlines()),
            **_more_addresses(app),
        }.items():
            if name.startswith(begin):
                _look(checkout, tab, f"http://127.0.0.1:{app.port}/{query}", out / "pages", name)
        browser.close()


def _more_addresses(app: App) -> dict[str, str]:
    """Each lesson and each station of the tour, and each task of feedback."""
    shelf = json.dumps(app.ask("learn-page.learn_shelf", {}))
    lessons = sorted(set(re.findall(r'"name": "([a-z_.]+)"', shelf)))
    tasks = app.ask("feedback-page.boot", {})["tasks"]
    addresses = {f"lesson-{lesson}": f"?tab=learn&lesson={lesson}" for lesson in lessons}
    return {**addresses, **{f"feedback-{task['kind']}": f"?tab=feedback&task={task['id']}" for task in tasks}}


def _look(checkout: Checkout, tab: Any, address: str, folder: Path, name: str) -> None:
    faults: list[str] = []
    tab.goto("about:blank")
    tab.on("pageerror", lambda error: faults.append(str(error)))
    tab.emulate_media(color_scheme="light")
    tab.set_viewport_size(WIDE)
    tab.goto(address)
    for width, size, schemes in (("1440", WIDE, ("light", "dark")), ("390", PHONE, ("light",))):
        tab.set_viewport_size(size)
        _settle(tab, LOADED_SECONDS)
        tab.evaluate(SCROLL)
        for scheme in schemes:
            tab.emulate_media(color_scheme=scheme)
            _settle(tab, CALM_SECONDS)
            folder.mkdir(parents=True, exist_ok=True)
            tab.screenshot(path=folder / f"{name}.{width}.{scheme}.png", full_page=True, animations="disabled", caret="hide")
        tree = checkout.tidy(tab.locator("body").aria_snapshot())
        write(folder / f"{name}.{width}.txt", f"{tree}\nfaults: {sorted(set(faults))}\n")


def _settle(tab: Any, calm_seconds: float) -> None:
    """Wait until the page has not changed for a while."""
    began = calm = time.monotonic()
    before = ""
    while time.monotonic() < min(calm + calm_seconds, began + LONGEST_SECONDS):
        state = tab.evaluate(STATE)
        if state != before or any(words in state for words in BUSY):
            before, calm = state, time.monotonic()
        tab.wait_for_timeout(150)
