"""Models that number the tokens of a row in a way of their own: behind a padding id, or by frequencies that change with the length."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    Phi3Config,
    PretrainedConfig,
    RecurrentGemmaConfig,
    RobertaConfig,
    XLMRobertaXLConfig,
)

from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.models.position_ids import PositionScheme
from rlhf_studio.engine.parity.check import check_parity
from rlhf_studio.engine.parity.gate import check_before_training
from rlhf_studio.engine.parity.tolerance import ParityError
from rlhf_studio.engine.process.worker import run_engine
from rlhf_studio.engine.rewards.episodes import Episodes
from rlhf_studio.exit_codes import BAD_INPUT
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.reader import RunReader
from tests.engine.conftest import collect, small_config
from tests.engine.small_models import WORDS, save_prompts, save_tokenizer

Make = Callable[..., Trainer]
SIZES = {"vocab_size": len(WORDS) + 2, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
ENDS = {"bos_token_id": 1, "eos_token_id": 1}
SHORT, LONG = [1.0] * 4, [2.0, 3.0, 4.0, 5.0]


def roberta(pad: int = 0, kind: type[PretrainedConfig] = RobertaConfig) -> PretrainedConfig:
    """The pad id is one of the words when it is not 0: it is sampled too, and its places are not counted."""
    return kind(is_decoder=True, max_position_embeddings=66, initializer_range=0.2, pad_token_id=pad, **SIZES, **ENDS)


def longrope(original: int) -> PretrainedConfig:
    rotation = {"rope_type": "longrope", "short_factor": SHORT, "long_factor": LONG, "rope_theta": 10000.0}
    return Phi3Config(
        max_position_embeddings=128, original_max_position_embeddings=original, rope_parameters=rotation, num_key_value_heads=2,
        initializer_range=0.3, pad_token_id=0, **SIZES, **ENDS,
    )  # fmt: skip


def save(folder: Path, config: PretrainedConfig, kind: type = AutoModelForCausalLM) -> Path:
    torch.manual_seed(0)
    kind.from_config(config).save_pretrained(folder)
    save_tokenizer(folder)
    return folder


@torch.no_grad()
def assert_own_numbers(trainer: Trainer, folder: Path) -> None:
    """A rollout's log-probabilities of policy and reference are those of the plain model, one episode at a time."""
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    models, prompts = trainer.models, trainer.prompts.next_batch(8)
    rollout = collect(models, prompts, 0.1, torch.Generator().manual_seed(0))
    for row in range(8):
        tokens = rollout.tokens
        prompt, response = tokens.prompt_ids[row][tokens.prompt_mask[row]], tokens.response_ids[row][tokens.mask[row]]
        logits = model(torch.cat([prompt, response])[None]).logits[0, len(prompt) - 1 : -1]
        expected = logits.log_softmax(dim=-1).gather(1, response[:, None]).squeeze(1)
        for actual in (rollout.logprobs, rollout.ref_logprobs):
            torch.testing.assert_close(actual[row][: len(response)], expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("config", "critic"),
    [(roberta(pad=5), {"kind": "separate", "start": "policy"}), (roberta(kind=XLMRobertaXLConfig), {})],
    ids=["pad 5, separate", "xl, shared"],
)
def test_positions_that_begin_behind_the_padding_id(
    make_trainer: Make, tmp_path: Path, config: PretrainedConfig, critic: dict[str, str]
) -> None:
    folder = save(tmp_path / "roberta", config)
    trainer = make_trainer(model={"policy": str(folder)}, critic=critic, generation={"response_length": 20, "stop_token": "none"})
    assert_own_numbers(trainer, folder)
    check_before_training(trainer)
    assert trainer.step().metrics["policy/first_log_ratio"] < 1e-4


def test_numbers_of_a_row() -> None:
    """The literal: two of padding in front, the padding id 5 once within the text."""
    ids, real = torch.tensor([[5, 5, 7, 8, 5, 9]]), torch.tensor([[0, 0, 1, 1, 1, 1]])
    assert PositionScheme(5)(ids, real).tolist() == [[5, 5, 6, 7, 5, 8]]
    assert PositionScheme()(ids, real).tolist() == [[0, 0, 0, 1, 2, 3]]


def test_a_recurrence_that_reads_padding_is_not_trained(make_trainer: Make, tmp_path: Path) -> None:
    """Its biases make something of a padding token, and its convolution hands that on to the words behind it."""
    sizes = {**SIZES, "num_hidden_layers": 3, "lru_width": 32, "w_init_variance_scale": 1.0, "attention_window_size": 16}
    config = RecurrentGemmaConfig(num_key_value_heads=2, pad_token_id=0, **sizes, **ENDS)
    folder = save(tmp_path / "recurrent", config)
    model = AutoModelForCausalLM.from_pretrained(folder)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.data.fill_(0.5)
    model.save_pretrained(folder)
    trainer = make_trainer(model={"policy": str(folder)}, generation={"response_length": 20})
    with pytest.raises(ParityError, match="log-probabilities while sampling"):
        check_parity(trainer.models, trainer.prompts)


@pytest.mark.parametrize("original", [64, 2], ids=["below", "above"])
def test_texts_on_one_side_of_the_boundary(make_trainer: Make, tmp_path: Path, original: int) -> None:
    """Prompts of 3 to 10 words and responses of 20: all within 64 tokens, or all prompts beyond 2."""
    folder = save(tmp_path / "longrope", longrope(original))
    prompts = save_prompts(tmp_path / "some.txt", ["w1 w2 w3", "w5 w6 w7 w8 w9 w10 w11 w12 w13 w14", "w12 w13 w14 w15", "w3 w3 w3 w3 w3"])
    trainer = make_trainer(model={"policy": str(folder)}, data={"prompts": str(prompts)}, generation={"response_length": 20})
    check_before_training(trainer)
    assert_own_numbers(trainer, folder)


@pytest.mark.usefixtures("checked")
def test_texts_on_both_sides_are_refused_before_anything_is_trained(tmp_path: Path) -> None:
    config = small_config(tmp_path, model={"policy": str(save(tmp_path / "longrope", longrope(12)))}, generation={"response_length": 8})
    create_run(tmp_path / "run", config, name="run", state="loading")
    assert run_engine(tmp_path / "run", "train") == BAD_INPUT
    cause = RunReader(tmp_path / "run").status().cause
    assert cause.startswith("data.max_prompt_tokens: ") and "more than 12 tokens" in cause
    assert "keep data.max_prompt_tokens at 4 or less" in cause and "nothing was trained" in cause


def test_a_reward_model_scores_texts_of_one_side_together(make_trainer: Make, tmp_path: Path) -> None:
    """Texts of 2 to 14 tokens around a boundary of 8: the scores are those of each text alone."""
    settings = longrope(8)
    settings.num_labels = 1
    judge = save(tmp_path / "judge", settings, AutoModelForSequenceClassification)
    trainer = make_trainer(reward={"components": [{"kind": "reward_model", "model": str(judge)}]})
    texts = [" ".join([["w1", "w2", "w3", "w4", "w5", "w6", "w7"][index % 7] for index in range(count)]) for count in range(2, 15)]
    episodes = Episodes([""] * len(texts), texts, [False] * len(texts), [1] * len(texts))
    scores = trainer.models.scorer.parts(episodes)["reward_model"]
    plain, alone = AutoModelForSequenceClassification.from_pretrained(judge, pad_token_id=None).eval(), []
    with torch.no_grad():
        for text in texts:
            alone.append(plain(save_tokenizer(tmp_path / "words")(text, return_tensors="pt")["input_ids"]).logits[0, 0])
    expected: Tensor = torch.stack(alone)
    torch.testing.assert_close(scores, expected, atol=1e-5, rtol=0)
    check_before_training(trainer)
