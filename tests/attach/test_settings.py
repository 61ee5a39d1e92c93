"""A training's settings by our names: they do not depend on their order, and what does not fit is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.attach import Studio
from rlhf_studio.attach.settings import config_of
from rlhf_studio.runs.reader import RunReader

RLOO = {"ppo.advantage": "rloo", "ppo.responses_per_prompt": 4}
SIZES = {"ppo.mini_batch_size": 24, "ppo.batch_size": 48}  # neither fits alone


@pytest.mark.parametrize(
    ("given", "left"),
    [
        (RLOO, []),
        ({"ppo.mini_batch_size": 128, "ppo.batch_size": 256}, []),
        ({"generation.temperature": -1.0, **SIZES, **RLOO, "ppo.no_such": 1, "own": "x"}, ["generation.temperature", "ppo.no_such", "own"]),
        ({"ppo.learning_rate": 1e-3, "ppo.advantage": "grpo"}, ["ppo.advantage"]),  # grpo needs more, which nobody gave
    ],
)
def test_settings_that_fit_together_are_taken_in_any_order(given: dict[str, Any], left: list[str]) -> None:
    for items in (list(given.items()), list(given.items())[::-1]):
        config, own = config_of("ppo", dict(items), "x", 5, {})
        assert sorted(own) == sorted(given.keys() - set(left))
        for setting in own:
            section, _, key = setting.partition(".")
            assert getattr(getattr(config, section), key) == given[setting]


class Speechless:
    def __repr__(self) -> str:
        raise ZeroDivisionError


def test_no_setting_ends_a_recording(tmp_path: Path) -> None:
    settings = ["stage", "stage.x", "name.x", "ppo", "", "..", "ppo.kl_coef.x", "ppo.kl_coef"]
    for setting in settings:
        for value in (3, Speechless(), 10**5000, {Speechless(): 1}):
            assert "ppo.cliprange" in config_of("ppo", {"ppo.cliprange": 0.1, setting: value}, "x", 5, {})[1], setting
    with Studio(workspace=tmp_path, config={"ppo.cliprange": 0.1, **{setting: Speechless() for setting in settings}}) as studio:
        studio.step(metrics={"lr": 1.0})
        folder = studio.run_dir
    assert folder is not None
    reader = RunReader(folder)
    assert reader.status().state == "finished" and reader.origin().settings_given == ["ppo.cliprange"]
    with pytest.raises(ValueError, match="config must be a mapping of dotted names"):
        Studio(config={1: 2})  # type: ignore[dict-item]


def test_the_diary_names_the_settings_that_do_not_fit(tmp_path: Path) -> None:
    with Studio(workspace=tmp_path, config={"ppo.kl_coef": 0.2, "generation.temperature": -1.0, "ppo.no_such": 3}) as studio:
        studio.step(metrics={"lr": 1.0})
        folder = studio.run_dir
    assert folder is not None
    (line,) = [event.text for event in RunReader(folder).events_since(0) if "settings, which" in event.text]
    assert "generation.temperature, ppo.no_such." in line and "kl_coef" not in line
