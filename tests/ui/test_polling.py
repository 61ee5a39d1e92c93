"""When the pages ask the server again: ``assets/shared/poll.js`` on a clock of the test's own, in Node."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.ui.html import ASSETS
from rlhf_studio.ui.visiting.modes import Mode

NODE = shutil.which("node")


def played(scenario: str) -> Any:
    """What a scenario of ``polling.mjs`` gives."""
    if NODE is None:
        pytest.skip("there is no Node")
    command = [NODE, str(Path(__file__).with_name("polling.mjs")), str(ASSETS), scenario]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_pages_ask_once_a_second_and_as_much_slower_as_the_server_says() -> None:
    assert played("usual") == [0, 1, 2, 3, 4, 6.5]  # told after 3 seconds
    assert (Mode.LOCAL.pace, Mode.CLASSROOM.pace, Mode.SPACE.pace) == (1, 1, 2.5)


def test_two_viewers_do_not_stay_in_step() -> None:
    early, late = played("apart")
    assert early == pytest.approx([0, 0.9, 1.8]) and late == pytest.approx([0, 1.1, 2.2])


def test_after_failures_pages_ask_less_and_less_often_until_there_is_an_answer() -> None:
    found = played("failures")
    assert found["asked"][:8] == [0, 1, 3, 7, 15, 30, 45, 60]
    assert found["asked"][8:10] == [75, 76] and found["back"] is None


def test_pages_rest_as_long_as_the_server_asks_for() -> None:
    asked = played("tooMuch")
    assert asked == pytest.approx([0, 22, 44, 66])  # twenty seconds, and never earlier


def test_a_page_out_of_sight_asks_nothing_unless_it_has_something_to_tell() -> None:
    found = played("hidden")
    assert found["before"] == [3, 6]  # a run that is followed: every 16 seconds, for the title and a notification
    assert found["after"] == [4, 7]


def test_a_function_of_the_page_answers_or_rejects_with_the_rest_that_the_server_wants() -> None:
    found = played("functions")
    assert found["fine"] is None
    assert found["sent"] == {"address": "/api", "session": True, "data": {"a": 1}, "component_id": 7, "fn_name": "fine"}
    assert found["errors"] == [7000, 5000, "the app answered wrong with HTTP 404"]


def test_no_page_has_a_rhythm_of_its_own() -> None:
    """Who asks the server again waits by ``waitAfter``, ``pause`` or a ``Poller``; where the app stands is for the server to say."""
    for path in sorted(ASSETS.rglob("*.js")):
        text, name = path.read_text(encoding="utf-8"), path.relative_to(ASSETS).as_posix()
        assert "hf.space" not in text, name
        assert "setInterval" not in text or name in ("shared/poll.js", "live/live.js"), name  # of live.js: the clock that is shown
        for repeated in re.findall(r"setTimeout\([^;]*(?:look|refresh|check|news|poll)\([^;]*\), [^;]*;", text):
            assert "waitAfter(" in repeated, f"{name}: {repeated}"
