"""How many words and controls the first screen of each page shows (``python -m tools.page_weight``): a table in Markdown.

One rule for all pages, in a window of 1440 by 900 pixels, as the page opens and before anything is clicked or scrolled:

* a word is a run of letters and digits between blanks that lies, at least in part, in the window; text that is hidden, folded, cut away by
  a frame that scrolls, or there for screen readers alone does not count, and what an input or a list shows does;
* a control is every element that the keyboard can reach and that lies in the window: also the sliders, and words with an explanation.

Each page is counted with the line of navigation at the top, and without it. It needs Playwright and Chromium. Addresses behind ``--url``
name pages, such as ``"Live, ended=?tab=live&run=RUN"``; without any the pages of a fresh workspace are counted.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

PAGES = ("learn", "train", "live", "runs", "talk", "feedback", "evaluate", "road")
WIDTH, HEIGHT, SETTLED = 1440, 900, 6000  # pixels, and milliseconds until a page has drawn itself
NAVIGATION = '[role="tablist"], .tab-wrapper, .rs-skip, .rs-brand, .rs-shell-tools'
COUNT = r"""(navigation) => {
  const cut = (box, node) => {
    let { left, top, right, bottom } = box;
    const meet = (frame) => {
      [left, top] = [Math.max(left, frame.left), Math.max(top, frame.top)];
      [right, bottom] = [Math.min(right, frame.right), Math.min(bottom, frame.bottom)];
    };
    meet({ left: 0, top: 0, right: innerWidth, bottom: innerHeight });
    for (let at = node; at; at = at.parentElement)
      if (getComputedStyle(at).overflow !== "visible" && at !== document.body && at !== document.documentElement)
        meet(at.getBoundingClientRect());
    return right - left > 2 && bottom - top > 2;
  };
  const seen = (node) => node.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  const words = { all: 0, page: 0 }, controls = { all: 0, page: 0 };
  const add = (to, count, node) => {
    to.all += count;
    if (!node.closest(navigation)) to.page += count;
  };
  const wordsOf = (text) => text.split(/\s+/).filter((word) => /[\p{L}\p{N}]/u.test(word)).length;
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const { currentNode: text } = texts, parent = text.parentElement;
    if (!text.data.trim() || parent.closest("script, style, option") || !seen(parent)) continue;
    const range = document.createRange();
    for (const [found] of text.data.matchAll(/\S+/g)) {
      const at = text.data.indexOf(found, range.endContainer === text ? range.endOffset : 0);
      range.setStart(text, at);
      range.setEnd(text, at + found.length);
      if ([...range.getClientRects()].some((box) => cut(box, parent))) add(words, wordsOf(found), parent);
    }
  }
  for (const node of document.querySelectorAll("input, select, textarea")) {
    if (!seen(node) || !cut(node.getBoundingClientRect(), node)) continue;
    const shown = node.selectedOptions ? (node.selectedOptions[0]?.text ?? "") : node.value || node.placeholder || "";
    if (!["checkbox", "radio", "range"].includes(node.type)) add(words, wordsOf(shown), node);
  }
  const reached = "a[href], button, input, select, textarea, summary, [tabindex]";
  for (const node of document.querySelectorAll(reached)) {
    if (node.tabIndex < 0 || node.disabled || !seen(node) || !cut(node.getBoundingClientRect(), node)) continue;
    add(controls, 1, node);
  }
  return [words.all, words.page, controls.all, controls.page];
}"""


def main() -> None:
    """Count, and print the table."""
    parser = argparse.ArgumentParser(description="Count the words and controls of the first screen of each page.")
    parser.add_argument("--url", default="", help="an app that is served already; else one with a fresh workspace is started")
    parser.add_argument("pages", nargs="*", default=[f"{page.capitalize()}=?tab={page}" for page in PAGES], metavar="NAME=ADDRESS")
    chosen = parser.parse_args()
    with served(chosen.url) as url:
        rows = counted(url, [page.split("=", 1) for page in chosen.pages])
    print("| page | words | without navigation | controls | without navigation |\n|---|---|---|---|---|")
    for name, counts in rows:
        print(f"| {name} | {' | '.join(map(str, counts))} |")


def counted(url: str, pages: Sequence[Sequence[str]]) -> list[tuple[str, list[int]]]:
    """For each (name, address) its words and its controls, each with and without the navigation."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page: Any = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, reduced_motion="reduce")
        rows = []
        for name, address in pages:
            page.goto(f"{url.rstrip('/')}/{address}")
            page.wait_for_timeout(SETTLED)
            rows.append((name, page.evaluate(COUNT, NAVIGATION)))
        browser.close()
    return rows


@contextmanager
def served(url: str) -> Iterator[str]:
    """The address of the app; without one of its own until the end."""
    if url:
        yield url
        return
    with tempfile.TemporaryDirectory() as workspace:
        command = [sys.executable, "-m", "rlhf_studio", "app", "--workspace", workspace]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as app:
            assert app.stdout is not None
            try:
                yield next(word for line in app.stdout for word in line.split() if word.startswith("http"))
            finally:
                app.terminate()


if __name__ == "__main__":
    main()
