"""What the viewers of a run get: the position of a viewer, the run at one moment, and how that is read.

:mod:`rlhf_studio.ui.live.feed` reads and keeps them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from rlhf_studio.analysis.ends import first_and_last
from rlhf_studio.config.metrics.stages import SUMMARIES
from rlhf_studio.language import language, shown
from rlhf_studio.runs import paths
from rlhf_studio.runs.records import ENDED, RunStatus
from rlhf_studio.ui.feedback.held import Held
from rlhf_studio.ui.insights import Progress
from rlhf_studio.ui.live import charts, payloads
from rlhf_studio.ui.sent import member

MOST_DELTA_ROWS = 500
MOST_EVENTS = 200


@dataclass(frozen=True)
class Position:
    """The position of a viewer, as the page sends it with every poll. A member of a wrong type counts as missing.

    ``sample`` is the response whose tokens the page needs, ``insight`` the version of the verdict that it shows. ``follows`` is the step
    whose samples it shows while it goes on to each newest step (-1: none yet); None while it shows a chosen step.
    """

    run: str = ""
    version: str = ""
    epoch: int = -1
    step: int = -1
    event: int = 0
    sample: int = 0
    insight: str = ""
    follows: int | None = None

    @classmethod
    def parse(cls, data: Any) -> Position:
        """Read a position from untrusted JSON."""
        run, version, insight = member(data, "run"), member(data, "version"), member(data, "insight")
        follows = _integer(member(data, "follows"), -2)
        return cls(
            run=run if isinstance(run, str) and paths.is_run_name(run) else "",
            version=version if isinstance(version, str) else "",
            epoch=_integer(member(data, "epoch"), -1),
            step=_integer(member(data, "step"), -1),
            event=_integer(member(data, "event"), 0),
            sample=_integer(member(data, "sample"), 0),
            insight=insight if isinstance(insight, str) else "",
            follows=follows if follows >= -1 else None,
        )


def _integer(value: Any, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53 else default


@dataclass(frozen=True)
class Snapshot:
    """One run at one moment. Answers are built on first demand and shared by all viewers at the same position who read the same language.

    ``newest`` is the newest step with samples, -1 for none.
    """

    version: str
    progress: Progress
    seq: int
    newest: int
    status: bytes
    settings: bytes
    settings_since: int
    sample_steps: bytes
    series: payloads.Series
    events: tuple[dict[str, Any], ...]
    checked_at: float
    _answers: dict[tuple[str, int, int], bytes] = field(default_factory=dict, repr=False)

    @property
    def epoch(self) -> int:
        return self.progress.epoch

    @property
    def step(self) -> int:
        return self.progress.step

    def answer(self, position: Position) -> bytes:
        """The inside of the reply's JSON object for a viewer at ``position``."""
        if position.version == self.version:
            return b'"same":true'
        full = (
            position.epoch != self.progress.epoch
            or not 0 <= position.step <= self.series.last_step
            or position.step == 0 in self.series.steps()[:1]  # the measurements before training may be new
            or len(self.series.steps(position.step)) > MOST_DELTA_ROWS
        )
        key = (language(), *((-1, 0) if full else (position.step, position.event)))
        if key not in self._answers:
            if len(self._answers) >= 64:
                self._answers.clear()
            self._answers[key] = self._build(full, *key[1:])
        return self._answers[key]

    def touched(self, now: float) -> Snapshot:
        """The same snapshot, which is still true at ``now``. It keeps the answers that were built."""
        return replace(self, checked_at=now)

    def _build(self, full: bool, step: int, event: int) -> bytes:
        events = [row for row in self.events if row["id"] > event][-MOST_EVENTS:]
        head = {
            "version": self.version,
            "epoch": self.progress.epoch,
            "full": full,
            "last_step": self.series.last_step,
            "events": shown(events, ("text",)),
        }
        parts = [
            payloads.encode_text(head)[1:-1],
            b'"status":' + payloads.told_again(self.status),
            b'"sample_steps":' + self.sample_steps,
            b'"series":' + payloads.encode_numbers(self.series.payload(step, accepts=charts.is_shown)),
        ]
        if full or step < self.settings_since:
            parts.append(b'"settings":' + self.settings)
        return b",".join(parts)


class Follower:
    """The thread's own view of one run: an open reader and all that was read so far."""

    def __init__(self, reader: Any, boot: str, held: Held | None = None) -> None:
        self.reader, self._held = reader, held
        self.snapshot: Snapshot | None = None
        self.status: RunStatus | None = None
        self._boot = boot
        self._changes = 0
        self._start_over()

    def _start_over(self) -> None:
        self._config = self.reader.config()
        self._scale: Any = None
        self._one_scale = False
        self._settings, self._settings_since = self._read_settings(), 0
        self._series = payloads.Series()
        self._events: list[dict[str, Any]] = []
        self._sample_steps, self._newest = b"[]", -1
        self._checkpoints: list[Any] = []
        self._first_and_last: dict[str, tuple[float | None, float | None]] = {}
        self._read_at: tuple[int, int, str] | None = None

    def _read_settings(self) -> bytes:
        told = payloads.settings_payload(self._config, self.reader.changes(), self.reader.origin())
        return payloads.encode_text({**told, "one_scale": self._one_scale})

    def _read_scale(self, recorded: list[int], reward_changed: bool) -> bool:
        """Whether score and gold may share an axis; read until the first responses have settled it."""
        if "gold/score" not in self._series.names:
            return False
        if self._scale is None:
            from rlhf_studio.analysis.replay.scale import OneScale  # when the first run is looked at, so that the app starts sooner

            self._scale = OneScale(self.reader)
        elif self._scale.is_settled and not reward_changed:
            return self._one_scale
        return bool(self._scale.read(recorded))

    def refresh(self, now: float) -> Snapshot:
        """Read what is new: one small read when nothing has changed, and the data only when the run's sequence number has."""
        with self.reader.snapshot():
            return self._refresh(now)

    def _refresh(self, now: float) -> Snapshot:
        status = self.reader.status()
        if self.status is not None and status.epoch != self.status.epoch:
            self._start_over()
        state_now = (status.epoch, status.seq, status.state)
        if moved := state_now != self._read_at:
            self._read(status)
            self._read_at = state_now
        self.status = status
        known = (self._series, self._checkpoints, self._first_and_last, self._config.stage)
        encoded = payloads.encode_text(payloads.status_payload(status, *known, self._held.by(status) if self._held else ""))
        if moved or self.snapshot is None or encoded != self.snapshot.status:
            self._changes += 1
            self.snapshot = Snapshot(
                version=f"{self._boot}-{self._changes}",
                progress=Progress(status.epoch, self._series.last_step, status.state, status.starter),
                seq=status.seq,
                newest=self._newest,
                status=encoded,
                settings=self._settings,
                settings_since=self._settings_since,
                sample_steps=self._sample_steps,
                series=self._series.freeze(),
                events=tuple(self._events),
                checked_at=now,
            )
        else:
            self.snapshot = self.snapshot.touched(now)
        return self.snapshot

    def _read(self, status: RunStatus) -> None:
        last_event = self._events[-1]["id"] if self._events else 0
        new_events: list[dict[str, Any]] = []
        while batch := self.reader.events_since(new_events[-1]["id"] if new_events else last_event, limit=MOST_EVENTS):
            new_events += payloads.event_rows(batch)
            self._series = payloads.Series(begun) if (begun := payloads.before_training(batch)) else self._series  # the newest counts
        while rows := self.reader.metrics_since(self._series.last_step if self._series.count else -1, limit=5000):
            self._series.append(rows)
        self._events = (self._events + new_events)[-5 * MOST_EVENTS :]
        with_samples = self.reader.rollout_steps()
        self._sample_steps, self._newest = payloads.encode_numbers(payloads.step_ranges(with_samples)), max(with_samples, default=-1)
        if (
            self._read_at is None
            or status.state != self._read_at[2]
            or any(event["kind"] in ("checkpoint", "resume") for event in new_events)
        ):
            self._checkpoints = self.reader.checkpoints()
        changed = any(event["kind"] == "setting" for event in new_events)
        one_scale, self._one_scale = self._one_scale, self._read_scale(with_samples, changed)
        if changed or one_scale != self._one_scale:
            self._settings, self._settings_since = self._read_settings(), self._series.last_step
        names = dict.fromkeys([*SUMMARIES[self._config.stage], *filter(charts.is_shown, self._series.names)])
        self._first_and_last = first_and_last(self.reader, self._config.stage, list(names)) if status.state in ENDED else {}
