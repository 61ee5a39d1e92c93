"""The app behind a proxy with TLS that serves it under a path: what nginx and Caddy send, as docs/deploy.md sets them up."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from rlhf_studio.ui.access import TOKEN_VARIABLE
from rlhf_studio.ui.app import Server, launch

TOKEN = "a-long-secret"
NAME = "lab.example:8443"
BASE = f"https://{NAME}/studio"
NGINX = {"Host": NAME, "X-Forwarded-Host": NAME, "X-Forwarded-For": "192.0.2.7", "X-Forwarded-Proto": "https"}
SILENT = {"Host": NAME}  # a proxy that adds nothing


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADIO_ROOT_PATH", "/studio")
        patch.setenv(TOKEN_VARIABLE, TOKEN)
        running = launch(tmp_path_factory.mktemp("workspace"), allow_hosts=[NAME])
        yield running
        running.close()


def ask(server: Server, path: str, headers: dict[str, str], body: Any = None) -> tuple[http.client.HTTPResponse, str]:
    """The answer, as the proxy gets it after it has taken the path off."""
    port = re.search(r":(\d+)/", server.url)
    assert port
    connection = http.client.HTTPConnection("127.0.0.1", int(port[1]), timeout=20)
    data = None if body is None else json.dumps(body)
    sent = {**headers, **({"Content-Type": "application/json"} if body is not None else {})}
    connection.request("GET" if body is None else "POST", path, data, sent)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer, text


def test_the_page_asks_for_everything_below_the_path_with_the_port_and_by_tls(server: Server) -> None:
    answer, text = ask(server, "/", NGINX)
    assert answer.status == 200
    assert set(re.findall(r'"root":"([^"]*)"', text)) == {BASE}
    config = json.loads(ask(server, "/config", NGINX)[1])
    assert config["root"] == BASE


def test_the_operator_link_leads_back_to_where_it_came_from_with_a_cookie_for_tls_alone(server: Server) -> None:
    answer, _ = ask(server, f"/?operator={TOKEN}", NGINX)
    assert answer.status == 303 and answer.headers["Location"] == "./"  # relative: the browser stays below the path
    cookie = answer.headers["Set-Cookie"]
    assert {"HttpOnly", "Secure", "SameSite=strict", "Path=/studio"} <= {part.strip() for part in cookie.split(";")}


@pytest.mark.parametrize("headers", [NGINX, SILENT], ids=["nginx", "a silent proxy"])
def test_without_the_token_nobody_starts_anything_through_a_proxy(headers: dict[str, str], server: Server) -> None:
    (index,) = [index for index, event in server.demo.fns.items() if event.fn is not None and event.fn.__name__ == "start_run"]
    body = {"data": [], "event_data": {}, "fn_index": index, "trigger_id": None, "session_hash": "s1"}
    page = {"Origin": f"https://{NAME}"}
    assert ask(server, "/gradio_api/run/predict", {**headers, **page}, body)[0].status == 403
    shown = {"Cookie": f"rlhf_studio_operator={TOKEN}"}
    assert ask(server, "/gradio_api/run/predict", {**headers, **page, **shown}, body)[0].status == 200
    foreign = {"Origin": "https://evil.example"}
    assert ask(server, "/gradio_api/run/predict", {**headers, **foreign, **shown}, body)[0].status == 403


def test_the_proxy_may_ask_for_health_under_the_apps_name_and_no_other(server: Server) -> None:
    assert ask(server, "/health", NGINX)[0].status == 200
    assert ask(server, "/health", {"Host": "lab.example"})[0].status == 200
    assert ask(server, "/health", {"Host": "other.example"})[0].status == 421
