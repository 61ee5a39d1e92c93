"""What a response earns: rules by hand, reward models text by text, and the sum that PPO sees."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers.processors import TemplateProcessing

from rlhf_studio.config import KeywordReward, LengthReward, RegexReward, RepetitionReward, RewardConfig, RewardModelReward
from rlhf_studio.config.io import ConfigError
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.models.load_model import load_reward_model
from rlhf_studio.engine.rewards.component import Component
from rlhf_studio.engine.rewards.episodes import Answer
from rlhf_studio.engine.rewards.errors import ComponentError
from rlhf_studio.engine.rewards.kinds.reward_model import RewardModelScorer
from rlhf_studio.engine.rewards.kinds.rules import keyword_rule, length_rule, per_text, regex_rule, repetition_rule
from rlhf_studio.engine.rewards.registry import builders
from rlhf_studio.engine.rewards.scorer import Episodes, RewardError, Scorer, build_scorer, component_names
from rlhf_studio.inputs.world.gold import gold_score
from tests.engine.small_models import WORDS, save_reward_model, save_tokenizer

CPU = Compute(torch.device("cpu"), torch.float32)


def silent(text: str, fraction: float | None) -> None:
    """Takes reports of progress."""


def episodes(responses: list[str], *, stopped: list[bool] | None = None, lengths: list[int] | None = None, prompt: str = "") -> Episodes:
    count = len(responses)
    return Episodes([prompt] * count, responses, stopped or [True] * count, lengths or [len(text.split()) for text in responses])


# --- rules -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tokens", "score"), [(20, 1.0), (25, 0.5), (15, 0.5), (18, 0.8), (30, 0.0), (10, 0.0), (0, 0.0), (500, 0.0)])
def test_length_rule(tokens: int, score: float) -> None:
    assert length_rule(LengthReward(target=20, tolerance=10))("whatever", tokens) == pytest.approx(score)


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("good", 1), ("Good, GOOD and good!", 3),
        ("good good good good", 3),  # the cap
        ("goods ungood good_", 0),  # whole words only
        ("what a lovely day", 1),
        ("c++ is good", 2),  # signs are letters here, not patterns
        ("c+", 0), ("", 0), ("größer", 1), ("GRÖSSER Größer", 1),
    ],
)  # fmt: skip
def test_keyword_rule(text: str, score: float) -> None:
    assert keyword_rule(KeywordReward(words="good, lovely ,c++,, größer", cap=3))(text, 0) == score


@pytest.mark.parametrize(
    ("pattern", "text", "score"), [(r"\.$", "The end.", 1), (r"\.$", "No. end", 0), ("^$", "", 1), ("(?i)yes", "YES", 1)]
)
def test_regex_rule(pattern: str, text: str, score: float) -> None:
    assert regex_rule(RegexReward(pattern=pattern))(text, 0) == score


def test_a_costly_pattern_is_stopped() -> None:
    rule = regex_rule(RegexReward(pattern="(a+)+$", timeout=0.01))
    assert rule("aaaa", 0) == 1.0
    with pytest.raises(ComponentError, match=r"pattern '\(a\+\)\+\$' took longer than 0.01 s"):
        rule("a" * 5000 + "b", 0)


@pytest.mark.parametrize(
    ("text", "n", "score"),
    [
        ("a b c d", 1, 0.0), ("a a a a", 1, 0.75), ("a b a b a b", 2, 1 - 2 / 5), ("a b c a b c", 3, 1 - 3 / 4),
        ("a  b\na b", 2, 1 - 2 / 3),  # any white space parts words
        ("a b", 3, 0.0), ("", 1, 0.0),
    ],
)  # fmt: skip
def test_repetition_rule(text: str, n: int, score: float) -> None:
    assert repetition_rule(RepetitionReward(n=n))(text, 0) == pytest.approx(score)


# --- reward models -----------------------------------------------------------------------------------------------------------


class Asked(RewardModelScorer):
    """Takes the columns of :class:`Episodes` one by one."""

    def __call__(self, prompts: list[str], responses: list[str], stopped: list[bool]) -> torch.Tensor:  # type: ignore[override]
        return super().__call__(Episodes(prompts, responses, stopped, [1] * len(prompts)))


def make_scorer(folder: Path, **settings: Any) -> Asked:
    component = RewardModelReward(model=str(folder), **settings)
    loaded = load_reward_model(str(folder), "main", component.label, torch.float32, silent, "reward.components.0")
    return Asked("judge", loaded, component, CPU)


def alone(scorer: Asked, ids: list[int], label: int = 0) -> float:
    """The model's answer to one unpadded text: its trunk's last hidden state times the head, without the model's own search for it."""
    model = scorer._model
    with torch.no_grad():
        hidden = model.base_model(torch.tensor([ids])).last_hidden_state[0, -1]
        bias = model.score.bias[label] if model.score.bias is not None else 0.0
        return float(hidden @ model.score.weight[label] + bias)


def ids_of(text: str) -> list[int]:
    """The ids of :func:`save_tokenizer`, by hand: <pad> 0, <eos> 1, then the words; anything else is <pad>."""
    return [WORDS.index(word) + 2 if word in WORDS else 0 for word in text.split()]


TEXTS = ["w1 w2 w3 w4 w5", "w6", "w7 w8", "w9 w10 w11", "w2 w2 w2 w2"]
STOPPED = [True, False, True, True, False]


@pytest.mark.parametrize(("family", "pad", "batch_size"), [("gpt2", "<eos>", 2), ("llama", None, 64), ("llama", "<pad>", 1)])
def test_a_batch_scores_as_each_text_alone(tmp_path: Path, family: str, pad: str | None, batch_size: int) -> None:
    """The end token is scored, not the token before it, whether pad is its own token, the end token, or missing."""
    folder = save_reward_model(tmp_path, family)
    save_tokenizer(folder, pad=pad)  # type: ignore[arg-type]
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "pad_token_id": {"<pad>": 0, "<eos>": 1}.get(pad or "")}))
    scorer = make_scorer(folder, append_eos=True, batch_size=batch_size)
    prompts = ["w20 ", "w21 w22 ", "", "w23 ", "w24 "]
    scores = scorer(prompts, TEXTS, STOPPED)
    assert scores.dtype == torch.float32 and scores.shape == (5,)
    for prompt, text, stopped, score in zip(prompts, TEXTS, STOPPED, scores.tolist(), strict=True):
        ids = ids_of(prompt + text) + ([1] if stopped else [])
        assert score == pytest.approx(alone(scorer, ids), abs=1e-5)


def test_the_end_token_is_appended_only_when_asked_and_only_once(tmp_path: Path) -> None:
    folder = save_reward_model(tmp_path)
    without, with_end = make_scorer(folder), make_scorer(folder, append_eos=True)
    assert without([""], ["w1 w2"], [True])[0] == pytest.approx(alone(without, [3, 4]), abs=1e-5)
    assert with_end([""], ["w1 w2"], [False])[0] == pytest.approx(alone(without, [3, 4]), abs=1e-5)
    assert with_end([""], ["w1 w2"], [True])[0] == pytest.approx(alone(without, [3, 4, 1]), abs=1e-5)
    assert with_end([""], ["w1 w2 <eos>"], [True])[0] == pytest.approx(alone(without, [3, 4, 1]), abs=1e-5)


@pytest.mark.parametrize(("length", "limit", "kept"), [(12, 8, 8), (100, 512, 64)])
def test_long_texts_are_cut_on_the_left(tmp_path: Path, length: int, limit: int, kept: int) -> None:
    """By the setting, or by the model's 64 positions when those are fewer."""
    scorer = make_scorer(save_reward_model(tmp_path), max_tokens=limit)
    words = [f"w{index % 25}" for index in range(length)]
    half = length // 2
    actual = scorer([" ".join(words[:half]) + " "], [" ".join(words[half:])], [True])
    assert actual[0] == pytest.approx(alone(scorer, ids_of(" ".join(words))[-kept:]), abs=1e-5)


def test_several_labels(tmp_path: Path) -> None:
    folder = save_reward_model(tmp_path, labels=3)
    logits = [alone(make_scorer(folder, label="0"), [3, 4], label) for label in range(3)]
    for label in range(3):
        assert make_scorer(folder, label=str(label))([""], ["w1 w2"], [True])[0] == pytest.approx(logits[label], abs=1e-5)
        shares = [math.exp(value) for value in logits]
        probability = make_scorer(folder, label=f"LABEL_{label}", output="probability")([""], ["w1 w2"], [True])
        assert probability[0] == pytest.approx(shares[label] / sum(shares), abs=1e-5)


def test_probability_of_a_single_output(tmp_path: Path) -> None:
    folder = save_reward_model(tmp_path)
    logit = float(make_scorer(folder)([""], ["w1 w2"], [True])[0])
    assert make_scorer(folder, output="probability")([""], ["w1 w2"], [True])[0] == pytest.approx(1 / (1 + math.exp(-logit)), abs=1e-6)


def test_texts_are_tokenised_anew_for_a_model_with_other_ids(tmp_path: Path) -> None:
    """The same words in reverse order: the reward model must see its own ids, not the policy's."""
    folder = save_reward_model(tmp_path, words=WORDS[::-1])
    scorer = make_scorer(folder)
    own = [WORDS[::-1].index(word) + 2 for word in ("w1", "w2", "w3")]
    assert own != ids_of("w1 w2 w3")
    assert scorer(["w1 "], ["w2 w3"], [True])[0] == pytest.approx(alone(scorer, own), abs=1e-5)


def test_a_start_token_that_a_chat_template_wrote_stands_there_once(tmp_path: Path) -> None:
    """The tokenizer begins every text with <eos>, as Llama's does with <s>; the prompt begins with it in letters already."""
    folder = save_reward_model(tmp_path)
    tokenizer = save_tokenizer(folder, WORDS)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="<eos> $A", special_tokens=[("<eos>", 1)])
    tokenizer.bos_token = "<eos>"
    tokenizer.save_pretrained(folder)
    scorer = make_scorer(folder)
    for score in scorer(["<eos> w1 ", "w1 "], ["w2", "w2"], [True, True]).tolist():
        assert score == pytest.approx(alone(scorer, [1, 3, 4]), abs=1e-5)


# --- the sum -----------------------------------------------------------------------------------------------------------------


def scorer_of(*components: dict[str, Any], **settings: Any) -> Scorer:
    return build_scorer(RewardConfig.model_validate({"components": list(components), **settings}), CPU, silent)


LENGTH = {"kind": "length", "target": 4, "tolerance": 4}
FOUR, TWO, EIGHT = "a b c d", "a b", "a b c d e f g h"


def test_weighted_sum_of_components() -> None:
    scorer = scorer_of({**LENGTH, "weight": 2.0}, {"kind": "keywords", "words": "a,b", "weight": -0.5, "name": "words"})
    scores = scorer(episodes([FOUR, TWO, EIGHT]))
    assert {name: part.tolist() for name, part in scores.parts.items()} == {"length": [2.0, 1.0, 0.0], "words": [-1.0, -1.0, -1.0]}
    assert scores.raw.tolist() == scores.shaped.tolist() == [1.0, 0.0, -1.0]
    assert scores.gold is None


def test_reward_model_as_a_component(tmp_path: Path) -> None:
    folder = save_reward_model(tmp_path)
    scorer = scorer_of({"kind": "reward_model", "model": str(folder), "weight": 3.0})
    actual = scorer(episodes(["w1 w2"], prompt="w3 ")).raw
    assert actual.tolist() == pytest.approx((3 * make_scorer(folder)(["w3 "], ["w1 w2"], [True])).tolist())


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["", ""], ["length", "length 2"]), (["a", "a", "a"], ["a", "a 2", "a 3"]), (["a 2", "a", "a"], ["a 2", "a", "a 3"]),
        (["good film", "good"], ["good film", "good"]), (["a", "a", "a 2"], ["a", "a 2", "a 2 2"]),
    ],
)  # fmt: skip
def test_every_component_has_a_name_of_its_own(names: list[str], expected: list[str]) -> None:
    """Scores are kept by name: two of one name would be one."""
    settings = RewardConfig(components=[LengthReward(name=name) for name in names])
    assert component_names(settings) == expected
    assert len(scorer_of(*[{**LENGTH, "name": name} for name in names])(episodes([FOUR])).parts) == len(names)


def test_scaling_follows_all_scores_so_far() -> None:
    """Scores 1, 0.5, 0 have mean 0.5 and sample deviation 0.5; with a fourth score 1 they are 0.625 and 0.4787."""
    for scaling, first, second in (("scale", [2.0, 1.0, 0.0], 1 / 0.478714), ("normalise", [1.0, 0.0, -1.0], 0.375 / 0.478714)):
        scorer = scorer_of(LENGTH, scaling=scaling)
        assert scorer(episodes([FOUR, TWO, EIGHT])).shaped.tolist() == pytest.approx(first)
        later = scorer(episodes([FOUR]))
        assert later.shaped.tolist() == pytest.approx([second], rel=1e-5)
        assert later.raw.tolist() == [1.0]


def test_clip_comes_after_scaling_and_the_penalty_last() -> None:
    scorer = scorer_of(LENGTH, scaling="scale", score_clip=1.5, missing_eos_penalty=1.0)
    shaped = scorer(episodes([FOUR, TWO, EIGHT], stopped=[False, True, False])).shaped
    assert shaped.tolist() == pytest.approx([0.5, 1.0, -1.0])


def test_gold_is_the_worlds_own_score() -> None:
    responses = [" I loved the film.", " nonsense nonsense"]
    gold = scorer_of(LENGTH, gold="world")(episodes(responses, prompt="A film.")).gold
    assert gold is not None
    assert gold.tolist() == pytest.approx([gold_score("A film.", response) for response in responses])


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_score_that_is_no_number_names_component_prompt_and_response(monkeypatch: pytest.MonkeyPatch, value: float) -> None:
    broken = per_text(lambda text, tokens: value if text == TWO else 1.0)
    monkeypatch.setitem(builders(), LengthReward, lambda settings, context: broken)
    with pytest.raises(RewardError, match=f"component broken gave {value} for the prompt 'why' and the response 'a b'"):
        scorer_of({**LENGTH, "name": "broken"})(episodes([FOUR, TWO], prompt="why"))


def test_a_pattern_that_is_none() -> None:
    with pytest.raises(ConfigError, match=r"reward.components.1.pattern: is not a valid regular expression"):
        scorer_of(LENGTH, {"kind": "regex", "pattern": "(("})


def test_a_component_cannot_change_the_runs_own_lists() -> None:
    chats = [[{"role": "user", "content": "a"}]]
    episodes = Episodes(["a"], ["b"], [True], [1], ["c"], chats)

    def source(given: Episodes) -> Answer:
        assert given == episodes
        given.chats[0][0].clear()
        for column in (given.prompts, given.responses, given.stopped, given.lengths, given.references, given.chats[0], given.chats):
            column.clear()
        return Answer(torch.tensor([1.0]))

    assert Component("mine", 1.0, source).answer(episodes).scores.tolist() == [1.0]
    assert episodes == Episodes(["a"], ["b"], [True], [1], ["c"], [[{"role": "user", "content": "a"}]])
