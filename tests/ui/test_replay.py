"""The replay as pages ask for it: anyone who watches gets it, and it is made once until the run goes on."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.analysis.replay import replay_of
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui import replay
from rlhf_studio.ui.replay import Replays
from tests.replay.runs import record
from tests.ui.train_helpers import VIEWER

Json = dict[str, Any]


def asked(replays: Replays, data: Any) -> Json:
    answer: Json = json.loads(bytes(asyncio.run(replays.replay(data, VIEWER)).body))
    return answer


def test_it_is_made_once_for_everybody_until_the_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace, made = Workspace(tmp_path), list[int]()
    record(tmp_path / "runs" / "mine", scores=[0.0, 0.5, 1.0])

    def counted(reader: RunReader) -> Json:
        made.append(1)
        return replay_of(reader)

    monkeypatch.setattr(replay, "replay_of", counted)
    replays = Replays(workspace)
    try:
        first, second = asked(replays, {"run": "mine"}), asked(replays, {"run": "mine"})
        assert first == second and first["series"]["score"] == [0.0, 0.5, 1.0] and len(made) == 1
        record(tmp_path / "runs" / "mine", scores=[2.0])
        assert asked(replays, {"run": "mine"})["steps"] == [1, 2, 3, 4] and len(made) == 2
    finally:
        replays.close()


@pytest.mark.parametrize("data", [None, {}, {"run": 7}, {"run": "../mine"}, {"run": "nobody"}])
def test_what_is_no_run_is_answered_with_a_sentence(tmp_path: Path, data: Any) -> None:
    replays = Replays(Workspace(tmp_path))
    try:
        assert asked(replays, data)["problem"].startswith("There is no ")
    finally:
        replays.close()


def test_a_problem_of_the_record_is_a_sentence_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(reader: Any) -> Json:
        raise StoreError("The disk is gone.", "unreadable")

    record(tmp_path / "runs" / "mine", scores=[0.0, 0.5])
    monkeypatch.setattr(replay, "replay_of", fail)
    replays = Replays(Workspace(tmp_path))
    try:
        assert asked(replays, {"run": "mine"}) == {"problem": "The disk is gone."}
    finally:
        replays.close()
