"""The scale and spread of a reward before any run."""

from __future__ import annotations

from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

from rlhf_studio.config import NOTHING_ALLOWED, RunConfig
from rlhf_studio.config.io import ConfigError, parse_ppo
from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.engine.rewards.errors import ComponentError
from rlhf_studio.jobs.scoring.spread import measure_spread, verdict
from rlhf_studio.ui.form import values_of
from rlhf_studio.ui.scoring.sent import spread_request


def settings(prompts: Path | str, **component: Any) -> RunConfig:
    return parse_ppo({"data": {"prompts": str(prompts)}, "reward": {"components": [component]}})


def quiet(text: str, fraction: float | None) -> None:
    """Nobody watches."""


def test_the_prompts_own_texts_are_scored_where_the_model_does_not_answer(tmp_path: Path) -> None:
    rows = tmp_path / "rows.txt"
    rows.write_text("good\ngood good\nbad\n")
    keywords = {"kind": "keywords", "words": "good", "weight": 2.0}
    result = measure_spread(settings(rows, **keywords), "it is large", NOTHING_ALLOWED, quiet)
    assert [row["score"] for row in result["rows"]] == [2.0, 4.0, 0.0]
    assert (result["mean"], result["std"]) == (mean([2, 4, 0]), stdev([2, 4, 0])) and (result["least"], result["most"]) == (0, 4)
    assert result["sentence"] == "Scores of the texts of 3 of your prompts, read as answers: it is large."
    with pytest.raises(ConfigError, match=r"there is no file"):
        measure_spread(settings(tmp_path / "none.txt", **keywords), "it is large", NOTHING_ALLOWED, quiet)
    with pytest.raises(ComponentError, match=r"no reference texts"):
        measure_spread(settings(rows, kind="rouge"), "it is large", NOTHING_ALLOWED, quiet)


def test_what_a_run_could_learn_from_scores() -> None:
    assert "nothing can be learned" in verdict([0.5] * 12, 0.0, answers=True)
    assert "1 of 12 texts get the rarer one" in verdict([0.0] * 11 + [1.0], stdev([0.0] * 11 + [1.0]), answers=True)
    assert "something to learn" in verdict([0.1, 0.4, 0.9], 0.4, answers=True)
    assert "may be another thing" in verdict([0.5] * 12, 0.0, answers=False)


def test_the_model_answers_where_that_is_cheap() -> None:
    values = values_of(load_recipe("world").config)
    assert spread_request({"values": values})["why_not"] == ""
    assert spread_request({"values": {**values, "model.policy": "/no/such/model"}})["why_not"] == "the model cannot be used yet"
    with pytest.raises(ConfigError, match=r"reward\.components"):
        spread_request({"values": {**values, "reward.components": []}})


@pytest.mark.long
def test_the_world_model_answers_and_its_reviews_differ() -> None:
    result = measure_spread(load_recipe("world").config, "", NOTHING_ALLOWED, quiet)
    assert len(result["rows"]) == 12 and result["std"] > 0.3 and result["sentence"].startswith("Scores of the model's own answers to 12")
    assert all(row["prompt"] and row["response"] for row in result["rows"])
