"""The reader of lessons' texts, and the cutter of code."""

from __future__ import annotations

import pytest

from rlhf_studio.lessons.kit import Slider
from rlhf_studio.lessons.kit.code import CodeError, excerpt
from rlhf_studio.lessons.kit.formula import formula
from rlhf_studio.lessons.kit.text import TextError, read_text

TEXT = """# A title

The introduction, with `code` and $a_t$.

:::scene one
The value is [[value:+.1f]], *not* [[other]]; see [KL](term:kl).

:::predict value
What is it? It may be
small.
- yes: Because it is so,
  and not otherwise.
- no: Because not.
:::

$$x = 1$$

- first
- second

:::words
word: a word: with a colon
:::
"""


def test_a_text_becomes_a_tree() -> None:
    text = read_text(TEXT)
    assert text.title == "A title"
    (introduction,) = text.introduction
    assert introduction["content"][0] == "The introduction, with "
    assert introduction["content"][1] == {"kind": "code", "text": "code"}
    assert introduction["content"][3]["tree"][0] == "math"
    (scene,) = text.scenes
    assert scene.slots == {"value:+.1f": ("value", "+.1f"), "other": ("other", ""), "value": ("value", "")}
    assert [block["kind"] for block in scene.blocks] == ["paragraph", "predict", "formula", "bullet_list"]
    question = scene.blocks[1]
    assert question["question"] == ["What is it? It may be small."]
    assert question["answers"] == [["yes", ["Because it is so, and not otherwise."]], ["no", ["Because not."]]]
    assert text.words == {"word": "a word: with a colon"}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (":::picture plane\n:::\n", "line 1: :::picture stands before the first :::scene"),
        (":::scene a\n:::pictures plane\n:::\n", "line 2: :::pictures is none of scene, controls"),
        (":::scene a\n:::words\na: b\n", "line 2: :::words has no end"),
        (":::scene a\n:::words\nonly text\n:::\n", "line 2: 'only text' is not of the form 'name: text'"),
        (":::scene a\n:::predict x\nWhy?\n:::\n", "line 2: :::predict x has no answers"),
        (":::scene a\n:::code ppo.losses.policy_loss\nat: x\n:::\n", "line 2: :::code takes from, to and package"),
        (":::scene a\n![picture](x.png)\n", "lessons have no image"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(source: str, message: str) -> None:
    with pytest.raises(TextError, match=message.replace("(", r"\(")):
        read_text(source)


def test_a_slot_holds_no_expression() -> None:
    text = read_text(":::scene a\nIt is [[value + 1]] and [[value!r]].\n")
    assert text.scenes[0].slots == {}


def test_code_is_found_by_symbol_and_text() -> None:
    actual = excerpt("ppo.kl.kl_per_token", "if estimator", "raise")
    assert actual.path == "rlhf_studio/ppo/kl.py"
    assert actual.lines[0] == "if estimator not in ESTIMATORS:"
    assert actual.lines[1].startswith("    raise ValueError(")
    whole = excerpt("ppo.kl.kl_per_token")
    assert whole.lines[0].startswith("def kl_per_token(") and not any("Args:" in line for line in whole.lines)
    assert "".join(text for row in whole.as_data()["lines"] for _, text in row) == "".join(whole.lines)
    assert len(whole.as_data()["lines"]) == len(whole.lines)
    assert excerpt("ppo.kl.ESTIMATORS").lines[0].startswith("ESTIMATORS")
    assert excerpt("engine.loop.trainer.Trainer.step").lines[0].strip().startswith("def step(")


@pytest.mark.parametrize(
    ("symbol", "begin", "message"),
    [
        ("ppo.kl.nothing", "", "there is no nothing in it"),
        ("ppo.nowhere.f", "", "there is no nowhere in it|there is no such module"),
        ("ppo.kl.kl_per_token", "estimator", "stands in 3 lines|stands in [0-9]+ lines"),
        ("ppo.kl.kl_per_token", "no such text", "stands in no lines"),
    ],
)
def test_code_that_is_not_there_is_an_error(symbol: str, begin: str, message: str) -> None:
    with pytest.raises(CodeError, match=message):
        excerpt(symbol, begin)


def test_other_peoples_code_is_read_without_importing_it() -> None:
    import sys

    known = set(sys.modules)
    actual = excerpt("modeling_layers.GenericForSequenceClassification.forward", "non_pad_mask = ", package="transformers")
    assert actual.path == "transformers/modeling_layers.py"
    assert "pad_token_id" in actual.lines[0]
    assert "transformers.modeling_layers" not in set(sys.modules) - known


def test_formulas_become_trees_and_bad_ones_are_refused() -> None:
    tree = formula(r"\frac{a}{b}", display=True)
    assert tree[0] == "math" and tree[1]["display"] == "block"
    with pytest.raises(ValueError, match="cannot be read"):
        formula(r"\frac{a}{")


def test_a_slider_has_whole_steps_and_starts_on_one() -> None:
    assert Slider("x", -2, 2, 0.1, start=-1).values()[10] == -1
    assert len(Slider("x", 0, 1, 0.01, start=0).values()) == 101
    with pytest.raises(ValueError, match="whole number"):
        Slider("x", 0, 1, 0.3, start=0)
    with pytest.raises(ValueError, match="none of its values"):
        Slider("x", 0, 1, 0.5, start=0.3)
