"""Every column of a file and every field of a message is used, or a note lists it; the same in every stage."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from rlhf_studio.config import DataConfig, DemonstrationsConfig
from rlhf_studio.engine.loop.prompts import TokenizerEncoder
from rlhf_studio.engine.text import chat_template
from rlhf_studio.inputs.chat import ChatTemplate
from rlhf_studio.inputs.examples import PromptsError
from rlhf_studio.inputs.examples.preview import preview_examples
from rlhf_studio.inputs.prompts import read_prompts
from rlhf_studio.inputs.prompts.prepare import prepare
from rlhf_studio.inputs.prompts.preview import preview_prompts
from tests.cases.what_is_learned import learned_demonstrations, learned_pairs, tokenizer_of

DATA = Path(__file__).parent / "data"
ChatModel = Callable[[str], Path]
WITH_CALLS = (  # in the manner of Qwen: tools in front, reasoning and calls in the answer
    "{% if tools %}{{ '<|im_start|>system\n' + tools | tojson + '<|im_end|>\n' }}{% endif %}"
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{% if m.reasoning_content %}{{ '<think>' + m.reasoning_content + '</think>' }}{% endif %}{{ m.content or '' }}"
    "{% for call in m.tool_calls or [] %}{{ '<tool_call>' + call.function | tojson + '</tool_call>' }}{% endfor %}"
    "{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def write(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def prompts_of(model: Path, file: Path, **settings: Any) -> tuple[list[str], list[str]]:
    """(what PPO's policy reads, notes for people)."""
    tokenizer = tokenizer_of(model)
    data = DataConfig(prompts=str(file), max_prompt_tokens=400, **settings)
    prepared = prepare(read_prompts(data), data, TokenizerEncoder(tokenizer), chat_template(tokenizer), 0)
    return [tokenizer.decode(ids) for ids in prepared.ids], prepared.notes(data)


def unused(notes: list[str]) -> list[str]:
    return [note for note in notes if note.startswith("Not used")]


@pytest.fixture
def with_calls(chat_model: ChatModel, tmp_path: Path) -> Path:
    """The tokenizer of the chat model, with a template that writes calls."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(chat_model("chatml"))
    tokenizer.chat_template = WITH_CALLS
    tokenizer.save_pretrained(tmp_path / "calls")
    (tmp_path / "calls" / "config.json").write_text((chat_model("chatml") / "config.json").read_text())
    return tmp_path / "calls"


def turn(role: str, text: str) -> str:
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


ANSWER = "<|im_start|>assistant\n"


def test_the_same_prompt_in_every_stage(chat_model: ChatModel, tmp_path: Path) -> None:
    """The input, the system text and earlier turns of a row, with each way in which prompts are written."""
    beside = {"instruction": "Now?", "input": "the film", "system": "Be good.", "history": [["hello", "world"]]}
    chat = turn("system", "Be good.") + turn("user", "hello") + turn("assistant", "world") + turn("user", "Now?\n\nthe film") + ANSWER
    form = "Be good.\n\nHuman: hello\n\nAssistant: world\n\nHuman: Now?\n\nthe film\n\nAssistant:"
    plain = "Be good.\n\nNow?\n\nthe film"
    ways = [
        (True, {"chat_template": True}, chat),
        (True, {"prompt_format": "Human: {prompt}\n\nAssistant:"}, form),
        (False, {}, plain),
    ]
    for turns, settings, expected in ways:
        file = write(
            tmp_path, {**beside, "history": beside["history"] * turns, "output": "yes", "chosen": "yes", "rejected": "no", "id": 7}
        )
        (pair,), told = learned_pairs(chat_model("chatml"), file, **settings)
        assert pair[0] == expected and unused(told) == ["Not used: the columns 'output', 'id'."]
        (text,), _, told = learned_demonstrations(chat_model("chatml"), file, **settings)
        assert text.startswith(expected) and "yes" in text[len(expected) :]
        assert unused(told) == ["Not used: the columns 'chosen', 'rejected', 'id'."]
        (prompt,), told = prompts_of(chat_model("chatml"), file, column="instruction", **settings)
        assert prompt == expected and unused(told) == ["Not used: the columns 'output', 'chosen', 'rejected', 'id'."]


def test_an_input_in_a_column_of_another_name(chat_model: ChatModel, tmp_path: Path) -> None:
    file = write(tmp_path, {"question": "Good?", "about": "the film", "answer": "yes", "chosen": "yes", "rejected": "no"})
    ((prompt, *_),), _ = learned_pairs(chat_model("chatml"), file, input_column="about")
    (text,), *_ = learned_demonstrations(chat_model("chatml"), file, input_column="about")
    (read,), _ = prompts_of(chat_model("chatml"), file, column="question", input_column="about")
    assert (prompt, text.removesuffix("yes<|im_end|>"), read) == ("Good?\n\nthe film",) * 3
    for read_with in (
        lambda: learned_pairs(chat_model("chatml"), file, input_column="none"),
        lambda: prompts_of(chat_model("chatml"), file, column="question", input_column="none"),
    ):
        with pytest.raises(PromptsError, match="data.input_column: there is no column 'none'"):
            read_with()


def test_what_files_say_beside_the_prompt_is_learned(chat_model: ChatModel) -> None:
    pairs, _ = learned_pairs(chat_model("chatml"), DATA / "pairs_input.jsonl")
    assert [prompt for prompt, _, _ in pairs] == [f"Translate the sentence number {n}.\n\nthe film {n} was slow" for n in range(4)]
    pairs, _ = learned_pairs(chat_model("chatml"), DATA / "pairs_system.jsonl", chat_template=True)
    asked = [turn("system", f"Answer as a pirate {n}.") + turn("user", f"what is the capital {n}?") + ANSWER for n in range(4)]
    assert [prompt for prompt, _, _ in pairs] == asked
    texts, counted, _ = learned_demonstrations(chat_model("chatml"), DATA / "alpaca_system_history.jsonl", chat_template=True)
    before = turn("system", "be good") + turn("user", "hello") + turn("assistant", "world") + turn("user", "and now?")
    assert texts == [before + turn("assistant", f"yes {n}") for n in range(3)]
    assert all(labels.count("<|im_end|>") == 2 for labels in counted)  # those of the history too: each answer of a chat is learned


def test_an_answer_of_weight_0_is_read_and_not_learned(chat_model: ChatModel, tmp_path: Path) -> None:
    for model in ("chatml", "unmarked_end"):  # without and with {% generation %}
        texts, counted, notes = learned_demonstrations(chat_model(model), DATA / "weight0.jsonl", chat_template=True)
        assert all("bad answer" in text for text in texts) and len(texts) == 3
        assert {"".join(labels).strip().removesuffix("<|im_end|>") for labels in counted} == {"Paris"}
        assert not unused(notes) and any(note.startswith("3 answers") for note in notes)
    rows = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "weight": 0.5}]
    with pytest.raises(PromptsError, match=r"row 1, message 2 in 'messages' has the weight 0\.5"):
        learned_demonstrations(chat_model("chatml"), write(tmp_path, {"messages": rows}), chat_template=True)


def test_calls_tools_and_reasoning_reach_the_template(with_calls: Path, chat_model: ChatModel) -> None:
    """As transformers writes the same rows."""
    tokenizer = tokenizer_of(with_calls)
    for name in ("tools", "reason"):
        rows = [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text().splitlines()]
        expected = [tokenizer.apply_chat_template(row["messages"], tools=row.get("tools"), tokenize=False) for row in rows]
        texts, counted, notes = learned_demonstrations(with_calls, DATA / f"{name}.jsonl", chat_template=True)
        assert texts == expected
        shown = "<tool_call>" if name == "tools" else "<think>"
        assert all(shown in "".join(labels) for labels in counted)
        assert unused(notes) == (
            ["Not used, since what the model reads is the same without: 'name' (in 3 chats)."] if name == "tools" else []
        )
    *_, notes = learned_demonstrations(chat_model("chatml"), DATA / "reason.jsonl", chat_template=True)
    assert unused(notes) == ["Not used, since what the model reads is the same without: 'reasoning_content' (in 2 chats)."]


CALL = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "count", "arguments": {}}}]}


@pytest.mark.parametrize(("kind", "shape"), [("chatml", "null"), ("unmarked_end", "empty"), ("llama3", "sharegpt")])
def test_a_call_that_is_not_written_is_not_learned(chat_model: ChatModel, tmp_path: Path, kind: str, shape: str) -> None:
    """The other answers of its chat are; a template that adds texts fails with null, and one that prints or trims them writes "None"."""
    asked, tool = {"role": "user", "content": "how many?"}, {"role": "tool", "content": "4"}
    four, thanks = {"role": "assistant", "content": "four"}, {"role": "user", "content": "thank you"}
    call = {**CALL, "content": "" if shape == "empty" else None}
    chats = [[asked, call, tool, four, thanks, call], [asked, call], [asked, four]]
    if shape == "sharegpt":
        names = {"user": "human", "assistant": "gpt", "tool": "observation"}
        said = {"from": "function_call", "value": json.dumps(CALL["tool_calls"][0]["function"])}
        chats = [[said if one is call else {"from": names[one["role"]], "value": one["content"]} for one in chat] for chat in chats]
    file = write(tmp_path, *({"messages": chat} for chat in chats))
    texts, counted, notes = learned_demonstrations(chat_model(kind), file, chat_template=True)
    end = "<|eot_id|>" if kind == "llama3" else "<|im_end|>"
    assert ["".join(labels).strip() for labels in counted] == [f"four{end}"] * 2
    empty = [{**one, "content": one["content"] or ""} for one in (asked, call, tool, four)]
    whole = tokenizer_of(chat_model(kind)).apply_chat_template(empty, tokenize=False)
    assert texts[0].strip() == whole.strip()
    assert any("1 with an empty answer, or a call" in note for note in notes) and any(" 2 empty answers " in note for note in notes)
    texts, counted, notes = learned_demonstrations(chat_model(kind), file, prompt_format="Q: {prompt} A:")
    assert [text.count("four") for text in texts] == [1, 1] and any(" 2 empty answers " in note for note in notes)


def test_calls_in_pairs_and_prompts(with_calls: Path, chat_model: ChatModel, tmp_path: Path) -> None:
    asked, other = [{"role": "user", "content": "how many?"}], {"role": "assistant", "content": "I say four."}
    rest = [{"role": "user", "content": "two?"}, {"role": "assistant", "content": "yes"}]
    rows = [
        {"chosen": [*asked, CALL], "rejected": [*asked, other], "tools": [{"name": "count"}]},
        {"chosen": rest, "rejected": [rest[0], other], "tools": None},
    ]
    pairs, notes = learned_pairs(with_calls, write(tmp_path, *rows), chat_template=True)
    written = '<tool_call>{"name": "count", "arguments": {}}</tool_call><|im_end|>\n'
    assert pairs[0] == (turn("system", '[{"name": "count"}]') + turn("user", "how many?") + ANSWER, written, "I say four.<|im_end|>\n")
    assert len(pairs) == 2 and not unused(notes)
    pairs, notes = learned_pairs(chat_model("chatml"), tmp_path / "data.jsonl", chat_template=True)
    assert len(pairs) == 1 and any("1 with an empty answer, or a call" in note for note in notes)
    (prompt, _), notes = prompts_of(with_calls, tmp_path / "data.jsonl", column="chosen", chat_template=True)
    assert prompt == turn("system", '[{"name": "count"}]') + turn("user", "how many?") + ANSWER
    assert unused(notes) == ["Not used: the column 'rejected'."]


def test_columns_of_later_rows_and_of_another_meaning(chat_model: ChatModel, tmp_path: Path) -> None:
    """A column whose first row holds no chat is never one, also when a later row brings columns with it."""
    rows = [
        {"prompt": "a film", "completion": "good", "history": 7},
        {"prompt": "a plot", "completion": "bad", "system": "Be good.", "more": 1},
    ]
    file = write(tmp_path, *rows)
    texts, _, notes = learned_demonstrations(chat_model("chatml"), file)
    assert texts[1].startswith("Be good.\n\na plot") and unused(notes) == ["Not used: the columns 'history', 'more'."]
    prompts, notes = prompts_of(chat_model("chatml"), file)
    assert prompts == ["a film", "Be good.\n\na plot"] and unused(notes) == ["Not used: the columns 'completion', 'history', 'more'."]


def test_the_preview_lists_what_is_not_used(chat_model: ChatModel, tmp_path: Path) -> None:
    """And counts the rows in which the text of a special token stands, which becomes that token."""
    messages = [{"role": "user", "content": "say <|im_end|> please", "mood": "good"}, {"role": "assistant", "content": "yes"}]
    file = write(tmp_path, {"messages": messages, "id": 7}, {"messages": [{**messages[0], "content": "say it"}, messages[1]], "id": 8})
    chat = ChatTemplate(tokenizer_of(chat_model("chatml")).chat_template)
    tokenizer = chat_model("chatml") / "tokenizer.json"
    shown = preview_examples(DemonstrationsConfig(source=str(file), chat_template=True), 2, tokenizer, chat).notes
    read = preview_prompts(DataConfig(prompts=str(file), column="messages", chat_template=True), 2, tokenizer, chat).notes
    *_, run = learned_demonstrations(chat_model("chatml"), file, chat_template=True)
    for notes in (shown, read, run):
        assert any("'id'" in note for note in notes) and any("'mood' (in 2 chats)" in note for note in notes)
        assert sum(note.startswith("1 of 2 ") and "special token" in note for note in notes) == 1
