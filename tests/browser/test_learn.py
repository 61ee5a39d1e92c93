"""Learn: a first lesson, search and the tour, teaching, breaking it on purpose, and any run under the microscope."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.config.bundled import RECORDINGS
from rlhf_studio.lessons import answers, shelf
from rlhf_studio.lessons.faults import shelf as faults
from rlhf_studio.lessons.teaching import codes
from rlhf_studio.lessons.teaching.sheets import sheet
from rlhf_studio.ui.app import launch
from tests.browser.axe import violations
from tests.browser.conftest import go, width_of
from tests.browser.filled import LESSON, Studio
from tests.ui.breaking_stand_in import start_stand_in

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect
pytestmark = pytest.mark.browser


def scene_of(page: Any, name: str) -> Any:
    return page.locator(f'[data-scene="{name}"]')


def test_a_first_lesson_asks_answers_follows_a_control_and_prints(open_page: Callable[..., Any]) -> None:
    page = open_page("?lesson=clip")
    opening = page.locator(".rs-learn-opening")
    expect(opening).to_contain_text("Which token gets the credit?")
    expect(opening.locator(".rs-learn-asked")).to_be_hidden()
    opening.locator("summary").click()
    expect(opening.locator(".rs-learn-asked")).to_be_visible()
    opening.get_by_role("button", name="Skip it").click()
    expect(opening.locator(".rs-learn-asked")).to_be_hidden()
    scene = scene_of(page, "dead_zones")
    expect(scene.locator(".rs-learn-slot").first).to_have_text("1.30")
    result = scene.locator(".rs-learn-text p", has_text="The slope of its loss")
    expect(result).to_be_hidden()

    # paper has the results, and no theme
    page.evaluate("document.body.classList.add('dark'); dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    expect(result).to_be_visible()
    expect(scene.locator('input[type="range"]').first).to_be_hidden()
    expect(page.locator("#pages > .tab-wrapper")).to_be_hidden()
    expect(opening).to_be_hidden()
    assert page.evaluate("document.body.classList.contains('dark')") is False
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    expect(result).to_be_hidden()
    assert page.evaluate("document.body.classList.contains('dark')") is True

    # a prediction, a control, and a link that restores both
    scene.get_by_role("button", name="No", exact=True).click()
    expect(scene.locator(".rs-learn-verdict")).to_contain_text("Not here. Yes.")
    expect(result).to_contain_text("+1.30")
    scene.get_by_role("slider", name="Ratio").fill("5")  # the sixth value, 0.50
    expect(result).to_contain_text("+0.00")
    expect(result).to_contain_text("is silent")
    expect(page).to_have_url(re.compile("lesson=clip.*ratio%3A0.5"))
    page.reload()
    expect(scene.locator(".rs-learn-slot").first).to_have_text("0.50")
    scene.get_by_role("button", name="Less").first.click()
    expect(scene.locator(".rs-learn-slot").first).to_have_text("0.48")

    # a saying leads to the scene that refutes it
    go(page, "?lesson=often_said")
    scene_of(page, "outside").get_by_role("link", name="Find the silent corners").click()
    expect(page.locator(".rs-learn-title")).to_have_text(shelf.text_of("clip").title)
    expect(page).to_have_url(re.compile("lesson=clip&scene=dead_zones"))
    expect(scene).to_be_in_viewport()

    # numbers of one's own hold in all scenes; what a person adds below a lesson is text, and comes back when it was deleted
    go(page, "?lesson=policy_gradient")
    logits = scene_of(page, "objective").get_by_label("Logits")
    logits.fill("0, 0")
    expect(scene_of(page, "objective").get_by_text("3 numbers from −6")).to_be_visible()
    logits.fill("0, 0, 1")
    expect(scene_of(page, "clipping").get_by_label("Logits")).to_have_value("0 0 1")
    added = page.locator(".rs-learn-added")
    page.locator(".rs-learn-turn").scroll_into_view_if_needed()
    added.get_by_text("Add a question and its answer").click()
    added.get_by_label("Question").fill("Why <b>three</b> words?")
    added.get_by_label("Answer").fill("They can be summed.")
    added.get_by_role("button", name="Keep").click()
    expect(added.get_by_role("heading", name="Why <b>three</b> words?")).to_be_visible()
    added.get_by_role("button", name="Delete").click()
    expect(added.get_by_role("article")).to_have_count(0)
    added.get_by_role("button", name="Undo").click()
    expect(added.get_by_role("article")).to_contain_text("by an operator")
    assert violations(page, ".rs-learn-added") == []


@pytest.mark.long
def test_what_is_slow_is_measured_when_asked_and_its_question_comes_then(open_page: Callable[..., Any]) -> None:
    page = open_page("?lesson=gae")
    dice = scene_of(page, "dice")
    expect(dice.get_by_role("group", name="Question")).to_be_hidden()
    dice.get_by_role("button", name="Measure").click()
    expect(dice.get_by_role("group", name="Question")).to_contain_text("muddled")
    measured = dice.locator(".rs-learn-text p", has_text="GAE said")
    expect(measured).to_be_hidden()
    dice.get_by_role("button", name="Show me").click()
    expect(measured).to_be_visible()


def test_search_leads_to_scenes_and_along_the_tour(open_page: Callable[..., Any]) -> None:
    page = open_page("?lesson=clip")
    title, field, first = page.locator(".rs-learn-title"), page.get_by_role("searchbox"), page.locator(".rs-learn-result").first
    expect(title).to_have_text(shelf.text_of("clip").title)
    page.keyboard.press("/")
    expect(field).to_be_focused()
    page.keyboard.type("why is KL negative")
    expect(first).to_contain_text("Why is my KL negative?")
    expect(page.locator(".rs-learn-lesson")).to_be_hidden()
    field.press("ArrowDown")
    expect(first).to_be_focused()
    first.press("Enter")
    expect(scene_of(page, "cut").get_by_role("heading").first).to_be_focused()
    expect(page).to_have_url(re.compile("lesson=rewards&scene=cut"))
    page.reload()
    expect(scene_of(page, "cut")).to_be_in_viewport()
    field.fill("null_ref_context")
    expect(first).to_contain_text("In TRL:")
    expect(first).to_contain_text("rlhf_studio/engine/models/reference.py")
    field.press("Escape")
    expect(page.locator(".rs-learn-lesson")).to_be_visible()
    field.fill("null_ref_context")
    first.get_by_role("button", name="Reference.active").click()
    expect(page).to_have_url(re.compile("place=tour&show=reference"))
    expect(title).to_have_text(shelf.text_of("tour.reference").title)

    # documents and settings are found in the same box
    field.fill("less memory")
    first.click()
    expect(page.locator("[data-anchor=less-memory]")).to_be_focused()
    expect(page).to_have_url(re.compile("place=help&scene=less-memory&show=models|place=help&show=models&scene=less-memory"))
    page.get_by_role("link", name="settings.md").first.click()
    expect(title).to_have_text("Settings")
    page.get_by_role("navigation", name="Lessons and documents").get_by_role("button", name="The doctor").click()
    expect(title).to_have_text("The doctor")
    field.fill("clip range")
    first.click()
    expect(page.get_by_label("Clip range ε")).to_be_focused()
    expect(page).to_have_url(re.compile("tab=train"))

    # stations follow each other, keep the line, and are restored
    go(page, "?place=tour&show=rewards")
    expect(title).to_have_text(shelf.text_of("tour.rewards").title)
    slot = page.locator(".rs-learn-text p", has_text="The score is").locator(".rs-learn-slot").first
    expect(slot).to_have_text(re.compile(r"\d"))
    before = slot.text_content()
    page.get_by_role("slider", name="Response").fill("4")  # the fifth response
    expect(page).to_have_url(re.compile("sample%3A5"))
    expect(slot).not_to_have_text(before)
    score = slot.text_content()
    page.get_by_role("button", name=re.compile("^Next: GAE")).click()
    expect(title).to_have_text(shelf.text_of("tour.gae").title)
    expect(page.get_by_role("slider", name="Response")).to_have_attribute("aria-valuetext", "5")
    page.get_by_role("button", name=re.compile("^Previous: Rewards")).click()
    expect(slot).to_have_text(score)
    page.reload()
    expect(slot).to_have_text(score)
    stops = page.get_by_role("navigation", name="Stations of the tour").get_by_role("button")
    expect(stops).to_have_count(len(shelf.entries(shelf=shelf.TOUR)))
    page.locator('.rs-learn-way [aria-current="step"]').focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(title).to_have_text(shelf.text_of("tour.gae").title)
    page.go_back()
    expect(title).to_have_text(shelf.text_of("tour.rewards").title)

    # notes stand beside the code, and above it on a phone
    go(page, "?place=tour&show=sampling")
    expect(title).to_have_text(shelf.text_of("tour.sampling").title)
    note, code = (page.locator(f".rs-learn-pair > {one}").nth(1) for one in (".rs-learn-note", ".rs-learn-code"))
    for width, beside in ((1440, True), (768, True), (390, False)):
        page.set_viewport_size({"width": width, "height": 900})
        left, right = note.bounding_box(), code.bounding_box()
        assert (right["x"] >= left["x"] + left["width"]) is beside and (right["y"] >= left["y"] + left["height"]) is not beside
        assert width_of(page) <= width
    assert code.locator("pre").evaluate("node => node.scrollWidth > node.clientWidth")  # the code scrolls sideways, the page does not

    # an experiment of the gallery fills the form
    go(page, "?place=gallery&show=epochs")
    card = page.locator("[data-card=epochs]")
    expect(card).to_be_in_viewport()
    expect(card.get_by_role("img")).to_be_visible()
    card.get_by_role("link", name="Run it here").first.click()
    expect(page.get_by_role("textbox", name="PPO epochs")).to_have_value("1")
    page.go_back()
    expect(card).to_be_visible()


@pytest.mark.long
def test_a_teacher_shows_slides_gives_a_quiz_and_prints_sheets(open_page: Callable[..., Any]) -> None:
    page = open_page("?place=teach")
    page.get_by_role("link", name="four cases").click()  # of the plan
    scene = scene_of(page, "dead_zones")
    expect(page.get_by_role("heading", name="Four cases, one of them silent")).to_be_in_viewport()
    expect(scene.locator(".rs-learn-there").first).to_have_text("1.30")
    expect(page.get_by_role("heading", name="Four cases, one of them silent")).to_be_in_viewport()

    # slides by the keyboard, with the answer after the show of hands
    page.goto(page.url.split("?")[0] + "?lesson=clip&scene=dead_zones&show=slides")
    place = page.locator(".rs-learn-place")
    expect(scene.locator(".rs-learn-there").first).to_have_text("1.30")
    expect(page.get_by_role("heading", name="Four cases, one of them silent")).to_be_visible()
    expect(page.get_by_role("button", name="Slides", exact=True)).to_be_hidden()
    first, of = (int(number) for number in place.inner_text().split(" of "))
    assert of <= 16  # of seven scenes
    question, result = scene.locator(".rs-learn-question"), scene.locator(".rs-learn-figure .rs-learn-result")
    expect(question).to_be_visible()
    expect(question.locator(".rs-learn-verdict")).to_be_hidden()
    expect(result).to_be_hidden()
    page.get_by_role("slider", name="Ratio").fill("5")  # 0.50: controls work on a slide
    page.get_by_role("slider", name="Ratio").press("ArrowLeft")  # the control's own key: 0.48, and the same slide
    expect(question).to_contain_text("0.48")
    expect(page).to_have_url(re.compile("show=slides"))
    page.keyboard.press("PageDown")  # a clicker's key leads on whatever has the focus: the answer first
    expect(question.locator(".rs-learn-verdict")).to_contain_text("No. The larger of the two losses is the flat one")
    expect(place).to_have_text(re.compile(f"^{first} of "))
    expect(result).to_be_visible()  # beside the text, under the controls
    expect(scene.locator("p:not([role])", has_text="The slope of its loss")).to_be_visible()
    page.keyboard.press("PageDown")
    expect(question).to_be_hidden()
    expect(scene.locator(".rs-learn-code")).to_be_visible()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Escape")
    expect(scene.locator(".rs-learn-text .rs-learn-picture")).to_be_visible()  # where it is spoken of
    expect(place).to_be_hidden()
    expect(page.get_by_role("slider", name="Ratio").first).to_be_in_viewport()  # the same place of the lesson
    expect(question.locator(".rs-learn-verdict")).to_be_visible()
    expect(page).not_to_have_url(re.compile("show=slides"))

    # a quiz ends with a code that says how it went
    questions = sheet(["clip", "gae"], 1, 8)["questions"]
    assert [len(one["choices"]) > 2 for one in questions] == [True, True]
    go(page, "?place=teach&show=quiz&set=lessons:clip.gae,each:1&seed=8")
    verdict = page.locator(".rs-learn-verdict:visible")
    for key in [key for key, _ in questions[0]["choices"] if key != questions[0]["answer"]][:2]:
        page.locator(f'[data-answer="{key}"]').click()
    expect(verdict).to_contain_text("Not here.")
    page.locator(f'[data-answer="{questions[0]["answer"]}"]').click(force=True)  # no third try
    expect(verdict).to_contain_text("Not here.")
    before = page.locator(".rs-learn-asked:visible").inner_text()
    page.get_by_role("button", name="Another one").click()
    expect(page.locator(".rs-learn-asked:visible")).not_to_have_text(before)
    page.get_by_role("button", name="Show me").locator("visible=true").click()
    page.get_by_role("button", name="Next question").click()
    page.reload()  # what was answered is kept
    expect(page.get_by_text("Question 2 of 2")).to_be_visible()
    page.locator(f'[data-answer="{questions[1]["answer"]}"]').click()
    expect(verdict).to_contain_text("Right.")
    page.get_by_role("button", name="To the result").click()
    code = page.locator(".rs-learn-outcome").inner_text()
    assert codes.decode(code).outcomes == ("not", "first")
    page.get_by_role("button", name="For teachers").click()
    page.get_by_role("button", name="Results").click()
    page.get_by_role("textbox", name="Result codes").fill(f"Ana: {code}\n{code[:-1]}")
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_role("row", name="Ana")).to_contain_text("1 of 2")
    expect(page.locator(".rs-learn-found .rs-problem")).to_contain_text("typing error")

    # a sheet of the form, and its answers
    go(page, "?place=teach&show=sheets")
    page.get_by_role("checkbox", name="11 ").check()
    page.get_by_label("Questions of each lesson").fill("2")
    page.get_by_role("button", name="Exercise sheet").click()
    expect(page.locator(".rs-learn-task")).to_have_count(2)
    expect(page.locator("[data-right]")).to_have_count(0)
    page.get_by_role("button", name="Answer sheet").click()
    expect(page.locator("[data-right]")).to_have_count(2)
    asked = sheet(["clip"], 2, 7)["questions"]
    words = {key: text for question in asked for key, text in question["words"].items()}
    right = [words.get(one["answer"], one["answer"].capitalize()) for one in asked]
    assert [text.split("\u2002")[1] for text in page.locator("[data-right]").all_inner_texts()] == right
    page.go_back()
    expect(page.locator("[data-right]")).to_have_count(0)


@pytest.mark.long
def test_a_reader_breaks_it_predicts_and_follows_the_way_to_the_bug(open_page: Callable[..., Any], tmp_path: Path) -> None:
    app = launch(tmp_path, start=start_stand_in)  # type: ignore[arg-type]
    page = open_page("?place=break", at=app)
    card = page.locator(".rs-learn-broken", has_text=faults.text_of("no_kl").title).first
    expect(page.locator(".rs-learn-broken")).to_have_count(9)
    card.click()
    expect(page).to_have_url(re.compile("place=break&show=no_kl"))
    why, path = page.locator('[data-part="why"]'), page.locator('[data-part="path"]')
    expect(why).to_be_hidden()
    guess = page.get_by_role("button", name="Higher", exact=True)
    guess.click()
    expect(page.locator(".rs-learn-verdict")).to_contain_text("Your answer is kept.")
    expect(guess).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="All experiments").click()
    card.click()
    expect(guess).to_have_attribute("data-state", "kept")  # another look at the list loses no answer
    expect(page.locator(".rs-learn-both")).to_contain_text(re.compile("Both runs together take about .* on two CPU cores"))
    expect(why).to_be_hidden()
    page.get_by_role("button", name="Run both").click()
    expect(page.locator(".rs-learn-side")).to_contain_text(["Finished, step 3 of 20", "Finished, step 3 of 20"])
    expect(page.locator(".rs-learn-verdict")).to_contain_text("Not here. It ends at −0.50 instead of +0.50.")
    expect(path).to_contain_text('In step 2, token 3 of response 1, "is"')
    expect(path.locator(".rs-learn-code")).to_contain_text("rewards = masked_select(-kl_coef * kl, mask)")
    expect(why).to_be_visible()
    expect(page.locator('[data-part="curves"] svg').first).to_be_visible()
    expect(path.locator("th", has_text="<b>superb</b>").first).to_be_visible()
    assert violations(page, ".rs-learn-lesson") == []
    assert re.search("tab=runs&compare=[^&]+%2C", page.get_by_role("link", name="Compare both").get_attribute("href"))
    page.reload()  # the pair is there: its result shows at once, behind the question
    page.get_by_role("button", name="Show me").click()
    expect(why).to_be_visible()
    page.get_by_role("button", name="Run again with seed 1").click()
    expect(page).to_have_url(re.compile("seed=1"))
    expect(page.locator(".rs-learn-called").first).to_contain_text("seed 1")
    page.set_viewport_size({"width": 390, "height": 844})
    assert width_of(page) <= 390
    page.goto(f"{app.url}?place=break&show=critic&view=1")
    expect(page.locator(".rs-learn-both")).to_contain_text("You cannot start these two runs here.")
    expect(page.get_by_role("button", name="Run both")).to_be_hidden()
    go(page, "?place=break&show=no_such&view=1")
    expect(page.get_by_role("alert").locator("visible=true").first).to_have_text("There is no such experiment.")
    app.close()


def test_any_run_goes_under_the_microscope(open_page: Callable[..., Any], studio: Studio) -> None:
    folder = str(Path(studio.workspace.root) / "runs" / LESSON)

    def pieces(scene: str, **values: Any) -> list[dict[str, Any]]:
        computed = answers.computed("one_sample", scene, values, run=answers.ChosenRun(folder, "test"))
        return list(computed["pictures"]["tokens"]["items"])

    # a link restores run, step and sample; all scenes follow the step
    page = open_page(f"?lesson=one_sample&run={LESSON}&scene=rewarded&set=step:20,sample:5,beta:0.2")
    scene, written, picker = scene_of(page, "rewarded"), scene_of(page, "written"), page.get_by_label("Run", exact=True)
    values = ".rs-learn-value"
    expect(picker).to_have_value(LESSON)
    expect(scene.locator(values)).to_have_text(["20", "5", "0.20", "1.68"])
    expect(scene.locator(".rs-learn-own:visible")).to_have_count(1)  # the score: the price is another one
    items = pieces("rewarded", step=20, sample=5, beta=0.2, score=None)
    expect(scene.locator(".rs-learn-piece")).to_have_text([item["text"] for item in items])
    notes = [item["note"] for item in items if item["note"]]
    assert notes
    expect(scene.locator(".rs-learn-under", has_text="(")).to_have_text(notes)
    expect(written.locator(values)).to_have_text(["20", "5"])
    written.get_by_role("button", name="Less").first.click()
    expect(scene.locator(values).first).to_have_text("19")
    scene.scroll_into_view_if_needed()
    items = pieces("rewarded", step=19, sample=5, beta=0.2, score=None)
    expect(scene.locator(".rs-learn-piece")).to_have_text([item["text"] for item in items])
    expect(scene).not_to_have_class(re.compile("stale"))
    swapped = scene_of(page, "swapped")
    expect(swapped.get_by_text("Only the bundled run has kept")).to_be_visible()
    expect(swapped.locator(".rs-learn-question")).to_be_hidden()

    # Live leads to the response and the token that are shown; samples that could not be fetched are asked for again
    lost = iter([True])

    def unanswered(route: Any) -> None:
        route.abort() if '"samples"' in (route.request.post_data or "") and next(lost, False) else route.continue_()

    page.route("**/component_server/", unanswered)
    page.goto(page.url.split("?")[0] + f"?run={LESSON}&step=7&sample=3&token=2")
    page.locator(".rs-tokens [role=option]").nth(4).click()
    assert next(lost, None) is None
    page.get_by_role("link", name="Under the microscope").click()
    expect(scene_of(page, "beside").locator(values)).to_have_text(["7", "4", "5"])
    expect(written.locator(".rs-learn-piece")).to_have_text([item["text"] for item in pieces("written", step=7, sample=4)])


@pytest.mark.long
def test_runs_without_such_numbers_and_none_at_all_under_the_microscope(open_page: Callable[..., Any], studio: Studio) -> None:
    page = open_page("?lesson=one_sample")
    written, picker, values = scene_of(page, "written"), page.get_by_label("Run", exact=True), ".rs-learn-value"
    # the picker leads to another run and back; one that is not there is told, and the picker stays
    expect(written.locator(values)).to_have_text(["12", "3"])
    picker.select_option(LESSON)
    expect(page).to_have_url(re.compile(f"run={LESSON}"))
    expect(written.locator(values)).to_have_text(["36", "3"])  # the newest step
    page.go_back()
    expect(written.locator(values)).to_have_text(["12", "3"])
    expect(picker).to_have_value("")
    page.goto(page.url.split("?")[0] + "?lesson=one_sample&run=20261101-000000-nobody")
    alert = page.get_by_role("alert").locator("visible=true")
    expect(alert).to_contain_text("There is no")
    expect(page.locator("[data-scene]")).to_have_count(0)
    picker.select_option("")
    expect(written.locator(values)).to_have_text(["12", "3"])
    expect(alert).to_have_count(0)
    go(page, f"?lesson=one_sample&run={studio.runs['hostile']}")  # its name is markup; it has no episodes on record
    expect(page.locator(".rs-learn-run")).to_contain_text("no record of all its responses")
    assert page.evaluate("window.__pwned") is None

    # a recording whose token numbers were not recorded
    page.goto(page.url.split("?")[0] + f"?run={RECORDINGS[1].run_id}&step=30&sample=33&token=4")
    recorded = studio.workspace.reader(RECORDINGS[1].run_id).rollout(30, 33)
    expect(page.locator(".rs-inspector .rs-plain-text")).to_have_text(recorded.prompt + recorded.response)
    why = page.get_by_role("link", name="Learn why")
    expect(why).to_have_attribute("href", re.compile("lesson=what_goes_wrong&scene=two_curves"))
    page.get_by_role("link", name="Open it under the microscope").click()
    expect(scene_of(page, "beside").locator(values)).to_have_text(["30", "34", "5"])
    expect(scene_of(page, "beside").locator(".rs-learn-piece").first).to_be_visible()
