"""Which runs have a policy that can answer."""

from __future__ import annotations

import os
from typing import Any

from rlhf_studio.language import told
from rlhf_studio.runs import paths
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.workspace import Workspace

MOST_RUNS = 200
WITH_POLICY = ("ppo", "sft", "dpo")  # the stages whose runs train a model that writes


def runs_with_policies(workspace: Workspace) -> list[dict[str, Any]]:
    """The runs that have a checkpoint or a snapshot, newest first. Raises StoreError."""
    runs = [run for run in workspace.runs() if run.stage in WITH_POLICY and _has_policy(workspace, run.run_id)]
    return [
        {
            "id": run.run_id,
            "name": told(run.name) if run.recording else run.name or run.run_id,
            "state": run.state,
            "step": run.step,
            "created_at": run.created_at,
        }
        for run in runs[:MOST_RUNS]
    ]


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
