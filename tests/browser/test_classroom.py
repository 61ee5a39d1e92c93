"""A class in two browsers: the teacher's, and a phone that is touched. Nothing is trained: the run that answers is written by the test."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from rlhf_studio.ui.app import Server
from rlhf_studio.ui.visiting.modes import Mode
from tests.browser.axe import violations
from tests.browser.conftest import OURS
from tests.ui.fake_run import FakeRun
from tests.ui.test_classroom import write_pair
from tests.ui.test_visiting import TOKEN, served

pytestmark = pytest.mark.browser
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True, "device_scale_factor": 2}
STUDENT, TEACHER = ".rs-class-card", ".rs-class-steering"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(Mode.CLASSROOM, tmp_path_factory.mktemp("workspace"), tmp_path_factory.mktemp("world")) as running:
        yield running


def opened(browser: Any, address: str, **settings: Any) -> Any:
    """A page in a browser of its own, whose requests to other machines and errors are noted."""
    page = browser.new_context(**settings).new_page()
    page.set_default_timeout(20_000)
    page.faults = faults = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda request: None if OURS.match(request.url) else faults.append(request.url))
    page.goto(address)
    return page


def draw(page: Any, share_up: float) -> None:
    """Draw a line with a finger, from the lower left corner of the field to a height at its right edge."""
    page.locator(".rs-class-field svg").scroll_into_view_if_needed()
    box = page.locator(".rs-class-field svg").bounding_box()
    finger = page.context.new_cdp_session(page)
    left, right, low, high = box["x"] + 44, box["x"] + box["width"] - 14, box["y"] + box["height"] - 40, box["y"] + 28

    def touch(kind: str, share: float) -> None:
        point = {"x": left + share * (right - left), "y": low + share * share_up * (high - low)}
        finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [] if kind == "touchEnd" else [point]})

    touch("touchStart", 0)
    for part in range(1, 13):
        touch("touchMove", part / 12)
    touch("touchEnd", 1)


def test_the_teacher_leads_asks_and_shows_and_a_student_follows_and_draws(server: Server, browser: Any) -> None:
    from playwright.sync_api import expect

    run = FakeRun(server.workspace.root)
    run.run()
    run.step(2)
    teacher = opened(browser, f"{server.url}?operator={TOKEN}&tab=runs", viewport={"width": 1440, "height": 900})
    student = opened(browser, f"{server.url}?class={server.access.room.link}&tab=runs", **PHONE)

    teacher.get_by_role("button", name="Class", exact=True).click()
    teacher.get_by_label("Lead the class").check()
    assert violations(teacher, ".rs-class") == []
    teacher.get_by_role("button", name="Close").click()
    teacher.get_by_role("tab", name="Live").click()
    expect(student).to_have_url(re.compile(f"tab=live&run={run.run_id}"))
    teacher.locator(".rs-token").nth(3).click()
    expect(student).to_have_url(re.compile("token=3"))
    expect(student.locator(".rs-token").nth(3).locator(".rs-pointed-label")).to_have_text("your teacher points here")
    expect(student.locator(".rs-pointed")).to_have_count(1)

    teacher.get_by_role("button", name="Ask the class").click()
    teacher.get_by_role("button", name="Draw a curve: KL").wait_for()
    assert violations(teacher, ".rs-class-ask") == []
    teacher.get_by_role("button", name="Draw a curve: KL").click()
    teacher.locator(".rs-class-ask").get_by_role("button", name="Ask the class").click()
    expect(student.locator(".rs-class-question")).to_contain_text("No KL penalty")
    send = student.get_by_role("button", name="Send")
    expect(send).to_be_disabled()
    draw(student, 0.5)
    send.click()
    expect(student.locator(".rs-class-status")).to_contain_text("Sent. You can change it until your teacher closes the round.")
    assert violations(student, STUDENT) == []
    student.reload()
    expect(student.get_by_role("button", name="Sent")).to_be_disabled()
    assert student.locator(".rs-class-drawn").get_attribute("d").startswith("M44")
    expect(teacher.locator(".rs-class-count")).to_have_text("1 answer")

    teacher.get_by_role("button", name="Close the round").click()
    expect(student.locator(STUDENT)).to_contain_text("Your teacher has closed the round.")
    teacher.get_by_role("button", name="Open it again").click()
    expect(student.get_by_role("button", name="Sent")).to_be_visible()
    teacher.get_by_role("button", name="Close the round").click()
    expect(student.get_by_role("button", name="Sent")).to_have_count(0)
    student.evaluate("scrollTo(0, document.body.scrollHeight)")
    teacher.get_by_role("button", name="Show what the class answered").click()
    student.get_by_role("button", name="See what the class answered").click()
    expect(student.locator(".rs-class-question")).to_be_in_viewport()
    for page in (teacher, student):
        expect(page.locator(".rs-class-median")).to_have_count(1)
        expect(page.locator(".rs-class-picture")).to_contain_text("The class's median ends at 30")
        expect(page.locator(".rs-class-real")).to_have_count(0)
    expect(student.locator(".rs-class-own")).to_have_count(1)
    write_pair(server.workspace.root, 0)
    teacher.get_by_role("button", name="Show what is right").click()
    for page in (teacher, student):
        expect(page.locator(".rs-class-picture")).to_contain_text("The run is at 18")
        expect(page.locator("path.rs-class-real")).to_have_count(1)
    assert violations(teacher, STUDENT) == []
    assert student.evaluate("document.documentElement.scrollWidth") <= 390
    teacher.get_by_role("button", name="Text size").click()  # one and a quarter
    assert teacher.locator(".rs-class-question").evaluate("node => getComputedStyle(node).fontSize") == "27.5px"
    assert teacher.evaluate("document.documentElement.scrollWidth") <= 1440
    teacher.get_by_role("button", name="Put it away").click()
    expect(student.locator(STUDENT)).to_be_hidden()
    assert teacher.faults == [] and student.faults == []
    for page in (teacher, student):
        page.context.close()
    run.close()
