"""What an engine sees of the secrets in the app's environment, and where else they are: by the command that people type, in each mode."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhf_studio.config.recipes import list_recipes
from rlhf_studio.runs import liveness
from rlhf_studio.ui import app
from rlhf_studio.ui.form import values_of
from tests.access import table
from tests.access.apps import SECRETS, Place, environment_of, people_of, run_stand_ins
from tests.ui.train_helpers import install_world
from tests.waiting import gone, wait_until

pytestmark = pytest.mark.slow

WORLD = next(recipe.config for recipe in list_recipes() if recipe.name == "world")
WHO = {table.LOCAL: table.OPERATOR, table.SPACE: table.VISITOR}


@pytest.mark.parametrize("mode", WHO)
def test_an_engine_sees_the_secrets_that_belong_to_it(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of a person alone at this machine that is the hub's token; of a run that reports to a tracker, that one's key."""
    environment_of(mode, monkeypatch)
    install_world(tmp_path / "world", monkeypatch)
    run_stand_ins(monkeypatch)
    visited = []

    def visit(server: app.Server) -> None:
        place = Place(mode, server)
        place.people = people_of(place)
        look(place, {"HF_TOKEN"} if mode == table.LOCAL else set())
        visited.append(place.root)

    monkeypatch.setattr(app.Server, "wait", visit)
    assert app.main(["--workspace", str(tmp_path / "workspace")]) == 0
    said = capfd.readouterr()
    for name, secret in SECRETS.items():
        assert secret not in said.out + said.err, name
        assert [path for path in visited[0].rglob("*") if path.is_file() and secret.encode() in path.read_bytes()] == [], name


def look(place: Place, of_the_hub: set[str]) -> None:
    """Start a run as people do in this mode, and one that reports to a tracker, and look at the processes that work on them."""
    operator, who = place.people[table.OPERATOR], WHO[place.mode]
    run = place.start(who, **{**values_of(WORLD), "ppo.steps": 20})["run_id"]
    assert seen_by_engine(place, run) == of_the_hub
    assert place.call("stop_run", {"run": run}, place.people[who])[0] == 200
    reports = WORLD.model_copy(update={"engine": WORLD.engine.model_copy(update={"report_to": "wandb"})})
    other = place.server.workspace.submit(reports)
    assert seen_by_engine(place, other) == of_the_hub | {"WANDB_API_KEY"}
    assert place.call("stop_run", {"run": other}, operator)[0] == 200
    wait_until(lambda: place.server.workspace.status(other).state == "stopped")


def seen_by_engine(place: Place, run: str) -> set[str]:
    """Which of the secrets stand in the environment of the process that works on a run, as the kernel tells it."""
    pid = wait_until(lambda: liveness.holder_pid(place.server.workspace.run_dir(run)))
    assert not gone(pid)
    variables = Path(f"/proc/{pid}/environ").read_bytes()
    assert b"RLHF_STUDIO_RUN=" in variables
    return {name for name, secret in SECRETS.items() if secret.encode() in variables}
