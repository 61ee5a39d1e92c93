"""What ``runs list``, ``runs show`` and ``runs config`` print, as plain values for scripts and as text for people."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from rlhf_studio.config import RunConfig
from rlhf_studio.config.changes import changes_between
from rlhf_studio.config.io import parse_ppo, ppo_only
from rlhf_studio.config.live import LIVE_SETTINGS, PlannedChange, with_changes, write_schedule
from rlhf_studio.language import _, bracketed, labelled, told
from rlhf_studio.runs.create import first_settings
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import RunStatus
from rlhf_studio.runs.status import silence
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.units import without_dust
from rlhf_studio.visible import padded, visible

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
    silent = _("; the engine has not answered for {values} s").format(values=values["silent"]) if values["silent"] is not None else ""
    cause = labelled("", told(values["cause"])) if values["cause"] else ""
    lines = [
        visible(values["name"], lines=False) + bracketed(values["run_id"]),
        _("state        {state}").format(state=_(values["state"])) + silent + cause,
        (_("step         {step} of {total}") if values["total_steps"] else _("step         {step}")).format(
            step=values["step"], total=values["total_steps"]
        ),
        *([_("device       {device}").format(device=told(values["device"]))] if values["device"] else []),
        _("folder       {folder}").format(folder=values["run_dir"]),
    ]
    if values["origin"]["words"]:
        lines.append(_("lengths      in words: the texts came without tokens"))
    if values["recorded"] > values["step"]:
        sentence = _("steps {value} to {values} are from before the resume; each stays until it is played again").format(
            value=values["step"] + 1, values=values["recorded"]
        )
        lines.insert(3, _("kept         {sentence}").format(sentence=sentence))
    if "verdict" in values:
        lines += [_("verdict      {sentence}").format(sentence=values["verdict"]["sentence"])]
        lines += [_("note         {note}").format(note=note) for note in values["verdict"]["notes"]]
        graver = [finding for finding in values["findings"] if finding["level"] != "note"]
        lines += [padded(_(finding["level"]), 13) + told(finding["title"]) + bracketed(finding["when"]) for finding in graver]
    lines += [f"{name:34}{value:.5g}" for name, value in sorted(values["metrics"].items()) if value is not None]
    for checkpoint in values["checkpoints"]:
        lines.append(padded(_("checkpoint"), 13) + checkpoint["path"] + (bracketed(_("the best")) if checkpoint["best"] else ""))
    return "\n".join(lines)


def list_text(workspace: Path) -> str:
    """One line per run."""
    statuses = Workspace(workspace).runs()
    if not statuses:
        return _("No runs in {workspace} yet. Start one with: python -m rlhf_studio train --recipe world").format(workspace=workspace)
    return "\n".join(
        f"{status.run_id:24}{padded(_('unreadable') if status.unreadable else _(status.state), 13)}{_progress(status)} "
        f"{visible(status.name, lines=False)}"
        for status in statuses
    )


def _progress(status: RunStatus) -> str:
    return " " * 13 if status.unreadable else f"{status.step:>6}" + (f"/{status.total_steps:<6}" if status.total_steps else " " * 7)
