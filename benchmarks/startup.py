"""How long until the app answers, beside a bare one-line Gradio app started in turn with it.

    python -m benchmarks.startup --rounds 5

The first start of each is left out (it fills the file cache); the ratio of each round is printed with their median.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BARE = "import gradio as gr\nwith gr.Blocks() as demo: gr.Markdown('hello')\ndemo.launch(quiet=True)"


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def seconds_until_answer(command: list[str], workspace: str) -> float:
    """Start the command and wait for the first page it serves."""
    port = free_port()
    environment = {**os.environ, "GRADIO_SERVER_PORT": str(port), "GRADIO_ANALYTICS_ENABLED": "False", "RLHF_STUDIO_WORKSPACE": workspace}
    started = time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while time.perf_counter() - started < 120:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).read()
                return time.perf_counter() - started
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(0.02)
        raise SystemExit(f"no answer from {command}")
    finally:
        process.terminate()
        process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    ratios = []
    with tempfile.TemporaryDirectory() as workspace:
        for number in range(rounds + 1):
            bare = seconds_until_answer([sys.executable, "-c", BARE], workspace)
            ours = seconds_until_answer([sys.executable, "app.py"], workspace)
            if number:
                ratios.append(ours / bare)
                print(f"bare {bare:.2f} s, app {ours:.2f} s, ratio {ours / bare:.2f}", flush=True)
    print(f"median ratio {statistics.median(ratios):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
