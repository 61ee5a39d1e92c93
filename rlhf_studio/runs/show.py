"""What ``runs list``, ``runs show`` and ``runs config`` print, as plain values for scripts and as text for people."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from rlhf_studio.config import RunConfig
from rlhf_studio.config.changes import changes_between
from rlhf_studio.config.io import parse_ppo, ppo_only
from rlhf_studio.config.live import LIVE_SETTINGS, PlannedChange, with_changes, write_schedule
from rlhf_studio.runs.create import first_settings
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import RunStatus
from rlhf_studio.runs.status import silence
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.units import without_dust
from rlhf_studio.visible import visible

MOST_EVENTS = 1_000_000  # more than a run has


def show_values(run_dir: Path) -> dict[str, Any]:
    """State, step, total steps, last metrics, checkpoints, newest events and cause of failure of one run. Raises StoreError."""
    reader = RunReader(run_dir)
    status = reader.status()
    last = reader.metrics_since(max(status.step - 1, 0))
    return {
        **_status_values(status),
        "run_dir": str(run_dir),
        "metrics": {name: value if value is None else without_dust(value) for name, value in last[-1][1].items()} if last else {},
        "checkpoints": [dataclasses.asdict(checkpoint) for checkpoint in reader.checkpoints()],
        "events": [{"step": event.step, "level": event.level, "kind": event.kind, "text": event.text} for event in reader.newest_events()],
    }


def config_to_replay(run_dir: Path) -> RunConfig:
    """The configuration whose run, from its start, is this run with all that was changed while it went on, bit for bit on a CPU.

    Its ``ppo.schedule`` has every recorded change, and what the run's own schedule plans for later steps.

    Raises:
        StoreError: the run cannot be read; it goes on from another run; or a resume changed a setting that a schedule cannot change.
    """
    reader = RunReader(run_dir)
    now, start, origin, step = ppo_only(reader.config()), _started_with(reader), reader.origin(), reader.status().step
    if origin.parent_step:
        raise StoreError(f"{run_dir} goes on from step {origin.parent_step} of another run, so its settings alone do not give it.", "state")
    for change in changes_between(start.model_dump(mode="json"), now.model_dump(mode="json")):
        same = change.setting in (*LIVE_SETTINGS, "ppo.schedule") or change.setting.startswith("engine.")
        if not same and (change.setting != "ppo.steps" or start.ppo.lr_schedule != "constant"):
            raise StoreError(f"{run_dir} cannot be played again from its settings: a resume changed {change}.", "state")
    recorded = {(change.step, change.setting): change.new for change in reader.changes()}
    later = {(change.step, change.setting): change.value for change in now.ppo.planned if change.step > step}
    schedule = write_schedule(PlannedChange(*step_and_setting, value) for step_and_setting, value in (recorded | later).items())
    settings = with_changes(start.model_dump(mode="json"), {"ppo.steps": now.ppo.steps, "ppo.schedule": schedule})
    return parse_ppo({**settings, "engine": now.engine.model_dump(mode="json")})


def _started_with(reader: RunReader) -> RunConfig:
    """The settings that step 1 was trained with: those of the last time that the run began at step 0."""
    again = [event.data["settings"] for event in reader.newest_events(MOST_EVENTS) if event.kind == "resume" and "settings" in event.data]
    first = again[-1] if again else first_settings(reader.run_dir)
    return ppo_only(reader.config()) if first is None else parse_ppo(first)


def list_values(workspace: Path) -> list[dict[str, Any]]:
    """The runs of a workspace, newest first."""
    return [_status_values(status) for status in Workspace(workspace).runs()]


def _status_values(status: RunStatus) -> dict[str, Any]:
    """``silent`` is the engine's silence in seconds once it is long enough to mention, as on the page; else null."""
    values = dataclasses.asdict(status)
    return {**values, "recorded": values.pop("last_recorded_step"), "silent": silence(status)}  # scripts know it by the short name


def show_text(values: dict[str, Any]) -> str:
    """A few lines for people; with the doctor's ``verdict`` and ``findings`` where the values have them."""
    silent = f"; the engine has not answered for {values['silent']} s" if values["silent"] is not None else ""
    lines = [
        f"{visible(values['name'], lines=False)} ({values['run_id']})",
        f"state        {values['state']}{silent}" + (f": {values['cause']}" if values["cause"] else ""),
        f"step         {values['step']}" + (f" of {values['total_steps']}" if values["total_steps"] else ""),
        *([f"device       {values['device']}"] if values["device"] else []),
        f"folder       {values['run_dir']}",
    ]
    if values["origin"]["words"]:
        lines.append("lengths      in words: the texts came without tokens")
    if values["recorded"] > values["step"]:
        sentence = f"steps {values['step'] + 1} to {values['recorded']} are from before the resume; each stays until it is played again"
        lines.insert(3, f"kept         {sentence}")
    if "verdict" in values:
        lines += [f"verdict      {values['verdict']['sentence']}"]
        lines += [f"note         {note}" for note in values["verdict"]["notes"]]
        graver = [finding for finding in values["findings"] if finding["level"] != "note"]
        lines += [f"{finding['level']:13}{finding['title']} ({finding['when']})" for finding in graver]
    lines += [f"{name:34}{value:.5g}" for name, value in sorted(values["metrics"].items()) if value is not None]
    lines += [f"checkpoint   {checkpoint['path']}{' (the best)' if checkpoint['best'] else ''}" for checkpoint in values["checkpoints"]]
    return "\n".join(lines)


def list_text(workspace: Path) -> str:
    """One line per run."""
    statuses = Workspace(workspace).runs()
    if not statuses:
        return f"No runs in {workspace} yet. Start one with: python -m rlhf_studio train --recipe world"
    return "\n".join(
        f"{status.run_id:24}{'unreadable' if status.unreadable else status.state:13}{_progress(status)} {visible(status.name, lines=False)}"
        for status in statuses
    )


def _progress(status: RunStatus) -> str:
    return " " * 13 if status.unreadable else f"{status.step:>6}" + (f"/{status.total_steps:<6}" if status.total_steps else " " * 7)
