"""Visitors and students with runs of their own, and with those of others, by raw HTTP."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from rlhf_studio.config.recipes import list_recipes
from rlhf_studio.ui.form import values_of
from rlhf_studio.ui.train_page import TrainPage
from tests.access import table
from tests.access.apps import ANN, BOB, SECRETS, ServedApp, contents, cookie_of, people_of, served
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

WORLD = values_of(next(recipe.config for recipe in list_recipes() if recipe.name == "world"))
WHO = {table.CLASS: table.STUDENT, table.SPACE: table.VISITOR}
ENDLESS = {**WORLD, "ppo.steps": 20}  # of the stand-in: until it is stopped
WATCHES = b'"title":"You are watching"'
BUTTONS = sorted(table.OWN_RUNS - table.PROGRAMS - {"start_run", "start_like", "live-page.resume_question"})


@pytest.fixture(scope="module", params=WHO)
def served_app(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApp]:
    folder = tmp_path_factory.mktemp(request.param)
    with served(request.param, folder / "workspace", folder / "world") as made:
        yield made


@pytest.fixture
def app(served_app: ServedApp) -> Iterator[ServedApp]:
    """The app without runs, and everybody with the links of now."""
    served_app.people = people_of(served_app)
    yield served_app
    workspace = served_app.server.workspace
    for run in workspace.runs():
        if run.state in ("queued", "running", "loading"):
            served_app.call("stop_run", {"run": run.run_id}, served_app.people[table.OPERATOR])
    wait_until(lambda: all(run.state not in ("queued", "running", "loading") for run in workspace.runs()))
    for run in workspace.runs():
        workspace.delete(run.run_id)


def bob(app: ServedApp) -> dict[str, str]:
    """Somebody else of the same kind."""
    headers = dict(app.people[WHO[app.mode]])
    return {**headers, "Cookie": cookie_of(app.server, BOB)}


def commands(app: ServedApp, run: str) -> list[tuple[str, Any]]:
    """The commands to a run's engine, as the run's database has them."""
    with closing(sqlite3.connect(app.server.workspace.run_dir(run) / "run.db")) as connection:
        return [tuple(row) for row in connection.execute("SELECT kind, payload FROM commands ORDER BY id")]


def test_people_steer_their_own_run_within_its_bounds_and_nobody_else_s(app: ServedApp) -> None:
    me = app.people[WHO[app.mode]]
    run = app.start(WHO[app.mode], **ENDLESS)["run_id"]
    wait_until(lambda: app.server.workspace.status(run).step == 5)  # now it waits
    other = bob(app)
    before = contents(app.root)
    for button in BUTTONS:
        status, text = app.call(button, {"run": run, "changes": {"ppo.kl_coef": 0.5}, "from_start": True}, other)
        assert status == 500 and WATCHES in text, (button, status, text)
    for function in sorted(table.OPERATE):
        assert app.call(function, {"run": run, "action": "rename", "name": "mine", "how": "more steps"}, me)[0] == 403, function
    for changes in (
        *({name: 10**9} for name in ("ppo.steps", "ppo.batch_size", "ppo.ppo_epochs", "generation.response_length", "engine.threads")),
        *({"ppo.schedule": "1 ppo.kl_coef 3"}, {"ppo.kl_coef": -1}, {"ppo.kl_coef": "0.1"}, {"ppo.kl_coef": True}, {"ppo.kl_coef": 1e300}),
        *({}, [], "x", None, {"ppo": {"steps": 99}}, {"ppo.kl_coef": 0.1, "ppo.steps": 9}, {"": 1}, {"ppo.kl_target": 0}),
    ):
        assert app.call("set_run", {"run": run, "changes": changes}, me)[0] == 500, changes
    assert contents(app.root) == before
    assert app.call("set_run", {"run": run, "changes": {"ppo.kl_coef": 0.25}}, me)[0] == 200
    assert app.call("pause_run", {"run": run}, me)[0] == 200
    assert [kind for kind, _ in commands(app, run)] == ["set", "pause"]
    assert app.call("stop_run", {"run": run}, me)[0] == 200
    wait_until(lambda: app.server.workspace.status(run).state == "stopped")


def test_of_many_starts_at_once_by_one_person_one_run_is_made(app: ServedApp) -> None:

    def start(number: int) -> bool:
        other = ServedApp(app.mode, app.server, people=app.people)
        data = {"values": ENDLESS, "basis": "world", "nonce": f"race {number}"}
        status, text = other.call("start_run", data, app.people[WHO[app.mode]], session=f"race{number}")
        assert status in (200, 503), text
        return b"run_id" in text

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(start, range(6))) == 1
    assert len(app.server.workspace.folders()) == 1


def test_nobody_fills_the_line_of_starts(app: ServedApp, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for other people nor for the operator, even under many new names. No start is checked before all have asked."""
    begun, go_on = threading.Semaphore(0), threading.Event()

    def slow(self: Any, data: Any, request: Any) -> Any:
        begun.release()
        assert go_on.wait(60)
        return {}

    monkeypatch.setattr(TrainPage, "start", slow)
    path, body = app.functions["start_run"]

    def ask(headers: dict[str, str]) -> int:
        other = ServedApp(app.mode, app.server, people=app.people)
        return other.send("POST", path, body({}), headers)[0]

    def asked_by(number: int) -> dict[str, str]:
        return {**app.people[WHO[app.mode]], "Cookie": cookie_of(app.server, f"{number:022d}")}

    with ThreadPoolExecutor(40) as pool:
        mine = [pool.submit(ask, asked_by(0)) for _ in range(3)]
        for _ in mine:
            assert begun.acquire(timeout=20)
        assert ask(asked_by(0)) == 503
        others = [pool.submit(ask, asked_by(number)) for number in range(1, 30)]
        assert wait_until(lambda: sum(other.done() for other in others) == 8)  # one is looked at and twenty wait
        operator = pool.submit(ask, app.people[table.OPERATOR])
        assert begun.acquire(timeout=20) and begun.acquire(timeout=20)  # one of the others', and the operator's, who waits for nobody
        go_on.set()
        assert [answer.result() for answer in (*mine, operator)] == [200] * 4
        assert sorted(other.result() for other in others) == [200] * 21 + [503] * 8


def test_without_a_cookie_visitors_are_told_apart_by_their_address_and_students_have_no_place(app: ServedApp) -> None:
    """In a frame, the browser may block cookies. A cookie value that this app did not give counts as no cookie."""
    who = WHO[app.mode]
    plain = {key: value for key, value in app.people[who].items() if key != "Cookie"}
    app.people[who] = {**plain, "Cookie": f"rlhf_studio_visitor={'g' * 22}.{'g' * 22}"}
    if app.mode == table.CLASS:
        assert app.call("start_run", {"values": ENDLESS, "basis": "world", "nonce": "n"}, app.people[who])[0] == 403
        return
    run = app.start(who, **ENDLESS)["run_id"]
    wait_until(lambda: app.server.workspace.status(run).state == "running")
    status, text = app.call("stop_run", {"run": run}, bob(app))
    assert status == 500 and WATCHES in text
    status, text = app.call("stop_run", {"run": run}, plain)
    assert status == 200, text


def test_who_has_opened_a_link_that_has_ended_is_a_viewer_at_once(app: ServedApp) -> None:
    if app.mode != table.CLASS:
        return
    me, teacher = app.people[table.STUDENT], app.people[table.OPERATOR]
    run = app.start(table.STUDENT, **ENDLESS)["run_id"]
    wait_until(lambda: app.server.workspace.status(run).step == 5)  # now it waits
    assert app.call("shell-page.class_change", {"renew": True}, teacher)[0] == 200
    before = contents(app.root)
    for function in sorted(table.OWN_RUNS | table.VOTE | table.ANSWER):
        assert app.call(function, {"run": run, "values": ENDLESS, "basis": "world", "nonce": "n"}, me)[0] == 403, function
    assert json.loads(app.call("shell-page.where", {}, me)[1])["line"] == app.server.access.why_not(None)
    assert contents(app.root) == before
    again = {**me, "X-RLHF-Studio-Class-Token": app.server.access.room.link, "Cookie": cookie_of(app.server, ANN)}
    assert app.call("stop_run", {"run": run}, again)[0] == 200  # the cookie still says whose it is


def test_what_costs_more_than_the_budget_is_not_started(app: ServedApp) -> None:
    if app.mode != table.SPACE:
        return
    for changed in (
        *({"ppo.steps": value} for value in (41, 10**20, "41", 40.5, True, None, [40])),
        *({name: 10**6} for name in ("ppo.batch_size", "ppo.ppo_epochs", "ppo.responses_per_prompt", "generation.response_length")),
        *({"data.prompts": "/etc/passwd"}, {"data": {"prompts": "/etc/passwd"}}, {"model.policy": "gpt2"}, {"reward.components": []}),
        *({"engine.report_to": "wandb"}, {"engine.threads": 64}, {"ppo.schedule": "2 ppo.kl_coef 1"}, {"config": "x"}, {"name": "x" * 121}),
    ):
        outcome = app.start(table.VISITOR, **{**WORLD, **changed})
        assert "run_id" not in outcome and outcome["problems"], (changed, outcome)
    assert app.server.workspace.folders() == []


def test_another_run_is_no_beginning(app: ServedApp, caplog: pytest.LogCaptureFixture) -> None:
    """A visitor can neither vary nor resume another run, however it is named. Nothing that a visitor can send fills the log."""
    if app.mode != table.SPACE:
        return
    run = app.start(table.VISITOR, **ENDLESS)["run_id"]
    for parent in (run, "../x", "no-such-run", "x\x00"):
        for resume in (False, True):
            data = {"values": WORLD, "basis": "world", "parent": parent, "resume": resume}
            status, text = app.call("start_run", data, bob(app), session=f"p{len(parent)}{resume}")
            assert status == 200 and b"run_id" not in text and b"problems" in text, text
    assert [record.getMessage() for record in caplog.records if record.levelname in ("ERROR", "WARNING")] == []
    assert all(secret not in caplog.text for secret in SECRETS.values())
