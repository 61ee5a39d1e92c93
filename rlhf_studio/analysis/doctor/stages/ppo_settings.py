"""Risky settings of PPO."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, lcm
from typing import Any

from rlhf_studio.analysis.doctor import settings_rules
from rlhf_studio.analysis.doctor.bounds import MATTERS
from rlhf_studio.analysis.doctor.remedies import USUAL_KL_COEF, neutral_sampling, usual_price
from rlhf_studio.analysis.doctor.settings_rules import settings_finding as finding
from rlhf_studio.analysis.records import Finding, Level
from rlhf_studio.config import RunConfig, fitting
from rlhf_studio.config.fitting import NOTHING_KNOWN, Fitted, Known
from rlhf_studio.config.usual import recipe_of
from rlhf_studio.units import percent

FULL_RATE, LORA_RATE = 1e-3, 1e-2  # the highest that people use: large models take 1e-6 to 1e-5 (adapters ten times that), tiny ones more
SHORT_RUN = 5  # steps: below these the doctor itself says nothing of the score
PAIR, TINY_BATCH = 2, 8  # the standard deviation of 8 numbers is known to a quarter of itself, 1 / sqrt(2 (n - 1))
FAR_FEWER = 4  # times fewer responses than fit: means are then known half as well
TELL_NOTHING = 16  # prompts: their mean is known to a quarter of the spread of single scores, which is the least change that matters
CUT: tuple[tuple[float, Level], ...] = ((0.5, "alarm"), (0.1, "warning"), (0.0, "note"))  # shares of the prompts
LOW_GAMMA, LOW_LAMBDA = 0.95, 0.5  # 0.95 ** 32 leaves a fifth of the score at the first token of the shortest recipe
WIDE_CLIP = 0.5  # ratios from 0.5 to 1.5: hardly any clipping is left; the field uses 0.1 to 0.3
# One ratio for a response is a mean over its tokens. GSPO's paper clips at 3e-4 and 4e-4; a mean that has moved by 0.05 has moved every
# token by 5 %, or a fifth of them by the 28 % at which DAPO clips one.
WIDE_SEQUENCE_CLIP = 0.05
MANY_PASSES = 20  # over one batch; the field uses 1 to 4
STRONG_KL = 1.0  # points per nat: the recipes earn 2 points with 5 nats
HOT, COLD = 1.5, 0.5  # sampling temperature
SHORT_TEXT = 4  # tokens


def risks(config: RunConfig, known: Known = NOTHING_KNOWN) -> list[Finding]:
    """What is risky in the settings of a PPO run."""
    return [
        *_learning_rate(config, known),
        *settings_rules.critic_rate(config, known.width),
        *settings_rules.chat_template(config, known),
        *_cut_prompts(config, known),
        *_held_out(config, known),
        *_batch(config, known),
        *_passes(config),
        *_sampling(config),
        *_kl(config),
        *_credit(config),
        *_clipping(config),
        *_length_of_run(config),
        *_reward(config),
    ]


def _learning_rate(config: RunConfig, known: Known) -> Iterator[Finding]:
    ppo = config.ppo
    too_high = "Such steps usually destroy the policy within a few updates: it then writes the same nonsense for every prompt."
    yield from settings_rules.learning_rate(config, known, LORA_RATE if config.lora.enabled else FULL_RATE, too_high=too_high)
    yield from settings_rules.warm_up(config, ppo.steps)
    if ppo.critic_warmup_steps >= ppo.steps:
        title, setting = "The policy never learns", f"ppo.critic_warmup_steps {ppo.critic_warmup_steps}, ppo.steps {ppo.steps}"
        rule, cause = "critic warm-up at least as long as the run", "Only the critic learns in all of these steps."
        advice, changes = "Use a shorter critic warm-up.", {"ppo.critic_warmup_steps": 0}
        yield finding("critic-warm-up", "alarm", title, rule, cause, advice, changes, setting=setting)


def _cut_prompts(config: RunConfig, known: Known) -> Iterator[Finding]:
    most, lengths = config.data.max_prompt_tokens, known.lengths
    count = sum(length > most for length in lengths)
    if not count:
        return
    longest = max(lengths)
    room = fitting.room_for(longest, known.device, known.most).value
    level = next(level for least, level in CUT if count >= least * len(lengths)) if room > most else "note"
    still = sum(length > room for length in lengths)
    if room > most:
        advice = f"Use {room:,}, which cuts {f'{still:,} of them' if still else 'none'}: the longest has {longest:,} tokens."
    else:
        advice = f"The longest has {longest:,} tokens, and no more than {room:,} fit; shorten such prompts, or leave them out."
    title = f"{count:,} of {len(lengths):,} prompts are longer than {most:,} tokens and are cut"
    lost = "end" if config.data.overlong == "cut_right" else "beginning"
    cause = f"They lose their {lost}" + (", and with it the front of the chat" if config.data.chat_template else "")
    cause += ": the policy answers something that nobody asked."
    rule = f"prompts that are cut: any (note), {percent(CUT[1][0])} (warning), {percent(CUT[0][0])} (alarm)"
    changes = {"data.max_prompt_tokens": room} if room > most else {}
    yield finding("prompts-cut", level, title, rule, cause, advice, changes, setting=f"data.max_prompt_tokens {most}")


def _held_out(config: RunConfig, known: Known) -> Iterator[Finding]:
    """Too few held-out prompts to tell a change, where more can be had; a recipe's own are as many as it means."""
    data, recipe, enough = config.data, recipe_of(config), fitting.FEWEST_HELD_OUT
    count = 0 if not data.eval and not data.eval_share else known.held_out
    if count is None or count >= enough or recipe is not None and recipe.data == data:
        return
    changes: dict[str, Any] = {}
    rows = known.examples
    if data.eval or rows is not None and rows < fitting.FEWEST_PROMPTS:
        few = "" if data.eval else f"; of fewer than {fitting.FEWEST_PROMPTS} prompts none is set aside"
        advice = f"Name {enough} prompts or more in data.eval{few}."
    else:
        better = fitting.held_out_share(rows, enough, fitting.MOST_SET_ASIDE) if rows else Fitted(fitting.LEAST_SHARE, "a usual share")
        if better.value <= data.eval_share:
            return
        advice, changes = f"Use a share of {better.value:g}: {better.why}.", {"data.eval_share": better.value}
    title = f"{count} prompts are held out" if count else "No prompt is held out"
    rule = f"fewer than {enough} held-out prompts (note); {TELL_NOTHING} or fewer, or none (warning)"
    cause = f"The mean score of {count} prompts is known to ± {percent(count**-0.5)} of the spread of single scores." if count else ""
    cause = cause or "Then nobody can see whether the policy gets better on prompts that it does not learn from."
    setting = f"data.eval {data.eval}" if data.eval else f"data.eval_share {data.eval_share:g}"
    yield finding("held-out", "warning" if count <= TELL_NOTHING else "note", title, rule, cause, advice, changes, setting=setting)


def _batch(config: RunConfig, known: Known) -> Iterator[Finding]:
    """A batch whose mean score is mostly chance: the standard error of a mean of n scores is their spread / √n."""
    ppo, count = config.ppo, config.ppo.batch_size
    fits = _usual_batch(config, known)
    size = fits["ppo.batch_size"]
    level: Level | None = "alarm" if count <= PAIR else "warning" if count < TINY_BATCH else "note" if FAR_FEWER * count < size else None
    if level is not None:
        title = f"A step learns from {count} response{'s' if count > 1 else ''}"
        rule = f"at most {PAIR} responses in a batch (alarm), fewer than {TINY_BATCH} (warning), or than a quarter of {size} (note)"
        cause = f"Their mean score is known to ± {percent(count**-0.5)} of the spread of single scores; a change that matters is "
        cause += f"{percent(MATTERS)} of it." + (" Whitening divides by chance." if ppo.has_critic and ppo.whiten_advantages else "")
        advice = f"Use {size}. A small micro-batch keeps the memory low and changes nothing else."
        yield finding("batch", level, title, rule, cause, advice, fits, setting=f"ppo.batch_size {count}")


def _usual_batch(config: RunConfig, known: Known) -> dict[str, Any]:
    """The recipe's batch for a run with its model, else what fits, with mini-batches of it."""
    ppo, recipe = config.ppo, recipe_of(config)
    shares = lcm(max(1, ppo.micro_batch_size), max(1, config.engine.processes))
    unit = lcm(ppo.responses_per_prompt, 2 * shares)
    if recipe and recipe.model.policy == config.model.policy:
        size = unit * ceil(recipe.ppo.batch_size / unit)
    else:
        size = fitting.batch_size(known.weights or 0, known.device, unit).value
    return {"ppo.batch_size": size, "ppo.mini_batch_size": fitting.mini_batch_size(size, shares).value}


def _passes(config: RunConfig) -> Iterator[Finding]:
    ppo = config.ppo
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
    if ppo.ratio_level == "sequence" and widest > WIDE_SEQUENCE_CLIP:
        title, rule = f"A clip range of {widest:g} is one for single tokens", f"above {WIDE_SEQUENCE_CLIP:g} with ppo.ratio_level sequence"
        cause = "The ratio of a whole response is a mean over its tokens and moves far less than theirs, so that nothing is clipped."
        changes = {"ppo.cliprange": 3e-4, "ppo.cliprange_high": 4e-4}
        setting = f"ppo.ratio_level sequence, clip range {widest:g}"
        yield finding("clip-range", "warning", title, rule, cause, "GSPO's paper uses 0.0003 and 0.0004.", changes, setting=setting)
    elif widest > WIDE_CLIP:
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
