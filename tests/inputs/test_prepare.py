"""From texts to token ids: templates, filters and cuts, with answers worked by hand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from rlhf_studio.config import DataConfig
from rlhf_studio.inputs.chat import ChatTemplate
from rlhf_studio.inputs.prompts import Prompts, PromptsError, read_prompts
from rlhf_studio.inputs.prompts.cells import Prompt, prompt_from
from rlhf_studio.inputs.prompts.prepare import Prepared, chat_of, cut, prepare
from rlhf_studio.inputs.tokens import FileEncoder, count_tokens, load_encoder
from tests.inputs.conftest import MakeModel

START = 1
SHOUT = ChatTemplate("{% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}assistant:")


class Words:
    """A tokenizer without a library: a number is its own token, any other word is 0; texts begin with START when special tokens are on."""

    starts = {START}
    specials = ("<start>",)

    def encode(self, texts: list[str], *, special: bool) -> list[list[int]]:
        return [[START] * special + [int(word) if word.isdigit() else 0 for word in text.split()] for text in texts]

    def decode(self, ids: list[int]) -> str:
        return " ".join(str(token) for token in ids if token != START)


def numbers(count: int, first: int = 10) -> str:
    """``count`` tokens: 10 11 12 ..."""
    return " ".join(str(first + offset) for offset in range(count))


def made(texts: list[str], chat: ChatTemplate | None = None, seed: int = 0, **settings: Any) -> Prepared:
    prompts = Prompts([Prompt(number, text) for number, text in enumerate(texts, start=1)], Counter({"blank": 1}))
    return prepare(prompts, DataConfig(**settings), Words(), chat, seed)


@pytest.mark.parametrize(
    ("side", "limit", "ids", "expected"),
    [
        ("cut_left", 3, [1, 10, 11, 12, 13], [1, 12, 13]),
        ("cut_left", 1, [1, 10, 11], [11]),
        ("cut_right", 3, [1, 10, 11, 12, 13], [1, 10, 11]),
        ("cut_right", 1, [1, 10], [1]),
        ("drop", 2, [], []),
    ],
)
def test_cutting(side: str, limit: int, ids: list[int], expected: list[int]) -> None:
    assert cut(ids, limit, side, {START}) == expected


def test_too_long_prompts() -> None:
    texts = [numbers(3), numbers(4), numbers(5)]
    left = made(texts, max_prompt_tokens=4)
    assert left.ids == [[1, 10, 11, 12], [1, 11, 12, 13], [1, 12, 13, 14]]
    assert left.texts == texts  # what rewards read stays whole: its end is where the response follows
    assert left.notes(DataConfig(max_prompt_tokens=4))[1] == "2 of 3 prompts have more than 4 tokens and lost their beginning."
    right = made(texts, max_prompt_tokens=4, overlong="cut_right")
    assert right.ids == [[1, 10, 11, 12]] * 3 and right.texts == [numbers(3)] * 3
    dropped = made(texts, max_prompt_tokens=4, overlong="drop")
    assert dropped.ids == [[1, 10, 11, 12]] and dropped.left_out == {"blank": 1, "many_tokens": 2}
    assert dropped.notes(DataConfig(max_prompt_tokens=4, overlong="drop")) == [
        "3 of 4 rows were left out: 1 blank, 2 with more than 4 tokens."
    ]


def test_too_short_prompts_are_judged_before_any_cut() -> None:
    prepared = made([numbers(1), numbers(5), numbers(9)], min_prompt_tokens=5, max_prompt_tokens=3)
    assert [len(ids) for ids in prepared.ids] == [3, 3] and prepared.lengths == [6, 10]
    assert prepared.left_out == {"blank": 1, "few_tokens": 1}


def test_queries_are_the_first_tokens_of_each_text() -> None:
    texts = [numbers(30, first=100 * row) for row in range(1, 400)]
    prepared = made(texts, query_tokens_min=2, query_tokens_max=8)
    for row, (ids, text) in enumerate(zip(prepared.ids, prepared.texts, strict=True), start=1):
        words = numbers(len(ids) - 1, first=100 * row)
        assert (ids[0], " ".join(map(str, ids[1:])), text) == (START, words, words)
    counts = Counter(len(ids) - 1 for ids in prepared.ids)
    assert set(counts) == set(range(2, 9))
    assert all(abs(count - 399 / 7) < 4 * (399 * 6 / 49) ** 0.5 for count in counts.values())  # even, within four standard errors


def test_a_querys_length_depends_on_seed_and_row_alone() -> None:
    texts = [numbers(30)] * 50
    settings = {"query_tokens_min": 2, "query_tokens_max": 20}
    first, other = made(texts, **settings), made(texts, seed=1, **settings)
    assert first == made(texts, **settings) and first.ids != other.ids
    fewer = prepare(Prompts([Prompt(number, numbers(30)) for number in (7, 30)]), DataConfig(**settings), Words(), None, 0)
    assert fewer.ids == [first.ids[6], first.ids[29]]
    assert made([numbers(1)], **settings).texts == [numbers(1)]  # shorter than any length: stays as it is


# --- chats -----------------------------------------------------------------------------------------------------------------------


def test_a_text_becomes_what_the_user_says() -> None:
    prepared = made(["10 11"], SHOUT, chat_template=True, system_text="Be brief")
    assert prepared.texts == ["system: Be brief user: 10 11 assistant:"]
    assert prepared.ids == [[0, 0, 0, 0, 10, 11, 0]]  # no special token added: the template writes its own
    assert made(["10"], SHOUT, chat_template=True).texts == ["user: 10 assistant:"]
    data = DataConfig(chat_template=True, max_prompt_tokens=2)
    cut_chat = made(["10 11"], SHOUT, chat_template=True, max_prompt_tokens=2)
    assert cut_chat.ids == [[11, 0]]
    assert cut_chat.notes(data)[1] == "1 of 1 prompts have more than 2 tokens and lost their beginning, and with it the front of the chat."


def test_conversations_keep_their_own_system_message() -> None:
    own = ({"role": "system", "content": "own"}, {"role": "user", "content": "x"})
    assert chat_of(Prompt(1, "", own), "mine") == list(own)
    assert chat_of(Prompt(1, "", own[1:]), "mine") == [{"role": "system", "content": "mine"}, own[1]]


def test_a_row_that_the_template_refuses() -> None:
    picky = ChatTemplate("{% if messages[0].content == '11' %}{{ raise_exception('no') }}{% endif %}")
    with pytest.raises(PromptsError, match=r"data.chat_template: row 2: the chat template refuses the conversation \(no\)"):
        made(["10", "11"], picky, chat_template=True)
    with pytest.raises(PromptsError, match="data.chat_template: the chat template is not valid"):
        made(["10"], ChatTemplate("{% if %}"), chat_template=True)
    with pytest.raises(PromptsError, match="the tokenizer has no chat template"):
        made(["10"], None, chat_template=True)


CONVERSATIONS = """
{"chat": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}], "answer": "A"}
{"chat": [{"role": "system", "content": "S"}, {"role": "user", "content": "Q", "name": "ignored"}], "answer": "B"}
{"chat": "just text", "answer": "C"}
{"chat": [], "answer": "D"}
{"chat": [{"role": "assistant", "content": "alone"}], "answer": "E"}
"""


def test_conversations_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "chats.jsonl"
    path.write_text(CONVERSATIONS)
    data = DataConfig(prompts=str(path), column="chat", reference_column="answer", chat_template=True)
    prompts = read_prompts(data)
    prepared = prepare(prompts, data, Words(), SHOUT, 0)
    assert prepared.texts == ["user: Hi assistant:", "system: S user: Q assistant:", "user: just text assistant:"]
    assert prepared.references == ["A", "B", "C"]
    assert prepared.notes(data) == [
        "Not used, since what the model reads is the same without: 'name' (in 1 chat).",
        "2 of 5 rows were left out: 2 blank.",
        "The last answer of 1 conversation was left out: the policy writes it.",
    ]


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ('["x"]', "row 1, message 1 in 'prompt' is not like"),
        ('[{"role": "user", "content": "x"}, {"role": "user", "content": null}]', "row 1, message 2 in 'prompt': role and content must be"),
        ('[{"role": "user", "content": "\\ud800"}]', "half a character"),
        ("7", "holds int"),
    ],
)
def test_conversations_that_are_none(cell: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "chats.jsonl"
    path.write_text(f'{{"prompt": {cell}}}\n')
    with pytest.raises(PromptsError) as caught:
        read_prompts(DataConfig(prompts=str(path), chat_template=True))
    assert message in caught.value.message


def test_a_conversation_that_is_too_long() -> None:
    cell = [{"role": "user", "content": "x" * 60_000}] * 2
    with pytest.raises(PromptsError, match="row 4 holds more than 100,000 characters in 'chat'"):
        prompt_from(4, {"prompt": cell}, {"prompt": "chat"}, DataConfig(chat_template=True), False, False)


def test_repeats_among_conversations(tmp_path: Path) -> None:
    path = tmp_path / "chats.jsonl"
    rows = ['[{"role": "user", "content": "a\\nb"}]', '[{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]']
    path.write_text("".join(f'{{"prompt": {row}}}\n' for row in rows * 2))
    prompts = read_prompts(DataConfig(prompts=str(path), chat_template=True, drop_duplicates=True))
    assert [row.number for row in prompts.rows] == [1, 2] and prompts.left_out == {"repeated": 2}


# --- settings that do not fit together ---------------------------------------------------------------------------------------------


# --- what a resumed run compares -----------------------------------------------------------------------------------------------------


def test_the_fingerprint_changes_with_everything_that_training_reads() -> None:
    def prints(texts: list[str], ids: list[list[int]], references: list[str] | None) -> str:
        return Prepared(texts, ids, [], references, Counter()).fingerprint()

    base = prints(["a", "b"], [[1], [2]], None)
    assert base == prints(["a", "b"], [[1], [2]], None)
    others = [
        prints(["a"], [[1], [2]], None),
        prints(["b", "a"], [[1], [2]], None),
        prints(["a", "b"], [[1], [3]], None),
        prints(["a", "b"], [[1], [2]], ["", ""]),
        prints(["a\n", "b"], [[1], [2]], None),
        prints(["a', 'b"], [[1], [2]], None),
    ]
    assert len({base, *others}) == 7


# --- tokenizer.json --------------------------------------------------------------------------------------------------------------------


def test_a_tokenizer_file(make_model: MakeModel) -> None:
    path = make_model() / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=9)
    encoder = FileEncoder(tokenizer)
    assert encoder.encode(["the film was good", "bad"], special=True) == [[3, 4, 5, 6], [7]]
    assert (encoder.starts, encoder.decode([3, 4])) == (set(), "the film")
    tokenizer.post_processor = TemplateProcessing(single="<end> $A <pad>", special_tokens=[("<end>", 1), ("<pad>", 0)])
    encoder = FileEncoder(tokenizer)
    assert encoder.starts == {1}
    assert encoder.encode(["bad"], special=True) == [[1, 7, 0]] and encoder.encode(["bad"], special=False) == [[7]]
    assert encoder.encode([], special=True) == []
    assert count_tokens(["the film", ""], path) == [2, 0]


def test_no_counts_without_a_tokenizer_that_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    assert load_encoder(tmp_path / "tokenizer.json") is None
    assert count_tokens(["a"], tmp_path / "missing.json") is None
    assert count_tokens(["a"], None) is None


def test_texts_are_encoded_in_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many texts there are, the tokenizer never holds more than a pack; the result is that of one call."""
    texts = [numbers(count) for count in (1, 40, 2, 3, 40, 5)]
    at_once, ticks = made(texts), []
    packs: list[int] = []
    encode = Words.encode

    def counted(self: Words, pack: list[str], *, special: bool) -> list[list[int]]:
        packs.append(len(pack))
        return encode(self, pack, special=special)

    monkeypatch.setattr(Words, "encode", counted)
    monkeypatch.setattr("rlhf_studio.inputs.prompts.prepare.PACK_CHARACTERS", 100)
    prompts = Prompts([Prompt(number, text) for number, text in enumerate(texts, start=1)])
    assert prepare(prompts, DataConfig(), Words(), None, 0, lambda: ticks.append(1)).ids == at_once.ids
    assert packs == [2, 3, 1] and len(ticks) == 3
