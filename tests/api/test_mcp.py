"""An agent's session with an MCP client against the app started with ``--mcp``, on the bundled world, with the real engine.

Its packages have an environment of their own, which one command makes: ``python -m benchmarks.peers mcp``.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from benchmarks import peers
from tests.access import table

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "the-operators-token"
AGENT = Path(__file__).with_name("agent.py")
SECONDS = 180


def is_made() -> bool:
    return (peers.folder() / "mcp" / "bin" / "python").exists()


@pytest.mark.long
@pytest.mark.skipif(not is_made(), reason="python -m benchmarks.peers mcp makes the environment that this needs")
def test_an_agent_trains_reads_the_verdict_forks_and_gets_no_file(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    python, secret = peers.interpreter("mcp"), tmp_path / "secret.txt"
    secret.write_text("canary-in-a-file")
    environment = {**os.environ, "RLHF_STUDIO_TOKEN": TOKEN, "PYTHONPATH": str(ROOT)}
    command = [python, "app.py", "--mcp", "--port", str(port), "--workspace", str(tmp_path / "workspace"), "--stop-runs"]
    with (tmp_path / "log").open("w") as log, subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log) as app:
        try:
            _wait_for(f"http://127.0.0.1:{port}/health")
            asked = [python, AGENT, f"http://127.0.0.1:{port}/gradio_api/mcp/", TOKEN, str(secret)]
            answer = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
        finally:
            app.terminate()
    assert answer.returncode == 0, answer.stderr + (tmp_path / "log").read_text()
    told: dict[str, Any] = json.loads(answer.stdout)
    assert set(told["tools"]) == table.PROGRAMS and all(len(text) > 60 for text in told["tools"].values())
    assert told["status"]["state"] == "finished" and told["status"]["step"] == 2
    assert told["verdict"]["kind"] == "too early" and told["fork"]["run"] != told["status"]["run"] and told["fork"]["name"] == "longer"
    assert len(told["tokens"]["text"]) == len(told["tokens"]["advantages"]) > 0
    assert "Authorization: Bearer TOKEN" in told["viewer_starts"] and told["viewer_reads"] >= 2
    assert "There is no run 'nothing'" in told["wrong"]
    assert told["tricks"] and all("canary-in-a-file" not in text for text in told["tricks"])
    assert told["foreign"] == 403 and told["foreign_host"] == 421
    assert "canary-in-a-file" not in (tmp_path / "log").read_text()


def _wait_for(address: str) -> None:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    sys.exit(f"{address} does not answer")
