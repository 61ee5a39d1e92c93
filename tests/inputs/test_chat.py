"""Chat templates: the same text as transformers writes, and every way in which a template can fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.utils.chat_template_utils import render_jinja_template

from rlhf_studio.inputs import chat as chat_module
from rlhf_studio.inputs.chat import ChatError, ChatTemplate, compile_template, find_template, render_chats, write_chats
from rlhf_studio.inputs.models.files import folder_files
from tests.inputs.chat_templates import CHATS, TEMPLATES
from tests.inputs.conftest import MakeModel

HELLO = [{"role": "user", "content": "Hello"}]


def save(folder: Path, source: Any, **tokens: Any) -> PreTrainedTokenizerFast:
    """A tokenizer with this template, saved and loaded by transformers itself."""
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), **tokens)
    tokenizer.chat_template = source
    tokenizer.save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_same_text_as_transformers(name: str, make_model: MakeModel) -> None:
    folder = make_model()
    tokenizer = save(folder, TEMPLATES[name], bos_token="<s>", eos_token="<end>", pad_token="<pad>")
    template = find_template(folder_files("it", folder))
    expected = [tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) for chat in CHATS.values()]
    assert render_chats(template, list(CHATS.values())) == expected
    assert len(set(expected)) == len(CHATS)


TALKS = [
    [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}],
    [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "And?"},
        {"role": "assistant", "content": "Bye é\U0001f600."},
    ],
]


def test_answers_are_found_where_transformers_finds_them() -> None:
    template = ChatTemplate(TEMPLATES["marked"], (("eos_token", "<end>"),))
    texts, spans = render_jinja_template(
        conversations=TALKS, chat_template=TEMPLATES["marked"], return_assistant_tokens_mask=True, eos_token="<end>"
    )
    assert [(written.text, written.spans) for written in write_chats(template, TALKS, "marked")] == [
        (text, [list(span) for span in own]) for text, own in zip(texts, spans, strict=True)
    ]
    assert [[text[first:end].strip() for first, end in own] for text, own in zip(texts, spans, strict=True)] == [
        ["Hello.<end>"],
        ["Hello.<end>", "Bye é\U0001f600.<end>"],
    ]


@pytest.mark.parametrize(
    ("name", "answers"),
    [
        ("chatml", ["Hello.<|im_end|>\n", "Bye é\U0001f600.<|im_end|>\n"]),
        ("brackets", [" Hello. <end>", " Bye é\U0001f600. <end>"]),
    ],
)
def test_answers_of_a_template_without_marks_follow_what_stands_before_them(name: str, answers: list[str]) -> None:
    template = ChatTemplate(TEMPLATES[name], (("eos_token", "<end>"), ("bos_token", "<s>")))
    texts_and_spans = [(written.text, written.spans) for written in write_chats(template, TALKS, "marked")]
    assert [text for text, _ in texts_and_spans] == render_chats(template, TALKS, answered=True)
    assert [[text[first:end] for first, end in spans] for text, spans in texts_and_spans] == [answers[:1], answers]


def test_an_answer_that_is_written_otherwise_once_others_follow_is_refused() -> None:
    source = "{% for m in messages %}{{ m.role }}: {{ m.content if loop.last or m.role == 'user' else '...' }} {% endfor %}"
    ending = source + "{% if add_generation_prompt %}assistant: {% endif %}"
    assert [[chat.text[first:end] for first, end in chat.spans] for chat in write_chats(ChatTemplate(ending), TALKS[:1], "marked")] == [
        ["Hello. "]
    ]
    with pytest.raises(ChatError, match="writes message 3 otherwise once others follow") as caught:
        write_chats(ChatTemplate(ending), TALKS, "marked")
    assert caught.value.index == 1


def test_where_the_template_is_kept(make_model: MakeModel) -> None:
    folder = make_model()
    assert find_template(folder_files("it", folder)) is None
    settings = {"chat_template": "inline {{ bos_token }}", "bos_token": {"content": "<s>"}, "eos_token": None, "pad_token": 3}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    assert find_template(folder_files("it", folder)) == ChatTemplate("inline {{ bos_token }}", (("bos_token", "<s>"),))
    listed = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "usual"}, "x"]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": listed}))
    assert find_template(folder_files("it", folder)).source == "usual"
    (folder / "chat_template.jinja").write_text("own file")
    assert find_template(folder_files("it", folder)).source == "own file"
    assert find_template(None) is None


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer_config.json", b"{", "tokenizer_config.json of .* is not valid JSON"),
        ("chat_template.jinja", b"\xff", "chat_template.jinja of .* cannot be read"),
        ("tokenizer_config.json", b'{"chat_template": "\\ud800"}', "half a character"),
    ],
)
def test_files_that_cannot_be_read(name: str, content: bytes, message: str, make_model: MakeModel) -> None:
    folder = make_model()
    (folder / name).write_bytes(content)
    with pytest.raises(ChatError, match=message):
        find_template(folder_files("it", folder))


def test_names_of_templates_that_are_no_texts_are_passed_over(make_model: MakeModel) -> None:
    folder = make_model()
    (folder / "tokenizer_config.json").write_text('{"chat_template": [{"name": [1], "template": "x"}, {"name": {}, "template": "y"}]}')
    assert find_template(folder_files("it", folder)) is None


def test_keys_that_a_template_does_not_know_cost_one_more_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look for each of twenty keys once took a file of ordinary chats beyond its time."""
    looks: list[int] = []

    def render(messages: Any) -> tuple[str, list[list[int]]]:
        looks.append(1)
        return messages[0]["content"], []

    chat = [{"role": "user", "content": "Hi", **{f"key{number}": number for number in range(20)}}]
    written = chat_module._render(render, "open", 0, chat)
    assert written.idle == [f"key{number}" for number in range(20)] and len(looks) == 2


FAILURES = {
    "not a template": ("{% if %}", None, "the chat template is not valid: Expected an expression"),
    "too deep": ("{{" + "(" * 5000, None, r"too costly \(RecursionError\)"),
    "refuses": ("{% if messages[0].content == 'Hello' %}{{ raise_exception('be polite') }}{% endif %}", 1, r"refuses .* \(be polite\)"),
    "fails": ("{{ messages[0].content + 1 }}", 0, r"the chat template fails \(TypeError: "),
    "missing": ("{{ messages[3].content }}", 0, "refuses the conversation"),
    "class walk": ("{{ messages.__class__.__mro__ }}", 0, "is unsafe"),
    "changes its input": ("{{ messages.append(1) }}", 0, "is not safely callable|unsafe"),
    "dunder": ("{% set x = namespace(__init__=1) %}", 0, "a namespace takes no name like '__init__'"),
    "endless": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", 0, "RecursionError"),
    "half a character": (r"{{ '\ud800' }}", 0, "half a character"),
    "long": ("{{ messages[0].content * 100000 }}", 0, "writes more than 400,000 characters"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_a_template_that_does_not_work_costs_a_sentence(case: str) -> None:
    source, index, message = FAILURES[case]
    with pytest.raises(ChatError, match=message) as caught:
        render_chats(ChatTemplate(source), [[{"role": "user", "content": "Good day"}], HELLO])
    assert caught.value.index == index


def test_a_template_that_never_ends_or_takes_all_memory(real_helpers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert render_chats(ChatTemplate("{{ messages[0].content }}"), [HELLO]) == ["Hello"]
    with pytest.raises(ChatError, match="needs too much memory"):
        render_chats(ChatTemplate("{{ messages[0].content * 10**9 }}"), [HELLO])
    monkeypatch.setattr(chat_module, "SECONDS", 0.01)
    ticks: list[int] = []
    with pytest.raises(ChatError, match="does not work: it took longer than 0 seconds"):
        render_chats(
            ChatTemplate("{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}"),
            [HELLO],
            lambda: ticks.append(1),
        )
    assert ticks


def test_what_templates_may_use() -> None:
    source = (
        "{{ dict(b=2) }}{{ dict.fromkeys('a') }}{{ strftime_now('%Y') | length }}{% set n = namespace(a=1) %}{% set n.a = 2 %}{{ n.a }}"
    )
    assert compile_template(source, {})(HELLO) == "{'b': 2}{'a': None}42"


def test_many_conversations_go_to_the_helper_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The helper's memory follows from the size of its task, so that is bounded; the place of a refusal counts over all parts."""
    sizes: list[int] = []
    usual = chat_module.ask_helper
    monkeypatch.setattr(chat_module, "PART_CHARACTERS", 500)
    monkeypatch.setattr(
        chat_module, "ask_helper", lambda module, task, **rest: sizes.append(len(task["conversations"])) or usual(module, task, **rest)
    )
    talks = [[{"role": "user", "content": f"talk {number}"}] for number in range(5)]
    template = ChatTemplate("{{ messages[0].content }}{% if messages[0].content == 'bad' %}{{ raise_exception('no') }}{% endif %}")
    assert render_chats(template, talks) == [f"talk {number}" for number in range(5)] and sizes == [2, 2, 1]
    with pytest.raises(ChatError) as caught:
        render_chats(template, [*talks[:3], [{"role": "user", "content": "bad"}]])
    assert caught.value.index == 3
