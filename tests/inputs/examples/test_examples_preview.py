"""What people see of examples before anything is loaded, and what keeps a stage from starting."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.config import (
    DemonstrationsConfig,
    DPORunConfig,
    EngineConfig,
    PairsConfig,
    RewardModelRunConfig,
    SFTConfig,
    SFTRunConfig,
)
from rlhf_studio.inputs.chat import ChatTemplate
from rlhf_studio.inputs.examples import cached, preview
from rlhf_studio.inputs.examples.check import COPIED_EXAMPLES, SAME_EXAMPLES, CheckedExamples, check_examples
from rlhf_studio.inputs.examples.preview import PreviewExample, preview_examples
from rlhf_studio.inputs.models.facts import ModelFacts, check_causal_lm
from rlhf_studio.inputs.prompts.preview import Lengths
from tests.inputs.conftest import MakeModel


def write(folder: Path, rows: Sequence[dict[str, Any]], name: str = "d.jsonl") -> str:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def many(count: int, words: int = 1) -> list[dict[str, Any]]:
    return [{"prompt": f"the film {number}", "completion": " was" + " good" * words} for number in range(count)]


@pytest.fixture
def facts(make_model: MakeModel) -> ModelFacts:
    return check_causal_lm(str(make_model()))


def test_the_first_demonstrations_with_their_tokens(facts: ModelFacts, tmp_path: Path) -> None:
    rows = [
        {"prompt": "the film", "completion": " was good"},
        {"prompt": "the film was the film", "completion": " bad"},
        {"prompt": "the film", "completion": ""},
        {"prompt": "the", "completion": " good good good good good"},
    ]
    data = DemonstrationsConfig(source=write(tmp_path, rows), max_tokens=5, eval_share=0.5)
    examples = preview_examples(data, 9, facts.tokenizer)
    assert examples.rows == [
        PreviewExample(1, ("the film", " was good"), (2, 3), False, examples.rows[0].held_out),
        PreviewExample(2, ("the film was the film", " bad"), (5, 2), True, examples.rows[1].held_out),
    ]
    assert (examples.shape, examples.total, examples.whole) == ("prompts with completions (prompt, completion)", 2, True)
    assert examples.columns == ["prompt", "completion"] and examples.lengths == Lengths(5, 5, 7, 7, [0] * 10 + [1] + [0] * 3 + [1] + [0])
    assert examples.notes == [
        "2 of 4 demonstrations were left out: 1 with an empty response, 1 whose response alone takes 5 tokens or more.",
        "1 of 2 have more than 5 tokens and lost the beginning of their prompt.",
        "1 of 3 examples are held out: training never sees them (data.eval_share).",
    ]


def test_the_first_pairs_and_what_people_said_of_them(facts: ModelFacts, tmp_path: Path) -> None:
    rows = [{"prompt": "the", "chosen": " good", "rejected": " bad film", "by": 2, "sure": 0.5, "topic": "films"}]
    data = PairsConfig(source=write(tmp_path, rows), margin_column="by", confidence_column="sure", group_column="topic")
    expected = ("the", " good", " bad film")
    assert preview_examples(data, 1, facts.tokenizer).rows == [
        PreviewExample(1, expected, (1, 2, 3), False, said="margin 2, confidence 0.5, films")
    ]
    plain = preview_examples(data, 1, None)
    assert plain.rows == [PreviewExample(1, expected, None, False, said="margin 2, confidence 0.5, films")] and plain.lengths is None
    form = data.model_copy(update={"prompt_format": "Q: {prompt} A:"})
    assert preview_examples(form, 1, None).rows[0].texts[0] == preview_examples(form, 1, facts.tokenizer).rows[0].texts[0] == "Q: the A:"


def test_chats_are_shown_as_the_template_writes_them(facts: ModelFacts, tmp_path: Path) -> None:
    chat = ChatTemplate(
        "{% for m in messages %}<{{ m.role }}> {{ m.content }} {% endfor %}{% if add_generation_prompt %}<assistant> {% endif %}"
    )
    data = DemonstrationsConfig(source=write(tmp_path, [{"prompt": "the", "completion": "good"}]), chat_template=True)
    for tokenizer in (facts.tokenizer, None):
        assert preview_examples(data, 1, tokenizer, chat).rows[0].texts == ("<user> the <assistant> ", "good ")


def test_of_a_large_file_the_first_rows_are_looked_at(facts: ModelFacts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached, "LOCAL_ROWS", 30)
    data = DemonstrationsConfig(source=write(tmp_path, [*many(40), {"prompt": 4}]), max_tokens=128)
    examples = preview_examples(data, 3, facts.tokenizer)
    assert (examples.total, examples.whole, len(examples.rows)) == (30, False, 3)
    assert examples.notes == ["Of all examples 5 % are held out, at most 1,000: training never sees them (data.eval_share)."]
    checked = check_examples(SFTRunConfig(data=data), facts)
    assert (checked.count, checked.held_out, checked.complete) == (None, None, False) and checked.texts == (6,) * 30
    monkeypatch.setattr(preview, "MEASURED_CHARACTERS", 50)
    short = DemonstrationsConfig(source=write(tmp_path, many(20), "e.jsonl"))
    assert not preview_examples(short, 1, facts.tokenizer).whole


def test_a_file_is_read_again_when_it_changes_and_only_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = DemonstrationsConfig(source=write(tmp_path, many(2)))
    reads: list[str] = []
    usual = cached.read_demonstrations
    monkeypatch.setattr(cached, "read_demonstrations", lambda data, **rest: reads.append(data.source) or usual(data, **rest))
    for changed in (data, data.model_copy(update={"max_tokens": 9, "eval_share": 0.0}), data):
        assert len(cached.read_first(changed)) == 2
    assert len(reads) == 1
    write(tmp_path, many(3))
    assert len(cached.read_first(data)) == 3 and len(reads) == 2


def test_what_may_start(facts: ModelFacts, tmp_path: Path) -> None:
    data = DemonstrationsConfig(source=write(tmp_path, many(40)), eval_share=0.0)
    assert check_examples(SFTRunConfig(data=data), facts) == CheckedExamples([], [], 40, 0, (6,) * 40, 3.0)
    assert check_examples(SFTRunConfig(data=data, sft=SFTConfig(loss_on="text")), facts).counted == 5.0
    held_out = check_examples(SFTRunConfig(data=data.model_copy(update={"eval_share": 0.1})), facts)
    assert held_out.notes == ["4 of 40 examples are held out: training never sees them (data.eval_share)."]
    assert (held_out.count, held_out.held_out) == (36, 4)
    same = check_examples(SFTRunConfig(data=data.model_copy(update={"eval": data.source})), facts)
    assert same.notes == [SAME_EXAMPLES] and same.held_out == 40
    assert check_examples(SFTRunConfig(data=data), None).count == 40


def test_held_out_data_that_is_a_copy_is_told(facts: ModelFacts, tmp_path: Path) -> None:
    text = Path(source := write(tmp_path, many(40))).read_text(encoding="utf-8")
    copy, other = tmp_path / "held-out.jsonl", tmp_path / "other.jsonl"
    copy.write_text(text, encoding="utf-8")
    swapped = text.splitlines(keepends=True)
    other.write_text("".join([*swapped[1:], swapped[0]]), encoding="utf-8")

    def notes(train: object, held_out: object, **data: Any) -> list[str]:
        made = DemonstrationsConfig(source=str(train), eval=str(held_out), **data)
        return [note for note in check_examples(SFTRunConfig(data=made), facts).notes if "nothing is held out" in note]

    assert notes(source, copy) == [COPIED_EXAMPLES] and notes(source, source) == [SAME_EXAMPLES]
    assert notes(source, other) == [], "as long, but not the same"
    copy.write_text(other.read_text(encoding="utf-8") + text, encoding="utf-8")
    assert notes(source, copy) == [], "what was told of a file is not told of another one in its place"


BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "missing": ({"source": "/none/d.jsonl"}, "data.source", "there is no file /none/d.jsonl"),
    "held-out data missing": ({"eval": "/none/e.jsonl"}, "data.eval", "there is no file /none/e.jsonl"),
    "all too long": ({"max_tokens": 4, "overlong": "drop"}, "data.max_tokens", "demonstrations that are left: 40 with more than 4 tokens"),
    "no template": ({"chat_template": True}, "data.chat_template", "the tokenizer has no chat template"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_may_not_start(case: str, facts: ModelFacts, tmp_path: Path) -> None:
    options, field, message = BAD[case]
    data = DemonstrationsConfig(**{"source": write(tmp_path, many(40)), **options})
    (problem,) = check_examples(SFTRunConfig(data=data), facts).problems
    assert problem.field == field and message in problem.message


def test_preflight_counts_ties_as_both_stages_learn_from_them(facts: ModelFacts, tmp_path: Path) -> None:
    rows = [{"prompt": f"{row}", "chosen": " good", "rejected": " bad", "same": row % 2} for row in range(40)]
    data = PairsConfig(source=write(tmp_path, rows), tie_column="same", eval_share=0.0)
    scored = check_examples(RewardModelRunConfig(data=data), facts)
    assert (scored.count, scored.texts, scored.counted) == (40, (3,) * 80, 3.0)
    checked = check_examples(DPORunConfig(data=data), facts)
    note = "20 pairs came with equally good responses: they are learned as ties, without margins, and accuracy does not count them."
    assert checked.notes == scored.notes == [note]
    assert (checked.count, checked.texts, checked.counted) == (40, (3,) * 80, 2.0)


def test_nothing_is_left_to_train_on(facts: ModelFacts, tmp_path: Path) -> None:
    rows = [
        {"prompt": "the", "chosen": " good", "rejected": "", "same": 1},
        {"prompt": "a", "chosen": " x", "rejected": " y", "same": 0},
    ]
    data = PairsConfig(source=write(tmp_path, rows), tie_column="same", eval_share=0.5)
    (problem,) = check_examples(DPORunConfig(data=data), facts).problems
    assert problem.field == "data.source" and "1 with an empty response, 1 whose chosen and rejected responses are the" in problem.message
    few = write(tmp_path, [{"text": "good"}, {"text": "bad " * 80}], "few.jsonl")
    half = DemonstrationsConfig(source=few, eval_share=0.5, max_tokens=40, overlong="drop")
    checked = [check_examples(SFTRunConfig(data=half, engine=EngineConfig(seed=seed)), facts) for seed in range(8)]
    results = {(result.count, result.held_out, *(problem.field for problem in result.problems)) for result in checked}
    assert results == {(1, 0), (None, None, "data.eval_share")}  # the text that is too long is held out, or the other one
