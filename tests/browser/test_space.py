"""A Space in a real browser: in a frame of another website, under its own name behind TLS, with a login at a stand-in for the hub."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.config.bundled import RECORDINGS
from rlhf_studio.runs.people import change
from rlhf_studio.runs.visitors.starters import Starter, set_starter
from rlhf_studio.ui.access import TOKEN_VARIABLE
from rlhf_studio.ui.app import Server, launch
from rlhf_studio.ui.hosts import HOSTS_VARIABLE
from rlhf_studio.ui.visiting import identity
from rlhf_studio.ui.visiting.allowed import RECIPES
from rlhf_studio.ui.visiting.modes import Mode, mode_of
from tests.access.apps import know_login
from tests.browser.conftest import CHROMIUM, HURRY, PATIENCE, go, watch
from tests.browser.space_stage import FRAMED, HUB_HOST, SPACE, SPACE_HOST, Hub, Proxy, environment, hub
from tests.ui.fake_run import FakeRun
from tests.ui.train_helpers import install_world, start_stand_in
from tests.waiting import wait_until

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect
pytestmark = pytest.mark.browser
DUPLICATE = "https://huggingface.co/spaces/ada/rlhf-studio?duplicate=true"
OURS = (SPACE, f"https://{HUB_HOST}/", "data:", "blob:", "about:")
WIDE: dict[str, Any] = {"ignore_https_errors": True, "viewport": {"width": 1440, "height": 900}, "reduced_motion": "reduce"}


WHOLE = shutil.which("chromium")
needs_settings = pytest.mark.skipif(WHOLE is None, reason="what a browser does with cookies in frames is a setting of the whole Chromium")


@pytest.fixture(scope="module")
def browser(driver: Any, arguments: list[str]) -> Iterator[Any]:
    """The whole Chromium, where there is one."""
    chromium = driver.chromium.launch(executable_path=WHOLE or CHROMIUM, args=arguments)
    yield chromium
    chromium.close()


@pytest.fixture(scope="module")
def provider() -> Iterator[Hub]:
    with hub() as known:
        yield known


@pytest.fixture(scope="module")
def server(browser: Any, provider: Hub, proxy: Proxy | None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if proxy is None:
        pytest.skip("there is no openssl")
    with pytest.MonkeyPatch.context() as patch:
        for name in (TOKEN_VARIABLE, HOSTS_VARIABLE, "GRADIO_ROOT_PATH"):
            patch.delenv(name, raising=False)
        for name, value in environment(provider).items():
            patch.setenv(name, value)
        know_login(patch)
        install_world(tmp_path_factory.mktemp("world"), patch)
        assert mode_of(os.environ) is Mode.SPACE
        running = launch(tmp_path_factory.mktemp("workspace"), mode=Mode.SPACE, start=start_stand_in)
        proxy.ports |= {SPACE_HOST: int(re.search(r":(\d+)/", running.url)[1]), HUB_HOST: provider.port}  # type: ignore[index]
        yield running
        running.close()


@pytest.fixture
def visitor(browser: Any, server: Server) -> Iterator[Any]:
    """A browser of its own: its tabs share cookies, and no page of theirs may have a script error or ask anybody else."""
    context, faults = browser.new_context(**WIDE), []
    context.set_default_timeout(PATIENCE)
    context.add_init_script(HURRY)
    context.on("page", lambda page: watch(page, faults, lambda url: url.startswith(OURS)))
    yield context
    context.close()
    clear(server)
    assert faults == []


def clear(server: Server) -> None:
    for run in server.workspace.runs():
        if run.state == "queued":
            server.workspace.cancel(run.run_id)
        elif run.state in ("loading", "running"):
            server.workspace.force_stop(run.run_id)
        wait_until(lambda run=run: server.workspace.status(run.run_id).state not in ("loading", "running"))
        server.workspace.delete(run.run_id)


@pytest.fixture
def other(browser: Any) -> Iterator[Any]:
    """Another person's browser."""
    context = browser.new_context(**WIDE)
    context.add_init_script(HURRY)
    yield context
    context.close()


def framed(context: Any) -> Any:
    """The app inside the hub's page."""
    page = context.new_page()
    page.goto(FRAMED)
    return page.frame_locator("iframe")


def tab(place: Any, name: str) -> Any:
    return place.get_by_role("tab", name=name, exact=True)


def start(place: Any, steps: int) -> None:
    """From the Train page's form."""
    tab(place, "Train").click()
    section = place.locator('[data-section="ppo"]')
    expect(place.locator(".rs-figures")).to_contain_text("about")
    if not section.evaluate("node => node.open"):
        section.locator("> summary").click()
    place.locator("#setting-ppo-steps").fill(str(steps))
    place.get_by_role("button", name=re.compile("^(Start run|Add to queue)$")).click()


def choose_the_first_recipe(place: Any) -> None:
    """From the first screen to the form."""
    tab(place, "Train").click()
    place.locator(".rs-more-recipes > summary").click()
    place.locator(".rs-recipe").first.click()


def is_duplicate_link(link: Any) -> None:
    expect(link).to_have_attribute("href", DUPLICATE)
    expect(link).to_have_attribute("target", "_blank")
    expect(link).to_have_attribute("rel", "noopener")


def test_a_visitor_in_the_frame_starts_watches_and_stops_a_run_of_their_own(visitor: Any, other: Any, server: Server) -> None:
    app = framed(visitor)
    line, rows = app.locator(".rs-where"), app.locator(".rs-run-row")
    expect(line).to_contain_text("You are a visitor.")
    is_duplicate_link(line.get_by_role("link", name="Duplicate this Space"))
    expect(app.locator(".rs-where-notice")).to_have_count(0)  # the frame's cookie is kept: partitioned, as the browser wants it

    # what can start here, and what needs a copy
    recorded = app.locator(".rs-watch-first")
    expect(recorded.get_by_role("button")).to_have_text([recording.name for recording in RECORDINGS])
    cards = app.locator(".rs-recipe")
    names = cards.evaluate_all("nodes => nodes.map((node) => node.dataset.recipe)")
    assert names[:4] == list(RECIPES) and "own" in names[4:]
    marked = app.locator(".rs-recipe", has_text="needs a copy of this Space")
    assert marked.evaluate_all("nodes => nodes.map((node) => node.dataset.recipe)") == names[4:]
    problems = app.locator(".rs-problems")
    app.locator(".rs-more-recipes > summary").click()
    cards.nth(5).click()
    expect(problems).to_contain_text("Tiny world; Tiny world, LoRA; Tiny world, RLOO; Tiny world, GRPO.")
    app.locator(".rs-more-recipes > summary").click()
    cards.nth(0).click()
    start(app, 500)
    expect(problems).to_contain_text("have at most 40")
    is_duplicate_link(problems.get_by_role("link", name="Duplicate this Space"))
    assert server.workspace.runs() == []
    app.locator("#setting-ppo-steps").fill("20")
    expect(problems).to_be_hidden()

    # a recording
    line.get_by_role("link", name="Watch a recorded run").click()
    expect(app.locator(".rs-head .rs-name")).to_have_text(RECORDINGS[0].name)
    expect(app.locator(".rs-head .rs-chip")).to_have_text("Recording")
    assert [text for text in app.locator(".rs-ending button").all_inner_texts() if text] == ["Compare"]
    tab(app, "Runs").click()
    expect(rows.locator(".rs-chip")).to_have_text(["Recording"] * len(RECORDINGS))
    tab(app, "Evaluate").click()  # told once, and no form
    expect(app.locator(".rs-evaluate")).to_contain_text("duplicate this Space")
    expect(app.locator(".rs-evaluate-new")).to_be_hidden()
    expect(app.locator(".rs-evaluate [role=alert]:visible")).to_have_count(0)

    # a run of their own; a second one waits for none
    start(app, 20)
    expect(tab(app, "Live")).to_have_attribute("aria-selected", "true")
    (run,) = wait_until(server.workspace.runs)
    wait_until(lambda: server.workspace.status(run.run_id).state == "running", 60)
    start(app, 21)
    expect(problems).to_contain_text("Your run is at work.")
    expect(problems.get_by_role("link", name="Open your run")).to_have_attribute("href", f"?tab=live&run={run.run_id}")
    assert len(server.workspace.runs()) == 1
    tab(app, "Runs").click()
    expect(rows.first).to_contain_text("started by you")
    rows.nth(1).get_by_role("button", name="Actions").click()
    expect(app.get_by_role("menuitem")).to_have_text(["Open", "Settings"])  # of a recording
    app.locator("body").press("Escape")
    expect(rows.first).to_contain_text("running")  # the page knows it too: a menu has what can be done when it is opened
    rows.first.get_by_role("button", name="Actions").click()
    expect(app.get_by_role("menuitem")).to_have_text(["Open", "Settings", "Send or save", "Stop and save"])
    app.locator("body").press("Escape")

    # a stranger sees it and cannot stop it
    stranger = framed(other)
    expect(stranger.locator(".rs-where")).to_contain_text("You are a visitor.")
    tab(stranger, "Runs").click()
    expect(stranger.locator(".rs-run-row")).to_have_count(len(RECORDINGS) + 1)
    expect(stranger.locator(".rs-run-row").first).to_contain_text("started by visitor")  # at work: before what is only recorded
    stranger.locator(".rs-run-row", has_text="started by visitor").get_by_role("link").first.click()
    expect(stranger.locator(".rs-live[data-state=running]")).to_be_visible()
    expect(stranger.get_by_role("button", name="Stop", exact=True)).to_be_hidden()
    rows.first.get_by_role("button", name="Actions").click()
    app.get_by_role("menuitem", name="Stop and save").click()
    wait_until(lambda: server.workspace.status(run.run_id).state == "stopped", 60)
    tab(app, "Live").click()
    expect(app.locator(".rs-live[data-state=stopped]")).to_be_visible()
    expect(app.locator(".rs-ending button")).to_have_text(["Compare"])


@pytest.mark.long
def test_a_run_that_the_host_has_ended_says_so_and_how_it_goes_on(visitor: Any, server: Server) -> None:
    page = visitor.new_page()
    page.goto(SPACE)
    page.locator(".rs-where").wait_for()
    cookies = [one for one in visitor.cookies(SPACE) if "huggingface" not in str(one.get("partitionKey"))]
    (cookie,) = (one["value"] for one in cookies if one["name"] == identity.COOKIE)
    ended = FakeRun(server.workspace.root)
    ended.run()
    ended.step()
    with change(server.workspace.root) as connection:
        set_starter(connection, ended.run_id, Starter("visitor", key=server.access.visitors.key_of(cookie)))
    go(page, f"?tab=live&run={ended.run_id}")
    expect(page.locator(".rs-live[data-state=running]")).to_be_visible()
    ended.writer.set_state("stopped", cause="The Space was restarted")
    banner = page.locator(".rs-banner")
    expect(banner).to_contain_text("The Space is being restarted")  # the app that has stopped it answers still
    ended.close()
    page.reload()
    expect(banner).to_contain_text("The Space was restarted after step 1 of 60")
    expect(banner).to_contain_text("Press Resume to go on.")
    visitor.set_offline(True)
    lost = page.locator(".rs-lost")
    expect(lost).to_contain_text("Connection to the app lost.")
    expect(lost).not_to_contain_text("goes on")


@needs_settings
@pytest.mark.long
def test_the_owner_logs_in_at_the_direct_address_and_a_stranger_stays_a_visitor(
    visitor: Any, other: Any, server: Server, provider: Hub
) -> None:
    provider.person = "Ada"
    app = framed(visitor)
    link = app.locator(".rs-where").get_by_role("link", name="Log in as the owner")
    expect(link).to_have_attribute("href", f"{SPACE}login/huggingface")
    with visitor.expect_page() as opened:
        link.click()
    own = opened.value
    own.wait_for_url(re.compile(f"^{re.escape(SPACE)}"))
    expect(own.locator(".rs-where")).to_contain_text("You are the owner of this Space")
    expect(own.locator(".rs-where").get_by_role("link", name="Duplicate this Space")).to_have_count(0)
    (session,) = [cookie for cookie in visitor.cookies(SPACE) if cookie["name"] == "session"]
    assert session["httpOnly"] and session["secure"]
    choose_the_first_recipe(own)
    start(own, 60)  # more than visitors may
    expect(tab(own, "Live")).to_have_attribute("aria-selected", "true")
    (run,) = wait_until(server.workspace.runs)
    assert run.starter.role == "operator"
    wait_until(lambda: server.workspace.status(run.run_id).state == "running", 60)
    own.get_by_role("button", name="Stop", exact=True).click()
    own.get_by_role("menuitem", name="Stop and save").click()
    wait_until(lambda: server.workspace.status(run.run_id).state == "stopped", 60)
    expect(framed(visitor).locator(".rs-where")).to_contain_text("You are a visitor.")  # in the frame the owner's cookie is not sent
    with visitor.expect_page() as opened:
        own.get_by_role("link", name="Log out").click()
    opened.value.wait_for_url(SPACE)
    expect(opened.value.locator(".rs-where")).to_contain_text("You are a visitor.")

    provider.person = "bob"
    page = other.new_page()
    page.goto(f"{SPACE}login/huggingface")
    expect(page.locator(".rs-where")).to_contain_text("You are a visitor.")
    expect(page.locator(".rs-where-notice")).to_contain_text("logged in at Hugging Face as bob, but this Space belongs to somebody else")
    expect(page.locator(".rs-where").get_by_role("link", name="Log out")).to_have_count(1)


@needs_settings
@pytest.mark.long
def test_without_cookies_the_frame_is_readable_and_says_what_works(
    driver: Any, arguments: list[str], server: Server, tmp_path: Path
) -> None:
    """Chromium's own switch for "block all cookies", which takes the storage of pages away, too."""
    (tmp_path / "Default").mkdir()
    blocked = {"profile": {"default_content_setting_values": {"cookies": 2}}}
    (tmp_path / "Default" / "Preferences").write_text(json.dumps(blocked))
    context = driver.chromium.launch_persistent_context(str(tmp_path), executable_path=WHOLE, args=arguments, ignore_https_errors=True)
    try:
        faults: list[str] = []
        context.on("page", lambda page: watch(page, faults, lambda url: url.startswith(OURS)))
        app = framed(context)
        expect(app.locator(".rs-where-notice")).to_contain_text("Your browser keeps no cookies for this page.")
        expect(app.get_by_role("link", name="Open the Space by itself")).to_have_attribute("href", SPACE)
        app.get_by_role("link", name="Watch a recorded run").click()
        expect(app.locator(".rs-head .rs-name")).to_have_text(RECORDINGS[0].name)
        tab(app, "Learn").click()
        expect(app.locator(".rs-learn")).to_contain_text("PPO")
        choose_the_first_recipe(app)
        start(app, 20)
        expect(tab(app, "Live")).to_have_attribute("aria-selected", "true")
        (run,) = wait_until(server.workspace.runs)
        assert run.starter.key.startswith("address:")
        wait_until(lambda: server.workspace.status(run.run_id).state == "running", 60)
        app.get_by_role("button", name="Stop", exact=True).click()
        app.get_by_role("menuitem", name="Stop and save").click()
        wait_until(lambda: server.workspace.status(run.run_id).state == "stopped", 60)
        assert context.cookies() == [] and faults == []
    finally:
        context.close()
        clear(server)
