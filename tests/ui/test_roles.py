"""What a function declares of who may call it, and what becomes of that at the door."""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request

from rlhf_studio.ui import html
from rlhf_studio.ui.access import HEADER, Access
from rlhf_studio.ui.app import launch
from rlhf_studio.ui.roles import PLAYED, Role, callable_by, rule_of
from rlhf_studio.ui.train_page import TrainPage
from rlhf_studio.ui.visiting.modes import Mode


def test_a_function_that_declares_nothing_ends_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(self: TrainPage, functions: Any) -> Any:
        async def forgotten(data: Any) -> None: ...

        return html.panel("train", ["start", "measure"], [forgotten])

    monkeypatch.setattr(TrainPage, "build", build)
    with pytest.raises(TypeError, match="forgotten says nothing of who may call it"):
        launch(tmp_path)


def test_what_is_declared_holds_for_wrappers_too_and_players_may_more_where_visitors_play() -> None:
    @callable_by(Role.OPERATOR, players_in=PLAYED, starts=True, most_bytes=9)
    def work(data: Any) -> None: ...

    @wraps(work)
    async def wrapper(data: Any) -> None: ...

    rule = rule_of(wrapper)
    assert rule == rule_of(work) and (rule.starts, rule.most_bytes) == (True, 9)
    roles = {mode: rule.role_in(mode) for mode in Mode}
    assert roles == {mode: Role.PLAYER if mode in (Mode.SPACE, Mode.CLASSROOM) else Role.OPERATOR for mode in Mode}
    vote = callable_by(Role.PLAYER)(lambda data: None)
    assert rule_of(vote).role_in(Mode.SPACE) is Role.PLAYER and not rule_of(vote).is_for_players(Mode.SPACE)


def test_who_asks_is_found_out_once_for_a_request() -> None:
    """By the door, and by everything that it calls, also when Gradio has put the request into one of its own."""
    names_read: list[str] = []

    class Headers(dict[str, str]):
        def get(self, name: str, default: Any = None) -> Any:
            names_read.append(name)
            return super().get(name, default)

    request = Request({"type": "http", "headers": [], "query_string": b"", "client": ("10.0.0.1", 1)})
    request._headers = Headers({HEADER: "secret"})  # type: ignore[assignment]
    access = Access(token="secret", loopback=False)
    for sent in (request, SimpleNamespace(request=request, headers=request.headers)):
        assert access.role_of(sent) is Role.OPERATOR and access.is_operator(sent) and not access.plays(sent)
        assert access.role_of(sent, {"view": True}) is Role.VIEWER and not access.is_operator(sent, {"view": True})
    assert names_read.count(HEADER) == 1
