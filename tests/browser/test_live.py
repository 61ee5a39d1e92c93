"""The Live page, fed by runs that the test writes step by step: watching, reading tokens, steering, endings, a lost connection.

What the doctor says is a stand-in's (tests/ui/fake_insights.py); how it is shown is tried here.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import StepRecord
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.runs.writer import Heartbeat
from tests.ui.fake_run import FakeRun, config
from tests.ui.live_app import LiveApp
from tests.waiting import wait_until

expect = pytest.importorskip("playwright.sync_api").expect

pytestmark = pytest.mark.browser
TITLE = "document.querySelector('.rs-picker h3').textContent"
HIDE = """() => {
  window.state = 'hidden';
  Object.defineProperty(document, 'visibilityState', { get: () => window.state, configurable: true });
  document.dispatchEvent(new Event('visibilitychange'));
}"""
SHOW = "() => { window.state = 'visible'; document.dispatchEvent(new Event('visibilitychange')); }"
LATER = "() => { const now = Date.now; Date.now = () => now() + 9000; }"
ZOOM = "document.querySelector('[data-chart=kl] .rs-plot').layout.xaxis.range.map((value) => Number(value).toFixed(3)).join()"


@pytest.fixture
def root(live_app: LiveApp) -> Path:
    live_app.verdict = "improving"
    live_app.experiments.clear()
    return live_app.workspace


@pytest.fixture
def run(root: Path) -> Iterator[FakeRun]:
    """A run under way, at step 8."""
    run = FakeRun(root, steps=30)
    run.load()
    run.run()
    run.step(8)
    with Heartbeat(run.folder):
        yield run
    if RunReader(run.folder).status().state == "running":
        run.close()


@pytest.fixture
def watch_run(open_page: Callable[..., Any], live_app: LiveApp) -> Callable[..., Any]:
    """Opens the Live page of the stand-ins."""

    def open_at(run: FakeRun | None = None, query: str = "", ready: str = ".rs-card-columns", **options: Any) -> Any:
        page = open_page((f"?run={run.run_id}" if run else "") + query, at=live_app, **options)
        page.wait_for_selector(ready)
        return page

    return open_at


def wait_for_step(page: Any, step: int) -> None:
    page.wait_for_function("(text) => document.querySelector('.rs-step')?.textContent.startsWith(text)", arg=f"step {step} of")


def wait_for_points(page: Any, count: int) -> None:
    page.wait_for_function("(count) => document.querySelector('[data-chart=kl] .rs-plot')?.data?.[0].x.length === count", arg=count)


def wait_for_title(page: Any, title: str) -> None:
    page.wait_for_function(f"(title) => {TITLE} === title", arg=title)


def open_in_page(page: Any, run: FakeRun) -> None:
    """Show another run in the page that is open, as a handler of the app does."""
    page.get_by_role("tab", name="Train").click()
    page.locator("#wanted textarea, #wanted input").fill(run.run_id)
    page.locator("#open-it").click()
    page.wait_for_function("(id) => location.search.includes(id)", arg=run.run_id)


def chosen(page: Any) -> dict[str, int]:
    return {key: int(value) for key, value in re.findall(r"[?&](step|sample|token)=(\d+)", page.evaluate("location.search"))}


def sum_of(text: str) -> float:
    """The value of a sum of numbers and products as the page prints it, e.g. ``0.1 + 0.95 * (-0.2) - 3``."""
    total = 0.0
    for sign, term in re.findall(r"(^|[+-] )((?:-?[\d.]+|\(-[\d.]+\))(?: \* (?:[\d.]+|\(-[\d.]+\)))*)", text):
        product = math.prod(float(factor.strip("()")) for factor in term.split(" * "))
        total += -product if sign.startswith("-") else product
    return total


def test_the_story_above_the_fold_leads_to_evidence_and_a_fork(
    watch_run: Callable[..., Any], run: FakeRun, live_app: LiveApp, root: Path
) -> None:
    run.checkpoint(3)
    run.checkpoint(5)
    page = watch_run(run)
    wait_for_points(page, 8)
    page.wait_for_selector(".rs-phrases li")
    page.wait_for_selector(".rs-tinted")
    for part in (".rs-head", ".rs-verdict", ".rs-tiles", "[data-chart=score]", "[data-chart=kl]", ".rs-learned", ".rs-answer:not(.rs-was)"):
        box = page.locator(part).first.bounding_box()
        assert box["y"] >= 0 and box["y"] + min(box["height"], 160) <= 900, part
    assert page.locator(".rs-verdict-sentence").inner_text().startswith("Improving.")
    curves = page.locator("[data-chart=kl] .rs-plot-frame")
    expect(curves).to_have_attribute("role", "slider")  # it is drawn, and can be read by keys
    curves.focus()
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    expect(curves).to_have_attribute("aria-valuenow", "5")
    stored = RunReader(run.folder).columns(["objective/kl", "objective/kl_coef"])[1].values()
    read = [pytest.approx(values[4], abs=0.006) for values in stored]  # another estimator of the KL is drawn when asked for
    wait_until(lambda: [float(text) for text in curves.locator("b").all_inner_texts()] == read)
    colours = """(which) => [...document.querySelectorAll(`.rs-answers .rs-answer${which} .rs-tinted`)]
      .filter((node) => node.style.getPropertyValue('--v') !== '0.0%').map((node) => node.dataset.sign)"""
    for quantity in ("KL", "Value"):  # the start has a KL and values of 0: neither says anything of its text
        shown = page.get_by_role("button", name=quantity, exact=True).first
        assert shown.get_attribute("aria-pressed") == str(quantity == "KL").lower()
        shown.click()
        assert page.evaluate(colours, ".rs-was") == [] and "minus" in page.evaluate(colours, ":not(.rs-was)")
    assert page.inner_text(".rs-answers .rs-scale").endswith("value per token; before: 0.00 everywhere")
    prompt = page.inner_text(".rs-pair-prompt")
    page.get_by_role("button", name="Next prompt").click()
    page.wait_for_function("(old) => document.querySelector('.rs-pair-prompt').textContent !== old", arg=prompt)
    count = int(page.inner_text(".rs-answers .rs-turns").split(" of ")[1].split()[0])
    for shown in (1, count):  # before the first one comes the last
        page.get_by_role("button", name="Previous prompt").click()
        page.locator(".rs-answers .rs-turns", has_text=f"{shown} of {count}").wait_for()

    # punctuation, and what was common before and after, are no news; a phrase opens the token where it begins
    assert [text.strip("“”") for text in page.locator(".rs-phrase-text").all_inner_texts()][:2] == ["tender", "dull"]
    assert page.locator(".rs-phrases li").count() == 3 and "6 → 0 of 16" in page.inner_text(".rs-phrases")
    assert "Response length" not in page.inner_text(".rs-learned")  # it did not change by more than chance explains
    assert page.evaluate("window.__pwned") is None and "onerror" in page.inner_text(".rs-learned")
    page.locator(".rs-phrases").get_by_role("button", name="tender").click()
    page.wait_for_function("location.search.includes('token=')")
    place = chosen(page)
    tokens = RunReader(run.folder).rollout(place["step"], place["sample"]).tokens
    assert tokens is not None and tokens.response_pieces[place["token"]] == " tender"

    # why?
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

    # a fork: no answer, a problem, and then there is one
    fork = finding.get_by_role("button", name="Fork from step 3 with KL coefficient 0.2")
    live_app.silent = True
    fork.click()
    page.locator(".rs-banner").get_by_text("The app does not answer").wait_for()
    live_app.silent, live_app.answer = False, {"problem": "engine.device There is no GPU"}
    fork.click()
    page.locator(".rs-banner").get_by_text("There is no GPU").wait_for()
    assert run.run_id in page.url
    made = Workspace(root).submit(config(), "the fork")
    live_app.answer = {"runs": [made], "names": ["the fork"]}
    fork.click()
    page.locator(".rs-live[data-state=queued]").wait_for()
    assert made in page.url and "There is no GPU" not in page.inner_text(".rs-banner")
    asked = {"run": run.run_id, "how": "fork", "step": 3, "changes": {"ppo.kl_coef": 0.2}, "repair": False, "view": False}
    first, again, after_an_answer = [one.pop("nonce") for one in live_app.experiments]
    assert first == again != after_an_answer  # asked again because no answer came, it is the same wish
    assert live_app.experiments == [asked, asked, asked]
    Workspace(root).cancel(made)
    page.goto(f"{live_app.url}?run={run.run_id}&view=1")  # who only watches
    page.wait_for_selector(".rs-card-columns")
    page.get_by_role("button", name="why?").click()
    finding.wait_for()
    assert page.get_by_role("button", name="Fork from").count() == 0
    assert page.locator(".rs-controls").is_hidden() and page.locator(".rs-viewer").inner_text()


@pytest.mark.long
def test_what_was_found_in_one_run_is_not_offered_for_another(
    watch_run: Callable[..., Any], run: FakeRun, live_app: LiveApp, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the other run's findings come there is nothing to press; a problem is told and asked about again."""
    other = FakeRun(root, steps=30, name="the other one")
    other.run()
    other.step(8)
    allowed: list[str] = []
    live_app.answer = {"problem": "The stand-in starts nothing."}
    whole = live_app.feed.insights.detail

    def detail(name: str, kind: str, place: Any) -> Any:
        if name != other.run_id or kind in allowed:
            return whole(name, kind, place)
        answer: Future[bytes] = Future()
        answer.set_result(b'{"problem":"This takes longer than usual. It is tried again."}')
        return answer

    monkeypatch.setattr(live_app.feed.insights, "detail", detail)
    page = watch_run(run)
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
    wait_until(lambda: live_app.experiments, 10)
    (asked,) = live_app.experiments
    assert (asked["run"], asked["how"], asked["step"], asked["changes"]) == (other.run_id, "variation", None, {"ppo.kl_coef": 0.2})
    open_in_page(page, run)  # and back to one that was opened before
    page.wait_for_function("document.querySelector('.rs-name').textContent === 'world, seed 0'")
    other.close()


def test_a_person_reads_token_by_token(watch_run: Callable[..., Any], run: FakeRun) -> None:
    page = watch_run(run, "&step=8&sample=2&token=0")
    page.locator(".rs-token").first.focus()
    assert [text.strip() for text in page.locator(".rs-equation .rs-lhs").all_text_contents()] == ["Aₜ", "δₜ", "rₜ", "Rₜ"]
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.post_data or ""))
    count = page.locator(".rs-token").count()
    for place in range(1, count + 1):  # the sums of the whole response came with it: the card is there at once
        assert page.evaluate("document.querySelector('.rs-card-title').textContent") == f"Token {place} of {count}"
        equations = page.locator(".rs-equation .rs-filled").all_inner_texts()
        assert len(equations) == 4
        for text in equations:  # they add up as printed
            left, total = text.replace("−", "-").replace("×", "*").split(" = ")
            assert re.fullmatch(r"[-+*(). \d]+", left), text
            assert round(sum_of(left), len(total.split(".")[1])) == pytest.approx(float(total), abs=1e-9), text
        page.keyboard.press("ArrowRight")
    assert not [body for body in asked if '"tokens"' in body or '"samples"' in body]
    assert "−β klₜ + score" in page.locator(".rs-formulas").inner_text()
    assert re.search(r"The judge pays its score, [−\d.]+, here: at the last token.", page.locator(".rs-formulas").inner_text())
    assert "Last token: nothing follows, so Aₜ₊₁ and Vₜ₊₁ are 0." in page.locator(".rs-formulas").inner_text()
    page.keyboard.press("8")  # the clip flag: bars of the ratio around 1, and the edges that the app names
    assert page.locator(".rs-strip-key").first.inner_text().startswith("ratio per token, dashed: the edge of the clip range")
    axis = [float(text) for text in page.locator(".rs-strip-axis").first.locator("span").all_text_contents()]
    assert axis[0] > axis[1] == 1 > axis[2] and axis[0] - 1 == pytest.approx(1 - axis[2])

    # keys: token, quantity, sample, step
    title, focused = page.locator(".rs-card-title"), "document.activeElement.getAttribute('aria-label')"
    page.locator(".rs-token").nth(2).click()
    for key, expected in (("ArrowRight", "Token 4 of"), ("ArrowLeft", "Token 3 of"), ("Home", "Token 1 of")):
        page.keyboard.press(key)
        assert title.inner_text().startswith(expected)
    assert page.evaluate(focused).startswith("Token 1 “")
    page.keyboard.press("7")
    assert page.locator('.rs-segment[aria-pressed="true"][data-value="entropy"]').count() == 1
    assert "entropy" in page.evaluate(focused)
    sample = page.locator('.rs-row[aria-selected="true"]').get_attribute("data-sample")
    page.keyboard.press("ArrowDown")
    page.wait_for_function("(old) => document.querySelector('.rs-row[aria-selected=true]').dataset.sample !== old", arg=sample)
    page.keyboard.press("[")
    wait_for_title(page, "Samples of step 7")
    page.keyboard.press("]")
    wait_for_title(page, "Samples of step 8")
    page.evaluate("document.activeElement.blur()")
    before = page.evaluate("scrollY")
    page.keyboard.press("ArrowDown")  # not inside the samples or the inspector: the page scrolls
    page.wait_for_function("(before) => scrollY > before", arg=before)

    # one scale for a whole step, or for the run
    page.locator(".rs-token").first.click()
    page.keyboard.press("3")
    ticks = "document.querySelector('.rs-inspector .rs-scale-ticks').textContent"

    def largest(steps: range) -> str:
        values = [RunReader(run.folder).rollout(step, sample).tokens.arrays["advantages"] for step in steps for sample in range(12)]
        return f"{max(abs(one).max() for one in values):.2f}"

    # once a person has gone to a step, its colours can be compared with those of others
    page.wait_for_function(f"(limit) => {ticks}.endsWith(limit)", arg=largest(range(1, 9)))
    expect(page.get_by_label("One scale for the run")).to_be_checked()
    assert "all steps with samples up to step 8" in page.get_by_text("One scale for the run").get_attribute("data-tip")
    page.get_by_label("One scale for the run").uncheck()
    page.wait_for_function(f"(limit) => {ticks}.endsWith(limit)", arg=largest(range(8, 9)))

    # what was chosen survives updates and a reload
    page.locator(".rs-row").nth(3).click()
    page.wait_for_function("location.search.includes('sample=') && !location.search.includes('token=')")
    page.locator(".rs-token").nth(4).click()
    page.wait_for_function("location.search.includes('token=4')")
    place, text = chosen(page), page.locator(".rs-tokens").inner_text()
    run.step(2)
    wait_for_step(page, 10)
    page.get_by_role("button", name="newest: step 10").wait_for()
    assert chosen(page) == place and page.locator(".rs-tokens").inner_text() == text
    page.reload()
    page.wait_for_selector(".rs-card-columns")
    page.wait_for_function("(text) => document.querySelector('.rs-tokens').innerText === text", arg=text)
    assert chosen(page) == place and place["step"] == 8
    assert title.inner_text().startswith("Token 5 of")
    page.get_by_role("button", name="newest: step 10", exact=True).click()
    wait_for_title(page, "Samples of step 10")
    assert chosen(page) == {}


@pytest.mark.long
def test_news_change_nothing_that_a_person_is_at(watch_run: Callable[..., Any], run: FakeRun, live_app: LiveApp) -> None:
    page = watch_run(run)
    page.wait_for_selector(".rs-phrases li")
    page.wait_for_selector(".rs-tinted")

    # the focus, and what did not change
    page.get_by_role("button", name="why?").click()
    evidence = page.locator(".rs-finding").get_by_role("button", name="the phrase ends this response")
    evidence.wait_for()
    page.evaluate("document.querySelector('.rs-finding').same = true")
    span = "document.querySelector('.rs-learned .rs-panel-head .rs-muted').textContent"
    evidence.focus()
    run.step()
    page.wait_for_function(f"{span} === 'steps 1 to 2 compared with steps 8 to 9'")
    page.wait_for_function("document.querySelector('.rs-finding').same === undefined")  # the diagnosis is of another step
    assert page.evaluate("document.activeElement.textContent").startswith("the phrase ends this response")
    page.locator(".rs-phrases").get_by_role("button", name="tender").focus()
    run.step()
    page.wait_for_function(f"{span} === 'steps 1 to 2 compared with steps 9 to 10'")
    assert page.evaluate("document.activeElement.textContent") == "“tender”"
    page.get_by_role("button", name="why?").click()

    # samples, while the pointer is on them
    wait_for_title(page, "Samples of step 10")
    page.locator(".rs-row").first.hover()
    run.step()
    wait_for_step(page, 11)
    page.get_by_role("button", name="newest: step 11").wait_for()
    assert page.evaluate(TITLE) == "Samples of step 10"
    page.mouse.move(5, 5)
    wait_for_title(page, "Samples of step 11")
    page.locator(".rs-row").first.hover()
    run.step()
    page.get_by_role("button", name="newest: step 12").click()
    wait_for_title(page, "Samples of step 12")

    # a zoomed chart; the others follow
    page.mouse.move(5, 5)
    page.evaluate("scrollTo(0, 0)")
    page.evaluate("document.querySelector('[data-chart=kl] .rs-plot').same = true")
    box = page.locator("[data-chart=kl] .nsewdrag").first.bounding_box()
    page.mouse.move(box["x"] + 40, box["y"] + 30)
    page.wait_for_selector("[data-chart=kl] .rs-cross:not([hidden])")
    near = int(page.locator("[data-chart=kl] .rs-flag").inner_text().split()[1])
    assert abs(near - 1 - 11 * 40 / box["width"]) < 1.5, "the flag names the step under the pointer"
    page.mouse.down()
    page.mouse.move(box["x"] + 110, box["y"] + 32, steps=5)
    page.mouse.up()
    page.wait_for_selector("[data-chart=kl] .rs-link:not([hidden])")
    zoomed = page.evaluate(ZOOM)
    assert float(zoomed.split(",")[0]) > 1.5
    for number in range(3):
        run.step()
        wait_for_points(page, 13 + number)
    assert page.evaluate(ZOOM) == zoomed
    assert page.evaluate("document.querySelector('[data-chart=kl] .rs-plot').same")
    page.mouse.move(box["x"] + 2, box["y"] + 30)
    within = float(zoomed.split(",")[0])
    page.wait_for_function("document.querySelector('[data-chart=kl] .rs-flag').textContent.startsWith('step')")
    assert abs(int(page.locator("[data-chart=kl] .rs-flag").inner_text().split()[1]) - within) <= 1
    page.wait_for_function("document.querySelector('[data-chart=score] .rs-plot').data[0].x.length === 15")
    page.mouse.move(5, 5)
    page.click("[data-chart=kl] .rs-link")
    page.wait_for_function(f"{ZOOM} !== '{zoomed}'")

    # a chart that is put away comes back by its tile
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

    # out of sight: hardly a question, but the title goes on, and a notification tells the end
    page.evaluate(
        """() => {
          window.told = [];
          window.Notification = class extends EventTarget {
            static permission = 'granted';
            constructor(title, { body }) { super(); window.told.push(`${title}. ${body}`); }
          };
          localStorage.setItem('rlhf-studio.notify', 'true');
        }"""
    )
    page.evaluate(HIDE)
    run.step()
    page.wait_for_function("document.title.includes('16/30')")
    assert page.inner_text(".rs-step").startswith("step 15 of")  # nobody sees the page: it waits
    run.finish()
    page.wait_for_function("document.title.startsWith('✓ finished')")
    assert page.evaluate("window.told") == ["world, seed 0: finished. Step 16 of 30"]
    before = live_app.polls
    page.evaluate(SHOW)
    wait_for_step(page, 16)
    assert live_app.polls > before and len(page.evaluate("window.told")) == 1


def test_rounding_is_neither_coloured_nor_judged_and_judging_takes_three_steps(watch_run: Callable[..., Any], root: Path) -> None:
    run = FakeRun(root, name="first step")
    run.load()
    run.run()
    noise = {"objective/kl": -3.3e-7, "objective/kl_k3": 2e-14, "val/explained_variance": -9.5e-7, "episode": 64.0}
    part = "<b>bold</b><a href='javascript:window.__pwned=1'>x</a>%{y}"

    def commit(step: int, **metrics: float) -> None:
        rollout = run._rollout(step, 0)
        flat = {"kl": np.resize([4.8e-7, -4.8e-7], rollout.length).astype(np.float32)}
        rollout = replace(rollout, tokens=replace(rollout.tokens, arrays={**rollout.tokens.arrays, **flat}))
        reward = {"objective/scores": 0.5, f"reward/{part}": 0.5, "reward/length": 0.2}
        run.writer.commit_step(StepRecord(step, {**noise, **reward, **metrics}, [rollout]))

    tile = "[data-term='{}'].rs-tile".format
    commit(1)
    page = watch_run(run)
    wait_for_step(page, 1)
    for metric in ("objective/kl", "val/explained_variance"):
        page.wait_for_selector(tile(metric))
        assert page.inner_text(f"{tile(metric)} .rs-tile-value") == "0.00"
        assert "usual" not in page.inner_text(tile(metric))
    page.click(".rs-inspector button[data-value=kl]")
    strengths = "[...document.querySelectorAll('.rs-token')].map((node) => node.style.getPropertyValue('--v'))"
    page.wait_for_function(f"{strengths}.every((strength) => strength === '0.0%')")
    assert "no token has a colour" in page.inner_text(".rs-inspector .rs-scale")
    low, high = (f"document.querySelector('[data-chart=kl] .rs-plot')?.layout?.yaxis.range?.[{end}]" for end in (0, 1))
    page.wait_for_function(f"{high} - {low} >= 0.1")
    far = {"objective/kl": 40.0, "val/explained_variance": -2.0}
    commit(2, **far)
    wait_for_step(page, 2)
    assert "usual" not in page.inner_text(tile("objective/kl"))  # two steps are no trend
    commit(3, **far)
    wait_for_step(page, 3)
    page.wait_for_function("(tile) => document.querySelector(tile).textContent.includes('usual: 0 to 15')", arg=tile("objective/kl"))
    assert "usual: 0 to 1" in page.inner_text(tile("val/explained_variance"))
    cut = "[...document.querySelectorAll('.rs-tile-row')].filter((row) => row.scrollWidth > row.clientWidth).length"
    for width in (1440, 1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(cut) == 0, width
    names = page.locator("[data-chart=score] .rs-key span").all_text_contents()
    assert part in names and "length" in names  # as they are: Plotly reads no markup in them
    assert page.evaluate("document.querySelectorAll('.rs-plot a').length") == 0
    run.close()


def test_a_run_is_steered_breaks_and_begins_again(
    watch_run: Callable[..., Any], root: Path, live_app: LiveApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = FakeRun(root)
    run.load(0.25, "Loading the policy (1 of 4)")
    page = watch_run(run, ready=".rs-waiting")
    assert "Loading the policy (1 of 4) 25" in page.locator(".rs-phase").inner_text()
    run.run()
    page.wait_for_function("document.querySelector('.rs-waiting strong').textContent === 'The first step is under way'")
    run.step(21)
    page.wait_for_selector(".rs-tile")

    # settings and phases
    page.get_by_role("button", name="Change settings").click()
    dialog = page.locator("dialog")
    dialog.get_by_role("button", name="Change", exact=True).click()
    assert "Nothing differs yet" in dialog.inner_text()
    dialog.get_by_label("Temperature").fill("0.8")
    dialog.get_by_role("button", name="Change", exact=True).click()
    (command,) = wait_until(run.writer.pending_commands)
    assert (command.kind, command.payload) == ("set", {"changes": {"generation.temperature": 0.8}})
    page.evaluate(LATER)  # nobody takes the command: after a while the buttons come back
    page.wait_for_function("document.querySelector('[aria-haspopup=menu]').getAttribute('aria-disabled') === 'false'")
    page.get_by_role("button", name="Pause", exact=True).focus()
    page.keyboard.press("Enter")
    for _ in range(2):
        page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.dataset.event") == "phase_run"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.textContent") == "Pause▾"
    page.keyboard.press("Enter")
    page.get_by_role("menuitem", name="Next phase").click()
    wait_until(lambda: [one.kind for one in run.writer.pending_commands()] == ["set", "phase"])

    # a step that waits between its phases shows what is known
    rollout = run._rollout(22, 0)
    known = {name: rollout.tokens.arrays[name] for name in ("logprobs", "entropy")}
    waits = SimpleNamespace(step=22, phase="rollout", rollouts=[replace(rollout, tokens=replace(rollout.tokens, arrays=known))])
    with monkeypatch.context() as patch:
        patch.setattr(RunReader, "scratch", lambda self: waits, raising=False)
        run.writer.set_state("paused", "Waits before the scores")
        page.get_by_role("button", name="Continue", exact=True).wait_for()
        wait_for_title(page, "Step 22, not complete")
        assert "its responses are written; their scores come next" in page.inner_text(".rs-samples")
        assert "Advantages are not computed yet" in page.inner_text(".rs-card")
        page.keyboard.press("3")
        page.wait_for_function("document.querySelector('.rs-inspector .rs-scale').textContent.includes('Not known yet')")
    run.writer.set_state("running", "Sampling")
    stop = page.get_by_role("button", name="Stop", exact=True)
    stop.and_(page.locator("[aria-disabled=false]")).wait_for()
    stop.click()
    page.get_by_role("menuitem", name="Stop and save").click()
    wait_until(lambda: run.writer.pending_commands()[-1].kind == "stop")
    stopping = page.get_by_role("button", name="Stopping…", exact=True)
    page.wait_for_function("!document.querySelector('.rs-times').textContent.includes('left')")
    assert stopping.get_attribute("aria-disabled") == "true"  # as long as the run says that it was asked to

    # it fails: the cause, the log, what resuming goes on from, and the setting to mend
    live_app.verdict = "collapsed"
    run.fail("The learning rate ppo.learning_rate is too high.")
    page.wait_for_selector(".rs-banner[data-tone=failed]")
    told = page.locator(".rs-banner").inner_text()
    assert "The learning rate ppo.learning_rate is too high." in told
    assert "goes on from the checkpoint of step 20 (1.3 MB) and trains step 21 again." in told
    page.wait_for_function("document.querySelector('.rs-log').textContent.includes('NonFinite')")
    page.get_by_role("button", name="Resume", exact=True).wait_for()
    page.get_by_role("button", name="Fix settings").click()
    page.get_by_role("tab", name="Train", selected=True).wait_for()
    handed = json.loads(page.evaluate("sessionStorage.getItem('rlhf-studio.train.wanted')"))
    assert handed["field"] == "ppo.learning_rate" and handed["cause"] == "The learning rate ppo.learning_rate is too high."

    # another one is killed: the page says so within five seconds; resuming without a checkpoint asks first
    killed = FakeRun(root)
    killed.run()
    killed.step(8)
    killed.writer.go_back(5)
    open_in_page(page, killed)
    page.wait_for_selector(".rs-live[data-state=running] .rs-tile")
    at = time.monotonic()
    killed.lock.release()
    page.wait_for_selector(".rs-live[data-state=interrupted] .rs-banner")
    assert time.monotonic() - at < 5
    told = page.locator(".rs-banner").inner_text()
    assert "There is no checkpoint: Resume begins again at step 1, and asks first." in told
    assert "last checkpoint" not in told and "is kept" not in told  # one sentence on it, and a true one
    page.locator(".rs-learned").get_by_text("Too few steps to tell which phrases changed.").wait_for()  # and no word of chance
    hidden = "Steps 6 to 8 were made before the resume. They are hidden until the run makes them again."
    assert page.locator(".rs-kept").inner_text() == hidden
    resume = page.get_by_role("button", name="Resume", exact=True)
    resume.click()
    dialog.wait_for()
    assert "Begin this run again at step 1?" in dialog.inner_text() and "You would lose its 8 recorded steps" in dialog.inner_text()
    dialog.get_by_role("button", name="Go back").click()
    page.wait_for_function("document.querySelector('[data-event=resume_run]').getAttribute('aria-disabled') === 'false'")
    assert Workspace(root).status(killed.run_id).state == "interrupted"
    resume.click()
    dialog.get_by_role("button", name="Begin again").click()
    page.wait_for_selector(".rs-live[data-state=queued]")
    assert Workspace(root).status(killed.run_id).queue_position is not None
    Workspace(root).cancel(killed.run_id)
    killed.writer.close()


def clearest(run: FakeRun) -> tuple[int, int, int]:
    """(step, sample, token) that was rewarded, and whose probability rose most by its advantage."""
    names = ("logprobs", "new_logprobs", "advantages", "whitened_advantages")
    strengths = {}
    for step in range(1, 9):
        for sample in range(12):
            arrays = {name: values.tolist() for name, values in RunReader(run.folder).rollout(step, sample).tokens.arrays.items()}
            for token, (was, now, advantage, used) in enumerate(zip(*(arrays[name] for name in names), strict=True)):
                change = math.exp(now) - math.exp(was)
                if change >= 0.05 and advantage > 0 and used > 0:
                    strengths[step, sample, token] = change * advantage
    return max(strengths, key=strengths.__getitem__)


@pytest.mark.long
def test_the_guided_look_and_the_ending(watch_run: Callable[..., Any], run: FakeRun, root: Path, live_app: LiveApp) -> None:
    """It goes to the token whose probability moved most clearly, and the browser's Back to what was shown before. At first the inspector
    shows the most rewarded token of a response."""
    page = watch_run(run)
    shown = int(page.locator('.rs-row[aria-selected="true"]').get_attribute("data-sample"))
    advantages = RunReader(run.folder).rollout(8, shown).tokens.arrays["advantages"]
    assert advantages.max() > 0 and page.inner_text(".rs-card-title").startswith(f"Token {int(advantages.argmax()) + 1} of")
    assert page.inner_text(".rs-auto").startswith("largest advantage")
    # it is offered once, in the first run; who says no is not asked again
    offer = page.get_by_text("Look at one token of this run")
    offer.get_by_role("button", name="Not now").click()
    offer.wait_for(state="hidden")
    page.reload()
    page.wait_for_selector(".rs-inspector .rs-token")
    assert offer.is_hidden()
    # it waits for the token that it speaks of, also when the page asks for its step twice and the first answer comes too late
    held: list[Any] = []
    asks = re.compile(r'"kind":\s*"samples"')
    page.route("**/component_server/", lambda route: held.append(route) if asks.search(route.request.post_data) else route.continue_())
    page.get_by_role("button", name="Show me around").click()
    for questions in (1, 2):
        while len(held) < questions:
            page.wait_for_timeout(20)
        page.locator(".rs-inspector").dispatch_event("pointerleave")
    for route in held:
        route.continue_()
    guide = page.locator(".rs-guide")
    guide.get_by_text(f"the update of step {clearest(run)[0]} moved this one most clearly").wait_for()
    page.unroute("**/component_server/")
    for number, word in enumerate(("orange turned out better", "the value head expected", "That is the way its advantage asked for."), 1):
        page.wait_for_function("(text) => document.activeElement.textContent.includes(text)", arg=f"{number} of 3")
        assert word in page.inner_text(".rs-guide")
        page.locator(".rs-guide .rs-primary").click()
    assert page.locator(".rs-guide").is_hidden() and page.locator(".rs-guided").count() == 0
    assert page.evaluate("document.activeElement.textContent") == "Show me around"
    assert page.evaluate("localStorage.getItem('rlhf-studio.guided')") == "true"
    step, sample, token = clearest(run)
    assert page.url.endswith(f"step={step}&sample={sample}&token={token}")
    page.go_back()
    wait_for_title(page, "Samples of step 8")
    assert page.url.endswith(run.run_id) and page.locator(".rs-main").is_visible()
    page.go_forward()
    page.wait_for_function("(text) => document.querySelector('.rs-card-title').textContent.startsWith(text)", arg=f"Token {token + 1} of")
    assert f"Step {step}, response {sample + 1}" in page.inner_text(".rs-facts")

    # the end: the same numbers everywhere, and what is next
    live_app.verdict = "improved"
    run.step(22)
    run.finish()
    banner = page.locator(".rs-banner")
    page.get_by_text("Step 1 → mean of the last 3 steps").wait_for()
    scores = RunReader(run.folder).columns(["objective/scores"])[1]["objective/scores"]
    last = f"{sum(scores[-3:]) / 3:.2f}"
    assert last != f"{scores[-1]:.2f}"
    tile = page.locator(".rs-tile[data-term='objective/scores']")
    assert tile.locator(".rs-tile-from").inner_text() == f"{scores[0]:.2f} →".replace("-", "−")
    for place in (".rs-tile[data-term='objective/scores'] .rs-tile-value", ".rs-key[data-term='objective/scores'] b"):
        assert page.locator(place).first.inner_text() == last, place
    large = banner.locator(".rs-ending-large")
    large.get_by_text("about 58 s").wait_for()
    assert "Again without the KL penalty" in large.inner_text()
    buttons = banner.locator(".rs-ending-row").get_by_role("button").all_inner_texts()
    assert buttons == ["Talk to it", "Send or save", "Compare", "Run a variation", "Another seed"]
    live_app.answer = {"problem": "The disk is full"}
    large.click()
    banner.get_by_text("The disk is full").wait_for()
    asked = live_app.experiments.pop()
    assert (asked["how"], asked["changes"]) == ("variation", {"ppo.kl_coef": 0.0})
    banner.get_by_role("button", name="Another seed").click()
    wait_until(lambda: live_app.experiments, 10)
    asked = live_app.experiments.pop()
    assert (asked["how"], asked["changes"]) == ("variation", {"engine.seed": 7})
    banner.get_by_text("More to try").click()
    for typed, told in (("ten", "must be a whole number above 0"), ("5", "The disk is full")):
        banner.get_by_role("button", name="Go on with more steps").click()
        page.get_by_label("Steps to add").fill(typed)
        page.get_by_role("button", name="Go on", exact=True).click()
        banner.locator("[role=alert]").get_by_text(told).wait_for()
    (asked,) = live_app.experiments
    assert asked.pop("nonce")
    assert asked == {"run": run.run_id, "how": "more steps", "changes": {"ppo.steps": 35}, "view": False}
    banner.get_by_role("button", name="Compare").click()
    page.get_by_role("tab", name="Runs", selected=True).wait_for()
    assert json.loads(page.evaluate("sessionStorage.getItem('rlhf-studio.compare')")) == [run.run_id]

    # a run that was read from a file offers nothing that trains
    imported = FakeRun(root, steps=3, read_from="trl.jsonl")
    imported.run()
    imported.step(3)
    imported.finish()
    open_in_page(page, imported)
    page.locator(".rs-live[data-state=finished] .rs-banner").wait_for()
    page.wait_for_function("document.querySelectorAll('.rs-banner button:not([hidden])').length === 2")
    assert banner.get_by_role("button").all_inner_texts() == ["Look at the best response of step 3", "Compare"]
    assert page.locator(".rs-next").count() == 0
    banner.get_by_role("button", name="Look at the best response").click()
    page.wait_for_url("**sample=*")
    page.get_by_role("button", name="why?").click()
    page.locator(".rs-finding dl").first.wait_for()
    assert page.locator(".rs-finding .rs-button").count() == 0


@pytest.mark.long
def test_a_lost_connection_is_told_and_heals_itself(open_page: Callable[..., Any], tmp_path: Path) -> None:
    """The page is loaded anew only when nothing else helps: where the app is another version."""
    run = FakeRun(tmp_path)
    run.run()
    run.step()
    app = LiveApp(tmp_path)
    page = open_page(f"?run={run.run_id}", at=app)
    page.wait_for_selector(".rs-card-columns")
    for step, first_id in ((2, 0), (3, 500)):
        app.close()
        page.wait_for_selector(".rs-lost:not([hidden])")
        page.wait_for_selector(".rs-live.rs-disconnected")
        run.step()
        page.evaluate("window.untouched = true")
        app = LiveApp(tmp_path, port=app.port, first_id=first_id)
        page.wait_for_selector(".rs-lost", state="hidden")
        wait_for_step(page, step)
        assert bool(page.evaluate("window.untouched")) is (first_id == 0)
    run.close()
    missing = open_page("?run=nobody-here", at=app)
    missing.get_by_role("heading", name="This run is not here").wait_for()
    app.close()


def test_nothing_of_a_critic_is_shown_where_there_is_none(watch_run: Callable[..., Any], root: Path) -> None:
    run = FakeRun(root, steps=3, advantage="rloo", responses_per_prompt=4)
    rollouts, metrics = run._rollout, run._metrics
    critics = {"values", "returns", "deltas", "whitened_advantages"}

    def without_critic(step: int, sample: int) -> Any:
        rollout = rollouts(step, sample)
        arrays = {name: values for name, values in rollout.tokens.arrays.items() if name not in critics}
        return replace(rollout, tokens=replace(rollout.tokens, arrays=arrays))

    run._rollout = without_critic
    run._metrics = lambda step: {name: value for name, value in metrics(step).items() if not name.startswith(("val/", "loss/value"))}
    run._watched = lambda step: []
    run.run()
    run.step(3)
    run.finish()
    page = watch_run(run)
    page.locator("[data-chart=loss]", has_text="Policy loss").wait_for()
    assert page.locator("[data-chart=critic]").is_hidden()
    card = page.locator(".rs-formulas").inner_text()
    assert "There is no critic: every token of this response has the same advantage" in card
    assert "the reward of the whole response, less the mean reward of the other responses to its prompt" in card
    titles = page.locator(".rs-numbers dt").all_text_contents()
    assert "Advantage" in titles and not {"Value", "Return", "Advantage, whitened"} & set(titles)
    offered = page.get_by_role("group", name="Colour tokens by").get_by_role("button").all_text_contents()
    assert any("Advantage" in label for label in offered) and not any("Value" in label or "Return" in label for label in offered)
