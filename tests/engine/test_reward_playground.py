"""The reward playground's process: scores of beginnings and of changed texts against the model's own forward pass of each text alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rlhf_studio.config import NOTHING_ALLOWED, RewardModelReward
from rlhf_studio.engine.rewards.errors import ComponentError
from rlhf_studio.engine.rewards.kinds.reward_model import RewardModelScorer, load_scorer
from rlhf_studio.engine.rewards.registry import BuildContext
from rlhf_studio.engine.stages.reward_model.build import build_reward_model
from rlhf_studio.engine.stages.reward_model.finish import save_reward_model
from rlhf_studio.jobs.scoring.look import ProbedResponse, look, replaced, swaps, without, words_of
from rlhf_studio.jobs.scoring.server import Scoring
from tests.engine.test_reward_heads import CPU, by_hand, byte_policy, settings, silent
from tests.engine.test_rewards_models import plain, save_encoder

TEXT = ProbedResponse("A good film", ", I liked it: dull.", ("superb",))


def scorer_of(folder: Path, **options: Any) -> RewardModelScorer:
    return load_scorer(RewardModelReward(model=str(folder), **options), str(folder), BuildContext("reward", CPU, silent, NOTHING_ALLOWED))


def saved(folder: Path, family: str, head: str = "linear") -> tuple[Path, Any, Any]:
    policy, tokenizer = byte_policy(folder / "policy", family)
    built = build_reward_model(settings(policy, reward_model={"head": head}), CPU, silent)
    save_reward_model(built.model, tokenizer, folder / "reward", built.head)
    return folder / "reward", built.model, tokenizer


def test_each_beginning_has_the_score_of_that_text_alone(tmp_path: Path) -> None:
    folder, model, tokenizer = saved(tmp_path, "llama", "hidden")
    result = look(scorer_of(folder), TEXT)
    ids = tokenizer(TEXT.prompt + TEXT.response)["input_ids"]
    assert result["ids"] == ids and "".join(result["pieces"]) == TEXT.prompt + TEXT.response
    assert "".join(result["pieces"][result["first"] :]) == TEXT.response
    assert result["prefixes"] == pytest.approx([by_hand(model, ids[: end + 1]) for end in range(len(ids))], abs=1e-5)
    assert result["score"] == pytest.approx(result["prefixes"][-1], abs=1e-5) and result["scored"] == len(ids) - 1
    assert (result["cut"], result["notes"]) == (0, [])


def test_a_long_text_is_cut_and_an_end_token_is_shown(tmp_path: Path) -> None:
    folder, model, tokenizer = saved(tmp_path, "gpt2")
    long = ProbedResponse("x" * 70, " end")
    result = look(scorer_of(folder), long)
    ids = tokenizer(long.prompt + long.response)["input_ids"]
    assert result["cut"] == len(ids) - 64 and result["ids"] == ids[-64:] and "".join(result["pieces"][result["first"] :]) == " end"
    ended = look(scorer_of(folder, append_eos=True), TEXT)
    ids = [*tokenizer(TEXT.prompt + TEXT.response)["input_ids"], 0]
    assert ended["ids"] == ids and ended["score"] == pytest.approx(by_hand(model, ids), abs=1e-5)
    assert ended["notes"] == ["The end token was put behind the response, as this model was trained."]
    assert ended["cut"] == 0


def test_a_model_that_reads_both_ways_has_no_prefixes(tmp_path: Path) -> None:
    folder = save_encoder(tmp_path, "bert", labels=1)
    result = look(scorer_of(folder), ProbedResponse("w1 ", "w2 w3"))
    assert result["prefixes"] is None and result["scored"] is None and "in both directions" in result["notes"][0]
    assert result["score"] == pytest.approx(plain(folder, "w1 w2 w3", 0), abs=1e-5)


def test_words_are_left_out_and_swapped(tmp_path: Path) -> None:
    folder, model, tokenizer = saved(tmp_path, "gpt2")

    def score(response: str) -> float:
        return by_hand(model, tokenizer(TEXT.prompt + response)["input_ids"])

    *progress, result = swaps(scorer_of(folder), TEXT)
    assert progress[-1] == {"done": 15, "of": 15} and result["left"] == 0
    assert [word["text"] for word in result["words"]] == [",", "I", "liked", "it", ":", "dull", "."]
    whole = score(TEXT.response)
    expected = {",": " I liked it: dull.", "I": ", liked it: dull.", "dull": ", I liked it:.", ".": ", I liked it: dull"}
    for word in result["words"]:
        if word["text"] in expected:
            assert word["without"] == pytest.approx(score(expected[word["text"]]) - whole, abs=2e-5), word
    assert result["words"][5]["with"] == [pytest.approx(score(", I liked it: superb.") - whole, abs=2e-5)]
    assert result["words"][1]["with"] == [pytest.approx(score(", Superb liked it: dull.") - whole, abs=2e-5)]
    *_, own = swaps(scorer_of(folder), ProbedResponse("", "Superb film", ("superb",)))
    assert own["words"][0]["with"] == [None]  # the word is the candidate
    assert list(swaps(scorer_of(folder), TEXT, lambda: True)) == []


def test_how_texts_change() -> None:
    text = " Well-made, isn't it?"
    well, comma, isnt, _, mark = words_of(text)
    assert [word.text for word in (well, comma, isnt, mark)] == ["Well-made", ",", "isn't", "?"]
    assert [without(text, word) for word in (well, comma, isnt, mark)] == [
        " , isn't it?", " Well-made isn't it?", " Well-made, it?", " Well-made, isn't it",
    ]  # fmt: skip
    assert without("one two", words_of("one two")[0]) == "two" and without("one", words_of("one")[0]) == ""
    assert replaced(text, well, "bad") == " Bad, isn't it?" and replaced(text, isnt, "is") == " Well-made, is it?"


def request(folder: Path, **changes: Any) -> dict[str, Any]:
    usual = {"op": "model", "number": 7, "model": str(folder), "revision": "main", "label": "", "append_eos": False, "stopped": True}
    return {**usual, "prompt": "A", "response": " film", "candidates": [], "words": True, **changes}


def test_events_of_a_request(tmp_path: Path) -> None:
    folder, model, _ = saved(tmp_path, "gpt2", "hidden")
    scoring = Scoring(NOTHING_ALLOWED)

    def events_of(asked: dict[str, Any]) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        scoring.ask(asked, events.append)
        return events

    first = events_of(request(folder))
    assert [event["event"] for event in first] == ["progress", "model", "scored", "trying", "words"]
    assert first[1]["class"] == "GPT2ForSequenceClassification" and first[1]["head"]["score.weight"] == [32, 32] and first[1]["reads_left"]
    kept = events_of(request(folder, words=False))
    assert [event["event"] for event in kept] == ["model", "scored"], "the model stays loaded"
    with torch.no_grad():
        model.score.output.weight.mul_(2)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder)
    anew = events_of(request(folder, response=None))
    assert [event["event"] for event in anew] == ["progress", "model"], "a file that was written anew is loaded anew"
    with pytest.raises(ComponentError, match="cannot load"):
        events_of(request(tmp_path / "none"))


def test_a_request_that_was_cancelled_loads_nothing(tmp_path: Path) -> None:
    folder, _, _ = saved(tmp_path, "gpt2")
    scoring, events = Scoring(NOTHING_ALLOWED), list[dict[str, Any]]()
    scoring.ask(request(folder), events.append, lambda: True)
    text = {"prompt": "a", "response": "b", "reference": None, "stopped": True}
    config = {"reward": {"components": [{"kind": "reward_model", "model": str(folder)}]}}
    scoring.ask({"op": "rewards", "config": config, **text}, events.append, lambda: True)
    assert events == [] and not scoring._held
