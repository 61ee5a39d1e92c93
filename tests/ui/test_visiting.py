"""Visitors of a Space and students of a class: what they may start, whose a run is, and what is cleared away after them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest
from starlette.datastructures import Headers

from rlhf_studio.config import NOTHING_ALLOWED
from rlhf_studio.config.bundled import RECORDINGS
from rlhf_studio.config.recipes import list_recipes
from rlhf_studio.engine.process.stopping import asked_by, record_stop
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.hosted.ending import BY, end_runs
from rlhf_studio.runs.people import change
from rlhf_studio.runs.studio import read
from rlhf_studio.runs.visitors.janitor import TIME_LIMIT, Janitor
from rlhf_studio.runs.visitors.limits import Admission, Limits
from rlhf_studio.runs.visitors.starters import Starter, set_starter
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui import app
from rlhf_studio.ui.access import TOKEN_VARIABLE, Access
from rlhf_studio.ui.app import Server, launch
from rlhf_studio.ui.form import values_of
from rlhf_studio.ui.runs_page import RunsPage
from rlhf_studio.ui.visiting import identity
from rlhf_studio.ui.visiting.allowed import RECIPES, Budget
from rlhf_studio.ui.visiting.modes import Mode, mode_of
from rlhf_studio.ui.visiting.where import offered, where
from tests.ui.fake_run import FakeRun
from tests.ui.raw_http import Raw, functions_of
from tests.ui.train_helpers import install_world, start_stand_in
from tests.waiting import wait_until

WORLD = next(recipe for recipe in list_recipes() if recipe.name == "world")
TOKEN = "a-long-secret"
ANN, BOB = "A" * 22, "B" * 22  # the numbers in two visitors' cookies
VISITORS = identity.Visitors("secret")


@pytest.mark.parametrize(
    ("flags", "environment", "mode"),
    [
        ({}, {}, Mode.LOCAL),
        ({}, {"SPACE_ID": "someone/studio"}, Mode.SPACE),
        ({}, {"SYSTEM": "spaces"}, Mode.SPACE),
        ({"classroom": True}, {}, Mode.CLASSROOM),
        ({"read_only": True}, {"SPACE_ID": "someone/studio"}, Mode.READ_ONLY),
    ],
)
def test_flags_and_environment_decide_the_mode(flags: dict[str, bool], environment: dict[str, str], mode: Mode) -> None:
    assert mode_of(environment, **flags) is mode


@pytest.mark.parametrize("flags", [{"read_only": True, "classroom": True}, {"classroom": True}])
def test_flags_that_exclude_each_other_are_refused(flags: dict[str, bool]) -> None:
    with pytest.raises(ValueError, match="--classroom"):
        mode_of({"SPACE_ID": "someone/studio"}, **flags)


# --- what may be started --------------------------------------------------------------------------------------------------------------


def changed(**values: Any) -> Any:
    config = WORLD.config
    for name, value in values.items():
        section, _, setting = name.partition("__")
        config = config.model_copy(update={section: getattr(config, section).model_copy(update={setting: value})})
    return config


def test_a_recipe_and_what_costs_nothing_may_be_started() -> None:
    budget = Budget()
    assert budget.problems(WORLD.config, WORLD) == []
    assert budget.problems(changed(ppo__kl_coef=0.0, ppo__learning_rate=1e-2, generation__temperature=0.7, engine__seed=5), WORLD) == []
    assert budget.problems(changed(ppo__steps=40, ppo__ppo_epochs=1), WORLD) == []


@pytest.mark.parametrize(
    "change",
    [
        {"ppo__steps": 41},
        {"ppo__batch_size": 65},
        {"generation__response_length": 33},
        {"model__policy": "/etc/passwd"},
        {"data__prompts": "/etc/passwd"},
        {"reward__gold": "none"},
        {"reward__components": []},
        {"engine__threads": 64},
        {"engine__report_to": "wandb"},
        {"ppo__schedule": "5: ppo.kl_coef=1"},
    ],
)
def test_everything_else_is_refused_by_its_name(change: dict[str, Any]) -> None:
    (problem,) = Budget().problems(changed(**change), WORLD)
    assert problem.field == next(iter(change)).replace("__", ".")


def test_a_recipe_that_fetches_something_is_refused() -> None:
    other = next(recipe for recipe in list_recipes() if recipe.name == "gpt2-imdb")
    (problem,) = Budget().problems(other.config, other)
    titles = "Tiny world; Tiny world, LoRA; Tiny world, RLOO; Tiny world, GRPO"
    assert problem.message == f"Here, visitors start the recipes of the bundled world: {titles}."


# --- how much, and for how long --------------------------------------------------------------------------------------------------------


def queue(workspace: Workspace, key: str, address: str = "", limits: Limits | None = None) -> str:
    return workspace.submit(WORLD.config, by=Admission(Starter("visitor", key=key, address=address), limits or Limits()))


def test_each_visitor_has_one_run_and_the_queue_has_an_end(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    first = queue(workspace, "ann")
    with pytest.raises(StoreError, match="number 1 in the queue") as refused:
        queue(workspace, "ann")
    assert refused.value.reason == "limit"
    workspace.cancel(first)
    queue(workspace, "ann")
    for name in "bcde":
        queue(workspace, name, limits=Limits(waiting=5))
    with pytest.raises(StoreError, match="5 runs wait"):
        queue(workspace, "f", limits=Limits(waiting=5))
    assert workspace.submit(WORLD.config) in read(tmp_path).entries  # an operator has no limits
    assert len(workspace.folders()) == 7  # and of a run that was refused nothing is left


def test_people_behind_one_address_are_counted_together(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    for name in ("ann", "bob"):
        queue(workspace, name, "school", Limits(of_address=2))
    with pytest.raises(StoreError, match="network address"):
        queue(workspace, "eve", "school", Limits(of_address=2))
    queue(workspace, "eve", "home", Limits(of_address=2))


def test_many_starts_at_once_leave_a_queue_of_the_allowed_length(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    workspace = Workspace(tmp_path)

    def may_start(number: int) -> bool:
        try:
            queue(workspace, f"visitor {number // 2}")
        except StoreError as error:
            assert error.reason == "limit"
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        started = list(pool.map(may_start, range(4 * Limits().waiting)))
    waiting = read(tmp_path).waiting()
    assert sum(started) == len(waiting) == Limits().waiting == len(workspace.folders())
    keys = [starter.key for starter in read(tmp_path).starters.values()]
    assert len(set(keys)) == len(keys)


@pytest.fixture
def visitors_run(tmp_path: Path) -> Iterator[FakeRun]:
    run = FakeRun(tmp_path)
    run.run()
    run.step()
    with change(tmp_path) as connection:
        set_starter(connection, run.run_id, Starter("visitor", key="ann"))
    yield run
    run.close()


def test_a_run_that_takes_too_long_is_asked_to_stop_and_later_removed(tmp_path: Path, visitors_run: FakeRun) -> None:
    workspace, now = Workspace(tmp_path), [0.0]
    started = workspace.status(visitors_run.run_id).started_at
    assert started is not None
    janitor = Janitor(workspace, Limits(seconds=600, hours=6), now=lambda: now[0])
    now[0] = started + 599
    janitor.look()
    assert visitors_run.writer.pending_commands() == []
    now[0] = started + 601
    janitor.look()
    janitor.look()  # once is enough
    (command,) = visitors_run.writer.pending_commands()
    assert (command.kind, command.payload) == ("stop", {"by": TIME_LIMIT})
    visitors_run.writer.set_state("stopped")
    visitors_run.close()
    ended = workspace.status(visitors_run.run_id).ended_at
    assert ended is not None
    now[0] = ended + 6 * 3600 - 1
    janitor.look()
    assert len(workspace.folders()) == 1
    now[0] = ended + 6 * 3600 + 1
    janitor.look()
    assert workspace.folders() == []


def test_the_oldest_run_of_a_visitor_goes_when_the_disk_is_full_and_nobody_else_s(tmp_path: Path, visitors_run: FakeRun) -> None:
    own = FakeRun(tmp_path)
    own.run()
    for run in (own, visitors_run):
        run.writer.set_state("stopped")
        run.close()
    workspace = Workspace(tmp_path)
    Janitor(workspace, Limits(disk=10_000_000_000)).look()
    assert len(workspace.folders()) == 2
    Janitor(workspace, Limits(disk=1)).look()
    assert [run.run_id for run in workspace.runs()] == [own.run_id]


def test_each_engine_is_told_what_ended_its_run(tmp_path: Path, visitors_run: FakeRun) -> None:
    end_runs(Workspace(tmp_path), 0, "Space")
    (command,) = visitors_run.writer.pending_commands()
    assert command.payload == {"by": BY, "cause": "The Space was restarted"}
    record_stop(visitors_run.writer, asked_by(command))
    assert Workspace(tmp_path).status(visitors_run.run_id).cause == "The Space was restarted"


@pytest.mark.parametrize("mode", [Mode.SPACE, Mode.CLASSROOM])
def test_an_app_with_visitors_clears_away_after_them(
    mode: Mode, tmp_path: Path, visitors_run: FakeRun, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    visitors_run.writer.set_state("stopped")
    visitors_run.close()
    monkeypatch.setattr(app, "Janitor", partial(Janitor, interval=0.01))
    monkeypatch.setattr(app, "budget_for", lambda mode: Budget(limits=Limits(hours=0)))
    with served(mode, tmp_path, tmp_path_factory.mktemp("world")) as running:
        wait_until(lambda: running.workspace.folders() == [])


# --- by raw HTTP ------------------------------------------------------------------------------------------------------------------------


@contextmanager
def served(mode: Mode, root: Path, world: Path, token: str = TOKEN) -> Iterator[Server]:
    """A running app in this mode, whose engines are stand-ins. Without a ``token`` it makes one itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(TOKEN_VARIABLE, token)
        install_world(world, patch)
        running = launch(root, mode=mode, start=start_stand_in, permissions=NOTHING_ALLOWED)
        yield running
        running.close()


def raw_of(server: Server) -> Raw:
    match = re.search(r":(\d+)/", server.url)
    assert match is not None
    return Raw(int(match[1]))


@pytest.fixture
def space(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(Mode.SPACE, tmp_path, tmp_path_factory.mktemp("world")) as running:
        yield running


def start(server: Server, visitor: str, **values: Any) -> dict[str, Any]:
    """Press Start as a visitor; gives the outcome."""
    raw, (path, body) = raw_of(server), functions_of(server)["start_run"]
    sent = {"values": {**values_of(WORLD.config), **values}, "basis": "world", "nonce": f"{visitor} {values}"}
    headers = {"Cookie": f"{identity.COOKIE}={server.access.visitors.signed(visitor)}"}
    status, text = raw.send("POST", path, body(sent), headers)
    assert status == 200, text
    outcome: dict[str, Any] = json.loads(json.loads(text)["data"][0])
    return outcome


def test_what_the_owner_deletes_goes_from_the_bucket_too(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = tmp_path_factory.mktemp("bucket")
    monkeypatch.setenv("RLHF_STUDIO_BUCKET", str(bucket))
    run = FakeRun(tmp_path)
    run.run()
    run.step()
    run.writer.set_state("finished")
    run.close()
    with served(Mode.SPACE, tmp_path, tmp_path_factory.mktemp("world")) as running:
        wait_until(lambda: any(folder.name == f"{run.run_id}.1" for folder in bucket.iterdir()))
        running.workspace.delete(run.run_id)
        wait_until(lambda: list(bucket.iterdir()) == [])


def press(server: Server, visitor: str, button: str, run: str, **more: Any) -> int:
    path, body = functions_of(server)[button]
    status, text = raw_of(server).send(
        "POST", path, body({"run": run, **more}), {"Cookie": f"{identity.COOKIE}={server.access.visitors.signed(visitor)}"}
    )
    assert status == 200 or b"duplicate this Space" in text, text
    return status


def test_a_visitor_starts_a_run_and_stops_it_and_nobody_else_does(space: Server) -> None:
    run = start(space, ANN, **{"ppo.steps": 20})["run_id"]
    wait_until(lambda: space.workspace.status(run).state == "running")
    assert space.workspace.status(run).starter.role == "visitor"
    (again,) = start(space, ANN, **{"ppo.steps": 21})["problems"]
    assert "Your run is at work" in again["message"]
    other = start(space, BOB)["run_id"]
    assert space.workspace.queue_position(other) == 1
    assert press(space, BOB, "stop_run", run) != 200
    assert space.workspace.status(run).stop_asked_age is None
    assert again["field"] == "" and start(space, ANN, **{"ppo.steps": 22})["run"] == run  # the page leads to it
    assert press(space, ANN, "stop_run", run) == 200
    wait_until(lambda: space.workspace.status(run).state == "stopped")
    wait_until(lambda: space.workspace.status(other).state in ("running", "finished"))
    assert press(space, BOB, "stop_run", other) == 200
    wait_until(lambda: space.workspace.status(other).state in ("stopped", "finished"))


def test_the_runs_page_stops_a_run_for_whoever_started_it_and_for_nobody_else(tmp_path: Path, visitors_run: FakeRun) -> None:
    page = RunsPage(Workspace(tmp_path), Access(Mode.SPACE, loopback=False, visitors=VISITORS))
    with change(tmp_path) as connection:
        set_starter(connection, visitors_run.run_id, Starter("visitor", key=identity.key_of(ANN)))
    with pytest.raises(gr.Error, match="duplicate this Space"):
        page.stop({"run": visitors_run.run_id}, from_browser_of(BOB))
    assert visitors_run.writer.pending_commands() == []
    page.stop({"run": visitors_run.run_id}, from_browser_of(ANN))
    (command,) = visitors_run.writer.pending_commands()
    assert (command.kind, command.payload) == ("stop", {"by": "the visitor who started it"})


def from_browser_of(visitor: str) -> Any:
    headers = Headers({"host": "ada-studio.hf.space", "cookie": f"{identity.COOKIE}={VISITORS.signed(visitor)}"})
    return SimpleNamespace(headers=headers, client=SimpleNamespace(host="10.0.0.7"), query_params={})


@pytest.mark.parametrize("mode", list(Mode))
def test_train_offers_what_can_be_done_here(mode: Mode) -> None:
    offer = offered(Access(mode, loopback=False, visitors=VISITORS), {}, from_browser_of(ANN))
    assert not offer["operator"]
    assert offer["here"] == (list(RECIPES) if mode is Mode.SPACE else [])  # this browser has not opened the class link
    assert [row["run"] for row in offer["recordings"]] == (
        [recording.run_id for recording in RECORDINGS] if mode in (Mode.SPACE, Mode.READ_ONLY) else []
    )
    assert bool(offer["why_not"]) == (mode is not Mode.READ_ONLY)
    line = where(Access(mode, loopback=False, visitors=VISITORS))({}, from_browser_of(ANN))
    assert (line["starts"], line["limit"]) == ((True, 600) if mode is Mode.SPACE else (False, 0))


def test_a_visitor_is_told_what_is_not_allowed_here(space: Server) -> None:
    (problem,) = start(space, ANN, **{"ppo.steps": 500})["problems"]
    assert problem["field"] == "ppo.steps" and "at most 40" in problem["message"]
    (problem,) = start(space, ANN, **{"model.policy": "/etc"})["problems"]
    assert problem["field"] == "model.policy"
    assert space.workspace.folders() == []


def test_the_first_visit_gives_a_cookie_that_a_frame_may_keep(space: Server) -> None:
    import urllib.request

    with urllib.request.urlopen(space.url) as answer:
        cookie = answer.headers["set-cookie"]
    value = cookie.removeprefix(f"{identity.COOKIE}=").split(";")[0]
    assert identity.VALUE.fullmatch(value) and space.access.visitors.key_of(value) not in ("", value)
    assert {"HttpOnly", "Secure", "SameSite=None", "Partitioned"} <= {part.strip() for part in cookie.split(";")}
    for value_sent, given in ((value, False), (value[:-1], True), (f"{value}x", True), ("", True)):
        request = urllib.request.Request(space.url, headers={"Cookie": f"{identity.COOKIE}={value_sent}"})
        with urllib.request.urlopen(request) as answer:
            assert (answer.headers["set-cookie"] is not None) == given
