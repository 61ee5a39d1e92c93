"""Reward-model training against hand-made sums, exact shifts and preferences that can be learned."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    GPT2Config,
    GPT2ForSequenceClassification,
    LlamaConfig,
    LlamaForSequenceClassification,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from rlhf_studio.config import RewardTrainingConfig
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.compute.lanes import Lanes
from rlhf_studio.engine.models.classifiers import last_token_logits, normalise_scores
from rlhf_studio.engine.models.load_model import load_reward_model
from rlhf_studio.engine.stages.reward_model.training import (
    BradleyTerryObjective,
    EncodedPair,
    Preference,
    encode_pair,
    initialise_head,
    preference_accuracy,
    score_texts,
    train_reward_model,
)
from rlhf_studio.engine.stages.supervised.trainer import SupervisedTrainer
from tests.engine.small_models import config_of, save_tokenizer

PAIRS = [Preference("w1", f" w{good} w3", f" w{bad} w3 w4") for good, bad in ((5, 7), (6, 8), (5, 8), (6, 7))]


@pytest.fixture
def tokenizer(tmp_path) -> PreTrainedTokenizerFast:
    return save_tokenizer(tmp_path / "tokenizer")


def make_model(labels: int = 1) -> GPT2ForSequenceClassification:
    torch.manual_seed(0)
    shape = GPT2Config(
        vocab_size=30, n_positions=32, n_embd=16, n_layer=2, n_head=2, initializer_range=0.3, num_labels=labels,
        resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1, pad_token_id=0,
    )  # fmt: skip
    return GPT2ForSequenceClassification(shape).eval()


def make_llama() -> LlamaForSequenceClassification:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    return LlamaForSequenceClassification(LlamaConfig(vocab_size=30, num_labels=1, pad_token_id=0, **sizes)).eval()


def test_pairs_are_encoded_as_whole_texts(tokenizer: PreTrainedTokenizerFast) -> None:
    pair = Preference("w0 w1", " w2", " w3 w4")
    assert encode_pair(tokenizer, pair, False, 512) == EncodedPair((), (2, 3, 4), (2, 3, 5, 6))
    assert encode_pair(tokenizer, pair, True, 512) == EncodedPair((), (2, 3, 4, 1), (2, 3, 5, 6, 1))
    with pytest.warns(UserWarning, match="lose their beginning"):
        assert encode_pair(tokenizer, pair, False, 3).rejected == (3, 5, 6)


def test_scoring_leaves_the_configuration_alone(tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes share a model: what one of them wrote into its configuration, another would read. Even where every id is in a text."""
    model = make_model()
    rows = [list(range(30)), [5], [7, 8, 0]]
    alone = [float(model(input_ids=torch.tensor([row])).logits[0, 0].detach()) for row in rows[:2]]
    written: list[str] = []
    monkeypatch.setattr(type(model.config), "__setattr__", lambda config, name, value: written.append(name))
    scores = last_token_logits(model, rows, None)[:, 0].tolist()
    assert written == [] and scores[:2] == pytest.approx(alone, abs=1e-5)


def test_a_step_says_how_its_pairs_were_ordered_before_it(tokenizer: PreTrainedTokenizerFast) -> None:
    """Against the scores of each text alone, however the batch is cut. The third pair is a tie, the last one is the first turned round."""
    changes = ({}, {}, {"tie": True}, {"weight": 0.5}, {})
    encoded = [
        replace(encode_pair(tokenizer, pair, False, 512), **change) for pair, change in zip([*PAIRS, PAIRS[0]], changes, strict=True)
    ]
    encoded[4] = replace(encoded[4], chosen=encoded[4].rejected, rejected=encoded[4].chosen)
    model = make_llama()
    gaps = [score_texts(model, tokenizer, [pair.prompt + pair.chosen, pair.prompt + pair.rejected]).tolist() for pair in PAIRS]
    _, b, _, d = (chosen - rejected for chosen, rejected in gaps)
    for micro_batch, lanes in ((0, 1), (2, 2), (1, 1)):
        config = RewardTrainingConfig(batch_size=5, micro_batch_size=micro_batch)
        compute = Compute(torch.device("cpu"), torch.float32, lanes=Lanes(lanes).with_one_row_each())
        numbers = SupervisedTrainer(make_llama(), encoded, BradleyTerryObjective(0), config, compute, 0).step()
        assert numbers.sums["decided"] == 4 and numbers.sums["right"] == 1 + (b > 0) + (d > 0)
        assert numbers.sums["chosen"] - numbers.sums["rejected"] == pytest.approx(b + d, abs=1e-4)


def test_learns_a_preference_and_reports_it(tokenizer: PreTrainedTokenizerFast) -> None:
    model, reported = make_model(), []
    unseen = [Preference("w9", " w5 w10", " w8 w10"), Preference("w2", " w6", " w7")]
    config = RewardTrainingConfig(epochs=25, batch_size=2, learning_rate=5e-3)
    record = train_reward_model(model, tokenizer, PAIRS, config, eval_pairs=unseen, on_step=reported.append)
    assert record.steps == len(record.losses) == len(reported) == 50
    assert record.losses[0] > 0.3 > 0.1 > record.losses[-1]
    assert record.eval_accuracy == 1.0
    margins = score_texts(model, tokenizer, ["w9 w5 w10", "w2 w6"]) - score_texts(model, tokenizer, ["w9 w8 w10", "w2 w7"])
    assert record.eval_margin == pytest.approx(float(margins.mean()), abs=1e-5)
    assert record.eval_loss == pytest.approx(float((1 + (-margins).exp()).log().mean()), abs=1e-5)
    assert not model.training


def test_accuracy_counts_ties_half() -> None:
    assert preference_accuracy(torch.tensor([1.0, -2.0, 0.0, 3.0])) == 0.625


def make_classifier(family: str) -> PreTrainedModel:
    """A random one with weights large enough that texts score far apart."""
    torch.manual_seed(0)
    if family == "bert":
        sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
        config: PretrainedConfig = BertConfig(vocab_size=30, pad_token_id=0, initializer_range=0.3, **sizes)
    else:
        config = config_of(family, 30)
        setattr(config, "init_std" if family == "opt" else "initializer_range", 0.3)
    config.num_labels = 1
    return AutoModelForSequenceClassification.from_config(config).eval()


def plain_scores(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> torch.Tensor:
    """By transformers alone, one text after the other."""
    with torch.no_grad():
        return torch.stack([model(input_ids=torch.tensor([tokenizer(text)["input_ids"]])).logits[0, 0] for text in texts])


@pytest.mark.parametrize("family", ["gpt2", "opt", "bert", "llama"])
def test_normalised_scores_of_every_family_survive_saving(family: str, tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    model, texts = make_classifier(family), [f"w{first} w{second} w3" for first in range(4) for second in range(5)]
    before = plain_scores(model, tokenizer, texts)
    normalise_scores(model, before)
    expected = (before - before.mean()) / before.std()
    torch.testing.assert_close(score_texts(model, tokenizer, texts), expected, atol=1e-4, rtol=0)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    ours = load_reward_model(str(tmp_path), "main", "", torch.float32, lambda text, fraction: None, "reward")
    torch.testing.assert_close(plain_scores(ours.model, tokenizer, texts), expected, atol=1e-4, rtol=0)
    plain = plain_scores(AutoModelForSequenceClassification.from_pretrained(tmp_path).eval(), tokenizer, texts)
    offset = -float(before.mean() / before.std()) if family in ("opt", "llama", "qwen2", "gemma2") else 0.0  # see rescale_scores
    torch.testing.assert_close(plain + offset, expected, atol=1e-4, rtol=0)


def test_what_has_no_score_head() -> None:
    two = GPT2ForSequenceClassification(GPT2Config(vocab_size=4, n_positions=4, n_embd=4, n_layer=1, n_head=1, num_labels=2))
    with pytest.raises(ValueError, match="do not vary"):
        normalise_scores(make_model(), torch.ones(3))
    for use in (lambda: initialise_head(two, seed=0), lambda: normalise_scores(two, torch.tensor([0.0, 1.0]))):
        with pytest.raises(ValueError, match="GPT2ForSequenceClassification has no linear layer with one output behind its trunk"):
            use()


@pytest.mark.parametrize("pad", [None, "<eos>"])
def test_a_tokenizer_needs_no_pad_token(pad: str | None, tokenizer: PreTrainedTokenizerFast) -> None:
    """The same training whatever the pad token is, real end tokens counted; the saved model passes over none of them."""
    settings = RewardTrainingConfig(epochs=2, batch_size=2, learning_rate=3e-3, append_eos=True)
    usual, other = make_llama(), make_llama()
    expected = train_reward_model(usual, tokenizer, PAIRS, settings, max_tokens=16, eval_pairs=PAIRS)
    tokenizer.pad_token = pad
    record = train_reward_model(other, tokenizer, PAIRS, settings, max_tokens=16, eval_pairs=PAIRS)
    assert record.losses == pytest.approx(expected.losses, abs=1e-6)
    assert record.eval_margin == pytest.approx(expected.eval_margin, abs=1e-6)
    assert other.config.pad_token_id is None
    ended = ["w1 <eos> <eos>", "w2 w3 <eos>", "w4"]
    torch.testing.assert_close(score_texts(other, tokenizer, ended), plain_scores(usual, tokenizer, ended), atol=1e-5, rtol=0)
