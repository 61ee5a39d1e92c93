"""A class in two browsers: the teacher's, and a phone that is touched. Nothing is trained: the run that answers is written by the test."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.ui.app import Server
from rlhf_studio.ui.visiting.modes import Mode
from tests.browser.axe import violations
from tests.browser.conftest import HURRY, OURS, PATIENCE, watch, width_of
from tests.ui.fake_run import FakeRun
from tests.ui.talk_stand_in import COMMAND
from tests.ui.test_classroom import write_pair
from tests.ui.test_talk import run_with_checkpoints
from tests.ui.test_visiting import TOKEN, served
from tests.waiting import wait_until

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect
pytestmark = pytest.mark.browser
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True, "device_scale_factor": 2}
STUDENT, TEACHER = ".rs-class-card", ".rs-class-steering"


@pytest.fixture
def server(browser: Any, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(Mode.CLASSROOM, tmp_path, tmp_path_factory.mktemp("world")) as running:
        yield running


@pytest.fixture
def teacher(open_page: Callable[..., Any], server: Server) -> Any:
    return open_page(f"?operator={TOKEN}&tab=runs", at=server)


@pytest.fixture
def phone(browser: Any) -> Iterator[Any]:
    """A browser of its own on a phone; its pages may do nothing wrong."""
    context, faults = browser.new_context(**PHONE), []
    context.set_default_timeout(PATIENCE)
    context.add_init_script(HURRY)
    context.on("page", lambda page: watch(page, faults, OURS.match))
    yield context
    context.close()
    assert faults == []


@pytest.fixture
def student(phone: Any, server: Server) -> Any:
    page = phone.new_page()
    page.goto(f"{server.url}?class={server.access.room.link}&tab=runs")
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


def test_the_teacher_leads_asks_and_shows_and_a_student_follows_and_draws(server: Server, teacher: Any, student: Any) -> None:
    run = FakeRun(server.workspace.root)
    run.run()
    run.step(2)
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

    # a drawn curve, changed until the round is closed
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
    blue = teacher.locator(f"{TEACHER} .rs-class-buttons .rs-primary:visible")  # what stands out
    expect(blue).to_have_text("Close the round")
    blue.click()
    expect(student.locator(STUDENT)).to_contain_text("Your teacher has closed the round.")
    teacher.get_by_role("button", name="Open it again").click()
    expect(student.get_by_role("button", name="Sent")).to_be_visible()
    blue.click()
    expect(student.get_by_role("button", name="Sent")).to_have_count(0)

    # what the class answered, and what is right: before and after the runs of the experiment
    student.evaluate("scrollTo(0, document.body.scrollHeight)")
    expect(blue).to_have_text("Show what the class answered")
    blue.click()
    student.get_by_role("button", name="See what the class answered").click()
    expect(student.locator(".rs-class-question")).to_be_in_viewport()
    for page in (teacher, student):
        expect(page.locator(".rs-class-median")).to_have_count(1)
        expect(page.locator(".rs-class-picture")).to_contain_text("The class's median ends at 30")
        expect(page.locator(".rs-class-real")).to_have_count(0)
    expect(student.locator(".rs-class-own")).to_have_count(1)
    expect(blue).to_have_text("Start the runs")
    write_pair(server.workspace.root, 0)
    expect(blue).to_have_text("Show what is right")
    blue.click()
    for page in (teacher, student):
        expect(page.locator(".rs-class-picture")).to_contain_text("The run is at 18")
        expect(page.locator("path.rs-class-real")).to_have_count(1)
    assert violations(teacher, STUDENT) == []
    assert width_of(student) <= 390

    # text for a projector: the dialog holds all its buttons at every size
    widths = []
    for _ in range(2):
        teacher.get_by_role("button", name=re.compile("^Class")).click()
        dialog = teacher.locator(".rs-class")
        dialog.get_by_role("button", name="End the class").click()
        inside = dialog.bounding_box()
        for box in filter(None, (button.bounding_box() for button in dialog.get_by_role("button").all())):
            assert inside["x"] <= box["x"] and box["x"] + box["width"] <= inside["x"] + inside["width"]
            assert box["y"] + box["height"] <= inside["y"] + inside["height"]
        widths.append(teacher.locator(".rs-class-code").bounding_box()["width"])
        dialog.get_by_role("button", name="Close").click()
        teacher.get_by_role("button", name="Menu").click()
        teacher.get_by_role("radio", name="125").click()
        teacher.keyboard.press("Escape")
        teacher.set_viewport_size({"width": 900, "height": 900})
    assert widths[1] > 1.2 * widths[0]
    assert width_of(teacher) <= 900
    teacher.get_by_role("button", name="Put it away").click()
    expect(student.locator(STUDENT)).to_be_hidden()

    # the replay: who follows stands where the teacher stands, and so does who opens the link only now
    run.finish()
    teacher.get_by_role("button", name="Replay", exact=True).click()
    player, late = ".rs-live .rs-replay", student.context.new_page()
    expect(student.locator(player)).to_be_visible()
    teacher.locator(player).get_by_role("slider").fill("1")
    late.goto(f"{server.url}?class={server.access.room.link}")
    for page in (student, late):
        expect(page).to_have_url(re.compile(f"replay={run.run_id}&at=2"))
        expect(page.locator(f"{player} .rs-replay-step")).to_have_text("step 2 of 2")
    late.close()
    teacher.get_by_role("button", name="Replay", exact=True).click()
    expect(student.locator(player)).to_have_count(0)

    # students may ask a model, until the teacher turns it off
    run_with_checkpoints(server.workspace.root)
    server.services.talk._command = COMMAND
    teacher.get_by_role("button", name=re.compile("^Class")).click()
    may_ask = teacher.get_by_label("Students may try it")
    may_ask.check()
    student.keyboard.press("Escape")  # the sheet of the token that the teacher pointed at
    student.get_by_role("button", name="Ask the model").click()
    student.get_by_label("Your prompt").fill("hello")
    ask = student.get_by_role("button", name="Ask both")
    ask.click()
    expect(student.locator('[data-figure="Score"]')).to_have_text(["1.50", "2.50"])
    assert width_of(student) <= 390
    expect(teacher.locator(".rs-class-tries")).to_contain_text("1 question so far, none in line now.")
    may_ask.uncheck()
    ask.click()
    expect(student.locator(".rs-talk")).to_contain_text("Asking the model is off. Your teacher can turn it on for the class.")
    expect(ask).to_be_disabled()


@pytest.mark.long
def test_nothing_is_lost_by_one_click_and_refusals_say_why(server: Server, teacher: Any, student: Any, phone: Any) -> None:
    dialog, room = teacher.locator(".rs-class-ask"), server.access.room

    def write(text: str) -> None:
        teacher.get_by_role("button", name="Ask the class", exact=True).click()
        dialog.get_by_role("button", name="Your own").click()
        dialog.get_by_label("Question", exact=True).fill(text)
        dialog.get_by_label("Options, one on each line").fill("Yes\nNo")

    # a draft, and a round that is open
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

    # leading goes on when the app was started again
    teacher.get_by_role("button", name="Class", exact=True).click()
    teacher.get_by_label("Lead the class").check()
    teacher.get_by_role("button", name="Close").click()
    wait_until(lambda: room.teachers_page.page == "runs")
    expect(teacher.get_by_role("button", name="Class: leading")).to_be_visible()
    room.start = "another"  # as an app that goes on with the class of one that was killed
    room.lead("", {})
    wait_until(lambda: room.teachers_page.page == "runs")
    expect(teacher.get_by_role("button", name="Class: leading")).to_be_visible()

    # a new link takes two clicks, and is told to who had the old one, also when the page asks for the round after it only
    old, line, held = room.link, student.locator(".rs-where"), []

    def hold(route: Any) -> None:
        early = room.link == old and "class_now" in (route.request.post_data or "")
        held.append(route) if early else route.continue_()

    late = phone.new_page()
    late.route(lambda _: True, hold)
    late.goto(f"{server.url}?class={old}&tab=runs")
    expect(late.locator(".rs-where")).to_contain_text("You are in a class")
    while not held:
        late.wait_for_event("request")
    expect(line).to_contain_text("You are in a class")
    teacher.get_by_role("button", name=re.compile("^Class")).click()
    dialog = teacher.locator(".rs-class")
    dialog.get_by_role("button", name="New link").click()
    expect(dialog).to_contain_text("every student must open the new one")
    assert room.link == old
    dialog.get_by_role("button", name="Make a new link now").click()
    expect(line).to_contain_text("There is a new class link")
    expect(line).not_to_contain_text("You are in a class")
    for route in held:
        route.continue_()
    expect(late.locator(".rs-where")).to_contain_text("There is a new class link")
    student.goto(f"{server.url}?class={old}")
    expect(student.locator("main")).to_contain_text("This class link is not valid any more.")
    assert width_of(student) <= 390
    student.get_by_role("link").click()
    expect(student.locator(".rs-where")).to_contain_text("Are you the teacher?")

    # who is no teacher any more is told so; at the end the class is ended
    dialog.get_by_role("button", name="Close").click()
    room.admit_teacher("another")
    teacher.get_by_role("tab", name="Live").click()
    refused = teacher.locator(".rs-class-said")
    expect(refused).to_contain_text("Students do not follow you now.")
    teacher.get_by_role("button", name="Ask the class").click()
    expect(refused).to_contain_text("Open the teacher's link that the app printed.")
    expect(refused).not_to_contain_text("does not answer")
    room.admit_teacher(TOKEN)
    teacher.reload()
    teacher.get_by_role("button", name=re.compile("^Class")).click()
    dialog.get_by_role("button", name="End the class").click()
    expect(dialog).to_contain_text("with the names that students typed")
    dialog.get_by_role("button", name="End it now").click()
    expect(dialog.get_by_text("The class has ended")).to_have_count(1)
