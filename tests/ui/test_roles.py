"""The table of roles against the running app: nothing is missing in it, and every row holds for every role, by raw HTTP."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.estimate.speed import Calibration
from rlhf_studio.runs.feedback import tasks
from rlhf_studio.ui import html, roles
from rlhf_studio.ui.access import HEADER, RATER_HEADER, TOKEN_VARIABLE
from rlhf_studio.ui.app import Server, launch
from rlhf_studio.ui.door import handlers_of, server_functions_of
from rlhf_studio.ui.roles import Role
from tests.ui.fake_run import FakeRun
from tests.ui.raw_http import Raw
from tests.ui.train_helpers import install_world, start_stand_in

TOKEN = "a-long-secret"
AS: dict[Role, dict[str, str]] = {
    Role.ANYONE: {"Sec-Fetch-Site": "cross-site", HEADER: TOKEN},
    Role.VIEWER: {},
    Role.PLAYER: {RATER_HEADER: "a-rating-link"},
    Role.OPERATOR: {HEADER: TOKEN},
}
PARTS = {
    "path:path": "index.js",
    "path_or_url:path": f"{html.ASSETS.as_posix()}/train/train.js",
    "url_path:path": "https://x.hf.space/a",
    "component_id": "4",
    "size": "8",
    "environment": "client",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(TOKEN_VARIABLE, TOKEN)
        patch.setattr(Calibration, "begin", lambda self, device: None)
        patch.setattr(tasks.secrets, "token_urlsafe", lambda size: "a-rating-link")
        install_world(tmp_path_factory.mktemp("world"), patch)
        root = tmp_path_factory.mktemp("workspace")
        run = FakeRun(root)
        run.run()
        run.step()
        run.close()
        running = launch(root, start=start_stand_in)
        running.access.raters.make()
        yield running
        running.close()


@pytest.fixture(scope="module")
def raw(server: Server) -> Raw:
    return Raw(int(re.search(r":(\d+)/", server.url)[1]))


# --- what the running app has -------------------------------------------------------------------------------------------------------


def routes_of(server: Server) -> set[str]:
    """Every route of the app that is being served, those of included routers too."""

    def walk(found: Any) -> Iterator[Any]:
        for route in found:
            if hasattr(route, "effective_route_contexts"):
                yield from route.effective_route_contexts()
            elif getattr(route, "routes", None):
                yield from walk(route.routes)  # Gradio's app, which is mounted at the root
            else:
                yield route

    return {f"{method} {route.path}" for route in walk(server.served.app.routes) for method in route.methods}


def functions_of(server: Server) -> dict[str, tuple[str, Callable[[Any], Any]]]:
    """Every function that a request can name: (where it is asked for, its body for some data)."""
    found: dict[str, tuple[str, Callable[[Any], Any]]] = {}
    for index, event in server.demo.fns.items():
        path = "/gradio_api/run/predict"

        def body(data: Any, index: int = index) -> Any:
            return {"data": [], "event_data": data, "fn_index": index, "trigger_id": None, "session_hash": "s1"}

        assert event.fn.__name__ not in found
        found[event.fn.__name__] = (path, body)
    for index, block in server.demo.blocks.items():
        for name in {function.__name__ for function in getattr(block, "server_fns", None) or ()}:

            def ask(data: Any, index: int = index, name: str = name) -> Any:
                return {"data": data, "component_id": index, "fn_name": name, "session_hash": "s1"}

            found[f"{block.elem_id}.{name}"] = ("/gradio_api/component_server/", ask)
    return found


def test_the_table_has_a_row_for_each_route_and_function_of_the_running_app(server: Server) -> None:
    assert routes_of(server) == set(roles.ROUTES)
    assert set(functions_of(server)) == set(roles.FUNCTIONS)
    assert len(roles.ROUTES) > 80 and len(roles.FUNCTIONS) >= 24


def test_what_starts_changes_deletes_or_costs_is_for_operators() -> None:
    """Said here once more, by hand: an edit of the table alone must not open these."""
    buttons = {"stop_run", "force_stop_run", "checkpoint_run", "pause_run", "continue_run", "resume_run"}
    buttons |= {"discard_run", "step_run", "phase_run", "set_run"}
    costly = {"train-page.from_yaml", "train-page.try_reward", "runs-page.loss", "measure"}
    costly |= {f"feedback-page.{name}" for name in ("results", "rating_link", "add_items", "manage", "export", "train_on")}
    costly |= {f"{page}-page.{name}" for page in ("live", "runs") for name in ("resume_question", "experiment_start")}
    assert {name for name, role in roles.FUNCTIONS.items() if role >= Role.OPERATOR} >= {"start_run", "act_on_run", *buttons, *costly}
    players = {f"feedback-page.{name}" for name in ("join", "turn", "vote", "undo", "begin_again")}
    assert {name for name, role in roles.FUNCTIONS.items() if role is Role.PLAYER} == players
    assert {row for row, role in roles.ROUTES.items() if role is Role.ANYONE and row.startswith("POST")} == set()
    assert roles.ROUTES["POST /gradio_api/upload"] is Role.NOBODY


# --- every cell ----------------------------------------------------------------------------------------------------------------------


def contents(root: Path) -> dict[str, str]:
    """A sum of every file but SQLite's shared memory, which readers write too."""
    files = [path for path in root.rglob("*") if path.is_file() and not path.name.endswith("-shm")]
    return {path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def forged(name: str, run: str) -> list[Any]:
    """What a function might be sent: nothing, and what would change something if it were allowed."""
    values = {"values": {"ppo.steps": 3}, "basis": "world", "nonce": f"nonce-{name}"}
    return [None, {"run": run, "action": "delete", "name": "taken over", "text": "ppo: {steps: 3}", "op": "start", "kind": "log", **values}]


@pytest.mark.parametrize("role", AS, ids=lambda role: role.name)
def test_whoever_may_not_call_a_function_is_refused_and_nothing_changes(role: Role, server: Server, raw: Raw) -> None:
    (run,) = [status.run_id for status in server.workspace.runs()]
    before = contents(server.workspace.root)
    tried = 0
    for name, (path, body) in functions_of(server).items():
        if role >= roles.FUNCTIONS[name]:
            continue
        for data in forged(name, run):
            status, text = raw.send("POST", path, body(data), AS[role])
            assert status == 403, (name, status, text)
            tried += 1
    assert contents(server.workspace.root) == before
    assert tried == 2 * sum(wanted > role for wanted in roles.FUNCTIONS.values())


@pytest.mark.parametrize("role", AS, ids=lambda role: role.name)
def test_whoever_may_call_a_function_is_answered(role: Role, server: Server, raw: Raw) -> None:
    for name, (path, body) in functions_of(server).items():
        if role >= roles.FUNCTIONS[name]:
            data = {"view": False} if role < Role.OPERATOR else {}
            status, text = raw.send("POST", path, body(data), AS[role])
            # 500 is how Gradio passes on our own sentence when a button names no run or action
            assert status == 200 or (status == 500 and b"There is no such " in text), (name, status, text)


@pytest.mark.parametrize("role", AS, ids=lambda role: role.name)
def test_every_route_holds_to_its_row(role: Role, server: Server, raw: Raw) -> None:
    before = contents(server.workspace.root)
    for row, wanted in roles.ROUTES.items():
        method, pattern = row.split(" ", 1)
        path = re.sub(r"{([^}]+)}", lambda part: PARTS.get(part[1], "x"), pattern)
        body = {} if method == "POST" else None
        status, text = raw.send(method, path, body, AS[role])
        if wanted > role:
            assert status == 403, (row, status, text)
        else:
            assert status not in (401, 403) and status < 500, (row, status, text)
    assert contents(server.workspace.root) == before


def test_what_is_not_in_the_table_is_refused_to_operators_too(server: Server, raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    for method, path in (
        ("GET", "/docs"),
        ("PUT", "/"),
        ("DELETE", "/gradio_api/queue/join"),
        ("POST", "/"),
        ("GET", "//gradio_api/config"),
    ):
        assert raw.send(method, path, headers=AS[Role.OPERATOR])[0] == 404
    monkeypatch.setattr(roles, "FUNCTIONS", {})
    found = [*handlers_of(server.demo).values(), *server_functions_of(server.demo).values()]
    assert len(found) >= 24 and {function.role for function in found} == {Role.NOBODY}


def test_a_wrong_token_makes_a_viewer(server: Server, raw: Raw) -> None:
    path, body = functions_of(server)["start_run"]
    for shown in ("", "a-long-secre", TOKEN + "x"):
        assert raw.send("POST", path, body({}), {HEADER: shown})[0] == 403


def test_under_a_foreign_name_nothing_is_answered(server: Server, raw: Raw) -> None:
    """A browser whose name server was made to lead a foreign name here must not show that website our runs."""
    port = raw.port
    asked = 0
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "192.168.0.9", "", "[", "a b"):
        for row in roles.ROUTES if host == "evil.example" else ("GET /", "POST /gradio_api/component_server/"):
            method, pattern = row.split(" ", 1)
            path = re.sub(r"{([^}]+)}", lambda part: PARTS.get(part[1], "x"), pattern)
            status, text = raw.send(method, path, {} if method == "POST" else None, {"Host": host, HEADER: TOKEN})
            assert 400 <= status < 500, (host, row, status)
            assert b"rlhf" not in text.lower() or b"RLHF_STUDIO_HOSTS" in text
            asked += 1
    path, body = functions_of(server)["runs-page.runs"]
    assert raw.send("POST", path, body({}), {"Host": "evil.example"})[0] == 421
    for host in (f"localhost:{port}", "localhost", f"[::1]:{port}", "127.0.0.1"):
        assert raw.send("POST", path, body({}), {"Host": host})[0] == 200
    assert asked > 90


def test_the_workspace_can_be_compared(server: Server, tmp_path: Path) -> None:
    """The check of the tests above can fail."""
    before = contents(server.workspace.root)
    copy = tmp_path / "copy"
    shutil.copytree(server.workspace.root, copy)
    assert contents(copy) == before and len(before) >= 3
    (copy / "new").write_text("x")
    assert contents(copy) != before
