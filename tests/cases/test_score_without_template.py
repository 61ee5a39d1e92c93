"""The command ``score`` and the form's "Try it" write a prompt as the run's policy would read it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from rlhf_studio.cli.main import main
from rlhf_studio.ui.scoring.sent import rewards_request
from tests.cases.chat_judge import END, PlainScores, ppo_settings

PROMPT, RESPONSE = "what is the capital of France 3?", "Paris is good 3"
WRITTEN = f"<|im_start|>user\n{PROMPT}<|im_end|>\n<|im_start|>assistant\n"


def test_the_score_that_ppo_gives_and_its_text(
    chat_model: Callable[[str], Path], chat_judge: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A prompt that is in the template's form already is not written twice."""
    (tmp_path / "ppo.yaml").write_text(yaml.safe_dump(ppo_settings(chat_model("chatml"), chat_judge)))
    for prompt in (PROMPT, WRITTEN):
        assert main(["score", "--config", str(tmp_path / "ppo.yaml"), "--prompt", prompt, "--response", RESPONSE, "--json"]) == 0
        result = json.loads(capsys.readouterr().out)
        assert result["components"][0]["texts"] == [WRITTEN + RESPONSE + END]
        assert result["final"] == pytest.approx(PlainScores(chat_judge)(WRITTEN + RESPONSE + END), abs=1e-4)


def test_a_prompt_format_is_written_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    component = {"kind": "reward_model", "model": "bundled/world-reward"}
    settings = {"data": {"prompt_format": "Review: {prompt}"}, "reward": {"components": [component]}, "engine": {"device": "cpu"}}
    (tmp_path / "ppo.yaml").write_text(yaml.safe_dump(settings))
    assert main(["score", "--config", str(tmp_path / "ppo.yaml"), "--prompt", "I saw this", "--response", " at home", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["components"][0]["texts"] == ["Review: I saw this at home"]


def test_the_form_sends_how_prompts_are_written() -> None:
    values = {"data.chat_template": True, "data.system_text": "Be brief.", "data.prompts": ""}
    data = rewards_request({"prompt": PROMPT, "response": RESPONSE, "values": values})["config"]["data"]
    assert (data["chat_template"], data["system_text"]) == (True, "Be brief.")
