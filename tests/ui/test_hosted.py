"""The app on a machine that somebody else runs: where a Space is duplicated, cookies below a path, a proxy to other machines."""

from __future__ import annotations

import asyncio
import os
import urllib.request
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.datastructures import Headers

from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.access import TOKEN_VARIABLE, Access
from rlhf_studio.ui.app import access_for, launch
from rlhf_studio.ui.hosted.space import duplicate_link, own_address
from rlhf_studio.ui.hosts import cookie_path
from rlhf_studio.ui.runs_page import RunsPage
from rlhf_studio.ui.visiting import identity
from rlhf_studio.ui.visiting.modes import Mode
from rlhf_studio.ui.visiting.where import where
from tests.ui.test_visiting import ANN, VISITORS
from tests.ui.train_helpers import OPERATOR, VIEWER

SPACE = {"SPACE_ID": "ada/rlhf-studio", "SPACE_HOST": "ada-rlhf-studio.hf.space"}
LINK = "https://huggingface.co/spaces/ada/rlhf-studio?duplicate=true"


def line_above(environment: dict[str, str], mode: Mode, cookie: str = "") -> dict[str, Any]:
    """What the line above the pages is told."""
    headers = Headers({"host": "ada-rlhf-studio.hf.space", **({"cookie": cookie} if cookie else {})})
    request: Any = SimpleNamespace(headers=headers, client=SimpleNamespace(host="10.0.0.7"), query_params={})
    facts: dict[str, Any] = where(replace(access_for("0.0.0.0", mode, (), environment), visitors=VISITORS))({}, request)
    return facts


def test_a_space_is_duplicated_under_its_own_name_and_nothing_else_is() -> None:
    assert duplicate_link(SPACE) == LINK
    for strange in ("", "ada", "ada/../x", "ada/x?y=1", "ada/x y", "javascript:x/y", 'ada/"x'):
        assert duplicate_link({"SPACE_ID": strange}) == ""
    assert own_address({"SPACE_HOST": "a.hf.space,b.example"}) == "https://a.hf.space/" and own_address({}) == ""
    assert line_above(SPACE, Mode.SPACE)["duplicate"] == LINK
    assert "duplicate" not in line_above({}, Mode.LOCAL) and "duplicate" not in line_above({}, Mode.CLASSROOM)


def test_a_visitor_whose_browser_keeps_no_cookie_is_told_what_works() -> None:
    facts = line_above(SPACE, Mode.SPACE)
    assert "keeps no cookies" in facts["notice"] and facts["alone"] == "https://ada-rlhf-studio.hf.space/"
    assert "notice" not in line_above(SPACE, Mode.SPACE, f"{identity.COOKIE}={VISITORS.signed(ANN)}")


def test_what_is_wrong_with_the_bucket_is_said_to_the_owner_alone(tmp_path: Path) -> None:
    page = RunsPage(Workspace(tmp_path), Access(), kept_problem=lambda: "The bucket is full.")
    assert asyncio.run(page.runs({}, OPERATOR))["problem"] == "The bucket is full."
    assert asyncio.run(page.runs({}, VIEWER))["problem"] == ""
    line = where(Access(), kept_problem=lambda: "The bucket is full.")
    assert line({}, OPERATOR)["notice"] == "The bucket is full." and "notice" not in line({}, VIEWER)


@pytest.mark.parametrize(
    ("root", "path"),
    [("", "/"), ("/studio", "/studio"), ("/studio/", "/studio"), ("https://lab.example/a/b/", "/a/b"), ("https://lab.example", "/")],
)
def test_cookies_are_valid_below_the_path_of_the_app(root: str, path: str) -> None:
    assert cookie_path({"GRADIO_ROOT_PATH": root}) == path


def test_a_path_that_a_cookie_cannot_carry_is_refused() -> None:
    with pytest.raises(ValueError, match="GRADIO_ROOT_PATH"):
        cookie_path({"GRADIO_ROOT_PATH": "/studio; Domain=example"})


def test_the_app_starts_where_a_proxy_leads_to_other_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {"HTTP_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9", "NO_PROXY": "lab.example", "SYSTEM": "spaces"}
    for name, value in before.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv(TOKEN_VARIABLE, "secret")
    server = launch(tmp_path, mode=Mode.READ_ONLY)
    try:
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(f"{server.url}health") as answer:
            assert answer.read() == b"ok\n"
    finally:
        server.close()
    assert {name: os.environ.get(name) for name in before} == before and "no_proxy" not in os.environ
