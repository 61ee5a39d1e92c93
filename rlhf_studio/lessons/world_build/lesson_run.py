"""The lesson run: a small recorded run that ships with the project, so that lessons can ask any of its steps anything.

    run/                   a run folder as every run has one; all responses of every step are recorded
    adapters.safetensors   the LoRA adapter after each step (float16), and the value head (float32); step 0 first
    without_kl/            a run folder of the same settings with a KL coefficient of 0

After each step the adapter is rounded to float16, and training goes on from there. So what is kept *is* the policy of that step: its
log-probabilities are those on record, not nearly those.
"""

from __future__ import annotations

import calendar
import hashlib
import json
import os
import shutil
import sqlite3
import tempfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from rlhf_studio.config import RunConfig
from rlhf_studio.config.bundled import ADAPTERS, NEW_LOGPROBS, RECORDED, VALUE_HEAD, WITHOUT_KL
from rlhf_studio.config.io import config_to_yaml
from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.loop.build import build_trainer
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.models.adapters import adapter_weights
from rlhf_studio.engine.types import StepSoFar
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.paths import CONFIG, DATABASE
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import StepRecord
from rlhf_studio.runs.rows import insert_watched
from rlhf_studio.runs.writer import RunWriter

STEPS = 36
WITH_TOKENS, WITHOUT_KL_TOKENS = 4, 16
"""Responses of a step whose tokens can be inspected, in each of the two runs; of the others there is what PPO computes with. The second is
the one that a page shows at length: its phrases take over."""
WATCHED = 4
"""Prompts that the recordings answer before and now."""
STAMP = (2026, 1, 1, 0, 0, 0)
MEASURED = ("time/", "speed/", "memory/")
"""Metrics that differ each time."""

Log = Callable[[str], None]


def lesson_config(*, kl_coef: float | None = None, steps: int = STEPS, watched: int = 0) -> RunConfig:
    """The recipe ``world-lora`` with smaller adapters; all responses are recorded, and ``watched`` prompts are answered again and again."""
    config = load_recipe("world-lora").config
    assert isinstance(config, RunConfig)
    ppo = {"steps": steps} | ({} if kl_coef is None else {"kl_coef": kl_coef})
    changes = {
        "lora": {"r": 4, "alpha": 8.0},
        "ppo": ppo,
        "engine": {"device": "cpu", "threads": 1, "record_samples": config.ppo.batch_size, "watch_prompts": watched, "probe_prompts": 0},
    }
    settings = config.model_dump(mode="json")
    return RunConfig.model_validate(settings | {section: settings[section] | values for section, values in changes.items()})


def build_lesson_run(out: Path, report: Log, *, steps: int = STEPS) -> None:
    """Train both runs and pack them into the file ``out``, the same bytes each time on the same machine."""
    start, threads = time.monotonic(), torch.get_num_threads()
    torch.set_num_threads(1)  # the same sums in the same order, however many cores there are
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            adapters = record_run(folder / RECORDED, lesson_config(steps=steps), report, with_tokens=WITH_TOKENS)
            save_file(adapters, folder / ADAPTERS)
            answer_watched(folder, report)
            without_kl = lesson_config(kl_coef=0.0, steps=steps, watched=WATCHED)
            record_run(folder / WITHOUT_KL, without_kl, report, with_tokens=WITHOUT_KL_TOKENS)
            pack(folder, out)
    finally:
        torch.set_num_threads(threads)
    report(f"packed {out.stat().st_size / 1e6:.2f} MB into {out.name} in {time.monotonic() - start:.0f} s")


def record_run(run_dir: Path, config: RunConfig, report: Log, *, with_tokens: int) -> dict[str, torch.Tensor]:
    """Train a run into its folder, of which the configuration and a plain database stay, without times.

    ``with_tokens`` responses of each step have every token's likeliest alternatives on record. Returns the adapters and value heads,
    stacked over the steps.
    """
    create_run(run_dir, config, name="Lesson run", state="queued", working_folder=Path("/"))
    trainer, _ = build_trainer(config, Compute(torch.device("cpu"), torch.float32), lambda text, fraction: None)
    new_logprobs: list[torch.Tensor] = []

    def after_phase(phase: str, so_far: StepSoFar) -> None:
        if phase == "update" and so_far.stats is not None:
            new_logprobs.append(so_far.stats.logprobs[so_far.samples.tokens.mask])

    trainer.after_phase = after_phase
    _round(trainer)
    all_weights = [_weights(trainer)]
    writer = RunWriter(run_dir, wait_for_disk=False)
    try:
        writer.set_state("running", device="cpu")
        writer.watched(0, trainer.watched()[0])
        while not trainer.finished:
            record = trainer.step()
            _round(trainer)
            all_weights.append(_weights(trainer))
            writer.commit_step(_leaner(record, new_logprobs[-1], with_tokens))
            score, gold, kl = (record.metrics[name] for name in ("objective/scores", "gold/score", "objective/kl"))
            report(f"step {record.step}: score {score:+.2f}, gold {gold:+.2f}, KL {kl:.1f}")
        writer.set_state("finished")
    finally:
        writer.close()
    _without_times(run_dir)
    return {name: torch.stack([weights[name] for weights in all_weights]) for name in all_weights[0]}


def answer_watched(folder: Path, report: Log) -> None:
    """Let the policy of every step on record answer the watched prompts, and put the answers into the run ``folder / RECORDED``.

    So its replay has an answer for each step. Nothing is trained: the answers are those of the adapters in the same folder.
    """
    run_dir, weights = folder / RECORDED, load_file(folder / ADAPTERS)
    config = RunReader(run_dir).config()
    assert isinstance(config, RunConfig)
    engine = config.engine.model_copy(update={"watch_prompts": WATCHED, "watch_every": 1})
    config = config.model_copy(update={"engine": engine})
    (run_dir / CONFIG).write_text(config_to_yaml(config), encoding="utf-8")
    trainer, _ = build_trainer(config, Compute(torch.device("cpu"), torch.float32), lambda text, fraction: None)
    connection = sqlite3.connect(run_dir / DATABASE)
    try:
        connection.execute("DELETE FROM watched")
        for step in range(config.ppo.steps + 1):
            _set(trainer, {name: stacked[step] for name, stacked in weights.items()})
            insert_watched(connection, step, trainer.watched()[0])
        connection.commit()
        connection.execute("VACUUM")
    finally:
        connection.close()
    report(f"answered {WATCHED} prompts with the policy of each of {config.ppo.steps} steps")


def _leaner(record: StepRecord, new_logprobs: torch.Tensor, with_tokens: int) -> StepRecord:
    """A step without times and without most responses' alternatives; with all tokens' log-probabilities in the last pass."""
    metrics = {name: value for name, value in record.metrics.items() if not name.startswith(MEASURED)}
    rollouts = [replace(rollout, tokens=rollout.tokens if rollout.sample < with_tokens else None) for rollout in record.rollouts]
    assert record.episodes is not None
    episodes = replace(record.episodes, tokens=record.episodes.tokens | {NEW_LOGPROBS: new_logprobs.float().numpy()})
    return replace(record, metrics=metrics, rollouts=rollouts, episodes=episodes)


@torch.no_grad()
def _round(trainer: Trainer) -> None:
    for weight in adapter_weights(trainer.models.policy.model).values():
        weight.copy_(weight.half())


@torch.no_grad()
def _set(trainer: Trainer, weights: dict[str, torch.Tensor]) -> None:
    policy = trainer.models.policy
    for name, weight in adapter_weights(policy.model).items():
        weight.copy_(weights[name])
    assert policy.value_head is not None
    head = {name.removeprefix(VALUE_HEAD): weight for name, weight in weights.items() if name.startswith(VALUE_HEAD)}
    policy.value_head.load_state_dict(head)


def _weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    policy = trainer.models.policy
    adapter = {name: weight.detach().half() for name, weight in adapter_weights(policy.model).items()}
    assert policy.value_head is not None
    return adapter | {VALUE_HEAD + name: weight.detach().clone() for name, weight in policy.value_head.state_dict().items()}


def _without_times(run_dir: Path) -> None:
    """Leave the configuration and a plain database in the folder, without the times and the process of this training."""
    connection = sqlite3.connect(run_dir / DATABASE, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = delete")
        at = float(calendar.timegm(STAMP))
        connection.execute("UPDATE run SET created_at = ?, started_at = ?, ended_at = ?, pid = NULL", (at, at, at))
        for table in ("steps", "events", "heartbeat"):
            connection.execute(f"UPDATE {table} SET at = ?", (at,))
        connection.execute("VACUUM")
    finally:
        connection.close()
    for path in run_dir.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in (CONFIG, DATABASE):
            path.unlink()


def pack(folder: Path, out: Path) -> None:
    """Put all files below ``folder`` in one archive, with their hashes."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    hashes = {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f".{out.name}.part")
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in hashes:
            archive.writestr(_entry(name), (folder / name).read_bytes(), zipfile.ZIP_DEFLATED, 9)
        archive.writestr(_entry("manifest.json"), json.dumps({"sha256": hashes}, indent=2).encode(), zipfile.ZIP_DEFLATED, 9)
    os.replace(temporary, out)


def _entry(name: str) -> zipfile.ZipInfo:
    return zipfile.ZipInfo(name, STAMP)
