"""How much disk a run needs, and whether it is free."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rlhf_studio.config import EngineConfig, RunConfig
from rlhf_studio.config.io import Problem
from rlhf_studio.inputs.estimate.counts import trained_in_files
from rlhf_studio.inputs.models.facts import ModelFacts
from rlhf_studio.language import S_
from rlhf_studio.units import format_bytes

BYTES_PER_RECORDED_TOKEN = 240  # 13 float32 quantities, two top-5 tables, and the token's text
BYTES_PER_EPISODE_TOKEN = 20  # of every response of a step: its id, two log-probabilities, the value, and the KL where it is exact
BYTES_PER_QUANTITY = 4  # a float32 number; a run without a critic has no value, and of recorded tokens no return and no TD error
BYTES_PER_EPISODE = 20  # length, score, gold score, whether it ended, one reward component; 4 for each component more
BYTES_PER_WATCHED_TOKEN = 40  # 5 float32 quantities, and the token's text twice
BYTES_PER_PROBE_TOKEN = 84  # its log-probability, and four times five numbers about the likeliest tokens
MOST_PROBE_TOKENS = 64  # longer answers are cut when they become probes
BYTES_PER_SAVED_WEIGHT = 4  # in a snapshot: a float32 weight
BYTES_PER_TRAINED_WEIGHT = 12  # in a checkpoint: a float32 weight and AdamW's two moments


@dataclass(frozen=True)
class OnDisk:
    """What a resumed run has on its disk already: how many recorded steps, and how many complete checkpoints."""

    steps: int = 0
    checkpoints: int = 0


NEW_RUN = OnDisk()


def disk_bytes(config: RunConfig, policy: ModelFacts | None, on_disk: OnDisk = NEW_RUN) -> int:
    """Upper estimate of what the run adds to what is ``on_disk``.

    That is checkpoints, snapshots and the records of each step. There is one checkpoint more than the setting says: the oldest one is
    removed only when the new one is written.
    """
    engine, steps = config.engine, config.ppo.steps
    trained = trained_in_files(config, policy) if policy is not None else None
    checkpoint = 0 if trained is None else trained * BYTES_PER_TRAINED_WEIGHT
    added, snapshots = checkpoints_added(engine, steps, on_disk), snapshots_added(engine, steps, on_disk)
    snapshot = 0 if trained is None else trained * BYTES_PER_SAVED_WEIGHT
    lora = config.lora  # an adapter whose base exists only in memory is saved together with that base
    saves_base = policy is not None and lora.enabled and (lora.changes_base or policy.base) and not on_disk.steps
    base = 4 * (policy.parameters or 0) if policy is not None and saves_base else 0
    start = 0  # the starting policy's distribution at the probes, in each checkpoint, unless the adapters can be switched off
    if policy is not None and policy.shape and not (lora.enabled and lora.off_is_start):
        start = 4 * policy.shape.vocabulary * probe_tokens(config)
    return added * (checkpoint + start) + snapshots * snapshot + base + recorded_bytes(config, on_disk.steps)


def checkpoints_added(engine: EngineConfig, steps: int, on_disk: OnDisk) -> int:
    """How many checkpoints there are at one time, at most, beyond those that exist now. ``steps``: of the whole run."""
    every = engine.checkpoint_every or max(steps, 1)
    written = max(0, -(-steps // every) - on_disk.steps // every)
    at_once = min(engine.keep_checkpoints + 1 + (engine.keep_best != "none"), on_disk.checkpoints + written)
    return max(at_once - on_disk.checkpoints, min(written, 1))


def snapshots_added(engine: EngineConfig, steps: int, on_disk: OnDisk) -> int:
    """How many snapshots the steps that are left add."""
    return max(0, steps // engine.snapshot_every - on_disk.steps // engine.snapshot_every) if engine.snapshot_every else 0


def probe_tokens(config: RunConfig) -> int:
    """Tokens of all probes together, at most."""
    count = min(config.engine.probe_prompts, config.engine.watch_prompts)
    return count * min(config.generation.response_length, MOST_PROBE_TOKENS)


def recorded_bytes(config: RunConfig, recorded: int = 0) -> int:
    """Upper estimate of the bytes by which the database grows, without metrics and events. ``recorded``: steps that are in it already."""
    engine, episodes, length = config.engine, config.ppo.batch_size, config.generation.response_length
    steps = max(0, config.ppo.steps - recorded)
    value = 0 if config.ppo.has_critic else BYTES_PER_QUANTITY  # that is left out
    samples = min(engine.record_samples, episodes) * length * (BYTES_PER_RECORDED_TOKEN - 3 * value)
    responses = episodes * (length * (BYTES_PER_EPISODE_TOKEN - value) + BYTES_PER_EPISODE + 4 * len(config.reward.components))
    probes = probe_tokens(config) * BYTES_PER_PROBE_TOKEN
    answered = max(0, config.ppo.steps // engine.watch_every - recorded // engine.watch_every) + 1  # every so many steps, and at the end
    answered += not recorded  # by the starting policy
    watched = answered * engine.watch_prompts * length * (BYTES_PER_WATCHED_TOKEN - value)
    return steps * (samples + responses + probes) + (0 if recorded else probes) + watched


def disk_problems(disk: int, download: int, workspace: Path, free_bytes: Callable[[Path], int]) -> Iterator[Problem]:
    """Whether ``disk`` bytes of the run and ``download`` bytes of weights fit where the workspace is, or will be."""
    folder = Path(os.path.abspath(workspace))
    while not folder.exists():
        folder = folder.parent
    try:
        free = free_bytes(folder)
    except OSError as error:
        yield Problem("", f"the workspace {workspace} cannot be used: {error.strerror or error}")
        return
    needed = disk + download
    if needed > free:
        downloads = S_(f" and {format_bytes(download)} of downloads") if download else ""
        parts = S_(f"about {format_bytes(disk)} of checkpoints and records{downloads}")
        message = S_(f"{parts} do not fit: {format_bytes(free)} are free at {folder}; keep fewer, or free some space")
        yield Problem("engine.keep_checkpoints", message)
