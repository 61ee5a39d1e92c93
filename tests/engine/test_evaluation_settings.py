"""Settings of an evaluation: which prompts are answered, which texts are read, and what answers when no policies are named."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoTokenizer

from rlhf_studio.engine.stages.evaluating import loading
from rlhf_studio.engine.stages.evaluating.questions import read_questions, read_texts
from rlhf_studio.engine.stages.evaluating.stage import ppo_settings
from rlhf_studio.inputs.prompts.errors import PromptsError
from tests.engine.conftest import PROMPTS
from tests.engine.test_evaluating import answers_of, build, evaluation, plain_logprob, quiet, setup


@pytest.fixture(autouse=True)
def _untraced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tracing a decoding step takes longer than these tests sample."""
    monkeypatch.setattr(loading, "traced", lambda *models: (None, []))


def test_the_first_texts_of_a_column_are_read(tmp_path: Path) -> None:
    policies = setup(tmp_path)
    (tmp_path / "texts.csv").write_text("body,text\nw1 w2,no\nw3,no\nw4,no\n")
    settings = {"text": str(tmp_path / "texts.csv"), "text_column": "body", "text_rows": 2}
    assert read_texts(evaluation(tmp_path, [policies["policy"]], evaluation=settings), quiet) == ["w1 w2", "w3"]
    with pytest.raises(PromptsError) as caught:
        read_texts(evaluation(tmp_path, [policies["policy"]], evaluation=settings | {"text_column": "words"}), quiet)
    assert (caught.value.field, caught.value.message) == (
        "evaluation.text_column",
        "there is no column 'words'; the columns are: body, text",
    )


@pytest.mark.parametrize(
    ("count", "expected"), [(3, PROMPTS[::2]), (4, [PROMPTS[place] for place in (0, 1, 3, 4)]), (0, PROMPTS), (99, PROMPTS)]
)
def test_so_many_prompts_are_answered(tmp_path: Path, count: int, expected: list[str]) -> None:
    """Spread evenly over those that are held out; 0: all."""
    config = evaluation(tmp_path, [setup(tmp_path)["policy"]], evaluation={"prompts": count})
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "policy")
    assert read_questions(config, ppo_settings(config), tokenizer, quiet).texts() == expected


def test_the_model_itself_answers_where_no_policies_are_named(tmp_path: Path) -> None:
    other = setup(tmp_path)["other"]
    found = answers_of(build(evaluation(tmp_path, [], model={"policy": other})))
    assert {answer.policy for answer in found} == {"other"} and len(found) == 2 * len(PROMPTS)
    for answer in found:
        expected = plain_logprob(other, answer.prompt, answer.response, bool(answer.stopped))
        assert answer.ref_logprob == pytest.approx(expected, abs=1e-3) and answer.kl == pytest.approx(0.0, abs=1e-4)
