"""Small hand-made runs of the stages around PPO, written through the store's own writer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlhf_studio.config import StageConfig
from rlhf_studio.config.io import parse_config
from rlhf_studio.runs import paths
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.liveness import EngineLock
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import EventRecord, RolloutRecord, StepRecord, TokenRecord, WatchRecord
from rlhf_studio.runs.writer import RunWriter

_ALIVE: list[EngineLock] = []


def stage_config(stage: str, **sections: Any) -> StageConfig:
    return parse_config({"stage": stage, **sections})


def write_stage_run(
    workspace: Path,
    stage: str,
    metrics: Sequence[Mapping[str, float]],
    *,
    state: str = "finished",
    name: str = "",
    rollouts: Sequence[RolloutRecord] = (),
    watched: Mapping[int, Sequence[WatchRecord]] | None = None,
    events: Sequence[EventRecord] = (),
    **sections: Any,
) -> RunReader:
    """A run of a stage whose step n has ``metrics[n - 1]``; ``rollouts`` are recorded in the last step, ``events`` after it.

    One that runs keeps its lock until the tests end: else it would be taken for interrupted.
    """
    config = stage_config(stage, **sections)
    folder = paths.run_dir(Path(workspace), paths.new_run_id())
    create_run(folder, config, name=name or stage)
    if state == "running":
        _ALIVE.append(EngineLock(folder))
        _ALIVE[-1].acquire()
    with RunWriter(folder) as writer:
        writer.set_state("running", "", device="cpu")
        if watched and 0 in watched:
            writer.watched(0, list(watched[0]))
        for step, row in enumerate(metrics, 1):
            last = step == len(metrics)
            answers = list(watched.get(step, ())) if watched else []
            writer.commit_step(StepRecord(step, dict(row), list(rollouts) if last else [], answers))
        for event in events:
            writer.event(event)
        if state != "running":
            writer.set_state(state, "", cause="it broke" if state == "failed" else "")
    return RunReader(folder)


def example_tokens(pieces: Sequence[str], prompt: Sequence[str] = (), **arrays: Sequence[float]) -> TokenRecord:
    """The tokens of a recorded example: only the arrays that its stage has, and no tables of likely tokens."""
    count = len(pieces)
    return TokenRecord(
        prompt_ids=np.arange(len(prompt), dtype=np.int32),
        response_ids=np.arange(100, 100 + count, dtype=np.int32),
        prompt_pieces=list(prompt),
        response_pieces=list(pieces),
        arrays={name: np.asarray(values, np.float32) for name, values in arrays.items()},
        top_ids=np.zeros((count, 0), np.int32),
        top_logprobs=np.zeros((count, 0), np.float32),
        ref_top_ids=np.zeros((count, 0), np.int32),
        ref_top_logprobs=np.zeros((count, 0), np.float32),
        top_pieces={},
        gamma=1.0,
        lam=1.0,
        kl_coef=0.0,
    )


def example(sample: int, response: str, tokens: TokenRecord | None = None, **values: Any) -> RolloutRecord:
    """A recorded example; a number that its stage does not have is not a number."""
    known = {"prompt": "The film was", "score": np.nan, "parts": {}, "gold": None, "kl": np.nan, "stopped": True, **values}
    return RolloutRecord(sample=sample, response=response, length=len(tokens.response_ids) if tokens else 4, tokens=tokens, **known)
