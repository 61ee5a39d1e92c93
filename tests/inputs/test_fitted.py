"""Settings that follow from a model and its data: rates by hand, what was chosen stays, and the three doors: command line, file, page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.cli.main import main
from rlhf_studio.config import fitting
from rlhf_studio.config.fitting import Learner
from rlhf_studio.config.io import parse_config
from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.inputs.estimate.device import Device
from rlhf_studio.inputs.fitted import fitted_settings, with_fitted

CPU, GPU = Device("cpu", "CPU", 10**10, 10**10, False, 2), Device("cuda", "a GPU", 10**11, 10**11, True)
WORLD = "bundled/world-policy"
REWARD = "reward.components=[{kind: length}]"


def test_rates_lie_within_three_times_of_what_the_field_publishes() -> None:
    """The sources are named in the rule; the numbers here were written down from them, not computed."""
    published: list[tuple[Any, float, bool, float]] = [
        ("ppo", 1.2e6, False, 2e-4), ("ppo", 124e6, False, 1.41e-5), ("ppo", 1e9, False, 3e-6), ("ppo", 1.2e6, True, 2e-3),
        ("ppo", 135e6, True, 3e-4), ("ppo", 8e9, True, 4e-5), ("sft", 7e9, False, 2e-5), ("sft", 1e9, True, 1e-3),
        ("sft", 8e9, True, 3e-4), ("reward_model", 1.2e6, False, 5e-4), ("reward_model", 6e9, False, 9e-6), ("dpo", 1.2e6, False, 2e-4),
        ("dpo", 7e9, False, 5e-7), ("dpo", 7e9, True, 5e-6),
    ]  # fmt: skip
    far = {
        (stage, weights, lora): rate
        for stage, weights, lora, expected in published
        if not 1 / 3 <= (rate := fitting.learning_rate(stage, Learner(int(weights), lora)).value) / expected <= 3
    }
    assert far == {}
    assert fitting.learning_rate("ppo", Learner(int(8e9))).guess and not fitting.learning_rate("ppo", Learner(10**6)).guess


def test_rates_are_round_and_fall_with_size() -> None:
    sizes = [10**power for power in range(5, 12)]
    for stage in fitting.RATES:
        rates = [fitting.learning_rate(stage, Learner(size)).value for size in sizes]
        assert rates == sorted(rates, reverse=True) and all(f"{rate:e}"[0] in "1235" and rate == float(f"{rate:.0e}") for rate in rates)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """200 prompts of 7 words, and 100 demonstrations."""
    lines = [json.dumps({"prompt": f"the film number {number} was a surprise"}) for number in range(200)]
    (tmp_path / "prompts.jsonl").write_text("\n".join(lines), encoding="utf-8")
    lines = [json.dumps({"prompt": f"the film {number}", "response": "was a pleasure"}) for number in range(100)]
    (tmp_path / "texts.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return tmp_path


def own(stage: str, data: Path, **sections: dict[str, Any]) -> Any:
    settings = load_recipe({"ppo": "own", "sft": "own-sft"}[stage]).config.model_dump(mode="json")
    source = {"prompts": str(data / "prompts.jsonl")} if stage == "ppo" else {"source": str(data / "texts.jsonl")}
    for name, values in {"data": source, **sections}.items():
        settings[name] |= values
    return parse_config(settings)


def test_ppo_on_a_small_model(data: Path) -> None:
    fitted = fitted_settings(own("ppo", data), [], CPU)
    values = {name: value.value for name, value in fitted.items()}
    assert values["ppo.learning_rate"] == 2e-4 and values["ppo.critic_learning_rate"] == 2e-3  # as the recipe of this model has them
    assert (values["lora.enabled"], values["data.chat_template"]) == (False, False)
    assert round(values["data.eval_share"] * 200) == 64 and values["ppo.warmup_steps"] == 10
    assert (values["ppo.batch_size"], values["ppo.mini_batch_size"]) == (64, 32)
    assert values["data.max_prompt_tokens"] % 8 == 0 and "the longest has" in fitted["data.max_prompt_tokens"].why
    assert "generation.response_length" not in values
    assert fitted_settings(own("ppo", data), [], GPU)["generation.response_length"].value == 64


def test_what_was_chosen_stays_and_counts(data: Path) -> None:
    chosen = own("ppo", data, lora={"enabled": True}, ppo={"batch_size": 8, "steps": 30, "learning_rate": 5e-4})
    names = ["lora.enabled", "ppo.batch_size", "ppo.steps", "ppo.learning_rate"]
    config, fitted = with_fitted(chosen, names, CPU)
    assert not set(names) & fitted.keys()
    assert (config.ppo.mini_batch_size, config.ppo.warmup_steps, config.ppo.learning_rate) == (4, 3, 5e-4)  # type: ignore[attr-defined]
    rate = fitted_settings(chosen, names[:3], CPU)["ppo.learning_rate"]
    assert rate.value == 2e-3 and rate.why == "1.2 M weights with LoRA"


def test_a_hundred_demonstrations_become_enough_steps(data: Path) -> None:
    """Before, a batch of 32 and a warm-up of 50 made 3 steps below their full rate of them."""
    config, _ = with_fitted(own("sft", data), [], CPU)
    sft = config.sft  # type: ignore[attr-defined]
    steps = sft.epochs * -(-80 // sft.batch_size)
    assert steps >= 40 and 0 < sft.warmup_steps <= 0.15 * steps and steps / sft.eval_every >= 6


def test_nothing_is_said_of_a_model_that_cannot_be_used_or_of_data_that_cannot_be_read(data: Path) -> None:
    assert fitted_settings(own("ppo", data, model={"policy": str(data / "nobody")}), [], CPU) == {}
    blind = fitted_settings(own("ppo", data / "empty"), [], CPU)
    assert "data.max_prompt_tokens" not in blind and "ppo.learning_rate" in blind


def test_the_recipe_asks_for_what_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--recipe", "own", "--model.policy", WORLD]) == 2
    said = capsys.readouterr().err
    assert "data.prompts: the recipe own needs it" in said and "reward.components: the recipe own needs it" in said
    assert "model.policy" not in said


def test_a_file_that_names_a_recipe_inherits_it(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = data / "run.yaml"
    path.write_text("recipe: world-lora\nppo: {steps: 0}\n", encoding="utf-8")
    assert main(["train", "--config", str(path)]) == 2
    assert "ppo.steps" in capsys.readouterr().err
    for text, said in {
        "recipe: nobody\nppo: {steps: 2}": "there is no recipe 'nobody'",
        "recipe: world-sft\nstage: ppo": "stage: should be sft, as in the recipe world-sft",
        "recipe: 5\nppo: {steps: 2}": "recipe: should be the name of a recipe",
    }.items():
        path.write_text(text, encoding="utf-8")
        assert main(["train", "--config", str(path)]) == 2
        assert said in capsys.readouterr().err, text


def test_a_plan_says_what_a_run_needs_and_starts_nothing(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["--recipe", "world", "--ppo.learning_rate", "0.1", "--workspace", str(data)]
    assert main(["plan", *command]) == 0
    said = capsys.readouterr()
    assert all(f"\n{label}: " in f"\n{said.out}" for label in ("Time", "Disk", "Memory")) and "Optimizer: " in said.out
    assert "alarm: Learning rate 0.1 is 500 times the recipe's" in said.err and "Use 0.0002" in said.err
    assert not (data / "runs").exists()
    assert main(["plan", "--recipe", "world", "--model.policy", str(data / "nobody")]) == 2
