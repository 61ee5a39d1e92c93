"""A road on a person's own files: its parts, and the settings of each, which follow from model and file (the recipes ``own*``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from rlhf_studio.config import STAGES, EvaluationRunConfig, RunConfig, Stage, StageConfig, short_name, used_in, uses
from rlhf_studio.config.fitting import Fitted
from rlhf_studio.config.io import ConfigError, Problem, apply_overrides, merged, nested, parse_config, text_of, walk_fields
from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.inputs.checks.evaluation import judge_title
from rlhf_studio.inputs.fitted import own_config
from rlhf_studio.inputs.named_reward import name_of_component
from rlhf_studio.inputs.preflight.judge import judge_notes
from rlhf_studio.inputs.relative_paths import named_in, run_in_full
from rlhf_studio.jobs.road.state import Comparison, OwnSettings, Part, PartState, Road
from rlhf_studio.jobs.road.verdict import is_weak
from rlhf_studio.language import N_, S_

RECIPES = {"sft": "own-sft", "reward_model": "own-reward", "ppo": "own"}
SHARES = {"sft": 2, "reward_model": 2, "ppo": 5, "evaluation": 1}
"""How the road's time is divided. What a part leaves over goes to those after it."""
LEAST_MINUTES, LEAST_OF_EVALUATION = 0.5, 3.0
"""A part that comes after the time is over has so long, and a step that has begun is always done. Without a comparison nothing is known."""
SET_BY_THE_ROAD = ("model.policy", "data.source", "data.prompts", "reward.components", "evaluation.policies", "evaluation.judge",
                   "engine.max_minutes", "engine.seed")  # fmt: skip
SHARED_WITH_EVALUATION = {"model": ("revision", "dtype", "quantization", "attention"), "engine": ("device", "threads", "seed")}
YOUR_PAIRS = "your pairs"
"""The name of the reward component that the road trains."""
FROM_PAIRS = S_("the reward model trained on your pairs")
TITLES = {
    "sft": N_("Fine-tune on your demonstrations"),
    "reward_model": N_("Train a reward model on your pairs"),
    "ppo": N_("Train with PPO on your prompts"),
    "evaluation": N_("Compare the end with the start"),
}


@dataclass(frozen=True)
class Made:
    """What the parts so far have made: the folder of each one's run; empty for what is left out or not made yet."""

    sft: str = ""
    reward_model: str = ""
    ppo: str = ""


def in_full(own: OwnSettings, workspace: Path) -> OwnSettings:
    """The same with full paths for what lies in the folder of this process, and for runs that are named by their id."""
    here, runs = Path.cwd(), workspace / "runs"
    reward, judge = (
        {**part, "model": run_in_full(part["model"], runs)} if isinstance(part.get("model"), str) else part
        for part in (own.reward, own.judge)
    )
    policy, *files = (named_in(here, name.strip()) for name in (own.policy, own.demonstrations, own.pairs, own.prompts))
    return replace(
        own, policy=run_in_full(policy, runs), demonstrations=files[0], pairs=files[1], prompts=files[2], reward=reward, judge=judge
    )


def require_known(own: OwnSettings) -> None:
    """Raises :class:`ConfigError` for a road that would have no part, and for settings that no part has or that the road makes itself."""
    problems = []
    if not own.policy:
        problems.append(Problem("--policy", "name the model that is to learn: a folder, a hub id, or a run"))
    if all(part.state == "skipped" for part in parts_of(own)):
        what = "nothing can be learned: name demonstrations, pairs, or prompts together with a reward"
        problems.append(Problem("--demonstrations", what))
    if not 0 <= own.minutes <= 100_000:
        problems.append(Problem("--minutes", f"should be from 0 (no limit) to 100,000, not {own.minutes:g}"))
    known = {name for key in TITLES for name in _settings_of(key)}
    for name in own.changes:
        if name in SET_BY_THE_ROAD:
            problems.append(Problem(name, "the road sets this itself; use its own options"))
        elif name not in known:
            problems.append(Problem(name, "no part of the road has such a setting; see 'train --help'"))
    if problems:
        raise ConfigError(problems)


def parts_of(own: OwnSettings) -> list[Part]:
    """All parts in their order; what cannot be done is left out, with a sentence why."""
    left_out = {"sft": _without_demonstrations(own), "reward_model": _without_pairs(own), "ppo": _without_ppo(own)}
    left_out["evaluation"] = S_("It compares what PPO has trained, and PPO is left out.") if left_out["ppo"] else ""
    state: dict[bool, PartState] = {True: "skipped", False: "waiting"}
    return [Part(key, TITLES[key], "run", state[bool(why)], headline=why) for key, why in left_out.items()]


def _without_demonstrations(own: OwnSettings) -> str:
    return "" if own.demonstrations else S_("There are no demonstrations. The model begins as it is.")


def _without_pairs(own: OwnSettings) -> str:
    if own.pairs:
        return ""
    return S_("There are no pairs, and a reward is given.") if own.reward else S_("There are no pairs.")


def _without_ppo(own: OwnSettings) -> str:
    if not own.prompts:
        also = S_(f" The prompts in {short_name(own.demonstrations or own.pairs)} would do.") if own.demonstrations or own.pairs else ""
        return S_(f"There are no prompts to practise on.{also}")
    if not own.pairs and not own.reward:
        return S_(
            "Nothing says which answer is good. Bring pairs, from which a reward model learns; or name a reward: a reward "
            "model, a rule such as lexicon (sentiment words), or a Python file with a function score."
        )
    return ""


# --- settings ------------------------------------------------------------------------------------------------------------------------


def made_so_far(road: Road, runs: Path) -> Made:
    """The runs of the parts that are done; without a weak reward model that would only be the judge, and a bad one."""
    own = road.settings
    assert isinstance(own, OwnSettings)
    done = [part for part in road.parts if part.key in RECIPES and part.state == "done" and part.run]
    kept = [part for part in done if not (part.key == "reward_model" and own.reward and is_weak(part))]
    return Made(**{part.key: str(runs / part.run) for part in kept})


def minutes_for(road: Road, key: str) -> float:
    """How long a part may take: its share of what is left of the road's time, in minutes; 0 for no limit."""
    own = road.settings
    assert isinstance(own, OwnSettings)
    if not own.minutes:
        return 0.0
    open_keys = [part.key for part in road.parts if part.state not in ("done", "skipped")]
    left = own.minutes - sum(part.seconds for part in road.parts) / 60
    least = LEAST_OF_EVALUATION if key == "evaluation" else LEAST_MINUTES
    return round(max(least, left * SHARES[key] / sum(SHARES[other] for other in open_keys)), 2)


def settings_for_part(
    own: OwnSettings, key: str, made: Made, minutes: float = 0.0, more: Mapping[str, Any] | None = None
) -> tuple[StageConfig, dict[str, Fitted]]:
    """The configuration of a part, and what of it followed from model and file, by dotted name.

    ``minutes``: the time limit, 0 for none. ``more``: further settings by dotted name. Raises :class:`ConfigError`.
    """
    if key == "evaluation":
        return _evaluation(own, made, minutes), {}
    values: dict[str, Any] = {"engine.seed": own.seed, "engine.max_minutes": minutes, **(more or {})}
    values["model.policy"] = (made.sft if key != "sft" else "") or own.policy
    if key == "ppo":
        values["data.prompts"] = own.prompts
        values["reward.components"] = [own.reward or {"kind": "reward_model", "name": YOUR_PAIRS, "model": made.reward_model}]
    else:
        values["data.source"] = own.demonstrations if key == "sft" else own.pairs
    recipe = load_recipe(RECIPES[key])
    changes = _changes_for(own, key)
    settings = apply_overrides(merged(recipe.config.model_dump(mode="json"), nested(values)), changes)
    return own_config(recipe, settings, {*values, *changes})


def _settings_of(key: str) -> set[str]:
    """The settings that a part has and uses; its key is the name of its stage."""
    stage = cast(Stage, key)
    return {name for name, _ in walk_fields(STAGES[stage]) if uses(stage, name)}


def _changes_for(own: OwnSettings, key: str) -> dict[str, str]:
    """Those of the person's settings that the part has and uses."""
    there = _settings_of(key)
    return {name: text for name, text in own.changes.items() if name in there}


def _evaluation(own: OwnSettings, made: Made, minutes: float) -> EvaluationRunConfig:
    """The start, the fine-tuned model and the end answer PPO's held-out prompts; KL refers to the start."""
    ppo, _ = settings_for_part(own, "ppo", made)
    assert isinstance(ppo, RunConfig)
    plain = ppo.model_dump(mode="json")
    settings: dict[str, Any] = {section: used_in("evaluation", section, plain[section]) for section in ("data", "generation", "reward")}
    settings |= {section: {name: plain[section][name] for name in names} for section, names in SHARED_WITH_EVALUATION.items()}
    settings["model"]["policy"] = own.policy
    settings["engine"] |= {"checkpoint_every": 1, "max_minutes": minutes}
    policies = dict.fromkeys(name for name in (own.policy, made.sft, made.ppo) if name)
    judge = own.judge or ({"kind": "reward_model", "model": made.reward_model} if own.reward and made.reward_model else {})
    settings["evaluation"] = {"policies": "\n".join(policies), "judge": name_of_component(judge)}
    config = parse_config(apply_overrides({"stage": "evaluation", **settings}, _changes_for(own, "evaluation")))
    assert isinstance(config, EvaluationRunConfig)  # the stage says so
    return config


def in_a_line(name: str, value: Fitted) -> str:
    """``sft.learning_rate 0.001: 135 M weights with LoRA``."""
    return f"{name} {text_of(value.value)}: {value.why}{', a guess' if value.guess else ''}"


def with_origin(comparison: Comparison, config: EvaluationRunConfig, ppo: StageConfig) -> Comparison:
    """The comparison with what decided it, and whether that is what PPO learned from."""
    assert isinstance(ppo, RunConfig)
    if comparison.measure == "judge":
        return replace(comparison, judge=judge_title(config.evaluation.judge), same_origin=bool(judge_notes(config)))
    if comparison.measure == "gold":
        return replace(comparison, judge=S_("the world's gold score"), same_origin=False)
    ours, theirs = config.reward.components[0], ppo.reward.components[0]
    same = ours.model_dump(exclude={"name", "weight"}) == theirs.model_dump(exclude={"name", "weight"})
    named = FROM_PAIRS if ours.name == YOUR_PAIRS else ours.name or ours.described()
    return replace(comparison, judge=named, same_origin=same)
