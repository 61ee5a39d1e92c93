"""The whole way by keyboard alone, nothing replaced: start, verdict, variation, compare, talk, export. The focus is known at every stop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.app import Server, launch
from tests.browser.conftest import PATIENCE
from tests.waiting import wait_until

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect
pytestmark = [pytest.mark.browser, pytest.mark.long]
STEPS = 4

FOCUSED = """() => {
  const node = document.activeElement;
  const label = node.getAttribute("aria-label") || node.labels?.[0]?.textContent || node.textContent;
  return (node === document.body ? "body" : label).trim().replace(/\\s+/g, " ");
}"""
SEEN = """() => {
  const box = document.activeElement.getBoundingClientRect();
  return box.width > 0 && box.bottom > 0 && box.top < innerHeight;
}"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = launch(tmp_path_factory.mktemp("workspace"))
    yield running
    running.close()


class Walker:
    """A person without a mouse."""

    def __init__(self, page: Any):
        self.page = page

    @property
    def at(self) -> str:
        """The name of what has the focus."""
        return str(self.page.evaluate(FOCUSED))

    def go(self, name: str, most: int = 30, key: str = "Tab") -> None:
        """Press ``key`` until the thing that begins with ``name`` has the focus; it must be on the screen then."""
        passed = [self.at]
        while not passed[-1].startswith(name):
            assert len(passed) <= most, f"{name} was not reached in {most} stops: {[stop[:30] for stop in passed]}"
            self.page.keyboard.press(key)
            passed.append(self.at)
        assert self.page.evaluate(SEEN), f"{name} has the focus, but is not on the screen"

    def press(self, name: str, most: int = 30) -> None:
        self.go(name, most)
        self.page.keyboard.press("Enter")

    def write(self, name: str, text: str) -> None:
        self.go(name)
        self.page.keyboard.press("Control+a")
        self.page.keyboard.type(text)

    def on(self, page: str) -> None:
        """The tab ``page`` is shown and the focus is inside it: at its beginning, or at what was asked for."""
        self.page.wait_for_function("(name) => document.activeElement.closest(`.rs-${name}`)?.offsetParent", arg=page, timeout=PATIENCE)


def short_run(walker: Walker) -> None:
    """On the Train page: a run of a few steps with short responses, and Start."""
    walker.press("PPO")
    walker.write("Steps", str(STEPS))
    walker.press("Generation")
    walker.write("Response length", "8")
    expect(walker.page.locator(".rs-command code")).to_contain_text("--generation.response_length 8")
    walker.press("Start run")
    walker.on("live")


def finish(walker: Walker, runs: int, server: Server) -> None:
    """The newest of so many runs has ended, and the page says so."""

    def steps() -> list[tuple[str, int]]:
        return [(run.state, run.step) for run in Workspace(server.workspace.root).runs()]

    wait_until(lambda: steps() == [("finished", STEPS)] * runs, PATIENCE / 1000)
    walker.page.wait_for_selector(".rs-live[data-state=finished]", timeout=PATIENCE)
    assert walker.at != "body", "the focus was lost when the run ended"


def test_the_whole_way_by_keyboard(open_page: Any, server: Server) -> None:
    page = open_page()
    page.set_default_timeout(PATIENCE)
    expect(page.locator(".rs-figures")).to_contain_text("about")
    walker = Walker(page)

    # start: one stop past the tabs, then the form
    walker.press("Skip to the page", most=1)
    walker.on("train")
    short_run(walker)

    # verdict: it is there, and its reason can be opened
    finish(walker, 1, server)
    expect(page.locator(".rs-verdict")).to_contain_text("early", ignore_case=True)

    # variation: the form has the run's settings
    walker.press("Run a variation")
    walker.on("train")
    expect(page.locator("#setting-ppo-steps")).to_have_value(str(STEPS))
    walker.press("Start run", most=40)
    walker.on("live")
    finish(walker, 2, server)

    # compare: a variation stands beside the run that it came from at once
    walker.press("Compare")
    expect(page.locator(".rs-compare-verdict")).to_contain_text("score")
    expect(page.locator(".rs-compare-runs a")).to_have_text(["Tiny world", "Tiny world, again"])
    walker.on("runs")

    # talk: back to Live by the tabs, then a prompt
    walker.go("Live", key="Shift+Tab")
    page.keyboard.press("Enter")
    walker.press("Talk to it")
    walker.on("talk")
    walker.write("Your prompt", "The film was")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".rs-exchange .rs-answer")).to_have_count(2)
    page.locator('.rs-answer [data-figure="KL"]').nth(1).wait_for()
    walker.go("Live", key="Shift+Tab", most=40)
    page.keyboard.press("Enter")

    # export: a dialog that gives the focus back
    walker.press("Take it home")
    expect(page.get_by_role("dialog", name="Take it home")).to_be_visible()
    walker.press("Report")
    page.locator(".rs-take-files a").first.wait_for()
    page.wait_for_function("document.activeElement.closest('.rs-take-files')")  # what was made has the focus
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    assert "<html" in Path(download.value.path()).read_text(encoding="utf-8")[:500]
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert walker.at == "Take it home"
