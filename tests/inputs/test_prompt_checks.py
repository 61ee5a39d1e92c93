"""What is known about the prompts at the door, before anything is loaded."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.inputs.preflight import inspect_run
from rlhf_studio.inputs.prompts import Prompts, PromptsError, cached, preview
from rlhf_studio.inputs.prompts.cached import RemoteMemory
from rlhf_studio.inputs.prompts.cells import Prompt
from tests.inputs.chat_templates import BRACKETS, CHATML
from tests.inputs.conftest import write_tokenizer
from tests.inputs.test_models import make_adapter


def checked(config: Any, folder: Path) -> tuple[list[tuple[str, str]], list[str], int | None]:
    """(problems, notes, number of prompts)."""
    report = inspect_run(config, folder, free_bytes=lambda _: 10**15)
    return [(problem.field, problem.message) for problem in report.problems], report.notes, report.prompts


def test_what_will_be_left_out_is_said_before_the_start(make_config: Any, tmp_path: Path) -> None:
    (tmp_path / "mixed.txt").write_text("the film was\n" * 80 + "film\n" * 20 + "\n")
    config = make_config(data__prompts=str(tmp_path / "mixed.txt"), data__min_prompt_tokens=2)
    note = "21 of 101 rows were left out: 1 blank, 20 with fewer than 2 tokens."
    assert checked(config, tmp_path) == ([], [note], 80)


def test_nothing_left(make_config: Any, tmp_path: Path) -> None:
    problems, _, count = checked(make_config(data__min_prompt_tokens=4), tmp_path)
    assert problems[0][0] == "data.min_prompt_tokens" and "100 with fewer than 4 tokens" in problems[0][1]
    assert count is None
    problems, _, _ = checked(make_config(data__max_prompt_tokens=2, data__overlong="drop"), tmp_path)
    assert problems[0][0] == "data.max_prompt_tokens"


def test_of_very_many_prompts_only_the_first_are_prepared(make_config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preview, "MEASURED_ROWS", 30)
    (tmp_path / "long tail.txt").write_text("film\n" * 90 + "the film was\n" * 10)
    config = make_config(data__prompts=str(tmp_path / "long tail.txt"), data__min_prompt_tokens=2)
    assert checked(config, tmp_path)[::2] == ([], 100)  # the rest may hold what is wanted


def test_a_policy_without_a_chat_template(make_config: Any, tmp_path: Path) -> None:
    problem = ("data.chat_template", "the tokenizer has no chat template; switch this off, or use a chat model")
    assert checked(make_config(data__chat_template=True), tmp_path)[0] == [problem]
    (tmp_path / "policy" / "tokenizer_config.json").write_text('{"chat_template": ')
    assert checked(make_config(), tmp_path)[0][0][0] == "model.policy"  # the check of the policy says it first
    (tmp_path / "policy" / "tokenizer_config.json").write_text("{}")
    (tmp_path / "policy" / "chat_template.jinja").write_bytes(b"\xff")
    problems, _, _ = checked(make_config(data__chat_template=True), tmp_path)
    assert problems[0][0] == "data.chat_template" and "cannot be read" in problems[0][1]


def test_a_template_that_refuses_the_prompts(make_config: Any, make_model: Any, tmp_path: Path) -> None:
    folder = make_model("chatty", tokenizer={"bos_token": "<s>"})
    (folder / "chat_template.jinja").write_text(BRACKETS)
    rows = [{"prompt": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]}]
    (tmp_path / "chats.jsonl").write_text("\n".join(map(json.dumps, rows)))
    config = make_config(model__policy=str(folder), data__chat_template=True, data__prompts=str(tmp_path / "chats.jsonl"))
    problems, _, _ = checked(config, tmp_path)
    assert problems[0][0] == "data.chat_template"
    assert problems[0][1].startswith("row 1: the chat template refuses the conversation (Conversation roles must alternate")


def test_positions_count_the_template(make_config: Any, make_model: Any, tmp_path: Path) -> None:
    """The prompt is 3 tokens; ChatML makes it '<|im_start|>system You ... <|im_start|>assistant': 11 words by hand."""
    folder = make_model("chatty", n_positions=20)
    (folder / "chat_template.jinja").write_text(CHATML)
    settings = {"model__policy": str(folder), "data__chat_template": True, "generation__response_length": 12}
    problems, _, _ = checked(make_config(**settings), tmp_path)
    assert problems == [
        (
            "generation.response_length",
            "the longest prompt has 11 tokens, so prompt and response need 23 positions, but the model has 20; "
            "use at most 9, or a longest prompt of 8",
        )
    ]


def test_positions_count_the_query_only(make_config: Any, make_model: Any, tmp_path: Path) -> None:
    folder = make_model("short", n_positions=20)
    (tmp_path / "long.txt").write_text("the film was good " * 4 + "\n")
    settings = {"model__policy": str(folder), "data__prompts": str(tmp_path / "long.txt"), "generation__response_length": 12}
    assert checked(make_config(**settings), tmp_path)[0]
    queries = {"data__query_tokens_min": 2, "data__query_tokens_max": 4}
    assert checked(make_config(**settings, **queries), tmp_path)[0] == []


def test_an_adapter_writes_chats_with_its_own_template_or_its_bases(make_config: Any, make_model: Any, tmp_path: Path) -> None:
    base = make_model("base", n_positions=20)
    (base / "chat_template.jinja").write_text("the film {{ messages[0].content }}")
    adapter = make_adapter(tmp_path / "adapter", base)
    tight = {"model__policy": str(adapter), "data__chat_template": True, "generation__response_length": 18}
    assert "the longest prompt has 5 tokens" in checked(make_config(**tight), tmp_path)[0][0][1]
    write_tokenizer(adapter, chat_template="good {{ messages[0].content }}")
    assert "the longest prompt has 4 tokens" in checked(make_config(**tight), tmp_path)[0][0][1]


def test_without_a_tokenizer_file_lengths_are_left_to_the_run(make_config: Any, make_model: Any, tmp_path: Path) -> None:
    folder = make_model("slow")
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text("{}")
    base = {"model__policy": str(folder), "ppo__batch_size": 64}
    note = "The policy's tokens cannot be counted here, so what is left out or cut by length shows only when the run starts."
    assert checked(make_config(**base), tmp_path)[1] == []
    for setting in ({"data__min_prompt_tokens": 2}, {"data__overlong": "drop"}, {"data__query_tokens_min": 1, "data__query_tokens_max": 2}):
        assert checked(make_config(**base, **setting), tmp_path)[1] == [note]


def test_a_hub_dataset_is_looked_at_but_not_counted(make_config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [Prompt(number, "the film was") for number in range(1, 6)]
    monkeypatch.setattr(cached, "_remote", RemoteMemory(lambda data: Prompts(rows, Counter(blank=1), ["prompt"], partial=True)))
    problems, notes, count = checked(make_config(data__prompts="owner/set"), tmp_path)
    assert (problems, notes, count) == ([], ["1 of 6 rows was left out: 1 blank."], None)

    tight = {"data__prompts": "owner/set", "data__max_prompt_tokens": 50, "generation__response_length": 20}
    assert checked(make_config(**tight), tmp_path)[0][0][1].startswith("prompts may have 50 tokens")  # rows not seen yet may be longer
    assert checked(make_config(**tight, data__query_tokens_min=2, data__query_tokens_max=8), tmp_path)[0] == []
    assert checked(make_config(data__prompts="owner/set", data__min_prompt_tokens=9), tmp_path)[0] == []  # or long enough

    def refuse(data: Any) -> Prompts:
        raise PromptsError("data.split", "owner/set has no split 'x'; there are: train")

    monkeypatch.setattr(cached, "_remote", RemoteMemory(refuse))
    assert checked(make_config(data__prompts="owner/set"), tmp_path)[0] == [("data.split", "owner/set has no split 'x'; there are: train")]
