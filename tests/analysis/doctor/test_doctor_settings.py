"""Risky settings of all stages, before Start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from rlhf_studio.analysis.doctor import examine_settings
from rlhf_studio.config import STAGES, RunConfig, StageConfig
from rlhf_studio.config.bundled import BUNDLED
from rlhf_studio.config.fitting import Known
from rlhf_studio.config.io import parse_config, with_values
from rlhf_studio.config.recipes import list_recipes, load_recipe
from rlhf_studio.inputs.preflight import inspect_run
from rlhf_studio.ui import outlook


def world(**sections: dict[str, Any]) -> StageConfig:
    settings = load_recipe("world").config.model_dump(mode="json")
    return parse_config({**settings, **{name: {**settings[name], **values} for name, values in sections.items()}})


def of_stage(stage: str, **sections: dict[str, Any]) -> StageConfig:
    return parse_config({"stage": stage, **sections})


def test_no_recipe_and_no_default_is_risky(tmp_path: Path) -> None:
    """Recipes whose models and data are here also not by what is known of these."""
    configs = {recipe.name: recipe.config for recipe in list_recipes()} | {stage: of_stage(stage) for stage in STAGES}
    assert {name: findings for name, config in configs.items() if (findings := examine_settings(config))} == {}
    bundled = [recipe for recipe in list_recipes() if recipe.config.model.policy in BUNDLED and not recipe.asks]
    looked_at = [recipe.config for recipe in bundled if recipe.stage in ("ppo", "sft")]  # the other stages have thousands of pairs
    assert len(looked_at) >= 8
    known = [inspect_run(config, tmp_path).known for config in looked_at]
    assert all(one.weights and one.width and one.chat is not None and one.lengths for one in known[:4])
    assert [examine_settings(config, one) for config, one in zip(looked_at, known, strict=True)] == [[]] * len(known)


SMOLLM = Known(weights=134_515_008, width=576, chat=True, examples=200, held_out=64, lengths=(20, 30, 41, 41), most=8168, steps=100)
FITTED: dict[str, dict[str, Any]] = {  # what the rule gives for it: PPO on a CPU, and the stages with 160 examples
    "own": {
        "data": {"chat_template": True, "max_prompt_tokens": 48, "eval_share": 0.32}, "lora": {"enabled": True},
        "ppo": {"learning_rate": 3e-4, "critic_learning_rate": 5e-4, "batch_size": 16, "mini_batch_size": 8, "warmup_steps": 10},
    },
    "own-sft": {"data": {"chat_template": True}, "lora": {"enabled": True}, "sft": {"learning_rate": 2e-4, "batch_size": 8}},
    "own-reward": {
        "data": {"chat_template": True}, "lora": {"enabled": True}, "reward_model": {"epochs": 2, "learning_rate": 5e-4, "batch_size": 8},
    },
    "own-dpo": {"data": {"chat_template": True}, "lora": {"enabled": True}, "dpo": {"epochs": 2, "learning_rate": 1e-4, "batch_size": 8}},
}  # fmt: skip


def batch(advantage: str, size: int) -> dict[str, Any]:
    """One prompt a step, without a critic."""
    sizes = {f"ppo.{name}": size for name in ("responses_per_prompt", "batch_size", "mini_batch_size")}
    return {"ppo.advantage": advantage, "ppo.critic_learning_rate": 0.0, **sizes}


BAD: dict[str, tuple[str, dict[str, Any], dict[str, Any], str, str]] = {  # recipe, what is bad, what is known besides, level, better value
    "the tiny world's rate": ("own", {"ppo.learning_rate": 2e-2}, {}, "alarm", "Use 0.0003"),
    "chats as plain texts": ("own", {"data.chat_template": False}, {}, "warning", "chat_template true"),
    "chats as plain texts, DPO": ("own-dpo", {"data.chat_template": False}, {}, "warning", "chat_template true"),
    "learning few by heart": ("own-sft", {"sft.learning_rate": 1e-3}, {"examples": 80}, "note", "Use 0.0002"),
    "a critic's rate": ("own", {"ppo.critic_learning_rate": 2e-2}, {}, "alarm", "Use 0.0005"),
    "a critic's rate, somewhat": ("own", {"ppo.critic_learning_rate": 2e-3}, {}, "note", "Use 0.0005"),
    "a critic that sleeps": ("own", {"ppo.critic_learning_rate": 1e-6}, {}, "warning", "Use 0.0005"),
    "nothing held out": ("own", {"data.eval_share": 0.0}, {"held_out": 0}, "warning", "Use a share of 0.32: 64 of 200 rows"),
    "ten held out": ("own", {"data.eval_share": 0.05}, {"held_out": 10}, "warning", "Use a share of 0.32: 64 of 200 rows"),
    "forty held out": ("own", {"data.eval_share": 0.2}, {"held_out": 40}, "note", "Use a share of 0.32: 64 of 200 rows"),
    "no example held out": ("own-sft", {"data.eval_share": 0.0}, {"examples": 100}, "note", "Use a share of 0.2: 20 of 100 rows"),
    "nine others": ("own", {"data.eval": "few.jsonl"}, {"held_out": 9}, "warning", "Name 64 prompts or more in data.eval"),
    "RLOO of two": ("own", batch("rloo", 2), {}, "alarm", "Use 16."),
    "GRPO of four on a GPU": (
        "own", batch("grpo", 4) | {"ppo.kl_placement": "loss", "ppo.kl_estimator": "k3"}, {"device": "cuda"}, "warning", "Use 64.",
    ),
    "twelve on a GPU": ("own", {"ppo.batch_size": 12, "ppo.mini_batch_size": 6}, {"device": "cuda"}, "note", "Use 64."),
    "two pairs": ("own-reward", {"reward_model.batch_size": 2}, {"examples": 160}, "warning", "Use 8."),
    "two pairs, DPO": ("own-dpo", {"dpo.batch_size": 2}, {"examples": 160}, "warning", "Use 8."),
    "four of many": ("own-sft", {"sft.batch_size": 4}, {"examples": 9000}, "note", "Use 32."),
    "half of the prompts cut": ("own", {"data.max_prompt_tokens": 32}, {}, "alarm", "Use 48, which cuts none: the longest has 41 tokens"),
    "all prompts cut": ("own", {"data.max_prompt_tokens": 8}, {}, "alarm", "Use 48, which cuts none: the longest has 41 tokens"),
    "one prompt cut": ("own", {}, {"lengths": (40,) * 99 + (60,)}, "note", "Use 64, which cuts none: the longest has 60 tokens"),
    "more than is read": ("own", {}, {"lengths": (9, 600)}, "alarm", "Use 512, which cuts 1 of them: the longest has 600 tokens"),
    "a long warm-up": ("own-sft", {"sft.warmup_steps": 50}, {"steps": 3}, "warning", "Use 0: a tenth of 3 steps"),
    "a long warm-up, DPO": ("own-dpo", {"dpo.warmup_steps": 60}, {"steps": 60}, "warning", "Use 6: a tenth of 60 steps"),
}  # fmt: skip


def own(recipe: str, bad: dict[str, Any]) -> StageConfig:
    sections = {f"{section}.{name}": value for section, values in FITTED[recipe].items() for name, value in values.items()}
    return with_values(load_recipe(recipe).config, {"model.policy": "SmolLM2", **sections, **bad})


def test_each_bad_setting_for_ones_own_model_gets_one_sentence_with_the_better_value() -> None:
    assert {name: found for name in FITTED if (found := examine_settings(own(name, {}), SMOLLM))} == {}
    wrong = {}
    for name, (recipe, bad, more, level, better) in BAD.items():
        config, known = own(recipe, bad), replace(SMOLLM, **more)
        findings = examine_settings(config, known)
        if [finding.level for finding in findings] != [level] or better not in findings[0].advice:
            wrong[name] = findings
        cured = with_values(config, findings[0].changes) if findings else config
        follows = {"held_out": 64} if "held out" in name else {}
        unable = not findings or not findings[0].changes or name == "more than is read"
        if not unable and examine_settings(cured, replace(known, **follows)):
            wrong[f"{name}, mended"] = examine_settings(cured, replace(known, **follows))
    assert wrong == {}


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
