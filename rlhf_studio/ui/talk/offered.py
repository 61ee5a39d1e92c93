"""Which runs have a policy that can answer."""

from __future__ import annotations

import os
from typing import Any

from rlhf_studio.language import told
from rlhf_studio.runs import paths
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.records import RunStatus
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.alike import Alike
from rlhf_studio.ui.insights import Insights, Progress

MOST_RUNS = 200
BROKEN = ("collapsed", "diverged")  # the verdicts on a policy that no longer writes useful text
LONGEST_WAIT = 2.0  # seconds, for the verdict on one run
WITH_POLICY = ("ppo", "sft", "dpo")  # the stages whose runs train a model that writes


def runs_with_policies(workspace: Workspace, insights: Insights | None = None, alike: Alike | None = None) -> list[dict[str, Any]]:
    """The runs that have a checkpoint or a snapshot, newest first. Raises StoreError.

    ``broken`` is the verdict on those that are known to write no useful text any more, and ``first`` says which run the page chooses: the
    newest that has finished and is not broken, else the newest that is not broken. For that verdict it waits a moment. ``apart`` are the
    settings that tell a run from others of its name, in words; empty without ``alike``.
    """
    every = workspace.runs()
    runs = [run for run in every if run.stage in WITH_POLICY and _has_policy(workspace, run.run_id)][:MOST_RUNS]
    known = insights.verdicts({run.run_id: _progress(run) for run in every}) if insights else {}
    kinds = {run: str(verdict["kind"]) for run, verdict in known.items()}
    ended = [run for run in runs if run.state == "finished"]
    first = next((run for run in [*ended, *runs] if verdict_kind(run, kinds, insights) not in BROKEN), None)
    apart = alike.names(runs) if alike else {}
    return [
        {
            "id": run.run_id,
            "name": told(run.name) if run.recording else run.name or run.run_id,
            "state": run.state,
            "step": run.step,
            "created_at": run.created_at,
            "apart": apart.get(run.run_id, ""),
            "broken": kind if (kind := kinds.get(run.run_id, "")) in BROKEN else "",
            "first": run is (first or runs[0]),
        }
        for run in runs
    ]


def verdict_kind(run: RunStatus, kinds: dict[str, str], insights: Insights | None) -> str:
    """The kind of the verdict on a run, which joins ``kinds``; empty where it is not known in time."""
    if run.run_id not in kinds and insights is not None and run.step:
        try:
            kinds[run.run_id] = str(insights.verdict_of(run.run_id, _progress(run), LONGEST_WAIT)["kind"])
        except StoreError:
            kinds[run.run_id] = ""
    return kinds.get(run.run_id, "")


def _progress(run: RunStatus) -> Progress:
    return Progress(run.epoch, run.step, run.state)


def _has_policy(workspace: Workspace, run_id: str) -> bool:
    for folder in (paths.CHECKPOINTS, paths.SNAPSHOTS):
        try:
            names = os.listdir(workspace.run_dir(run_id) / folder)
        except FileNotFoundError:
            continue
        except (OSError, StoreError, ValueError):
            return False
        if any(paths.checkpoint_step(name) is not None for name in names):
            return True
    return False
