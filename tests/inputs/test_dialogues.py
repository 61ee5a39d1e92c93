"""Dialogues in one text: recognised, cut before the last answer, or made messages; and pairs whose prompt cannot be told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.config import DataConfig
from rlhf_studio.inputs.preflight import inspect_run
from rlhf_studio.inputs.prompts import PromptsError, read_prompts
from rlhf_studio.inputs.prompts.dialogues import read_dialogue
from rlhf_studio.inputs.prompts.preview import preview_prompts

HH = "\n\nHuman: Who was Lovelace?\n\nAssistant: A mathematician.\n\nHuman: When?\n\nAssistant:"
ALPACA = "Below is an instruction.\n\n### Instruction:\nAdd.\n\n### Input:\n1 and 2\n\n### Response:"
USER, ASSISTANT = "user", "assistant"


def write(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def prompts_of(path: Path, column: str = "chosen", **settings: Any) -> Any:
    return read_prompts(DataConfig(prompts=str(path), column=column, **settings))


CASES = {
    "hh": (HH + " In 1843.", HH, [(USER, "Who was Lovelace?"), (ASSISTANT, "A mathematician."), (USER, "When?")], "In 1843."),
    "hh, no answer yet": (HH, HH, [(USER, "Who was Lovelace?"), (ASSISTANT, "A mathematician."), (USER, "When?")], ""),
    "hh without its first lines": ("Human: Hi\n\nAssistant: Yo\n\nman", "Human: Hi\n\nAssistant:", [(USER, "Hi")], "Yo\n\nman"),
    "a person twice": ("\n\nHuman: a\n\nHuman: b\n\nAssistant: c", "\n\nHuman: a\n\nHuman: b\n\nAssistant:", [(USER, "a\n\nb")], "c"),
    "a person last": ("\n\nHuman: a\n\nAssistant: b\n\nHuman: c", None, [(USER, "a"), (ASSISTANT, "b"), (USER, "c")], ""),
    "guanaco": ("### Human: a### Assistant: b", "### Human: a### Assistant:", [(USER, "a")], "b"),
    "alpaca": (ALPACA + "\n3", ALPACA, [("system", "Below is an instruction."), (USER, "Add.\n\n### Input:\n1 and 2")], "3"),
}


@pytest.mark.parametrize("case", CASES)
def test_where_the_last_answer_begins_and_who_says_what(case: str) -> None:
    text, prompt, messages, answer = CASES[case]
    dialogue = read_dialogue(text)
    assert dialogue is not None and (dialogue.prompt, dialogue.answer) == (text if prompt is None else prompt, answer)
    assert [(message["role"], message["content"]) for message in dialogue.messages] == messages


def test_lines_may_end_in_any_way() -> None:
    """The same dialogue is found, and the text that is kept keeps its line ends."""
    for text, prompt, messages, answer in CASES.values():
        for line in ("\r\n", "\r"):
            dialogue = read_dialogue(text.replace("\n", line))
            assert dialogue is not None and dialogue.prompt == (text if prompt is None else prompt).replace("\n", line)
            assert dialogue.answer == answer.replace("\n", line) and len(dialogue.messages) == len(messages)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Human: a\r\nAssistant: b",
        "Human: alone",
        "The film.\n\nHuman: a\n\nAssistant: b",
        "Assistant: b\n\nHuman: a",
        "A Human: x Assistant: y",
        "Dear Human: hi\n\nAssistant: no",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert read_dialogue(text) is None


def test_the_answer_of_a_dialogue_is_no_part_of_the_prompt(tmp_path: Path) -> None:
    path = write(tmp_path, {"chosen": HH + " In 1843.", "rejected": HH + " Never."}, {"chosen": HH, "rejected": HH + " Why?"})
    prompts = prompts_of(path)
    assert prompts.texts == [HH, HH] and prompts.answered == 1
    assert prompts_of(path, dialogue="whole").texts == [HH + " In 1843.", HH]
    preview = preview_prompts(DataConfig(prompts=str(path), column="chosen"), 5, None)
    assert [row.text for row in preview.rows] == [HH, HH]
    assert preview.notes == [
        "Not used: the column 'rejected'.",
        "1 text is a dialogue (Human: ... Assistant: ...): what follows the mark of the last answer was left out (data.dialogue).",
        "The last answer of 1 conversation was left out: the policy writes it.",
    ]


def test_with_a_chat_template_the_turns_become_messages(tmp_path: Path) -> None:
    path = write(tmp_path, {"chosen": HH + " In 1843."}, {"chosen": "Just text."})
    first, second = prompts_of(path, chat_template=True).rows
    assert first.messages == tuple({"role": role, "content": content} for role, content in CASES["hh"][2]) and first.answered
    assert (second.text, second.messages) == ("Just text.", None)
    uncut = prompts_of(path, chat_template=True, dialogue="whole").rows[0]
    assert (uncut.text, uncut.messages, uncut.answered) == (HH + " In 1843.", None, False)


def test_pairs_of_message_lists_lose_their_last_answer(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]
    path = write(tmp_path, {"chosen": chat, "rejected": chat, "prompt": "Hi"})
    assert prompts_of(path, chat_template=True).rows[0].messages == ({"role": "user", "content": "Hi"},)
    assert prompts_of(path, "prompt").texts == ["Hi"]


def test_a_reference_in_a_dialogue_is_its_last_answer(tmp_path: Path) -> None:
    path = write(tmp_path, {"prompt": HH, "chosen": HH + " In 1843."}, {"prompt": "Hi", "chosen": "Yo"})
    assert prompts_of(path, "prompt", reference_column="chosen").references == ["In 1843.", "Yo"]
    assert prompts_of(path, "prompt", reference_column="chosen", dialogue="whole").references == [HH + " In 1843.", "Yo"]


@pytest.mark.parametrize(
    ("row", "settings", "field", "message"),
    [
        ({"chosen": "Q? A.", "rejected": "Q? B."}, {}, "data.dialogue", "row 1 holds no dialogue in 'chosen', so where its answer begins"),
        ({"prompt": "Q?", "chosen": "A.", "rejected": "B."}, {}, "data.column", "name the column 'prompt' instead"),
        ({"chosen": "Q? A."}, {"dialogue": "cut"}, "data.dialogue", "whole takes them as they are, answers included"),
    ],
)
def test_texts_whose_answer_cannot_be_told_apart(
    row: dict[str, str], settings: dict[str, str], field: str, message: str, tmp_path: Path
) -> None:
    path = write(tmp_path, row)
    with pytest.raises(PromptsError) as caught:
        prompts_of(path, **settings)
    assert caught.value.field == field and message in caught.value.message
    assert prompts_of(path, dialogue="whole").texts == [row["chosen"]]


def test_it_is_said_at_the_door(make_config: Any, tmp_path: Path) -> None:
    path = write(tmp_path, *[{"chosen": f"\n\nHuman: film {row}\n\nAssistant: good", "rejected": "x"} for row in range(120)])
    config = make_config(data__prompts=str(path), data__column="chosen")
    report = inspect_run(config, tmp_path, free_bytes=lambda _: 10**15)
    assert report.problems == []
    assert any(note.startswith("120 texts are dialogues (Human: ... Assistant: ...)") for note in report.notes)
