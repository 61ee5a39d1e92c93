"""The sessions of docs/api.md as code, and an app to have them with: its engines need no model."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from gradio_client import Client

from rlhf_studio.inputs.estimate.speed import SpeedMeasurement
from rlhf_studio.runs import launch as launching
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.ui.app import Server, launch
from tests.ui.train_helpers import install_world

PAGE = Path(__file__).resolve().parents[2] / "docs" / "api.md"
ENGINE = """
import sys
from pathlib import Path
from rlhf_studio.runs.liveness import EngineLock
from rlhf_studio.runs.records import StepRecord
from rlhf_studio.runs.writer import RunWriter
folder, total = Path(sys.argv[1]), int(sys.argv[2])
with EngineLock(folder), RunWriter(folder) as writer:
    writer.set_state("running", "", device="cpu")
    for step in range(1, total + 1):
        writer.commit_step(StepRecord(step, {"objective/scores": 0.1 * step, "objective/kl": 0.2 * step, "time/total": 2.0}, []))
    writer.set_state("finished", "")
"""
TOKEN = "the-operators-token"
PLAIN: dict[str, Any] = {"verbose": False, "analytics_enabled": False, "ssl_verify": False}
"""For a Client: there is no certificate to verify, and each call would load all those that are known."""


@contextmanager
def served(root: Path, world: Path, **environment: str) -> Iterator[Server]:
    """An app whose engines write their steps at once."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.setattr(SpeedMeasurement, "begin", lambda self, device: None)
        install_world(world, patch)

        def command(run_dir: Path, mode: str) -> list[str]:
            return [sys.executable, "-c", ENGINE, str(run_dir), str(RunReader(run_dir).config().planned_steps)]

        patch.setattr(launching, "engine_command", command)
        server = launch(root)
        try:
            yield server
        finally:
            server.close()


def asking(address: str, token: str = "", **headers: str) -> Callable[..., Any]:
    """A function that calls a function of the app with ``gradio_client``, and reads its answer."""
    shown = {"Authorization": f"Bearer {token}"} if token else {}
    client = Client(address, headers={**shown, **headers}, **PLAIN)

    def ask(function: str, **arguments: Any) -> Any:
        return json.loads(client.predict(api_name=f"/{function}", **arguments))

    return ask


def code_of(heading: str) -> str:
    """The first block of Python below a heading of docs/api.md."""
    text = PAGE.read_text(encoding="utf-8")
    match = re.search(rf"^## {re.escape(heading)}\n.*?^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert match is not None, heading
    return match[1]
