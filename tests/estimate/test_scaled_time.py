"""The time of a timed run, scaled by hand to other sizes; and models whose time it does not tell."""

from __future__ import annotations

from typing import Any

import pytest

from rlhf_studio.config import RunConfig
from rlhf_studio.config.io import parse_config
from rlhf_studio.runs.scaled_time import scaled_minutes, work_per_step

COMPONENTS: list[dict[str, Any]] = [{"kind": "reward_model", "model": "a/reward"}]


def config(**sections: dict[str, Any]) -> RunConfig:
    base: dict[str, Any] = {
        "reward": {"components": COMPONENTS},
        "ppo": {"steps": 10, "batch_size": 4, "mini_batch_size": 2, "ppo_epochs": 1},
        "generation": {"response_length": 5},
    }
    return parse_config({key: {**base.get(key, {}), **sections.get(key, {})} for key in {*base, *sections}})


def test_work_by_hand() -> None:
    """4 responses of 5 tokens, once sampled and three times as much to learn; a second epoch learns once more."""
    assert work_per_step(config()) == 4 * 5 * 4
    assert work_per_step(config(ppo={"ppo_epochs": 2})) == 4 * 5 * 7


@pytest.mark.parametrize(
    ("sections", "minutes"),
    [
        ({}, 6.0),
        ({"ppo": {"steps": 20}}, 12.0),
        ({"ppo": {"batch_size": 8}}, 12.0),
        ({"generation": {"response_length": 10}}, 12.0),
        ({"ppo": {"ppo_epochs": 2}}, 10.5),
        ({"reward": {"components": [*COMPONENTS, {"kind": "length"}]}}, 6.0),  # a rule takes no time
        ({"reward": {"components": [{"kind": "reward_model", "model": "another/reward"}]}}, None),
        ({"reward": {"components": [*COMPONENTS, {"kind": "ensemble", "models": "b, c"}]}}, None),
        ({"reward": {"components": [*COMPONENTS, {"kind": "http", "server": "s"}]}}, None),
        ({"model": {"policy": "gpt2"}}, None),
        ({"lora": {"enabled": True}}, None),
    ],
)
def test_minutes_by_hand(sections: dict[str, Any], minutes: float | None) -> None:
    assert scaled_minutes(config(**sections), config(), 6.0) == (None if minutes is None else pytest.approx(minutes))
