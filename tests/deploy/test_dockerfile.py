"""The Dockerfile, read: what it copies exists, what it names agrees, and what runs has no rights."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from deploy.health import serves
from tests.deploy.dockerfile import ROOT, context, environment, files, only, read

INSTRUCTIONS = read()
MOST_BYTES = 40_000_000  # of our own files in the image


def place(name: str) -> int:
    """The line of the one instruction of this name, counted in instructions."""
    return INSTRUCTIONS.index(only(INSTRUCTIONS, name))


def test_the_image_holds_what_the_app_needs_and_nothing_else() -> None:
    inside = set(context())
    assert {"app.py", "requirements.txt", "LICENSE", "deploy/health.py", "rlhf_studio/ui/app.py"} <= inside
    needed = {
        name
        for name in files()
        if name.startswith(("rlhf_studio/", "assets/")) and not name.startswith("assets/images/") and not name.endswith(".pyc")
    }
    assert needed <= inside
    assert {name.split("/")[0] for name in inside} == {"app.py", "requirements.txt", "LICENSE", "deploy", "rlhf_studio", "assets", "docs"}
    assert sum((ROOT / name).stat().st_size for name in inside) < MOST_BYTES


def test_what_is_copied_exists() -> None:
    inside = set(context())
    sources = [source for one in INSTRUCTIONS if one.name == "COPY" for source in one.words()[:-1]]
    assert sources == ["requirements.txt", "."]
    assert all(source == "." or source in inside for source in sources)
    for words in (only(INSTRUCTIONS, "CMD").words(), only(INSTRUCTIONS, "HEALTHCHECK").words()):
        assert words[0] == "python" and words[1] in inside


def test_packages_come_from_the_pins_alone_and_leave_no_cache() -> None:
    installs = [one.text for one in INSTRUCTIONS if one.name == "RUN" and "pip install" in one.text]
    assert len(installs) == 2 and all("--no-cache-dir" in text for text in installs)
    torch, rest = installs
    assert "\"$(grep '^torch==' requirements.txt)\"" in torch and '--index-url "${TORCH_INDEX}"' in torch
    assert rest.endswith("-r requirements.txt")
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    assert sum(line.startswith("torch==") for line in lines) == 1
    assert all(re.fullmatch(r"[a-z0-9-]+(\[oauth\])?==[0-9.]+(; sys_platform .*)?", line) for line in lines if not line.startswith("#"))
    (index,) = [one.pairs() for one in INSTRUCTIONS if one.name == "ARG"]
    assert index == {"TORCH_INDEX": "https://download.pytorch.org/whl/cpu"}


def test_python_is_one_that_the_package_allows() -> None:
    found = re.fullmatch(r"python:3\.(\d+)-slim", only(INSTRUCTIONS, "FROM").text)
    least = re.search(r'requires-python = ">=3\.(\d+)"', (ROOT / "pyproject.toml").read_text())
    assert found and least and int(found[1]) >= int(least[1])


def test_what_runs_is_a_user_without_rights_and_signals_reach_it() -> None:
    user = only(INSTRUCTIONS, "USER").text
    assert user == "1000"  # a number, so that Kubernetes can see that it is not root
    assert place("USER") < place("CMD") and f"--uid {user} " in next(one.text for one in INSTRUCTIONS if "useradd" in one.text)
    assert all(one.name not in ("RUN", "COPY") for one in INSTRUCTIONS[place("USER") :])  # packages and source stay root's
    assert not any("--chown" in one.text for one in INSTRUCTIONS if one.name == "COPY")
    assert only(INSTRUCTIONS, "ENTRYPOINT").words() == ["tini", "--"]


def test_the_volumes_are_where_the_app_writes() -> None:
    variables = environment(INSTRUCTIONS)
    assert set(only(INSTRUCTIONS, "VOLUME").words()) == {variables["RLHF_STUDIO_WORKSPACE"], variables["HF_HOME"]}
    made = [place for place, one in enumerate(INSTRUCTIONS) if one.text.startswith("mkdir")]
    assert made and max(made) < place("VOLUME")  # what is made after VOLUME would not be kept
    assert not [name for name in variables if re.search("TOKEN|KEY|SECRET|PASSWORD", name)]


def test_one_port() -> None:
    assert only(INSTRUCTIONS, "EXPOSE").text == environment(INSTRUCTIONS)["GRADIO_SERVER_PORT"] == "7860"
    assert environment(INSTRUCTIONS)["GRADIO_SERVER_NAME"] == "0.0.0.0"


# --- the health check -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def answers() -> Iterator[tuple[str, dict[str, int]]]:
    """A server on (port) that answers /health with the status that is put into the dictionary."""
    status = {"/health": 200}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status.get(self.path, 404))
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield str(server.server_port), status
        server.shutdown()


def test_healthy_is_status_200_and_nothing_else(answers: tuple[str, dict[str, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    port, status = answers
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # where nothing is: the check must not go there
    assert serves(port)
    for wrong in (204, 421, 503):
        status["/health"] = wrong
        assert not serves(port)


def test_nothing_there_is_not_healthy() -> None:
    assert not any(serves(port) for port in ("1", "no port", "99999"))
