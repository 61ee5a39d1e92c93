"""A run folder that is deleted, moved or replaced while an engine works in it: the engine notices and leaves the place alone."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from rlhf_studio.runs import schema
from rlhf_studio.runs.errors import RunGone
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import EventRecord
from rlhf_studio.runs.writer import Heartbeat, RunWriter, record_end
from tests.runs.store_helpers import in_child, new_run, step_record
from tests.waiting import wait_until


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def deleted(run: Path) -> Path | None:
    shutil.rmtree(run)
    return None


def moved(run: Path) -> Path:
    run.rename(run.with_name("elsewhere"))
    return run.with_name("elsewhere")


def replaced(run: Path) -> Path:
    run.rename(run.with_name("elsewhere"))
    return new_run(run)


@pytest.mark.parametrize("change", [deleted, moved, replaced], ids=lambda change: change.__name__)
def test_every_call_notices_and_nothing_is_written(run: Path, change: Callable[[Path], Path | None]) -> None:
    writer = RunWriter(run)
    writer.commit_step(step_record(1))
    left = change(run)
    before = snapshot(left) if left else {}
    calls = [
        lambda: writer.commit_step(step_record(2)),
        lambda: writer.set_state("failed", cause="late"),
        lambda: writer.event(EventRecord("error", "failure", "late")),
        lambda: writer.watched(0, []),
        lambda: writer.go_back(0),
        writer.pending_commands,
        writer.check_folder,
    ]
    for call in calls:
        with pytest.raises(RunGone, match="deleted, moved or replaced") as caught:
            call()
        assert caught.value.reason == "gone" and str(run) in str(caught.value)
    writer.close()
    assert (snapshot(left) if left else {}) == before
    assert run.exists() == (left == run)


def test_the_heart_stops_beating(run: Path) -> None:
    with Heartbeat(run, 0.001) as heart:
        wait_until(lambda: RunReader(run).status().heartbeat_age is not None)
        moved(run)
        heart._thread.join(20)
        assert not heart._thread.is_alive() and isinstance(heart.problem, RunGone)
    assert not run.exists()


def as_the_heart_beats(run: Path, replace: Callable[[], None]) -> None:
    with RunWriter(run) as writer, Heartbeat(run, 0.001):
        writer.commit_step(step_record(1))
        wait_until(lambda: RunReader(run).status().heartbeat_age is not None)
        replace()
        with pytest.raises(RunGone):
            writer.commit_step(step_record(2))


@contextmanager
def between_database_and_log(replace: Callable[[], None]) -> Iterator[None]:
    """SQLite opens the write-ahead log after the database, and by its path."""
    really = sqlite3.connect

    def connect(*given: Any, **named: Any) -> sqlite3.Connection:
        connection = really(*given, **named)
        replace()
        return connection

    with mock.patch.object(sqlite3, "connect", connect):
        yield


def as_the_heart_opens_the_database(run: Path, replace: Callable[[], None]) -> None:
    with RunWriter(run) as writer:
        writer.commit_step(step_record(1))
        with between_database_and_log(replace), Heartbeat(run, 0.001) as heart:
            heart._thread.join(5)


def as_an_end_is_recorded(run: Path, replace: Callable[[], None]) -> None:
    with RunWriter(run) as writer:
        writer.commit_step(step_record(1))
        with between_database_and_log(replace), pytest.raises(RunGone):
            record_end(run, EventRecord("info", "stop", "stopped"))


def as_a_database_is_opened_that_may_be_made(run: Path, replace: Callable[[], None]) -> None:
    with RunWriter(run) as writer:
        writer.commit_step(step_record(1))
        with between_database_and_log(replace), closing(schema.connect(run / "run.db", create=True)) as connection:
            connection.execute("UPDATE run SET name = 'of what lies there now'")


def as_the_writer_waits_for_a_reader(run: Path, replace: Callable[[], None]) -> None:
    """SQLite removes a log by its path: whoever gives up his own must look first whether that is still his."""
    writer = RunWriter(run)
    writer.commit_step(step_record(1))
    reader = sqlite3.connect(run / "run.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT step FROM run").fetchone()

    def meanwhile(seconds: float) -> None:
        reader.close()
        replace()

    with mock.patch.object(schema.time, "sleep", meanwhile):
        writer.close()


@pytest.mark.parametrize(
    "work",
    [
        as_the_heart_beats,
        as_the_heart_opens_the_database,
        as_an_end_is_recorded,
        as_a_database_is_opened_that_may_be_made,
        as_the_writer_waits_for_a_reader,
    ],
)
def test_the_write_ahead_log_of_a_run_that_took_the_place_survives(run: Path, work: Callable[[Path, Callable[[], None]], None]) -> None:
    other = new_run(run.with_name("other"))
    keeps = RunWriter(other)
    keeps._connection.execute("PRAGMA wal_autocheckpoint = 0")
    for step in (1, 2, 3):
        keeps.commit_step(step_record(step))
    saved = other.with_name("copy")
    shutil.copytree(other, saved)  # with its log, and nobody who holds it open
    keeps.close()
    assert (saved / "run.db-wal").stat().st_size > 0

    def replace() -> None:
        if saved.exists():
            run.rename(run.with_name("elsewhere"))
            saved.rename(run)

    assert in_child(lambda: work(run, replace)) == "None"
    with closing(sqlite3.connect(run / "run.db")) as connection:
        assert connection.execute("SELECT max(step) FROM steps").fetchone() == (3,)
