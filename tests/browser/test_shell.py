"""What lies around the pages: a first visit to an empty workspace, addresses, the theme, shortcuts, read-only apps, the keyboard alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradio
import pytest

from rlhf_studio.config.bundled import RECORDINGS
from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.ui.app import launch
from rlhf_studio.ui.visiting.modes import Mode
from tests.browser.axe import violations
from tests.browser.conftest import go, wait_for_form
from tests.browser.filled import Studio

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect
pytestmark = pytest.mark.browser
GRADIO = Path(gradio.__file__).parent / "templates" / "frontend"
LOST_ONCE = ("shared/address.js", "shared/visit.js", "shared/page.css", "shell/shell.js", "runs/runs.js", "runs/runs.css")
RECORDED = [recording.name for recording in RECORDINGS]
FOCUSED = """() => {
  const node = document.activeElement;
  const label = node.getAttribute("aria-label") || node.labels?.[0]?.textContent || node.textContent;
  return (node === document.body ? "body" : label).trim().replace(/\\s+/g, " ");
}"""
SEEN = """() => {
  const box = document.activeElement.getBoundingClientRect();
  return box.width > 0 && box.bottom > 0 && box.top < innerHeight;
}"""


def tab(page: Any, name: str) -> Any:
    return page.get_by_role("tab", name=name, exact=True)


def test_who_comes_first_finds_recordings_and_what_to_do_next(open_page: Callable[..., Any], tmp_path: Path) -> None:
    server = launch(tmp_path, start=lambda *_, **__: pytest.fail("nothing is started here"))
    server.dispatcher.stop()  # a queued run stays queued
    page = open_page("?tab=live", at=server)
    rows, name = page.locator(".rs-run-row"), page.locator(".rs-head .rs-name")
    page.get_by_role("link", name=RECORDED[1]).click()
    expect(name).to_have_text(RECORDED[1])
    expect(page.locator(".rs-inspector .rs-token").first).to_be_visible()
    expect(page.get_by_role("region", name="Before and now")).to_be_visible()
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", name="Compare 2 runs")).to_be_visible()
    page.goto(f"{server.url}?tab=live")  # as in a new tab: Runs does not remember what it compared
    expect(page.locator(".rs-recordings a")).to_have_text(RECORDED)
    page.get_by_role("link", name=RECORDED[2]).click()
    expect(name).to_have_text(RECORDED[2])
    expect(page.locator(".rs-head .rs-chip")).to_have_text("Recording")
    expect(page.locator(".rs-verdict")).to_contain_text("The model collapsed")
    expect(page.locator(".rs-banner")).to_contain_text("This recording came with the program.")
    buttons = [text for text in page.locator(".rs-ending button").all_inner_texts() if text]
    assert buttons == ["Send or save", "Compare", "Train with its settings"]
    expect(page.locator(".rs-ending-large")).to_have_text("Watch a judge being fooled, in a recording")
    page.wait_for_url(f"**run={RECORDINGS[2].run_id}**")
    page.go_back()
    tab(page, "Runs").click()
    expect(rows.locator(".rs-run-name > a")).to_have_text(RECORDED)
    expect(rows.locator(".rs-chip")).to_have_text(["Recording"] * 3)
    rows.first.get_by_role("button", name="Actions").click()
    expect(page.get_by_role("menuitem")).to_have_text(["Open", "Settings", "Copy settings to Train", "Send or save"])
    page.keyboard.press("Escape")
    expect(page.locator(".rs-no-runs")).to_contain_text("No runs of your own yet")
    page.get_by_role("button", name="Go to Train").click()
    expect(page.get_by_role("button", name="Start run")).to_be_visible()
    tab(page, "Talk").click()
    expect(page.get_by_role("heading", name="No policy to talk to yet")).to_be_visible()
    tab(page, "Runs").click()
    server.workspace.submit(load_recipe("world").config, "mine")
    page.reload()
    expect(rows.locator(".rs-run-name > a")).to_have_text(["mine"])
    page.get_by_role("button", name="3 recordings hidden · Show").click()
    expect(rows.locator(".rs-run-name > a")).to_have_text(["mine", *RECORDED])
    server.close()


def test_a_page_opens_though_tabs_come_late_and_everything_is_lost_once(open_page: Callable[..., Any], studio: Studio) -> None:
    """A script of Gradio comes after ours; scripts, styles and answers get lost; what stays out for long is said."""
    tabs = next(path.name for path in GRADIO.glob("assets/Index-*.js") if "overflow-dropdown" in path.read_text())
    late: dict[str, list[Any]] = {name: [] for name in (tabs, "evaluate/evaluate.js")}
    lost: set[str] = set()

    def answer(route: Any) -> None:
        address, asked = route.request.url, json.loads(route.request.post_data or "{}").get("fn_name", "")
        held = next((name for name in late if address.endswith(name)), None)
        what = asked or next((name for name in LOST_ONCE if address.endswith(name)), None)
        if held is not None:
            late[held].append(route)
        elif what is None or what in lost:
            route.continue_()
        else:
            lost.add(what)
            route.abort()

    page = open_page("theme.css")
    page.route("**/*", answer)
    page.goto(f"{studio.url}?tab=runs&compare={studio.runs['first']},{studio.runs['second']}", wait_until="commit")
    page.locator(".rs-skip").wait_for(state="attached")
    assert page.locator("#pages").count() == 0
    late.pop(tabs)[0].continue_()
    expect(page.locator(".rs-compare-verdict")).to_be_visible()
    expect(page.locator(".rs-opening")).to_have_count(0)
    assert lost > {*LOST_ONCE, "where", "runs", "compare"}

    tab(page, "Evaluate").click()
    expect(page.get_by_role("button", name="Reload the page")).to_be_visible()
    late.pop("evaluate/evaluate.js")[0].continue_()
    expect(page.locator(".rs-evaluate-wins li").first).to_be_visible()
    expect(page.locator(".rs-opening")).to_have_count(0)


def test_every_tab_has_an_address_and_the_theme_is_remembered(open_page: Callable[..., Any], studio: Studio) -> None:
    page = open_page("?tab=train")
    wait_for_form(page)
    shown = "(name) => document.querySelector('#pages [aria-selected=true]')?.dataset.tabId === name"
    tab(page, "Runs").click()
    page.wait_for_url("**/?tab=runs*")
    tab(page, "Live").click()
    page.wait_for_url("**/?tab=live*")
    for move, name in (("go_back", "runs"), ("go_back", "train"), ("go_forward", "runs"), ("reload", "runs")):
        getattr(page, move)()
        page.wait_for_function(shown, arg=name)
    # the menu: the keyboard opens it, walks through its choices and closes it; the theme outlasts the page
    menu = page.get_by_role("button", name="Menu")
    menu.focus()
    page.keyboard.press("Enter")
    expect(menu).to_have_attribute("aria-expanded", "true")
    assert violations(page, "#rs-page-menu") == []
    page.keyboard.press("Tab")
    for dark, name in ((False, "Light"), (True, "Dark")):
        page.keyboard.press("ArrowRight")
        expect(page.get_by_role("radio", name=name)).to_be_focused()
        assert page.evaluate("document.body.classList.contains('dark')") is dark
    page.keyboard.press("Escape")
    expect(page.locator("#rs-page-menu")).to_be_hidden()
    expect(menu).to_be_focused()
    # the bell: what ended, with its link; the browser is asked only when it is switched on
    page.evaluate("window.Notification = { permission: 'default', requestPermission: async () => (Notification.permission = 'granted') }")
    page.get_by_role("button", name="Notifications: off").click()
    events = page.locator("#rs-bell li")
    expect(events.filter(has_text="over-optimised").filter(has_text="finished: Step 2")).to_have_count(1)
    assert violations(page, "#rs-bell") == [] and page.evaluate("Notification.permission") == "default"
    page.get_by_role("button", name="Notify me when a run ends").click()
    expect(page.get_by_role("button", name="Notifications: on")).to_have_count(1)
    events.get_by_role("link", name="over-optimised").click()
    page.wait_for_url(f"**run={studio.runs['exploited']}")
    expect(page.locator("#rs-bell")).to_be_hidden()
    tab(page, "Runs").click()
    page.goto(f"{studio.url}?run=20261121-000000-abcdef&view=1")  # a link to a run opens Live, and keeps what else the address says
    page.wait_for_function(shown, arg="live")
    page.locator(".rs-shell-tools button").first.wait_for()
    assert page.evaluate("document.body.classList.contains('dark')") is True
    page.get_by_text("This run is not here").wait_for()
    tab(page, "Runs").click()
    page.wait_for_url("**/?tab=runs&view=1")
    page.go_back()
    page.wait_for_url("**run=20261121-000000-abcdef**")

    # who follows a teacher is led by the page's own parameters alone: others would stay in the address for all pages and for good
    page.goto(f"{studio.url}?tab=train")
    page.wait_for_selector(".rs-more-recipes")
    script = page.locator('link[data-script="shared/address.js"]').get_attribute("href")
    sent = {"run": "20261121-000000-abcdef", "view": "1", "operator": "x", "class": "x", "tab": "runs", "__proto__": "x"}
    page.evaluate("async ([script, sent]) => (await import(script)).address.lead('live', sent)", [script, sent])
    page.wait_for_url("**/?tab=live&run=20261121-000000-abcdef")

    # the language: chosen in the menu and remembered; a link may name another one
    page.goto(f"{studio.url}?tab=learn")
    menu.click()
    page.get_by_role("button", name="中文").click()
    tab(page, "学习").wait_for()
    expect(page.get_by_role("button", name="代码导览")).to_be_visible()
    expect(page.locator("html")).to_have_attribute("lang", "zh-Hans")
    page.goto(f"{studio.url}?tab=runs")
    tab(page, "训练记录").wait_for()
    page.goto(f"{studio.url}?tab=learn&lang=en")
    expect(page.get_by_role("button", name="Tour of the code")).to_be_visible()
    expect(page.locator("html")).to_have_attribute("lang", "en")


def test_a_read_only_app_opens_with_its_runs_and_offers_nothing_that_cannot_be_done(open_page: Callable[..., Any], tmp_path: Path) -> None:
    server = launch(tmp_path, mode=Mode.READ_ONLY)
    page = open_page("", at=server)
    page.wait_for_function("document.querySelector('#pages [aria-selected=true]')?.dataset.tabId === 'runs'")
    page.locator("#runs-page").get_by_text(RECORDED[0]).first.wait_for()
    page.keyboard.press("Tab")  # the way past the tabs
    assert page.evaluate("document.activeElement.textContent") == "Skip to the page"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('#runs-page') !== null")
    tab(page, "Live").click()
    expect(page.locator(".rs-recordings a")).to_have_text(RECORDED)
    expect(page.get_by_text("No run yet")).to_have_count(0)
    expect(page.get_by_role("button", name="Open Train")).to_have_count(0)
    tab(page, "Train").click()
    expect(page.get_by_text("This app was started read-only").locator("visible=true")).to_have_count(1)
    wait_for_form(page)
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keyboard shortcuts").wait_for()
    page.keyboard.press("Escape")
    page.wait_for_function("!document.querySelector('dialog[open]')")
    page.locator('[data-section="ppo"] > summary').click()
    page.locator(".rs-train input:not([type=checkbox], [type=radio]):visible").first.focus()
    page.keyboard.press("?")
    assert page.locator("dialog[open]").count() == 0
    tab(page, "Feedback").click()
    expect(page.locator(".rs-feedback-list")).to_contain_text("Recorded example")  # what it will look like; nothing can be made here
    expect(page.locator(".rs-feedback-list .rs-first")).to_be_hidden()
    server.close()


class Walker:
    """A person without a mouse."""

    def __init__(self, page: Any):
        self.page = page

    @property
    def at(self) -> str:
        """The name of what has the focus."""
        return str(self.page.evaluate(FOCUSED))

    def go(self, name: str, most: int = 40, key: str = "Tab") -> None:
        """Press ``key`` until the thing that begins with ``name`` has the focus; it must be on the screen then."""
        passed = [self.at]
        while not passed[-1].startswith(name):
            assert len(passed) <= most, f"{name} was not reached in {most} stops: {[stop[:30] for stop in passed]}"
            self.page.keyboard.press(key)
            passed.append(self.at)
        assert self.page.evaluate(SEEN), f"{name} has the focus, but is not on the screen"

    def press(self, name: str, most: int = 40) -> None:
        self.go(name, most)
        self.page.keyboard.press("Enter")

    def write(self, name: str, text: str) -> None:
        self.go(name)
        self.page.keyboard.press("Control+a")
        self.page.keyboard.type(text)

    def on(self, page: str) -> None:
        """The tab ``page`` is shown and the focus is inside it: at its beginning, or at what was asked for."""
        self.page.wait_for_function("(name) => document.activeElement.closest(`.rs-${name}`)?.offsetParent", arg=page)


@pytest.mark.long
def test_the_whole_way_by_keyboard(open_page: Callable[..., Any], studio: Studio) -> None:
    """Start, variation, compare, talk, take home; where the focus is, is known at every stop."""
    page = open_page("?tab=train")
    page.locator(".rs-first-ways").wait_for()
    walker = Walker(page)
    walker.press("Skip to the page", most=1)  # one stop past the tabs, then the page
    walker.on("train")
    walker.press("Change settings")
    wait_for_form(page)
    walker.press("PPO30 steps")  # the section; what begins with PPO before it is the stage
    walker.write("Steps", "3")
    expect(page.locator(".rs-command code")).to_contain_text("--ppo.steps 3")
    walker.press("Start run")
    walker.on("live")
    page.wait_for_selector(".rs-live[data-state=finished]")
    assert walker.at != "body", "the focus was lost when the run ended"
    walker.press("Run a variation")
    walker.on("train")
    expect(page.locator("#setting-ppo-steps")).to_have_value("3")
    walker.press("Start run", most=90)
    walker.on("live")
    expect(page.locator(".rs-head .rs-name")).to_have_text("Tiny world, Steps 3, again")
    page.wait_for_selector(".rs-live[data-state=finished]")
    walker.press("Compare")  # a variation stands beside the run that it came from at once
    expect(page.locator(".rs-compare-runs a")).to_have_text(["Tiny world, Steps 3", "Tiny world, Steps 3, again"])
    walker.on("runs")

    go(page, f"?tab=live&run={studio.runs['first']}")
    page.wait_for_selector(".rs-live[data-state=finished] .rs-token")
    page.locator(".rs-skip").first.focus()
    walker.press("Talk to it")
    walker.on("talk")
    walker.write("Your prompt", "The film was")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".rs-exchange .rs-answer")).to_have_count(2)
    page.locator('.rs-answer [data-figure="KL"]').nth(1).wait_for()
    walker.go("Live", key="Shift+Tab")
    page.keyboard.press("Enter")
    walker.press("Send or save")  # a dialog that gives the focus back
    expect(page.get_by_role("dialog", name="Send or save")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert walker.at == "Send or save"

    # links of what was made keep the focus while more is made; the server of this dialog is a stand-in
    scripts = [page.locator(f'link[data-script="{name}.js"]').first.get_attribute("href") for name in ("export/take_home", "shared/poll")]
    page.evaluate(
        """async ([address, polls]) => {
          const { TakeHome } = await import(address);
          const { Poll } = await import(polls);
          const poll = new Poll({ awake: () => true });
          const job = { state: "working", number: 1, progress: "", fraction: 0.5 };
          const base = { operator: true, checkpoints: [], push: false, adapter: false, best: null, why_not: "" };
          window.looks = 0;
          window.made = [{ name: "a.zip", bytes: 10 }, { name: "b.zip", bytes: 20 }];
          const export_look = async () => ({ ...base, job: { ...job, progress: `Part ${++window.looks}` }, files: window.made });
          new TakeHome({ host: document.body, server: { export_look }, api: "/gradio_api", poll }).open({ run: "r", name: "r" });
        }""",
        scripts,
    )
    page.get_by_role("link", name="b.zip").focus()
    page.evaluate("window.made = [{ name: 'new.zip', bytes: 5 }, ...window.made]")
    page.get_by_role("link", name="new.zip").wait_for()
    assert page.evaluate("document.activeElement.textContent") == "b.zip"
    page.evaluate("window.made = []")
    page.get_by_role("link", name="b.zip").wait_for(state="detached")
    page.wait_for_function("document.querySelector('.rs-take').contains(document.activeElement)")
