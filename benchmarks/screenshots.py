"""Pictures of every page, wide and narrow, light and dark, from a real run of the tiny world.

    python -m benchmarks.screenshots --out shots            # all of them, to look at
    python -m benchmarks.screenshots --readme               # assets/images/live.png alone

Needs Chromium and playwright (requirements-dev.txt).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from benchmarks.startup import ROOT, free_port
from rlhf_studio.runs.records import ENDED
from rlhf_studio.runs.workspace import Workspace

SIZES = {"wide": (1440, 900), "phone": (390, 844)}
SHOWN_AT = 20  # the step from which on there is enough to see; the recipe has 30


@contextmanager
def running_app(workspace: Path) -> Iterator[str]:
    """``python app.py`` until the block ends; gives its address."""
    port = free_port()
    command = [sys.executable, "app.py", "--port", str(port), "--workspace", str(workspace)]
    app = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    try:
        assert app.stdout is not None
        app.stdout.readline()
        yield f"http://127.0.0.1:{port}/"
    finally:
        app.terminate()
        app.wait()


def start_run(page: Page, url: str) -> float:
    """Press Start on the first recipe; returns the seconds until the first numbers are on screen."""
    page.goto(url)
    start = page.get_by_role("button", name="Start run")
    start.wait_for()
    pressed = time.perf_counter()
    start.click()
    page.wait_for_selector(".rs-tile", timeout=120_000)
    return time.perf_counter() - pressed


def wait_for_step(workspace: Path, step: int) -> str:
    """Wait until the only run has got that far; returns its id."""
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        (run,) = Workspace(workspace).runs()
        if run.step >= step:
            return run.run_id
        if run.state in ENDED:
            break
        time.sleep(0.2)
    raise SystemExit(f"the run did not reach step {step}")


def shoot(browser: Any, url: str, out: Path, name: str, size: str, dark: bool, full: bool) -> None:
    """One picture of one page in its final state."""
    width, height = SIZES[size]
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light")
    page.goto(url + ("&" if "?" in url else "?") + ("__theme=dark" if dark else "__theme=light"))
    page.wait_for_timeout(4000)
    page.screenshot(path=out / f"{name}-{size}-{'dark' if dark else 'light'}.png", full_page=full)
    page.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("shots"))
    parser.add_argument("--readme", action="store_true", help="only the picture of the README")
    options = parser.parse_args()
    chromium = shutil.which("chromium") or "/usr/bin/chromium"
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as driver, running_app(Path(temporary)) as url:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        print(f"first numbers on screen {start_run(page, url):.1f} s after Start", flush=True)
        run_id = wait_for_step(Path(temporary), SHOWN_AT)
        if options.readme:
            page.goto(f"{url}?run={run_id}")
            for part in (".rs-card-columns", ".rs-phrases li", ".rs-answer:not(.rs-was) .rs-tinted"):
                page.wait_for_selector(part)
            page.wait_for_timeout(1500)
            page.screenshot(path=ROOT / "assets" / "images" / "live.png")
        else:
            options.out.mkdir(parents=True, exist_ok=True)
            for name, address in (
                ("train", url),
                ("live", f"{url}?run={run_id}"),
                ("runs", f"{url}?tab=runs"),
                ("talk", f"{url}?tab=talk"),
            ):
                for size in SIZES:
                    for dark in (False, True):
                        shoot(browser, address, options.out, name, size, dark, full=name != "live" or size == "phone")
        browser.close()
        subprocess.run([sys.executable, "-m", "rlhf_studio", "stop", str(Workspace(temporary).run_dir(run_id))], cwd=ROOT, check=False)
        wait_for_end(Path(temporary))
    return 0


def wait_for_end(workspace: Path) -> None:
    """The engine writes its checkpoint before the folder is removed."""
    while any(run.state in ("loading", "running") for run in Workspace(workspace).runs()):
        time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main())
