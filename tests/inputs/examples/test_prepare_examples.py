"""From examples to token ids, with answers worked by hand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from tokenizers import Tokenizer, models, normalizers

from rlhf_studio.config import DataConfig, DemonstrationsConfig, PairsConfig
from rlhf_studio.inputs.chat import ChatTemplate
from rlhf_studio.inputs.examples import (
    Demonstration,
    EncodedExample,
    EncodedPair,
    Pair,
    PromptsError,
    prepare_demonstrations,
    prepare_pairs,
    split_held_out,
)
from rlhf_studio.inputs.examples.encoded import Length
from rlhf_studio.inputs.examples.held_out import held_out_error, held_out_settings, same_source
from rlhf_studio.inputs.prompts import Prompts
from rlhf_studio.inputs.prompts.cells import Prompt
from rlhf_studio.inputs.prompts.prepare import prepare
from rlhf_studio.inputs.prompts.written import written, written_chat
from rlhf_studio.inputs.tokens import FileEncoder, load_encoder
from tests.inputs.chat_templates import CHATML
from tests.inputs.test_prepare import START, Words, numbers

END = 2
FORM = "Human: {prompt}\n\nAssistant:"
WORLD = Path(__file__).resolve().parents[3] / "assets" / "world" / "policy" / "tokenizer.json"
USER, ASSISTANT = {"role": "user"}, {"role": "assistant"}
TURNS = ChatTemplate(
    "{% for m in messages %}{{ '7 ' if m.role == 'user' else '8 ' }}{{ m.content }} {{ '9 ' if m.role == 'assistant' }}{% endfor %}"
    "{% if add_generation_prompt %}8 {% endif %}",
    kept_whole=("9", "8"),
)


def demonstrations(*rows: tuple[str, str], loss_on: Any = "response", end: int | None = END, **options: Any) -> Any:
    data = DemonstrationsConfig(**options)
    examples = [Demonstration(number, *texts) for number, texts in enumerate(rows, start=1)]
    return prepare_demonstrations(examples, data, Words(), None, loss_on, end=end, keep_texts=9)


def pairs(*rows: Pair, whole_texts: bool = False, ties: bool = True, end: int | None = None, chat: Any = None, **options: Any) -> Any:
    return prepare_pairs(rows, PairsConfig(**options), Words(), chat, whole_texts=whole_texts, ties=ties, end=end, keep_texts=9)


# --- demonstrations ----------------------------------------------------------------------------------------------------------


def test_only_the_response_counts_unless_all_of_the_text_does() -> None:
    assert demonstrations(("10 11", " 12")).items == [EncodedExample((START, 10, 11, 12, END), (-100, -100, -100, 12, END))]
    assert demonstrations(("10 11", " 12"), loss_on="text").items[0].labels == (START, 10, 11, 12, END)
    assert demonstrations(("", "10 11"), end=None).items == [EncodedExample((START, 10, 11), (START, 10, 11))]
    assert demonstrations(("10", " 12")).items[0].counted == 2 and demonstrations(("", "10")).items[0].counted == 2


def test_a_long_prompt_loses_its_beginning_and_a_long_response_is_left_out() -> None:
    rows = [("10 11 12 13", " 20 21"), ("10", " 20"), ("10", f" {numbers(5, 20)}"), ("10", f" {numbers(4, 30)}"), ("", numbers(4))]
    done = demonstrations(*rows, max_tokens=6)
    assert [item.ids for item in done.items] == [
        (START, 12, 13, 20, 21, END),
        (START, 10, 20, END),
        (10, 30, 31, 32, 33, END),
        (START, 10, 11, 12, 13, END),
    ]
    assert done.items[0].labels == (-100, -100, -100, 20, 21, END)
    assert done.left_out == {"long_response": 1} and done.counts["cut"] == 2
    assert done.lengths == [Length(5, 3), Length(2, 2), Length(2, 5), Length(0, 6)]
    assert [row.number for row in done.rows] == [1, 2, 4, 5]
    assert done.notes(DemonstrationsConfig(max_tokens=6), Counter({"repeated": 2})) == [
        "3 of 7 demonstrations were left out: 2 exact copies of earlier ones, 1 whose response alone takes 6 tokens or more.",
        "2 of 4 have more than 6 tokens and lost the beginning of their prompt.",
    ]
    dropped = demonstrations(*rows, max_tokens=6, overlong="drop")
    assert [item.ids for item in dropped.items] == [(START, 10, 20, END), (START, 10, 11, 12, 13, END)]
    assert dropped.left_out == {"too_long": 3}


def test_a_long_text_is_divided_and_nothing_of_it_is_lost() -> None:
    done = demonstrations(("", numbers(7)), max_tokens=4)
    assert [item.ids for item in done.items] == [(START, 10, 11, 12), (START, 13, 14, 15), (START, 16, END)]
    assert done.counts["divided"] == 1 and [row.number for row in done.rows] == [1, 1, 1] and done.lengths == [Length(0, 9)]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 12), st.integers(1, 12), st.integers(4, 12), st.booleans())
def test_nothing_is_longer_than_allowed_and_whole_responses_are_learned(prompt: int, response: int, most: int, drop: bool) -> None:
    rows = ((numbers(prompt, 100), f" {numbers(response, 200)}"),) if prompt else (("", numbers(response, 200)),)
    done = demonstrations(*rows, max_tokens=most, overlong="drop" if drop else "cut_prompt")
    assert all(len(item.ids) <= most for item in done.items) and len(done.lengths) + done.left_out.total() == 1
    if done.items:
        learned = [label for item in done.items for label in item.labels if label not in (-100, START)]
        assert learned == [*range(200, 200 + response), END]
        tokens = [token for item in done.items for token in item.ids if 100 <= token < 200]
        assert tokens == list(range(100 + prompt - len(tokens), 100 + prompt))


def test_all_answers_of_a_chat_are_learned_and_its_beginning_is_cut() -> None:
    messages = (
        USER | {"content": "10 11"},
        ASSISTANT | {"content": "20"},
        USER | {"content": "12"},
        ASSISTANT | {"content": "21 22"},
    )
    row = Demonstration(1, "10 11\n20\n12", "21 22", messages)
    encode = lambda most: prepare_demonstrations(  # noqa: E731
        [row], DemonstrationsConfig(chat_template=True, max_tokens=most), Words(), TURNS, "response", end=END
    )
    assert encode(40).items == [
        EncodedExample((7, 10, 11, 8, 20, 9, 7, 12, 8, 21, 22, 9), (-100, -100, -100, -100, 20, 9, -100, -100, -100, 21, 22, 9))
    ]
    assert encode(9).items == [EncodedExample((8, 20, 9, 7, 12, 8, 21, 22, 9), (-100, 20, 9, -100, -100, -100, 21, 22, 9))]
    plain = Demonstration(1, "10", "20")
    done = prepare_demonstrations([plain], DemonstrationsConfig(chat_template=True, system_text=""), Words(), TURNS, "response", end=END)
    assert done.items == [EncodedExample((7, 10, 8, 20, 9), (-100, -100, -100, 20, 9))]


@pytest.mark.parametrize(
    ("chat", "message"),
    [
        (None, "the tokenizer has no chat template"),
        (ChatTemplate("{{ raise_exception('no') }}"), "row 3: the chat template refuses the conversation"),
        (ChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}{% generation %}{% endgeneration %}"), ""),
    ],
)
def test_a_template_that_cannot_be_used(chat: ChatTemplate | None, message: str) -> None:
    data = DemonstrationsConfig(chat_template=True)
    if not message:  # it marks an empty answer: there is nothing to learn
        done = prepare_demonstrations([Demonstration(3, "10", "20")], data, Words(), chat, "response", end=END)
        assert done.left_out == {"empty_response": 1}
        return
    with pytest.raises(PromptsError, match=message) as caught:
        prepare_demonstrations([Demonstration(3, "10", "20")], data, Words(), chat, "response", end=END)
    assert caught.value.field == "data.chat_template"


# --- the prompt format -------------------------------------------------------------------------------------------------------


def test_prompts_have_the_same_text_in_every_stage() -> None:
    questions = ["Who?", "\n\nHuman: Who?\n\nAssistant:", "A {prompt} with braces"]
    expected = ["Human: Who?\n\nAssistant:", "\n\nHuman: Who?\n\nAssistant:", "Human: A {prompt} with braces\n\nAssistant:"]
    prompts = Prompts([Prompt(number, text) for number, text in enumerate(questions, start=1)])
    assert prepare(prompts, DataConfig(prompt_format=FORM), Words(), None, 0).texts == expected
    done = demonstrations(*((text, "Ada.") for text in questions), prompt_format=FORM)
    assert done.texts == [(text, " Ada.") for text in expected]
    assert pairs(*(Pair(1, text, "5", " 6") for text in questions), prompt_format=FORM).texts == [(text, " 5", " 6") for text in expected]
    assert done.notes(DemonstrationsConfig(), Counter()) == [
        "3 responses got a space in front, which would else stick to the form of their prompt."
    ]
    assert written("Q: x\nA:", r"Q: {prompt}\nA:") == "Q: x\nA:" and written("Q: x", r"Q: {prompt}\nA:") == "Q: Q: x\nA:"
    assert written("aa", "a{prompt}a") == "aa" and written("a", "a{prompt}a") == "aaa"  # in the form: with nothing in it
    assert written("x", r"Q: {prompt}\nA:") == "Q: x\nA:"  # as it is typed on a command line


def test_chats_are_written_in_the_form_turn_by_turn() -> None:
    messages = (
        {"role": "system", "content": "Be short."},
        USER | {"content": "Hi"},
        ASSISTANT | {"content": "Hello."},
        USER | {"content": "And?"},
    )
    text = "Be short.\n\nHuman: Hi\n\nAssistant: Hello.\n\nHuman: And?\n\nAssistant:"
    assert written_chat(messages, FORM) == text
    row = Demonstration(1, "", "Bye.", (*messages, ASSISTANT | {"content": "Bye."}))
    done = prepare_demonstrations([row], DemonstrationsConfig(prompt_format=FORM), Words(), None, "response", end=END, keep_texts=1)
    assert done.texts == [(text, " Bye.")] and done.items[0].counted == 3  # Hello., Bye. and the end token
    assert pairs(Pair(1, "", "5", "6", messages), prompt_format=FORM).texts == [(text, " 5", " 6")]


def test_a_missing_space_is_counted_in_responses_of_pairs_too() -> None:
    """Of two pairs, one is left out for its length: what was looked at are four responses, three of them without a space."""
    done = pairs(Pair(1, "10", "20", "21"), Pair(2, "10", " 20", numbers(9, 20)), max_tokens=6)
    assert len(done.lengths) == 1 and done.left_out.total() == 1
    (stuck_note,) = (note for note in done.notes(PairsConfig(max_tokens=6), Counter()) if "between" in note)
    assert stuck_note == "Nothing stands between the prompt and 3 of 4 responses, not even a space; data.prompt_format can say what does."


@pytest.mark.parametrize("kind", [DataConfig, DemonstrationsConfig, PairsConfig])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompt_format": "Q:"}, "needs {prompt} exactly once"),
        ({"prompt_format": "{prompt} {prompt}"}, "needs {prompt} exactly once"),
        ({"prompt_format": FORM, "chat_template": True}, "use one of the two"),
    ],
)
def test_a_form_that_cannot_be_used(kind: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        kind(**options)


def test_a_prompt_in_its_form_keeps_its_end() -> None:
    with pytest.raises(ValidationError, match="cut off the place where the answer begins"):
        DataConfig(prompt_format=FORM, overlong="cut_right")
    with pytest.raises(ValidationError, match="cannot be cut to its first tokens"):
        DataConfig(prompt_format=FORM, query_tokens_min=1, query_tokens_max=2)


# --- pairs -------------------------------------------------------------------------------------------------------------------


def test_prompt_and_responses_are_apart_for_a_policy_and_together_for_a_reward_model() -> None:
    row = Pair(4, "10", " 20 21", " 20 22", None, 1.5, 0.5, False, "g")
    assert pairs(row, end=END).items == [EncodedPair((START, 10), (20, 21, END), (20, 22, END), 1.5, 0.5, False, "g", 4)]
    assert pairs(row, whole_texts=True).items == [EncodedPair((START, 10, 20), (21,), (22,), 1.5, 0.5, False, "g", 4)]
    begins = Pair(1, "10", " 20", " 20 21")
    assert pairs(begins, whole_texts=True).items == [EncodedPair((START, 10), (20,), (20, 21), number=1)]


def test_long_pairs_and_ties() -> None:
    rows = [Pair(1, "10 11 12", " 20", " 21 22"), Pair(2, "10", " 20", numbers(6, 20)), Pair(3, "10", " 20", " 21", tie=True)]
    done = pairs(*rows, max_tokens=5)
    assert [(item.prompt, item.chosen, item.rejected) for item in done.items] == [
        ((START, 11, 12), (20,), (21, 22)),
        ((START, 10), (20,), (21,)),
    ]
    assert done.left_out == {"long_response": 1} and done.counts["cut"] == 1 and done.lengths[0] == Length(4, 1, 2)
    assert pairs(*rows, max_tokens=5, ties=False).left_out == {"tie": 1, "long_response": 1}
    assert pairs(*rows, max_tokens=5, overlong="drop").left_out == {"too_long": 2}
    assert pairs(Pair(1, "", "20", numbers(9)), max_tokens=5).left_out == {"long_response": 1}
    assert pairs(Pair(1, "10", " one", " two")).left_out == {"equal": 1}  # both words are the same token


def test_pairs_of_chats() -> None:
    row = Pair(1, "10 11", "20", "21", (USER | {"content": "10 11"},))
    (item,) = pairs(row, end=END, chat=TURNS, chat_template=True, system_text="12").items
    assert (item.prompt, item.chosen, item.rejected) == ((8, 12, 7, 10, 11, 8), (20, 9), (21, 9))
    (item,) = pairs(row, whole_texts=True, end=END, chat=TURNS, chat_template=True).items
    assert (item.prompt, item.chosen, item.rejected) == ((7, 10, 11, 8), (20, 9, END), (21, 9, END))
    otherwise = ChatTemplate("{% for m in messages %}{{ m.content }} {% endfor %}{% if add_generation_prompt %}say {% endif %}")
    with pytest.raises(PromptsError, match="row 1: the chat template writes a chat with its answer otherwise"):
        pairs(row, chat=otherwise, chat_template=True)


def marking_tokenizer() -> FileEncoder:
    """One that marks the beginning of every text, as Llama 2's does: a piece alone has other ids than within a text."""
    pieces = ["?", "▁", "▁so", "▁it", "▁Who", "▁Ada"]
    tokenizer = Tokenizer(models.Unigram([(piece, -10.0 / len(piece)) for piece in pieces], unk_id=0))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return FileEncoder(tokenizer)


def test_a_response_has_the_ids_that_it_has_behind_its_prompt() -> None:
    encoder = marking_tokenizer()
    assert encoder.encode(["Who Ada", "Who", " Ada"], special=False) == [[4, 5], [4], [1, 5]]
    done = prepare_demonstrations([Demonstration(1, "Who", " Ada")], DemonstrationsConfig(), encoder, None, "response", end=None)
    assert done.items == [EncodedExample((4, 5), (-100, 5))]


# --- held out ----------------------------------------------------------------------------------------------------------------


def test_held_out_examples_share_no_prompt_with_the_others() -> None:
    rows = [Demonstration(number, f"p{number % 50}", f"c{number}") for number in range(400)]
    train, held_out = split_held_out(rows, DemonstrationsConfig(eval_share=0.1), 3)
    assert len(held_out) == 40 and sorted([*train, *held_out], key=lambda row: row.number) == rows
    assert not {row.prompt for row in train} & {row.prompt for row in held_out}
    assert [row.number for row in train] == sorted(row.number for row in train)
    assert split_held_out(rows, DemonstrationsConfig(eval_share=0.1), 3) == (train, held_out)
    assert split_held_out(rows, DemonstrationsConfig(eval_share=0.1), 4)[1] != held_out
    assert split_held_out(rows, DemonstrationsConfig(eval_share=0.1, eval="x.jsonl"), 3)[1] == []
    assert split_held_out(rows, DemonstrationsConfig(eval_share=0.0), 3)[1] == []
    texts = [Demonstration(number, "", f"c{number}") for number in range(30_000)]
    assert len(split_held_out(texts, DemonstrationsConfig(), 0)[1]) == 1_000


def test_held_out_pairs_share_no_response_with_the_others() -> None:
    blocks = [Pair(number, "", f"a{number // 10}", f"b{number}", block=1 + number // 10) for number in range(100)]
    train, held_out = split_held_out(blocks, PairsConfig(eval_share=0.2), 0)
    assert len(held_out) == 20 and not {row.chosen for row in train} & {row.chosen for row in held_out}


def test_held_out_data_is_read_like_the_data(tmp_path: Path) -> None:
    data = PairsConfig(source="a/b", subset="s", eval="c/d", eval_split="dev", min_confidence=0.5)
    own = held_out_settings(data)
    assert own is not None and (own.source, own.split, own.subset, own.eval, own.max_rows) == ("c/d", "dev", "", "", 1_000)
    assert own.min_confidence == 0.5 and held_out_settings(PairsConfig()) is None
    assert not same_source(data) and same_source(PairsConfig(source="a/b", eval="a/b", eval_split="train"))
    assert same_source(PairsConfig(eval="bundled/world-pairs")) and not same_source(PairsConfig(eval="bundled/world-pairs-heldout"))
    assert held_out_error(PromptsError("data.source", "gone")).field == "data.eval"
    assert held_out_error(PromptsError("data.split", "none")).field == "data.eval_split"
    error = held_out_error(PromptsError("data.chosen_column", "none"))
    assert (error.field, error.message) == ("data.eval", "in the held-out data: none")


def test_chatml_of_real_templates_is_learned_to_its_end_token() -> None:
    encoder = load_encoder(WORLD)
    assert encoder is not None
    data, chat = DemonstrationsConfig(chat_template=True), ChatTemplate(CHATML, kept_whole=("<|im_start|>", "<|im_end|>"))
    done = prepare_demonstrations([Demonstration(1, "Hi", "Yes.")], data, encoder, chat, "response", end=1, keep_texts=1)
    assert done.texts[0][1] == "Yes.<|im_end|>\n" and done.texts[0][0].endswith("Hi<|im_end|>\n<|im_start|>assistant\n")
    learned = [label for label in done.items[0].labels if label != -100]
    assert encoder.decode(learned) == "Yes.<|im_end|>\n" and learned[-1] != 1
    # A tokenizer that does not keep the template's mark whole: no single token ends an answer, so the end token follows.
    (item,) = prepare_demonstrations([Demonstration(1, "Hi", "Yes.")], data, encoder, ChatTemplate(CHATML), "response", end=1).items
    assert item.labels == (*done.items[0].labels, 1)
