"""A new run from a checkpoint of another one, with its history up to there and perhaps other settings.

The other run is only read, and may go on meanwhile: its checkpoint is copied and checked against its manifest, and its database is
copied as it is at one moment. Everything is put together in a temporary folder, which gets its name at the end.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from rlhf_studio import __version__
from rlhf_studio.config import StageConfig
from rlhf_studio.config.changes import STAYS, Change, changes_between, refusals
from rlhf_studio.config.io import ConfigError, Problem, config_to_yaml, parse_config, with_values
from rlhf_studio.language import S_
from rlhf_studio.runs import checkpoints, paths, rows, schema
from rlhf_studio.runs.create import create_run, new_folder, write_durably, write_reserve
from rlhf_studio.runs.errors import OnlyRead, StoreError, store_error
from rlhf_studio.runs.lab.fault import carried_on
from rlhf_studio.runs.lab.names import fork_name
from rlhf_studio.runs.lineage import keep_sources
from rlhf_studio.runs.manifest import read_object
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import EventRecord, Origin, State
from rlhf_studio.system import sync

MAX_NAME = 120
_WORTH_PACKING = 0.2  # share of a database's pages that are free


def refuse_only_read(reader: RunReader) -> None:
    """Raises StoreError for a recording, and for a run that only others can train: see ``Origin.only_read``."""
    if paths.is_recording(reader.run_dir):
        raise OnlyRead()
    if why := reader.origin().only_read:
        raise StoreError(f"The run {reader.run_dir.name} {why}", "state")


def settings_at(run_dir: Path, step: int | None) -> StageConfig:
    """The settings that a fork begins with: those in force at the checkpoint of ``step``, or the run's own for None.

    Raises StoreError when there is no such checkpoint, or the run cannot be read.
    """
    reader = RunReader(run_dir)
    return reader.config() if step is None else settings_of(reader, _checkpoint(reader, step))


def settings_of(reader: RunReader, folder: Path) -> StageConfig:
    """The settings in force when the policy in ``folder`` was kept, a checkpoint or a snapshot of the run. Raises StoreError."""
    path = folder / paths.STATE
    path = path if path.exists() else folder / paths.MANIFEST  # a snapshot has no other file for them
    try:
        state = read_object(path)
        if "settings" not in state:  # earlier versions did not write them down
            return reader.config()
        return with_values(parse_config(state["settings"]), state.get("live", {}))
    except (OSError, ValueError) as error:  # a ConfigError is a ValueError
        raise StoreError(f"The settings in {path} cannot be used: {error}", "damaged") from error


def _checkpoint(reader: RunReader, step: int) -> Path:
    """The folder of a checkpoint. Raises StoreError that lists those that there are."""
    saved = {checkpoint.step: Path(checkpoint.path) for checkpoint in reader.checkpoints()}
    if step not in saved:
        there = f"there are: {', '.join(map(str, saved))}" if saved else S_("it has none yet")
        raise StoreError(f"The run {reader.run_dir.name} has no checkpoint of step {step}; {there}.", "absent")
    return saved[step]


def trained_policy(run_dir: Path, step: int | None = None) -> Path:
    """The policy in the checkpoint of ``step``, or in the newest: an ordinary model folder. Raises StoreError when there is none."""
    reader = RunReader(run_dir)
    return _checkpoint(reader, newest_step(reader) if step is None else step) / "policy"


def newest_step(reader: RunReader) -> int:
    """The step of the newest checkpoint. Raises StoreError when there is none."""
    if not (saved := reader.checkpoints()):
        raise StoreError(f"The run {reader.run_dir.name} has no checkpoint yet; a fork can only begin at its beginning.", "absent")
    return saved[-1].step


def best_step(reader: RunReader) -> int:
    """The step of the checkpoint whose policy did best. Raises StoreError when there is none, or none was measured."""
    newest_step(reader)
    best = reader.best_policy([checkpoint.step for checkpoint in reader.checkpoints()])
    if best is None:
        raise StoreError(
            f"No step was trained after any checkpoint of the run {reader.run_dir.name}, so no score tells which is the best; name a step.",
            "absent",
        )
    return best.step


def forked_settings(run_dir: Path, step: int | None, changes: Mapping[str, Any]) -> StageConfig:
    """The settings of a fork: those of :func:`settings_at` with ``changes``, plain JSON values by dotted name.

    Raises:
        ConfigError: for each change that is not valid, or that the checkpoint does not allow, and when no step is left to train.
        StoreError: no such checkpoint, or the run cannot be read or be trained.
    """
    refuse_only_read(RunReader(run_dir))
    config = with_values(settings_at(run_dir, step), changes)
    check_settings(run_dir, step, config)
    return config


def check_settings(run_dir: Path, step: int | None, config: StageConfig) -> list[Change]:
    """What a fork with this configuration changes. Raises ConfigError for what its checkpoint does not allow, and StoreError."""
    changes = changes_between(settings_at(run_dir, step).model_dump(mode="json"), config.model_dump(mode="json"))
    if step is None:
        return changes
    problems = [Problem(setting, f"cannot change in a fork from a checkpoint: {reason}") for setting, reason in refusals(changes, STAYS)]
    if 0 < config.planned_steps <= step:
        problems.append(
            Problem(config.steps_setting, f"{step} steps are done at this checkpoint; use more than that, not {config.planned_steps}")
        )
    if problems:
        raise ConfigError(problems)
    return changes


def fork_run(
    parent: Path,
    step: int | None,
    run_dir: Path,
    config: StageConfig,
    *,
    name: str = "",
    state: State = "queued",
    memory: tuple[int, int] | None = None,
) -> None:
    """Make a run folder that goes on from a checkpoint of ``parent``, or (``step`` None) that begins with its settings.

    Args:
        step: of a checkpoint of the parent.
        run_dir: the new folder; missing or empty.
        config: the new run's settings, from :func:`forked_settings`.
        name: for people; empty for the parent's with what is different.
        state: ``queued``, or ``loading`` for a run that this process starts at once.
        memory: as in :func:`~rlhf_studio.runs.create.create_run`.

    Raises:
        ConfigError: the checkpoint does not allow these settings.
        StoreError: the checkpoint is damaged, or was removed meanwhile; the disk is full; the folder is not empty.
    """
    reader = RunReader(parent)
    refuse_only_read(reader)
    changes = check_settings(parent, step, config)
    origin = Origin(reader.run_dir.name, step, {change.setting: change.new for change in changes if change.setting != "name"})
    files = carried_on(reader.run_dir)  # what is made from a run that is broken on purpose is broken too
    name = name or fork_name(reader.status().name, step, origin.changes)
    if step is None:
        create_run(
            run_dir, config, name=name, state=state, memory=memory, origin=origin, working_folder=reader.working_folder(), files=files
        )
        return
    source = _checkpoint(reader, step)
    before = settings_at(parent, step)
    with new_folder(run_dir) as folder:
        for part in (paths.CHECKPOINTS, paths.EXPORTS):
            (folder / part).mkdir()
        _copy_checkpoint(source, paths.checkpoint_dir(folder, step))
        if (reader.run_dir / paths.BASE).is_dir():  # of adapters whose base is in no file of its own
            _copy_folder(reader.run_dir / paths.BASE, folder / paths.BASE)
        for file, data in {paths.CONFIG: config_to_yaml(config).encode("utf-8"), **files}.items():
            write_durably(folder / file, data)
        if changes:
            write_durably(folder / paths.EARLIER_CONFIG.format(number=1), config_to_yaml(before).encode("utf-8"))
        write_reserve(folder)
        with closing(_copy_database(reader, folder / paths.DATABASE)) as connection:
            _cut(connection, folder / paths.DATABASE, step)
            _begin(connection, folder / paths.DATABASE, config, name, state, memory, origin)
            _pack(connection)
        checkpoint, problems = checkpoints.newest_valid(folder)
        if checkpoint is None:
            why = "; ".join(problems)
            raise StoreError(f"The run {reader.run_dir.name} cannot be forked from step {step}: {why}.", "damaged")
        _settle(checkpoint)
    keep_sources(run_dir, config, reader.working_folder())


# --- copying -------------------------------------------------------------------------------------------------------------------


def _copy_checkpoint(source: Path, target: Path) -> None:
    """Copy what the manifest names. Raises StoreError when the other run removes the checkpoint meanwhile."""
    try:
        for name in (*checkpoints.read_manifest(source)["files"], paths.MANIFEST):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / name, target / name)
            sync(target / name)
        sync(target)
    except (FileNotFoundError, checkpoints.CheckpointError) as error:
        gone = S_(f"{source.name} was removed or is damaged ({error}). A run keeps only its newest checkpoints: engine.keep_checkpoints")
        raise StoreError(f"The checkpoint {gone}.", "absent") from error


def _settle(checkpoint: Path) -> None:
    """Settings that were changed while the other run went on become the checkpoint's own, as in the new ``config.yaml``.

    Else a fork that goes back to what such a setting was at first would be taken for one that does not change it.
    """
    path, manifest = checkpoint / paths.STATE, checkpoints.read_manifest(checkpoint)
    state = read_object(path) if path.exists() else {}
    if not state.get("live"):
        return
    state["settings"] = with_values(parse_config(state["settings"]), state["live"]).model_dump(mode="json")
    state["live"] = {}
    path.write_text(json.dumps(state, indent=1, allow_nan=False), encoding="utf-8")
    manifest["files"][paths.STATE] = {"bytes": path.stat().st_size, "sha256": checkpoints.sha256(path)}
    (checkpoint / paths.MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    for name in (paths.STATE, paths.MANIFEST):
        sync(checkpoint / name)


def _copy_folder(source: Path, target: Path) -> None:
    shutil.copytree(source, target)
    for path in target.rglob("*"):
        sync(path)


def _copy_database(reader: RunReader, path: Path) -> sqlite3.Connection:
    """The other run's database as it is at this moment, in this version's format. Raises StoreError."""
    with closing(schema.connect(reader.path, read_only=True)) as source:
        schema.check_version(source, reader.path)
        connection = schema.connect(path, create=True)
        try:
            source.backup(connection)
            schema.set_journal(connection, "delete", 1.0)
            schema.migrate(connection, path)
        except sqlite3.Error as error:
            connection.close()
            raise store_error(error, path) from error
        except StoreError:
            connection.close()
            raise
    return connection


def _cut(connection: sqlite3.Connection, path: Path, step: int) -> None:
    """Remove what the other run did after the checkpoint of ``step``, and what people asked of it."""
    with schema.transaction(connection, path):
        if connection.execute("SELECT step FROM run").fetchone()[0] < step:
            raise StoreError(f"The run went back to an earlier step while it was forked from step {step}. Try again.", "state")
        for table in schema.HISTORY_TABLES:
            connection.execute(f"DELETE FROM {table} WHERE step > ?", (step,))
        # An event of this step may be from later too: the run ended, or was resumed here with other settings.
        saved = "(SELECT max(id) FROM events WHERE kind = 'checkpoint' AND step = ?1)"
        connection.execute(f"DELETE FROM events WHERE step > ?1 OR id > {saved}", (step,))
        connection.execute("DELETE FROM commands")
        connection.execute("DELETE FROM scratch")
        connection.execute("UPDATE heartbeat SET at = NULL")
        connection.execute("UPDATE run SET step = ?", (step,))


def _begin(
    connection: sqlite3.Connection,
    path: Path,
    config: StageConfig,
    name: str,
    state: State,
    memory: tuple[int, int] | None,
    origin: Origin,
) -> None:
    """Make the copied row that of a run which has not started. The working folder stays: relative paths start there."""
    now = time.time()
    with schema.transaction(connection, path):
        low, high = map(float, memory) if memory else (None, None)
        old = rows.read_run(connection)
        new = rows.RunRow(
            name=name,
            recipe=old.recipe,
            model=old.model,
            state=state,
            step=old.step,
            total_steps=config.planned_steps,
            created_at=now,
            working_folder=old.working_folder,
            program=__version__,
            memory_low=low,
            memory_high=high,
            origin=origin,
            stage=old.stage,
        )
        rows.RUN.insert(connection, [new], or_else="REPLACE", id=1)
        text = S_(f"Forked from the run {origin.parent} after step {origin.parent_step}.")
        rows.insert_event(connection, now, origin.parent_step or 0, EventRecord("info", "fork", text, {"parent": origin.parent}))


def _pack(connection: sqlite3.Connection) -> None:
    """Give the space of what was cut back to the disk, where it is worth it."""
    pages, free = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count"))
    if free > _WORTH_PACKING * pages:
        connection.execute("VACUUM")
