"""Encoder classifiers as rewards, number formats, what is read, and ensembles: against plain transformers, one unpadded text at a time."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    DistilBertConfig,
    PreTrainedTokenizerFast,
    RobertaConfig,
)

from rlhf_studio.config import EnsembleReward, RewardConfig
from rlhf_studio.config.io import ConfigError
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.rewards.kinds.ensemble import combine
from rlhf_studio.engine.rewards.scorer import Episodes, build_scorer
from tests.engine.small_models import WORDS, save_reward_model

CPU = Compute(torch.device("cpu"), torch.float32)
POSITIONS = 64
FAMILIES = ["bert", "distilbert", "roberta"]
PROMPTS = ["w20 ", "w21 w22 w23 ", "", "w24 "]
RESPONSES = ["w1 w2 w3 w4 w5", "w6", "w7 w8", "w9 w10 w11 w3 w3 w3 w3"]


def save_encoder(folder: Path, family: str, *, labels: int = 2, seed: int = 0) -> Path:
    """A random classifier of the family; its tokenizer adds [CLS] and [SEP], and gives token type 1 throughout."""
    # RoBERTa's pad id is 1 in every checkpoint, and its positions are counted from behind it
    special = ["<s>", "<pad>", "</s>"] if family == "roberta" else ["[PAD]", "[CLS]", "[SEP]"]
    start, pad, end = (special[0], special[1], special[2]) if family == "roberta" else (special[1], special[0], special[2])
    ids = {token: number for number, token in enumerate([*special, *WORDS])}
    backend = Tokenizer(WordLevel(ids, unk_token=pad))
    backend.pre_tokenizer = WhitespaceSplit()
    template = f"{start}:1 $A:1 {end}:1" if family == "bert" else f"{start} $A {end}"
    backend.post_processor = TemplateProcessing(single=template, special_tokens=[(start, ids[start]), (end, ids[end])])
    names = ["input_ids", "token_type_ids", "attention_mask"]
    PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token=pad, cls_token=start, sep_token=end, eos_token=end, model_input_names=names
    ).save_pretrained(folder)
    common = {"vocab_size": len(ids), "num_labels": labels, "pad_token_id": ids[pad]}
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = {
        "bert": lambda: BertConfig(max_position_embeddings=POSITIONS, type_vocab_size=2, **sizes, **common),
        "roberta": lambda: RobertaConfig(max_position_embeddings=POSITIONS + 2, type_vocab_size=2, **sizes, **common),
        "distilbert": lambda: DistilBertConfig(max_position_embeddings=POSITIONS, dim=32, hidden_dim=64, n_layers=2, n_heads=4, **common),
    }[family]()
    torch.manual_seed(seed)
    model = AutoModelForSequenceClassification.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():  # the usual start is so small that every text would score alike
            parameter.normal_(std=0.3)
    model.save_pretrained(folder)
    return folder


def plain(folder: Path, text: str, label: int = 1, **keywords: Any) -> float:
    """Plain transformers on one text, as its documentation shows it."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder, **keywords).eval()
    inputs = dict(tokenizer(text, return_tensors="pt"))
    if model.config.model_type == "distilbert":
        inputs.pop("token_type_ids", None)
    with torch.no_grad():
        return float(model(**inputs).logits[0, label])


def scores_of(folder: Path, prompts: list[str], responses: list[str], compute: Compute = CPU, **settings: Any) -> list[float]:
    component = {"kind": "reward_model", "model": str(folder), "label": "1", **settings}
    scorer = build_scorer(RewardConfig.model_validate({"components": [component]}), compute, lambda text, fraction: None)
    count = len(responses)
    return scorer(Episodes(prompts, responses, [True] * count, [1] * count)).raw.tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_an_encoder_scores_a_batch_as_transformers_scores_each_text(tmp_path: Path, family: str) -> None:
    folder = save_encoder(tmp_path, family)
    actual = scores_of(folder, PROMPTS, RESPONSES, batch_size=3)
    expected = [plain(folder, prompt + response) for prompt, response in zip(PROMPTS, RESPONSES, strict=True)]
    assert actual == pytest.approx(expected, abs=1e-5)
    assert statistics.pstdev(actual) > 0.01  # the texts do differ


@pytest.mark.parametrize(("family", "limit"), [("bert", 8), ("roberta", 512)])
def test_a_long_text_is_cut_in_its_middle_between_class_and_separator(tmp_path: Path, family: str, limit: int) -> None:
    """By the setting, or by the 64 positions that each of the models has; RoBERTa has 66 rows for them."""
    folder = save_encoder(tmp_path, family)
    words = [f"w{index % 25}" for index in range(100)]
    kept = min(limit, POSITIONS) - 2
    actual = scores_of(folder, ["", "w1 "], [" ".join(words), "w2"], max_tokens=limit)
    assert actual == pytest.approx([plain(folder, " ".join(words[-kept:])), plain(folder, "w1 w2")], abs=1e-5)


def test_the_response_alone_can_be_read(tmp_path: Path) -> None:
    folder = save_encoder(tmp_path, "bert")
    alone = scores_of(folder, PROMPTS, RESPONSES, reads="response")
    assert alone == pytest.approx(scores_of(folder, [""] * 4, RESPONSES), abs=1e-6)
    both = scores_of(folder, PROMPTS, RESPONSES)
    assert abs(both[0] - alone[0]) > 1e-3
    assert both[2] == pytest.approx(alone[2], abs=1e-6)  # it has no prompt


def test_the_number_format_is_the_components_own(tmp_path: Path) -> None:
    """bfloat16 has 8 bits: the score differs from float32's a little, and equals the model's that is wholly in that format closely."""
    folder = save_encoder(tmp_path, "bert")
    exact, short = (scores_of(folder, PROMPTS, RESPONSES, dtype=dtype) for dtype in ("float32", "bfloat16"))
    assert exact == pytest.approx(scores_of(folder, PROMPTS, RESPONSES), abs=1e-6)  # auto: the run's format
    assert short != exact and short == pytest.approx(exact, rel=0.1, abs=0.1)
    half = Compute(torch.device("cpu"), torch.bfloat16)
    assert scores_of(folder, PROMPTS, RESPONSES, half) == short
    assert scores_of(folder, PROMPTS, RESPONSES, half, dtype="float32") == pytest.approx(exact, abs=1e-6)


# --- ensembles ---------------------------------------------------------------------------------------------------------------


def test_combining_by_hand() -> None:
    """Scores 1, 4, 7 have mean 4 and deviation sqrt((9 + 0 + 9) / 3) = 2.449."""
    scores = torch.tensor([[1.0, 2.0], [4.0, 2.0], [7.0, 2.0]])
    assert combine(scores, "mean", 1.0).tolist() == [4.0, 2.0]
    assert combine(scores, "minimum", 1.0).tolist() == [1.0, 2.0]
    assert combine(scores, "mean_minus_std", 0.5).tolist() == pytest.approx([4 - 0.5 * 6**0.5, 2.0])
    assert combine(scores, "mean_minus_std", 0.0).tolist() == [4.0, 2.0]


def test_an_ensemble_of_different_families(tmp_path: Path) -> None:
    folders = [save_encoder(tmp_path / family, family, seed=seed) for seed, family in enumerate(FAMILIES)]
    each = list(zip(*(scores_of(folder, PROMPTS, RESPONSES) for folder in folders), strict=True))
    component = {
        "kind": "ensemble",
        "models": f"{folders[0]}, {folders[1]}\n{folders[2]}\n",
        "label": "1",
        "combine": "mean_minus_std",
        "std_weight": 2.0,
        "weight": 3.0,
        "name": "judges",
    }
    scorer = build_scorer(RewardConfig.model_validate({"components": [component]}), CPU, lambda text, fraction: None)
    actual = scorer(Episodes(PROMPTS, RESPONSES, [True] * 4, [1] * 4))
    assert actual.raw.tolist() == pytest.approx([3 * (statistics.fmean(row) - 2 * statistics.pstdev(row)) for row in each], abs=1e-4)
    assert list(actual.parts) == ["judges"]  # the members are shown beside the sum, not in it
    assert list(actual.members) == [f"judges: {family}" for family in FAMILIES]
    for index, family in enumerate(FAMILIES):
        assert actual.members[f"judges: {family}"].tolist() == pytest.approx([3 * row[index] for row in each], abs=1e-4)


def test_members_have_curves_of_their_own_in_a_run(make_trainer: Any, tmp_path: Path) -> None:
    folders = [save_reward_model(tmp_path / name, seed=seed) for seed, name in enumerate(("one", "two"))]
    component = {"kind": "ensemble", "models": f"{folders[0]},{folders[1]}", "name": "judges"}
    record = make_trainer(reward={"components": [component]}).step()
    curves = [name for name in record.metrics if name.startswith("reward/")]
    assert curves == ["reward/judges", "reward/judges: one", "reward/judges: two"]
    combined, *each = (record.metrics[name] for name in curves)
    assert combined == pytest.approx(statistics.fmean(each), abs=1e-5) and combined == record.metrics["objective/scores"]
    assert list(record.rollouts[0].parts) == ["judges"]


def test_member_curves_can_be_left_out(tmp_path: Path) -> None:
    folders = [save_encoder(tmp_path / name, "bert", seed=seed) for seed, name in enumerate(("one", "two"))]
    component = EnsembleReward(models=f"{folders[0]},{folders[1]}", label="1", member_curves=False)
    actual = build_scorer(RewardConfig(components=[component]), CPU, lambda text, fraction: None)(Episodes(["w1"], ["w2"], [True], [1]))
    assert actual.members == {} and len(actual.parts) == 1


def test_a_member_that_cannot_be_loaded_is_named_at_the_setting(tmp_path: Path) -> None:
    folder = save_encoder(tmp_path / "good", "bert")
    for models, label, field, part in (
        (f"{folder}, {tmp_path / 'none'}", "1", "reward.components.0.models", "none"),
        (f"{folder}, {folder}", "happy", "reward.components.0.label", "no label 'happy'"),
    ):
        with pytest.raises(ConfigError) as caught:
            settings = RewardConfig(components=[EnsembleReward(models=models, label=label)])
            build_scorer(settings, CPU, lambda text, fraction: None)
        assert caught.value.problems[0].field == field and part in caught.value.problems[0].message
