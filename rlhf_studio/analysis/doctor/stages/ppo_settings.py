"""Risky settings of PPO."""

from __future__ import annotations

from collections.abc import Iterator

from rlhf_studio.analysis.doctor import settings_rules
from rlhf_studio.analysis.doctor.remedies import USUAL_KL_COEF, neutral_sampling, recipe_of, usual_price
from rlhf_studio.analysis.doctor.settings_rules import settings_finding as finding
from rlhf_studio.analysis.records import Finding, Level
from rlhf_studio.config import RunConfig
from rlhf_studio.config.fitting import Learner
from rlhf_studio.units import percent

FULL_RATE, LORA_RATE = 1e-3, 1e-2  # the highest that people use: large models take 1e-6 to 1e-5 (adapters ten times that), tiny ones more
SHORT_RUN = 5  # steps: below these the doctor itself says nothing of the score
TINY_BATCH = 8  # the standard deviation of 8 numbers is known to a quarter of itself, 1 / sqrt(2 (n - 1)); the field uses 64 to 512
LOW_GAMMA, LOW_LAMBDA = 0.95, 0.5  # 0.95 ** 32 leaves a fifth of the score at the first token of the shortest recipe
WIDE_CLIP = 0.5  # ratios from 0.5 to 1.5: hardly any clipping is left; the field uses 0.1 to 0.3
MANY_PASSES = 20  # over one batch; the field uses 1 to 4
STRONG_KL = 1.0  # points per nat: the recipes earn 2 points with 5 nats
HOT, COLD = 1.5, 0.5  # sampling temperature
SHORT_TEXT = 4  # tokens


def risks(config: RunConfig, learner: Learner | None = None) -> list[Finding]:
    """What is risky in the settings of a PPO run. ``learner``: the model, where it is known."""
    return [
        *_learning_rate(config, learner),
        *_batch(config),
        *_sampling(config),
        *_kl(config),
        *_credit(config),
        *_clipping(config),
        *_length_of_run(config),
        *_reward(config),
    ]


def _learning_rate(config: RunConfig, learner: Learner | None) -> Iterator[Finding]:
    ppo = config.ppo
    too_high = "Such steps usually destroy the policy within a few updates: it then writes the same nonsense for every prompt."
    yield from settings_rules.learning_rate(config, learner, LORA_RATE if config.lora.enabled else FULL_RATE, too_high=too_high)
    yield from settings_rules.warm_up(config, "steps", ppo.steps)
    if ppo.critic_warmup_steps >= ppo.steps:
        title, setting = "The policy never learns", f"ppo.critic_warmup_steps {ppo.critic_warmup_steps}, ppo.steps {ppo.steps}"
        rule, cause = "critic warm-up at least as long as the run", "Only the critic learns in all of these steps."
        advice, changes = "Use a shorter critic warm-up.", {"ppo.critic_warmup_steps": 0}
        yield finding("critic-warm-up", "alarm", title, rule, cause, advice, changes, setting=setting)


def _batch(config: RunConfig) -> Iterator[Finding]:
    ppo = config.ppo
    if ppo.has_critic and ppo.whiten_advantages and ppo.batch_size < TINY_BATCH:
        title = f"Advantages are whitened over {ppo.batch_size} responses"
        rule = f"fewer than {TINY_BATCH} responses in a batch with whitening on"
        cause = "Mean and spread of so few are mostly chance; whitening divides by that chance."
        advice = "Use 64 or more. A small micro-batch keeps the memory low and changes nothing else."
        yield finding("batch", "warning", title, rule, cause, advice, {"ppo.batch_size": 64}, setting=f"ppo.batch_size {ppo.batch_size}")
    if ppo.ppo_epochs >= MANY_PASSES:
        title, rule = f"{ppo.ppo_epochs} passes over each batch", f"at least {MANY_PASSES} passes"
        cause = "After so many the policy is far from the one that wrote the responses, and clipping stops most of it."
        setting = f"ppo.ppo_epochs {ppo.ppo_epochs}"
        yield finding("passes", "warning", title, rule, cause, "Use 1 to 4.", {"ppo.ppo_epochs": 4}, setting=setting)


def _sampling(config: RunConfig) -> Iterator[Finding]:
    generation = config.generation
    if cuts := neutral_sampling(config):
        names = [f"top-k {generation.top_k}"] if generation.top_k else []
        names += [f"top-p {generation.top_p:g}"] if generation.top_p < 1 else []
        title = f"Sampling is cut off: {' and '.join(names)}"
        cause = (
            "Responses then come from another distribution than the one whose probabilities are computed. The KL reads too low, can turn "
        )
        cause += "negative, and pays for moving away."
        advice = "PPO is defined for top-k 0 and top-p 1."
        level: Level = "note" if config.ppo.kl_coef == 0 else "warning"
        rule = "top-k above 0 or top-p below 1"
        yield finding("sampling", level, title, rule, cause, advice, cuts, setting=", ".join(cuts))
    if not COLD <= generation.temperature <= HOT:
        hot = generation.temperature > HOT
        title = f"Temperature {generation.temperature:g} is {'high' if hot else 'low'}"
        cause = "Responses become noise that earns little." if hot else "Responses become alike, so there is little to learn from."
        setting, rule = f"generation.temperature {generation.temperature:g}", f"outside {COLD:g} to {HOT:g}"
        yield finding("temperature", "warning", title, rule, cause, "1 is usual.", {"generation.temperature": 1.0}, setting=setting)
    if generation.response_length < SHORT_TEXT:
        title, rule = f"Responses of at most {generation.response_length} tokens", f"below {SHORT_TEXT} tokens"
        setting, cause = f"generation.response_length {generation.response_length}", "There is hardly any text to judge."
        changes = {"generation.response_length": 32}
        yield finding("length", "note", title, rule, cause, "Allow some words, unless one token is the answer.", changes, setting=setting)


def _kl(config: RunConfig) -> Iterator[Finding]:
    ppo, setting = config.ppo, f"ppo.kl_coef {config.ppo.kl_coef:g}"
    if ppo.kl_coef == 0:
        title, rule = "With KL coefficient 0 nothing holds the policy near its start", "KL coefficient 0"
        cause = "Without a price on moving away, the policy learns what pleases the reward model, whether it is good text or not."
        advice = f"Use {USUAL_KL_COEF:g} to 0.2; or keep 0 on purpose, and watch gold fall."
        yield finding("kl", "warning", title, rule, cause, advice, usual_price(config), setting=setting)
    elif ppo.kl_coef > STRONG_KL:
        title, rule = f"KL coefficient {ppo.kl_coef:g} is very high", f"above {STRONG_KL:g} points per nat"
        cause = "Moving away costs more than most scores can earn, so the policy stays where it is."
        yield finding("kl", "warning", title, rule, cause, f"Use {USUAL_KL_COEF:g} to 0.2.", {"ppo.kl_coef": 0.1}, setting=setting)


def _credit(config: RunConfig) -> Iterator[Finding]:
    ppo = config.ppo
    if ppo.gamma < LOW_GAMMA:
        share_left = ppo.gamma ** (config.generation.response_length - 1)
        title, rule = f"Discount γ {ppo.gamma:g} hides the score from early tokens", f"below {LOW_GAMMA:g}"
        many = config.generation.response_length
        cause = f"The score comes with the last token. Of it {percent(share_left, 1)} is left at the first of {many} tokens."
        yield finding(
            "gamma", "warning", title, rule, cause, "Use 1: a response is short.", {"ppo.gamma": 1.0}, setting=f"ppo.gamma {ppo.gamma:g}"
        )
    if ppo.lam < LOW_LAMBDA:
        title, rule = f"GAE λ {ppo.lam:g} trusts the critic almost alone", f"below {LOW_LAMBDA:g}"
        cause = "The critic knows nothing at the start, so the first advantages are mostly its errors."
        yield finding("lambda", "warning", title, rule, cause, "Use 0.9 to 1.", {"ppo.lam": 0.95}, setting=f"ppo.lam {ppo.lam:g}")


def _clipping(config: RunConfig) -> Iterator[Finding]:
    ppo = config.ppo
    widest = max(ppo.cliprange, ppo.cliprange_high)
    if widest > WIDE_CLIP:
        name = "cliprange" if widest == ppo.cliprange else "cliprange_high"
        title, rule = f"A clip range of {widest:g} hardly clips", f"above {WIDE_CLIP:g}"
        cause = "Clipping is what keeps an update near the responses that it learns from."
        changes = {f"ppo.{name}": 0.2 if name == "cliprange" else 0.28}
        yield finding("clip-range", "warning", title, rule, cause, "0.1 to 0.3 are usual.", changes, setting=f"ppo.{name} {widest:g}")
    yield from settings_rules.gradient_clip(config, FULL_RATE, "policy")


def _length_of_run(config: RunConfig) -> Iterator[Finding]:
    steps = config.ppo.steps
    if steps < SHORT_RUN:
        title, rule = f"{steps} {'step is' if steps == 1 else 'steps are'} too few to learn much", f"fewer than {SHORT_RUN} steps"
        cause = "Each step is one batch. The doctor says nothing of a score before 5 of them."
        recipe = recipe_of(config)
        changes = {"ppo.steps": recipe.ppo.steps if recipe else 60}
        yield finding("steps", "note", title, rule, cause, "Fine for a try; for a run take more.", changes, setting=f"ppo.steps {steps}")


def _reward(config: RunConfig) -> Iterator[Finding]:
    reward = config.reward
    if all(component.weight == 0 for component in reward.components):
        title, rule = "No reward has any weight", "the weights of all components are 0"
        cause = "Every response earns the same, so there is nothing to learn."
        yield finding("reward", "alarm", title, rule, cause, "Give a component a weight.", setting="reward.components")
