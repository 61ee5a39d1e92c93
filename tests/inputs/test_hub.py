"""Hub models, asked through the real client at a small local server: each answer gets its own sentence."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import HfApi, constants
from safetensors.torch import load_file

from rlhf_studio.inputs.models.conversion import convert
from rlhf_studio.inputs.models.facts import check_causal_lm
from rlhf_studio.inputs.models.files import HUB_MEMORY_SECONDS, Hub, ModelError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub:
    """A few repositories behind the routes that the client uses; ``asked`` lists the requests."""

    def __init__(self) -> None:
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.sizes: dict[str, int] = {}
        self.closed: dict[str, tuple[int, str]] = {}
        self.gated: dict[str, str] = {}
        self.asked: list[str] = []

    def answer(self, path: str, shown: str | None = None) -> tuple[int, dict[str, str], bytes]:
        self.asked.append(path)
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            return self._info("/".join(parts[2:4]), parts[5] if len(parts) > 5 else "main")
        name, file_name = "/".join(parts[:2]), "/".join(parts[4:])
        if shown != self.gated.get(name, shown):
            return self._refusal(403, "GatedRepo")
        if name in self.closed:
            return self._refusal(*self.closed[name])
        content = self.repositories[name][file_name]
        return 200, {"ETag": f'"{len(content)}-{file_name}"', "X-Repo-Commit": COMMIT}, content

    def _info(self, name: str, revision: str) -> tuple[int, dict[str, str], bytes]:
        if name not in self.repositories:
            return self._refusal(404, "RepoNotFound")
        if revision != "main":
            return self._refusal(404, "RevisionNotFound")
        siblings = [{"rfilename": file, "size": self.sizes.get(file, len(text))} for file, text in self.repositories[name].items()]
        return 200, {"Content-Type": "application/json"}, json.dumps({"id": name, "sha": COMMIT, "siblings": siblings}).encode()

    @staticmethod
    def _refusal(status: int, code: str) -> tuple[int, dict[str, str], bytes]:
        return status, {"X-Error-Code": code}, b"{}"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[FakeHub, Hub]]:
    fake = FakeHub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = fake.answer(self.path.split("?")[0], self.headers.get("Authorization"))
            self.send_response(status)
            for key, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=lambda: httpd.serve_forever(poll_interval=0.01), daemon=True).start()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    yield fake, Hub(HfApi(endpoint=f"http://127.0.0.1:{httpd.server_port}", token=False))
    httpd.shutdown()
    httpd.server_close()


def repository(folder: Path, *, weights: str = "model.safetensors") -> dict[str, bytes]:
    """The folder's small files, and weights of which only the name exists."""
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix == ".json"}
    return {**files, weights: b""}


def refused(hub: Hub, name: str, revision: str = "main") -> ModelError:
    with pytest.raises(ModelError) as caught:
        check_causal_lm(name, revision, hub)
    return caught.value


def test_a_model_on_the_hub(server: tuple[FakeHub, Hub], make_model: Any) -> None:
    fake, hub = server
    fake.repositories["someone/model"] = repository(make_model())
    fake.sizes["model.safetensors"] = 548_000_000
    facts = check_causal_lm("someone/model", hub=hub)
    assert (facts.path, facts.architecture, facts.download_bytes, facts.vocab_size) == (None, "GPT2LMHeadModel", 548_000_000, 8)
    assert facts.tokenizer is not None and facts.tokenizer.name == "tokenizer.json"
    assert not any("model.safetensors" in path for path in fake.asked)


def test_answers_are_remembered_for_a_minute(server: tuple[FakeHub, Hub], make_model: Any) -> None:
    fake, real = server
    clock = [0.0]
    hub = Hub(real._api, now=lambda: clock[0])
    assert "there is no model someone/model" in str(refused(hub, "someone/model"))
    fake.repositories["someone/model"] = repository(make_model())
    refused(hub, "someone/model")
    clock[0] = HUB_MEMORY_SECONDS + 1
    assert check_causal_lm("someone/model", hub=hub).architecture == "GPT2LMHeadModel"
    before = len(fake.asked)
    assert check_causal_lm("someone/model", hub=hub).architecture == "GPT2LMHeadModel"
    assert len([path for path in fake.asked[before:] if path.startswith("/api")]) == 0


def test_a_model_that_does_not_exist(server: tuple[FakeHub, Hub]) -> None:
    error = refused(server[1], "someone/nothing")
    assert str(error) == "there is no model someone/nothing on the Hugging Face hub; if it is private, set HF_TOKEN"
    assert error.setting == "model"


def test_a_revision_that_does_not_exist(server: tuple[FakeHub, Hub], make_model: Any) -> None:
    fake, hub = server
    fake.repositories["someone/model"] = repository(make_model())
    error = refused(hub, "someone/model", "v9")
    assert "has no revision v9" in str(error)
    assert error.setting == "revision"


def test_a_gated_model_and_a_token(server: tuple[FakeHub, Hub], make_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a token that may read it the model is found; an app that others can reach does not use the token of who started it."""
    fake, hub = server
    fake.repositories["someone/model"] = repository(make_model())
    fake.gated["someone/model"] = "Bearer hf_canary"
    monkeypatch.setattr("huggingface_hub.HfApi", partial(HfApi, endpoint=hub._api.endpoint))
    monkeypatch.setenv("HF_TOKEN", "hf_canary")
    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
    assert "someone/model is gated: accept its terms" in str(refused(Hub(), "someone/model"))
    monkeypatch.delenv("HF_HUB_DISABLE_IMPLICIT_TOKEN")
    assert check_causal_lm("someone/model", hub=Hub()).architecture == "GPT2LMHeadModel"


def test_a_pickle_only_model(server: tuple[FakeHub, Hub], make_model: Any) -> None:
    fake, hub = server
    fake.repositories["someone/model"] = repository(make_model(), weights="pytorch_model.bin")
    message = str(refused(hub, "someone/model"))
    assert "has its weights only as a pickle (pytorch_model.bin)" in message
    assert message.endswith("convert it first: python -m rlhf_studio convert someone/model converted/model")
    assert not any("pytorch_model.bin" in path for path in fake.asked)


def test_a_pickle_only_model_is_fetched_and_converted(server: tuple[FakeHub, Hub], make_model: Any, tmp_path: Path) -> None:
    fake, hub = server
    source = make_model()
    tensors = load_file(source / "model.safetensors")
    torch.save(tensors, source / "pytorch_model.bin")
    weights = (source / "pytorch_model.bin").read_bytes()
    fake.repositories["someone/model"] = {**repository(source, weights="pytorch_model.bin"), "pytorch_model.bin": weights, "run.py": b"1"}
    convert("someone/model", tmp_path / "out", hub=hub)
    assert {name: tensor.tolist() for name, tensor in load_file(tmp_path / "out" / "model.safetensors").items()} == {
        name: tensor.tolist() for name, tensor in tensors.items()
    }
    assert check_causal_lm(str(tmp_path / "out")).architecture == "GPT2LMHeadModel"
    assert not (tmp_path / "out" / "run.py").exists()


class Unreachable:
    """A client without a network."""

    def model_info(self, *_: Any, **__: Any) -> None:
        raise ConnectionError("no route to host")


def test_offline_and_not_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    message = str(refused(Hub(Unreachable()), "someone/model"))
    assert message == "someone/model is not on this machine and the Hugging Face hub cannot be reached (no route to host)"


def test_offline_but_downloaded_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_model: Any) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    repo = tmp_path / "cache" / "models--someone--model"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text(COMMIT)
    (repo / "snapshots").mkdir()
    make_model().rename(repo / "snapshots" / COMMIT)
    facts = check_causal_lm("someone/model", hub=Hub(Unreachable()))
    assert (facts.path, facts.download_bytes) == (repo / "snapshots" / COMMIT, 0)


def test_a_name_that_the_client_refuses(server: tuple[FakeHub, Hub]) -> None:
    assert "is neither a folder here nor a valid hub id" in str(refused(server[1], "a" * 97))
