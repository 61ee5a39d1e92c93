"""Everybody against everything, by raw HTTP, in each of the four modes: what the table allows, and not a byte more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.access import table
from tests.access.apps import SECRETS, ServedApp, contents, inhabited, served
from tests.ui.raw_http import routes_of


@pytest.mark.parametrize("mode", table.MODES)
def test_what_the_table_allows_is_answered_and_nothing_else_is_or_changes_a_byte(mode: str, tmp_path: Path) -> None:
    """One app in each mode, with the runs of several people; each check names the cell that fails."""
    with served(mode, tmp_path / "workspace", tmp_path / "world") as empty, inhabited(empty) as app:
        each_function_and_address_was_decided_about(app)
        for who in app.people:
            only_allowed_functions_answer(app, who)
        each_address_is_for_whom_the_table_says(app)
        what_means_something_elsewhere_makes_nobody_more(app)
        a_page_that_was_opened_to_watch_changes_nothing(app)
        what_browsers_are_told(app)
        where_the_workspace_lies_is_told_to_operators_alone(app)
        no_secret_is_in_any_file(app)


def each_function_and_address_was_decided_about(app: ServedApp) -> None:
    assert set(app.functions) == table.EVERYTHING
    assert len(table.EVERYTHING) == sum(map(len, table.GROUPS))
    assert set(routes_of(app.server)) > table.PUBLIC | table.WATCHED


def attempts(app: ServedApp, who: str, function: str) -> Iterator[Any]:
    """Data for a function that tries to change something of another person, or to make the function fail."""
    allowed = table.may(app.mode, who, function)
    if allowed:
        yield None
    if allowed and (
        who in (table.RATER, table.OPERATOR) or (who, app.mode) in ((table.VIEWER, table.CLASS), (table.VIEWER, table.READ_ONLY))
    ):
        return  # they watch as the viewers of a local app do, and what else they do has tests of its own
    for name in ("operator", "bob", "ended", "waiting") if allowed and function in table.OWN_RUNS else ("ended",):
        run = app.runs[name]
        yield {
            **{"run": run, "parent": run, "runs": [run, run], "action": "delete", "name": "taken over", "to": 1, "tags": ["x"]},
            **{"text": "ppo: {steps: 3}", "op": "start", "how": "variation", "changes": {"ppo.kl_coef": 0.5}, "from_start": True},
            **{"basis": "world", "values": {"ppo.steps": 3}, "nonce": f"{function}{name}", "resume": True, "what": "csv", "kind": "csv"},
            **{"task": app.task, "secret": "s" * 20, "policies": f"{run}@2", "rounds": 1, "renew": True, "lead": None},
        }
    if allowed:
        yield {"run": "../../etc", "kind": "settings", "runs": ["..", "a/b"], "lesson": "../x", "file": "/etc/passwd"}


def only_allowed_functions_answer(app: ServedApp, who: str) -> None:
    """People who play may vote, and may ask about their own runs. All runs here belong to others, so no run changes."""
    headers, votes = app.people[who], table.may(app.mode, who, "feedback-page.vote")
    but = ("people.db",) if votes or who == table.STUDENT else ()
    before = contents(app.root, but=but)
    for function in sorted(app.functions):
        allowed = table.may(app.mode, who, function)
        if who == table.OPERATOR and allowed and function not in table.WATCH:
            continue  # what operators do has tests of its own
        for data in attempts(app, who, function):
            status, text = app.call(function, data, headers)
            assert status in ((200, 500) if allowed else (403,)), (app.mode, who, function, data, status, text)
    assert contents(app.root, but=but) == before


def each_address_is_for_whom_the_table_says(app: ServedApp) -> None:
    before = contents(app.root)
    routes = routes_of(app.server)
    for who, headers in app.people.items():
        for row, path in sorted(routes.items()):
            method = row.split(" ")[0]
            status, _, text = app.send(method, path, {} if method == "POST" else None, headers)
            known = row in table.PUBLIC or (row in table.WATCHED and who != table.FOREIGN)
            assert (status == 403) != known and status < 500, (app.mode, who, row, status, text)
        for row in ("GET /docs", "PUT /", "DELETE /gradio_api/queue/join", "POST /", "GET //gradio_api/config"):
            method, path = row.split()
            assert app.send(method, path, None, headers)[0] == 404, (who, row)
    operator = app.people[table.OPERATOR]
    assert contents(app.root) == before
    if app.mode != table.LOCAL:
        return  # the names are looked at before who asks
    for name in ("evil.example", f"evil.example:{app.port}", "127.0.0.1.evil.example", "", "[", "a b"):  # DNS rebinding
        for row, path in routes.items() if name == "evil.example" else [("POST", app.functions["runs-page.runs"][0])]:
            method = row.split(" ")[0]
            status, _, text = app.send(method, path, {} if method == "POST" else None, {**operator, "Host": name})
            assert status in (400, 421) and (b"rlhf" not in text.lower() or b"RLHF_STUDIO_HOSTS" in text), (name, row, status, text)


def what_means_something_elsewhere_makes_nobody_more(app: ServedApp) -> None:
    """Cookies and tokens of other modes, headers, addresses that lead away, and a JSON member that is given twice."""
    who = table.VISITOR if app.mode == table.SPACE else table.VIEWER
    run, me = app.runs["ended"], app.people[who]
    foreign = {"rlhf_studio_class": "x" * 12, "rlhf_studio_operator": "x", "session": f"99999999999.{'x' * 43}"}
    if app.mode != table.CLASS:
        foreign["rlhf_studio_class"] = app.server.access.room.link
    before = contents(app.root)
    for function in sorted(table.OPERATE | table.ANSWER | (frozenset() if app.mode == table.SPACE else table.OWN_RUNS)):
        assert app.call(function, {"run": app.runs["bob"]}, app.as_person(who, **foreign))[0] == 403, function
    headers = {
        "X-HTTP-Method-Override": ["GET"],
        **{name: ["127.0.0.1"] for name in ("X-Forwarded-For", "X-Real-IP", "X-Forwarded-Host")},
        "Host": ["localhost", "[::1]:7860"],
        "Origin": ["http://127.0.0.1"],
        "Sec-Fetch-Site": ["none"],
        "Authorization": ["Bearer x"],
        "X-RLHF-Studio-Token": ["", "canary", table.OPERATOR],
        "Cookie": ["rlhf_studio_operator=", 'rlhf_studio_operator=""'],
    }
    for name, value in ((name, value) for name, values in headers.items() for value in values):
        assert app.call("runs-page.loss", {"run": run}, {**me, name: value})[0] == 403, (name, value)
    for path in ("/?", "/?operator=x&", "/?class=x&"):
        _, headers_received, _ = app.send("GET", f"{path}next=//evil.example&redirect_uri=//evil.example", None, me)
        assert "evil" not in headers_received.get("location", ""), path
    for path in ("//evil.example/", "/\\evil.example", f"/exports/{run}/..%2frun.db", "/gradio_api/file=/etc/passwd", "/%2e%2e/etc/passwd"):
        assert app.send("GET", path, None, me)[0] in (400, 403, 404), path
    component = app.functions["shell-page.where"][1]({})["component_id"]
    twice = (
        f'{{"fn_name": "class_change", "fn_name": "where", "component_id": {component}, "data": {{"renew": true}}, "session_hash": "s"}}'
    )
    assert b'"mode"' in app.send("POST", "/gradio_api/component_server/", twice.encode(), me)[2]  # what was checked is what is asked
    assert contents(app.root) == before


def a_page_that_was_opened_to_watch_changes_nothing(app: ServedApp) -> None:
    """It says so with each question (``?view=1``): its person is a viewer then, also an operator."""
    before = contents(app.root)
    for function in sorted(table.EVERYTHING - table.WATCH - table.PROGRAMS):
        for data in attempts(app, table.FOREIGN, function):
            app.call(function, {**data, "view": True}, app.people[table.OPERATOR])
    assert contents(app.root) == before


def what_browsers_are_told(app: ServedApp) -> None:
    """Nobody keeps the page for others (with it comes a cookie of one's own), no foreign page frames it or brings a script into it."""
    for path in ("/", "/config"):
        assert app.send("GET", path, None, app.people[table.OPERATOR])[1]["cache-control"] == "no-store"
    hub = ["https://huggingface.co"] if app.mode == table.SPACE else []
    for path in ("/", "/no/such/page"):
        _, headers, _ = app.send("GET", path)
        rules = (rule.partition(" ") for rule in headers["content-security-policy"].split("; "))
        policy = {name: sources.split() for name, _, sources in rules}
        assert policy.pop("frame-ancestors") == (hub or ["'none'"])
        assert headers.get("x-frame-options") == (None if hub else "DENY")
        assert policy["object-src"] == policy["default-src"] == ["'none'"] and policy.pop("connect-src") == ["'self'", *hub]
        assert {"base-uri", "form-action"} <= policy.keys() and "'unsafe-inline'" not in policy["script-src"]
        every = {source for sources in policy.values() for source in sources}
        assert all(source.startswith("'") or source in ("data:", "blob:") for source in every)  # no other host


def where_the_workspace_lies_is_told_to_operators_alone(app: ServedApp) -> None:
    """Errors of a damaged run name files of the workspace. Viewers get these sentences without the workspace's path."""
    run = app.server.workspace.run_dir(app.runs["ended"])
    config, database = run / "config.yaml", run / "run.db"
    originals = {path: path.read_bytes() for path in (config, database)}
    who = table.VISITOR if app.mode == table.SPACE else table.VIEWER
    reports = 0
    for path, damage in ((config, b"{"), (database, b"no database" * 99)):
        path.write_bytes(damage)
        for suffix in ("-wal", "-shm"):
            database.with_name(f"run.db{suffix}").unlink(missing_ok=True)
        for function in sorted(name for name in table.WATCH if not name.startswith("learn-page.") or name == "learn-page.learn_ask"):
            for kind in (None, "settings", "samples", "csv") if function in ("live-page.fetch", "evaluate-page.file") else (None,):
                data = {"run": run.name, "runs": [run.name], "kind": kind, "parent": run.name, "op": "describe", "lesson": "kl"}
                _, text = app.call(function, data, app.people[who])
                assert str(app.root).encode() not in text, (function, text)
                reports += b"run.db" in text or b"config.yaml" in text
        path.write_bytes(originals[path])
    assert reports >= 6


def no_secret_is_in_any_file(app: ServedApp) -> None:
    for path in app.root.rglob("*"):
        if path.is_file():
            held = [name for name, secret in SECRETS.items() if secret.encode() in path.read_bytes()]
            assert not held, (path, held)
