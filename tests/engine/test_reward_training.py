"""Reward-model training against hand-made sums, exact shifts and preferences that can be learned."""

from __future__ import annotations

import math

import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    LlamaConfig,
    LlamaForSequenceClassification,
    PreTrainedTokenizerFast,
)

from rlhf_studio.engine.reward_training import (
    BradleyTerryObjective,
    EncodedPair,
    Preference,
    RewardTrainingConfig,
    encode_pair,
    initialise_head,
    normalise_scores,
    preference_accuracy,
    score_texts,
    train_reward_model,
)
from tests.engine.small_models import save_tokenizer

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
    assert encode_pair(tokenizer, pair, RewardTrainingConfig()) == EncodedPair((2, 3, 4), (2, 3, 5, 6))
    assert encode_pair(tokenizer, pair, RewardTrainingConfig(append_eos=True)) == EncodedPair((2, 3, 4, 1), (2, 3, 5, 6, 1))
    assert encode_pair(tokenizer, pair, RewardTrainingConfig(max_tokens=3)).rejected == (3, 5, 6)


@pytest.mark.parametrize("make", [make_model, make_llama])
def test_score_is_read_at_the_last_real_token(make, tokenizer: PreTrainedTokenizerFast) -> None:
    """Alone and without padding the last position is the last token; in a padded batch the score must be the same."""
    model = make()
    texts = ["w1 w2 w3 w4 w5", "w6", "w7 w8"]
    alone = []
    for text in texts:
        hidden = model.base_model(input_ids=torch.tensor([tokenizer(text)["input_ids"]])).last_hidden_state[0, -1]
        alone.append(float((model.score.weight[0] @ hidden).detach()))
    for batch_size in (1, 2, 3):
        assert score_texts(model, tokenizer, texts, batch_size=batch_size).tolist() == pytest.approx(alone, abs=1e-5)
    assert score_texts(model, tokenizer, []).shape == (0,)
    assert score_texts(model, tokenizer, [""]).isfinite().all()


def test_loss_is_minus_log_of_the_bradley_terry_probability(tokenizer: PreTrainedTokenizerFast) -> None:
    model = make_model()
    scores = {
        text: float(score_texts(model, tokenizer, [text]))
        for pair in PAIRS
        for text in (pair.prompt + pair.chosen, pair.prompt + pair.rejected)
    }
    expected = 0.0
    for pair in PAIRS:
        chosen, rejected = math.exp(scores[pair.prompt + pair.chosen]), math.exp(scores[pair.prompt + pair.rejected])
        expected -= math.log(chosen / (chosen + rejected))
    encoded = [encode_pair(tokenizer, pair, RewardTrainingConfig()) for pair in PAIRS]
    objective = BradleyTerryObjective(pad_id=0)
    assert float(objective.loss_sum(model, encoded).detach()) == pytest.approx(expected, abs=1e-5)
    assert objective.count(encoded) == 4


def test_learns_a_preference_and_reports_it(tokenizer: PreTrainedTokenizerFast) -> None:
    model, reported = make_model(), []
    unseen = [Preference("w9", " w5 w10", " w8 w10"), Preference("w2", " w6", " w7")]
    config = RewardTrainingConfig(epochs=40, batch_size=2, learning_rate=3e-3)
    record = train_reward_model(model, tokenizer, PAIRS, config, eval_pairs=unseen, progress=reported.append)
    assert record.steps == len(record.losses) == len(reported) == 80
    assert record.losses[0] > 0.3 > 0.1 > record.losses[-1]
    assert record.eval_accuracy == 1.0
    margins = score_texts(model, tokenizer, ["w9 w5 w10", "w2 w6"]) - score_texts(model, tokenizer, ["w9 w8 w10", "w2 w7"])
    assert record.eval_margin == pytest.approx(float(margins.mean()), abs=1e-5)
    assert record.eval_loss == pytest.approx(float((1 + (-margins).exp()).log().mean()), abs=1e-5)
    assert not model.training


def test_no_eval_pairs_no_eval_figures(tokenizer: PreTrainedTokenizerFast) -> None:
    record = train_reward_model(make_model(), tokenizer, PAIRS, RewardTrainingConfig())
    assert (record.eval_loss, record.eval_accuracy, record.eval_margin) == (None, None, None)


def test_accuracy_counts_ties_half() -> None:
    assert preference_accuracy(torch.tensor([1.0, -2.0, 0.0, 3.0])) == 0.625


def test_head_is_drawn_with_variance_one_over_hidden_size_plus_one() -> None:
    torch.manual_seed(0)
    model = GPT2ForSequenceClassification(GPT2Config(vocab_size=4, n_positions=4, n_embd=4096, n_layer=0, n_head=1, num_labels=1))
    initialise_head(model, seed=1)
    weight = model.score.weight.detach().clone()
    # 4096 draws: the sample standard deviation is within 5 % and the mean within 5 standard errors.
    assert float(weight.std()) == pytest.approx(1 / math.sqrt(4097), rel=0.05)
    assert abs(float(weight.mean())) < 5 / 4097
    initialise_head(model, seed=1)
    assert torch.equal(weight, model.score.weight)
    model.score.bias = torch.nn.Parameter(torch.ones(1))
    initialise_head(model, seed=2)
    assert not torch.equal(weight, model.score.weight) and float(model.score.bias.detach()) == 0.0


def test_normalised_scores_have_mean_zero_and_deviation_one(tokenizer: PreTrainedTokenizerFast) -> None:
    model = make_model()
    texts = [f"w{first} w{second}" for first in range(6) for second in range(5)]
    before = score_texts(model, tokenizer, texts)
    normalise_scores(model, before)
    after = score_texts(model, tokenizer, texts)
    torch.testing.assert_close(after, (before - before.mean()) / before.std(), atol=1e-4, rtol=0)
    with pytest.raises(ValueError, match="do not vary"):
        normalise_scores(model, torch.ones(3))


def test_what_cannot_be_normalised_or_initialised() -> None:
    with pytest.raises(ValueError, match="no final LayerNorm"):
        normalise_scores(make_llama(), torch.tensor([0.0, 1.0]))
    bert = BertForSequenceClassification(
        BertConfig(vocab_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, num_labels=1)
    )
    with pytest.raises(ValueError, match="BertForSequenceClassification has no linear layer named score"):
        initialise_head(bert, seed=0)


def test_bad_input_is_refused(tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(ValueError, match="no preference pairs"):
        train_reward_model(make_model(), tokenizer, [], RewardTrainingConfig())
    with pytest.raises(ValueError, match="has one output, this one has 3"):
        train_reward_model(make_model(labels=3), tokenizer, PAIRS, RewardTrainingConfig())
    tokenizer.pad_token = tokenizer.eos_token
    with pytest.raises(ValueError, match="a pad token of its own"):
        train_reward_model(make_model(), tokenizer, PAIRS, RewardTrainingConfig())


def test_a_broken_model_stops_with_its_cause(tokenizer: PreTrainedTokenizerFast) -> None:
    model = make_model()
    with torch.no_grad():
        model.score.weight[0, 0] = math.inf
    with pytest.raises(FloatingPointError, match="the loss is"):
        train_reward_model(model, tokenizer, PAIRS, RewardTrainingConfig())
