"""Opening databases in every condition they can be found in."""

import os
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rlhf_studio.runs import schema
from rlhf_studio.runs.errors import StoreError, sqlite_reason, store_error
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.writer import RunWriter
from tests.runs.store_helpers import new_run, run_python, step_record


def every_reading(reader: RunReader) -> list:
    """Call everything a viewer may call."""
    return [
        reader.status(),
        reader.config(),
        reader.metrics_since(0),
        reader.non_finite(),
        reader.events_since(0),
        reader.rollout_steps(),
        reader.rollouts(1),
        reader.rollout(1, 0),
        reader.watched(),
        reader.checkpoints(),
        reader.log_tail(),
        reader.summary(),
        reader.stored(),
        reader.working_folder(),
    ]


def with_steps(folder: Path, steps: int = 3) -> Path:
    with RunWriter(folder) as writer:
        writer.set_state("running")
        for step in range(1, steps + 1):
            writer.commit_step(step_record(step))
    return folder


def test_a_missing_run_is_named(tmp_path: Path):
    with pytest.raises(StoreError, match=r"There is no run at .*nowhere: run\.db is missing") as caught:
        RunReader(tmp_path / "nowhere").status()
    assert caught.value.reason == "missing"
    assert not (tmp_path / "nowhere").exists()


def test_a_file_that_is_no_run_of_ours(run: Path):
    theirs = run / "theirs.db"
    with closing(sqlite3.connect(theirs)) as connection, connection:
        connection.execute("CREATE TABLE run (id)")
        connection.execute("PRAGMA user_version = 1")
    for content in (
        b"this is text, not a database" * 100,
        b"\x00" * 5000,
        b"SQLite format 3\x00" + b"\xff" * 4080,
        theirs.read_bytes(),
        b"",
    ):
        (run / "run.db").write_bytes(content)
        uses = [lambda: RunReader(run).status(), lambda: RunWriter(run)] if content else [lambda: RunReader(run).status()]
        for use in uses:
            with pytest.raises(StoreError, match=r"run\.db") as caught:
                use()
            assert caught.value.reason == "damaged", content[:20]
            assert content not in (b"", theirs.read_bytes()) or "was not written by RLHF Studio" in str(caught.value)


def test_a_link_in_place_of_the_database_is_not_followed(run: Path, tmp_path: Path):
    os.rename(run / "run.db", tmp_path / "elsewhere.db")
    (run / "run.db").symlink_to(tmp_path / "elsewhere.db")
    with pytest.raises(StoreError, match="is a link"):
        RunReader(run).status()


def test_a_newer_store_names_both_versions(run: Path):
    with sqlite3.connect(run / "run.db") as connection:
        connection.execute("PRAGMA user_version = 7")
    message = rf"newer RLHF Studio: it has store version 7, and .* reads up to version {schema.SCHEMA_VERSION}\. Update"
    for use in (lambda: RunReader(run).status(), lambda: RunWriter(run)):
        with pytest.raises(StoreError, match=message) as caught:
            use()
        assert caught.value.reason == "version"


def test_a_row_that_is_gone_or_senseless(run: Path):
    with sqlite3.connect(run / "run.db") as connection:
        connection.execute("UPDATE run SET state = 'dancing'")
    with pytest.raises(StoreError, match="unknown state 'dancing'"):
        RunReader(run).status()
    with sqlite3.connect(run / "run.db") as connection:
        connection.execute("DELETE FROM run")
    with pytest.raises(StoreError, match="the run's row is missing"):
        RunReader(run).status()
    with pytest.raises(StoreError, match="damaged"):
        RunReader(run).stored()


def test_older_databases_are_carried_forward(tmp_path: Path):
    first = (("CREATE TABLE notes (text TEXT)",),)
    second = (*first, ("ALTER TABLE notes ADD COLUMN author TEXT", "CREATE TABLE more (id)"))
    path = tmp_path / "some.db"
    connection = schema.connect(path, create=True)
    schema.migrate(connection, path, first)
    connection.execute("INSERT INTO notes VALUES ('kept')")
    schema.migrate(connection, path, second)
    schema.migrate(connection, path, second)  # once more changes nothing
    assert connection.execute("SELECT text, author FROM notes").fetchall() == [("kept", None)]
    assert schema.check_version(connection, path, 2) == 2
    with pytest.raises(StoreError, match="store version 2"):
        schema.migrate(connection, path, first)
    connection.close()


def test_a_migration_that_fails_changes_nothing(tmp_path: Path):
    path = tmp_path / "some.db"
    connection = schema.connect(path, create=True)
    with pytest.raises(StoreError):
        schema.migrate(connection, path, (("CREATE TABLE one (id)", "CREATE TABLE one (id)"),))
    assert schema.check_version(connection, path, 1, may_be_empty=True) == 0
    assert connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    connection.close()


def test_readers_leave_an_ended_run_as_it_is(run: Path):
    with_steps(run)
    with RunWriter(run) as writer:
        writer.set_state("finished")
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    every_reading(RunReader(run))
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()} == before
    assert not {"run.db-wal", "run.db-shm"} & set(before)  # one plain file, easy to copy


def test_reading_while_the_writer_has_it_open_and_after_its_side_files_are_gone(run: Path, tmp_path: Path):
    with RunWriter(run) as writer:
        writer.set_state("running")
        writer.commit_step(step_record(1))
        assert (run / "run.db-wal").exists()
        assert RunReader(run).rollout_steps() == [1]
        connection = sqlite3.connect(run / "run.db")
        connection.execute("PRAGMA wal_checkpoint").fetchall()
        connection.close()
        shutil.copytree(run, tmp_path / "copy", ignore=shutil.ignore_patterns("*-wal", "*-shm"))  # a careless backup
    assert RunReader(tmp_path / "copy").rollout_steps() == [1]
    for name in ("run.db-wal", "run.db-shm"):  # and where these files cannot be made; works for root too, unlike taking permissions away
        (tmp_path / "copy" / name).unlink(missing_ok=True)
        (tmp_path / "copy" / name).mkdir()
    assert RunReader(tmp_path / "copy").rollout_steps() == [1]


CRASH_WITH_HOT_JOURNAL = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1] + "/run.db", isolation_level=None)
assert connection.execute("PRAGMA journal_mode = delete").fetchone() == ("delete",)
connection.execute("PRAGMA cache_size = 5")
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE run SET step = 99, seq = 99")
connection.executemany("INSERT INTO metric_names (name) VALUES (?)", [(str(i) + "x" * 900,) for i in range(300)])
print(os.path.exists(sys.argv[1] + "/run.db-journal"), flush=True)
os._exit(0)
"""


def test_half_a_transaction_in_a_rollback_journal_is_undone_for_readers(run: Path):
    with_steps(run)
    assert run_python(CRASH_WITH_HOT_JOURNAL, run) == "True"
    assert (run / "run.db-journal").exists()
    reader = RunReader(run)
    assert reader.status().step == 3
    assert len(reader.metrics_since(0)[-1][1]) == 3
    every_reading(reader)


def test_a_disk_without_wal_works_as_well(run: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(schema, "set_journal", lambda *_, **__: "delete")
    with RunWriter(run) as writer:
        writer.set_state("running")
        for step in range(1, 4):
            writer.commit_step(step_record(step))
            assert RunReader(run).rollout_steps()[-1] == step
            assert not (run / "run.db-wal").exists()


def test_journal_mode_waits_for_readers_and_then_keeps_the_old_one(run: Path):
    reader = schema.connect(run / "run.db", read_only=True)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM run").fetchall()
    writer = schema.connect(run / "run.db", busy_seconds=0)
    assert schema.set_journal(writer, "wal", 0.05) == "delete"
    reader.close()
    assert schema.set_journal(writer, "wal", 5.0) == "wal"
    writer.close()


def test_a_locked_database_is_a_sentence(run: Path):
    holder = schema.connect(run / "run.db")
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreError, match=r"run\.db is in use by another program") as caught:
        schema.connect(run / "run.db", read_only=True, busy_seconds=0.01)
    assert caught.value.reason == "busy"
    holder.close()


def test_flipped_bytes_give_values_or_a_store_error(tmp_path: Path):
    run = with_steps(new_run(tmp_path / "whole"))
    with RunWriter(run) as writer:
        writer.set_state("finished")
    original = (run / "run.db").read_bytes()
    draw = random.Random(0)
    refused = 0
    for _ in range(150):
        damaged = bytearray(original)
        for _ in range(draw.choice((1, 20, 400))):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        if draw.random() < 0.2:
            damaged = damaged[: draw.randrange(len(damaged))]
        (run / "run.db").write_bytes(bytes(damaged))
        try:
            every_reading(RunReader(run))
        except StoreError as error:
            assert str(run) in str(error)
            refused += 1
    assert refused > 50  # the damage is real


def test_every_kind_of_error_has_a_sentence(tmp_path: Path):
    texts = {
        "database or disk is full": "full",
        "database is locked": "busy",
        "database disk image is malformed": "damaged",
        "file is not a database": "damaged",
        "no such table: run": "damaged",
        "attempt to write a readonly database": "read-only",
        "disk I/O error": "io",
    }
    for text, reason in texts.items():  # as on Python 3.10, without a code
        assert sqlite_reason(sqlite3.OperationalError(text)) == reason
        assert str(tmp_path) in str(store_error(sqlite3.OperationalError(text), tmp_path))
    numbers = {28: "full", 122: "full", 30: "read-only", 13: "read-only", 2: "missing", 5: "io", 24: "io"}
    for number, reason in numbers.items():
        error = store_error(OSError(number, os.strerror(number)), tmp_path)
        assert error.reason == reason and str(tmp_path) in str(error)
