"""Preparing a run folder: all of it appears at once, or nothing does.

It is filled as ``.new-…`` beside its place. As long as its maker lives, the kernel holds a lock on the file ``.new-….lock`` for it; what
a maker that was killed has left is cleared away when the next run is made there. Exports are made in the same way, as ``.export-…``.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlhf_studio import __version__, system
from rlhf_studio.config import EvaluationRunConfig, RunConfig, StageConfig
from rlhf_studio.config.io import ConfigError, Problem, config_from_file, config_to_yaml
from rlhf_studio.language import S_
from rlhf_studio.regular import read_regular
from rlhf_studio.runs import paths, rows, schema
from rlhf_studio.runs.errors import RunExists, StoreError, store_error
from rlhf_studio.runs.lineage import keep_sources
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import Origin, State
from rlhf_studio.system import sync
from rlhf_studio.visible import refuse_hidden

RESERVE = "reserve.bin"
RESERVE_BYTES = 65536
LONG_UNTOUCHED = 86400.0  # seconds
_LOCK = ".lock"
_UNFINISHED = re.compile(r"\.[a-z]+-[0-9a-f]{16}")


def create_run(
    run_dir: Path,
    config: StageConfig,
    *,
    name: str,
    state: State = "queued",
    memory: tuple[int, int] | None = None,
    origin: Origin | None = None,
    working_folder: Path | None = None,
    files: Mapping[str, bytes] | None = None,
) -> None:
    """Write ``config.yaml`` and ``run.db`` into a new folder (made in a temporary one beside it, then renamed).

    An empty folder is taken over. The current working folder (or ``working_folder``) is remembered, so that relative paths in the
    configuration mean the same thing when another process starts the run later; and so is ``memory``, the least and the most bytes at
    the peak that were estimated, or None. ``origin`` says where the run comes from. ``files`` are further ones of the folder, by name.

    Checkpoints of other runs that the settings name are kept from now on (:func:`rlhf_studio.runs.lineage.keep_sources`; the engine says
    at the start which could not be).

    Raises:
        RunExists: the folder exists and is not empty, or is a file.
        StoreError: the disk is full or may not be written.
        ConfigError: a name has a character that nobody sees.
    """
    started_in = working_folder or Path.cwd()
    named = name or config.name or config.recipe or Path(run_dir).resolve().name
    _check_names(config, named, origin)
    with new_folder(run_dir) as folder:
        _fill(folder, config, named, state, memory, origin, started_in)
        for file, data in (files or {}).items():
            write_durably(folder / file, data)
    if origin is None or not origin.imported:  # what others' logs name is not ours to keep
        keep_sources(Path(run_dir), config, started_in)


@contextmanager
def new_folder(run_dir: Path) -> Iterator[Path]:
    """A temporary folder beside ``run_dir``, for the caller to fill inside the block.

    When the block ends, the folder gets the name ``run_dir``. When something fails, the folder is removed. Folders that killed processes
    left beside it are removed first. Raises RunExists and StoreError as :func:`create_run` does; an OSError in the block becomes a
    StoreError.
    """
    target = Path(run_dir).resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        clear_unfinished(target.parent)
        _refuse_occupied(target)
        with temporary_folder(target.parent, paths.NEW_PREFIX) as temporary:
            try:
                yield temporary
                sync(temporary)
                system.rename_to_new(temporary, target)  # replaces an empty folder, refuses any other
                sync(target.parent)
            except StoreError as error:  # name the folder that people know
                raise StoreError(str(error).replace(str(temporary), str(target)), error.reason) from error
            except OSError as error:
                if temporary.exists() and target.exists():  # somebody else was quicker
                    raise _exists(target) from error
                raise
    except OSError as error:
        raise store_error(error, target) from error


@contextmanager
def temporary_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """An empty folder in ``parent``. When the block ends, the folder and what is still in it are removed.

    Raises OSError, also where the disk cannot lock files.
    """
    temporary, lock = _locked_name(parent, prefix)
    try:
        temporary.mkdir()
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)  # gone already where it was given another name
        system.remove_lock(_lock_of(temporary), lock)


def clear_left(parent: Path, prefix: str) -> bool:
    """Remove the temporary folders in ``parent`` whose makers were killed. Returns whether another one is still being filled.

    A folder that somebody still fills stays. What cannot be removed stays too.
    """
    busy = False
    for lock in parent.glob(f"{prefix}*{_LOCK}"):
        if not _UNFINISHED.fullmatch(lock.name.removesuffix(_LOCK)):
            continue
        with contextlib.suppress(OSError):  # gone already, or somebody else's
            descriptor = os.open(lock, os.O_RDWR | system.OURS)
            try:
                system.lock(descriptor)
                _remove_left(lock.with_name(lock.name.removesuffix(_LOCK)))
                lock.unlink()
            except BlockingIOError:
                busy = True
            finally:
                os.close(descriptor)
    return busy


def clear_unfinished(parent: Path) -> None:
    """Remove the unfinished new folders in ``parent`` whose makers were killed. A folder that somebody still fills stays.

    Earlier versions had no locks. In a workspace, their folders are removed when nothing in them has changed for a day. What cannot be
    removed stays.
    """
    clear_left(parent, paths.NEW_PREFIX)
    if parent.name == paths.RUNS:
        for folder in parent.glob(f"{paths.NEW_PREFIX}*"):
            with contextlib.suppress(OSError):
                if _UNFINISHED.fullmatch(folder.name) and not _lock_of(folder).exists() and _is_long_untouched(folder):
                    _remove_left(folder)


def _remove_left(folder: Path) -> None:
    if os.path.lexists(folder):
        shutil.rmtree(folder)  # refuses a link; removes links inside, never follows them


def _is_long_untouched(folder: Path) -> bool:
    newest = max(path.lstat().st_mtime for path in (folder, *folder.rglob("*")))
    return time.time() - newest > LONG_UNTOUCHED


def _lock_of(temporary: Path) -> Path:
    return temporary.with_name(temporary.name + _LOCK)


def _locked_name(parent: Path, prefix: str) -> tuple[Path, int]:
    """(a free name for a new folder, the descriptor that holds its lock). Raises OSError, also where the disk cannot lock files."""
    while True:
        temporary = parent / f"{prefix}{secrets.token_hex(8)}"
        descriptor = os.open(_lock_of(temporary), os.O_RDWR | os.O_CREAT | os.O_EXCL | system.OURS, 0o644)
        try:
            system.lock(descriptor)
        except BlockingIOError:  # somebody who clears up saw the file before it was locked, and removes it
            os.close(descriptor)
            continue
        except OSError:
            os.close(descriptor)
            _lock_of(temporary).unlink(missing_ok=True)
            raise
        if os.fstat(descriptor).st_nlink:
            return temporary, descriptor
        os.close(descriptor)


def remove_unstarted(run_dir: Path) -> bool:
    """Take back the folder of a new run, or of a fork, that ended before a step of its own. Returns whether it is gone.

    Raises StoreError.
    """
    folder = Path(run_dir).resolve()
    reader = RunReader(folder)
    status, given = reader.status(), reader.origin().parent_step
    saved = [checkpoint for checkpoint in reader.checkpoints() if checkpoint.step != given]
    if status.state != "failed" or status.step > (given or 0) or saved:
        return False
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise store_error(error, folder) from error
    return True


def _refuse_occupied(target: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise _exists(target)


def _exists(target: Path) -> RunExists:
    return RunExists(S_(f"{target} already exists and is not empty. Choose another folder, or resume the run in it."))


def _fill(
    folder: Path,
    config: StageConfig,
    name: str,
    state: State,
    memory: tuple[int, int] | None,
    origin: Origin | None,
    working_folder: Path,
) -> None:
    for part in (paths.CHECKPOINTS, paths.EXPORTS):
        (folder / part).mkdir()
    write_durably(folder / paths.CONFIG, config_to_yaml(config).encode("utf-8"))
    write_reserve(folder)
    database = folder / paths.DATABASE
    connection = schema.connect(database, create=True)
    try:
        schema.migrate(connection, database)
        with schema.transaction(connection, database):
            low, high = map(float, memory) if memory else (None, None)
            row = rows.RunRow(
                name=name,
                recipe=config.recipe,
                model=config.learns,
                state=state,
                total_steps=config.planned_steps,
                created_at=time.time(),
                working_folder=str(working_folder),
                program=__version__,
                memory_low=low,
                memory_high=high,
                origin=origin or Origin(),
                stage=config.stage,
            )
            rows.RUN.insert(connection, [row], id=1)
            connection.execute("INSERT INTO heartbeat (id, at) VALUES (1, NULL)")
    finally:
        connection.close()


def this_program() -> str:
    """What people call the program that this process runs: the name of its file, or "a notebook"."""
    name = os.path.basename(sys.argv[0])
    if name.startswith(("ipykernel", "colab_kernel")):
        return "a notebook"
    return name if name not in ("", "-c", "-") else "a Python program"


def _check_names(config: StageConfig, name: str, origin: Origin | None) -> None:
    """Raises ConfigError for a hidden character in a name that a person gave.

    Names in an opened log come from another program: they are not refused, and pages show their hidden characters as codes.
    """
    if origin is not None and origin.imported:
        return
    components = config.reward.components if isinstance(config, RunConfig | EvaluationRunConfig) else []
    named = {"name": name, **{f"reward.components.{number}.name": component.name for number, component in enumerate(components)}}
    problems = []
    for setting, text in named.items():
        try:
            refuse_hidden(text, S_("a name"))
        except ValueError as error:
            problems.append(Problem(setting, str(error)))
    if problems:
        raise ConfigError(problems)


def replace_config(run_dir: Path, config: StageConfig) -> None:
    """Give a run other settings: ``config.yaml`` always has the settings in force. It is replaced in one step; the old one is kept.

    Call it while no engine works on the run and none can start (with its start ticket). Raises StoreError.
    """
    folder = Path(run_dir).resolve()
    current = folder / paths.CONFIG
    try:
        write_durably(_first_free(folder), read_regular(current))
    except OSError as error:
        raise store_error(error, current) from error
    complete_config(folder, config)


def complete_config(run_dir: Path, config: StageConfig) -> None:
    """Write ``config.yaml`` again with the same settings in full, such as the step of a run that a setting names.

    The file is replaced in one step. Raises StoreError.
    """
    folder = Path(run_dir).resolve()
    current, new = folder / paths.CONFIG, folder / f".{paths.CONFIG}.new"
    try:
        new.unlink(missing_ok=True)  # what an interrupted change left
        write_durably(new, config_to_yaml(config).encode("utf-8"))
        os.replace(new, current)
        sync(folder)
    except OSError as error:
        raise store_error(error, current) from error


def undo_replace(run_dir: Path) -> None:
    """Undo the last :func:`replace_config`, for a run that did not go on after it. Raises StoreError."""
    folder = Path(run_dir).resolve()
    number = 1
    while (folder / paths.EARLIER_CONFIG.format(number=number + 1)).exists():
        number += 1
    try:
        os.replace(folder / paths.EARLIER_CONFIG.format(number=number), folder / paths.CONFIG)
        sync(folder)
    except OSError as error:
        raise store_error(error, folder / paths.CONFIG) from error


def _first_free(folder: Path) -> Path:
    number = 1
    while (path := folder / paths.EARLIER_CONFIG.format(number=number)).exists():
        number += 1
    return path


def first_settings(run_dir: Path) -> dict[str, Any] | None:
    """The settings that the run began with, where they have changed since; None where they have not, or cannot be read."""
    try:
        return config_from_file(Path(run_dir) / paths.EARLIER_CONFIG.format(number=1)).model_dump(mode="json")
    except ConfigError:
        return None


def write_reserve(folder: Path) -> None:
    """Set a little space aside: when the disk is full, giving it up makes room to record why the run failed.

    Random bytes, because some file systems keep zeros or repetitions without using space. Raises OSError.
    """
    write_durably(folder / RESERVE, os.urandom(RESERVE_BYTES))


def write_durably(path: Path, data: bytes) -> None:
    """Write a new file and wait until the disk has it. Raises OSError; a half-written file is removed."""
    try:
        with path.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        raise
    except OSError:
        path.unlink(missing_ok=True)
        raise
