"""The world of sums: arithmetic that is right, slips that make it wrong, files that the seeds give, and what the shipped policy can do."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from random import Random

import pytest
import torch
from transformers import AutoTokenizer

from rlhf_studio.config.bundled import ASSETS
from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.engine.rewards.kinds.numbers import last_number, only_number
from rlhf_studio.inputs.prompts.cached import read_once
from rlhf_studio.inputs.prompts.prepare import prompt_texts
from rlhf_studio.lessons.world_build.build import file_hashes, json_lines
from rlhf_studio.lessons.world_build.sums import (
    SLIP,
    SumsSizes,
    build_sums,
    build_tokenizer,
    check_sums,
    draw_questions,
    is_right,
    prompt_of,
    row_of,
    written_out,
)

pytestmark = pytest.mark.slow

SUMS = ASSETS / "sums"


def test_a_sum_is_written_out_as_at_school() -> None:
    assert written_out((347, 285)) == "7+5=12\n4+8+1=13\n3+2+1=6\n#### 632"
    assert written_out((999, 999)) == "9+9=18\n9+9+1=19\n9+9+1=19\n#### 1998"
    assert written_out((500, 204)) == "0+4=4\n0+0=0\n5+2=7\n#### 704"


def test_right_without_slips_and_with_them_as_often_as_three_columns_are() -> None:
    """A slip changes the digit of its column, whatever comes behind it: an answer is right in (1 − SLIP)³ of the sums."""
    draw, slips = Random(1), Random(2)
    sums = [(draw.randint(100, 999), draw.randint(100, 999)) for _ in range(4000)]
    assert all(last_number(written_out(each)) == only_number(written_out(each)) == Fraction(sum(each)) for each in sums)
    share = sum(is_right(each, written_out(each, slips)) for each in sums) / len(sums)
    expected = (1 - SLIP) ** 3
    assert abs(share - expected) < 4 * math.sqrt(expected * (1 - expected) / len(sums))


def test_the_shipped_files_are_what_the_seeds_give() -> None:
    heldout, prompts, corpus = draw_questions(SumsSizes())
    assert (len(heldout), len(prompts), len(corpus)) == (256, 768, 40_000)
    assert not {*heldout, *prompts} & {*corpus} and not {*heldout} & {*prompts}
    for name, sums in (("prompts", prompts), ("prompts_heldout", heldout)):
        assert (SUMS / f"{name}.jsonl").read_bytes() == json_lines(row_of(each) for each in sums)
    manifest = json.loads((SUMS / "manifest.json").read_bytes())
    assert manifest["sha256"] == file_hashes(SUMS)
    assert sum(path.stat().st_size for path in SUMS.rglob("*")) < 3_000_000
    shipped, built = AutoTokenizer.from_pretrained(SUMS / "policy", local_files_only=True), build_tokenizer()
    text = "347 + 285 = ?\n7+5=12 Grüße"
    assert shipped(text)["input_ids"] == built(text)["input_ids"] and shipped.get_vocab() == built.get_vocab()
    assert len(shipped(text)["input_ids"]) == len(text.encode()) and shipped.decode(shipped(text)["input_ids"]) == text


@pytest.mark.parametrize("name", ["sums", "sums-rloo", "sums-grpo"])
def test_the_recipes_write_the_questions_as_the_policy_has_learned_them(name: str) -> None:
    data = load_recipe(name).config.data
    rows = read_once(data).rows
    assert prompt_texts(rows[:3], data, None) == [prompt_of(each) for each in draw_questions(SumsSizes())[1][:3]]
    assert rows[0].reference == row_of(draw_questions(SumsSizes())[1][0])["answer"]


def test_the_shipped_policy_is_right_in_less_than_half_and_a_small_one_builds_from_nothing(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    told: list[str] = []
    assert check_sums(SUMS, told.append), told
    sizes = SumsSizes(heldout_prompts=4, prompts=8, examples=64, eval_examples=4)
    manifest = build_sums(tmp_path / "sums", sizes, told.append)
    assert manifest["sha256"] == file_hashes(tmp_path / "sums")
    assert not check_sums(tmp_path / "sums", told.append) and told[-2].startswith("BAD")  # one step teaches no sums
