"""A reward model that writes chats in its own form: against transformers' own rendering, one conversation at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from rlhf_studio.config import RewardConfig
from rlhf_studio.config.io import ConfigError, parse_config
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.loop.prompts import PromptBatch
from rlhf_studio.engine.rewards.scorer import Episodes, RewardError, Scorer, build_scorer
from tests.engine.conftest import play, small_config
from tests.engine.small_models import WORDS, save_policy, save_reward_model, save_tokenizer
from tests.inputs.chat_templates import CHATS, TEMPLATES

CPU = Compute(torch.device("cpu"), torch.float32)
ROLES = ["user", "system", "assistant"]
PLAIN = "{% for m in messages %}{{ m.role + ' ' + m.content + ' ' }}{% endfor %}{% if add_generation_prompt %}assistant {% endif %}"
BACKWARDS = "{% for m in messages %}{{ m.content + ' ' + m.role + ' ' }}{% endfor %}{{ eos_token }}"


def reward_model(folder: Path, template: str | None) -> Path:
    """A random classifier whose tokenizer knows the roles as words and brings this template."""
    save_reward_model(folder, words=[*WORDS, *ROLES])
    tokenizer = save_tokenizer(folder, [*WORDS, *ROLES])
    if template is not None:
        tokenizer.bos_token, tokenizer.chat_template = "w1", template
        tokenizer.save_pretrained(folder)
    return folder


def scorer_of(*folders: Path, **settings: Any) -> Scorer:
    models = {"kind": "reward_model", "model": str(folders[0])}
    if len(folders) > 1:
        models = {"kind": "ensemble", "models": ",".join(map(str, folders))}
    components = [{**models, "chat_template": "own", **settings}]
    return build_scorer(RewardConfig.model_validate({"components": components}), CPU, lambda text, fraction: None)


def by_transformers(folder: Path, chat: list[dict[str, str]]) -> float:
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        return float(model(tokenizer.apply_chat_template(chat, return_tensors="pt", return_dict=True)["input_ids"]).logits)


@pytest.mark.parametrize("name", [name if name == "llama3" else pytest.param(name, marks=pytest.mark.long) for name in TEMPLATES])
def test_conversations_are_written_as_transformers_writes_them(tmp_path: Path, name: str) -> None:
    folder = reward_model(tmp_path / "reward", TEMPLATES[name])
    tokenizer = AutoTokenizer.from_pretrained(folder)
    chats, answers = list(CHATS.values()), [" An answer. ", "", "w3 w4", "<b>\n"]
    [(_, own)] = scorer_of(folder).reward_models()
    texts = own._texts(Episodes(["unused"] * 4, answers, [True] * 4, [1] * 4, None, chats))
    for text, chat, answer in zip(texts, chats, answers, strict=True):
        whole = [*chat, {"role": "assistant", "content": answer}]
        assert text == tokenizer.apply_chat_template(whole, tokenize=False)
        assert own._encode(text, True).ids == tokenizer.apply_chat_template(whole)["input_ids"]


def test_scores_and_ensembles_with_a_form_each(tmp_path: Path) -> None:
    """Without a conversation the prompt is what the user says. The members of an ensemble each write their own form."""
    folders = [reward_model(tmp_path / "a", PLAIN), reward_model(tmp_path / "b", BACKWARDS)]
    episodes = Episodes(["w1 w2", "w3"], ["w4", "w5 w6"], [True, False], [1, 2])
    chats = [
        [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}]
        for prompt, response in zip(episodes.prompts, episodes.responses, strict=True)
    ]
    expected = [[by_transformers(folder, chat) for chat in chats] for folder in folders]
    assert abs(expected[0][0] - expected[1][0]) > 1e-4
    assert scorer_of(folders[0])(episodes).raw.tolist() == pytest.approx(expected[0], abs=1e-6)
    means = [sum(pair) / 2 for pair in zip(*expected, strict=True)]
    assert scorer_of(*folders)(episodes).raw.tolist() == pytest.approx(means, abs=1e-6)


def test_a_run_whose_policy_has_another_form(make_trainer: Any, tmp_path: Path) -> None:
    """Several turns and a system text reach the reward model as messages, in its own form; the policy reads its own."""
    small_config(tmp_path)
    save_policy(tmp_path / "policy", words=[*WORDS, *ROLES], scale=4.0)
    tokenizer = save_tokenizer(tmp_path / "policy", [*WORDS, *ROLES])
    tokenizer.chat_template = "w9 {% for m in messages %}{{ m.content }} w9 {% endfor %}"
    tokenizer.save_pretrained(tmp_path / "policy")
    folder = reward_model(tmp_path / "reward", PLAIN)
    turns = [{"role": "user", "content": "w1"}, {"role": "assistant", "content": "w2"}, {"role": "user", "content": "w3"}]
    (tmp_path / "chats.jsonl").write_text(json.dumps({"messages": turns}) + "\n" + json.dumps({"messages": "w4 w5"}) + "\n")
    component = {"kind": "reward_model", "model": str(folder), "chat_template": "own"}
    trainer = make_trainer(
        data={"prompts": str(tmp_path / "chats.jsonl"), "column": "messages", "chat_template": True, "system_text": "w7"},
        reward={"components": [component]},
    )
    rollout = play(trainer, size=4)
    system = {"role": "system", "content": "w7"}
    chats = {"w9 w7 w9 w1 w9 w2 w9 w3 w9 ": [system, *turns], "w9 w7 w9 w4 w5 w9 ": [system, {"role": "user", "content": "w4 w5"}]}
    assert set(rollout.prompts) == set(chats)
    for prompt, response, score in zip(rollout.prompts, rollout.responses, rollout.scores.raw.tolist(), strict=True):
        assert score == pytest.approx(by_transformers(folder, [*chats[prompt], {"role": "assistant", "content": response}]), abs=1e-6)


def test_a_conversation_stays_with_its_prompt() -> None:
    chats = [[{"role": "user", "content": str(row)}] for row in range(3)]
    batch = PromptBatch(torch.zeros(3, 1), torch.ones(3, 1), ["0", "1", "2"], None, chats)
    assert batch.repeat(2).rows(slice(2, 5)).chats == [chats[1], chats[1], chats[2]]
    assert Episodes(["0", "1", "2"], [""] * 3, [True] * 3, [1] * 3, None, chats).rows(slice(1, 2)).chats == [chats[1]]


@pytest.mark.parametrize(
    ("template", "part"),
    [
        (None, "has no chat template; use policy, or a model trained on chats"),
        ("{% for %}", "the chat template is not valid"),
        ("{% for a in range(10 ** 9) %}{% for b in range(10 ** 9) %}{% endfor %}{% endfor %}", "the chat template"),
        ("{{ raise_exception('no answers') }}", "refuses the conversation (no answers)"),
    ],
)
def test_templates_that_cannot_be_used(tmp_path: Path, template: str | None, part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        scorer_of(reward_model(tmp_path / "reward", template))
    (problem,) = caught.value.problems
    assert problem.field == "reward.components.0.chat_template" and part in problem.message


def test_a_conversation_that_the_template_refuses_is_named(tmp_path: Path) -> None:
    template = "{% if messages[0].content == 'bad' %}{{ raise_exception('no such talk') }}{% endif %}x"
    scorer = scorer_of(reward_model(tmp_path / "reward", template))
    with pytest.raises(RewardError) as caught:
        scorer(Episodes(["fine", "bad"], ["a", "b"], [True, True], [1, 1]))
    cause = "its chat template refuses the conversation (no such talk)"
    assert str(caught.value) == f"reward component reward_model: {cause} for the prompt 'bad' and the response 'b'"


def test_the_response_alone_is_no_chat() -> None:
    kind = "ensemble"
    with pytest.raises(ConfigError, match=r"reward.components.0.*chat_template.*own writes prompt and response as one chat"):
        parse_config({"reward": {"components": [{"kind": kind, "chat_template": "own", "reads": "response"}]}})
