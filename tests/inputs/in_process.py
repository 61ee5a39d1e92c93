"""Helpers without their process, for the many tests that are about what a helper answers and not about where it runs."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from rlhf_studio.inputs import chat
from rlhf_studio.inputs.models import gguf, merged_adapter, pickles
from rlhf_studio.inputs.prompts.sources import tables


def in_process(module: str, task: dict[str, Any], **_: Any) -> Iterator[dict[str, Any]]:
    """What the helper ``module`` answers to ``task``, by its own function, called here."""
    helper, answers = importlib.import_module(module), list[str]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(helper, "read_task", lambda: json.loads(json.dumps(task)))
        patch.setattr(helper, "answer", lambda message: answers.append(json.dumps(message)))
        if hasattr(helper, "leave_memory"):
            patch.setattr(helper, "leave_memory", lambda size: None)
        helper.main()
    yield from map(json.loads, answers)


@pytest.fixture
def real_helpers() -> None:
    """Ask for this where the process itself is what is tested: memory, time, the environment."""


@pytest.fixture(autouse=True)
def helpers_in_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "real_helpers" not in request.fixturenames:
        for user in (chat, tables, pickles, gguf, merged_adapter):
            monkeypatch.setattr(user, "ask_helper", in_process)
