"""Columns that hold what no writer of ours puts there: each read says so in one sentence, and the other runs are listed as before."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import Origin, Probe, SettingChange, StepRecord, WatchRecord
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.runs.writer import RunWriter
from tests.runs.store_helpers import config, rollout, token_record

Read = Callable[[RunReader], Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with two runs."""
    root = tmp_path_factory.mktemp("workspace")
    for name in ("bad", "good"):
        create_run(root / "runs" / name, config(), name=name, state="running", origin=Origin(sweep="s", changes={"ppo.kl_coef": 1}))
        with RunWriter(root / "runs" / name) as writer:
            writer.probes([Probe(0, "p", ["a"])], [])
            watched = WatchRecord(0, "watch", "answer", 1.0, None, pieces=["a"])
            change = SettingChange(1, "ppo.kl_coef", 0.1, 0.2)
            writer.commit_step(StepRecord(1, {"objective/kl": 1.0}, [rollout(0, tokens=token_record(4))], [watched], changes=[change]))
            writer.set_state("finished")
    return root


def status(reader: RunReader) -> Any:
    return reader.status()


def read_first(reader: RunReader) -> Any:
    return reader.rollout(1, 0)


def tokens(reader: RunReader) -> Any:
    return reader.response_tokens(1, 5)


CASES: dict[str, tuple[str, Any, Read]] = {
    "a whole number that is text": ("run SET total_steps = ?", "x", status),
    "a step that is a fraction": ("run SET step = ?", 1.5, status),
    "a time that is text": ("run SET created_at = ?", "x", status),
    "an origin that is endlessly deep": ("run SET origin = ?", "[" * 5000 + "]" * 5000, status),
    "an origin that is a list": ("run SET origin = ?", "[]", status),
    "an origin with other kinds of values": ("run SET origin = ?", '{"parent": 5}', status),
    "an origin whose changes are a list": ("run SET origin = ?", '{"changes": [1]}', status),
    "an origin with a huge number": ("run SET origin = ?", '{"parent_step": 1e999}', status),
    "a length that is text": ("rollouts SET length = ?", "x", read_first),
    "flags that are a number": ("rollouts SET flags = ?", "5", read_first),
    "parts that are a list": ("rollouts SET parts = ?", "[]", read_first),
    "parts that are texts": ("rollouts SET parts = ?", '{"a": "b"}', read_first),
    "likeliest tokens that are a list": ("token_texts SET top_pieces = ?", "[]", read_first),
    "pieces that are numbers": ("token_texts SET response_pieces = ?", "[1]", tokens),
    "pieces that are an object": ("token_texts SET response_pieces = ?", "{}", read_first),
    "watched pieces that are numbers": ("watched SET pieces = ?", "[1, 2]", lambda reader: reader.watched()),
    "probes' pieces that are no list": ("probes SET pieces = ?", "null", lambda reader: reader.probes()),
    "a changed setting that is no finite number": ("changes SET new = ?", "1e999", lambda reader: reader.changes()),
    "a changed setting that is NaN": ("changes SET old = ?", "NaN", lambda reader: reader.changes()),
}


def test_what_no_writer_wrote_is_one_sentence_and_hides_no_other_run(made: Path, tmp_path: Path) -> None:
    for number, (case, (update, value, read)) in enumerate(CASES.items()):
        root = tmp_path / str(number)
        shutil.copytree(made, root)
        workspace = Workspace(root)
        read(workspace.reader("bad"))  # it is well until then
        with closing(sqlite3.connect(root / "runs/bad/run.db")) as connection, connection:
            assert connection.execute(f"UPDATE {update}", (value,)).rowcount == 1, case
        try:
            read(workspace.reader("bad"))
            outcome = "nothing"
        except StoreError as error:
            outcome = f"{error.reason}: {error}"
        assert re.fullmatch(r"damaged: .*run\.db is damaged: .+\.", outcome), (case, outcome)
        listed = {run.run_id: run for run in workspace.runs()}
        assert set(listed) == {"bad", "good"} and listed["good"].state == "finished", case
        assert read is not status or ("damaged" in listed["bad"].cause and listed["bad"].state == "failed"), case
