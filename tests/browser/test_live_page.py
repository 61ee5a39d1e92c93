"""The Live page in a real browser, fed by a synthetic run: what only a browser can show.

One Chromium and one app for all tests; each test has its own tabs.
"""

from __future__ import annotations

import re
import time
from dataclasses import replace

import numpy as np
import pytest

from rlhf_studio.runs.records import StepRecord
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.runs.writer import Heartbeat
from tests.browser.conftest import Tabs
from tests.ui.fake_run import HOSTILE, FakeRun, config
from tests.ui.live_app import LiveApp

pytestmark = pytest.mark.browser
# Timers run ten times faster, so that a poll comes every 0.1 s; not in the tests that promise something in seconds.
HURRY = "{ const usual = window.setTimeout; window.setTimeout = (action, wait, ...rest) => usual(action, (wait || 0) / 10, ...rest); }"
RANGE = "document.querySelector('[data-chart=kl] .rs-plot')._fullLayout.xaxis.range.map((value) => Number(value).toFixed(3)).join()"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    return tmp_path_factory.mktemp("workspace")


@pytest.fixture(scope="module")
def app(workspace):
    app = LiveApp(workspace)
    yield app
    app.close()


@pytest.fixture
def run(workspace):
    run = FakeRun(workspace)
    run.load()
    run.run()
    run.step(8)
    with Heartbeat(run.folder):
        yield run
    run.close()


@pytest.fixture(scope="module")
def hurried(browser):
    return Tabs(browser, HURRY)


@pytest.fixture
def open_page(tabs, hurried, app):
    def open_page(query: str = "", ready: str = ".rs-card-columns", url: str = "", hurry: bool = True, **size):
        page = (hurried if hurry else tabs).open((url or app.url) + query, **size)
        page.wait_for_selector(ready)
        return page

    yield open_page
    assert hurried.leave() + tabs.leave() == []


def wait_for_step(page, step):
    page.wait_for_function("(text) => document.querySelector('.rs-step')?.textContent.startsWith(text)", arg=f"step {step} of")


def wait_for_points(page, count):
    page.wait_for_function("(count) => document.querySelector('[data-chart=kl] .rs-plot')?.data?.[0].x.length === count", arg=count)


def chosen(page):
    query = page.evaluate("location.search")
    return {key: int(value) for key, value in re.findall(r"[?&](step|sample|token)=(\d+)", query)}


@pytest.mark.long
def test_zoom_and_nodes_survive_ten_updates(open_page, run):
    page = open_page(f"?run={run.run_id}")
    wait_for_points(page, 8)
    page.evaluate("document.querySelector('[data-chart=kl] .rs-plot').dataset.mark = 'same node'")
    box = page.locator("[data-chart=kl] .nsewdrag").first.bounding_box()
    page.mouse.move(box["x"] + 40, box["y"] + 30)
    page.mouse.down()
    page.mouse.move(box["x"] + 110, box["y"] + 32, steps=5)
    page.mouse.up()
    page.wait_for_selector("[data-chart=kl] .rs-link:not([hidden])")
    zoomed = page.evaluate(RANGE)
    assert float(zoomed.split(",")[0]) > 1.5
    for number in range(10):
        run.step()
        wait_for_points(page, 9 + number)
    assert page.evaluate(RANGE) == zoomed
    assert page.evaluate("document.querySelector('[data-chart=kl] .rs-plot').dataset.mark") == "same node"
    page.wait_for_function("document.querySelector('[data-chart=score] .rs-plot')._fullLayout.xaxis.range[1] >= 18")  # not zoomed: follows
    page.click("[data-chart=kl] .rs-link")
    page.wait_for_function(f"{RANGE} !== '{zoomed}'")


HIDE = """() => {
  window.state = 'hidden';
  Object.defineProperty(document, 'visibilityState', { get: () => window.state });
  document.dispatchEvent(new Event('visibilitychange'));
}"""
SHOW = "() => { window.state = 'visible'; document.dispatchEvent(new Event('visibilitychange')); }"


@pytest.mark.long
def test_a_hidden_page_hardly_polls_and_asks_at_once_when_seen(open_page, app, run):
    page = open_page(f"?run={run.run_id}")
    page.evaluate(HIDE)
    page.wait_for_timeout(300)  # a poll that was under way may still arrive
    before = app.polls
    run.step()
    page.wait_for_timeout(1000)  # ten polls of a page in sight
    assert app.polls - before <= 1
    page.evaluate(SHOW)
    wait_for_step(page, 9)


@pytest.mark.long
def test_the_title_of_a_hidden_page_goes_on_and_a_notification_tells_the_end(open_page, app, workspace):
    run = FakeRun(workspace)
    run.run()
    run.step(8)
    page = open_page(f"?run={run.run_id}")
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
    assert "8/60" in page.title()
    page.evaluate(HIDE)
    run.step()
    page.wait_for_function("document.title.includes('9/60')")
    assert page.inner_text(".rs-step").startswith("step 8 of")  # nobody sees the page: it waits
    run.finish()
    page.wait_for_function("document.title.startsWith('✓ finished')")
    assert page.evaluate("window.told") == ["world, seed 0: finished. Step 9 of 60"]
    before = app.polls
    page.wait_for_timeout(2500)  # more than the long rest of a hidden page
    assert app.polls == before
    page.evaluate(SHOW)
    wait_for_step(page, 9)
    assert len(page.evaluate("window.told")) == 1


@pytest.mark.long
def test_another_tab_of_the_app_hardly_polls_either(open_page, app, run):
    page = open_page(f"?run={run.run_id}")
    page.get_by_role("tab", name="Train").click()
    page.wait_for_selector(".rs-live", state="hidden")
    page.wait_for_timeout(300)
    before = app.polls
    page.wait_for_timeout(1000)
    assert app.polls - before <= 1
    run.step()
    page.get_by_role("tab", name="Live").click()
    wait_for_step(page, 9)


def test_hostile_texts_appear_as_text(open_page, workspace):
    run = FakeRun(workspace, hostile=True)
    run.run()
    run.writer.set_state("running", device="\u202eW" * 300)
    run.step(6)
    requests = []
    page = open_page(f"?run={run.run_id}&step=6&sample=0&token=0")
    page.on("request", lambda request: requests.append(request.url))
    shown = page.locator(".rs-token").all_inner_texts()
    for index, text in enumerate(HOSTILE):
        if len(text) < 80 and text.isprintable():
            assert shown[index].replace("·", " ") == text
    assert shown[HOSTILE.index("\ud800")] == "U+D800" and shown[HOSTILE.index("\x00")] == "␀"
    assert shown[HOSTILE.index("\u202eabc")].startswith("U+202E")
    assert "+9840 characters" in shown[HOSTILE.index("w" * 10_000)]
    for index in range(len(HOSTILE)):
        page.keyboard.press("Home") if index == 0 else page.locator(".rs-token").nth(index).click()
        page.wait_for_function(
            "(text) => document.querySelector('.rs-card-title').textContent.startsWith(text)", arg=f"Token {index + 1} of"
        )
    device = page.locator(".rs-run-device").inner_text()
    assert "\u202e" not in device and "U+202E" in device and len(device) < 1500
    assert page.locator(".rs-name").inner_text() == '<b>run</b> <a href="javascript:window.__pwned=5">x</a>'
    assert HOSTILE[0] in page.locator(".rs-response").first.text_content()
    page.locator("[data-chart=kl] .rs-plot-frame").hover()
    for quantity in "12345678":
        page.keyboard.press(quantity)
    assert page.evaluate("window.__pwned") is None
    assert page.evaluate("document.querySelectorAll('.rs-live img, .rs-live script, .rs-live a:not([href^=\"?\"])').length") == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 1440
    assert not [url for url in requests if "127.0.0.1" not in url]
    run.close()


def test_names_of_reward_parts_are_not_read_as_markup_by_plotly(open_page, workspace):
    run = FakeRun(workspace)
    part = "<b>bold</b><a href='javascript:window.__pwned=1'>x</a>%{y}"
    metrics = run._metrics
    run._metrics = lambda step: {**metrics(step), f"reward/{part}": 0.5, "reward/length": 0.2}
    run.run()
    run.step(5)
    page = open_page(f"?run={run.run_id}")
    page.wait_for_selector("[data-chart=score] .rs-key:nth-child(4)")
    names = page.locator("[data-chart=score] .rs-key span").all_text_contents()
    assert part in names and "length" in names
    assert page.evaluate("document.querySelectorAll('.rs-plot a').length") == 0
    run.close()


@pytest.mark.long
@pytest.mark.parametrize("first_id", [0, 500], ids=["same version", "another version"])
def test_a_lost_connection_is_said_within_five_seconds_and_heals_itself(workspace, open_page, run, first_id):
    first = LiveApp(workspace)
    page = open_page(f"?run={run.run_id}", url=first.url, hurry=False)
    lost_at = time.monotonic()
    first.close()
    page.wait_for_selector(".rs-lost:not([hidden])")
    assert time.monotonic() - lost_at < 6  # 5 s, and what closing the server takes
    assert "rs-disconnected" in page.locator(".rs-live").get_attribute("class")
    run.step()
    page.evaluate("window.untouched = true")
    second = LiveApp(workspace, port=first.port, first_id=first_id)
    page.wait_for_selector(".rs-lost", state="hidden")
    wait_for_step(page, 9)
    assert bool(page.evaluate("window.untouched")) is (first_id == 0)  # the page is loaded anew only when nothing else helps
    second.close()


def test_rounding_is_neither_coloured_nor_judged_and_judging_takes_three_steps(open_page, workspace):
    run = FakeRun(workspace, name="first step")
    run.load()
    run.run()
    noise = {"objective/kl": -3.3e-7, "objective/kl_k3": 2e-14, "val/explained_variance": -9.5e-7, "episode": 64.0}

    def commit(step, **metrics):
        rollout = run._rollout(step, 0)
        flat = {"kl": np.resize([4.8e-7, -4.8e-7], rollout.length).astype(np.float32)}
        rollout = replace(rollout, tokens=replace(rollout.tokens, arrays={**rollout.tokens.arrays, **flat}))
        run.writer.commit_step(StepRecord(step, {**noise, **metrics}, [rollout]))

    tile = "[data-term='{}'].rs-tile".format
    commit(1)
    page = open_page(f"?run={run.run_id}")
    wait_for_step(page, 1)
    for metric in ("objective/kl", "val/explained_variance"):
        page.wait_for_selector(tile(metric))
        assert page.inner_text(f"{tile(metric)} .rs-tile-value") == "0.00"
        assert "usual" not in page.inner_text(tile(metric))
    page.click(".rs-inspector button[data-value=kl]")
    strengths = "[...document.querySelectorAll('.rs-token')].map((node) => node.style.getPropertyValue('--v'))"
    page.wait_for_function(f"{strengths}.every((strength) => strength === '0.0%')")
    assert "no token is coloured" in page.inner_text(".rs-inspector .rs-scale")
    low, high = (f"document.querySelector('[data-chart=kl] .rs-plot')?._fullLayout?.yaxis.range[{end}]" for end in (0, 1))
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
    run.close()


def test_choice_of_step_sample_and_token_survives_updates_and_a_reload(open_page, run):
    page = open_page(f"?run={run.run_id}")
    page.locator(".rs-row").nth(3).click()
    page.wait_for_function("document.querySelectorAll('.rs-row[aria-selected=true]').length === 1")
    page.wait_for_function("location.search.includes('sample=')")
    page.locator(".rs-token").nth(4).click()
    page.wait_for_function("location.search.includes('token=4')")
    before = chosen(page)
    text = page.locator(".rs-tokens").inner_text()
    assert before["step"] == 8
    run.step(2)
    wait_for_step(page, 10)
    page.wait_for_timeout(500)
    assert chosen(page) == before and page.locator(".rs-tokens").inner_text() == text
    page.reload()
    page.wait_for_selector(".rs-card-columns")
    page.wait_for_function("(text) => document.querySelector('.rs-tokens').innerText === text", arg=text)
    assert chosen(page) == before
    assert page.locator(".rs-card-title").inner_text().startswith("Token 5 of")
    page.get_by_role("button", name="newest: step 10", exact=True).click()
    page.wait_for_function("document.querySelector('.rs-picker h3').textContent === 'Samples of step 10'")
    assert chosen(page) == {}


def test_keys_move_token_sample_step_and_quantity(open_page, run):
    page = open_page(f"?run={run.run_id}")
    page.locator(".rs-token").nth(2).click()
    title = page.locator(".rs-card-title")
    for key, expected in (("ArrowRight", "Token 4 of"), ("ArrowLeft", "Token 3 of"), ("Home", "Token 1 of")):
        page.keyboard.press(key)
        assert title.inner_text().startswith(expected)
    focused = "document.activeElement.getAttribute('aria-label')"
    assert page.evaluate(focused).startswith("Token 1 “")
    page.keyboard.press("7")
    assert page.locator('.rs-segment[aria-pressed="true"][data-value="entropy"]').count() == 1
    assert "entropy" in page.evaluate(focused)
    sample = page.locator('.rs-row[aria-selected="true"]').get_attribute("data-sample")
    page.keyboard.press("ArrowDown")
    page.wait_for_function("(old) => document.querySelector('.rs-row[aria-selected=true]').dataset.sample !== old", arg=sample)
    page.keyboard.press("[")
    page.wait_for_function("document.querySelector('.rs-picker h3').textContent === 'Samples of step 7'")
    page.keyboard.press("]")
    page.wait_for_function("document.querySelector('.rs-picker h3').textContent === 'Samples of step 8'")
    page.evaluate("document.activeElement.blur()")
    before = page.evaluate("scrollY")
    page.keyboard.press("ArrowDown")  # not inside the samples or the inspector: the page scrolls
    page.wait_for_function("(before) => scrollY > before", arg=before)


def test_the_formulas_add_up_as_printed(open_page, run):
    page = open_page(f"?run={run.run_id}&step=8&sample=2&token=0")
    page.locator(".rs-token").first.focus()
    count = page.locator(".rs-token").count()
    for _ in range(count):
        equations = [node.inner_text() for node in page.locator(".rs-equation .rs-filled").all()]
        assert len(equations) == 4
        for text in equations:
            left, total = text.replace("−", "-").replace("×", "*").split(" = ")
            assert re.fullmatch(r"[-+*(). \d]+", left), text
            decimals = len(total.split(".")[1])
            assert round(sum_of(left), decimals) == pytest.approx(float(total), abs=1e-9), text
        page.keyboard.press("ArrowRight")


def sum_of(text: str) -> float:
    """The value of a sum of numbers and products as the page prints it, e.g. ``0.1 + 0.95 * (-0.2) - 3``."""
    total = 0.0
    for sign, term in re.findall(r"(^|[+-] )((?:-?[\d.]+|\(-[\d.]+\))(?: \* (?:[\d.]+|\(-[\d.]+\)))*)", text):
        product = 1.0
        for factor in term.split(" * "):
            product *= float(factor.strip("()"))
        total += -product if sign.startswith("-") else product
    return total


def test_states_say_what_is_going_on(open_page, workspace):
    run = FakeRun(workspace)
    run.load(0.25, "Loading the policy (1 of 4)")
    page = open_page(f"?run={run.run_id}", ready=".rs-waiting")
    assert "Loading the policy (1 of 4) 25" in page.locator(".rs-phase").inner_text()
    run.run()
    page.wait_for_function("document.querySelector('.rs-waiting strong').textContent === 'The first step is under way'")
    run.step(21)
    page.wait_for_selector(".rs-tile")
    run.writer.set_state("paused")
    page.get_by_role("button", name="Continue", exact=True).wait_for()
    run.fail("The reward was NaN. Lower the learning rate, then resume.")
    page.wait_for_selector(".rs-banner[data-tone=failed]")
    assert "Lower the learning rate" in page.locator(".rs-banner").inner_text()
    assert "goes on from the checkpoint of step 20 (1.3 MB) and trains step 21 again." in page.locator(".rs-banner").inner_text()
    page.wait_for_function("document.querySelector('.rs-log').textContent.includes('NonFinite')")
    page.get_by_role("button", name="Resume", exact=True).wait_for()


def test_a_killed_engine_shows_within_five_seconds(open_page, workspace):
    run = FakeRun(workspace)
    run.run()
    run.step(2)
    page = open_page(f"?run={run.run_id}", hurry=False)
    killed_at = time.monotonic()
    run.lock.release()
    page.wait_for_selector(".rs-live[data-state=interrupted] .rs-banner")
    assert time.monotonic() - killed_at < 5
    said = page.locator(".rs-banner").inner_text()
    assert "No checkpoint was written: Resume can only begin again at step 1, and asks first." in said
    assert "last checkpoint" not in said and "is kept" not in said  # one sentence on it, and a true one
    run.writer.close()


def test_resume_without_a_checkpoint_asks_first_and_shows_what_is_kept(open_page, workspace):
    run = FakeRun(workspace)
    run.run()
    run.step(3)
    run.writer.go_back(1)
    run.writer.set_state("stopped")
    run.lock.release()
    page = open_page(f"?run={run.run_id}")
    assert page.locator(".rs-kept").inner_text() == "Steps 2 to 3 are from before the resume: kept, but not shown, until played again."
    resume = page.get_by_role("button", name="Resume", exact=True)
    resume.click()
    dialog = page.locator("dialog")
    dialog.wait_for()
    assert "Begin this run again at step 1?" in dialog.inner_text() and "You would lose its 3 recorded steps" in dialog.inner_text()
    dialog.get_by_role("button", name="Go back").click()
    page.wait_for_function("document.querySelector('[data-event=resume_run]').getAttribute('aria-disabled') === 'false'")
    assert Workspace(workspace).status(run.run_id).state == "stopped"
    resume.click()
    dialog.get_by_role("button", name="Begin again").click()
    page.wait_for_selector(".rs-live[data-state=queued]")
    assert Workspace(workspace).status(run.run_id).queue_position is not None and page.faults == []
    Workspace(workspace).cancel(run.run_id)
    run.writer.close()


def test_buttons_reach_the_engine_and_viewers_have_none(open_page, run):
    page = open_page(f"?run={run.run_id}")
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("menuitem", name="Stop and save").click()
    deadline = time.monotonic() + 20
    while not run.writer.pending_commands():
        assert time.monotonic() < deadline
        page.wait_for_timeout(50)
    assert [command.kind for command in run.writer.pending_commands()] == ["stop"]
    page.wait_for_timeout(1000)  # ten times faster than the wall's: the button's own memory of the press is over
    stopping = page.get_by_role("button", name="Stopping…", exact=True)
    page.wait_for_function("!document.querySelector('.rs-times').textContent.includes('left')")
    assert stopping.get_attribute("aria-disabled") == "true"  # as long as the run says that it was asked to
    viewer = open_page(f"?run={run.run_id}&view=1")
    assert viewer.locator(".rs-controls").is_hidden() and viewer.locator(".rs-viewer").inner_text()


def test_a_handler_of_the_app_opens_a_run(open_page, run, workspace):
    other = FakeRun(workspace, name="the other one")
    other.run()
    other.step(2)
    page = open_page(f"?run={other.run_id}")
    for _ in range(2):  # also when it was opened before
        page.get_by_role("tab", name="Train").click()
        page.locator("#wanted textarea, #wanted input").fill(run.run_id)
        page.locator("#open-it").click()
        page.wait_for_function("(id) => location.search.includes(id)", arg=run.run_id)
        page.wait_for_function("document.querySelector('.rs-name').textContent === 'world, seed 0'")
    other.close()


def test_without_any_run_the_page_says_what_to_do_and_opens_the_first(browser, tmp_path, open_page):
    app = LiveApp(tmp_path)
    page = open_page("?tab=live", url=app.url, ready=".rs-empty li")
    assert page.locator(".rs-empty h2").inner_text() == "No run yet"
    run_id = Workspace(tmp_path).submit(config(), "now there is one")
    page.wait_for_function("document.querySelector('.rs-name').textContent === 'now there is one'")
    assert run_id in page.url
    page.get_by_role("button", name="Remove from queue").wait_for()
    missing = open_page("?run=nobody-here", url=app.url, ready=".rs-empty h2")
    assert missing.locator(".rs-empty h2").inner_text() == "This run is not here"
    app.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_phone_shows_one_column_without_sideways_scrolling(open_page, run, theme):
    page = open_page(f"?run={run.run_id}&__theme={theme}", width=390, height=844)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    wide = """() => [...document.querySelectorAll('.rs-live *')].filter((node) => !node.closest('.rs-tiles, .rs-plot, .rs-hidden')
      && node.getBoundingClientRect().right > innerWidth + 1).map((node) => node.className)"""
    assert page.evaluate(wide) == []


def test_numbers_and_long_series_in_the_scripts(open_page, app, run):
    """The scripts' pure functions, called in the browser."""
    page = open_page(f"?run={run.run_id}")
    base = page.evaluate(
        "performance.getEntriesByType('resource').map((entry) => entry.name).find((name) => name.endsWith('/live/live.js')).slice(0, -12)"
    )
    told = page.evaluate(
        """async (base) => {
          const f = await import(base + "shared/format.js");
          const s = await import(base + "live/store.js");
          const store = new s.SeriesStore();
          const reply = { names: ["episode", "a"], x: [[10, 20, 40]], at: [0, 0], y: [[100, 200, 400], [null, 2, 4]] };
          store.apply(reply, true, 40);
          store.apply({ names: ["a"], x: [[50]], at: [0], y: [[null]] }, false, 50);
          return {
            numbers: [f.number(-1.005, 2), f.number(0.00312, 2), f.number(null), f.number(-0.0000001, 2), f.number(123456.4, 0),
                      f.number(1060.1934, 4), f.integer(1000), f.integer(7e9)],
            share: f.percent(0.0913),
            durations: [f.duration(75), f.duration(3700), f.duration(NaN)],
            smooth: [s.smooth([1, null, 3], 0), s.smooth([2, 2, 2], 0.9)],
            axis: [store.toAxis(30, "episode"), store.fromAxis(300, "episode"), store.at("a", 45), store.last("a")],
            steps: store.get("a").x.join(),
            chances: [f.chance(0.0012), f.chance(0.25), f.chance(null)],
            text: f.readable("a\\u0000b\\u202ec d\\ud800" + "e\\u0301\\u0301\\u0301\\u0301\\u0301\\u0301"),
          };
        }""",
        base,
    )
    assert (
        told["numbers"] == ["−1.00", "0.00", "–", "0.00", "123,456", "1,060.1934", "1,000", "7,000,000,000"]
        and told["share"] == "9.1\u2009%"
    )
    assert told["durations"] == ["1:15", "1:01:40", "–"]
    assert told["smooth"] == [[1, None, 3], [pytest.approx(2)] * 3]
    assert told["axis"] == [300, 30, 4, 4] and told["steps"] == "20,40,50"
    assert told["chances"] == ["0.12\u2009%", "25.0\u2009%", ""]
    assert told["text"].startswith("a⟨␀⟩b⟨U+202E⟩c d⟨U+D800⟩e") and told["text"].count("\u0301") == 4
