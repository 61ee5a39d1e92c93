"""Which secrets of the app's environment an engine sees, and that no other output or file has them; with the real command, in each mode."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhf_studio.config.recipes import list_recipes
from rlhf_studio.runs import liveness
from rlhf_studio.ui import app
from rlhf_studio.ui.form import values_of
from tests.access import table
from tests.access.apps import SECRETS, ServedApp, environment_of, people_of, run_stand_ins
from tests.ui.train_helpers import install_world
from tests.waiting import gone, wait_until

pytestmark = pytest.mark.slow

WORLD = next(recipe.config for recipe in list_recipes() if recipe.name == "world")
WHO = {table.LOCAL: table.OPERATOR, table.SPACE: table.VISITOR}


@pytest.mark.parametrize("mode", WHO)
def test_an_engine_sees_the_secrets_that_belong_to_it(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The engine of a person alone at this machine sees the hub's token; a run that reports to a tracker sees that tracker's key."""
    environment_of(mode, monkeypatch)
    install_world(tmp_path / "world", monkeypatch)
    run_stand_ins(monkeypatch)
    visited = []

    def visit(server: app.Server) -> None:
        served_app = ServedApp(mode, server)
        served_app.people = people_of(served_app)
        look(served_app, {"HF_TOKEN"} if mode == table.LOCAL else set())
        visited.append(served_app.root)

    monkeypatch.setattr(app.Server, "wait", visit)
    assert app.main(["--workspace", str(tmp_path / "workspace")]) == 0
    output = capfd.readouterr()
    for name, secret in SECRETS.items():
        assert secret not in output.out + output.err, name
        assert [path for path in visited[0].rglob("*") if path.is_file() and secret.encode() in path.read_bytes()] == [], name


def look(served_app: ServedApp, of_the_hub: set[str]) -> None:
    """Start a run as people do in this mode, and a run that reports to a tracker; check the environments of their processes."""
    operator, who = served_app.people[table.OPERATOR], WHO[served_app.mode]
    run = served_app.start(who, **{**values_of(WORLD), "ppo.steps": 20})["run_id"]
    assert seen_by_engine(served_app, run) == of_the_hub
    assert served_app.call("stop_run", {"run": run}, served_app.people[who])[0] == 200
    reports = WORLD.model_copy(update={"engine": WORLD.engine.model_copy(update={"report_to": "wandb"})})
    other = served_app.server.workspace.submit(reports)
    assert seen_by_engine(served_app, other) == of_the_hub | {"WANDB_API_KEY"}
    assert served_app.call("stop_run", {"run": other}, operator)[0] == 200
    wait_until(lambda: served_app.server.workspace.status(other).state == "stopped")


def seen_by_engine(served_app: ServedApp, run: str) -> set[str]:
    """Which of the secrets stand in the environment of the process that works on a run, as the kernel tells it."""
    pid = wait_until(lambda: liveness.holder_pid(served_app.server.workspace.run_dir(run)))
    assert not gone(pid)
    variables = Path(f"/proc/{pid}/environ").read_bytes()
    assert b"RLHF_STUDIO_RUN=" in variables
    return {name for name, secret in SECRETS.items() if secret.encode() in variables}
