"""The checkpoints of an evaluation. The answers are in the run folder, so a checkpoint holds only the step and the settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rlhf_studio.config import EvaluationRunConfig
from rlhf_studio.engine.saving.folder import write_checkpoint
from rlhf_studio.regular import read_regular
from rlhf_studio.runs.checkpoints import CheckpointError
from rlhf_studio.runs.paths import STATE, checkpoint_dir
from rlhf_studio.runs.reader import RunReader

DECIDE = ("model", "data", "reward", "evaluation", "generation")
"""Sections whose settings change the answers or their scores."""


def write(run_dir: Path, step: int, config: EvaluationRunConfig) -> Path:
    """Write the checkpoint of ``step``, complete or not at all. Returns its folder. Raises OSError."""

    def fill(folder: Path) -> None:
        state = {"step": step, "settings": config.model_dump(mode="json")}
        (folder / STATE).write_text(json.dumps(state, indent=1), encoding="utf-8")

    return write_checkpoint(run_dir, step, fill, config.engine.keep_checkpoints)


def check(run_dir: Path, step: int, config: EvaluationRunConfig, prompts: list[str], policies: list[str]) -> None:
    """Check that the recorded answers up to ``step`` are of these policies, prompts and settings.

    Raises :class:`CheckpointError` where something has changed: then old and new answers could not be compared.
    """
    folder = checkpoint_dir(run_dir, step)
    try:
        before: dict[str, Any] = json.loads(read_regular(folder / STATE))["settings"]
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(f"{folder.name}: {STATE} cannot be read ({error})") from error
    now = config.model_dump(mode="json")
    changed = [section for section in DECIDE if before.get(section) != now[section]]
    if before.get("engine", {}).get("seed") != config.engine.seed:
        changed.append("engine.seed")
    if changed:
        raise CheckpointError(f"the settings have changed since ({', '.join(changed)}): begin again with --from-start")
    for answer in RunReader(run_dir).answers():
        if answer.policy not in policies:
            raise CheckpointError(f"{answer.policy} is on record, but no longer among the policies: begin again with --from-start")
        if answer.place >= len(prompts) or prompts[answer.place] != answer.prompt:
            raise CheckpointError("the prompts have changed since: begin again with --from-start")
