"""What the Live page gets, as plain data: one function for each payload.

Everything here is pure: it reads no disk, does not use Gradio, and is tested without a browser. Texts are written as JSON with ASCII
escapes: half of a surrogate pair in a model's text is not valid UTF-8, but must reach the page.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import orjson

from rlhf_studio.analysis.logs.shareable import without_secrets
from rlhf_studio.analysis.series import MAX_POINTS, rounded, thin_rows
from rlhf_studio.config import RunConfig, StageConfig
from rlhf_studio.config.bundled import Recording
from rlhf_studio.config.stages import SupervisedConfig
from rlhf_studio.language import ENGLISH, language, shown
from rlhf_studio.runs.feedback.records import WAITING_FOR_RATINGS
from rlhf_studio.runs.lab.failures import failed_field
from rlhf_studio.runs.pace import STEP_TIME, seconds_left, step_seconds
from rlhf_studio.runs.records import ALIVE, CheckpointInfo, Origin, RunStatus, SettingChange, StoredEvent
from rlhf_studio.runs.status import may_force_stop, silence
from rlhf_studio.runs.values import LARGEST_FLOAT32
from rlhf_studio.units import without_dust


def encode_text(data: Any) -> bytes:
    """JSON of plain data; text that is not valid Unicode survives as ``\\ud8xx`` escapes. NaN and infinities become ``null``."""
    dumps = partial(json.dumps, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    try:
        return dumps(data).encode("ascii")
    except ValueError:  # seldom: only then are all values checked
        return dumps(_without_infinities(data)).encode("ascii")


def told_again(body: bytes) -> bytes:
    """JSON of :func:`encode_text`, with what an engine or an error said in it in the language that is spoken now."""
    if language() == ENGLISH:
        return body
    data = json.loads(body)
    of_recordings = ("name", "about") if data.get("recording") or "recordings" in data else ()
    return encode_text(shown(data, ("phase", "cause", "problem", "device", *of_recordings)))


def _without_infinities(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _without_infinities(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_without_infinities(value) for value in data]
    return finite(data) if isinstance(data, float) else data


def encode_numbers(data: Any) -> bytes:
    """JSON of numbers and numpy arrays; NaN and infinities become ``null``."""
    return orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY)


def finite(value: float | None) -> float | None:
    """The number as it is shown, or None when it is missing, NaN or infinite."""
    return without_dust(float(value)) if value is not None and np.isfinite(value) else None


class Series:
    """A run's metrics as float32 columns that grow; all columns share the steps.

    Attributes:
        names: metric names in the order they first appeared.
        count: number of steps held.
    """

    def __init__(self, rows: Iterable[tuple[int, dict[str, float | None]]] = ()) -> None:
        self.names: list[str] = []
        self.count = 0
        self._steps = np.zeros(256, np.int32)
        self._columns: dict[str, np.ndarray] = {}
        self.append(rows)

    @property
    def last_step(self) -> int:
        """The newest step, 0 before the first."""
        return int(self._steps[self.count - 1]) if self.count else 0

    def append(self, rows: Iterable[tuple[int, dict[str, float | None]]]) -> None:
        """Add (step, metrics) rows in ascending order. A value that is missing, not finite or too large for float32 becomes NaN."""
        for step, metrics in rows:
            if self.count == len(self._steps):
                self._grow()
            self._steps[self.count] = step
            for name, value in metrics.items():
                if name not in self._columns:
                    self.names.append(name)
                    self._columns[name] = np.full(len(self._steps), np.nan, np.float32)
                number = finite(value)
                self._columns[name][self.count] = np.nan if number is None or abs(number) > LARGEST_FLOAT32 else number
            self.count += 1

    def _grow(self) -> None:
        extra = len(self._steps)
        self._steps = np.concatenate([self._steps, np.zeros(extra, np.int32)])
        gap = np.full(extra, np.nan, np.float32)
        self._columns = {name: np.concatenate([column, gap]) for name, column in self._columns.items()}

    def freeze(self) -> Series:
        """A view of the present rows. Later appends do not change it: rows are written once, and a longer series is a new array."""
        frozen = Series()
        frozen.names, frozen.count = list(self.names), self.count
        frozen._steps = self._steps[: self.count]
        frozen._columns = {name: column[: self.count] for name, column in self._columns.items()}
        return frozen

    def steps(self, after: int = -1) -> np.ndarray:
        """The steps later than ``after``, shape (N,)."""
        held = self._steps[: self.count]
        return held[np.searchsorted(held, after, side="right") :]

    def column(self, name: str, after: int = -1) -> np.ndarray:
        """The values of ``name`` at :meth:`steps`, NaN where there is none."""
        held = self._steps[: self.count]
        first = np.searchsorted(held, after, side="right")
        column = self._columns.get(name)
        return np.full(self.count - first, np.nan, np.float32) if column is None else column[first : self.count]

    def payload(self, after: int = -1, limit: int = MAX_POINTS, accepts: Callable[[str], bool] = lambda name: True) -> dict[str, Any]:
        """``{names, x, at, y}``: series i has the values y[i] at the steps x[at[i]]; equal step lists are sent once.

        Only the metrics that ``accepts`` lets through are in it.
        """
        steps = self.steps(after)
        names = [name for name in self.names if accepts(name)]
        rows = {name: thin_rows(self.column(_rows_from(name), after), limit) for name in names}
        payload: dict[str, Any] = {"names": names, "x": [], "at": [], "y": []}
        positions: dict[bytes, int] = {}
        for name in names:
            thinned = steps[rows[name]]
            position = positions.setdefault(thinned.tobytes(), len(positions))
            if position == len(payload["x"]):
                payload["x"].append(thinned)
            payload["at"].append(position)
            payload["y"].append(rounded(self.column(name, after)[rows[name]]))
        return payload


def _rows_from(name: str) -> str:
    """The metric whose rows are kept when a series is thinned: the phases of a step are drawn as a stack, so they must keep the same
    rows."""
    return "time/total" if name.startswith("time/") and name != "time/elapsed" else name


def listing_payload(runs: Sequence[RunStatus], recordings: Sequence[Recording]) -> dict[str, Any]:
    """What a page without a run gets: the ``newest`` run (of the runs that are alive, if any), and the recordings that it can show.

    An evaluation, which trains nothing, is the newest only where there is nothing else.
    """
    training = [run for run in runs if run.stage != "evaluation"] or runs
    alive = [run for run in training if run.state in ALIVE]
    return {
        "newest": (alive or training)[0].run_id if runs else None,
        "alive": bool(alive),
        "recordings": [{"run": recording.run_id, "name": recording.name, "about": recording.about} for recording in recordings],
    }


def status_payload(
    status: RunStatus,
    series: Series,
    checkpoints: Sequence[CheckpointInfo],
    first_and_last: Mapping[str, tuple[float | None, float | None]],
    stage: str = "ppo",
    held: str = "",
) -> dict[str, Any]:
    """The header's facts. ``silent`` is the engine's silence in seconds, only when it is long enough to mention; ``blamed`` the setting
    that a failed run's cause points at, empty for none. Who trains it is its ``kind``, as in ``Origin.kind``; ``only_read`` says whether
    nothing here can train it or go on with it; ``trained_by`` names the program or the trainer that does, ``controls`` what can be asked
    of another trainer, null for all other runs; ``unit`` is what its lengths count, tokens or words; ``recording`` whether it came with
    the program.

    ``rating`` says whether it waits for people who rate; ``held`` names the run for whose ratings a run in the queue waits as well.
    ``first_and_last`` are, for an ended run, each metric's value at the first step and its mean over the last tenth; else empty: what the
    page then shows of each metric, as ``first`` and ``last``.
    """
    pace = step_seconds(series.column(STEP_TIME))
    whole = {name: (finite(first), finite(last)) for name, (first, last) in first_and_last.items() if last is not None}
    compared = len(series.steps(0)) >= 2  # a single step is beginning and end
    return {
        "stage": stage,
        "run": status.run_id,
        "name": status.name,
        "recipe": status.recipe,
        "parent": status.origin.parent,
        "state": status.state,
        "phase": status.phase,
        "fraction": finite(status.fraction),
        "step": status.step,
        "recorded": status.last_recorded_step,
        "total": status.total_steps,
        "started_at": status.started_at,
        "device": status.device,
        "cause": without_secrets(status.cause),
        "blamed": failed_field(status),
        "kind": status.origin.kind,
        "keeps_model": status.origin.keeps_model,
        "only_read": status.recording or bool(status.origin.only_read),
        "trained_by": status.origin.trained_by,
        "controls": status.origin.controls,
        "unit": status.origin.unit,
        "recording": status.recording,
        "queue_position": status.queue_position,
        "rating": status.state == "running" and status.phase.startswith(WAITING_FOR_RATINGS),
        "held": held,
        "silent": silence(status),
        "stop_asked": status.stop_asked_age is not None,
        "may_force_stop": may_force_stop(status),
        "step_seconds": finite(pace),
        "left": finite(seconds_left(pace, status.step, status.total_steps)),
        "worked": finite(series.column("time/elapsed")[-1]) if series.count else None,
        "checkpoints": [{"step": point.step, "bytes": point.bytes} for point in checkpoints],
        "first": {name: first for name, (first, _) in whole.items() if first is not None and compared},
        "last": {name: last for name, (_, last) in whole.items()},
    }


STEERED = ("ppo.kl_coef", "ppo.kl_target", "ppo.learning_rate", "generation.temperature")
"""The settings that can be changed while a run goes on, as the page offers them."""


def settings_payload(config: StageConfig, changes: Sequence[SettingChange] = (), origin: Origin | None = None) -> dict[str, Any]:
    """The settings that the charts, the inspector and the questions need, with what was changed while the run went on.

    What is not known of the run, and a default of ours (``Origin.knows``), is null. ``kl_targets`` are (first step, value): the target in
    force from that step on; empty without an adaptive controller. From ``fewest_parts`` on, the parts of the reward are drawn beside the
    score: a single one of a run of ours is the score before penalties, in others' records it may be anything. Of another stage than PPO
    no setting can be changed while it goes on.
    """
    if not isinstance(config, RunConfig):
        batch = config.training.batch_size if isinstance(config, SupervisedConfig) else 0
        return {"steered": {}, "kl_targets": [], "kl_target": None, "batch_size": batch, "watch_every": config.engine.watch_every}
    ppo, origin = config.ppo, origin or Origin()
    now = {name: getattr(getattr(config, name.split(".")[0]), name.split(".")[1]) for name in STEERED}
    changes = [change for change in changes if change.setting in now and _is_number(change.new)]
    now.update({change.setting: change.new for change in changes})
    used = {
        "kl_estimator": ppo.kl_estimator,
        "kl_placement": ppo.kl_placement,
        "cliprange": ppo.cliprange,
        "cliprange_high": ppo.cliprange_high or ppo.cliprange,
        "whiten_advantages": ppo.has_critic and ppo.whiten_advantages,
        "advantage": ppo.advantage,
    }
    adaptive = ppo.kl_controller == "adaptive" and origin.knows("ppo.kl_target")
    targets = [[1, ppo.kl_target], *([change.step, change.new] for change in changes if change.setting == "ppo.kl_target")]
    return {
        "steered": {name: value for name, value in now.items() if adaptive or name != "ppo.kl_target"},
        "kl_targets": targets if adaptive else [],
        "kl_target": now["ppo.kl_target"] if adaptive else None,
        "fewest_parts": 2 if origin.keeps_model else 1,
        **{name: value if origin.knows(f"ppo.{name}") else None for name, value in used.items()},
        "batch_size": ppo.batch_size if origin.knows("ppo.batch_size") else None,
        "watch_every": config.engine.watch_every,
    }


def _is_number(value: Any) -> bool:
    """Whether a setting's value can be shown and drawn: a log of another program may hold anything."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST_FLOAT32


def event_rows(events: Sequence[StoredEvent]) -> list[dict[str, Any]]:
    """Events as the page lists them; their free-form data stays on the server."""
    return [
        {
            "id": event.id,
            "time": event.time,
            "step": event.step,
            "level": event.level,
            "kind": event.kind,
            "text": without_secrets(event.text),
        }
        for event in events
    ]


def before_training(events: Sequence[StoredEvent]) -> list[tuple[int, dict[str, float | None]]]:
    """The row of step 0: the measurements of the untrained model in the newest event ``start``. Empty without such an event.

    A run that began again from step 0 has one such event for each beginning.
    """
    facts = next((event.data for event in reversed(events) if event.kind == "start"), {})
    measured = {name: value for name, value in facts.items() if isinstance(value, int | float) and "/eval_" in name}
    return [(0, {**measured, "episode": 0.0, "time/elapsed": 0.0})] if measured else []


def step_ranges(steps: Sequence[int]) -> list[list[int]]:
    """Ascending steps as ``[first, last]`` ranges without gaps, so that a long run stays short on the wire."""
    ranges: list[list[int]] = []
    for step in steps:
        if ranges and ranges[-1][1] == step - 1:
            ranges[-1][1] = step
        else:
            ranges.append([step, step])
    return ranges
