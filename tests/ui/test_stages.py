"""The pages on the stages around PPO: forms, sentences, what Live and Runs are told, and where a result leads next."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlhf_studio.config import STAGES, USED_ONLY_BY, EnsembleReward
from rlhf_studio.config.io import apply_overrides, config_from_yaml, parse_config, walk_fields
from rlhf_studio.config.recipes import list_recipes, load_recipe
from rlhf_studio.inputs.preflight import Preflight
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import RunStatus, StepRecord
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.runs.writer import RunWriter
from rlhf_studio.ui import outlook
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.command import command_line, overrides
from rlhf_studio.ui.form import describe_form, nested, values_of
from rlhf_studio.ui.lab.next_stage import next_stages
from rlhf_studio.ui.live import responses
from rlhf_studio.ui.live.payloads import listing_payload, settings_payload
from rlhf_studio.ui.runs_page import headline_of
from rlhf_studio.ui.train_page import TrainPage
from tests.runs.stage_helpers import example, example_tokens, stage_config, write_stage_run
from tests.ui.fake_stages import measurement, pairs_run, sft_run
from tests.ui.test_evaluate import answers
from tests.ui.train_helpers import OPERATOR, VIEWER

LEARNING = ("sft", "reward_model", "dpo")


# --- Train -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", STAGES)
def test_a_form_has_the_settings_of_its_stage_and_no_others(stage: Any) -> None:
    form = describe_form(stage=stage)
    fields = {field["name"]: field for section in form["sections"] for field in section["fields"]}
    expected = {name for name, _ in walk_fields(STAGES[stage]) if "." in name and stage in USED_ONLY_BY.get(name, (stage,))}
    assert set(fields) == expected and json.loads(json.dumps(form)) == form
    assert bool(form["components"]) == (stage in ("ppo", "evaluation"))
    rules = [field["used_when"] for field in fields.values() if "used_when" in field]
    assert rules and all(rule["name"] in fields for rule in rules) or stage == "evaluation"
    best = set(fields["engine.keep_best"]["choices"]) if stage != "evaluation" else {"gold/score"}
    assert ("eval_loss" in best) == (stage in LEARNING) and ("gold/score" in best) == (stage in ("ppo", "evaluation"))


@pytest.mark.parametrize("recipe", [recipe for recipe in list_recipes() if recipe.stage != "ppo"], ids=lambda recipe: recipe.name)
def test_values_command_and_sentence_of_every_recipe(recipe: Any) -> None:
    config = recipe.config
    values = json.loads(json.dumps(values_of(config)))
    assert parse_config({**nested(values), "recipe": recipe.name, "stage": recipe.stage}) == config
    assert command_line(config, recipe.name, config) == f"python -m rlhf_studio train --recipe {recipe.name}"
    changed = config.model_copy(update={"engine": config.engine.model_copy(update={"seed": 7})})
    changes = overrides(changed, config)
    assert changes == {"engine.seed": "7"} and parse_config(apply_overrides(config.model_dump(mode="json"), changes)) == changed
    sentence = outlook.sentence(config, recipe)
    assert sentence.endswith(".") and "rounds" not in sentence
    assert outlook.watch(config, recipe) == recipe.watch


def test_sentences_say_what_will_happen() -> None:
    def sentence_of(name: str, **changes: str) -> str:
        recipe = load_recipe(name)
        return outlook.sentence(parse_config(apply_overrides(recipe.config.model_dump(mode="json"), changes)), recipe)

    assert sentence_of("world-sft").startswith("An untrained model in the shape of world-policy reads world-reviews")
    assert sentence_of("world-sft", **{"sft.max_steps": "300"}).endswith("300 steps of 64 examples.")
    assert "1 pass over all of them, 32 pairs at a time" in sentence_of("world-dpo")
    assert sentence_of("gpt2-sft").startswith("The model gpt2 reads imdb and learns to answer")


def test_a_recipes_time_holds_for_its_own_settings_alone() -> None:
    recipe = load_recipe("world-dpo")
    other = parse_config(apply_overrides(recipe.config.model_dump(mode="json"), {"dpo.epochs": "2"}))
    seed = parse_config(apply_overrides(recipe.config.model_dump(mode="json"), {"engine.seed": "2"}))
    assert outlook.recipe_minutes(seed, recipe) == outlook.recipe_minutes(recipe.config, recipe) is not None
    assert outlook.recipe_minutes(other, recipe) is None
    assert outlook.unknown_time(other)["value"] == "known after the first steps"


class Bench(Workspace):
    """A Train page whose checks find nothing, and whose runs only exist on a list."""

    def __init__(self, root: Path):
        super().__init__(root)
        self.submitted: list[Any] = []
        self.page = TrainPage(self, Access(), inspect=lambda config, workspace, **more: Preflight([]))

    def submit(self, config: Any, name: str = "", *_: Any, **__: Any) -> str:
        self.submitted.append((config, name))
        return "run-1"


def sent(basis: str, **changes: Any) -> dict[str, Any]:
    values = values_of(load_recipe(basis).config) | {name.replace("__", "."): value for name, value in changes.items()}
    return {"values": json.loads(json.dumps(values)), "basis": basis, "view": False, "nonce": basis}


def test_every_stage_is_checked_started_saved_and_loaded(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    boot = bench.page.boot({}, OPERATOR)
    assert [stage["name"] for stage in boot["stages"]][:4] == ["ppo", "sft", "reward_model", "dpo"]
    assert set(boot["forms"]) == {stage["name"] for stage in boot["stages"]}
    for own in boot["own"]:
        start = next(card for card in boot["recipes"] if card["name"] == own["name"])
        assert start["stage"] == own["stage"] and set(own["blank"]) <= set(start["values"]) and own["blank"]["model.policy"] == ""
    for stage, name in (("sft", "world-sft"), ("reward_model", "world-reward"), ("dpo", "world-dpo")):
        answer = bench.page.check(sent(name, **{f"{stage}__max_steps": 7}), OPERATOR)
        assert answer["problems"] == [] and "7 steps" in answer["sentence"]
        assert answer["command"].endswith(f"--recipe {name} --{stage}.max_steps 7")
        assert bench.page.check(sent(name, **{f"{stage}__max_steps": -1}), OPERATOR)["problems"][0]["field"] == f"{stage}.max_steps"
        saved = bench.page.to_yaml(sent(name, **{f"{stage}__max_steps": 7}), OPERATOR)
        assert config_from_yaml(saved["text"]).stage == stage
        loaded = bench.page.from_yaml({"text": saved["text"]}, OPERATOR)
        assert loaded["basis"] == name and loaded["values"][f"{stage}.max_steps"] == 7
        assert bench.page.start(sent(name), OPERATOR)["run_id"] == "run-1"
        assert bench.submitted[-1][0] == load_recipe(name).config


# --- Live --------------------------------------------------------------------------------------------------------------------------


def test_no_setting_of_another_stage_can_be_steered() -> None:
    payload = settings_payload(stage_config("dpo", dpo={"batch_size": 48}))
    assert payload["steered"] == {} and payload["batch_size"] == 48 and "cliprange" not in payload


def test_examples_have_a_loss_and_pairs_are_told_as_pairs(tmp_path: Path) -> None:
    tokens = example_tokens([" a", " b"], logprobs=[-1.0, -3.0], entropy=[0.5, 0.5])
    reader = write_stage_run(tmp_path, "sft", [{"sft/loss": 2.0}], rollouts=[example(0, " a b", tokens)])
    samples = json.loads(responses.samples(reader, 1, -1))
    assert samples["rows"][0]["loss"] == 2.0 and samples["rows"][0]["score"] is None and samples["pairs"] is False
    assert samples["scales"]["loss"] == {"centre": 0.0, "limit": 3.0}
    sides = [example(number, " x", prompt=f"p{number // 2}", score=float(number)) for number in range(4)]
    pairs = json.loads(responses.samples(write_stage_run(tmp_path, "reward_model", [{}], rollouts=sides), 1, -1))
    assert pairs["pairs"] is True and "loss" not in pairs["rows"][0]
    crossed = [example(number, " x", prompt=f"p{number}", score=0.0) for number in range(4)]
    assert not responses.sides(crossed) and not responses.sides(sides[:3]) and not responses.sides([])
    assert responses.sides(sides)


def test_an_answer_of_an_evaluation_is_told_with_its_policy(tmp_path: Path) -> None:
    steps = [[replace(one, sample=place) for place, one in enumerate([*answers("mine@start", 0.0), *answers(name, 1.0)])] for name in "ab"]
    folder = write_stage_run(tmp_path, "evaluation", [{}], state="running", rollouts=steps[0]).run_dir
    with RunWriter(folder) as writer:
        writer.commit_step(StepRecord(2, {}, steps[1]))
    for step, name in enumerate("ab", 1):
        rows = json.loads(responses.samples(RunReader(folder), step, -1))["rows"]
        assert [row["policy"] for row in rows] == ["mine@start"] * 12 + [name] * 12


def test_live_opens_the_newest_run_that_trains_something() -> None:
    evaluation, trained, going = (
        RunStatus(run_id=stage + state, name="", state=state, created_at=0.0, stage=stage)
        for stage, state in (("evaluation", "running"), ("sft", "finished"), ("ppo", "running"))
    )
    assert listing_payload([evaluation, trained, going], [])["newest"] == going.run_id
    assert listing_payload([evaluation, trained], [])["newest"] == trained.run_id
    assert listing_payload([evaluation], [])["newest"] == evaluation.run_id


def test_what_ppo_samples_has_no_loss() -> None:
    arrays = {"logprobs": np.array([-1.0]), "rewards": np.array([0.5])}
    assert "loss" not in responses.scales([arrays])


def test_the_newest_measurement_of_a_reward_model_is_told(tmp_path: Path) -> None:
    reader = pairs_run(tmp_path, "reward_model", steps=10)
    report = responses.measures(reader)
    pairs: Any = measurement()["pairs"]
    right = sum(chosen > other for chosen, other in zip(pairs["chosen"], pairs["rejected"], strict=True))
    fit = report["report"]["fit"]
    assert report["step"] == 10 and fit["accuracy"]["right"] == right
    assert responses.measures(sft_run(tmp_path, steps=10)) == {"step": None, "report": None}


# --- Runs --------------------------------------------------------------------------------------------------------------------------


def test_a_run_is_summed_up_by_the_number_of_its_stage(tmp_path: Path) -> None:
    rows = [{"reward_model/accuracy": 0.5}, {"reward_model/accuracy": 0.75, "reward_model/eval_accuracy": 0.7}]
    headline = headline_of(write_stage_run(tmp_path, "reward_model", rows), "reward_model")
    assert headline == {"label": "Held-out accuracy", "first": 0.7, "last": 0.7, "falls": False, "percent": True}
    alone = headline_of(write_stage_run(tmp_path, "sft", [{"sft/loss": 3.0}, {"sft/loss": 2.0}]), "sft")
    assert alone == {"label": "Loss", "first": 3.0, "last": 2.0, "falls": True, "percent": False}
    assert headline_of(write_stage_run(tmp_path, "sft", []), "sft") is None


def give_model(reader: Any, folder: str) -> Path:
    """Leave a complete checkpoint with a model's folder, as far as readers look."""
    checkpoint: Path = reader.run_dir / "checkpoints" / "step-000002"
    (checkpoint / folder).mkdir(parents=True)
    (checkpoint / "manifest.json").write_text(json.dumps({"step": 2}))
    return checkpoint / folder


def test_a_result_leads_to_the_next_stage(tmp_path: Path) -> None:
    rows = [{"sft/loss": 1.0}] * 2
    sft = write_stage_run(tmp_path, "sft", rows, recipe="world-sft")
    assert next_stages(sft) == []  # it has kept no model
    policy = str(give_model(sft, "policy"))
    values_by_recipe = {stage.recipe: stage.values for stage in next_stages(sft)}
    assert values_by_recipe == {name: {"model.policy": policy} for name in ("world-reward", "world", "world-dpo")}
    own = write_stage_run(tmp_path, "sft", rows, model={"policy": "me/mine"}, data={"source": "mine.jsonl", "prompt_format": "Q: {prompt}"})
    give_model(own, "policy")
    assert {stage.recipe for stage in next_stages(own)} == {"own-reward", "own", "own-dpo"}
    forms = {stage.recipe: stage.values.get("data.prompt_format") for stage in next_stages(own)}
    assert forms == dict.fromkeys(("own-dpo", "own-reward", "own"), "Q: {prompt}")  # the same in every stage


def test_a_reward_model_leads_to_ppo_with_the_policy_it_grew_from(tmp_path: Path) -> None:
    sft = write_stage_run(tmp_path, "sft", [{"sft/loss": 1.0}] * 2, recipe="world-sft")
    policy = str(give_model(sft, "policy"))
    reader = write_stage_run(tmp_path, "reward_model", [{}] * 2, recipe="world-reward", model={"policy": policy})
    model = str(give_model(reader, "reward_model"))
    (stage,) = next_stages(reader)
    assert stage.recipe == "world" and stage.values == {"reward.components.0.model": model, "model.policy": policy}
    values = values_of(load_recipe(stage.recipe).config)
    assert "model.policy" in values and "model" in values["reward.components"][0]  # what the form fills in is there


def test_a_policy_leads_to_an_evaluation_in_the_review_world_alone(tmp_path: Path) -> None:
    """The only recipe of an evaluation has the prompts and the reward of the review world, which fit no other model."""
    world = write_stage_run(tmp_path, "dpo", [{}] * 2, recipe="world-dpo")
    own = write_stage_run(tmp_path, "dpo", [{}] * 2, model={"policy": "me/mine"}, data={"source": "mine.jsonl"})
    for reader in (world, own):
        give_model(reader, "policy")
    assert [one.title for one in next_stages(world)] == ["Evaluate it"]
    assert next_stages(own) == []


def test_reward_models_of_several_seeds_lead_to_an_ensemble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders_read, policies = list[Path](), RunReader.policies

    def trained(seed: int, **settings: Any) -> Any:
        reader = write_stage_run(tmp_path, "reward_model", [{}] * 2, recipe="world-reward", engine={"seed": seed}, **settings)
        return reader, str(give_model(reader, "reward_model"))

    (first, model), (other, again), (unlike, _) = trained(0), trained(1), trained(2, reward_model={"epochs": 3})
    without = write_stage_run(tmp_path, "reward_model", [{}], recipe="world-reward", engine={"seed": 4})  # has kept no model
    assert len(next_stages(first, [unlike, without])) == 1
    monkeypatch.setattr(RunReader, "policies", lambda self: folders_read.append(self.run_dir) or policies(self))
    (twin, _) = trained(1)  # the same settings and the same seed: the same model again
    together = next_stages(first, [unlike, other, twin, without])[1]
    assert folders_read == [first.run_dir, other.run_dir, without.run_dir]  # folders of runs with other settings are not looked at
    assert together.title == "Use all 2 as an ensemble" and together.recipe == "world"
    assert together.values["reward.components.0.kind"] == "ensemble"
    assert EnsembleReward(models=together.values["reward.components.0.models"]).model_names() == [model, again]


def test_every_card_that_a_result_leads_to_is_on_the_train_page(tmp_path: Path) -> None:
    boot = Bench(tmp_path).page.boot({}, OPERATOR)
    cards = {card["name"] for card in boot["recipes"]}
    assert {"world", "world-reward", "world-dpo", "own", "own-sft", "own-reward", "own-dpo"} <= cards


def test_a_run_of_a_stage_is_handed_to_the_form(tmp_path: Path) -> None:
    from rlhf_studio.ui.lab.varying import handed_over

    reader = sft_run(tmp_path, steps=5)
    handed = handed_over(Workspace(tmp_path).reader(reader.run_dir.name))
    assert handed["stage"] == "sft" and handed["basis"] == "world-sft" and handed["values"]["sft.max_steps"] == 5
    assert handed["parent"] == reader.run_dir.name


def test_examples_are_shown_as_training_will_read_them(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text("\n".join(json.dumps({"prompt": f"p{row} ", "completion": f"c{row}"}) for row in range(40)))
    page = Bench(tmp_path).page
    mine = sent("world-sft", data__source=str(tmp_path / "mine.jsonl"), model__policy="nobody/there")
    preview = page.preview(mine, OPERATOR)
    assert preview["message"] == "" and preview["total"] == 40 and list(preview["rows"][0]["texts"]) == ["p0 ", "c0"]
    assert "prompt" in preview["shape"] and set(preview["columns"]) == {"prompt", "completion"}
    assert page.preview(mine, VIEWER) == {"rows": [], "message": "Only operators see the rows of files on this machine."}
