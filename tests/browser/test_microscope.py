"""A run of the workspace under the microscope, in a browser: the picker, links, one place for all screens, and the way from Live."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.inputs.bundled import LESSON_RUN, RECORDED, RECORDINGS
from rlhf_studio.lessons import answers
from rlhf_studio.lessons.run import unpacked
from rlhf_studio.ui.app import Server, launch
from tests.ui.fake_run import FakeRun

pytestmark = pytest.mark.browser
RUN = "20261101-120000-ownrun"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("microscope")
    (root / "runs").mkdir()
    shutil.copytree(unpacked(LESSON_RUN, root / "cache") / RECORDED, root / "runs" / RUN)
    running = launch(root, start=lambda *given, **more: None)  # type: ignore[arg-type, return-value]
    yield running
    running.close()


def shown(server: Server, scene: str, **values: Any) -> dict[str, Any]:
    return answers.computed("one_sample", scene, values, asked=answers.Asked(str(Path(server.workspace.root) / "runs" / RUN), "test"))


def test_a_link_restores_a_run_and_all_screens_follow_its_step(server: Server, open_page: Callable[..., Any]) -> None:
    from playwright.sync_api import expect

    page = open_page(f"?lesson=one_sample&run={RUN}&scene=rewarded&set=step:20,sample:5,beta:0.2")
    scene = page.locator('[data-scene="rewarded"]')
    expect(page.get_by_label("Run", exact=True)).to_have_value(RUN)
    expect(scene.locator(".rs-learn-value")).to_have_text(["20", "5", "0.20", "1.68"])
    expect(scene.locator(".rs-learn-own:visible")).to_have_count(1)  # the score: the price is another one
    told = shown(server, "rewarded", step=20, sample=5, beta=0.2, score=None)
    pieces = [item["text"] for item in told["pictures"]["tokens"]["items"]]
    expect(scene.locator(".rs-learn-piece")).to_have_text(pieces)
    notes = [item["note"] for item in told["pictures"]["tokens"]["items"] if item["note"]]
    assert notes
    expect(scene.locator(".rs-learn-under", has_text="(")).to_have_text(notes)
    written = page.locator('[data-scene="written"]')
    expect(written.locator(".rs-learn-value")).to_have_text(["20", "5"])
    written.get_by_role("button", name="Less").first.click()
    expect(scene.locator(".rs-learn-value").first).to_have_text("19")
    scene.scroll_into_view_if_needed()
    told = shown(server, "rewarded", step=19, sample=5, beta=0.2, score=None)
    expect(scene.locator(".rs-learn-piece")).to_have_text([item["text"] for item in told["pictures"]["tokens"]["items"]])
    expect(scene).not_to_have_class(re.compile("stale"))
    other = page.locator('[data-scene="swapped"]')
    expect(other.get_by_text("Only the bundled run has kept")).to_be_visible()
    expect(other.locator(".rs-learn-question")).to_be_hidden()


def test_the_picker_leads_to_another_run_and_back(open_page: Callable[..., Any]) -> None:
    from playwright.sync_api import expect

    page = open_page("?lesson=one_sample")
    picker = page.get_by_label("Run", exact=True)
    expect(picker.locator("option")).to_have_count(2 + len(RECORDINGS))  # the bundled run, the workspace's one, and the recordings
    expect(page.locator('[data-scene="swapped"] .rs-learn-there').first).to_be_attached()
    picker.select_option(RUN)
    expect(page).to_have_url(re.compile(f"run={RUN}"))
    expect(page.locator('[data-scene="written"] .rs-learn-value')).to_have_text(["36", "3"])  # the newest step
    page.go_back()
    expect(page.locator('[data-scene="written"] .rs-learn-value')).to_have_text(["12", "3"])
    expect(picker).to_have_value("")


def test_a_run_that_is_not_there_is_told_and_the_picker_stays(open_page: Callable[..., Any]) -> None:
    from playwright.sync_api import expect

    page = open_page("?lesson=one_sample&run=20261101-000000-nobody")
    expect(page.get_by_role("alert")).to_contain_text("There is no")
    expect(page.locator("[data-scene]")).to_have_count(0)
    page.get_by_label("Run", exact=True).select_option("")
    expect(page.locator('[data-scene="written"] .rs-learn-value')).to_have_text(["12", "3"])
    expect(page.get_by_role("alert")).to_be_hidden()


def test_live_leads_to_the_response_that_is_shown(server: Server, open_page: Callable[..., Any]) -> None:
    from playwright.sync_api import expect

    page = open_page(f"?run={RUN}&step=7&sample=3")
    page.get_by_role("link", name="Under the microscope").click()
    written = page.locator('[data-scene="written"]')
    expect(written.locator(".rs-learn-value")).to_have_text(["7", "4"])
    pieces = [item["text"] for item in shown(server, "written", step=7, sample=4)["pictures"]["tokens"]["items"]]
    expect(written.locator(".rs-learn-piece")).to_have_text(pieces)
    page = open_page(f"?run={RUN}&step=7&sample=3&token=2")
    page.locator(".rs-tokens [role=option]").nth(4).click()
    page.get_by_role("link", name="Under the microscope").click()
    beside = page.locator('[data-scene="beside"]')
    expect(beside.locator(".rs-learn-value")).to_have_text(["7", "4", "5"])  # the token goes along
    page = open_page(f"?run={RUN}")
    expect(page.get_by_role("link", name="Learn why")).to_have_attribute("href", re.compile(f"lesson=one_sample&run={RUN}"))
    page = open_page("?run=recording-exploits")
    expect(page.get_by_role("link", name="Learn why")).to_have_attribute("href", re.compile("lesson=what_goes_wrong&scene=two_curves"))
    page.get_by_role("link", name="Learn why").click()
    expect(page.locator('[data-scene="two_curves"]')).to_be_in_viewport()


def test_another_program_s_text_stays_text(server: Server, open_page: Callable[..., Any]) -> None:
    from playwright.sync_api import expect

    run = FakeRun(server.workspace.root, hostile=True)  # its name is markup; it has no episodes on record
    run.run()
    run.step()
    run.close()
    page = open_page(f"?lesson=one_sample&run={run.run_id}")
    expect(page.locator(".rs-learn-run")).to_contain_text("no record of all its responses")
    expect(page.get_by_label("Run", exact=True)).to_have_value(run.run_id)
    assert page.evaluate("window.__pwned") is None
