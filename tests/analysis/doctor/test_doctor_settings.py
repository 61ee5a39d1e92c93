"""Risky settings of all stages, before Start."""

from __future__ import annotations

from typing import Any

from rlhf_studio.analysis.doctor import examine_settings
from rlhf_studio.config import STAGES, RunConfig, StageConfig
from rlhf_studio.config.io import parse_config, with_values
from rlhf_studio.config.recipes import list_recipes, load_recipe
from rlhf_studio.ui import outlook


def world(**sections: dict[str, Any]) -> StageConfig:
    settings = load_recipe("world").config.model_dump(mode="json")
    return parse_config({**settings, **{name: {**settings[name], **values} for name, values in sections.items()}})


def of_stage(stage: str, **sections: dict[str, Any]) -> StageConfig:
    return parse_config({"stage": stage, **sections})


def test_no_recipe_and_no_default_is_risky() -> None:
    configs = {recipe.name: recipe.config for recipe in list_recipes()} | {stage: of_stage(stage) for stage in STAGES}
    assert {name: findings for name, config in configs.items() if (findings := examine_settings(config))} == {}


RISKY: dict[str, tuple[StageConfig, str]] = {
    "hardly a rate": (world(ppo={"learning_rate": 1e-6}), "settings-learning-rate warning"),
    "warm-up": (world(ppo={"warmup_steps": 30}), "settings-warm-up warning"),
    "critic warm-up": (world(ppo={"critic_warmup_steps": 30}), "settings-critic-warm-up alarm"),
    "few responses": (world(ppo={"batch_size": 4, "mini_batch_size": 2}), "settings-batch warning"),
    "many epochs": (world(ppo={"ppo_epochs": 50}), "settings-passes warning"),
    "top-k": (world(generation={"top_k": 50}), "settings-sampling warning"),
    "hot": (world(generation={"temperature": 3.0}), "settings-temperature warning"),
    "two tokens": (world(generation={"response_length": 2}), "settings-length note"),
    "no price": (world(ppo={"kl_coef": 0.0}), "settings-kl warning"),
    "high price": (world(ppo={"kl_coef": 5.0}), "settings-kl warning"),
    "discount": (world(ppo={"gamma": 0.9}), "settings-gamma warning"),
    "lambda": (world(ppo={"lam": 0.0}), "settings-lambda warning"),
    "wide clip": (world(ppo={"cliprange": 0.9}), "settings-clip-range warning"),
    "no gradient clip": (
        RunConfig.model_validate({"ppo": {"learning_rate": 1.5e-3, "max_grad_norm": 0.0}}),
        "settings-gradient-clip warning",
    ),
    "five times the recipe's": (world(ppo={"learning_rate": 1e-3}), "settings-learning-rate note"),
    "two steps": (world(ppo={"steps": 2}), "settings-steps note"),
    "sft: far too high": (of_stage("sft", sft={"learning_rate": 0.5}), "settings-learning-rate alarm"),
    "dpo: too high for it": (of_stage("dpo", dpo={"learning_rate": 2e-3}), "settings-learning-rate warning"),
    "sft: one example": (of_stage("sft", sft={"batch_size": 1}), "settings-batch warning"),
    "rm: many passes": (of_stage("reward_model", reward_model={"epochs": 4}), "settings-passes warning"),
    "sft: warm-up": (of_stage("sft", sft={"max_steps": 10, "warmup_steps": 10}), "settings-warm-up warning"),
    "dpo: no clip": (of_stage("dpo", dpo={"learning_rate": 3e-4, "max_grad_norm": 0.0}), "settings-gradient-clip warning"),
    "rm: none held out": (of_stage("reward_model", data={"eval_share": 0.0}), "settings-held-out warning"),
    "sft: held out what is trained on": (
        of_stage("sft", data={"source": "a", "eval": "a", "eval_split": "train"}),
        "settings-held-out warning",
    ),
    "rm: centering": (of_stage("reward_model", reward_model={"centering": 1.0}), "settings-centering warning"),
    "dpo: smoothing": (of_stage("dpo", dpo={"label_smoothing": 0.4}), "settings-smoothing warning"),
    "dpo: low beta": (of_stage("dpo", dpo={"beta": 0.001}), "settings-beta warning"),
    "dpo: high beta": (of_stage("dpo", dpo={"beta": 5.0}), "settings-beta warning"),
    "few prompts": (of_stage("evaluation", evaluation={"prompts": 8}), "settings-prompts note"),
}


def test_each_risk_is_told_alone_and_its_change_is_valid_and_cures_it() -> None:
    wrong = {}
    for name, (config, expected) in RISKY.items():
        findings = examine_settings(config)
        cured = all(finding.changes and examine_settings(with_values(config, finding.changes)) == [] for finding in findings)
        if [f"{finding.check} {finding.level}" for finding in findings] != [expected] or not cured:
            wrong[name] = findings
    assert wrong == {}


def test_rewards_without_weight() -> None:
    settings = load_recipe("world").config.model_dump(mode="json")
    settings["reward"]["components"][0]["weight"] = 0.0
    assert [finding.check for finding in examine_settings(parse_config(settings))] == ["settings-reward"]


def test_a_wild_learning_rate_is_told_in_times_the_recipes_or_of_what_is_usual() -> None:
    (finding,) = examine_settings(world(ppo={"learning_rate": 0.9}))
    assert (finding.level, finding.title) == ("alarm", "Learning rate 0.9 is 4,500 times the recipe's")
    assert finding.changes == {"ppo.learning_rate": 2e-4}
    (finding,) = examine_settings(RunConfig.model_validate({"ppo": {"learning_rate": 0.5}}))
    assert (finding.level, finding.title) == ("alarm", "Learning rate 0.5 is 500 times the highest usual rate")


def test_what_is_usual_depends_on_adapters_and_on_an_untrained_start() -> None:
    assert examine_settings(RunConfig.model_validate({"ppo": {"learning_rate": 5e-3}, "lora": {"enabled": True}})) == []
    for sections in ({"lora": {"enabled": True}}, {"model": {"fresh": True}}):
        assert examine_settings(of_stage("sft", sft={"learning_rate": 0.02}, **sections)) == []  # type: ignore[arg-type]
    assert examine_settings(of_stage("sft", sft={"learning_rate": 0.02})) != []


def test_the_gravest_comes_first() -> None:
    findings = examine_settings(world(ppo={"learning_rate": 0.9, "kl_coef": 0.0, "steps": 3}))
    assert [finding.level for finding in findings] == ["alarm", "warning", "note"]


def test_the_button_of_the_train_page_names_the_settings_of_any_stage() -> None:
    (risk,) = outlook.risks(of_stage("sft", sft={"batch_size": 1}))
    assert risk["use"] == "Use Batch size 32 and Micro-batch size 1"
