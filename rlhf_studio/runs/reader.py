"""The viewers' side of the run folder. Readers never write and never hold a lock that the engine needs.

Each call opens its own short connection (about 0.1 ms), so that a reader may be shared by threads, survives the run being
resumed, and holds nothing between calls.
"""

from __future__ import annotations

import math
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rlhf_studio.config import StageConfig
from rlhf_studio.config.io import ConfigError, config_from_file
from rlhf_studio.runs import paths, rows, schema, status, studio
from rlhf_studio.runs.errors import StoreError, store_error
from rlhf_studio.runs.evaluation.answers import Answer
from rlhf_studio.runs.manifest import belongs, entries_by_step, is_folder, read_object, step_of
from rlhf_studio.runs.records import (
    TIME_OVER,
    BestPolicy,
    CheckpointInfo,
    Origin,
    Probe,
    ProbeScore,
    ResponseTokens,
    RolloutRecord,
    RunStatus,
    Scratch,
    SettingChange,
    StepEpisodes,
    StoredEvent,
    WatchRecord,
)
from rlhf_studio.runs.rows import OF_NOW as _OF_NOW
from rlhf_studio.runs.status import Locks
from rlhf_studio.runs.values import DAMAGE, check_whole, decode_number

_WATCHED_ENDS = f"step IN (SELECT min(step) FROM watched UNION SELECT max(step) FROM watched WHERE {_OF_NOW})"

LAST_EVENTS = 20
"""Among which the end of a run is."""
SUMMARY_METRICS = {"score": "objective/scores", "gold": "gold/score", "kl": "objective/kl"}
MOST_SPREAD = 20


@dataclass(frozen=True)
class _Moment:
    connection: sqlite3.Connection
    known: studio.Studio
    locks: Locks


class RunReader:
    """Reads one run. Cheap to make: nothing is opened before the first call.

    Everything it returns of steps ends at the run's own ``step``. Later rows are from before a resume
    (``RunStatus.last_recorded_step`` says up to where); showing them beside the new ones would mix two histories.

    Every method raises StoreError when the folder is not a run, is damaged, or was written by a newer program.
    """

    def __init__(self, run_dir: Path):
        self.run_dir = Path(run_dir).resolve()
        self.path = self.run_dir / paths.DATABASE
        self._thread = threading.local()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """All calls of this thread inside the block see the run at one and the same moment.

        For instance status, new metrics and new events of one poll, with no commit or cut in between. Keep it short.
        """
        # Queue and locks before the row, as always: a row older than the locks would show a run that ends as interrupted.
        known = self._known()
        locks = status.look_at_locks(self.run_dir)
        self._thread.moment = _Moment(self._open(), known, locks)
        try:
            yield
        finally:
            self._thread.moment.connection.close()
            self._thread.moment = None

    def _moment(self) -> _Moment | None:
        return getattr(self._thread, "moment", None)

    def _open(self) -> sqlite3.Connection:
        connection = schema.connect(self.path, read_only=True)
        try:
            schema.check_version(connection, self.path)
            connection.execute("BEGIN")
            connection.execute("SELECT seq FROM run").fetchone()  # the moment is fixed by the first read, not by BEGIN
        except sqlite3.Error as error:
            connection.close()
            raise store_error(error, self.path) from error
        except StoreError:
            connection.close()
            raise
        return connection

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        moment = self._moment()
        connection = moment.connection if moment else self._open()
        try:
            yield connection
        except sqlite3.Error as error:
            raise store_error(error, self.path) from error
        except DAMAGE as error:  # a row that no writer of ours made
            raise StoreError(f"{self.path} is damaged: {type(error).__name__} {error}.", "damaged") from error
        finally:
            if moment is None:
                connection.close()

    def status(self) -> RunStatus:
        """The run's row with the state it is really in (see :mod:`rlhf_studio.runs.status`), its place in the queue included."""
        moment = self._moment()
        if moment is not None:
            return self._derive(moment.known, moment.locks)[1]
        return self.status_in(self._known())

    def status_in(self, known: studio.Studio) -> RunStatus:
        """As :meth:`status`, for a caller that has read the workspace's queue and names already."""
        row, derived = self._derive(known, status.look_at_locks(self.run_dir))
        if derived.state in ("interrupted", "failed") and row.state != derived.state:
            # An engine may have begun after the locks were looked at and before the row was read: so this is checked a second time.
            derived = self._derive(known, status.look_at_locks(self.run_dir))[1]
        return derived

    def _known(self) -> studio.Studio:
        workspace = paths.workspace_of(self.run_dir)
        return studio.read(workspace, self.run_dir.name) if workspace else studio.EMPTY

    def _derive(self, known: studio.Studio, locks: Locks) -> tuple[RunStatus, RunStatus]:
        with self._reading() as connection:
            row = status.read_row(connection, self.run_dir, known)
        return row, status.derive(row, locks, known, self.run_dir, in_workspace=paths.workspace_of(self.run_dir) is not None)

    def stored(self) -> tuple[str, int]:
        """(state, seq) as the engine wrote them last, whether it still runs or not."""
        with self._reading() as connection:
            state, seq = connection.execute("SELECT state, seq FROM run").fetchone()
            check_whole(seq)
        return state, seq

    def config(self) -> StageConfig:
        """The configuration saved with the run, of whatever stage it is."""
        path = self.run_dir / paths.CONFIG
        if path.is_symlink():
            raise StoreError(f"{path} is a link to another file; a run's configuration must lie in its folder.", "damaged")
        try:
            return config_from_file(path)
        except ConfigError as error:
            if not path.exists():
                raise StoreError(f"There is no run at {self.run_dir}: {path.name} is missing.", "missing") from None
            raise StoreError(f"The configuration {path} cannot be used: {error}", "damaged") from error

    def working_folder(self) -> Path:
        """The folder the run was created from; relative paths in its configuration start there."""
        with self._reading() as connection:
            return Path(rows.read_run(connection).working_folder)

    def program(self) -> str:
        """The version of this program that created the run."""
        with self._reading() as connection:
            return rows.read_run(connection).program

    def summary(self) -> dict[str, Any]:
        """What the table of runs shows.

        Keys: ``model``; ``steps`` (recorded so far); ``score_first``, ``score_last``, ``gold_first``, ``gold_last``, ``kl_first``,
        ``kl_last`` (the value in the first recorded step, the mean of the last tenth of them, at least one; None where nothing
        finite was recorded); ``scores`` (those of at most :data:`MOST_SPREAD` steps, for a small picture); ``elapsed`` (seconds of work,
        or None before the start, and where a log does not say them: the time that it took to read it is none of the training).
        """
        with self._reading() as connection:
            run = rows.read_run(connection)
            beat = connection.execute("SELECT at FROM heartbeat").fetchone()[0]
            result: dict[str, Any] = {"model": run.model, "steps": rows.count_steps(connection)}
            means = rows.first_and_last(connection, SUMMARY_METRICS.values())
            for key, metric in SUMMARY_METRICS.items():
                result[f"{key}_first"], result[f"{key}_last"] = means[metric]
            result["scores"] = rows.spread(connection, SUMMARY_METRICS["score"], MOST_SPREAD)
            worked = rows.last_value(connection, "time/elapsed")
        until = run.ended_at if run.ended_at is not None else beat if beat is not None else time.time()
        began = None if run.origin.kind == "log" and not run.origin.followed else run.started_at
        result["elapsed"] = worked if worked is not None else None if began is None else max(0.0, until - began)
        return result

    def first_and_last(self, metrics: Iterable[str]) -> dict[str, tuple[float | None, float | None]]:
        """For each metric how it began and ended: the value in the first step, the mean of the last tenth; None as in :meth:`summary`."""
        with self._reading() as connection:
            return rows.first_and_last(connection, metrics)

    # --- series --------------------------------------------------------------------------------------------------------

    def metrics_since(self, step: int, limit: int = 500) -> list[tuple[int, dict[str, float | None]]]:
        """(step, values by name) of at most ``limit`` steps after ``step``, in order. None stands for a number that was not finite."""
        with self._reading() as connection:
            names = rows.read_metric_names(connection)
            rows_of_steps = connection.execute(f"SELECT step FROM steps WHERE step > ? AND {_OF_NOW} ORDER BY step LIMIT ?", (step, limit))
            steps = [row[0] for row in rows_of_steps]
            result: dict[int, dict[str, float | None]] = {number: {} for number in steps}
            last = steps[-1] if steps else step
            for number, metric, value, flag in connection.execute(
                "SELECT step, metric, value, flag FROM metrics WHERE step > ? AND step <= ? ORDER BY step, metric", (step, last)
            ):
                result[number][names[metric]] = rows.read_metric(value, flag)
        return list(result.items())

    def columns(self, metrics: Iterable[str]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Chosen metrics of all steps: the steps, int64, shape (S,), and float64 values, shape (S,), by name; NaN where there is none."""
        with self._reading() as connection:
            return rows.read_columns(connection, list(metrics))

    def metric_names(self) -> list[str]:
        """The names of all metrics that any step has."""
        with self._reading() as connection:
            return rows.metric_names_of_now(connection)

    def non_finite(self) -> list[tuple[int, str, float]]:
        """(step, metric, nan or an infinity) of every metric value that was not finite, in order."""
        with self._reading() as connection:
            names = rows.read_metric_names(connection)
            flagged = connection.execute(
                f"SELECT step, metric, flag FROM metrics WHERE flag IS NOT NULL AND {_OF_NOW} ORDER BY step, metric"
            )
            return [(step, names[metric], decode_number(None, flag) or 0.0) for step, metric, flag in flagged.fetchall()]

    def events_since(self, id: int, limit: int = 200, *, of: rows.EventsOf = "all") -> list[StoredEvent]:
        """At most ``limit`` events after the given one (0 for all), oldest first.

        ``of`` leaves some out: with ``now`` those of steps that were trained again since, or wait for it; with ``steps`` also those that
        were not stored together with a step.
        """
        with self._reading() as connection:
            return rows.read_events(connection, id, limit, of)

    def newest_events(self, limit: int = 200, *, of: rows.EventsOf = "all") -> list[StoredEvent]:
        """The last ``limit`` events, oldest first; ``of`` as in :meth:`events_since`."""
        with self._reading() as connection:
            return rows.read_events(connection, 0, limit, of, newest=True)

    def ended_by_time(self) -> bool:
        """Whether the run has stopped because its time limit was over: the event of that, and then the stop, are its newest."""
        newest = [event.kind for event in self.newest_events(LAST_EVENTS) if event.kind in (TIME_OVER, "stop")]
        return self.status().state == "stopped" and newest[-2:] == [TIME_OVER, "stop"]

    # --- samples -------------------------------------------------------------------------------------------------------

    def rollout_steps(self) -> list[int]:
        """The steps that have recorded responses, in order."""
        with self._reading() as connection:
            return [row[0] for row in connection.execute(f"SELECT step FROM steps WHERE recorded > 0 AND {_OF_NOW} ORDER BY step")]

    def rollouts(self, step: int) -> list[RolloutRecord]:
        """The recorded responses of a step without their token arrays (``tokens`` is None); empty when there are none."""
        with self._reading() as connection:
            return rows.read_rollouts(connection, step)

    def rollout(self, step: int, sample: int) -> RolloutRecord:
        """One recorded response with every token's numbers. Raises StoreError (reason ``absent``) when it was not recorded."""
        with self._reading() as connection:
            record = rows.read_rollout(connection, step, sample)
        if record is None:
            raise StoreError(f"Step {step} has no recorded response {sample}.", "absent")
        return record

    def response_tokens(self, step: int, limit: int) -> list[ResponseTokens]:
        """The tokens of the first ``limit`` recorded responses of a step, without their numbers; empty when there are none."""
        with self._reading() as connection:
            return rows.read_response_tokens(connection, step, limit)

    def answers(self, after: int = 0, until: float = math.inf) -> list[Answer]:
        """What an evaluation run has recorded in the steps after ``after`` to ``until``; empty for runs of other stages."""
        with self._reading() as connection:
            return rows.read_answers(connection, after, until)

    def watched(self, *, ends: bool = False) -> list[tuple[int, WatchRecord]]:
        """(step, answer) of all watched prompts, by step and sample. Step 0 is the starting policy.

        With ``ends`` only the answers of the first and of the newest step that has any.
        """
        with self._reading() as connection:
            return rows.read_watched(connection, f"{_OF_NOW} AND {_WATCHED_ENDS}" if ends else _OF_NOW)

    def watched_steps(self) -> list[int]:
        """The steps with answers to watched prompts, ascending."""
        with self._reading() as connection:
            return [row[0] for row in connection.execute(f"SELECT DISTINCT step FROM watched WHERE {_OF_NOW} ORDER BY step")]

    def watched_at(self, steps: Iterable[int], samples: Iterable[int]) -> list[tuple[int, WatchRecord]]:
        """(step, answer) of some watched prompts at some steps, as :meth:`watched` has them."""
        numbers = [",".join(str(int(number)) for number in chosen) for chosen in (steps, samples)]
        with self._reading() as connection:
            return rows.read_watched(connection, f"{_OF_NOW} AND step IN ({numbers[0]}) AND sample IN ({numbers[1]})")

    def episodes(self, first: int, last: int | None = None) -> dict[int, StepEpisodes]:
        """All episodes of the steps ``first`` to ``last`` (of ``first`` alone without it), by step; a step without them is left out."""
        with self._reading() as connection:
            until = min(first if last is None else last, connection.execute("SELECT step FROM run").fetchone()[0])
            return rows.read_episodes(connection, first, until)

    def episode_arrays(self, step: int, names: Iterable[str]) -> dict[str, np.ndarray]:
        """Some of :class:`StepEpisodes`' arrays of one step, by name and as stored; empty when its episodes were not kept."""
        with self._reading() as connection:
            return rows.read_episode_arrays(connection, step, list(names))

    def pieces(self) -> dict[int, str]:
        """The text of every token id of the run's responses; empty for runs that an earlier version recorded."""
        with self._reading() as connection:
            return rows.read_pieces(connection)

    def probes(self) -> tuple[list[Probe], list[tuple[int, ProbeScore]]]:
        """The run's probes, and (step, score) of each by step and probe. Step 0 is the starting policy."""
        with self._reading() as connection:
            return rows.PROBES.records(connection, "ORDER BY probe"), rows.read_probe_scores(connection, _OF_NOW)

    def changes(self, *, later_too: bool = False) -> list[SettingChange]:
        """The settings that were changed while the run went on, in the order in which they were.

        With ``later_too`` also those of steps from before a resume that wait to be trained again.
        """
        with self._reading() as connection:
            return rows.CHANGES.records(connection, f"WHERE {'TRUE' if later_too else _OF_NOW} ORDER BY rowid")

    def scratch(self) -> Scratch | None:
        """What a step holds that waits between two of its phases, or is going on after it waited; else None.

        After an engine was killed, what its step held is there until the next start.
        """
        with self._reading() as connection:
            return rows.read_scratch(connection)

    def origin(self) -> Origin:
        """Where the run comes from."""
        with self._reading() as connection:
            return rows.read_run(connection).origin

    def recorded_at(self, step: int) -> float | None:
        """When a step of the run as it goes now was recorded, in seconds since 1970; None when there is no such step."""
        with self._reading() as connection:
            row = connection.execute(f"SELECT at FROM steps WHERE step = ? AND {_OF_NOW}", (step,)).fetchone()
        return row[0] if row else None

    def checkpoints(self) -> list[CheckpointInfo]:
        """The complete checkpoints (those with a manifest), oldest first.

        Links, half-written folders, and checkpoints of steps that were trained again since are left out. Whether every file is whole is
        for the engine to find out: that takes reading them.
        """
        complete = self._complete(paths.CHECKPOINTS)
        metric = complete[-1][1] if complete else None
        best = next(iter(self.best_first([info.step for info, _ in complete], metric)), None) if metric else None
        return [replace(info, best=info.step == best) for info, _ in complete]

    def snapshots(self) -> list[CheckpointInfo]:
        """The policy snapshots, oldest first; what is left out is as in :meth:`checkpoints`. Training cannot go on from one."""
        return [info for info, _ in self._complete(paths.SNAPSHOTS)]

    def policies(self) -> list[CheckpointInfo]:
        """Every policy that was kept, oldest first: the checkpoints, and the snapshots of other steps."""
        by_step = {info.step: info for info in [*self.snapshots(), *self.checkpoints()]}
        return [by_step[step] for step in sorted(by_step)]

    def best_first(self, steps: Sequence[int], metric: str) -> list[int]:
        """The policies after ``steps`` by how well they did, the highest first; of equal values the newest first.

        Step n + 1 samples with the policy that step n left, so its value of ``metric`` tells how good that one is. A step without one,
        as the last of the run, is left out.
        """
        with self._reading() as connection:
            return [step for step, _ in rows.best_first(connection, steps, metric)]

    def best_policy(self, of: Sequence[int] | None = None) -> BestPolicy | None:
        """The one that did best of all policies that were kept, or of these steps', by :meth:`best_first`; None when none was measured.

        What is compared is the metric by which the run keeps its best checkpoint, else the gold score, else the score.
        """
        steps = [info.step for info in self.policies()] if of is None else of
        complete = self._complete(paths.CHECKPOINTS)
        chosen_metric = complete[-1][1] if complete else None
        with self._reading() as connection:
            for metric in [chosen_metric] if chosen_metric else [SUMMARY_METRICS["gold"], SUMMARY_METRICS["score"]]:
                if ranked := rows.best_first(connection, steps, metric):
                    return BestPolicy(ranked[0][0], metric, ranked[0][1])
        return None

    def _complete(self, subfolder: str) -> list[tuple[CheckpointInfo, str | None]]:
        """What is complete in a folder of the run, each with the metric by which the best is kept, if any."""
        try:
            folders = [entry for entry in entries_by_step(self.run_dir / subfolder) if is_folder(entry)]
        except OSError as error:
            raise store_error(error, self.run_dir / subfolder) from error
        return [info for info in map(self._checkpoint, folders) if info is not None]

    def _checkpoint(self, folder: Path) -> tuple[CheckpointInfo, str | None] | None:
        step = step_of(folder) or 0
        try:
            written = (folder / paths.MANIFEST).stat().st_mtime
            manifest = read_object(folder / paths.MANIFEST)
            size = sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink())
        except (OSError, ValueError):  # not complete, damaged, or just being removed to make room for newer ones
            return None
        if not belongs(step, manifest, self.recorded_at(step)):
            return None
        return CheckpointInfo(step=step, path=str(folder), bytes=size, time=written), manifest.get("keep_best")

    def log_tail(self, bytes: int = 16000) -> str:
        """At most the last ``bytes`` bytes of the engine's log as text, undecodable bytes replaced; empty when there is no log."""
        return status.read_log(self.run_dir, bytes)
