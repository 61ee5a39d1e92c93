"""The PPO loop. Read :meth:`Trainer.step` first: it is the algorithm.

One step: draw prompts, play them (:mod:`rollout`), learn from them (:mod:`update`), let the KL controller react, record.
The trainer knows nothing of processes, files or people; :mod:`worker` drives it and stores what it returns.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rlhf_studio.config import PPOConfig, RunConfig
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.distributed.sharding import full_optimizer_state, full_tensor
from rlhf_studio.engine.loop.changed_settings import changed
from rlhf_studio.engine.loop.prompts import PromptStream
from rlhf_studio.engine.loop.recording import Recorder, first_non_finite, objective_metrics, update_metrics
from rlhf_studio.engine.loop.rollout import Models, collect, decode_responses, ends_with_stop, sample
from rlhf_studio.engine.loop.state import TrainingState
from rlhf_studio.engine.loop.update import Updater
from rlhf_studio.engine.parity.check import ParityReport, check_parity
from rlhf_studio.engine.parity.first_rollout import check_first_rollout
from rlhf_studio.engine.rewards.scorer import Episodes, RewardError
from rlhf_studio.engine.types import NonFiniteError, Rollout, UpdateStats
from rlhf_studio.ppo.kl_control import AdaptiveKL, FixedKL
from rlhf_studio.runs.records import EventRecord, RolloutRecord, StepRecord, WatchRecord

MOST_SKIPS = 10


class Stopwatch:
    """Adds up seconds per phase of one step."""

    def __init__(self, compute: Compute):
        self._compute = compute
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
            self._compute.synchronise()
        finally:  # a scoring that failed took its time too
            self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - started


@dataclass
class Progress:
    """What changes from step to step beside the weights."""

    step: int = 0
    elapsed: float = 0.0
    skips: int = 0
    said: set[str] = field(default_factory=set)


class Trainer:
    """A PPO run in memory. Build it with :func:`engine.build.build_trainer`."""

    def __init__(self, config: RunConfig, models: Models, prompts: PromptStream, compute: Compute):
        self.config, self.models, self.prompts, self.compute = config, models, prompts, compute
        self.updater = Updater(models.policy, config, compute)
        self.controller = make_controller(config.ppo)
        self.progress = Progress()
        seed = config.engine.seed
        self._sampling = torch.Generator(device=compute.device).manual_seed(seed)
        self._shuffling = torch.Generator().manual_seed(seed + 1)
        self._recorder = Recorder(models.tokenizer, config)
        self._proof: ParityReport | None = None  # from the proof until the first rollout was checked
        self.settings_before: dict[str, Any] | None = None  # of the checkpoint that was restored

    @property
    def finished(self) -> bool:
        return self.progress.step >= self.config.ppo.steps

    def prove(self) -> EventRecord:
        """Compare every pass with the models' own, and say what was found; to be called before anything is trained.

        Raises :class:`ParityError` where a model's numbers are not its own.
        """
        proof = check_parity(self.models, self.prompts)
        self._proof = proof
        return EventRecord("info", "health", proof.sentence())

    def step(self) -> StepRecord:
        """One PPO step. Raises :class:`NonFiniteError` or :class:`RewardError` before anything was changed for the worse."""
        timer = Stopwatch(self.compute)
        kl_coef = self.controller.coef
        ppo = self.config.ppo
        prompts = self.prompts.next_batch(ppo.batch_size // ppo.responses_per_prompt).repeat(ppo.responses_per_prompt)
        try:
            rollout = collect(self.models, prompts, kl_coef, self._sampling, timer)
        except RewardError as error:
            return self._unscored(error, timer)
        with timer("update"):
            doubts = self._check_first(rollout)
        stats, problems = self._learn(rollout, kl_coef, timer)
        objective = objective_metrics(rollout, self.config.ppo, kl_coef, self.models.stop_id is not None)
        if math.isfinite(objective["objective/kl"]):  # it is not when the rollout was refused for it
            self.controller.update(objective["objective/kl"], len(rollout.tokens))
        if stats and self.config.ppo.reference_ema:
            self.models.reference.follow(self.config.ppo.reference_ema)
        self.progress.step += 1
        with timer("record"):
            rollouts, watched, unanswered = self._record(rollout, stats.logprobs if stats else rollout.logprobs, kl_coef)
        learned = update_metrics(stats, self._learning_rate()) if stats else {}
        metrics = {**objective, **learned, **self._costs(rollout, timer)}
        return StepRecord(self.progress.step, metrics, rollouts, watched, [*doubts, *unanswered, *self._events(metrics, stats, problems)])

    def _check_first(self, rollout: Rollout) -> list[EventRecord]:
        """Once after :meth:`prove`: all rows of the first rollout. Raises :class:`ParityError`."""
        if self._proof is None or first_non_finite(rollout):
            return []
        proof, self._proof = self._proof, None
        warning = check_first_rollout(self.models, rollout, proof.scale, proof.noise, at_start=self.progress.step == 0)
        return [EventRecord("warning", "health", warning)] if warning else []

    def _record(
        self, rollout: Rollout, logprobs: Tensor, kl_coef: float
    ) -> tuple[list[RolloutRecord], list[WatchRecord], list[EventRecord]]:
        """What people look at. Made by the process that writes it; the others go on and wait for it where they meet next.

        Where weights are split, the others go along: each of the policy's passes needs them.
        """
        ranks = self.compute.ranks
        if not (ranks.is_main or ranks.sharded):
            return [], [], []
        watched = self.watched() if self._watch_now() else ([], [])
        return (self._recorder.rollouts(rollout, logprobs[: rollout.recorded], kl_coef), *watched) if ranks.is_main else ([], [], [])

    def _unscored(self, error: RewardError, timer: Stopwatch) -> StepRecord:
        """The record of a step whose responses could not be scored: nothing was learned. Raises ``error`` when that may not be."""
        self._count_skip(error)
        self.progress.step += 1
        event = EventRecord("warning", "skip", f"This update was left out: {error}.")
        return StepRecord(self.progress.step, self._costs(None, timer), [], [], [event])

    def _learn(self, rollout: Rollout, kl_coef: float, timer: Stopwatch) -> tuple[UpdateStats | None, list[str]]:
        """The update, and what was left out of it. Without an update when the rollout holds a number that is not finite."""
        with timer("update"):
            if problem := first_non_finite(rollout):
                self._refuse(problem)
                return None, [problem]
            stats = self.updater.update(rollout, self.progress.step, kl_coef, self._shuffling)
            if problem := next((problem for problem in stats.problems if "not finite" in problem), None):
                self._refuse(problem)  # once, however many minibatches: what is counted are steps
            return stats, stats.problems

    def _refuse(self, problem: str) -> None:
        self._count_skip(NonFiniteError(problem))

    def _count_skip(self, error: NonFiniteError | RewardError) -> None:
        """Count what is left out because of ``error``; raises it when the run is to stop at such errors, or when there were too many."""
        if self.config.engine.non_finite == "stop":
            raise error
        if self.progress.skips == MOST_SKIPS:
            raise type(error)(f"{error}; {MOST_SKIPS} such failures were skipped before, which is the most in a run") from error
        self.progress.skips += 1

    def _learning_rate(self) -> float:
        return float(self.updater.optimizer.param_groups[0]["lr"])

    def _costs(self, rollout: Rollout | None, timer: Stopwatch) -> dict[str, float]:
        """Seconds, memory and, when there was a rollout, speed."""
        total = sum(timer.seconds.values())
        self.progress.elapsed += total
        costs = {f"time/{phase}": seconds for phase, seconds in timer.seconds.items()} | {
            "time/total": total,
            "time/elapsed": self.progress.elapsed,
            "episode": float(self.progress.step * self.config.ppo.batch_size),
            "memory/peak": self.compute.peak_memory(),
        }
        if rollout is not None:
            costs["speed/episodes_per_second"] = len(rollout.tokens) / total
            costs["speed/tokens_per_second"] = float(rollout.tokens.mask.sum()) / total
        return costs

    # --- watched prompts -----------------------------------------------------------------------------------------------------

    def _watch_now(self) -> bool:
        return self.finished or self.progress.step % self.config.engine.watch_every == 0

    def watched(self) -> tuple[list[WatchRecord], list[EventRecord]]:
        """The answers to the watched prompts, or what kept them from being scored. Raises :class:`RewardError` when that may not be."""
        try:
            return self.watch(), []
        except RewardError as error:
            self._count_skip(error)
            return [], [EventRecord("warning", "skip", f"The answers to the watched prompts were left out: {error}.")]

    def watch(self) -> list[WatchRecord]:
        """Answer the watched prompts, always with the same random numbers, so that differences come from the policy alone.

        The first process alone has the answers scored and returns them.
        """
        batch = self.prompts.watched(self.config.engine.watch_prompts)
        if batch is None:
            return []
        generator = torch.Generator(device=self.compute.device).manual_seed(self.config.engine.seed + 2)
        tokens, _ = sample(self.models, batch, self.config.generation, generator)
        if not self.compute.ranks.is_main:
            return []
        responses = decode_responses(self.models, tokens)
        stopped = ends_with_stop(tokens, self.models.stop_id).tolist()
        episodes = Episodes(batch.texts, responses, stopped, tokens.lengths.tolist(), batch.references, batch.chats)
        scores = torch.stack(list(self.models.scorer.parts(episodes).values())).sum(dim=0).tolist()
        gold = self.models.scorer.gold(episodes)
        return [
            WatchRecord(row, batch.texts[row], responses[row], scores[row], float(gold[row]) if gold is not None else None)
            for row in range(len(responses))
        ]

    # --- what a person should be told ------------------------------------------------------------------------------------------

    def _events(self, metrics: dict[str, float], stats: UpdateStats | None, problems: list[str]) -> list[EventRecord]:
        found: list[EventRecord | None] = []
        if problems:
            what = "This update was" if stats is None else "1 minibatch was" if len(problems) == 1 else f"{len(problems)} minibatches were"
            found.append(EventRecord("warning", "skip", f"{what} left out: {problems[0]}."))
        if stats and stats.stopped_early:
            found.append(EventRecord("info", "early_stop", "The passes over this batch ended early: the target KL was exceeded."))
        if stats and self.compute.dtype is torch.float32 and stats.first_log_ratio > 1e-3:
            found.append(self._once("ratio", f"Before the first update the ratio was off by {stats.first_log_ratio:.2g}; it should be 1."))
        if metrics["objective/kl"] < -1:
            found.append(self._once("negative_kl", "The KL is clearly negative: samples do not come from the distribution that is scored."))
        return [event for event in found if event is not None]

    def _once(self, key: str, text: str) -> EventRecord | None:
        if key in self.progress.said:
            return None
        self.progress.said.add(key)
        return EventRecord("warning", "health", text)

    # --- resume ------------------------------------------------------------------------------------------------------------------

    def state(self) -> TrainingState:
        """All that :func:`restore` needs, beside the weights. Where weights are split, everyone calls this and the first gets it."""
        numbers: dict[str, Any] = {
            "step": self.progress.step,
            "settings": self.config.model_dump(mode="json"),
            "elapsed": self.progress.elapsed,
            "skips": self.progress.skips,
            "said": sorted(self.progress.said),
            "controller": self.controller.state_dict(),
            "moments": self.models.scorer.moments.state_dict(),
            "prompts": self.prompts.state(),
            "threads": torch.get_num_threads(),
            "device": self.compute.device.type,
        }
        tensors = {"sampling": self._sampling.get_state(), "shuffling": self._shuffling.get_state(), "torch": torch.get_rng_state()}
        following = self.models.reference.weights() if self.config.ppo.reference_ema else {}
        keep = self.compute.ranks.is_main
        following = {name: full_tensor(weight, keep=keep) for name, weight in following.items()}
        return TrainingState(numbers, tensors, full_optimizer_state(self.updater.optimizer, keep=keep), following)

    def restore(self, state: TrainingState) -> list[str]:
        """Take up a saved state (weights and optimizer are restored already). Returns what may differ from before."""
        numbers = state.numbers
        self.progress = Progress(numbers["step"], numbers["elapsed"], numbers["skips"], set(numbers["said"]))
        self.settings_before = numbers.get("settings")
        if not changed(self.settings_before, self.config, "ppo.kl_coef", "ppo.kl_controller"):  # else β starts from its new setting
            self.controller.load_state_dict(numbers["controller"])
        self.models.scorer.moments.load_state_dict(numbers["moments"])
        changes = self.prompts.restore(numbers["prompts"])
        if state.reference:
            self.models.reference.restore(state.reference)
        self._shuffling.set_state(state.tensors["shuffling"])
        torch.set_rng_state(state.tensors["torch"])
        if numbers["device"] == self.compute.device.type:
            self._sampling.set_state(state.tensors["sampling"])
        else:
            changes.append(f"the run was on {numbers['device']} and goes on with {self.compute.device.type}: other random numbers")
        threads = torch.get_num_threads()
        if numbers["threads"] != threads:
            changes.append(f"it used {numbers['threads']} threads and now uses {threads}: results may differ in the last bits")
        return changes


def make_controller(settings: PPOConfig) -> FixedKL | AdaptiveKL:
    """The KL coefficient: fixed, or held near a target."""
    if settings.kl_controller == "fixed":
        return FixedKL(settings.kl_coef)
    return AdaptiveKL(settings.kl_coef, settings.kl_target, settings.kl_horizon)
