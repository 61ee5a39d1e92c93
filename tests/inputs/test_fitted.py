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
from rlhf_studio.inputs.fitted import fitted_settings, own_config
from tests.inputs.test_trained_preflight import trained

CPU, GPU = Device("cpu", "CPU", 10**10, 10**10, False, 2), Device("cuda", "a GPU", 10**11, 10**11, True)
WORLD = "bundled/world-policy"


def test_rates_lie_within_three_times_of_what_the_field_publishes() -> None:
    """But for those sources of which the rule says why it does not follow them."""
    far = {
        source: rate
        for source in fitting.SOURCES
        if not source.unlike
        and not 1 / 3 <= (rate := fitting.learning_rate(source.stage, Learner(int(source.weights), source.lora)).value) / source.rate <= 3
    }
    assert far == {}
    guessed = {weights: fitting.learning_rate("ppo", Learner(weights)).guess for weights in (10**6, 10**8, 7 * 10**9, 10**12)}
    assert guessed == {10**6: False, 10**8: False, 7 * 10**9: False, 10**12: True}


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


def own(stage: str, data: Path, /, **sections: dict[str, Any]) -> Any:
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


def given(recipe: str, **chosen: Any) -> Any:
    """What the recipe makes of settings given as on the command line: ``ppo__steps=30``."""
    settings = load_recipe(recipe).config.model_dump(mode="json")
    names = {name.replace("__", "."): value for name, value in chosen.items()}
    for name, value in names.items():
        section, _, setting = name.partition(".")
        settings[section][setting] = value
    return own_config(load_recipe(recipe), settings, names.keys())


def test_what_was_chosen_stays_and_counts(data: Path) -> None:
    asked = {"model__policy": WORLD, "data__prompts": str(data / "prompts.jsonl"), "reward__components": [{"kind": "length"}]}
    config, fitted = given("own", **asked, lora__enabled=True, ppo__batch_size=8, ppo__mini_batch_size=8, ppo__steps=30)
    assert not {"lora.enabled", "ppo.batch_size", "ppo.mini_batch_size", "ppo.steps"} & fitted.keys()
    assert (config.ppo.batch_size, config.ppo.mini_batch_size, config.ppo.warmup_steps) == (8, 8, 3)
    assert fitted["ppo.learning_rate"].value == 2e-3 and fitted["ppo.learning_rate"].why == "1.2 M weights with LoRA"
    config, fitted = given("own", **asked, ppo__advantage="rloo", ppo__responses_per_prompt=3)
    assert config.ppo.batch_size % 3 == 0 and config.ppo.batch_size >= 64 and "ppo.critic_learning_rate" not in fitted


def test_a_hundred_demonstrations_become_enough_steps(data: Path) -> None:
    """Before, a batch of 32 and a warm-up of 50 made 3 steps below their full rate of them."""
    config, _ = given("own-sft", model__policy=WORLD, data__source=str(data / "texts.jsonl"))
    steps = config.sft.epochs * -(-80 // config.sft.batch_size)
    assert steps >= 40 and 0 < config.sft.warmup_steps <= 0.15 * steps and steps / config.sft.eval_every >= 6
    _, fitted = given("own-sft", model__policy=WORLD, data__source=str(data / "texts.jsonl"), lora__enabled=True)
    assert fitted["sft.learning_rate"].value == 2e-3 == fitting.learning_rate("sft", Learner(1_200_000, lora=True)).value / 5  # 10⁻² / 6
    assert fitted["sft.learning_rate"].why == "1.2 M weights with LoRA and 80 examples"
    long, fitted = given("own-sft", model__policy=WORLD, data__source=str(data / "texts.jsonl"), sft__epochs=100, sft__batch_size=8)
    assert fitted["engine.watch_every"].value == long.engine.watch_every == 25 and config.engine.watch_every == 5  # of 1,000 steps 40


def test_prompts_are_written_as_the_model_knows_them_and_the_data_can_be(make_model: Any, data: Path, tmp_path: Path) -> None:
    """In the form of the run that trained the model; as chats where there is a template, but not plain texts and beginnings of texts."""
    chats = make_model("chats", tokenizer={"chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}"})
    run = trained(tmp_path / "before", make_model, prompt_format="Human: {prompt}")
    step = run / "checkpoints" / "step-000003"
    files = {f"policy/{path.name}": {"bytes": path.stat().st_size, "sha256": ""} for path in (step / "policy").iterdir()}
    (step / "manifest.json").write_text(json.dumps({"files": files}), encoding="utf-8")
    (data / "plain.jsonl").write_text(json.dumps({"text": "the film was a pleasure"}) + "\n", encoding="utf-8")

    def written(stage: str, model: Path, **values: Any) -> tuple[Any, Any]:
        fitted = fitted_settings(own(stage, data, model={"policy": str(model)}, data=values), values, CPU)
        return tuple(fitted[name].value if name in fitted else None for name in ("data.chat_template", "data.prompt_format"))

    sources = {"ppo": {"prompts": str(data / "prompts.jsonl")}, "sft": {"source": str(data / "texts.jsonl")}}
    for stage, source in sources.items():
        assert written(stage, chats, **source) == (True, None)
        assert written(stage, run, **source) == (False, "Human: {prompt}")
    assert written("sft", chats, source=str(data / "plain.jsonl")) == (False, None)
    assert written("ppo", chats, **sources["ppo"], query_tokens_min=2, query_tokens_max=3) == (False, None)


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
