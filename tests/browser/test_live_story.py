"""The story on the Live page, in a real browser: verdict, evidence, what was learned, controls, and the ending.

The analyses are stand-ins (tests/ui/fake_insights.py); what they say is theirs, how it is shown is tried here.
"""

from __future__ import annotations

import json
import math
import re
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace

import pytest

from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.runs.writer import Heartbeat
from tests.browser.conftest import Tabs
from tests.browser.test_live_page import HURRY, wait_for_points, wait_for_step
from tests.ui.fake_run import FakeRun, config
from tests.ui.live_app import LiveApp
from tests.waiting import wait_until

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    return tmp_path_factory.mktemp("workspace")


@pytest.fixture(scope="module")
def app(workspace):
    app = LiveApp(workspace)
    yield app
    app.close()


@pytest.fixture
def run(workspace, app):
    app.verdict = "improving"
    run = FakeRun(workspace, steps=30)
    run.load()
    run.run()
    run.step(8)
    with Heartbeat(run.folder):
        yield run
    run.close()


@pytest.fixture(scope="module")
def tabs(browser):
    return Tabs(browser, HURRY)


@pytest.fixture
def open_page(tabs, app):
    def open_page(query="", ready=".rs-verdict[data-kind]:not([data-kind=''])", **size):
        page = tabs.open(app.url + query, **size)
        page.wait_for_selector(ready)
        return page

    yield open_page
    assert tabs.leave() == []


def top(page, selector):
    return page.locator(selector).first.bounding_box()


def test_the_story_stands_above_the_fold(open_page, run):
    page = open_page(f"?run={run.run_id}")
    wait_for_points(page, 8)
    page.wait_for_selector(".rs-phrases li")
    page.wait_for_selector(".rs-tinted")
    parts = (".rs-head", ".rs-verdict", ".rs-tiles", "[data-chart=score]", "[data-chart=kl]", ".rs-learned", ".rs-answer:not(.rs-was)")
    for selector in parts:
        box = top(page, selector)
        assert box["y"] >= 0 and box["y"] + min(box["height"], 160) <= 900, selector
    assert page.locator(".rs-verdict-sentence").inner_text().startswith("Improving.")
    before, now = (page.locator(f".rs-answers .rs-answer{which} .rs-tinted").count() for which in (".rs-was", ":not(.rs-was)"))
    assert before > 5 and now > 5
    colours = """(which) => [...document.querySelectorAll(`.rs-answers .rs-answer${which} .rs-tinted`)]
      .filter((node) => node.style.getPropertyValue('--v') !== '0.0%').map((node) => node.dataset.sign)"""
    for quantity in ("KL", "Value"):  # the start has a KL and values of 0: neither says anything of its text
        shown = page.get_by_role("button", name=quantity, exact=True).first
        assert shown.get_attribute("aria-pressed") == str(quantity == "KL").lower()
        shown.click()
        assert page.evaluate(colours, ".rs-was") == [] and set(page.evaluate(colours, ":not(.rs-was)")) == {"plus", "minus"}
    assert page.inner_text(".rs-answers .rs-scale").endswith("value per token; before: 0.00 everywhere")
    prompt = page.inner_text(".rs-pair-prompt")
    page.get_by_role("button", name="Next prompt").click()
    page.wait_for_function("(old) => document.querySelector('.rs-pair-prompt').textContent !== old", arg=prompt)
    assert page.evaluate("window.__pwned") is None and "onerror" in page.inner_text(".rs-learned")


def test_the_panel_shows_what_tells_most_and_leads_to_its_tokens(open_page, run):
    """Punctuation, and what was common before and after, are no news; a phrase opens the token where it begins."""
    page = open_page(f"?run={run.run_id}")
    page.wait_for_selector(".rs-phrases li")
    assert [text.strip("“”") for text in page.locator(".rs-phrase-text").all_inner_texts()][:2] == ["tender", "dull"]
    assert page.locator(".rs-phrases li").count() == 3 and "6 → 0 of 16" in page.inner_text(".rs-phrases")
    assert "Response length" not in page.inner_text(".rs-learned")  # it did not change by more than chance explains
    page.locator(".rs-phrases").get_by_role("button", name="tender").click()
    page.wait_for_function("location.search.includes('token=')")
    step, sample, token = (int(re.search(f"{name}=(\\d+)", page.url)[1]) for name in ("step", "sample", "token"))
    assert RunReader(run.folder).rollout(step, sample).tokens.response_pieces[token] == " tender"


def test_a_phone_reads_verdict_answers_inspector_charts(open_page, run):
    page = open_page(f"?run={run.run_id}", width=390, height=844)
    page.wait_for_selector(".rs-answers")
    page.wait_for_selector(".rs-card-columns")
    tops = [top(page, selector)["y"] for selector in (".rs-head", ".rs-verdict", ".rs-answers", ".rs-inspector", "[data-chart=score]")]
    assert tops == sorted(tops) and page.evaluate("document.documentElement.scrollWidth") <= 390
    page.locator(".rs-chart-panel > summary").click()
    for opener, menu in ((".rs-caret >> nth=0", ".rs-menu"), (".rs-caret >> nth=1", ".rs-menu"), (".rs-arrange summary", ".rs-chooser")):
        page.locator(opener).click()
        box = page.locator(f"{menu}:visible").bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 390, opener
        page.keyboard.press("Escape")


def test_why_leads_to_the_evidence_and_a_fork(open_page, run, app, workspace):
    run.checkpoint(3)
    run.checkpoint(5)
    run.step()
    page = open_page(f"?run={run.run_id}")
    page.get_by_role("button", name="why?").click()
    finding = page.locator(".rs-finding")
    finding.wait_for()
    for text in ("A phrase in more than half", "The reward pays for the phrase itself", "Raise the KL coefficient"):
        assert text in finding.inner_text()
    finding.get_by_role("button", name="the phrase ends this response").click()
    page.wait_for_function("location.search.includes('token=3')")
    assert "step=6" in page.url and "sample=2" in page.url
    page.wait_for_function("document.querySelector('.rs-card-title')?.textContent.startsWith('Token 4 of')")
    finding.get_by_role("button", name="score goes on rising").click()
    page.wait_for_function("document.activeElement.dataset.chart === 'score'")
    app.experiments.clear()
    app.silent = True
    finding.get_by_role("button", name="Fork from step 3 with KL coefficient 0.2").click()
    page.locator(".rs-banner").get_by_text("The app does not answer").wait_for()
    app.silent = False
    app.answer = {"problem": "engine.device There is no GPU"}
    finding.get_by_role("button", name="Fork from step 3 with KL coefficient 0.2").click()
    page.locator(".rs-banner").get_by_text("There is no GPU").wait_for()
    assert run.run_id in page.url
    made = Workspace(workspace).submit(config(), "the fork")
    app.answer = {"runs": [made], "names": ["the fork"]}
    finding.get_by_role("button", name="Fork from step 3 with KL coefficient 0.2").click()
    page.locator(".rs-live[data-state=queued]").wait_for()
    assert made in page.url and "There is no GPU" not in page.inner_text(".rs-banner")
    asked = {"run": run.run_id, "how": "fork", "step": 3, "changes": {"ppo.kl_coef": 0.2}, "view": False}
    first, again, after_an_answer = [one.pop("nonce") for one in app.experiments]
    assert first == again != after_an_answer  # asked again because no answer came, it is the same wish
    assert app.experiments == [asked, asked, asked]
    Workspace(workspace).cancel(made)
    viewer = open_page(f"?run={run.run_id}&view=1")
    viewer.get_by_role("button", name="why?").click()
    viewer.locator(".rs-finding").wait_for()
    assert viewer.get_by_role("button", name="Fork from").count() == 0


def open_in_page(page, run):
    """Show another run in the page that is open."""
    page.get_by_role("tab", name="Train").click()
    page.locator("#wanted textarea, #wanted input").fill(run.run_id)
    page.locator("#open-it").click()
    page.wait_for_function("(id) => location.search.includes(id)", arg=run.run_id)


def test_what_was_found_in_one_run_is_not_offered_for_another(open_page, run, app, workspace, monkeypatch):
    """Until the other run's findings come there is nothing to press; a problem is told and asked about again."""
    other = FakeRun(workspace, steps=30)
    other.run()
    other.step(8)
    allowed = []
    app.answer = {"problem": "The stand-in starts nothing."}
    app.experiments.clear()
    whole = app.feed.insights.detail

    def detail(name, kind, place):
        if name != other.run_id or kind in allowed:
            return whole(name, kind, place)
        answer = Future()
        answer.set_result(b'{"problem":"This takes longer than usual. It is tried again."}')
        return answer

    monkeypatch.setattr(app.feed.insights, "detail", detail)
    page = open_page(f"?run={run.run_id}")
    page.get_by_role("button", name="why?").click()
    page.locator(".rs-finding").wait_for()
    page.wait_for_selector(".rs-phrases li")
    open_in_page(page, other)
    page.wait_for_function("document.querySelector('.rs-learned').textContent.includes('It is tried again')")
    assert page.locator(".rs-finding").count() == 0 and page.locator(".rs-why").text_content() == ""
    page.get_by_role("button", name="why?").click()
    page.wait_for_function("document.querySelector('.rs-why').textContent.includes('It is tried again')")
    allowed += ["diagnosis", "learned"]
    page.wait_for_selector(".rs-phrases li")
    page.locator(".rs-finding").get_by_role("button", name="Start again with KL coefficient 0.2").click()
    wait_until(lambda: app.experiments, 10)
    (asked,) = app.experiments
    assert (asked["run"], asked["how"], asked["step"], asked["changes"]) == (other.run_id, "variation", None, {"ppo.kl_coef": 0.2})
    other.close()


def test_news_leave_the_focus_and_what_did_not_change(open_page, run):
    page = open_page(f"?run={run.run_id}")
    page.get_by_role("button", name="why?").click()
    evidence = page.locator(".rs-finding").get_by_role("button", name="the phrase ends this response")
    evidence.wait_for()
    page.wait_for_selector(".rs-phrases li")
    page.wait_for_selector(".rs-tinted")
    page.evaluate("document.querySelector('.rs-finding').same = true")
    focused = "document.activeElement.textContent"
    span = "document.querySelector('.rs-learned .rs-panel-head .rs-muted').textContent"
    evidence.focus()
    run.step()
    page.wait_for_function(f"{span} === 'steps 1 to 2 compared with steps 8 to 9'")
    page.wait_for_function("document.querySelector('.rs-finding').same === undefined")  # the diagnosis is of another step
    assert page.evaluate(focused).startswith("the phrase ends this response")
    page.locator(".rs-phrases").get_by_role("button", name="tender").focus()
    run.step()
    page.wait_for_function(f"{span} === 'steps 1 to 2 compared with steps 9 to 10'")
    assert page.evaluate(focused) == "“tender”"
    page.evaluate("document.querySelector('.rs-before .rs-answer-text').same = true")
    page.locator(".rs-answers .rs-answer-text").first.focus()
    with page.expect_response(lambda reply: '"kind":"answer"' in (reply.request.post_data or "").replace(" ", "")):
        run.writer.set_state("paused", "Paused")
    page.wait_for_function("document.querySelector('.rs-page[data-state=paused], [data-state=paused]')")
    assert page.evaluate("document.activeElement.same")


def test_a_tile_leads_to_its_chart_also_when_it_was_put_away(open_page, run):
    page = open_page(f"?run={run.run_id}")
    page.locator(".rs-arrange > summary").click()
    page.get_by_role("checkbox", name="Entropy").uncheck()
    page.wait_for_selector("[data-chart=entropy]", state="hidden")
    page.get_by_role("button", name="Move Losses up").click()
    order = "[...document.querySelectorAll('.rs-charts .rs-chart')].map((node) => node.dataset.chart).join()"
    assert page.evaluate(order).startswith("loss,frontier")
    page.reload()
    page.wait_for_selector(".rs-tile")
    page.wait_for_selector("[data-chart=loss]")
    assert page.evaluate(order).startswith("loss,frontier") and page.locator("[data-chart=entropy]").is_hidden()
    page.locator(".rs-chart-panel > summary").click()
    page.locator(".rs-tile[data-term='policy/entropy_avg']").click()
    page.wait_for_function("document.activeElement.dataset.chart === 'entropy'")
    assert page.locator("[data-chart=entropy]").is_visible()


def test_samples_stay_while_the_pointer_is_on_them(open_page, run):
    page = open_page(f"?run={run.run_id}")
    page.wait_for_selector(".rs-card-columns")
    title = "document.querySelector('.rs-picker h3').textContent"
    page.locator(".rs-row").first.hover()
    run.step()
    wait_for_step(page, 9)
    page.get_by_role("button", name="newest: step 9").wait_for()
    assert page.evaluate(title) == "Samples of step 8"
    page.mouse.move(5, 5)
    page.wait_for_function(f"{title} === 'Samples of step 9'")
    page.locator(".rs-row").first.hover()
    run.step()
    page.get_by_role("button", name="newest: step 10").click()
    page.wait_for_function(f"{title} === 'Samples of step 10'")


def test_one_scale_for_a_whole_step_or_for_the_run(open_page, run):
    page = open_page(f"?run={run.run_id}&step=8&sample=0&token=0")
    page.keyboard.press("3")
    ticks = "document.querySelector('.rs-inspector .rs-scale-ticks').textContent"
    page.wait_for_function(f"{ticks}.length > 5")
    first = page.evaluate(ticks)
    recorded = [RunReader(run.folder).rollout(8, sample).tokens.arrays["advantages"] for sample in range(12)]
    assert f"{max(abs(values).max() for values in recorded):.2f}" in first
    page.locator(".rs-row").nth(5).click()
    page.wait_for_function("location.search.includes('sample=') && !location.search.includes('token=')")
    assert page.evaluate(ticks) == first
    whole = [RunReader(run.folder).rollout(step, sample).tokens.arrays["advantages"] for step in range(1, 9) for sample in range(12)]
    limit = f"{max(abs(values).max() for values in whole):.2f}"
    page.get_by_label("One scale for the run").check()
    page.wait_for_function(f"{ticks}.endsWith('{limit}')")
    assert "all steps with samples up to step 8" in page.get_by_text("One scale for the run").get_attribute("data-tip")
    page.keyboard.press("[")
    page.wait_for_function("document.querySelector('.rs-picker h3').textContent === 'Samples of step 7'")
    page.wait_for_function("document.querySelector('.rs-facts').textContent.includes('Step 7')")
    assert page.evaluate(ticks).endswith(limit)
    page.get_by_label("One scale for the run").uncheck()
    page.wait_for_function(f"!{ticks}.endsWith('{limit}')")


def test_settings_are_changed_and_phases_stepped_from_the_page(open_page, run):
    page = open_page(f"?run={run.run_id}")
    page.get_by_role("button", name="Change settings").click()
    dialog = page.locator("dialog")
    dialog.get_by_role("button", name="Change", exact=True).click()
    assert "Nothing differs yet" in dialog.inner_text()
    dialog.get_by_label("Temperature").fill("0.8")
    dialog.get_by_role("button", name="Change", exact=True).click()
    page.wait_for_timeout(800)
    (command,) = run.writer.pending_commands()
    assert (command.kind, command.payload) == ("set", {"changes": {"generation.temperature": 0.8}})
    pause = page.get_by_role("button", name="Pause", exact=True)
    page.wait_for_function("document.querySelector('[aria-haspopup=menu]').getAttribute('aria-disabled') === 'false'")
    pause.focus()
    page.keyboard.press("Enter")
    for _ in range(2):
        page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.dataset.event") == "phase_run"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.textContent") == "Pause▾"
    page.keyboard.press("Enter")
    page.get_by_role("menuitem", name="Next phase").click()
    page.wait_for_timeout(800)
    assert [command.kind for command in run.writer.pending_commands()][-1] == "phase"


def test_a_step_that_waits_shows_what_is_known(open_page, run, monkeypatch):
    rollout = run._rollout(9, 0)
    kept = {name: rollout.tokens.arrays[name] for name in ("logprobs", "entropy")}
    waits = SimpleNamespace(step=9, phase="rollout", rollouts=[replace(rollout, tokens=replace(rollout.tokens, arrays=kept))])
    monkeypatch.setattr(RunReader, "scratch", lambda self: waits, raising=False)
    run.writer.set_state("paused", "Waits before the scores")
    page = open_page(f"?run={run.run_id}")
    page.wait_for_function("document.querySelector('.rs-picker h3').textContent === 'Step 9, not complete'")
    assert "its responses are written; their scores come next" in page.inner_text(".rs-samples")
    assert "Advantages are not computed yet" in page.inner_text(".rs-card")
    page.keyboard.press("3")
    page.wait_for_function("document.querySelector('.rs-inspector .rs-scale').textContent.includes('Not known yet')")


def test_the_ending_compares_and_leads_on(open_page, workspace, app):
    app.verdict = "improved"
    run = FakeRun(workspace, steps=20)
    run.run()
    run.step(20)
    run.finish()
    page = open_page(f"?run={run.run_id}")
    banner = page.locator(".rs-banner")
    assert "Step 1 compared with the mean of the last 2 steps" in banner.inner_text()
    scores = RunReader(run.folder).columns(["objective/scores"])[1]["objective/scores"]
    last = f"{(scores[-1] + scores[-2]) / 2:.2f}"
    assert last != f"{scores[-1]:.2f}" and banner.locator("[data-term='objective/scores'] b").inner_text().endswith(f" → {last}")
    for place in (".rs-tile[data-term='objective/scores'] .rs-tile-value", ".rs-key[data-term='objective/scores'] b"):
        assert page.locator(place).first.inner_text() == last, place
    assert page.locator(".rs-tile[data-term='gold/score'] .rs-tile-arrow").inner_text() == "↓"  # what the doctor says, not the last steps
    buttons = banner.get_by_role("button").all_inner_texts()
    assert buttons == ["Talk to it", "Take it home", "Run a variation", "Compare", "Go on with more steps"]
    app.experiments.clear()
    app.answer = {"problem": "The disk is full"}
    for typed, told in (("ten", "must be a whole number above 0"), ("5", "The disk is full")):
        banner.get_by_role("button", name="Go on with more steps").click()
        page.get_by_label("Steps to add").fill(typed)
        page.get_by_role("button", name="Go on", exact=True).click()
        banner.get_by_text(told).wait_for()
    (asked,) = app.experiments
    assert asked.pop("nonce")
    assert asked == {"run": run.run_id, "how": "more steps", "changes": {"ppo.steps": 25}, "view": False}
    banner.get_by_role("button", name="Compare").click()
    page.get_by_role("tab", name="Runs", selected=True).wait_for()
    assert json.loads(page.evaluate("sessionStorage.getItem('rlhf-studio.compare')")) == [run.run_id]


def test_a_run_that_was_read_from_a_file_offers_nothing_that_trains(open_page, workspace, app):
    app.verdict = "improved"
    run = FakeRun(workspace, steps=3, read_from="trl.jsonl")
    run.run()
    run.step(3)
    run.finish()
    page = open_page(f"?run={run.run_id}")
    assert page.locator(".rs-banner").get_by_role("button").all_inner_texts() == ["Compare"] and page.locator(".rs-next").count() == 0
    page.get_by_role("button", name="why?").click()
    page.locator(".rs-finding dl").first.wait_for()
    assert page.locator(".rs-finding .rs-primary").count() == 0


def test_a_failed_run_offers_to_fix_the_setting(open_page, workspace, app):
    app.verdict = "collapsed"
    run = FakeRun(workspace, steps=20)
    run.run()
    run.step(5)
    run.fail("The learning rate ppo.learning_rate is too high.")
    page = open_page(f"?run={run.run_id}")
    page.locator(".rs-learned").get_by_text("Too few steps to tell which phrases changed.").wait_for()  # and no word of chance
    page.get_by_role("button", name="Fix settings").click()
    page.get_by_role("tab", name="Train", selected=True).wait_for()
    handed = json.loads(page.evaluate("sessionStorage.getItem('rlhf-studio.train.wanted')"))
    assert handed["field"] == "ppo.learning_rate" and handed["cause"] == "The learning rate ppo.learning_rate is too high."


def clearest(run):
    """(step, sample, token) whose probability and advantage went furthest together."""
    found = {}
    for step in range(1, 9):
        for sample in range(12):
            arrays = {name: values.tolist() for name, values in RunReader(run.folder).rollout(step, sample).tokens.arrays.items()}
            names = ("logprobs", "new_logprobs", "advantages", "whitened_advantages")
            for token, (was, now, advantage, used) in enumerate(zip(*(arrays[name] for name in names), strict=True)):
                change = math.exp(now) - math.exp(was)
                if abs(change) >= 0.05 and (change > 0) == (advantage > 0) == (used > 0):
                    found[step, sample, token] = change * advantage
    return max(found, key=found.get)


def test_the_guided_look_has_three_stops_and_is_remembered(open_page, run):
    """It goes to the token whose probability moved most clearly, and the browser's Back to what was shown before."""
    page = open_page(f"?run={run.run_id}")
    page.wait_for_selector(".rs-card-columns")
    page.get_by_role("button", name="Show me around").click()
    words = ("orange turned out better", "the value head expected", "That is the way its advantage asked for.")
    for number, word in enumerate(words, 1):
        page.wait_for_function("(text) => document.activeElement.textContent.includes(text)", arg=f"{number} of 3")
        assert word in page.inner_text(".rs-guide")
        page.locator(".rs-guide .rs-primary").click()
    assert page.locator(".rs-guide").is_hidden() and page.locator(".rs-guided").count() == 0
    assert page.evaluate("document.activeElement.textContent") == "Show me around"
    assert page.evaluate("localStorage.getItem('rlhf-studio.guided')") == "true"
    step, sample, token = clearest(run)
    assert page.url.endswith(f"step={step}&sample={sample}&token={token}")
    page.go_back()
    page.wait_for_function("document.querySelector('.rs-picker h3').textContent === 'Samples of step 8'")
    assert page.url.endswith(run.run_id) and page.locator(".rs-main").is_visible()
    page.go_forward()
    page.wait_for_function("(text) => document.querySelector('.rs-card-title').textContent.startsWith(text)", arg=f"Token {token + 1} of")
    assert f"Step {step}, response {sample + 1}" in page.inner_text(".rs-facts")
