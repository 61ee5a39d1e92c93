"""The page of the doctor's checks in docs/doctor.md, made from the registry of checks.

``python -m tools.doctor_page > docs/doctor.md`` writes it; a test compares.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from rlhf_studio.analysis.doctor import (
    bounds,
    checks,  # noqa: F401  (registers the checks)
    expectation,
    settings_rules,
)
from rlhf_studio.analysis.doctor.check import CHECKS
from rlhf_studio.analysis.doctor.checks.reward import FALL_STEPS, GOLD_ROSE
from rlhf_studio.analysis.doctor.judges import FALL_SHARE, LIKELY_RISE, REAL_RISE, SURE_AT_END, SURE_FALL, SURE_RISE, WINDOW
from rlhf_studio.analysis.doctor.phrases import SURE
from rlhf_studio.analysis.doctor.stages import losses, ppo, ppo_settings, supervised
from rlhf_studio.analysis.doctor.stages import supervised_settings as stage_settings
from rlhf_studio.analysis.replay.moments import CLIPPING, KL_STEPS, MOST_MOMENTS, USUAL_KL
from rlhf_studio.config import STAGE_TITLES, fitting
from rlhf_studio.units import percent

CHANCE = Path(__file__).parents[1] / "benchmarks" / "results" / "chance.md"
HEAD = """# The doctor

`python -m rlhf_studio doctor DIR` says what a run came to (the verdict) and what is wrong with it (findings), also while it goes on.
`--json` gives `verdict` and `findings` for scripts; `--until STEP` looks at the run as it was after that step. Risky settings are told
before Start, and are findings of the run from its beginning (`since` 0) until a change mends them; those that show only in the model's
files and the data are told before Start alone. Where a finding usually comes from, and where to look, stands with the finding; below are
the rule of each check and, in italics, what to do.

Made by `python -m tools.doctor_page > docs/doctor.md`.

## Levels

A **note** is worth knowing and often normal. A **warning**: the run is probably not doing what was wanted. An **alarm**: numbers or policy
are spoilt.

What a check says of a step does not depend on what came later. Responses are read at each of the first 20 steps, then every 5th up to 100,
every 25th up to 1,000 and every 250th after that; checks of text are as exact as that. `one-phrase` reads all episodes of the steps that
it compares, the others the recorded responses.

## Verdicts
"""


def doctor_document() -> str:
    """The whole page as Markdown."""
    lines = [HEAD.rstrip("\n"), "", *_verdicts()]
    for family, group in groupby(CHECKS.values(), key=lambda check: check.family):
        lines += ["", f"## {family}", "", *(f"- `{check.name}`: {check.rule}. *{check.advice}*" for check in group)]
    lines += ["", *_moments(), "", *_settings()]
    return "\n".join(lines) + "\n"


def _verdicts() -> list[str]:
    sure, real = f"{SURE_RISE:g}", f"{REAL_RISE:g}"
    dead = ", ".join(f"`{name}`" for name in ppo.DEAD_SIGNS)
    signs = ", ".join(f"`{name}`" for name in ppo.EXPLOIT_SIGNS)
    return [
        "| verdict | rule |",
        "|---|---|",
        f"| too early | fewer than {ppo.FEWEST_STEPS} steps with a score |",
        "| not known | no step has a score, or nothing tells its standard error; or updates were left out of so many steps that too few "
        "scores are left |",
        "| cannot tell yet, cannot be told | none of the others: a rise that matters is neither sure nor excluded; *cannot be told* when "
        "the run is over |",
        f"| improving, improved | the score rises by more than {sure} standard errors, in the trend over all steps or in the last tenth "
        f"of them against the start; and the last tenth is above the start by {real} standard deviations of single scores; *improved* when "
        f"the run is over, where {SURE_AT_END:g} standard errors are enough |",
        f"| rising | the same with {LIKELY_RISE:g} standard errors: not yet certain |",
        f"| exploiting the reward | `judge-falls`: the mean gold of {WINDOW} steps is below its best by more than {SURE_FALL:g} standard "
        f"errors and {percent(FALL_SHARE)} of what it had gained, while the score rose by {GOLD_ROSE:g} standard deviations or more and "
        f"has not fallen with it, {FALL_STEPS} steps in a row. Without a gold score: the score rose, and "
        f"{ppo.FEWEST_SIGNS} of {signs} are warnings, or `held-out-falls` "
        "is one |",
        f"| collapsed | {ppo.FEWEST_SIGNS} alarms, one of them of {dead}; or one such alarm while the score gained less than "
        f"{ppo.SMALL_GAIN:g} standard deviations; or, far from the reference (`kl-exploding` or `repetition` a warning), the judge "
        f"lost {ppo.REAL_LOSS:g} while the score gained less than {ppo.SMALL_GAIN:g}; or a run that died of numbers that are not "
        "finite. It stays until the judge is back at its start and no such alarm holds |",
        f"| nothing learned | none of these, and a rise of {bounds.MATTERS:g} standard deviations of single scores is excluded: by the "
        f"scores (the estimate + {bounds.EXCLUDED:g} standard errors, {bounds.EXCLUDED_SO_FAR:g} while the run goes on, for an early, a "
        "steady and a late rise), or by a KL (k3) so small "
        f"that no policy so near can score so much higher (√(2 KL) standard deviations); or the score surely fell. When the run is over "
        f"with {ppo.FEWEST_STEPS} steps or more, or after {ppo.LONG_ENOUGH} steps and half of it ({ppo.LONG_BY_STEPS} where only the steps "
        "themselves tell the error) |",
        "",
        "Where it cannot be told yet, the notes say how many more steps would tell (if the score goes on rising as it does, and if it does "
        f"not; in {percent(0.9)} of such runs), and which setting holds the run back, with a better value. For a run that rises they say "
        "which score to expect after the steps that are left, or after a night: from no further gain (most rises end) to the trend carried "
        "on, by no more than it gained so far and not above the best answer yet, with the same reward and settings. Nothing is foretold "
        f"beyond {expectation.FARTHEST} times the steps so far.",
        "",
        "A collapse comes before exploitation, and exploitation before improvement. Without a gold score nothing independent of the reward "
        "judges the run, and the verdict says so.",
        "",
        "Responses to the same prompt count as one in standard errors. Where a fork or a resume changed the reward, scores are compared "
        "from there on. A run that broke off can go on: its verdict is the one that it had, with the step at which it broke off. Updates "
        "that were left out (`engine.non_finite: skip`, `ppo.ratio_threshold`) are counted beside the verdict.",
        "",
        *CHANCE.read_text(encoding="utf-8").strip().splitlines(),
        "",
        "### Fine-tuning, reward models and DPO",
        "",
        "| verdict | rule |",
        "|---|---|",
        f"| too early | fewer than {2 * losses.WINDOW} steps and fewer than two measurements on held-out examples, or none of the others "
        "yet |",
        f"| learning, learned | the newest held-out loss is below the first by more than {losses.REAL_FALL:g} nats; without two "
        f"measurements the mean training loss of the last tenth of the steps is below that of the first {losses.WINDOW} by as much and by "
        f"more than {losses.SURE:g} standard errors; not where `accuracy-at-chance` is a warning; *learned* when the run is over |",
        "| overfits | `overfitting` is a warning at the newest step |",
        "| diverged | `loss-rises` is an alarm at the newest step, or the run died of numbers that are not finite |",
        f"| got worse | the newest held-out loss is above the first by {losses.ROSE:g} nats |",
        f"| nothing learned | none of these when the run is over with {2 * losses.WINDOW} steps or more, or after "
        f"{supervised.LATE_STEPS} steps and half of it; also where the loss fell, but `accuracy-at-chance` is a warning at the newest "
        f"step: of {losses.FEWEST_PAIRS} held-out pairs or more, no more are right than by chance, and surely less than "
        f"{percent(losses.USEFUL_ACCURACY)} |",
        "| evaluated | of an evaluation, which trains nothing |",
    ]


def _moments() -> list[str]:
    pauses = f"pauses at up to {MOST_MOMENTS} steps, and says what was found there"
    return [
        "## The moments of a replay",
        "",
        f"A replay ([export.md](export.md#the-replay)) {pauses}. The rules are",
        "those of the checks, so that the two agree: a step is the one that the finding names.",
        "",
        "- gold turns: `judge-falls`",
        f"- a phrase spreads: its share rose by more than {SURE:g} standard deviations, counted as for `one-phrase`; and it takes over",
        f"- KL: {KL_STEPS} steps in a row above the target of the adaptive controller, without one above {USUAL_KL:g} nats",
        "- the score has risen by more than chance: as in the verdict *improving*",
        f"- clipping: the earlier of {' and '.join(f'`{check}`' for check in CLIPPING)}",
        "- every other alarm but `kl-exploding`, and settings that somebody changed while the run went on",
        "",
        "Beside them it says the numbers of the first step, what has changed inside a long stretch without a moment, and at the end of",
        "a run that is over what it came to, in the words of its page.",
    ]


def _settings() -> list[str]:
    rates = ", ".join(f"{STAGE_TITLES[stage]} {rate:g}" for stage, rate in stage_settings.HIGHEST_RATE.items())
    above = ", ".join(f"{least:g} times ({level})" for least, level in reversed(settings_rules.ABOVE))
    passes = ", ".join(f"{STAGE_TITLES[stage]} {most}" for stage, most in stage_settings.TOO_MANY_PASSES.items())
    return [
        "## Settings before Start",
        "",
        "Each names a better value: the recipe's for its own model, else what fits the model, the data and the device "
        "([config/fitting.py](../rlhf_studio/config/fitting.py)).",
        "",
        "| check | rule |",
        "|---|---|",
        f"| `settings-learning-rate` | at least {above} the recipe's rate; without a recipe, what fits the number of weights "
        "([guide](guide.md#your-own-model-data-and-rewards)); where that is not known either, the highest usual rate, and no note: "
        f"{rates}; {fitting.LORA_TIMES:g} times that with LoRA, {fitting.FRESH_TIMES:g} times for an untrained start. "
        f"Below {settings_rules.BELOW:g} times the first two: warning |",
        f"| `settings-critic-learning-rate` | the same, of PPO's critic: {above}, or below {settings_rules.BELOW:g} times |",
        "| `settings-chat-template` | off, and the tokenizer has one: warning |",
        f"| `settings-batch` | PPO: at most {ppo_settings.PAIR} responses (alarm), fewer than {ppo_settings.TINY_BATCH} (warning), or than "
        "a quarter of what fits (note), because the mean score of n is known to the spread of single scores / √n; other stages: fewer than "
        f"{fitting.BATCHES[-1]} examples (warning), or than a quarter of what fits (note) |",
        f"| `settings-prompts-cut` | prompts that are cut: any (note), {percent(ppo_settings.CUT[1][0])} (warning), "
        f"{percent(ppo_settings.CUT[0][0])} (alarm) |",
        f"| `settings-passes` | more passes than: {passes}; without a limit of the steps |",
        "| `settings-warm-up` | a warm-up as long as the run |",
        "| `settings-gradient-clip` | no gradient clip with a rate above the highest usual one |",
        f"| `settings-held-out` | PPO: fewer than {fitting.FEWEST_HELD_OUT} held-out prompts where more can be had (note), "
        f"{ppo_settings.TELL_NOTHING} or fewer (warning); other stages: no example held out, or the training data itself |",
        f"| `settings-centering` | above {stage_settings.STRONG_CENTERING:g} |",
        f"| `settings-smoothing` | label smoothing above {stage_settings.MUCH_SMOOTHING:g} |",
        f"| `settings-beta` | β below {stage_settings.LOW_BETA:g} or above {stage_settings.HIGH_BETA:g} |",
        "| `settings-prompts` | fewer than 30 prompts |",
    ]


if __name__ == "__main__":
    print(doctor_document(), end="")
