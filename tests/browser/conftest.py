"""One Chromium and one filled app for all journeys of a worker. Every test has tabs of its own that remember nothing; see :class:`Tabs`."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.filled import Studio, served_studio
from tests.browser.space_stage import HUB_HOST, SPACE_HOST, Proxy, certificate
from tests.ui.live_app import LiveApp

# The first is made for this: it has no window to draw, and needs a quarter less work.
CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium") or "/usr/bin/chromium"
PATIENCE = 60_000  # milliseconds: a busy machine is slow, not wrong
HOSTILE = "<img src=x onerror='window.__pwned=1'> ${window.__pwned=2} {{x}}"
OURS = re.compile(r"(http://127\.0\.0\.1|data:|blob:)")
# Whatever waits for half a second or longer waits a tenth of it, so that a poll comes every 0.1 s. Shorter waits are for what a page
# needs to settle; and the app has its whole time for an answer (NO_ANSWER and OPENING in shared/poll.js) and for styles (ui/html.py).
HURRY = """{
  const usual = window.setTimeout;
  const shorter = (wait) => (wait >= 500 && ![4000, 12000, 20000].includes(wait) ? wait / 10 : wait);
  window.setTimeout = (action, wait, ...rest) => usual(action, shorter(wait), ...rest);
}"""


@pytest.fixture(scope="session")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy | None]:
    """What the names of a Space and of its hub lead to; None where no certificate can be made."""
    context = certificate(tmp_path_factory.mktemp("certificate"))
    opened = Proxy(context) if context is not None else None
    yield opened
    if opened is not None:
        opened.close()


@pytest.fixture(scope="session")
def arguments(proxy: Proxy | None) -> list[str]:
    """What Chromium is started with: no name leads anywhere but to this machine."""
    lead = [f"MAP {name} 127.0.0.1:{proxy.port}" for name in (SPACE_HOST, HUB_HOST)] if proxy else []
    return ["--no-sandbox", "--disable-gpu", "--host-resolver-rules=" + ", ".join([*lead, "MAP * ~NOTFOUND", "EXCLUDE 127.0.0.1"])]


@pytest.fixture(scope="session")
def driver() -> Iterator[Any]:
    """Playwright. Where there is no Chromium, all tests are skipped before anything else is started."""
    if not Path(CHROMIUM).exists():
        pytest.skip("there is no Chromium")
    playwright = pytest.importorskip("playwright.sync_api")
    playwright.expect.set_options(timeout=PATIENCE)
    with playwright.sync_playwright() as started:
        yield started


@pytest.fixture(scope="session", autouse=True)
def browser(driver: Any, arguments: list[str]) -> Iterator[Any]:
    """A Chromium without a window."""
    chromium = driver.chromium.launch(executable_path=CHROMIUM, args=arguments)
    yield chromium
    chromium.close()


@pytest.fixture(scope="session")
def filled_studio(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    """The app that most journeys visit, filled with finished runs."""
    with served_studio(tmp_path_factory.mktemp("studio")) as filled:
        yield filled


@pytest.fixture
def studio(filled_studio: Studio) -> Iterator[Studio]:
    """The filled app; what a test starts there is taken away after it."""
    yield filled_studio
    filled_studio.clear()


@pytest.fixture(scope="session")
def live_app(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveApp]:
    """The Live page alone, with stand-ins for the doctor: what it says is known, how it is shown is tried."""
    app = LiveApp(tmp_path_factory.mktemp("live"))
    yield app
    app.close()


class Tabs:
    """The tabs that tests open, each as in a browser of its own: cookies and storage are never shared and begin empty.

    A tab that a test leaves is emptied and given to a later test, because the first page of a new one takes three times as much work:
    only there are all scripts fetched and compiled. What a page did wrong is in its ``faults``: errors of its scripts, dialogs, requests to
    any machine but this one, and what the content security policy had to refuse.
    """

    def __init__(self, browser: Any):
        self.browser = browser
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
            reusable = self._emptied(page)
            faults += page.faults
            self.idle.append(page) if reusable else page.context.close()
        self.taken.clear()
        return faults

    def _new(self) -> Any:
        context = self.browser.new_context(accept_downloads=True, reduced_motion="reduce")
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        context.add_init_script(HURRY)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.faults = []
        watch(page, page.faults, OURS.match)
        return page

    @staticmethod
    def _emptied(page: Any) -> bool:
        """Leave the page and forget all that it stored; False where that is impossible, such as when its server is gone."""
        from playwright.sync_api import Error

        page.unroute_all()
        page.emulate_media(media="screen")
        origin = "/".join(page.url.split("/")[:3])
        try:
            page.goto(f"{origin}/theme.css")  # of the same origin, and runs nothing that stores anything again
        except Error:
            return False
        page.evaluate("localStorage.clear(); sessionStorage.clear()")
        page.context.clear_cookies()
        page.mouse.move(0, 0)
        return True


def watch(page: Any, faults: list[str], ours: Callable[[str], Any]) -> None:
    """Note a page's errors of scripts, dialogs, requests that are not ``ours``, and what the content security policy had to refuse."""
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda request: None if ours(request.url) else faults.append(request.url))
    page.on("console", lambda message: faults.append(message.text) if "Content Security Policy" in message.text else None)
    page.on("dialog", lambda dialog: (faults.append(f"a dialog opened: {dialog.message}"), dialog.dismiss()))


@pytest.fixture(scope="session")
def tabs(browser: Any) -> Tabs:
    return Tabs(browser)


@pytest.fixture
def open_page(tabs: Tabs, request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Opens the filled studio, or the app ``at``.

    At the end no page may have had a script error, opened a dialog of the browser, asked another machine, or broken the policy.
    """

    def open_at(query: str = "", width: int = 1440, height: int = 900, at: Any = None) -> Any:
        app = at or request.getfixturevalue("studio")
        return tabs.open(app.url + query, width, height)

    yield open_at
    assert tabs.leave() == []


def go(page: Any, query: str) -> None:
    """Be led to another address of the app as by the browser's Back: nothing is loaded anew."""
    page.evaluate("(query) => { history.pushState(null, '', query); dispatchEvent(new PopStateEvent('popstate')); }", query)


def width_of(page: Any) -> int:
    """How wide the whole page is; more than the window means that it scrolls sideways."""
    return int(page.evaluate("document.documentElement.scrollWidth"))


def section(page: Any, title: str) -> Any:
    """The summary that opens a section of the Train page's form."""
    return page.locator("summary", has=page.get_by_text(title, exact=True))


def open_form(page: Any) -> None:
    """The Train page's form, from its first screen."""
    page.get_by_role("button", name=re.compile("^(Change|See the) settings$")).click()
    page.locator(".rs-sections").wait_for()


def choose(page: Any, recipe: str) -> None:
    """Choose a card among the folded recipes, from the first screen or the form."""
    fold = page.locator(".rs-more-recipes")
    fold.wait_for()
    if not fold.evaluate("node => node.open"):
        fold.locator("summary").click()
    page.locator(f'[data-recipe="{recipe}"]').click()


def wait_for_form(page: Any) -> None:
    """The Train page's form has checked its settings; it is opened where the first screen is shown."""
    page.locator(".rs-first-ways, .rs-sections").first.wait_for()
    if page.locator(".rs-first-ways").count():
        open_form(page)
    page.locator(".rs-figures", has_text="about").wait_for()
