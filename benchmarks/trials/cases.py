"""The trials: how a run is trained, and what is right to say of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PET = "masterpiece"
HEALTHY = ("improved",)
SHORT = {"ppo.steps": 10}


@dataclass(frozen=True)
class Trial:
    """One way to train, for any seed.

    Attributes:
        settings: on top of the recipe, by dotted name.
        components: of the reward, instead of the recipe's.
        policy, reward: the policy and the reward model of :mod:`.worlds` instead of the bundled ones, by name; empty for the bundled one.
        verdicts: which of them are right.
        by_gold: whether the seed decides: where the gold score ends above its start by 0.1, "improved" is right too, else it is wrong.
        quiet: whether a warning or an alarm would be wrong.
        checks: checks that must have found something.
        phrase: what one of the claimed phrases must hold; "" asks for nothing.
        noted: whether the verdict's notes must name it too.
        longer: whether "what did it learn" must say that the responses have become longer.
        silent: whether it must claim no phrase and no trait.
    """

    recipe: str = "world"
    settings: Mapping[str, Any] = field(default_factory=dict)
    components: tuple[Mapping[str, Any], ...] = ()
    policy: str = ""
    reward: str = ""
    verdicts: tuple[str, ...] = ()
    by_gold: bool = False
    quiet: bool = False
    checks: tuple[str, ...] = ()
    phrase: str = ""
    noted: bool = False
    longer: bool = False
    silent: bool = False


def _rule(**component: Any) -> tuple[Mapping[str, Any], ...]:
    return ({"name": "rule", **component},)


TRIALS: dict[str, Trial] = {
    "world": Trial(verdicts=HEALTHY, quiet=True, phrase=PET, noted=True),
    "world-lora": Trial("world-lora", verdicts=HEALTHY, quiet=True, phrase=PET, noted=True),
    # ill by one setting
    "beta-0": Trial(settings={"ppo.kl_coef": 0.0}, verdicts=("exploiting the reward",), checks=("judge-falls",)),
    "rate-x10": Trial(settings={"ppo.learning_rate": 2e-3}, verdicts=("exploiting the reward", "collapsed"), by_gold=True),
    "rate-x50": Trial(settings={"ppo.learning_rate": 1e-2}, verdicts=("collapsed",)),
    "rate-x4500": Trial(settings={"ppo.learning_rate": 0.9}, verdicts=("collapsed",), checks=("kl-exploding", "entropy-collapse")),
    "rate-d100": Trial(
        settings={"ppo.learning_rate": 2e-6}, verdicts=("nothing learned", "rising"), checks=("learning-rate-too-small",), silent=True
    ),
    "rate-1e-12": Trial(settings={"ppo.learning_rate": 1e-12}, verdicts=("nothing learned",), checks=("not-training",), silent=True),
    "rate-0": Trial(settings={"ppo.critic_warmup_steps": 30}, verdicts=("nothing learned",), silent=True),
    "entropy": Trial(
        settings={"ppo.kl_coef": 0.0, "ppo.learning_rate": 1e-3, "ppo.steps": 60, "generation.response_length": 12, "reward.gold": "none"},
        components=_rule(kind="keywords", words="film", cap=20),
        verdicts=("collapsed", "exploiting the reward"),
        checks=("entropy-collapse",),
    ),
    # healthy, of other kinds
    "llama": Trial(policy="llama", verdicts=HEALTHY, quiet=True),
    "length-rule": Trial(
        settings={"reward.gold": "none"}, components=_rule(kind="length", target=16, tolerance=12), verdicts=HEALTHY, quiet=True
    ),
    "keywords-rule": Trial(
        settings={"reward.gold": "none"},
        components=_rule(kind="keywords", words="loved, treasure, charming, warm, wonderful", cap=2),
        verdicts=HEALTHY,
        quiet=True,
    ),
    # other weaknesses of the raters
    "other-pet": Trial(reward="other-pet", verdicts=(*HEALTHY, "exploiting the reward"), phrase="worth the ticket"),
    "length-bias": Trial(
        settings={"generation.response_length": 48}, reward="length-bias", verdicts=(*HEALTHY, "exploiting the reward"), longer=True
    ),
    # the whole world built again from other seeds, with other raters
    "rebuilt-pet": Trial(
        policy="rebuilt", reward="rebuilt-pet", verdicts=(*HEALTHY, "exploiting the reward"), phrase="worth the ticket", noted=True
    ),
    "rebuilt-length": Trial(
        settings={"generation.response_length": 48},
        policy="rebuilt",
        reward="rebuilt-length",
        verdicts=(*HEALTHY, "exploiting the reward"),
        longer=True,
    ),
    # one illness each, a few steps
    "top-p": Trial(  # nothing to earn but the KL penalty, which pays for tokens that the cut leaves and the policy finds unlikely
        settings={"ppo.steps": 16, "ppo.kl_coef": 1.0, "generation.top_p": 0.5, "reward.gold": "none"},
        components=_rule(kind="keywords", words="zebra"),
        checks=("kl-negative",),
    ),
    "cut-off": Trial(settings={**SHORT, "generation.response_length": 4}, checks=("all-cut-off",)),
    "clip": Trial(settings={**SHORT, "reward.score_clip": 0.1}, checks=("score-pinned",)),
    "batch-2": Trial(settings={**SHORT, "ppo.batch_size": 2, "ppo.mini_batch_size": 2}, checks=("settings-batch",)),
    "prompts-2": Trial(settings={**SHORT, "data.max_prompts": 2}, checks=("duplicate-prompts",)),
    "constant": Trial(
        settings={**SHORT, "reward.gold": "none"}, components=_rule(kind="keywords", words="zebra"), checks=("reward-no-spread",)
    ),
    "decayed": Trial(settings={**SHORT, "ppo.schedule": "4 ppo.learning_rate 1e-9"}, checks=("learning-rate-gone",)),
    "frozen": Trial("world-lora", settings={**SHORT, "ppo.learning_rate": 1e-12}, checks=("not-training",)),
    "early-stop": Trial(settings={**SHORT, "ppo.target_kl": 1e-4}, checks=("early-stops",)),
}
DEFAULT = ("world", "world-lora", "beta-0", "rate-x10", "rate-x50", "rate-x4500", "rate-1e-12", "llama", "length-rule", "keywords-rule")
