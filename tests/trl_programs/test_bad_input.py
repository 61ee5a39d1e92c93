"""What users of the classic and the later trainer get wrong: one clear sentence each, and nothing half-started."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import GPT2Config, GPT2ForSequenceClassification

from rlhf_studio.config.io import config_from_file
from rlhf_studio.runs.commands import send_command
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.trl import AutoModelForCausalLMWithValueHead, PPOConfig, PPOTrainer, create_reference_model
from rlhf_studio.trl.core import LengthSampler, respond_to_batch
from tests.trl_programs.small_program import BATCH, make_model, make_step, make_tokenizer

OPTIONS = {"batch_size": BATCH, "mini_batch_size": BATCH, "ppo_epochs": 1}


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    torch.set_num_threads(1)
    model = AutoModelForCausalLMWithValueHead.from_pretrained(make_model())
    made = PPOTrainer(PPOConfig(**OPTIONS), model, None, make_tokenizer(), run_dir=tmp_path_factory.mktemp("run") / "run")
    yield made
    made.close()


def changed(which: int, row: int, value: Any) -> tuple[list[Any], ...]:
    """A good step with one entry of its queries (0), responses (1), scores (2) or masks (3) replaced."""
    lists = [list(part) for part in make_step(0, masked=True)]
    lists[which][row] = value
    return tuple(lists)


STEPS: list[tuple[tuple[Any, ...], str]] = [
    (tuple(part[:3] for part in make_step(0, masked=True)), "step: there are 3 queries, but batch_size in PPOConfig is 4"),
    (changed(0, 1, torch.ones(1, 3, dtype=torch.long)), "step: queries[1] has the shape (1, 3); give one dimension (squeeze(0) takes"),
    (changed(1, 2, torch.ones(2, 3, dtype=torch.long)), "step: responses[2] has the shape (2, 3); give one dimension"),
    (changed(1, 0, torch.ones(0, dtype=torch.long)), "step: responses[0] has no token; it cannot be scored or learned from"),
    (changed(1, 0, [1, 2]), "step: responses[0] is a list; give token ids as a tensor of one dimension"),
    (changed(1, 3, torch.ones(2)), "step: responses[3] holds float32 numbers; token ids are whole"),
    (changed(1, 3, torch.tensor([20, 3])), "step: responses[3] holds 20, which is no token of the model: its ids are 0 to 19"),
    (changed(1, 3, torch.ones(40, dtype=torch.long)), "step: query and response 3 have 2 + 40 tokens, and the model reads 32 at most"),
    (changed(2, 0, 1.5), "step: scores[0] is a float; give each score as a tensor: torch.tensor(1.5)"),
    (
        changed(2, 0, [{"label": "POSITIVE", "score": 0.5}]),
        'step: scores[0] is a list; give each score as a tensor: torch.tensor(output[0]["score"])',
    ),
    (changed(2, 1, torch.tensor([1.0, 2.0])), "step: scores[1] has 2 numbers; a response has one score"),
    (changed(2, 1, torch.tensor(torch.nan)), "step: scores[1] is nan, which is not finite"),
    (changed(3, 1, torch.zeros(3)), "step: response_masks[1] leaves no token to learn from"),
    (changed(3, 1, torch.ones(2)), "step: response_masks[1] must have one number for each of the 3 response tokens"),
    ((torch.ones(4, 3), *make_step(0)[1:3], None), "step: queries must be a list of tensors, not a Tensor: write list(…)"),
]


def test_a_step_that_cannot_be(trainer: Any) -> None:
    before = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    for arguments, sentence in STEPS:
        with pytest.raises(ValueError) as caught:
            trainer.step(*arguments)
        assert str(caught.value).startswith(sentence) and "\n" not in str(caught.value)
    assert all(torch.equal(weight, before[name]) for name, weight in trainer.model.state_dict().items())
    assert RunReader(trainer.run_dir).status().step == 0


def test_a_query_or_a_tokenizer_that_cannot_be_used(trainer: Any) -> None:
    ids = torch.tensor([3, 4])
    for query, sentence in (
        (ids[None], "generate: query_tensor has the shape (1, 2); give one dimension, or a list of such tensors (squeeze(0)"),
        ([ids, ids[:0]], "generate: query 1 has no token; begin it with the tokenizer's bos_token_id"),
    ):
        with pytest.raises(ValueError) as caught:
            trainer.generate(query, max_new_tokens=2)
        assert str(caught.value).startswith(sentence)
    trainer.tokenizer.pad_token = None
    with pytest.raises(ValueError, match="no pad token; write tokenizer.pad_token = tokenizer.eos_token"):
        trainer.generate([ids], max_new_tokens=2)
    trainer.tokenizer.pad_token = "<pad>"


def test_answers_have_the_forms_of_trl(trainer: Any) -> None:
    queries = [torch.tensor([3, 4]), torch.tensor([5])]
    assert trainer.generate(queries[0], max_new_tokens=3, min_new_tokens=3).shape == (1, 5)
    assert trainer.generate(queries[0], length_sampler=LengthSampler(2, 3), min_new_tokens=2, return_prompt=False).shape == (1, 2)
    whole, reference = trainer.generate(queries, generate_ref_response=True, max_new_tokens=3, do_sample=False, remove_padding=False)
    assert [list(answer[: len(query)]) for answer, query in zip(whole, queries, strict=True)] == [list(query) for query in queries]
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(whole, reference, strict=True))  # nothing is learned yet
    alone = [trainer.generate(query, max_new_tokens=3, do_sample=False)[0] for query in queries]  # padding changes no answer
    assert all(torch.equal(mine, other[: len(mine)]) for mine, other in zip(whole, alone, strict=True))
    assert respond_to_batch(trainer.model, torch.tensor([[3, 4], [5, 6]]), txt_len=4).shape == (2, 4)
    ended = trainer.generate(queries, max_new_tokens=20, return_prompt=False, do_sample=True)
    assert all((answer[:-1] != 1).all() for answer in ended)  # cut behind the first end token


CONFIGS: list[tuple[dict[str, Any], str]] = [
    ({"ppo_epoch": 1}, "PPOConfig has no option ppo_epoch; did you mean ppo_epochs?"),
    ({"ppo_epochs": 1, "output_dir": "x"}, "PPOConfig: ppo_epochs is an option of TRL 0.11 and before, output_dir of TRL 0.12 and after"),
    ({"batch_size": 10, "mini_batch_size": 4}, "PPOConfig: batch_size 10 is not a multiple of mini_batch_size"),
    ({"output_dir": "x", "kl_estimator": "k2"}, "PPOConfig: kl_estimator is 'k2'; it is k1 or k3"),
    ({"output_dir": "x", "stop_token": "eos", "stop_token_id": 3}, "PPOConfig: stop_token and stop_token_id are both given"),
]


def test_options_and_trainers_of_two_generations(tmp_path: Path) -> None:
    for given, sentence in CONFIGS:
        with pytest.raises((TypeError, ValueError)) as caught:
            PPOConfig(**given)
        assert str(caught.value).startswith(sentence)
    classic, later = PPOConfig(**OPTIONS), PPOConfig(output_dir=str(tmp_path), per_device_train_batch_size=4)
    assert isinstance(classic, PPOConfig) and isinstance(later, PPOConfig)
    for arguments, sentence in (
        ({"config": None}, "PPOTrainer: give a PPOConfig of rlhf_studio.trl, as config= (classic) or args= (later); it was given nothing"),
        (
            {"config": classic, "reward_model": 1},
            "PPOTrainer: its PPOConfig is classic (TRL 0.11 and before), and that",
        ),
        (
            {"config": classic, "model": make_model()},
            "PPOTrainer: model is a GPT2LMHeadModel; load it with AutoModel",
        ),
        ({"args": later, "dataset": 1}, "PPOTrainer: its PPOConfig is later (TRL 0.12 to 1.12), and that"),
    ):
        with pytest.raises((TypeError, ValueError)) as caught:
            PPOTrainer(**arguments)
        assert str(caught.value).startswith(sentence)
    with pytest.raises(ValueError, match="the dataset has 2 rows, fewer than one batch"):
        model = AutoModelForCausalLMWithValueHead.from_pretrained(make_model())
        PPOTrainer(classic, model, None, make_tokenizer(), dataset=Dataset.from_dict({"input_ids": [[1], [2]]}), run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_the_later_trainer_cannot_use(tmp_path: Path) -> None:
    config = PPOConfig(output_dir=str(tmp_path), per_device_train_batch_size=4, num_mini_batches=3, use_cpu=True)
    model, ref_model, value_model, reward_model = make_model(), make_model(), *(make_judge() for _ in range(2))
    good = {"model": model, "ref_model": ref_model, "reward_model": reward_model, "value_model": value_model}
    good |= {"processing_class": make_tokenizer(), "train_dataset": Dataset.from_dict({"input_ids": [[2, 3]] * 4})}
    bare = make_tokenizer()
    bare.pad_token = None
    for change, sentence in (
        ({"processing_class": bare}, "PPOTrainer: the tokenizer has no pad token; write tokenizer.add_special_tokens"),
        ({"ref_model": model}, "PPOTrainer: model and ref_model are one object, so the KL would always be 0"),
        ({"value_model": reward_model}, "PPOTrainer: value_model and reward_model are one object"),
        ({"reward_model": model}, "PPOTrainer: reward_model is a GPT2LMHeadModel without a score head of one label"),
        ({"train_dataset": Dataset.from_dict({"input_ids": [[2]] * 3})}, "PPOTrainer: train_dataset has 3 rows, fewer than one batch of 4"),
        ({"peft_config": {"r": 2}}, "PPOTrainer: peft_config is a dict; give a peft.LoraConfig"),
        ({}, "PPOTrainer: num_mini_batches 3 does not divide the batch of 4"),
    ):
        with pytest.raises(ValueError) as caught:
            PPOTrainer(args=config, run_dir=tmp_path / "run", **{**good, **change})
        assert str(caught.value).startswith(sentence)
    with pytest.raises(ValueError, match="a batch of the dataset has no input_ids as one tensor, but prompt; tokenize the prompts first"):
        config.num_mini_batches = 1
        texts = good | {"train_dataset": Dataset.from_dict({"prompt": [2] * 4}), "data_collator": lambda rows: {"prompt": rows}}
        PPOTrainer(args=config, run_dir=tmp_path / "run", **texts)
    assert not (tmp_path / "run").exists()


def make_judge() -> GPT2ForSequenceClassification:
    return GPT2ForSequenceClassification(GPT2Config(vocab_size=20, n_embd=8, n_layer=1, n_head=1, n_positions=32, num_labels=1))


def test_a_stop_on_the_page_ends_the_program_with_a_checkpoint(tmp_path: Path) -> None:
    """With adapters: only they and the value head learn, and the settings say so."""
    model = AutoModelForCausalLMWithValueHead.from_pretrained(make_model(), peft_config=LoraConfig(r=2, target_modules=["c_attn"]))
    trainer = PPOTrainer(PPOConfig(**OPTIONS, learning_rate=1e-2), model, None, make_tokenizer(), run_dir=tmp_path / "run")
    base = model.pretrained_model.get_base_model().transformer.wte.weight.clone()
    stats = trainer.step(*make_step(0)[:3])
    assert stats["objective/kl"] == pytest.approx(0, abs=1e-5) and RunReader(trainer.run_dir).status().state == "running"
    send_command(trainer.run_dir, "stop")
    with pytest.raises(SystemExit, match="The checkpoint of step 1 is in"):
        trainer.step(*make_step(1)[:3])
    assert torch.equal(base, model.pretrained_model.get_base_model().transformer.wte.weight)
    status = RunReader(trainer.run_dir).status()
    assert (status.state, status.step) == ("stopped", 1)
    assert (tmp_path / "run" / "checkpoints" / "step-000001" / "policy" / "adapter_model.safetensors").exists()
    trainer.save_settings(tmp_path / "run.yaml")
    settings: Any = config_from_file(tmp_path / "run.yaml")
    assert settings.lora.enabled and settings.lora.r == 2 and settings.ppo.batch_size == BATCH and settings.generation.stop_token == "none"


def test_shared_layers_stay_as_they_are() -> None:
    model = AutoModelForCausalLMWithValueHead.from_pretrained(make_model())
    create_reference_model(model, num_shared_layers=0)
    frozen = {name for name, weight in model.named_parameters() if not weight.requires_grad}
    assert frozen == {"pretrained_model.transformer.wte.weight", "pretrained_model.transformer.wpe.weight"}
    with pytest.raises(ValueError, match="num_shared_layers is 5, but no weight's name holds"):
        create_reference_model(model, num_shared_layers=5)
