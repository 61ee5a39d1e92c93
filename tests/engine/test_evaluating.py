"""Evaluation runs: what each policy answers, what the reference says of it, and going on after an interruption."""

from __future__ import annotations

import functools
import json
import math
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlhf_studio.config import NOTHING_ALLOWED, EvaluationRunConfig
from rlhf_studio.config.io import ConfigError
from rlhf_studio.engine.compute.device import choose_compute
from rlhf_studio.engine.compute.ranks import Ranks
from rlhf_studio.engine.loop.build import build_trainer
from rlhf_studio.engine.loop.generate import decode_responses, generate
from rlhf_studio.engine.stages.evaluating import loading
from rlhf_studio.engine.stages.evaluating.prompts import text_tokens
from rlhf_studio.engine.stages.evaluating.stage import EvaluationStage, ppo_settings
from rlhf_studio.inputs.prompts.errors import PromptsError
from rlhf_studio.runs.checkpoints import CheckpointError
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.evaluation.answers import Answer
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.writer import RunWriter
from tests.engine.conftest import PROMPTS, small_config
from tests.engine.small_models import save_policy


def quiet(text: str, fraction: float | None) -> None:
    pass


@functools.cache
def _models() -> tempfile.TemporaryDirectory[str]:
    """Two whole models, and two adapters on the first."""
    folders = tempfile.TemporaryDirectory()
    folder = Path(folders.name)
    start = Path(small_config(folder).model.policy)
    save_policy(folder / "other", "gpt2", scale=6.0, seed=5)
    for seed in (1, 2):
        torch.manual_seed(seed)
        lora = LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["c_attn"], fan_in_fan_out=True)
        model = get_peft_model(AutoModelForCausalLM.from_pretrained(start), lora)
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                torch.nn.init.normal_(parameter, std=0.5)
        model.save_pretrained(folder / f"adapter{seed}")
    return folders


def setup(folder: Path) -> dict[str, str]:
    """Folders of four policies, beside what :func:`small_config` puts there."""
    shutil.copytree(_models().name, folder, dirs_exist_ok=True)
    for name in ("adapter1", "adapter2"):
        settings = folder / name / "adapter_config.json"
        settings.write_text(json.dumps({**json.loads(settings.read_text()), "base_model_name_or_path": str(folder / "policy")}))
    return {name: str(folder / name) for name in ("policy", "other", "adapter1", "adapter2")}


def evaluation(folder: Path, policies: list[str], **changes: Any) -> EvaluationRunConfig:
    settings: dict[str, Any] = {
        "stage": "evaluation",
        "model": {"policy": str(folder / "policy")},
        "data": {"prompts": str(folder / "prompts.txt"), "eval_share": 0},
        "reward": {"components": [{"kind": "reward_model", "model": str(folder / "reward"), "name": "rm"}, {"kind": "length"}]},
        "evaluation": {"policies": "\n".join(policies), "batch_size": 4, "samples": 2},
        "generation": {"response_length": 6},
        "engine": {"device": "cpu", "checkpoint_every": 1},
    }
    for section, values in changes.items():
        settings[section] = {**settings[section], **values}
    return EvaluationRunConfig.model_validate(settings)


def build(config: EvaluationRunConfig) -> EvaluationStage:
    return EvaluationStage.build(config, choose_compute(ppo_settings(config)), quiet, NOTHING_ALLOWED)[0]


def answers_of(stage: EvaluationStage) -> list[Answer]:
    answers: list[Answer] = []
    while not stage.finished:
        answers += [answer for answer in stage.step().rollouts if isinstance(answer, Answer)]
    return answers


def test_each_policy_answers_as_it_would_alone(tmp_path: Path) -> None:
    policies = setup(tmp_path)
    lines = [*policies.values(), policies["policy"] + "/../policy"]  # the last is the first again
    config = evaluation(tmp_path, lines, evaluation={"seed": 1})
    stage = build(config)
    assert (stage.total_steps, stage.step_number) == (2, 0)
    answers = answers_of(stage)
    assert list(dict.fromkeys(answer.policy for answer in answers)) == ["policy", "other", "adapter1", "adapter2"]
    assert len(answers) == 4 * 2 * len(PROMPTS)
    for name in ("policy", "other", "adapter2"):
        alone = small_config(tmp_path, model={"policy": policies[name]})
        trainer = build_trainer(alone, choose_compute(alone), quiet)[0]
        for step, prompts in enumerate((PROMPTS[:4], PROMPTS[4:])):
            rows = [PROMPTS.index(prompt) for prompt in prompts]
            generator = torch.Generator().manual_seed(1_000_003 + step)
            tokens, _ = generate(trainer.models, trainer.prompts.batch(rows).repeat(2), alone.generation, generator)
            own = [answer for answer in answers if answer.policy == name and answer.place in rows]
            assert [answer.response for answer in own] == decode_responses(trainer.models, tokens), name
            assert [(answer.place, answer.draw) for answer in own] == [(index, draw) for index in rows for draw in (0, 1)]
    assert len({answer.response for answer in answers}) > len(answers) / 2  # the policies do differ


@functools.lru_cache(maxsize=2)
def _plain(path: str) -> tuple[Any, Any]:
    return AutoTokenizer.from_pretrained(path), AutoModelForCausalLM.from_pretrained(path).eval()


def plain_logprob(path: str, prompt: str, response: str, stopped: bool) -> float:
    """Sum of log-probabilities by transformers alone."""
    tokenizer, model = _plain(path)
    before = tokenizer(prompt)["input_ids"]
    ids = before + tokenizer(response, add_special_tokens=False)["input_ids"] + ([tokenizer.eos_token_id] if stopped else [])
    with torch.no_grad():
        logprobs = model(torch.tensor([ids])).logits[0].log_softmax(dim=-1)
    return float(sum(logprobs[index - 1, ids[index]] for index in range(len(before), len(ids))))


def test_kl_and_reference_are_those_of_transformers(tmp_path: Path) -> None:
    policies = setup(tmp_path)
    for answer in answers_of(build(evaluation(tmp_path, [policies["other"], policies["policy"]], evaluation={"samples": 1}))):
        stopped = bool(answer.stopped)
        reference = plain_logprob(policies["policy"], answer.prompt, answer.response, stopped)
        policy = plain_logprob(policies[answer.policy], answer.prompt, answer.response, stopped)
        text = plain_logprob(policies["policy"], answer.prompt, answer.response, False)  # its end token is no text
        assert answer.ref_logprob == pytest.approx(text, abs=1e-3)
        assert answer.kl == pytest.approx(policy - reference, abs=1e-3)
        assert answer.ref_length == answer.length - stopped
        if answer.policy == "policy":
            assert answer.kl == pytest.approx(0.0, abs=1e-4)


@pytest.mark.long
def test_temperature_and_another_reference(tmp_path: Path) -> None:
    policies = setup(tmp_path)
    changes: dict[str, Any] = {"evaluation": {"samples": 1, "reference": policies["other"]}, "generation": {"temperature": 0.5}}
    answers = answers_of(build(evaluation(tmp_path, [policies["policy"], policies["other"]], **changes)))
    for answer in answers:
        expected = plain_logprob(policies["other"], answer.prompt, answer.response, False)
        assert answer.ref_logprob == pytest.approx(expected, abs=1e-3)  # perplexity is at temperature 1, whatever was sampled at
    assert all(abs(answer.kl) < 1e-3 for answer in answers if answer.policy == "other")
    assert any(abs(answer.kl) > 0.1 for answer in answers if answer.policy == "policy")


def test_scores_parts_judge_and_gold(tmp_path: Path) -> None:
    policies = setup(tmp_path)
    config = evaluation(
        tmp_path,
        [policies["policy"]],
        reward={
            "components": [{"kind": "reward_model", "model": str(tmp_path / "reward"), "weight": 2.0, "name": "rm"}, {"kind": "length"}],
            "gold": "world",
        },
        evaluation={"judge": str(tmp_path / "reward")},
    )
    for answer in answers_of(build(config)):
        assert list(answer.parts) == ["rm", "length"]
        assert answer.score == pytest.approx(sum(answer.parts.values()))
        assert answer.judge == pytest.approx(answer.parts["rm"] / 2, abs=1e-5)
        assert answer.gold is not None and -1 <= answer.gold <= 1


def test_a_rule_may_judge_and_nothing_may_score(tmp_path: Path) -> None:
    """As after SFT or DPO: no reward of its own, and a judge that is a rule; perplexity, KL and lengths are there all the same."""
    policies = setup(tmp_path)
    config = evaluation(tmp_path, [policies["policy"]], reward={"components": []}, evaluation={"judge": "{kind: length, target: 0}"})
    stage = build(config)
    record = stage.step()
    for answer in record.rollouts:
        assert isinstance(answer, Answer) and math.isnan(answer.score) and answer.parts == {}
        assert answer.judge == pytest.approx(max(0.0, 1 - answer.length / 10))
        assert math.isfinite(answer.kl) and answer.ref_length > 0
    assert not any(name.startswith("evaluation/score") for name in record.metrics)
    assert any(name.startswith("evaluation/judge") for name in record.metrics)


def test_greedy_takes_the_likeliest_token_and_an_exact_kl(tmp_path: Path) -> None:
    policies = setup(tmp_path)
    config = evaluation(tmp_path, [policies["other"]], evaluation={"samples": 1, "greedy": True})
    tokenizer, model = AutoTokenizer.from_pretrained(policies["other"]), AutoModelForCausalLM.from_pretrained(policies["other"]).eval()
    start = AutoModelForCausalLM.from_pretrained(policies["policy"]).eval()
    for answer in answers_of(build(config)):
        ids = torch.tensor([tokenizer(answer.prompt)["input_ids"]])
        written = model.generate(ids, max_new_tokens=6, do_sample=False, pad_token_id=0)[0]
        assert answer.response.strip() == tokenizer.decode(written[ids.shape[1] :], skip_special_tokens=True).strip()
        with torch.no_grad():
            ours, theirs = (each(written[None]).logits[0].log_softmax(dim=-1) for each in (model, start))
        kl = (ours.exp() * (ours - theirs)).sum(dim=-1)[ids.shape[1] - 1 : -1]
        assert answer.kl == pytest.approx(float(kl.sum()), abs=1e-3)


def test_held_out_text_is_read_by_each_policy(tmp_path: Path) -> None:
    policies = setup(tmp_path)
    texts = ["w1 w2 w3 w4", "w5", "w6 w7 w8", "w9 w10 w11"]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    stage = build(evaluation(tmp_path, list(policies.values())[:3], evaluation={"text": str(tmp_path / "texts.txt")}))
    sums: dict[str, float] = {}
    while not stage.finished:
        for name, value in stage.step().metrics.items():
            sums[name] = sums.get(name, 0.0) + value
    for name in ("policy", "other"):
        expected = sum(plain_logprob(policies[name], text.split()[0], text.partition(" ")[2], False) for text in texts if " " in text)
        assert sums[f"evaluation/text_logprob/{name}"] == pytest.approx(expected, abs=2e-3)
        assert sums[f"evaluation/text_tokens/{name}"] == 7
    assert sums["evaluation/text_logprob/adapter1"] != pytest.approx(sums["evaluation/text_logprob/policy"], abs=0.1)


def test_every_token_of_a_long_text_is_predicted_once(tmp_path: Path) -> None:
    """In windows, each of which begins with the last token of the one before."""
    tokenizer = AutoTokenizer.from_pretrained(setup(tmp_path)["policy"])
    words = [f"w{1 + index}" for index in range(10)]
    tokens = text_tokens([" ".join(words), "w3", "w4 w5"], tokenizer, 4, torch.device("cpu"))
    assert tokens is not None and tokens.prompt_ids.shape == (4, 1)
    predicted = [ids[mask].tolist() for ids, mask in zip(tokens.response_ids, tokens.mask, strict=True)]
    known = tokenizer(" ".join(words)).input_ids
    assert predicted == [known[1:4], known[4:7], known[7:10], tokenizer("w4 w5").input_ids[1:]]
    assert tokens.prompt_ids[:, 0].tolist() == [known[0], known[3], known[6], tokenizer("w4").input_ids[0]]


def test_what_policies_share_is_loaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policies = setup(tmp_path)
    loads: list[str] = []
    real = loading.load_causal_lm
    monkeypatch.setattr(loading, "load_causal_lm", lambda name, *rest: loads.append(Path(name).name) or real(name, *rest))  # type: ignore[func-returns-value]
    stage = build(evaluation(tmp_path, list(policies.values())))
    answers_of(stage)
    assert sorted(loads) == ["other", "policy"]  # two adapters lie on the base, which is the reference and a policy too


@pytest.mark.long
def test_weights_that_find_no_room_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policies = setup(tmp_path)
    save_policy(tmp_path / "third", "gpt2", scale=6.0, seed=9)
    config = evaluation(tmp_path, [policies["other"], str(tmp_path / "third"), policies["adapter1"], policies["adapter2"]])
    roomy = answers_of(build(config))
    monkeypatch.setattr(loading, "WAITING_SHARE", 0.0)
    assert answers_of(build(config)) == roomy


def run_dir_for(config: EvaluationRunConfig, folder: Path) -> Path:
    create_run(folder, ppo_settings(config), name="evaluation")
    return folder


def test_a_run_goes_on_where_it_was_bit_for_bit(tmp_path: Path) -> None:
    policies = setup(tmp_path)
    config = evaluation(tmp_path, [policies["other"], policies["adapter1"]], evaluation={"batch_size": 2})
    uninterrupted = build(config)
    run = run_dir_for(config, tmp_path / "run")
    with RunWriter(run) as writer:
        writer.commit_step(uninterrupted.step())
        uninterrupted.save(run)
        resumed = build(config)
        assert resumed.go_on_from(run, 1) == []
        assert resumed.step_number == 1
        for _ in range(2):
            expected, answers = uninterrupted.step(), resumed.step()
            assert answers.rollouts == expected.rollouts
            writer.commit_step(answers)
        assert resumed.finished and uninterrupted.finished
        resumed.save(run)
    assert [checkpoint.step for checkpoint in RunReader(run).checkpoints()] == [1, 3]
    recorded = RunReader(run).answers()
    assert [answer.place for answer in recorded if answer.policy == "other"] == [index for index in range(6) for _ in (0, 1)]


def test_a_run_whose_prompts_or_settings_changed_does_not_go_on(tmp_path: Path) -> None:
    policies = setup(tmp_path)
    config = evaluation(tmp_path, [policies["policy"]])
    stage, run = build(config), run_dir_for(config, tmp_path / "run")
    with RunWriter(run) as writer:
        writer.commit_step(stage.step())
        stage.save(run)
    with pytest.raises(CheckpointError, match=r"settings have changed since \(evaluation\): begin again"):
        build(evaluation(tmp_path, [policies["policy"]], evaluation={"seed": 3})).go_on_from(run, 1)
    (tmp_path / "prompts.txt").write_text("\n".join(reversed(PROMPTS)))
    with pytest.raises(CheckpointError, match="the prompts have changed since"):
        build(config).go_on_from(run, 1)


def completions(folder: Path, rows: list[dict[str, Any]]) -> str:
    file = folder / "theirs.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    return str(file)


def test_a_file_of_completions_is_a_policy(tmp_path: Path) -> None:
    policies = setup(tmp_path)
    rows = [{"prompt": prompt, "completions": [" w1 w2", ""]} for prompt in PROMPTS]
    answers = answers_of(build(evaluation(tmp_path, [policies["policy"], completions(tmp_path, rows)])))
    own = [answer for answer in answers if answer.policy == "theirs"]
    assert len(own) == 2 * len(PROMPTS)
    for answer in own:
        assert math.isnan(answer.kl) and answer.stopped is None
        expected = plain_logprob(policies["policy"], answer.prompt, answer.response, False)
        assert (answer.ref_logprob, answer.ref_length) == (pytest.approx(expected, abs=1e-3), 2 if answer.response else 0)


def test_a_policy_with_other_tokens_is_read_as_text(tmp_path: Path) -> None:
    policies = setup(tmp_path)
    save_policy(tmp_path / "foreign", "llama")
    vocabulary = json.loads((tmp_path / "foreign" / "tokenizer.json").read_text())
    words = vocabulary["model"]["vocab"]
    first, second = "w1", "w2"  # two words change places: the same texts, other ids
    words[first], words[second] = words[second], words[first]
    (tmp_path / "foreign" / "tokenizer.json").write_text(json.dumps(vocabulary))
    answers = answers_of(build(evaluation(tmp_path, [policies["policy"], str(tmp_path / "foreign")], evaluation={"samples": 1})))
    foreign = [answer for answer in answers if answer.policy == "foreign"]
    assert len(foreign) == len(PROMPTS)
    for answer in foreign:
        assert math.isnan(answer.kl)
        expected = plain_logprob(policies["policy"], answer.prompt, answer.response, False)
        assert answer.ref_logprob == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"evaluation": {"policies": "nowhere@all"}}, ConfigError, "there is no run 'nowhere': name its folder"),
        ({"evaluation": {"policies": "gone.jsonl"}}, ConfigError, "there is no file 'gone.jsonl'"),
        ({"evaluation": {"judge": "./no-such-model"}}, ConfigError, "evaluation.judge: cannot load"),
        ({"evaluation": {"reference": "./no-such-model"}}, ConfigError, "evaluation.reference: cannot load"),
        ({"generation": {"response_length": 60}}, ConfigError, "policy reads at most 64 tokens, and a prompt and its answer may have 66"),
        ({"evaluation": {"text": "./no-such-file.txt"}}, PromptsError, "evaluation.text: "),
    ],
)
def test_what_cannot_be_evaluated_is_said_before_the_first_step(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    policies = setup(tmp_path)
    with pytest.raises(error, match=message):
        build(evaluation(tmp_path, [policies["policy"]], **changes))


def test_completions_that_lack_an_answer_are_refused(tmp_path: Path) -> None:
    setup(tmp_path)
    rows = [{"prompt": prompt, "completion": "w1"} for prompt in PROMPTS[:4] for _ in range(2)]
    with pytest.raises(PromptsError, match="theirs.jsonl has fewer than 2 answers to 2 of 6 prompts, such as 'w12 w13 w14 w15'"):
        build(evaluation(tmp_path, [completions(tmp_path, rows)]))


def test_several_processes_are_refused(tmp_path: Path) -> None:
    policies = setup(tmp_path)
    config = evaluation(tmp_path, [policies["policy"]])
    compute = choose_compute(ppo_settings(config))
    two = Ranks()
    two.size = 2
    with pytest.raises(ConfigError, match="an evaluation runs in one process"):
        EvaluationStage.build(config, replace(compute, ranks=two), quiet, NOTHING_ALLOWED)
