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
from tests.access.apps import ANN, BOB, SECRETS, Place, contents, cookie_of, people_of, served
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

WORLD = values_of(next(recipe.config for recipe in list_recipes() if recipe.name == "world"))
WHO = {table.CLASS: table.STUDENT, table.SPACE: table.VISITOR}
ENDLESS = {**WORLD, "ppo.steps": 20}  # of the stand-in: until it is stopped
WATCHES = b'"title":"You are watching"'
BUTTONS = sorted(table.OWN_RUNS - {"start_run", "live-page.resume_question"})


@pytest.fixture(scope="module", params=WHO)
def app(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp(request.param)
    with served(request.param, folder / "workspace", folder / "world") as made:
        yield made


@pytest.fixture
def place(app: Place) -> Iterator[Place]:
    """The app without runs, and everybody with the links of now."""
    app.people = people_of(app)
    yield app
    workspace = app.server.workspace
    for run in workspace.runs():
        if run.state in ("queued", "running", "loading"):
            app.call("stop_run", {"run": run.run_id}, app.people[table.OPERATOR])
    wait_until(lambda: all(run.state not in ("queued", "running", "loading") for run in workspace.runs()))
    for run in workspace.runs():
        workspace.delete(run.run_id)


def bob(place: Place) -> dict[str, str]:
    """Somebody else of the same kind."""
    headers = dict(place.people[WHO[place.mode]])
    return {**headers, "Cookie": cookie_of(place.server, BOB)}


def commands(place: Place, run: str) -> list[tuple[str, Any]]:
    """What was asked of a run's engine, as it is kept."""
    with closing(sqlite3.connect(place.server.workspace.run_dir(run) / "run.db")) as connection:
        return [tuple(row) for row in connection.execute("SELECT kind, payload FROM commands ORDER BY id")]


def test_people_steer_their_own_run_within_its_bounds_and_nobody_else_s(place: Place) -> None:
    me = place.people[WHO[place.mode]]
    run = place.start(WHO[place.mode], **ENDLESS)["run_id"]
    wait_until(lambda: place.server.workspace.status(run).step == 5)  # now it waits
    other = bob(place)
    before = contents(place.root)
    for button in BUTTONS:
        status, text = place.call(button, {"run": run, "changes": {"ppo.kl_coef": 0.5}, "from_start": True}, other)
        assert status == 500 and WATCHES in text, (button, status, text)
    for function in sorted(table.OPERATE):
        assert place.call(function, {"run": run, "action": "rename", "name": "mine", "how": "more steps"}, me)[0] == 403, function
    for changes in (
        *({name: 10**9} for name in ("ppo.steps", "ppo.batch_size", "ppo.ppo_epochs", "generation.response_length", "engine.threads")),
        *({"ppo.schedule": "1 ppo.kl_coef 3"}, {"ppo.kl_coef": -1}, {"ppo.kl_coef": "0.1"}, {"ppo.kl_coef": True}, {"ppo.kl_coef": 1e300}),
        *({}, [], "x", None, {"ppo": {"steps": 99}}, {"ppo.kl_coef": 0.1, "ppo.steps": 9}, {"": 1}, {"ppo.kl_target": 0}),
    ):
        assert place.call("set_run", {"run": run, "changes": changes}, me)[0] == 500, changes
    assert contents(place.root) == before
    assert place.call("set_run", {"run": run, "changes": {"ppo.kl_coef": 0.25}}, me)[0] == 200
    assert place.call("pause_run", {"run": run}, me)[0] == 200
    assert [kind for kind, _ in commands(place, run)] == ["set", "pause"]
    assert place.call("stop_run", {"run": run}, me)[0] == 200
    wait_until(lambda: place.server.workspace.status(run).state == "stopped")


def test_of_many_starts_at_once_by_one_person_one_run_is_made(place: Place) -> None:

    def one(number: int) -> bool:
        other = Place(place.mode, place.server, people=place.people)
        data = {"values": ENDLESS, "basis": "world", "nonce": f"race {number}"}
        status, text = other.call("start_run", data, place.people[WHO[place.mode]], session=f"race{number}")
        assert status in (200, 503), text
        return b"run_id" in text

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(one, range(6))) == 1
    assert len(place.server.workspace.folders()) == 1


def test_nobody_fills_the_line_of_starts(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for others nor for the operator, also not under ever new names. No start is looked at before all have asked."""
    begun, go_on = threading.Semaphore(0), threading.Event()

    def slow(self: Any, data: Any, request: Any) -> Any:
        begun.release()
        assert go_on.wait(60)
        return {}

    monkeypatch.setattr(TrainPage, "start", slow)
    path, body = place.functions["start_run"]

    def ask(headers: dict[str, str]) -> int:
        other = Place(place.mode, place.server, people=place.people)
        return other.send("POST", path, body({}), headers)[0]

    def asked_by(number: int) -> dict[str, str]:
        return {**place.people[WHO[place.mode]], "Cookie": cookie_of(place.server, f"{number:022d}")}

    with ThreadPoolExecutor(40) as pool:
        mine = [pool.submit(ask, asked_by(0)) for _ in range(3)]
        for _ in mine:
            assert begun.acquire(timeout=20)
        assert ask(asked_by(0)) == 503
        others = [pool.submit(ask, asked_by(number)) for number in range(1, 30)]
        assert wait_until(lambda: sum(other.done() for other in others) == 8)  # one is looked at and twenty wait
        operator = pool.submit(ask, place.people[table.OPERATOR])
        assert begun.acquire(timeout=20) and begun.acquire(timeout=20)  # one of the others', and the operator's, who waits for nobody
        go_on.set()
        assert [one.result() for one in (*mine, operator)] == [200] * 4
        assert sorted(other.result() for other in others) == [200] * 21 + [503] * 8


def test_without_a_cookie_visitors_are_told_apart_by_their_address_and_students_have_no_place(place: Place) -> None:
    """As in a frame whose cookies the browser blocks; a value that the app did not give is none."""
    who = WHO[place.mode]
    plain = {key: value for key, value in place.people[who].items() if key != "Cookie"}
    place.people[who] = {**plain, "Cookie": f"rlhf_studio_visitor={'g' * 22}.{'g' * 22}"}
    if place.mode == table.CLASS:
        assert place.call("start_run", {"values": ENDLESS, "basis": "world", "nonce": "n"}, place.people[who])[0] == 403
        return
    run = place.start(who, **ENDLESS)["run_id"]
    wait_until(lambda: place.server.workspace.status(run).state == "running")
    status, text = place.call("stop_run", {"run": run}, bob(place))
    assert status == 500 and WATCHES in text
    status, text = place.call("stop_run", {"run": run}, plain)
    assert status == 200, text


def test_who_has_opened_a_link_that_has_ended_is_a_viewer_at_once(place: Place) -> None:
    if place.mode != table.CLASS:
        return
    me, teacher = place.people[table.STUDENT], place.people[table.OPERATOR]
    run = place.start(table.STUDENT, **ENDLESS)["run_id"]
    wait_until(lambda: place.server.workspace.status(run).step == 5)  # now it waits
    assert place.call("shell-page.class_change", {"renew": True}, teacher)[0] == 200
    before = contents(place.root)
    for function in sorted(table.OWN_RUNS | table.VOTE | table.ANSWER):
        assert place.call(function, {"run": run, "values": ENDLESS, "basis": "world", "nonce": "n"}, me)[0] == 403, function
    assert json.loads(place.call("shell-page.where", {}, me)[1])["line"] == place.server.access.why_not(None)
    assert contents(place.root) == before
    again = {**me, "X-RLHF-Studio-Class-Token": place.server.access.room.link, "Cookie": cookie_of(place.server, ANN)}
    assert place.call("stop_run", {"run": run}, again)[0] == 200  # the cookie still says whose it is


def test_what_costs_more_than_the_budget_is_not_started(place: Place) -> None:
    if place.mode != table.SPACE:
        return
    for changed in (
        *({"ppo.steps": value} for value in (41, 10**20, "41", 40.5, True, None, [40])),
        *({name: 10**6} for name in ("ppo.batch_size", "ppo.ppo_epochs", "ppo.responses_per_prompt", "generation.response_length")),
        *({"data.prompts": "/etc/passwd"}, {"data": {"prompts": "/etc/passwd"}}, {"model.policy": "gpt2"}, {"reward.components": []}),
        *({"engine.report_to": "wandb"}, {"engine.threads": 64}, {"ppo.schedule": "2 ppo.kl_coef 1"}, {"config": "x"}, {"name": "x" * 121}),
    ):
        outcome = place.start(table.VISITOR, **{**WORLD, **changed})
        assert "run_id" not in outcome and outcome["problems"], (changed, outcome)
    assert place.server.workspace.folders() == []


def test_another_run_is_no_beginning(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """Neither to vary nor to resume, however it is named; and nothing that a visitor can send fills the log."""
    if place.mode != table.SPACE:
        return
    run = place.start(table.VISITOR, **ENDLESS)["run_id"]
    for parent in (run, "../x", "no-such-run", "x\x00"):
        for resume in (False, True):
            data = {"values": WORLD, "basis": "world", "parent": parent, "resume": resume}
            status, text = place.call("start_run", data, bob(place), session=f"p{len(parent)}{resume}")
            assert status == 200 and b"run_id" not in text and b"problems" in text, text
    assert [record.getMessage() for record in caplog.records if record.levelname in ("ERROR", "WARNING")] == []
    assert all(secret not in caplog.text for secret in SECRETS.values())
