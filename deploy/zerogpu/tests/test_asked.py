"""Through Gradio's queue the app learns whose quota a run's leases are taken from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gradio.context import LocalContext

from rlhf_studio.runs.commands import send_command
from rlhf_studio.runs.lab.resuming import RESUMABLE
from rlhf_studio.ui.app import launch
from tests.runs.test_checkpoints import checkpoint
from tests.ui.test_app import event, settings_of_page
from tests.ui.train_helpers import install_world, start_stand_in
from tests.waiting import wait_until

pytestmark = pytest.mark.long


def test_who_starts_and_who_resumes_are_known_by_the_header_of_their_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    askers: list[tuple[str, str]] = []

    def note(run_id: str) -> None:
        request = LocalContext.request.get(None)
        askers.append((run_id, request.headers["x-ip-token"]))

    monkeypatch.setenv("SPACES_ZERO_GPU", "true")
    install_world(tmp_path / "world", monkeypatch)
    server = launch(tmp_path / "workspace", start=start_stand_in, on_queued=note)
    try:
        outcome = event(server, "start_run", settings_of_page(ppo__steps=4), X_IP_Token="ann")["output"]["data"][0]
        run = json.loads(outcome)["run_id"]
        wait_until(lambda: server.workspace.status(run).state == "running")
        send_command(server.workspace.run_dir(run), "stop")
        wait_until(lambda: server.workspace.status(run).state in RESUMABLE)
        checkpoint(server.workspace.run_dir(run), 2)
        changed = settings_of_page(ppo__steps=6, ppo__learning_rate=1e-6)
        again = {**changed, "nonce": "again", "parent": run, "resume": True}  # of the Train page
        outcome = event(server, "start_run", again, X_IP_Token="dee")["output"]["data"][0]
        assert json.loads(outcome) == {"run_id": run, "nonce": "again"}
        wait_until(lambda: server.workspace.status(run).state in RESUMABLE)
        assert event(server, "act_on_run", {"run": run, "from_start": True, "action": "resume"}, X_IP_Token="cy")["success"]
        assert askers == [(run, "ann"), (run, "dee"), (run, "cy")]
        wait_until(lambda: server.workspace.status(run).state in RESUMABLE)
    finally:
        server.close()
