"""The common set-up from end to end: a byte-level tokenizer without pad token, a reward model trained on pairs, and PPO that starts its
critic from it. Scores and values are those of plain forward passes, one text at a time."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from rlhf_studio.config import RewardTrainingConfig
from rlhf_studio.config.io import ConfigError
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.models.classifiers import normalise_scores
from rlhf_studio.engine.stages.reward_model.training import Preference, initialise_head, score_texts, train_reward_model
from rlhf_studio.inputs.preflight import inspect_run
from tests.engine.conftest import play, small_config
from tests.engine.small_models import config_of, save_prompts

pytestmark = pytest.mark.slow

TALES = ["A good film, I liked it.", "A bad film; it was dull.", "We saw a film", "The story is good", "The story is dull and long"]
PAIRS = [Preference(tale, " It was good.", " It was dull, dull, dull.") for tale in TALES]
CRITIC = {"kind": "separate", "start": "reward_model"}


def save_byte_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """As GPT-2's: byte-level BPE whose one special token begins and ends texts, and no pad token."""
    backend = Tokenizer(BPE())
    backend.pre_tokenizer, backend.decoder = ByteLevel(add_prefix_space=False), ByteLevelDecoder()
    trainer = BpeTrainer(vocab_size=300, special_tokens=["<|endoftext|>"], initial_alphabet=ByteLevel.alphabet(), show_progress=False)
    backend.train_from_iterator(TALES, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<|endoftext|>", eos_token="<|endoftext|>")
    tokenizer.save_pretrained(folder)
    return tokenizer


def save_models(folder: Path, family: str, *, add_pad: bool) -> PreTrainedTokenizerBase:
    """A random policy, and a reward model trained by our own code; with ``add_pad`` its tokenizer has one token more than the policy's."""
    tokenizer = save_byte_tokenizer(folder / "policy")
    assert tokenizer.pad_token is None
    config = config_of(family, len(tokenizer))
    config.pad_token_id, config.bos_token_id, config.eos_token_id = None, 0, 0
    torch.manual_seed(0)
    policy = AutoModelForCausalLM.from_config(config)
    policy.get_output_embeddings().weight.data[0] *= 40.0  # so that some responses end
    policy.save_pretrained(folder / "policy")
    if add_pad:
        tokenizer.add_special_tokens({"pad_token": "<pad>"})
        config.vocab_size = len(tokenizer)
    config.num_labels = 1
    reward = AutoModelForSequenceClassification.from_config(config)
    initialise_head(reward, seed=0)
    settings = RewardTrainingConfig(epochs=3, batch_size=2, learning_rate=1e-3, append_eos=True)
    record = train_reward_model(reward, tokenizer, PAIRS, settings, eval_pairs=PAIRS)
    assert record.eval_accuracy == 1.0
    normalise_scores(reward, score_texts(reward, tokenizer, TALES))
    reward.save_pretrained(folder / "reward")
    tokenizer.save_pretrained(folder / "reward")
    save_prompts(folder / "prompts.txt", TALES)
    return tokenizer


@pytest.mark.parametrize(("family", "add_pad"), [("gpt2", False), ("llama", True)])
def test_ppo_with_a_reward_model_and_a_critic_of_our_own_training(
    family: str, add_pad: bool, make_trainer: Callable[..., Trainer], tmp_path: Path
) -> None:
    save_models(tmp_path, family, add_pad=add_pad)
    reward = {"components": [{"kind": "reward_model", "model": str(tmp_path / "reward"), "append_eos": True}]}
    config = small_config(tmp_path, critic=CRITIC, reward=reward)
    assert inspect_run(config, tmp_path).problems == []
    trainer = make_trainer(critic=CRITIC, reward=reward)
    rollout = play(trainer)
    judge = AutoModelForSequenceClassification.from_pretrained(tmp_path / "reward").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "reward")
    offset = float(trainer.models.policy.value_head.bias.detach()) if family == "llama" else 0.0  # plain transformers leaves it out

    def plain(ids: torch.Tensor) -> float:
        with torch.no_grad():
            return float(judge(input_ids=ids[None]).logits[0, 0]) + offset

    for row in range(len(rollout.tokens)):
        prompt = rollout.tokens.prompt_ids[row][rollout.tokens.prompt_mask[row]]
        response = rollout.tokens.response_ids[row][rollout.tokens.mask[row]]
        for index in range(len(response)):
            assert float(rollout.values[row, index]) == pytest.approx(plain(torch.cat([prompt, response[:index]])), abs=1e-4)
        ids = tokenizer(rollout.prompts[row] + rollout.responses[row])["input_ids"] + ([0] if rollout.stopped[row] else [])
        assert float(rollout.scores.raw[row]) == pytest.approx(plain(torch.tensor(ids)), abs=1e-4)
    assert rollout.stopped.any() and not rollout.stopped.all()
    assert torch.isfinite(torch.tensor(list(trainer.step().metrics.values()))).all()


def test_a_critic_must_read_every_token_of_the_policy(make_trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    """The pad token that the policy has and the reward model lacks; and a layer with fewer rows than the policy can write."""
    save_models(tmp_path, "gpt2", add_pad=False)
    reward = {"components": [{"kind": "reward_model", "model": str(tmp_path / "reward")}]}
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "policy")
    policy = AutoModelForCausalLM.from_pretrained(tmp_path / "policy")
    policy.resize_token_embeddings(len(tokenizer) + 4, mean_resizing=False)
    policy.save_pretrained(tmp_path / "policy")
    with pytest.raises(ConfigError, match=r"critic.start: .* another vocabulary than the policy \(weights for 300 tokens, not 304\)"):
        make_trainer(critic=CRITIC, reward=reward)
    tokenizer.add_special_tokens({"pad_token": "<pad>"})
    tokenizer.save_pretrained(tmp_path / "policy")
    with pytest.raises(ConfigError, match=r"critic.start: .* another vocabulary than the policy \(no token '<pad>'\)"):
        make_trainer(critic=CRITIC, reward=reward)


def test_the_example_in_the_docs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Run as it stands, but for the model to start from; on pairs that one word tells apart it learns to tell them apart."""
    page = (Path(__file__).parents[2] / "docs" / "rewards.md").read_text(encoding="utf-8")
    example = next(block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "train_reward_model" in block)
    save_models(tmp_path, "gpt2", add_pad=False)
    changed = example.replace('"gpt2"', repr(str(tmp_path / "policy"))).replace("1e-5", "3e-3").replace("epochs=1", "epochs=4")
    assert changed.count("3e-3") == 1 and str(tmp_path) in changed
    (tmp_path / "train_reward.py").write_text(changed)
    rows = [{"prompt": tale, "chosen": " It was good.", "rejected": " It was dull."} for tale in TALES * 8]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    monkeypatch.chdir(tmp_path)
    runpy.run_path("train_reward.py")
    assert "the preferred response scores higher in 100% of 4 held-out pairs" in capsys.readouterr().out
    reward = AutoModelForSequenceClassification.from_pretrained("my-reward")
    assert reward.config.num_labels == 1 and AutoTokenizer.from_pretrained("my-reward").eos_token == "<|endoftext|>"
