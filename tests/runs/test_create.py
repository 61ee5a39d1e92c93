import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rlhf_studio.runs import create, schema
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.errors import RunExists, StoreError
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import Origin
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.runs.writer import RunWriter
from rlhf_studio.visible import visible
from tests.runs.store_helpers import NASTY_TEXTS, config, new_run, step_record


def test_a_new_run_is_complete(tmp_path: Path):
    folder = tmp_path / "deep" / "run"
    settings = config(steps=7)
    create_run(folder, settings, name="My run")
    status = RunReader(folder).status()
    assert (status.run_id, status.name, status.state, status.total_steps) == ("run", "My run", "queued", 7)
    assert (status.step, status.seq, status.epoch, status.started_at, status.heartbeat_age) == (0, 0, 0, None, None)
    assert RunReader(folder).config() == settings
    assert RunReader(folder).working_folder() == Path.cwd()
    assert sorted(os.listdir(folder)) == ["checkpoints", "config.yaml", "exports", "reserve.bin", "run.db"]
    assert os.listdir(folder.parent) == ["run"]  # no temporary folder is left


def test_the_estimated_memory_is_kept_with_the_run(tmp_path: Path):
    for number, memory in enumerate((None, (0, 5), (438_000_000, 10**13), (2**62, 2**90))):
        create_run(tmp_path / f"run-{number}", config(), name="", memory=memory)
        with RunWriter(tmp_path / f"run-{number}") as writer:
            assert writer.estimated_memory() == memory
    workspace = Workspace(tmp_path / "workspace")
    with RunWriter(workspace.run_dir(workspace.submit(config(), "queued", (3, 4)))) as writer:
        assert writer.estimated_memory() == (3, 4)


def as_version(run_dir: Path, version: int) -> None:
    """Rebuild the run's database as an earlier version made it, with the run's row and what its tables can hold."""
    old = run_dir / "old.db"
    with closing(schema.connect(old, create=True)) as connection:
        schema.migrate(connection, old, schema.MIGRATIONS[:version])
        connection.execute("ATTACH ? AS new", (str(run_dir / "run.db"),))
        tables = connection.execute("SELECT name FROM main.sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'").fetchall()
        for (table,) in tables:
            columns = ", ".join(row[1] for row in connection.execute(f"PRAGMA main.table_info({table})"))
            connection.execute(f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM new.{table}")
    old.replace(run_dir / "run.db")


@pytest.mark.parametrize("version", [1, 2])
def test_runs_of_earlier_versions_are_read_and_can_be_gone_on_with(tmp_path: Path, version: int):
    create_run(tmp_path / "run", config(), name="old")
    with RunWriter(tmp_path / "run") as writer:
        writer.commit_step(step_record(1))
    as_version(tmp_path / "run", version)
    reader = RunReader(tmp_path / "run")
    assert reader.status().name == "old"
    assert [(step, answer.response, answer.pieces, answer.arrays) for step, answer in reader.watched()] == [(1, "answer 1", [], {})]
    assert (reader.episodes(1), reader.probes(), reader.changes(), reader.origin()) == ({}, ([], []), [], Origin())
    with RunWriter(tmp_path / "run") as writer:
        assert writer.estimated_memory() is None
        writer.commit_step(step_record(2))
    assert len(reader.watched()) == 2


def test_the_name_falls_back_to_configuration_recipe_and_folder(tmp_path: Path):
    base = config().model_dump()
    for number, (changes, expected) in enumerate(
        [({"name": "from config", "recipe": "world"}, "from config"), ({"recipe": "world"}, "world"), ({}, "run-2")]
    ):
        folder = tmp_path / f"run-{number}"
        create_run(folder, type(config()).model_validate({**base, **changes}), name="")
        assert RunReader(folder).status().name == expected


def test_nasty_names_survive_and_an_empty_folder_is_taken_over(tmp_path: Path):
    for number, name in enumerate(text for text in NASTY_TEXTS if text and visible(text) == text):
        (tmp_path / str(number)).mkdir()
        create_run(tmp_path / str(number), config(), name=name)
        assert RunReader(tmp_path / str(number)).status().name == name


def test_an_occupied_place_is_refused_and_left_alone(tmp_path: Path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name in ("folder", "file"):
        with pytest.raises(RunExists, match="already exists and is not empty"):
            new_run(tmp_path / name)
    assert (tmp_path / "folder" / "mine.txt").read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


def test_two_creators_of_one_folder_leave_one_whole_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    check = create._refuse_occupied

    def late(target: Path) -> None:  # the other creator comes right after the check
        check(target)
        monkeypatch.setattr(create, "_refuse_occupied", check)
        create_run(target, config(), name="the other")

    monkeypatch.setattr(create, "_refuse_occupied", late)
    with pytest.raises(RunExists):
        create_run(tmp_path / "run", config(), name="the late one")
    assert RunReader(tmp_path / "run").status().name == "the other"
    assert os.listdir(tmp_path) == ["run"]


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(connection: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(schema, "commit", full)
    with pytest.raises(StoreError, match=r"The disk is full: .*/run/run\.db could not be written") as caught:
        new_run(tmp_path / "run")
    assert caught.value.reason == "full"
    assert os.listdir(tmp_path) == []
