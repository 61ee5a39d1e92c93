"""Risky settings of PPO."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, lcm
from typing import Any

from rlhf_studio.analysis.doctor import settings_rules
from rlhf_studio.analysis.doctor.bounds import MATTERS
from rlhf_studio.analysis.doctor.remedies import neutral_sampling
from rlhf_studio.analysis.doctor.settings_rules import settings_finding as finding
from rlhf_studio.analysis.doctor.wording import joined
from rlhf_studio.analysis.records import Finding, Level
from rlhf_studio.config import RunConfig, fitting
from rlhf_studio.config.fitting import NOTHING_KNOWN, Fitted, Known
from rlhf_studio.config.usual import recipe_of, usual_price
from rlhf_studio.language import _, ngettext
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
    too_high = _("Such steps usually destroy the policy within a few updates: it then writes the same nonsense for every prompt.")
    yield from settings_rules.learning_rate(config, known, LORA_RATE if config.lora.enabled else FULL_RATE, too_high=too_high)
    yield from settings_rules.warm_up(config, ppo.steps)
    if ppo.critic_warmup_steps >= ppo.steps:
        title, setting = _("The policy never learns"), f"ppo.critic_warmup_steps {ppo.critic_warmup_steps}, ppo.steps {ppo.steps}"
        rule, cause = _("critic warm-up at least as long as the run"), _("Only the critic learns in all of these steps.")
        advice, changes = _("Use a shorter critic warm-up."), {"ppo.critic_warmup_steps": 0}
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
    if room <= most:
        advice = _("The longest has {longest:,} tokens, and no more than {room:,} fit; shorten such prompts, or leave them out.")
    elif still:
        advice = _("Use {room:,}, which cuts {count:,} of them: the longest has {longest:,} tokens.")
    else:
        advice = _("Use {room:,}, which cuts none: the longest has {longest:,} tokens.")
    advice = advice.format(room=room, count=still, longest=longest)
    title = _("{count:,} of {all:,} prompts are longer than {most:,} tokens and are cut").format(count=count, all=len(lengths), most=most)
    cause = _losing(config.data.overlong == "cut_right", config.data.chat_template)
    rule = _("prompts that are cut: any (note), {some} (warning), {many} (alarm)")
    rule = rule.format(some=percent(CUT[1][0]), many=percent(CUT[0][0]))
    changes = {"data.max_prompt_tokens": room} if room > most else {}
    yield finding("prompts-cut", level, title, rule, cause, advice, changes, setting=f"data.max_prompt_tokens {most}")


def _losing(end: bool, chat: bool) -> str:
    """What prompts that are cut lose."""
    if chat and end:
        return _("They lose their end, and with it the front of the chat: the policy answers something that nobody asked.")
    if chat:
        return _("They lose their beginning, and with it the front of the chat: the policy answers something that nobody asked.")
    if end:
        return _("They lose their end: the policy answers something that nobody asked.")
    return _("They lose their beginning: the policy answers something that nobody asked.")


def _held_out(config: RunConfig, known: Known) -> Iterator[Finding]:
    """Too few held-out prompts to tell a change, where more can be had; a recipe's own are as many as it means."""
    data, recipe, enough = config.data, recipe_of(config), fitting.FEWEST_HELD_OUT
    count = 0 if not data.eval and not data.eval_share else known.held_out
    if count is None or count >= enough or recipe is not None and recipe.data == data:
        return
    changes: dict[str, Any] = {}
    rows = known.examples
    if data.eval or rows is not None and rows < fitting.FEWEST_PROMPTS:
        advice = _("Name {enough} prompts or more in data.eval; of fewer than {fewest} prompts none is set aside.")
        if data.eval:
            advice = _("Name {enough} prompts or more in data.eval.")
        advice = advice.format(enough=enough, fewest=fitting.FEWEST_PROMPTS)
    else:
        better = fitting.held_out_share(rows, enough, fitting.MOST_SET_ASIDE) if rows else Fitted(fitting.LEAST_SHARE, _("a usual share"))
        if better.value <= data.eval_share:
            return
        advice = _("Use a share of {share:g}: {why}.").format(share=better.value, why=better.why)
        changes = {"data.eval_share": better.value}
    title = _("{count} prompts are held out").format(count=count) if count else _("No prompt is held out")
    rule = _("fewer than {enough} held-out prompts (note); {few} or fewer, or none (warning)").format(enough=enough, few=TELL_NOTHING)
    cause = _("Then nobody can see whether the policy gets better on prompts that it does not learn from.")
    if count:
        cause = _("The mean score of {count} prompts is known to ± {error} of the spread of single scores.")
        cause = cause.format(count=count, error=percent(count**-0.5))
    setting = f"data.eval {data.eval}" if data.eval else f"data.eval_share {data.eval_share:g}"
    yield finding("held-out", "warning" if count <= TELL_NOTHING else "note", title, rule, cause, advice, changes, setting=setting)


def _batch(config: RunConfig, known: Known) -> Iterator[Finding]:
    """A batch whose mean score is mostly chance: the standard error of a mean of n scores is their spread / √n."""
    ppo, count = config.ppo, config.ppo.batch_size
    fits = _usual_batch(config, known)
    size = fits["ppo.batch_size"]
    level: Level | None = "alarm" if count <= PAIR else "warning" if count < TINY_BATCH else "note" if FAR_FEWER * count < size else None
    if level is not None:
        title = ngettext("A step learns from 1 response", "A step learns from {count} responses", count).format(count=count)
        rule = _("at most {pair} responses in a batch (alarm), fewer than {tiny} (warning), or than a quarter of {size} (note)")
        cause = _("Their mean score is known to ± {error} of the spread of single scores; a change that matters is {matters} of it.")
        if ppo.has_critic and ppo.whiten_advantages:
            cause = _(
                "Their mean score is known to ± {error} of the spread of single scores; a change that matters is {matters} of "
                "it. Whitening "
                "divides by chance."
            )
        rule, cause = rule.format(pair=PAIR, tiny=TINY_BATCH, size=size), cause.format(error=percent(count**-0.5), matters=percent(MATTERS))
        advice = _("Use {size}. A small micro-batch keeps the memory low and changes nothing else.").format(size=size)
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
        title, rule = (
            _("{count} passes over each batch").format(count=ppo.ppo_epochs),
            _("at least {count} passes").format(count=MANY_PASSES),
        )
        cause = _("After so many the policy is far from the one that wrote the responses, and clipping stops most of it.")
        setting = f"ppo.ppo_epochs {ppo.ppo_epochs}"
        yield finding("passes", "warning", title, rule, cause, _("Use 1 to 4."), {"ppo.ppo_epochs": 4}, setting=setting)


def _sampling(config: RunConfig) -> Iterator[Finding]:
    generation = config.generation
    if cuts := neutral_sampling(config):
        names = [f"top-k {generation.top_k}"] if generation.top_k else []
        names += [f"top-p {generation.top_p:g}"] if generation.top_p < 1 else []
        title = _("Sampling is cut off: {names}").format(names=joined(names))
        cause = _(
            "Responses then come from another distribution than the one whose probabilities are computed. The KL reads too low, can turn "
            "negative, and pays for moving away."
        )
        advice = _("PPO is defined for top-k 0 and top-p 1.")
        level: Level = "note" if config.ppo.kl_coef == 0 else "warning"
        rule = _("top-k above 0 or top-p below 1")
        yield finding("sampling", level, title, rule, cause, advice, cuts, setting=", ".join(cuts))
    if not COLD <= generation.temperature <= HOT:
        hot = generation.temperature > HOT
        title = _("Temperature {value:g} is high") if hot else _("Temperature {value:g} is low")
        cause = _("Responses become noise that earns little.") if hot else _("Responses become alike, so there is little to learn from.")
        title, setting = title.format(value=generation.temperature), f"generation.temperature {generation.temperature:g}"
        rule, changes = _("outside {low:g} to {high:g}").format(low=COLD, high=HOT), {"generation.temperature": 1.0}
        yield finding("temperature", "warning", title, rule, cause, _("1 is usual."), changes, setting=setting)
    if generation.response_length < SHORT_TEXT:
        title = _("Responses of at most {count} tokens").format(count=generation.response_length)
        rule, cause = _("below {count} tokens").format(count=SHORT_TEXT), _("There is hardly any text to judge.")
        setting, advice = f"generation.response_length {generation.response_length}", _("Allow some words, unless one token is the answer.")
        yield finding("length", "note", title, rule, cause, advice, {"generation.response_length": 32}, setting=setting)


def _kl(config: RunConfig) -> Iterator[Finding]:
    ppo, setting, usual = config.ppo, f"ppo.kl_coef {config.ppo.kl_coef:g}", usual_price(config)
    if ppo.kl_coef == 0:
        title, rule = _("With KL coefficient 0 nothing holds the policy near its start"), _("KL coefficient 0")
        cause = _("Without a price on moving away, the policy learns what pleases the reward model, whether it is good text or not.")
        advice = _("Use {usual:g}; or keep 0 on purpose, and watch gold fall.").format(usual=usual)
        yield finding("kl", "warning", title, rule, cause, advice, {"ppo.kl_coef": usual}, setting=setting)
    elif ppo.kl_coef > STRONG_KL:
        title = _("KL coefficient {value:g} is very high").format(value=ppo.kl_coef)
        rule = _("above {most:g} points per nat").format(most=STRONG_KL)
        cause = _("Moving away costs more than most scores can earn, so the policy stays where it is.")
        advice = _("Use {usual:g}.").format(usual=usual)
        yield finding("kl", "warning", title, rule, cause, advice, {"ppo.kl_coef": usual}, setting=setting)


def _credit(config: RunConfig) -> Iterator[Finding]:
    ppo = config.ppo
    if ppo.gamma < LOW_GAMMA:
        share_left = ppo.gamma ** (config.generation.response_length - 1)
        title = _("Discount γ {value:g} hides the score from early tokens").format(value=ppo.gamma)
        rule = _("below {value:g}").format(value=LOW_GAMMA)
        cause = _("The score comes with the last token. Of it {share} is left at the first of {count} tokens.")
        cause = cause.format(share=percent(share_left, 1), count=config.generation.response_length)
        changes, setting = {"ppo.gamma": 1.0}, f"ppo.gamma {ppo.gamma:g}"
        yield finding("gamma", "warning", title, rule, cause, _("Use 1: a response is short."), changes, setting=setting)
    if ppo.lam < LOW_LAMBDA:
        title = _("GAE λ {value:g} trusts the critic almost alone").format(value=ppo.lam)
        rule, setting = _("below {value:g}").format(value=LOW_LAMBDA), f"ppo.lam {ppo.lam:g}"
        cause = _("The critic knows nothing at the start, so the first advantages are mostly its errors.")
        yield finding("lambda", "warning", title, rule, cause, _("Use 0.9 to 1."), {"ppo.lam": 0.95}, setting=setting)


def _clipping(config: RunConfig) -> Iterator[Finding]:
    ppo = config.ppo
    widest = max(ppo.cliprange, ppo.cliprange_high)
    if ppo.ratio_level == "sequence" and widest > WIDE_SEQUENCE_CLIP:
        title = _("A clip range of {value:g} is one for single tokens").format(value=widest)
        rule = _("above {value:g} with ppo.ratio_level sequence").format(value=WIDE_SEQUENCE_CLIP)
        cause = _("The ratio of a whole response is a mean over its tokens and moves far less than theirs, so that nothing is clipped.")
        changes = {"ppo.cliprange": 3e-4, "ppo.cliprange_high": 4e-4}
        setting = _("ppo.ratio_level sequence, clip range {value:g}").format(value=widest)
        advice = _("GSPO's paper uses 0.0003 and 0.0004.")
        yield finding("clip-range", "warning", title, rule, cause, advice, changes, setting=setting)
    elif widest > WIDE_CLIP:
        name = "cliprange" if widest == ppo.cliprange else "cliprange_high"
        title, rule = _("A clip range of {value:g} hardly clips").format(value=widest), _("above {value:g}").format(value=WIDE_CLIP)
        cause, setting = _("Clipping is what keeps an update near the responses that it learns from."), f"ppo.{name} {widest:g}"
        changes = {f"ppo.{name}": 0.2 if name == "cliprange" else 0.28}
        yield finding("clip-range", "warning", title, rule, cause, _("0.1 to 0.3 are usual."), changes, setting=setting)
    yield from settings_rules.gradient_clip(config, FULL_RATE, _("A single odd batch can then throw the policy far off."))


def _length_of_run(config: RunConfig) -> Iterator[Finding]:
    steps = config.ppo.steps
    if steps < SHORT_RUN:
        title = ngettext("1 step is too few to learn much", "{count} steps are too few to learn much", steps).format(count=steps)
        rule, setting = _("fewer than {count} steps").format(count=SHORT_RUN), f"ppo.steps {steps}"
        cause = _("Each step is one batch. The doctor says nothing of a score before 5 of them.")
        recipe = recipe_of(config)
        changes = {"ppo.steps": recipe.ppo.steps if recipe else 60}
        yield finding("steps", "note", title, rule, cause, _("Fine for a try; for a run take more."), changes, setting=setting)


def _reward(config: RunConfig) -> Iterator[Finding]:
    reward = config.reward
    if all(component.weight == 0 for component in reward.components):
        title, rule = _("No reward has any weight"), _("the weights of all components are 0")
        cause = _("Every response earns the same, so there is nothing to learn.")
        yield finding("reward", "alarm", title, rule, cause, _("Give a component a weight."), setting="reward.components")
