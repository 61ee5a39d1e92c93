"""The PPO loop. Read :meth:`Trainer.step` first: it is the algorithm.

The trainer knows nothing of processes, files or people: :mod:`rlhf_studio.engine.process.worker` drives it and stores what it returns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from rlhf_studio.config import PPOConfig, RunConfig
from rlhf_studio.config.live import with_changes
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.loop.changed_settings import change_events
from rlhf_studio.engine.loop.live_settings import LiveSettings
from rlhf_studio.engine.loop.models import Models
from rlhf_studio.engine.loop.phases import advantages_of, reference_pass, sample, score
from rlhf_studio.engine.loop.prompts import PromptStream
from rlhf_studio.engine.loop.update import Updater
from rlhf_studio.engine.loop.watching.probes import Probes, first_probes
from rlhf_studio.engine.loop.watching.watched import Answers, answer_watched, score_watched
from rlhf_studio.engine.recording.costs import Costs
from rlhf_studio.engine.recording.health import Health
from rlhf_studio.engine.recording.records import Recorder, first_non_finite, objective_metrics, update_metrics
from rlhf_studio.engine.recording.skips import Skips, skip_event
from rlhf_studio.engine.recording.so_far import rollouts_so_far
from rlhf_studio.engine.rewards.errors import RewardError
from rlhf_studio.engine.types import PromptBatch, Rollout, Samples, Scores, StepSoFar, UpdateStats
from rlhf_studio.language import S_
from rlhf_studio.ppo.kl_control import AdaptiveKL, FixedKL
from rlhf_studio.ppo.rewards import shape_rewards
from rlhf_studio.runs.records import EventRecord, ProbeScore, RolloutRecord, SettingChange, StepEpisodes, StepRecord, WatchRecord


@dataclass
class Progress:
    """Steps done, the seconds that they took, and the responses that they sampled."""

    step: int = 0
    elapsed: float = 0.0
    episodes: int = 0


@dataclass(frozen=True)
class StepDetails:
    """What people can look at beside the metrics of a step; see :class:`StepRecord`. Empty on ranks that write nothing."""

    rollouts: list[RolloutRecord] = field(default_factory=list)
    watched: list[WatchRecord] = field(default_factory=list)
    events: list[EventRecord] = field(default_factory=list)
    episodes: StepEpisodes | None = None
    probes: list[ProbeScore] = field(default_factory=list)


class Trainer:
    """A PPO run in memory. Build it with :func:`rlhf_studio.engine.loop.build.build_trainer`.

    Attributes:
        first_rollout_check: called once, with the first rollout, before anything is learned from it; gives events for people.
        after_phase: called after each phase but the last, with the phase's name and the numbers that the step has so far; it may wait.
        live: which settings change while the run goes on; ``config`` has the values in force.
        probes: sentences that every step scores; None before :meth:`first_answers`, and in a run without any.
    """

    def __init__(self, config: RunConfig, models: Models, prompts: PromptStream, compute: Compute):
        self.config, self.models, self.prompts, self.compute = config, models, prompts, compute
        self.updater = Updater(models.policy, config, compute)
        self.controller = make_controller(config.ppo)
        self.progress = Progress()
        self.skips = Skips(stop=config.engine.non_finite == "stop")
        self.health = Health(compute.dtype)
        self.sampling_generator = torch.Generator(device=compute.device).manual_seed(config.engine.seed)
        self.shuffling_generator = torch.Generator().manual_seed(config.engine.seed + 1)
        self.first_rollout_check: Callable[[Rollout], list[EventRecord]] | None = None
        self.probes: Probes | None = None
        self.after_phase: Callable[[str, StepSoFar], None] = _go_on
        self.live = LiveSettings.of(config)
        self._recorder = Recorder(models.tokenizer, config)

    @property
    def finished(self) -> bool:
        """Whether all steps of the run are done."""
        return self.progress.step >= self.config.ppo.steps

    def step(self, samples: Samples | None = None, scores: Scores | None = None) -> StepRecord:
        """One PPO step. A run gives no arguments; a loop of your own may bring the ``samples`` of :meth:`sample` and their ``scores``.

        Raises :class:`NonFiniteError` or :class:`RewardError` where the run is to stop at bad numbers or failed rewards. No bad number has
        reached the weights then. A policy that cannot be sampled from always stops the run.
        """
        changes = self.change_settings()
        ppo, kl_coef, costs = self.config.ppo, self.controller.coef, Costs(self.compute)
        try:
            if samples is None:  # what a loop of your own did before is not known to have taken no time
                with costs("rollout"):
                    samples = self.sample(self.next_prompts())
            self.after_phase("rollout", StepSoFar(kl_coef, samples))
            if scores is None:
                with costs("score"):
                    scores = score(self.models, samples)
        except RewardError as error:  # raised again there, unless such steps are to be skipped
            return self._without_scores(error, costs, changes)
        self.after_phase("score", StepSoFar(kl_coef, samples, scores))
        with costs("reference"):
            reference = reference_pass(self.models, samples)
        self.after_phase("reference", StepSoFar(kl_coef, samples, scores, reference))
        mask, values = samples.mask, samples.policy.values  # (B, T); the values come from the pass that sampled; None: no critic
        reward_kl_coef = kl_coef if ppo.kl_placement == "reward" else 0.0
        shaped = scores.shaped.to(mask.device)  # (B,)
        early = None if scores.early is None else scores.early.to(mask.device)  # (B, T)
        rewards = shape_rewards(reference.kl, shaped, mask, reward_kl_coef, unit_variance=ppo.whiten_rewards, early=early)
        advantages = advantages_of(ppo, rewards, shaped, values, mask, read=samples.tokens.mask)
        rollout = Rollout.of(samples, scores, reference, rewards, advantages, kl_coef)
        self.after_phase("advantages", StepSoFar(kl_coef, samples, scores, reference, rollout))
        bad_number = first_non_finite(rollout)  # a sentence; empty when all is well
        with costs("update"):
            parity_events = [] if bad_number else self._check_first(rollout)
            stats = None if bad_number else self.updater.update(rollout, self.progress.step, self.shuffling_generator)
        self.after_phase("update", StepSoFar(kl_coef, samples, scores, reference, rollout, stats))
        problems = stats.problems if stats else [bad_number]  # why minibatches, or the whole update, were left out
        self.skips.add_update(problems)
        metrics = objective_metrics(rollout, ppo, stop_known=bool(self.models.stop_ids))
        self.control_kl(metrics["objective/kl"], episodes=len(mask))
        if stats and ppo.reference_ema:  # a reference that moves slowly towards the policy
            self.models.reference.follow(ppo.reference_ema)
        self.progress.step += 1
        with costs("record"):
            details = self.record(rollout, stats)
        if stats:
            metrics |= update_metrics(stats, self.updater.learning_rate, has_critic=ppo.has_critic)
        metrics |= self._costs(costs, rollout)
        events = [*change_events(changes), *parity_events, *details.events, *self.health.events(metrics["objective/kl"], stats, problems)]
        return StepRecord(
            self.progress.step,
            metrics,
            details.rollouts,
            details.watched,
            events,
            details.episodes,
            details.probes,
            self.live.to_record(changes),
        )

    def change_settings(self) -> list[SettingChange]:
        """Put into force what is planned for the next step. Returns the settings whose values changed."""
        number = self.progress.step + 1
        due = self.live.due(number)
        before = {setting: self.present(setting) for setting in due}
        self.use(due)
        return [SettingChange(number, setting, before[setting], value) for setting, value in due.items() if value != before[setting]]

    def use(self, changes: Mapping[str, float]) -> None:
        """Go on with other values of settings of :data:`~rlhf_studio.config.live.LIVE_SETTINGS`."""
        if not changes:
            return
        self.live.values |= changes
        self.config = RunConfig.model_validate(with_changes(self.config.model_dump(mode="json"), changes))
        self.models = self.models.using(self.config)
        self.updater.use(self.config)
        if "ppo.kl_coef" in changes:
            self.controller.coef = changes["ppo.kl_coef"]
        if isinstance(self.controller, AdaptiveKL):
            self.controller.target = self.config.ppo.kl_target

    def present(self, setting: str) -> float:
        """The value of a setting as it is now; an adaptive controller moves the KL coefficient away from what was set."""
        section, name = setting.split(".")
        return self.controller.coef if setting == "ppo.kl_coef" else float(getattr(getattr(self.config, section), name))

    def next_prompts(self) -> PromptBatch:
        """The prompts of the next step: each once for every response that it gets."""
        ppo = self.config.ppo
        return self.prompts.next_batch(ppo.batch_size // ppo.responses_per_prompt).repeat(ppo.responses_per_prompt)

    def sample(self, prompts: PromptBatch) -> Samples:
        """One response for each prompt. Raises :class:`NonFiniteError` when the policy cannot be sampled from."""
        return sample(self.models, prompts, self.sampling_generator)

    def control_kl(self, kl: float, episodes: int) -> None:
        """Let the controller set β for the next step. β stays as it is when ``kl`` is not finite."""
        if math.isfinite(kl):
            self.controller.update(kl, episodes)

    def record(self, rollout: Rollout, stats: UpdateStats | None) -> StepDetails:
        """What people can look at. Rank 0 makes and writes it; the other ranks go on, and wait at the next point where all ranks meet.

        Where weights are sharded, the other ranks take part: each of the policy's forward passes needs them.
        """
        ranks = self.compute.ranks
        if not (ranks.is_main or ranks.sharded):
            return StepDetails()
        due = self.finished or self.progress.step % self.config.engine.watch_every == 0
        watched, events = self.watched() if due else ([], [])
        probes = self.probes.scores() if self.probes else []
        if not ranks.is_main:
            return StepDetails()
        logprobs = stats.logprobs if stats else rollout.logprobs
        rollouts = self._recorder.rollouts(rollout, logprobs[: rollout.recorded])
        token_ids = self.probes.shown_ids(probes) if self.probes else []
        return StepDetails(rollouts, watched, events, self._recorder.episodes(rollout, token_ids), probes)

    def recorded_so_far(self, phase: str, so_far: StepSoFar) -> list[RolloutRecord]:
        """The step's recorded episodes with what is known of them after ``phase``."""
        return rollouts_so_far(self._recorder, phase, so_far)

    def watched(self) -> tuple[list[WatchRecord], list[EventRecord]]:
        """The answers to the watched prompts, or an event that says why they could not be scored.

        Raises :class:`RewardError` when the run is to stop at such an error.
        """
        return self._scored(answer_watched(self.models, self.prompts))

    def first_answers(self) -> tuple[list[WatchRecord], list[EventRecord]]:
        """As :meth:`watched`, before the first step: the first answers of the starting policy become the run's probes."""
        answers = answer_watched(self.models, self.prompts)
        if answers is not None:
            self.probes = first_probes(self.models, answers.tokens, answers.prompts.texts)
        return self._scored(answers)

    def _scored(self, answers: Answers | None) -> tuple[list[WatchRecord], list[EventRecord]]:
        if answers is None or not self.compute.ranks.is_main:  # the other ranks took part only to compute the answers
            return [], []
        try:
            return score_watched(self.models, answers), []
        except RewardError as error:
            self.skips.add(error)
            return [], [skip_event(S_("The answers to the watched prompts were"), error)]

    def _check_first(self, rollout: Rollout) -> list[EventRecord]:
        """Raises :class:`ParityError`."""
        check, self.first_rollout_check = self.first_rollout_check, None
        return check(rollout) if check else []

    def _without_scores(self, error: RewardError, costs: Costs, changes: list[SettingChange]) -> StepRecord:
        """The record of a step whose responses could not be scored: nothing was learned. Raises ``error`` when the run is to stop at it."""
        self.skips.add(error)
        self.progress.step += 1
        events = [*change_events(changes), skip_event(S_("This update was"), error)]
        return StepRecord(self.progress.step, self._costs(costs, None), [], [], events, changes=self.live.to_record(changes))

    def _costs(self, costs: Costs, rollout: Rollout | None) -> dict[str, float]:
        self.progress.elapsed += costs.total
        self.progress.episodes += self.config.ppo.batch_size
        return costs.metrics(self.progress.elapsed, self.progress.episodes, rollout)


def make_controller(settings: PPOConfig) -> AdaptiveKL | FixedKL:
    """The KL controller that the settings ask for."""
    if settings.kl_controller == "adaptive":
        return AdaptiveKL(settings.kl_coef, settings.kl_target, settings.kl_horizon)
    return FixedKL(settings.kl_coef)


def _go_on(phase: str, so_far: StepSoFar) -> None:
    """What a run does between two phases when nobody steps through it: nothing."""
