"""The push, against a stand-in of the hub on this machine: what arrives there, and what is never said."""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.cli.main import main
from rlhf_studio.config.io import ConfigError
from rlhf_studio.jobs.export.hub import push
from tests.export import fakes
from tests.export.runs import run_with_policies

TOKEN = "hf_canarycanarycanary"


class Hub:
    """What was asked for. ``taken``: whether a public model of that name exists already."""

    def __init__(self) -> None:
        self.created: list[dict[str, Any]] = []
        self.files: dict[str, bytes] = {}
        self.tokens: set[str | None] = set()
        self.taken = False


def is_private(asked: dict[str, Any]) -> bool:
    """What a request for a new model says, under the name that this version of the hub's library uses."""
    return asked["visibility"] == "private" if "visibility" in asked else asked["private"] is True


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    state = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            """Nothing is printed."""

        def answer(self, content: Any, status: int = 200) -> None:
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            if self.headers["Authorization"] != f"Bearer {TOKEN}":
                self.answer({"error": "who is that?"}, 401)
                return
            private = is_private(state.created[-1]) and not state.taken
            self.answer({"id": "me/model", "private": private, "sha": "a" * 40, "siblings": []})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            state.tokens.add(self.headers["Authorization"])
            if self.headers["Authorization"] != f"Bearer {TOKEN}":
                self.answer({"error": f"no rights for {self.headers['Authorization']}"}, 401)
            elif self.path == "/api/repos/create":
                state.created.append(json.loads(body))
                url = f"{address}/me/model"
                self.answer({"url": url, "name": "me/model"}, 409 if state.taken else 200)
            elif "/preupload/" in self.path:
                files = json.loads(body)["files"]
                self.answer({"files": [{"path": one["path"], "uploadMode": "regular", "shouldIgnore": False} for one in files]})
            elif "/commit/" in self.path:
                for line in map(json.loads, body.splitlines()):
                    if line["key"] == "file":
                        state.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
                self.answer({"commitUrl": f"{address}/me/model/commit/x", "commitOid": "b" * 40, "success": True})
            else:
                self.answer({}, 200)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", address)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.delenv("HUGGING_FACE_HUB_TOKEN", raising=False)
    yield state
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_push_arrives_whole_and_private(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    fakes.install(monkeypatch)
    run_with_policies(tmp_path / "run", lora=True, steps=1)
    assert main(["export", str(tmp_path / "run"), "--adapter", str(tmp_path / "a"), "--push", "me/model"]) == 0
    assert [is_private(made) for made in hub.created] == [True] and hub.tokens == {f"Bearer {TOKEN}"}
    written = {path.relative_to(tmp_path / "a").as_posix(): path.read_bytes() for path in (tmp_path / "a").rglob("*") if path.is_file()}
    assert hub.files == written and "adapter_model.safetensors" in written and "base/model.safetensors" in written
    assert b"snapshot_download('me/model')" in written["README.md"].replace(b'"', b"'")
    output = capfd.readouterr()
    assert "/me/model" in output.out and TOKEN not in output.out + output.err
    assert "Pushing to the hub as me/model" in output.err
    assert not any(TOKEN.encode() in content for content in written.values())
    monkeypatch.setenv("HF_TOKEN", "hf_wrongwrongwrong")
    options = ("--adapter", str(tmp_path / "b.zip"), "--csv", str(tmp_path / "m.csv"), "--push", "me/model")
    assert main(["export", str(tmp_path / "run"), *options]) == 2
    output = capfd.readouterr()
    assert "HTTP 401" in output.err and f"the export itself is done, and lies in {tmp_path / 'b.zip'}" in output.err
    assert (tmp_path / "b.zip").exists() and (tmp_path / "m.csv").exists() and len(list(tmp_path.iterdir())) == 4


def folder(tmp_path: Path) -> Path:
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "README.md").write_text("x")
    return tmp_path / "f"


def test_a_public_one_only_when_it_was_said(hub: Hub, tmp_path: Path) -> None:
    push(folder(tmp_path), "me/model", public=True)
    assert [is_private(made) for made in hub.created] == [False] and "README.md" in hub.files
    hub.taken, hub.files = True, {}
    with pytest.raises(ConfigError, match="exists already and is public"):
        push(tmp_path / "f", "me/model")
    assert hub.files == {}


def test_a_refusal_never_says_the_token(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"HTTP 401") as refused:
        push(folder(tmp_path), "me/model", environment={**os.environ, "HF_TOKEN": "hf_wrongwrongwrong"})
    assert "wrong" not in str(refused.value) and hub.files == {}


@pytest.mark.parametrize("name", ["", "a/b/c", "a b", "x--y", "a" * 200])
def test_names_that_cannot_be(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be a model on the hub"):
        push(tmp_path, name)


def test_without_a_token(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="HF_TOKEN"):
        push(tmp_path, "me/model", environment={})
