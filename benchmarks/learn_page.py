"""How long a reader of Learn waits, in a browser: for the text, for the first numbers, and for a number to follow a slider.

    python -m benchmarks.learn_page [--cold 3] [--moves 12]

Starts the app as people do, and Chromium. Cold: a new app each time, whose Learn tab is clicked as soon as its first page is drawn, or
two seconds later, by when the app has begun to load what it computes with. Warm: every lesson is chosen from the list, and every slider
is moved after its sweep has come. Times are taken inside the page, from the click or the slider's event to the frame that shows the
change. Measure on a quiet machine.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rlhf_studio.lessons import shelf

TEXT, NUMBERS, MOVE = 1.0, 4.0, 0.05
"""Limits in seconds: until the text can be read, until the first numbers are there in a cold process, until a number follows a slider."""
START_PATIENCE, PAGE_PATIENCE, SWEEP_BEGINS = 120.0, 60_000, 1000
RESTS = {"clicked at once": 0.0, "clicked after 2 s": 2.0}
LEARN_TAB = '[role="tab"]:has-text("Learn")'

ON_THE_PAGE = """
window.learnClock = {
  shown: (node) => Boolean(node && node.offsetParent && node.textContent.trim()),
  frame: () => new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(performance.now())))),
  // milliseconds from now until each condition holds and is drawn
  async until(act, conditions) {
    const began = performance.now();
    const left = new Map(Object.entries(conditions));
    const found = {};
    act();
    while (left.size && performance.now() - began < 60000) {
      const now = await this.frame();
      for (const [name, holds] of left) if (holds()) { found[name] = now - began; left.delete(name); }
    }
    return found;
  },
  // milliseconds from a slider's event until the scene shows another number or picture; null when nothing changes
  async move(range, value) {
    const scene = range.closest(".rs-learn-scene");
    const own = range.closest(".rs-learn-control");
    let changed;
    const seen = new Promise((done) => (changed = done));
    const watcher = new MutationObserver((all) => all.some((one) => !own.contains(one.target)) && changed(true));
    watcher.observe(scene, { subtree: true, childList: true, characterData: true });
    const began = performance.now();
    range.value = value;
    range.dispatchEvent(new Event("input", { bubbles: true }));
    const some = await Promise.race([seen, new Promise((done) => setTimeout(() => done(false), 400))]);
    watcher.disconnect();
    return some ? (await this.frame()) - began : null;
  },
};
"""
CHOOSE = """([selector, title]) => {
  const titled = () => {
    const node = document.querySelector(".rs-learn-title");
    return learnClock.shown(node) && node.textContent === title;
  };
  return learnClock.until(() => document.querySelector(selector).click(), {
    text: () => titled() && learnClock.shown(document.querySelector(".rs-learn-lesson .rs-learn-text p")),
    numbers: () => titled() && [...document.querySelectorAll(".rs-learn-there")].some(learnClock.shown),
  });
}"""


@dataclass
class Waits:
    """Seconds: until a lesson's text and its first numbers are there, and for each move of a slider."""

    text: float
    numbers: float
    moves: list[float]


def free_port() -> int:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port: int = door.getsockname()[1]
        return port


@contextlib.contextmanager
def running_app() -> Iterator[str]:
    """The address of a new app with an empty workspace. Raises RuntimeError when it does not start."""
    port, workspace = free_port(), tempfile.mkdtemp(prefix="learn-page-")
    command = [sys.executable, "-m", "rlhf_studio", "app", "--port", str(port), "--workspace", workspace]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    address, until = f"http://127.0.0.1:{port}/", time.monotonic() + START_PATIENCE
    try:
        while True:
            try:
                urllib.request.urlopen(address, timeout=5).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError("the app did not start") from None
                time.sleep(0.1)
        yield address
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait()
        shutil.rmtree(workspace, ignore_errors=True)


def opened(browser: Any, address: str, rest: float = 2.0) -> Any:
    """A tab of its own at the address, with its first page drawn, after some seconds of rest."""
    page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    page.set_default_timeout(PAGE_PATIENCE)
    page.add_init_script(ON_THE_PAGE)
    page.goto(address)
    page.locator(".rs-recipe").first.wait_for()  # before, the tabs do not listen yet
    page.wait_for_timeout(1000 * rest)  # with it, what the first page still asks for is no part of this
    return page


def chosen(page: Any, selector: str, title: str) -> Any:
    """Click an element, and wait for a lesson. Gives {text, numbers} in milliseconds."""
    return page.evaluate(CHOOSE, [selector, title])


def cold(browser: Any, rest: float) -> Waits:
    """The first lesson, from the click on the tab, in an app that has just started and whose page is open for so many seconds."""
    with running_app() as address:
        page = opened(browser, address, rest)
        page.locator(LEARN_TAB).first.evaluate("(tab) => tab.setAttribute('data-measured', '')")
        found = chosen(page, "[data-measured]", shelf.entries()[0].title)
        page.context.close()
    return Waits(found["text"] / 1000, found["numbers"] / 1000, [])


def moved(page: Any, moves: int) -> tuple[list[float], int]:
    """Seconds of each move of each slider of the open lesson, after its sweep has come, and how many moves changed nothing."""
    from playwright.sync_api import TimeoutError

    times, without = [], 0
    for slider in page.locator(".rs-learn-controls input[type=range]").all():
        if slider.locator("xpath=ancestor::section").locator(".rs-learn-measure").count():
            continue  # a scene that measures takes a button, not a slider
        try:
            with page.expect_request(lambda asked: '"sweep"' in (asked.post_data or ""), timeout=SWEEP_BEGINS) as sweep:
                slider.evaluate("(range) => range.focus()")
        except TimeoutError:
            continue  # a control whose values follow from others has no sweep: each value is asked for by itself
        sweep.value.response().finished()
        page.wait_for_timeout(100)
        last, start = (int(slider.evaluate(f"(range) => range.{name}")) for name in ("max", "value"))
        for step in range(1, moves + 1):
            value = (start + step * max(1, last // moves)) % (last + 1)
            took = slider.evaluate("(range, value) => learnClock.move(range, value)", value)
            if took is None:
                without += 1
            else:
                times.append(took / 1000)
        slider.evaluate("(range, value) => learnClock.move(range, value)", start)
    return times, without


def warm(browser: Any, address: str, moves: int) -> dict[str, Waits]:
    """Every lesson, chosen from the list one after the other."""
    page = opened(browser, address)
    page.locator(LEARN_TAB).first.click()
    page.locator(".rs-learn-there").first.wait_for()
    found: dict[str, Waits] = {}
    entries = shelf.entries()
    for entry in [*entries[1:], entries[0]]:  # the first is open already
        waits = chosen(page, f'[data-entry="{entry.name}"]', entry.title)
        times, without = moved(page, moves)
        found[entry.name] = Waits(waits["text"] / 1000, waits["numbers"] / 1000, times)
        still = f", {without} without a change" if without else ""
        print(f"{entry.name:20} {waits['text']:6.0f} ms {waits['numbers']:9.0f} ms   {said(times)}{still}")
    page.context.close()
    return found


def said(times: Sequence[float]) -> str:
    if not times:
        return "no slider"
    return f"{1000 * statistics.median(times):.0f} ms, {1000 * late(times):.0f} ms in 95 % ({len(times)} moves)"


def late(times: Sequence[float]) -> float:
    """The time within which 95 % were done."""
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]


def main(arguments: list[str] | None = None) -> int:
    """Measure; the exit code is 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description="How long a reader of Learn waits, in a browser.")
    parser.add_argument("--cold", type=int, default=3, metavar="N", help="apps that are started and opened once, for each way")
    parser.add_argument("--moves", type=int, default=12, metavar="N", help="moves of each slider")
    options = parser.parse_args(arguments)
    from playwright.sync_api import sync_playwright

    missed = []
    with sync_playwright() as driver:
        path = shutil.which("chromium") or "/usr/bin/chromium"
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        for when, rest in RESTS.items():
            starts = [cold(browser, rest) for _ in range(options.cold)]
            for name, limit in (("text", TEXT), ("numbers", NUMBERS)):
                slowest = max((getattr(one, name) for one in starts), default=0.0)
                print(f"cold, {when}, {name}: " + ", ".join(f"{getattr(one, name):.2f} s" for one in starts) + f" (at most {limit:.0f} s)")
                missed += [f"{when}, the first {name} took {slowest:.2f} s"] if slowest > limit else []
        print(f"{'lesson':20} {'text':>9} {'numbers':>12}   a slider's move: median, 95 %")
        with running_app() as address:
            found = warm(browser, address, options.moves)
        browser.close()
    times = [one for waits in found.values() for one in waits.moves]
    print(f"all sliders: {said(times)} (at most {1000 * MOVE:.0f} ms)")
    missed += [f"{name}: the text took {one.text:.2f} s" for name, one in found.items() if one.text > TEXT]
    missed += [f"{name}: the numbers took {one.numbers:.2f} s" for name, one in found.items() if one.numbers > NUMBERS]
    missed += [f"a slider's move took {1000 * late(times):.0f} ms in 95 %"] if times and late(times) > MOVE else []
    print("\n".join(f"missed: {one}" for one in missed) or "every limit is kept")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
