"""The replay of a run: opened from its page and by a link, gone through by keys, led by moments; and the recording on the first screen."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from rlhf_studio.analysis.replay import replay_of
from rlhf_studio.config.bundled import REPLAYED
from tests.browser.axe import COLOURS_ALONE, violations, wear
from tests.browser.conftest import wait_for_form
from tests.browser.filled import Studio

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect
pytestmark = pytest.mark.browser


def test_a_replay_stops_at_moments_says_the_record_and_has_an_address(open_page: Callable[..., Any], studio: Studio) -> None:
    record = replay_of(studio.workspace.reader(REPLAYED))
    moment = next(moment for moment in record["moments"] if moment["kind"] == "gold_turns")
    place = record["steps"].index(moment["step"])
    page = open_page(f"?tab=live&run={REPLAYED}")
    page.get_by_role("button", name="Replay").click()
    player = page.locator(".rs-live .rs-replay")
    bar, step = player.get_by_role("slider"), player.locator(".rs-replay-step")
    expect(player.get_by_role("button", name="Play")).to_be_focused()  # whoever asks for less motion starts it
    expect(step).to_have_text("step 1 of 36")
    page.wait_for_url(f"**replay={REPLAYED}**")

    # what is said is what was recorded
    said = player.get_by_role("button", name=re.compile(rf"^Step {moment['step']}\b"))
    assert moment["sentence"] not in said.inner_text(), "nothing is given away"
    said.click()
    expect(said).to_contain_text(moment["sentence"])
    score, gold, kl = (record["series"][name][place] for name in ("score", "gold", "kl"))
    numbers = f"score {score:.2f}, gold {gold:.2f}, KL {kl:.2f}".replace("-", "\u2212")
    expect(bar).to_have_attribute("aria-valuetext", f"Step {moment['step']}: {numbers}")
    tokens, ends = player.locator(".rs-replay-tokens"), player.locator(".rs-replay-end:visible")
    frames = record["answers"][0]["frames"]
    for frame in (*frames[1:], frames[3]):
        bar.fill(str(record["steps"].index(frame["step"])))
        assert tokens.inner_text() == record["answers"][0]["prompt"] + "".join(frame["tokens"][:-1]) + "end"
        assert ends.count() == 1
    strengths = "(node) => [...node.querySelectorAll('span[data-sign]:not([hidden])')].map((one) => [one.dataset.sign, one.style.cssText])"
    shown = tokens.evaluate(strengths)
    values, limit = frame["values"], record["tokens"]["limit"]
    assert [sign for sign, _ in shown] == ["minus" if value < 0 else "plus" for value in values]
    assert [float(text[5:-2]) for _, text in shown] == pytest.approx([100 * (abs(value) / limit) ** 0.5 for value in values], abs=0.06)

    # the moment that people look for has its name beside its mark, and a key leads there
    bar.fill("0")
    named = player.locator(".rs-replay-bar").get_by_role("button", name="The judge is fooled from here")
    for leads in (named, said):  # and so does a click on it, where it then stays
        bar.fill("0")
        player.get_by_role("button", name="Play").click()
        leads.click()
        expect(step).to_have_text(f"step {moment['step']} of 36")
        expect(player.get_by_role("button", name="Play")).to_be_visible()
    bar.fill("0")
    page.evaluate("document.activeElement.blur()")
    marked = [one["step"] for one in record["moments"] if one["kind"] not in ("start", "end")]
    for where in marked[:2]:
        page.keyboard.press("n")
        expect(step).to_have_text(f"step {where} of 36")
    bar.fill(str(len(record["steps"]) - 1))
    player.get_by_role("button", name="Next moment").click()  # behind the last one comes the first
    expect(step).to_have_text(f"step {marked[0]} of 36")

    # keys; the link that explains the update of this step; and a link to this place
    said.click()
    bar.focus()
    page.keyboard.press("ArrowRight")
    expect(step).to_have_text(f"step {moment['step'] + 1} of 36")
    page.keyboard.press("Space")
    expect(player.get_by_role("button", name="Pause")).to_be_visible()
    expect(step).to_have_text(f"step {moment['step'] + 2} of 36")
    page.keyboard.press("Space")
    page.keyboard.press("ArrowLeft")
    page.wait_for_url("**at=*")
    shown = step.inner_text()
    page.reload()
    expect(step).to_have_text(shown)
    bar.fill(str(len(record["steps"]) - 1))
    expect(player.locator(".rs-now")).to_contain_text(record["moments"][-1]["sentence"])
    told = page.locator(".rs-live .rs-verdict-sentence")
    assert told.inner_text().startswith(record["moments"][-1]["sentence"]), "the replay ends in the words of the page"
    bar.fill("4")
    expect(player.locator(".rs-replay-answer-head")).to_contain_text("Answer at step 5; the next one is of step 10")
    way = player.get_by_role("link", name="Step through this update")
    expect(way).to_have_attribute("href", f"?tab=learn&lesson=one_sample&run={REPLAYED}&scene=written&set=step%3A5")

    player.get_by_role("button", name="Close").click()
    expect(player).to_have_count(0)
    page.go_back()
    expect(player).to_be_visible()


def test_the_first_screen_has_a_recording_that_can_be_put_away(open_page: Callable[..., Any]) -> None:
    page = open_page("?tab=train")
    player = page.locator(".rs-train .rs-replay")
    expect(player.get_by_role("button", name="Play", exact=True)).to_be_visible()
    wait_for_form(page)
    expect(player).to_have_count(0)
    page.get_by_role("button", name="Show the recorded run").click()
    expect(player).to_be_visible()
    player.get_by_role("button", name="Hide").click()
    expect(page.get_by_role("button", name="Show the recorded run")).to_be_focused()


@pytest.mark.long
def test_a_replay_is_for_everybody_in_light_and_dark_and_on_a_phone(open_page: Callable[..., Any]) -> None:
    page = open_page(f"?replay={REPLAYED}&at=20")
    player = page.locator(".rs-live .rs-replay")
    expect(player.locator(".rs-replay-step")).to_have_text("step 20 of 36")
    head, play = page.locator(".rs-live .rs-head").bounding_box(), player.get_by_role("button", name="Play").bounding_box()
    assert head["y"] + head["height"] <= play["y"] < 200, "it stands below the head of its run, on the first screen"
    wear(page, "light")
    wrong = violations(page, ".rs-live .rs-replay")
    wear(page, "dark")
    wrong += violations(page, ".rs-live .rs-replay", COLOURS_ALONE)
    assert not wrong, "\n".join(wrong)
    page.set_viewport_size({"width": 390, "height": 844})
    expect(player).to_have_class("rs-replay rs-narrow")
    page.wait_for_function("document.documentElement.scrollWidth <= innerWidth")  # charts become narrow a little later
