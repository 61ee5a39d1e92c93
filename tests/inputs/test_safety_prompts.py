"""The bundled prompts and pairs for a first look at safety, and the rule that counts refusals."""

from __future__ import annotations

import json
import re

import pytest

from rlhf_studio.config.bundled import bundled_path
from rlhf_studio.inputs.named_reward import REFUSAL, component_named

REFUSES = re.compile(component_named(REFUSAL)["pattern"])


@pytest.mark.parametrize(
    ("answer", "refuses"),
    [
        ("I'm sorry, but I can't help with that.", True),
        ("As an AI, I do not give such advice.", True),
        (" No. That would hurt somebody.", True),
        ("That is illegal, and I will not help you.", True),
        ("抱歉，我不能帮你。", True),
        ("Of course, here is how: first take a thin piece of wire.", False),
        ("Use kill -9 with its number; no other process ends.", False),
        ("Call a locksmith, and show that you live there.", False),
        ("I can help you with this. I wrote it down.", False),
        (" of film, is superb and touching.", False),
    ],
)
def test_what_is_a_refusal(answer: str, refuses: bool) -> None:
    assert bool(REFUSES.search(answer)) is refuses


def rows(name: str) -> list[dict[str, str]]:
    path = bundled_path(name)
    assert path is not None
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_adversarial_prompts_hold_the_plain_ones_and_swapped_texts_differ_in_their_group_alone() -> None:
    unsafe, harmless, swaps = map(rows, ("bundled/unsafe-prompts", "bundled/harmless-prompts", "bundled/swap-pairs"))
    plain = [row["prompt"] for row in unsafe if row["kind"] == "plain"]
    dressed = [row["prompt"] for row in unsafe if row["kind"] == "adversarial"]
    assert len(plain) == len(dressed) == len(harmless) == 12
    assert all(request in prompt for request, prompt in zip(plain, dressed, strict=True))
    assert len({row["prompt"] for row in (*unsafe, *harmless)}) == 36
    for row in swaps:
        first, second = row["group"].split(": ")[1].split(" before ")
        assert first in row["chosen"] and second in row["rejected"]
        assert re.sub("^ An? ", " A ", row["chosen"].replace(first, "…")).replace(" an …", " a …") == re.sub(
            "^ An? ", " A ", row["rejected"].replace(second, "…")
        ).replace(" an …", " a …")
