"""Send or save on the pages: the export in a process of its own, and the one address for downloads, by raw HTTP as anyone sends it."""

from __future__ import annotations

import http.client
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.datastructures import Headers

from rlhf_studio.child_process.service import Service
from rlhf_studio.config import EvaluationRunConfig
from rlhf_studio.runs import paths
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.access import HEADER, TOKEN_VARIABLE, Access
from rlhf_studio.ui.app import Server, launch
from rlhf_studio.ui.exports.actions import Exports, has_token
from rlhf_studio.ui.exports.downloads import files_of, open_export
from tests.ui.export_stand_in import COMMAND
from tests.ui.fake_run import FakeRun
from tests.ui.raw_http import Raw
from tests.ui.train_helpers import start_stand_in
from tests.waiting import wait_until

TOKEN = "a-long-secret"


def request(**headers: str) -> Any:
    sent = {"host": "127.0.0.1:7860", **headers}
    return SimpleNamespace(headers=Headers(sent), client=SimpleNamespace(host="127.0.0.1"), query_params={})


@pytest.fixture
def run(tmp_path: Path) -> FakeRun:
    made = FakeRun(tmp_path, steps=5)
    made.run()
    made.step(3)
    made.finish()
    return made


@pytest.fixture
def exports(run: FakeRun) -> Iterator[Exports]:
    service = Service("export", command=COMMAND, idle=0.0, most_waiting=0, stops=False)
    yield Exports(Workspace(run.folder.parent.parent), Access(), service, can_push=True)
    service.close()


def test_an_evaluation_has_no_adapter_to_take(tmp_path: Path) -> None:
    run_id = Workspace(tmp_path).submit(EvaluationRunConfig())
    looked = Exports(Workspace(tmp_path), Access(), Service("export")).export_look({"run": run_id}, request())
    assert (looked["adapter"], looked["checkpoints"]) == (False, [])


def ended(exports: Exports, run: FakeRun) -> dict[str, Any]:
    wait_until(lambda: exports.export_look({"run": run.run_id}, request())["job"]["state"] != "working")
    return exports.export_look({"run": run.run_id}, request())


def test_a_report_is_made_and_listed(exports: Exports, run: FakeRun) -> None:
    before = exports.export_look({"run": run.run_id}, request())
    assert (before["operator"], before["job"], before["files"], before["checkpoints"]) == (True, None, [], [])
    key = exports.export_start({"run": run.run_id, "what": "html"}, request())["key"]
    after = ended(exports, run)
    assert (after["job"]["key"], after["job"]["state"], after["job"]["files"]) == (key, "done", ["report.html"])
    assert [file["name"] for file in after["files"]] == ["report.html"]
    target = run.folder / "exports" / "report.html"
    assert json.loads(target.read_text()) == {
        "run_dir": str(run.folder),
        "what": "html",
        "target": str(target),
        "op": None,
        "language": "en",
    }


def test_what_fails_says_why_and_what_hangs_can_be_ended(exports: Exports, run: FakeRun) -> None:
    exports.export_start({"run": run.run_id, "what": "csv"}, request())
    assert ended(exports, run)["job"]["error"] == "The disk is full."
    exports.export_start({"run": run.run_id, "what": "jsonl"}, request())
    wait_until(lambda: exports.export_look({"run": run.run_id}, request())["job"].get("progress") == "Waiting")
    assert "Another export" in exports.export_start({"run": run.run_id, "what": "csv"}, request())["problem"]
    left = run.folder / "exports" / ".export-0123456789abcdef"
    left.mkdir()
    left.with_name(f"{left.name}.lock").touch()
    exports.export_cancel({}, request())
    assert ended(exports, run)["job"]["error"] == "Stopped." and not list((run.folder / "exports").iterdir())


def test_what_cannot_be_asked(exports: Exports, run: FakeRun) -> None:
    run.checkpoint(2)
    for data, message in (
        ({"what": "html"}, "no such run"),
        ({"run": "../..", "what": "html"}, "no such run"),
        ({"run": run.run_id, "what": "everything"}, "no such export"),
        ({"run": run.run_id, "what": []}, "no such export"),
        ({"run": run.run_id, "what": {}}, "no such export"),
        ({"run": run.run_id, "what": "merged", "at": 7}, "no checkpoint of this step"),
        ({"run": run.run_id, "what": "merged", "at": True}, "no checkpoint of this step"),
        ({"run": run.run_id, "what": "merged", "push": "--help"}, "cannot be a model on the hub"),
        ({"run": run.run_id, "what": "merged", "push": ["x"]}, "no such export"),
    ):
        assert message in exports.export_start(data, request()).get("problem", ""), data
    assert exports.export_look({"run": run.run_id}, request())["job"] is None


def test_weights_by_step_best_and_to_the_hub(exports: Exports, run: FakeRun) -> None:
    for step in (1, 3):
        run.checkpoint(step)
    look = exports.export_look({"run": run.run_id}, request())
    assert [row["step"] for row in look["checkpoints"]] == [1, 3] and look["push"]
    for sent, expected in (
        ({}, {"at": "3"}),
        ({"at": "best", "push": "me/model"}, {"at": str(look["best"]), "push": "me/model", "public": False}),
        ({"at": 1, "push": "me/model", "public": True}, {"at": "1", "push": "me/model", "public": True}),
    ):
        assert "key" in exports.export_start({"run": run.run_id, "what": "merged", **sent}, request())
        (name,) = ended(exports, run)["job"]["files"]
        assert json.loads((run.folder / "exports" / name).read_text()).items() >= expected.items()
        assert name == f"merged-step-{expected['at']}.zip"


def test_a_token_is_looked_for_by_its_name() -> None:
    assert has_token({"HF_TOKEN": "hf_x"}) and not has_token({"HF_TOKEN": " ", "PATH": "x"})


def test_viewers_see_and_download_but_make_nothing(exports: Exports, run: FakeRun) -> None:
    viewer = request(forwarded="for=10.0.0.1")
    for name in ("export_start", "export_cancel"):
        assert "You can watch" in getattr(exports, name)({"run": run.run_id, "what": "csv"}, viewer)["problem"]
    look = exports.export_look({"run": run.run_id}, viewer)
    assert not look["operator"] and "You can watch" in look["why_not"] and look["files"] == []


# --- downloads ---------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    root = tmp_path_factory.mktemp("workspace")
    run = FakeRun(root)
    run.run()
    run.close()
    folder = run.folder / paths.EXPORTS
    (folder / "report.html").write_bytes(b"<h1>report</h1>")
    (folder / "model-step-3.zip").write_bytes(b"z" * 600_000)
    (folder / "config.yaml").write_text("private")
    (root / "secret.csv").write_text("secret")
    (folder / "link.csv").symlink_to(root / "secret.csv")
    os.link(root / "secret.csv", folder / "hard.csv")
    os.mkfifo(folder / "pipe.csv")
    (folder / "folder.csv").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(TOKEN_VARIABLE, TOKEN)
        running: Server = launch(root, start=start_stand_in)
        port = int(re.search(r":(\d+)/", running.url)[1])
        yield SimpleNamespace(raw=Raw(port), port=port, run=run.run_id, folder=folder)
        running.close()


def test_what_was_made_is_a_download_and_nothing_else(server: SimpleNamespace) -> None:
    for method, headers in (("GET", {}), ("GET", {HEADER: TOKEN}), ("HEAD", {}), ("GET", {"Range": "bytes=1-2"})):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        connection.request(method, f"/exports/{server.run}/report.html", headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200 and body == (b"" if method == "HEAD" else b"<h1>report</h1>")
        named = "attachment; filename=\"report.html\"; filename*=UTF-8''world-seed-0-report.html"
        assert answer.getheader("Content-Disposition") == named
        assert answer.getheader("X-Content-Type-Options") == "nosniff" and "sandbox" in answer.getheader("Content-Security-Policy")
        assert answer.getheader("Content-Length") == "15" and answer.getheader("Cache-Control") == "no-store"
        connection.close()
    status, body = server.raw.send("GET", f"/exports/{server.run}/model-step-3.zip")
    assert status == 200 and len(body) == 600_000


NOT_GIVEN = (
    *("config.yaml", "link.csv", "hard.csv", "pipe.csv", "folder.csv", "gone.csv", "../run.db", "..%2frun.db", "%2e%2e/run.db", "."),
    *("REPORT.HTML", "report.html/", "report.html%00.csv", "a" * 200 + ".csv", ".export-1/file", "%252e%252e"),
)


def test_no_other_file_is_given(server: SimpleNamespace) -> None:
    for name in NOT_GIVEN:
        status, body = server.raw.send("GET", f"/exports/{server.run}/{name}", headers={HEADER: TOKEN})
        assert 400 <= status < 500 and b"secret" not in body and b"private" not in body, name
    status, body = server.raw.send("GET", f"/exports/{server.run}/report.html?x=1%0a", headers={HEADER: TOKEN})
    assert (status, body) == (200, b"<h1>report</h1>")  # an address's query is nobody's name


def test_other_runs_other_websites_and_other_methods_get_nothing(server: SimpleNamespace) -> None:
    for run in ("..", ".", "x", "%2e%2e", "runs", "studio.db"):
        assert 400 <= server.raw.send("GET", f"/exports/{run}/report.html")[0] < 500
    address = f"/exports/{server.run}/report.html"
    assert server.raw.send("GET", address, headers={"Sec-Fetch-Site": "cross-site", HEADER: TOKEN})[0] == 403
    assert server.raw.send("GET", address, headers={"Host": "evil.example"})[0] == 421
    for method in ("POST", "PUT", "DELETE"):
        assert server.raw.send(method, address, {} if method == "POST" else None, {HEADER: TOKEN})[0] == 404


def test_a_folder_that_is_a_link_gives_nothing(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "report.html").write_text("x")
    run = tmp_path / "run"
    run.mkdir()
    (run / "exports").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError):
        open_export(run, "report.html")
    assert files_of(tmp_path / "nothing") == []
