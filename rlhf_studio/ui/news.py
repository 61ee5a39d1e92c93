"""What has happened to the runs of this workspace: ends and alarms, for the bell in the line above the pages."""

from __future__ import annotations

import time
from typing import Any

import gradio as gr

from rlhf_studio.analysis.logs.shareable import without_secrets
from rlhf_studio.language import S_, told
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.records import ENDED, RunStatus, is_alarm
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.remembered import OfRuns
from rlhf_studio.ui.roles import Role, callable_by
from rlhf_studio.ui.serving.shared_reading import SharedReading

MOST = 8
"""Events that are told, and runs whose alarms are read: those that began last."""
KEPT_SECONDS = 2.0
Json = dict[str, Any]


class News:
    """The newest events, read once for everybody who asks at about the same time."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._alarms = OfRuns(self._read_alarms)
        self._events = SharedReading(self._read, KEPT_SECONDS)

    @callable_by(Role.VIEWER, most_bytes=4_000)
    async def news(self, data: Any, request: gr.Request) -> Json:
        """The newest ``events``, the newest first: ``run`` and its ``name``, ``what`` (a state in which a run ends, or "alarm"), a
        ``text``, the ``kind`` of an alarm, and ``at``, when it was; of an end also ``parent``, the run that it follows from. ``problem``
        where the runs cannot be read."""
        try:
            events = await self._events.get()  # read for everybody, told to each
            return {"events": [{**event, "text": told(event["text"])} for event in events], "now": time.time()}
        except StoreError as error:
            return {"events": [], "now": time.time(), "problem": told(error)}

    def _read(self) -> list[Json]:
        begun = sorted((run for run in self._workspace.runs() if run.started_at is not None), key=lambda run: run.started_at or 0)
        ends = [_end(run) for run in begun if run.state in ENDED and run.ended_at is not None]
        alarms = [alarm for run in begun[-MOST:] for alarm in self._alarms.of(run)]
        return sorted([*ends, *alarms], key=lambda event: float(event["at"]), reverse=True)[:MOST]

    def _read_alarms(self, run: RunStatus) -> list[Json]:
        """The first alarm of each kind."""
        try:
            events = self._workspace.reader(run.run_id).newest_events(of="now")
        except StoreError:
            return []  # the Runs page says what is wrong with the run
        first = {event.kind: event for event in reversed(events) if is_alarm(event.level, event.kind)}
        return [_event(run, "alarm", event.text, event.time, event.kind) for event in first.values()]


def _end(run: RunStatus) -> Json:
    steps = S_(f"Step {run.step} of {run.total_steps}") if run.total_steps else S_(f"Step {run.step}")
    event = _event(run, run.state, run.cause if run.state == "failed" and run.cause else steps, run.ended_at or 0.0)
    return {**event, "parent": run.origin.parent if run.step else ""}


def _event(run: RunStatus, what: str, text: str, at: float, kind: str = "") -> Json:
    return {"run": run.run_id, "name": run.name or run.run_id, "what": what, "text": without_secrets(text), "at": at, "kind": kind}
