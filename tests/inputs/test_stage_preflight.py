"""The check before a start of the stages around PPO: one problem per setting that is wrong, none for what works."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.config import StageConfig
from rlhf_studio.config.io import Problem, parse_config
from rlhf_studio.inputs.checks.examples import ExampleFacts, ExampleTokens
from rlhf_studio.inputs.estimate.device import Device
from rlhf_studio.inputs.estimate.disk import NEW_RUN, OnDisk
from rlhf_studio.inputs.preflight import Preflight, inspect_run
from rlhf_studio.inputs.preflight.look import Look
from rlhf_studio.inputs.preflight.supervised import inspect_supervised, is_supervised
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.gpus import Gpu
from tests.runs.store_helpers import new_run
from tests.runs.test_evaluation_policies import run_with

ROOMY = 10**15
NO_PERMISSIONS: Any = None
MakeModel = Any


def config(stage: str, learner: object, /, **sections: dict[str, Any]) -> StageConfig:
    data: dict[str, Any] = {"max_tokens": 32, "max_rows": 200} if stage in ("sft", "reward_model", "dpo") else {}
    settings: dict[str, dict[str, Any]] = {"model": {"policy": str(learner)}, "data": data}
    return parse_config({"stage": stage, **{name: {**settings.get(name, {}), **sections.get(name, {})} for name in {*settings, *sections}}})


def problems(made: StageConfig, folder: Path, **named: Any) -> list[Problem]:
    return inspect_run(made, folder, free_bytes=lambda _: ROOMY, gpus=lambda: (), **named).problems


def inspected(made: StageConfig, folder: Path, examples: ExampleFacts, on_disk: OnDisk = NEW_RUN, free: int = ROOMY) -> Preflight:
    assert is_supervised(made)
    look = Look(folder, None, NO_PERMISSIONS, on_disk, lambda _: free, ())
    return inspect_supervised(made, look, lambda config, facts: examples)


@pytest.mark.parametrize("stage", ["sft", "dpo"])
def test_a_good_configuration_has_no_problems(stage: str, make_model: MakeModel, tmp_path: Path) -> None:
    assert problems(config(stage, make_model()), tmp_path) == []


def test_a_reward_model_starts_from_either_kind_and_a_policy_only_from_one(
    make_model: MakeModel, make_reward: MakeModel, tmp_path: Path
) -> None:
    policy, reward = make_model(), make_reward()
    assert problems(config("reward_model", policy), tmp_path) == problems(config("reward_model", reward), tmp_path) == []
    (problem,) = problems(config("sft", reward), tmp_path)
    assert problem.field == "model.policy" and "GPT2ForSequenceClassification, not a causal language model" in problem.message
    (problem,) = problems(config("reward_model", make_reward("two", labels=("good", "bad"))), tmp_path)
    assert problem.field == "model.policy" and "has 2 labels" in problem.message


def test_an_untrained_start_needs_no_weights(make_model: MakeModel, tmp_path: Path) -> None:
    shape = {"n_layer": 2, "n_embd": 8, "n_head": 2, "activation_function": "gelu_new"}
    bare = make_model("bare", weights=False, **shape)
    (problem,) = problems(config("sft", bare), tmp_path)
    assert problem.field == "model.policy" and "has no weights" in problem.message
    drawn = inspect_run(config("sft", bare, model={"fresh": True}), tmp_path, free_bytes=lambda _: ROOMY, gpus=lambda: ())
    assert drawn.problems == [] and drawn.download_bytes == 0
    assert drawn.memory_estimate is not None and drawn.memory_estimate.low is not None, "config.json tells the shape"
    (bare / "tokenizer.json").unlink()
    (bare / "tokenizer_config.json").unlink()
    (problem,) = problems(config("sft", bare, model={"fresh": True}), tmp_path)
    assert "has no tokenizer files" in problem.message
    (tmp_path / "empty").mkdir()
    (problem,) = problems(config("sft", tmp_path / "empty", model={"fresh": True}), tmp_path)
    assert "config.json is missing" in problem.message


@pytest.mark.parametrize(
    ("stage", "sections", "field", "words"),
    [
        ("dpo", {"model": {"reference": "./none"}}, "model.reference", "./none"),
        ("sft", {"model": {"quantization": "4bit"}}, "model.quantization", "need a CUDA GPU"),
        ("sft", {"engine": {"device": "cuda"}}, "engine.device", "no CUDA GPU is available"),
        ('sft', {'data': {'max_tokens': 100, 'max_rows': 10000}}, 'data.max_tokens', 'may have 100 tokens, but the model has 64'),
        ("dpo", {"generation": {"stop_token": "99"}}, "generation.stop_token", "there is no token 99"),
        ("sft", {"engine": {"accelerate_config": "no.yaml"}}, "engine.accelerate_config", "there is no file no.yaml"),
        ("reward_model", {"model": {"revision": "main", "policy": "no/such/folder"}}, "model.policy", "no/such/folder"),
    ],
)  # fmt: skip
def test_each_wrong_setting_is_named(
    stage: str, sections: dict[str, Any], field: str, words: str, make_model: MakeModel, tmp_path: Path
) -> None:
    actual = problems(config(stage, make_model(), **sections), tmp_path)
    assert field in [problem.field for problem in actual]
    (message,) = {problem.message for problem in actual if problem.field == field and words in problem.message}
    assert message.count(". ") == 0, "one sentence"


def test_the_end_token_must_be_there_to_be_appended(make_model: MakeModel, tmp_path: Path) -> None:
    endless = make_model("endless", tokenizer={"eos_token": None, "tokenizer_class": "PreTrainedTokenizerFast"})
    made = config("reward_model", endless, reward_model={"append_eos": True})
    (problem,) = problems(made, tmp_path)
    assert problem.field == "reward_model.append_eos"


def tokens(*lengths: int, complete: bool = True) -> ExampleTokens:
    return ExampleTokens(tuple(sorted(lengths)), sum(lengths) / len(lengths), complete)


def test_steps_and_lengths_come_from_the_examples(make_model: MakeModel, tmp_path: Path) -> None:
    made = config("sft", make_model(), data={"max_tokens": 200}, sft={"epochs": 3, "batch_size": 8})
    report = inspected(made, tmp_path, ExampleFacts(count=50, held_out=5, tokens=tokens(10, 20, 60)))
    assert report.problems == [] and report.steps == 21, "7 batches, the last with 2 examples, 3 times"
    (problem,) = inspected(made, tmp_path, ExampleFacts(count=50, tokens=tokens(10, 70))).problems
    assert problem == Problem("data.max_tokens", "the longest example has 70 tokens, but the model has 64 positions; use at most 64")
    assert inspected(made, tmp_path, ExampleFacts(count=50, tokens=tokens(10, 20, complete=False))).problems, "a longer one may come"
    limited = config("sft", tmp_path / "policy", sft={"max_steps": 5, "warmup_steps": 5})
    report = inspected(limited, tmp_path, ExampleFacts(count=50, tokens=tokens(10)))
    assert report.steps == report.known.steps == 2, "to compare a warm-up with"
    wrong = [Problem("data.source", "there is no file a.jsonl")]
    assert inspected(limited, tmp_path, ExampleFacts(wrong)).problems == wrong


def test_disk_is_weights_without_a_critic_and_recorded_examples(make_model: MakeModel, tmp_path: Path) -> None:
    weights = 8 * 4 + 4 * 12 + 12
    made = config("sft", make_model(), sft={"batch_size": 8}, engine={"watch_prompts": 0, "record_samples": 4, "watch_every": 10})
    facts = ExampleFacts(count=400, tokens=tokens(10, 30))
    looks = 50 // 10 + 2
    recorded = 50 * 400 + looks * 4 * 30 * 240
    assert inspected(made, tmp_path, facts).disk_bytes == 3 * weights * 12 + recorded, "two checkpoints kept, one more meanwhile"
    pair = config("dpo", tmp_path / "policy", dpo={"batch_size": 8}, engine={"watch_prompts": 0, "record_samples": 4, "watch_every": 10})
    assert inspected(pair, tmp_path, facts).disk_bytes == 3 * weights * 12 + 50 * 400 + looks * 2 * 4 * 30 * 240, "two texts each"
    adapters = replace_section(made, "lora", {"enabled": True})
    assert inspected(adapters, tmp_path, facts).disk_bytes < 3 * 16 * (8 + 4 + 4 + 12) * 12 + recorded + 1
    there = OnDisk(steps=40, checkpoints=2)
    assert inspected(made, tmp_path, facts, there).disk_bytes == weights * 12 + 10 * 400 + (10 // 10 + 2) * 4 * 30 * 240
    needed = inspected(made, tmp_path, facts).disk_bytes
    assert inspected(made, tmp_path, facts, free=needed).problems == []
    assert [problem.field for problem in inspected(made, tmp_path, facts, free=needed - 1).problems] == ["engine.keep_checkpoints"]


def replace_section(made: StageConfig, section: str, values: dict[str, Any]) -> StageConfig:
    data = made.model_dump(mode="json")
    return parse_config({**data, section: {**data[section], **values}})


def test_the_cheapest_change_makes_it_fit(make_model: MakeModel, tmp_path: Path) -> None:
    shape = {"n_layer": 1, "n_embd": 4, "n_head": 2, "activation_function": "gelu_new"}
    made = config("sft", make_model(**shape), sft={"batch_size": 4096})
    facts = ExampleFacts(count=10**6, tokens=tokens(20, 30))
    report = inspected(made, tmp_path, facts)
    assert report.memory_estimate is not None and report.memory_estimate.high is not None and report.models is not None
    tight = Device("cpu", "CPU", report.memory_estimate.high - 10**6, 10**12, False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Look, "device", lambda self, engine: tight)
        report = inspected(made, tmp_path, facts)
    assert report.change is not None
    assert (report.change.setting, report.change.value, report.change.price) == (
        "sft.micro_batch_size",
        "2048",
        "a little slower, same result",
    )


# --- evaluation --------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def evaluation(make_model: MakeModel, tmp_path: Path) -> Any:
    make_model()
    (tmp_path / "prompts.txt").write_text("the film was\n" * 10)

    def make(policies: str = "", **sections: dict[str, Any]) -> StageConfig:
        data = {"prompts": str(tmp_path / "prompts.txt"), "max_prompt_tokens": 16, "eval_share": 0.0, "drop_duplicates": False}
        reward = {"components": [{"kind": "length"}]}
        own = {"policies": policies, **sections.pop("evaluation", {})}
        return config("evaluation", tmp_path / "policy", data=data, reward=reward, evaluation=own, **sections)

    return make


def test_every_named_policy_is_looked_at(evaluation: Any, make_model: MakeModel, tmp_path: Path) -> None:
    run, other = run_with(tmp_path / "run"), make_model("other")
    (tmp_path / "said.jsonl").write_text(json.dumps({"prompt": "a", "completion": "b"}))
    lines = [f"{run}", f"{run}@2", f"{run}@all", f"{run}@start", f"{other}", f"{tmp_path / 'said.jsonl'}"]
    assert problems(evaluation("\n".join(lines)), tmp_path) == []
    assert problems(evaluation(), tmp_path) == []
    assert inspect_run(evaluation(f"{run}@all\n{other}"), tmp_path).answering == 5  # the start, three steps, and the other one


NOT_THERE = [
    ("{run}@30", "no checkpoint or snapshot of step 30; it has: 1, 2, 4"),
    ("{empty}", "empty has no checkpoint yet"),
    ("{tmp}/bad.jsonl", "bad.jsonl, line 1 is not JSON"),
    ("{tmp}/nothing", "{tmp}/nothing"),
    ("{judge}@start", "judge is a run of the stage Reward model, which has no policy"),
    ("{fresh}@start", "fresh began with random weights"),
]


def test_a_policy_that_is_not_there_is_named_with_its_line(evaluation: Any, tmp_path: Path) -> None:
    """The check reads the lines with the run's own reader, so that nothing passes here which the run then refuses."""
    (tmp_path / "bad.jsonl").write_text("no")
    places = {"run": run_with(tmp_path / "run"), "empty": new_run(tmp_path / "empty"), "tmp": tmp_path}
    others = {"judge": {"stage": "reward_model"}, "earlier": {"stage": "evaluation"}, "fresh": {"stage": "sft", "model": {"fresh": True}}}
    for name, settings in others.items():
        create_run(tmp_path / name, parse_config(settings), name=name)
        places[name] = tmp_path / name
    for line, words in NOT_THERE:
        (problem,) = problems(evaluation(f"{places['run']}\n{line.format(**places)}"), tmp_path)
        assert problem.field == "evaluation.policies" and words.format(**places) in problem.message, line


def test_each_policy_counts_once(evaluation: Any, tmp_path: Path) -> None:
    """RUN and RUN@4 are one policy; RUN@all of a run with random weights at its start has no start."""
    run = run_with(tmp_path / "run")

    def disk(*lines: str) -> int:
        config = evaluation("\n".join(lines), evaluation={"prompts": 8})
        return inspect_run(config, tmp_path, free_bytes=lambda _: ROOMY, gpus=lambda: ()).disk_bytes

    assert disk(f"{run}", f"{run}@4") == disk(f"{run}") < disk(f"{run}", f"{run}@2") < disk(f"{run}@all")


@pytest.mark.parametrize(
    ("settings", "field", "words"),
    [
        ({"judge": "./no-judge"}, "evaluation.judge", "there is no folder ./no-judge"),
        ({"text": "{tmp}/texts.csv"}, "evaluation.text_column", "there is no column 'text'; the columns are: body, more"),
        ({"reference": "./none"}, "evaluation.reference", "there is no folder ./none"),
    ],
)
def test_judge_text_and_reference_are_looked_at(settings: dict[str, str], field: str, words: str, evaluation: Any, tmp_path: Path) -> None:
    (tmp_path / "texts.csv").write_text("body,more\nw1,w2\n")
    own = {name: value.format(tmp=tmp_path) for name, value in settings.items()}
    (problem,) = problems(evaluation(evaluation=own), tmp_path)
    assert problem.field == field and words in problem.message


def test_the_largest_policy_counts_in_memory(evaluation: Any, make_model: MakeModel, tmp_path: Path) -> None:
    """One is in memory at a time, and model.policy may be the smaller one. The embedding of the larger one has 1,000 rows of 4."""
    larger = make_model("larger", vocab_size=1000)
    report = inspect_run(evaluation(f"{tmp_path / 'policy'}\n{larger}"), tmp_path, free_bytes=lambda _: ROOMY, gpus=lambda: ())
    assert not report.problems and report.models and report.models.policy.parameters == 1000 * 4 + 4 * 12 + 12


def test_a_judge_counts_among_the_models(evaluation: Any, tmp_path: Path) -> None:
    """It stands in memory beside the others, and reads texts as it was trained to."""
    without, beside = (
        inspect_run(evaluation(evaluation={"judge": judge}), tmp_path, free_bytes=lambda _: ROOMY, gpus=lambda: ())
        for judge in ("", "bundled/world-reward")
    )
    assert not without.problems and not beside.problems and without.models and beside.models
    assert (len(without.models.rewards), len(beside.models.rewards)) == (0, 1)


def test_an_evaluation_counts_its_steps_memory_and_disk(evaluation: Any, tmp_path: Path) -> None:
    report = inspect_run(evaluation(evaluation={"prompts": 8, "batch_size": 3}), tmp_path, free_bytes=lambda _: ROOMY, gpus=lambda: ())
    assert (report.problems, report.steps, report.prompts) == ([], 3, 10)
    assert report.disk_bytes > 0 and report.memory_estimate is not None
    more = inspect_run(evaluation(evaluation={"prompts": 128}), tmp_path, free_bytes=lambda _: ROOMY, gpus=lambda: ())
    assert "128 prompts are asked for, and there are 10: all of them are answered." in more.notes
    (problem,) = problems(evaluation(evaluation={"reference": "./none"}), tmp_path)
    assert problem.field == "evaluation.reference"
    quantized = evaluation(model={"quantization": "4bit"})
    preflight = inspect_run(quantized, tmp_path, free_bytes=lambda _: ROOMY, gpus=lambda: (Gpu(0, "A"),)).problems
    assert not any("lora" in problem.message for problem in preflight), "nothing is trained"


def test_dropout_that_slows_a_cpu_down_is_told(make_model: MakeModel, tmp_path: Path) -> None:
    shape = {"n_layer": 1, "n_embd": 4, "n_head": 2}

    def noted(name: str, **dropout: float) -> bool:
        report = inspect_run(config("sft", make_model(name, **shape, **dropout)), tmp_path, free_bytes=lambda _: ROOMY, gpus=lambda: ())
        return any("dropout of 0.1 in attention" in note for note in report.notes)

    assert noted("said", attn_pdrop=0.1) and noted("unsaid") and not noted("none", attn_pdrop=0.0)


def test_lengths_are_of_what_was_looked_at() -> None:
    lengths = tokens(*range(1, 101))
    assert (lengths.usual, lengths.longest, lengths.longest_of(1), lengths.longest_of(9)) == (51, 100, 51, 91)
    assert replace(lengths, complete=False).usual == 51


def test_weights_that_an_untrained_start_throws_away_are_told(make_model: MakeModel, tmp_path: Path) -> None:
    """The recipe world-sft draws new weights; who names a model of one's own there learns that only its shape is taken."""
    recipe: dict[str, Any] = {"stage": "sft", "model": {"policy": "bundled/world-policy", "fresh": True}, "data": {"max_rows": 50}}
    trained, bare = make_model("trained"), make_model("bare", weights=False)

    def noted(**model: Any) -> list[str]:
        made = parse_config({**recipe, "model": {**recipe["model"], **model}})
        notes = inspect_run(made, tmp_path, free_bytes=lambda _: ROOMY, gpus=lambda: ()).notes
        return [note for note in notes if "model.fresh" in note]

    note = f"The weights of {trained} are not used: model.fresh draws new ones; set it to false to train {trained} further."
    assert noted(policy=str(trained)) == [note]
    assert noted() == noted(policy=str(bare)) == noted(policy=str(trained), fresh=False) == []
