"""A class in two browsers: the teacher's, and a phone that is touched. Nothing is trained: the run that answers is written by the test."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.ui.app import Server
from rlhf_studio.ui.classroom.room import new_token
from rlhf_studio.ui.visiting.modes import Mode
from tests.browser.axe import violations
from tests.browser.conftest import OURS, PATIENCE
from tests.ui.fake_run import FakeRun
from tests.ui.test_classroom import write_pair
from tests.ui.test_visiting import TOKEN, served
from tests.waiting import wait_until

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
    page.set_default_timeout(PATIENCE)
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
    run.close()


@pytest.fixture
def own_server(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An app whose class this test ends or replaces."""
    with served(Mode.CLASSROOM, tmp_path, tmp_path_factory.mktemp("world")) as running:
        yield running


def both(server: Server, browser: Any) -> tuple[Any, Any]:
    """The teacher's page and a student's."""
    teacher = opened(browser, f"{server.url}?operator={TOKEN}&tab=runs", viewport={"width": 1440, "height": 900})
    return teacher, opened(browser, f"{server.url}?class={server.access.room.link}&tab=runs", **PHONE)


def test_a_draft_and_a_round_are_not_lost_by_one_click(own_server: Server, browser: Any) -> None:
    from playwright.sync_api import expect

    teacher, student = both(own_server, browser)
    dialog = teacher.locator(".rs-class-ask")

    def write(text: str) -> None:
        teacher.get_by_role("button", name="Ask the class", exact=True).click()
        dialog.get_by_role("button", name="Your own").click()
        dialog.get_by_label("Question", exact=True).fill(text)
        dialog.get_by_label("Options, one on each line").fill("Yes\nNo")

    write("Does it rain?")
    teacher.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    teacher.get_by_role("button", name="Ask the class", exact=True).click()
    expect(dialog.get_by_label("Question", exact=True)).to_have_value("Does it rain?")
    dialog.get_by_role("button", name="Ask the class").click()
    student.get_by_role("button", name="No", exact=True).click()
    student.get_by_role("button", name="Send").click()
    expect(teacher.locator(".rs-class-count")).to_have_text("1 answer")

    write("Does it snow?")
    dialog.get_by_role("button", name="Ask the class").click()
    expect(dialog).to_contain_text("The round is still open, with 1 answer.")
    expect(student.locator(".rs-class-question")).to_have_text("Does it rain?")
    dialog.get_by_role("button", name="Close", exact=True).click()
    teacher.get_by_role("button", name="Put it away").click()
    expect(teacher.locator(TEACHER)).to_contain_text("The round is still open, with 1 answer.")
    teacher.get_by_role("button", name="Put it away now").click()
    expect(student.locator(STUDENT)).to_be_hidden()

    teacher.get_by_role("button", name="Ask the class", exact=True).click()
    dialog.get_by_role("button", name="Earlier rounds").click()
    assert violations(teacher, ".rs-class-ask") == []
    dialog.get_by_role("button", name="Show again").click()
    expect(student.locator(".rs-class-question")).to_have_text("Does it rain?")
    expect(student.locator(".rs-class-bar").nth(1)).to_contain_text("your answer")
    assert teacher.faults == [] and student.faults == []


def test_what_stands_out_before_and_after_the_runs_of_an_experiment(own_server: Server, browser: Any) -> None:
    from playwright.sync_api import expect

    teacher, _ = both(own_server, browser)
    teacher.get_by_role("button", name="Ask the class").click()
    teacher.get_by_role("button", name=re.compile("without the penalty")).click()
    teacher.locator(".rs-class-ask").get_by_role("button", name="Ask the class").click()
    blue = teacher.locator(f"{TEACHER} .rs-class-buttons .rs-primary:visible")
    for words in ("Close the round", "Show what the class answered"):
        expect(blue).to_have_text(words)
        blue.click()
    expect(blue).to_have_text("Start the runs")
    write_pair(own_server.workspace.root, 0)
    expect(blue).to_have_text("Show what is right")


def test_a_new_class_link_takes_two_clicks_and_is_told_to_who_had_the_old_one(own_server: Server, browser: Any) -> None:
    from playwright.sync_api import expect

    teacher, student = both(own_server, browser)
    old, line = own_server.access.room.link, student.locator(".rs-where")
    expect(line).to_contain_text("You are in a class")
    teacher.get_by_role("button", name="Class", exact=True).click()
    dialog = teacher.locator(".rs-class")
    dialog.get_by_role("button", name="New link").click()
    expect(dialog).to_contain_text("every student must open the new one")
    assert own_server.access.room.link == old
    dialog.get_by_role("button", name="Make a new link now").click()
    expect(line).to_contain_text("There is a new class link")
    expect(line).not_to_contain_text("You are in a class")
    student.goto(f"{own_server.url}?class={old}")
    expect(student.locator("main")).to_contain_text("This class link is not valid any more.")
    assert student.evaluate("document.documentElement.scrollWidth") <= 390
    student.get_by_role("link").click()
    expect(student.locator(".rs-where")).to_contain_text("Are you the teacher?")

    dialog.get_by_role("button", name="End the class").click()
    expect(dialog).to_contain_text("with the names that students typed")
    dialog.get_by_role("button", name="End it now").click()
    expect(dialog.get_by_text("The class has ended")).to_have_count(1)


def test_a_student_who_first_asks_for_the_round_after_the_new_link_is_told_of_it_too(own_server: Server, browser: Any) -> None:
    from playwright.sync_api import expect

    context, room, held = browser.new_context(**PHONE), own_server.access.room, []
    old = room.link

    def hold(route: Any) -> None:
        early = room.link == old and "class_round" in (route.request.post_data or "")
        held.append(route) if early else route.continue_()

    context.set_default_timeout(PATIENCE)
    context.route(lambda _: True, hold)
    student = context.new_page()
    student.goto(f"{own_server.url}?class={old}&tab=runs")
    expect(student.locator(".rs-where")).to_contain_text("You are in a class")
    while not held:
        student.wait_for_event("request")
    room.admit(new_token())
    for route in held:
        route.continue_()
    expect(student.locator(".rs-where")).to_contain_text("There is a new class link")
    context.close()


def test_leading_goes_on_when_the_app_was_started_again_and_a_refusal_says_why(own_server: Server, browser: Any) -> None:
    from playwright.sync_api import expect

    teacher, _ = both(own_server, browser)
    teacher.get_by_role("button", name="Class", exact=True).click()
    teacher.get_by_label("Lead the class").check()
    teacher.get_by_role("button", name="Close").click()
    room = own_server.access.room
    wait_until(lambda: room.place.page == "runs")
    expect(teacher.get_by_role("button", name="Class: leading")).to_be_visible()
    room.start = "another"  # as an app that goes on with the class of one that was killed
    room.lead("", {})
    wait_until(lambda: room.place.page == "runs")
    expect(teacher.get_by_role("button", name="Class: leading")).to_be_visible()

    room.admit_teacher("another")
    teacher.get_by_role("button", name="Ask the class").click()
    said = teacher.locator(".rs-class-said")
    expect(said).to_contain_text("Open the teacher's link that the app printed.")
    expect(said).not_to_contain_text("does not answer")
    teacher.get_by_role("tab", name="Live").click()
    expect(said).to_contain_text("Students do not follow you now.")


def test_the_class_dialog_holds_all_buttons_at_larger_text(server: Server, browser: Any) -> None:
    teacher = opened(browser, f"{server.url}?operator={TOKEN}&tab=runs", viewport={"width": 900, "height": 900})
    widths = []
    for _ in range(2):
        teacher.get_by_role("button", name=re.compile("^Class")).click()
        dialog = teacher.locator(".rs-class")
        dialog.get_by_role("button", name="End the class").click()
        inside = dialog.bounding_box()
        for button in dialog.get_by_role("button").all():
            box = button.bounding_box()
            if box:
                assert inside["x"] <= box["x"] and box["x"] + box["width"] <= inside["x"] + inside["width"]
                assert box["y"] + box["height"] <= inside["y"] + inside["height"]
        widths.append(teacher.locator(".rs-class-code").bounding_box()["width"])
        dialog.get_by_role("button", name="Close").click()
        teacher.get_by_role("button", name="Text size").click()  # one and a quarter
    assert widths[1] > 1.2 * widths[0]
