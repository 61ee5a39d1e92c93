"""What the app asks of a running engine: the only thing that anybody but the engine writes into ``run.db``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from rlhf_studio.config import StageConfig
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.config.live import LIVE_SETTINGS
from rlhf_studio.runs import liveness, paths, rows, schema
from rlhf_studio.runs.errors import NotRunning, StoreError
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import ALIVE, Command

CommandKind = Literal["checkpoint", "stop", "discard", "pause", "continue", "step", "phase", "set"]
"""``discard`` stops without saving; ``step`` trains one update and pauses again; ``phase`` goes on to the end of the step's next phase and
pauses there; ``set`` changes settings, its payload ``{"changes": {"ppo.kl_coef": 0.1}}``. The others have an empty payload."""


def send_command(run_dir: Path, kind: CommandKind, payload: Mapping[str, Any] | None = None) -> int:
    """Leave a request for the engine and return its number.

    An engine that is just being started gets it as well. A request that no engine would read is refused, so that it cannot
    stop the run when somebody resumes it next week.

    Raises:
        ConfigError: ``set`` with a setting or a value that a running run cannot take.
        NotRunning: no engine is at work on this run.
        StoreError: not a run, damaged, or the disk is full; ``phase`` for a run of several processes (reason ``state``).
        ValueError: unknown kind.
    """
    if kind not in get_args(CommandKind):
        raise ValueError(f"unknown command {kind!r}; use one of {', '.join(get_args(CommandKind))}")
    folder = Path(run_dir).resolve()
    if kind in ("phase", "set"):
        _check(kind, RunReader(folder).config(), payload or {})
    path = folder / paths.DATABASE
    connection = schema.connect(path)
    try:
        schema.check_version(connection, path)
        with schema.transaction(connection, path):
            starting = liveness.is_starting(folder)
            alive = liveness.is_alive(folder)
            state, ended_at = connection.execute("SELECT state, ended_at FROM run").fetchone()
            # Early: for an engine that is coming up and has not opened the database yet. When it does, it drops all open
            # requests but these, because the others were meant for an engine that is gone.
            early = not (alive and state in ALIVE)
            if not starting and (not alive or (early and ended_at is not None)):
                raise NotRunning(f"The run in {folder} is not running, so there is nothing to {_VERBS[kind]}.")
            rows.COMMANDS.insert(connection, [Command(0, kind, dict(payload or {}))], sent_at=time.time(), early=int(early))
            return int(connection.execute("SELECT last_insert_rowid()").fetchone()[0])
    finally:
        connection.close()


_VERBS = {
    "checkpoint": "save",
    "stop": "stop",
    "discard": "stop",
    "pause": "pause",
    "continue": "continue",
    "step": "step through",
    "phase": "step through",
    "set": "change",
}


def _check(kind: CommandKind, config: StageConfig, payload: Mapping[str, Any]) -> None:
    """Refuse what the engine could not do."""
    if kind == "phase" and (config.engine.processes > 1 or config.engine.accelerate_config):
        message = "Going on by one phase needs a run of one process: the others would wait in the middle of a step. Go on by one step."
        raise StoreError(message, "state")
    if kind == "set":
        changes = payload.get("changes")
        if not isinstance(changes, Mapping) or not changes:
            raise ConfigError([Problem("", f"name at least one setting to change; these can: {', '.join(LIVE_SETTINGS)}")])
        problems = [Problem(name, config.live_problem(name, value)) for name, value in changes.items()]
        if refused := [problem for problem in problems if problem.message]:
            raise ConfigError(refused)
