"""Scoring one text by hand: by the command line, by the app's helper process, and with everything that can go wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.child_process.service import Service
from rlhf_studio.cli.main import main
from rlhf_studio.config import NOTHING_ALLOWED, Permissions, RunConfig, permissions_from_flags
from rlhf_studio.config.io import config_to_yaml
from rlhf_studio.jobs.scoring.one_text import TextScorer, TextToScore
from tests.engine.conftest import small_config
from tests.engine.json_server import JsonServer
from tests.engine.small_models import save_reward_model

LENGTH = {"kind": "length", "target": 4, "tolerance": 4, "weight": 2.0}


def config_of(tmp_path: Path, *components: dict[str, Any], **settings: Any) -> RunConfig:
    return small_config(tmp_path, reward={"components": list(components), **settings})


def score(config: RunConfig, permissions: Permissions = NOTHING_ALLOWED, **text: Any) -> dict[str, Any]:
    return TextScorer(permissions, lambda progress, fraction: None).score(
        config, TextToScore(**{"prompt": "w1 ", "response": "w2 w3", **text})
    )


def test_every_component_its_weight_and_what_ppo_would_see(tmp_path: Path) -> None:
    """Two words and the stop token make 3 tokens: |3 - 4| / 4 away, so 0.75; one keyword; the sum less 3 x 0.1."""
    config = config_of(tmp_path, LENGTH, {"kind": "keywords", "words": "w3", "weight": -0.5, "name": "words"}, length_penalty=0.1)
    assert score(config) == {
        "components": [
            {"name": "length", "kind": "length", "weight": 2.0, "raw": 0.75, "weighted": 1.5, "members": {}, "texts": [], "cut": ""},
            {"name": "words", "kind": "keywords", "weight": -0.5, "raw": 1.0, "weighted": -0.5, "members": {}, "texts": [], "cut": ""},
        ],
        "sum": 1.0,
        "final": pytest.approx(0.7),
        "tokens": 3,
        "notes": [],
    }


def test_a_text_that_was_cut_off(tmp_path: Path) -> None:
    config = config_of(tmp_path, LENGTH, missing_eos_penalty=3.0, missing_eos_mode="replace")
    result = score(config, stopped=False)
    assert (result["tokens"], result["sum"], result["final"]) == (2, 1.0, -3.0)  # no stop token to count
    endless = config.model_copy(update={"generation": config.generation.model_copy(update={"stop_token": "none"})})
    assert score(endless)["tokens"] == 2


def test_clipping_holds_and_scaling_is_left_out_with_a_note(tmp_path: Path) -> None:
    result = score(config_of(tmp_path, LENGTH, scaling="normalise", score_clip=0.5))
    assert (result["sum"], result["final"]) == (1.5, 0.5)
    assert result["notes"] == ["Scaling needs the scores of a run; here it is left out."]


def test_a_right_answer_and_a_judge(tmp_path: Path) -> None:
    server = JsonServer().start()
    server.answers = [(200, json.dumps({"choices": [{"message": {"content": "Score: 4"}}]}))]
    judge = {"kind": "judge", "server": "grader", "model": "m", "rubric": "{response} or {reference}?", "weight": 0.5}
    config = config_of(tmp_path, {"kind": "answer"}, judge)
    permissions = Permissions(urls={"grader": server.url})
    result = score(config, permissions, response="w2, so 3", reference="1 + 2 is 3. The answer is 3.")
    assert [(row["raw"], row["weighted"]) for row in result["components"]] == [(1.0, 1.0), (4.0, 2.0)] and result["final"] == 3.0
    assert server.seen[0]["body"]["messages"][0]["content"].startswith("w2, so 3 or 1 + 2 is 3. The answer is 3.?")
    result = score(config, permissions, response="3")
    assert all("there are no reference texts" in row["error"] for row in result["components"]) and len(server.seen) == 1
    server.close()


def test_an_error_is_told_at_its_component_and_the_others_are_scored(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def score(p, r): return [None]")
    config = config_of(
        tmp_path,
        LENGTH,
        {"kind": "bleu"},
        {"kind": "reward_model", "model": str(tmp_path / "none")},
        {"kind": "python", "file": str(tmp_path / "mine.py")},
        {"kind": "http", "server": "judge"},
        {"kind": "regex", "pattern": "("},
    )
    result = score(config, permissions_from_flags([str(tmp_path / "mine.py")], []))
    assert (result["sum"], result["final"]) == (None, None)
    errors = {row["field"]: row["error"] for row in result["components"] if "error" in row}
    assert result["components"][0]["raw"] == 0.75 and len(errors) == 5
    assert "there are no reference texts" in errors["reward.components.1"]
    assert "none" in errors["reward.components.2.model"]
    assert errors["reward.components.3"] == "it gave None, which is not a number"
    assert "--reward-url judge=URL" in errors["reward.components.4.server"]
    assert "not a valid regular expression" in errors["reward.components.5.pattern"]


def test_a_policy_whose_tokens_cannot_be_counted(tmp_path: Path) -> None:
    config = config_of(tmp_path, LENGTH, {"kind": "keywords", "words": "w3"}, length_penalty=0.1)
    config = config.model_copy(update={"model": config.model.model_copy(update={"policy": str(tmp_path / "none")})})
    result = score(config)
    assert "tokens cannot be counted" in result["components"][0]["error"] and result["components"][1]["raw"] == 1.0
    assert result["tokens"] is None and "length penalty is left out" in result["notes"][0]


def test_what_stays_the_same_is_loaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[str] = []
    scorer = TextScorer(NOTHING_ALLOWED, lambda text, fraction: messages.append(text))
    model = {"kind": "reward_model", "model": str(tmp_path / "reward")}
    first = scorer.score(config_of(tmp_path, model), TextToScore("w1 ", "w2"))
    again = scorer.score(config_of(tmp_path, {**model, "weight": 2.0, "name": "judge"}, LENGTH), TextToScore("w1 ", "w2"))
    assert again["components"][0]["weighted"] == 2 * first["components"][0]["raw"]
    assert messages == [
        f"Loading the reward model {tmp_path / 'reward'}",
        "Scoring with reward_model",
        "Scoring with judge",
        "Scoring with length",
    ]
    scorer.score(config_of(tmp_path, {**model, "reads": "response"}), TextToScore("w1 ", "w2"))
    assert messages[4].startswith("Loading")


def test_files_that_were_edited_are_loaded_anew(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    messages: list[str] = []
    scorer = TextScorer(Permissions((str(file),)), lambda text, fraction: messages.append(text))
    folders = [save_reward_model(tmp_path / name, seed=seed) for seed, name in enumerate(("one", "two"))]
    config = config_of(tmp_path, {"kind": "python", "file": str(file)}, {"kind": "ensemble", "models": f"{folders[0]},{folders[1]}"})
    for version in (1, 2):
        file.write_text(f"def score(p, r): return [{version}] * len(r)")
        os.utime(file, ns=(version * 10**9, version * 10**9))
        assert scorer.score(config, TextToScore("w1 ", "w2"))["components"][0]["raw"] == version
    assert sum(text.startswith("Loading") for text in messages) == 2
    os.utime(folders[1] / "model.safetensors", ns=(2 * 10**18, 2 * 10**18))
    scorer.score(config, TextToScore("w1 ", "w2"))
    assert sum(text.startswith("Loading") for text in messages) == 4


# --- the command -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text(config_to_yaml(config_of(tmp_path, LENGTH, {"kind": "rouge", "name": "close"})), encoding="utf-8")
    return path


def test_the_command(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = ["score", "--config", str(settings), "--prompt", "w1 ", "--response", "w2 w3"]
    assert main([*start, "--reference", "w2", "--json", "--reward.components.0.weight", "4"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [row["weighted"] for row in result["components"]] == [3.0, pytest.approx(2 / 3)]
    assert main([*start, "--cut-off"]) == 1  # rouge has nothing to compare with
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == ["component", "raw", "weight", "weighted"]
    assert out[1].split() == ["length", "0.5000", "2", "1.0000"]
    assert out[2].startswith("close") and "no reference texts" in out[2]
    assert [line.split() for line in out[3:]] == [["sum", "-"], ["final", "-"]]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--prompt", "a"], "--response"),
        (["--prompt", "a", "--response", "b", "--recipe", "world", "--reward.score_clip", "-1"], "reward.score_clip"),
        (["--prompt", "a", "--response", "b", "--recipe", "world", "--engine.device", "cuda"], "engine.device: no CUDA GPU"),
    ],
)
def test_the_command_with_bad_input(
    arguments: list[str], part: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main(["score", *arguments]) == 2
    assert part in capsys.readouterr().err


# --- the app's helper ----------------------------------------------------------------------------------------------------------


def request(config: RunConfig, **changes: Any) -> dict[str, Any]:
    return {
        "op": "rewards",
        "config": config.model_dump(mode="json"),
        "prompt": "w1 ",
        "response": "w2 w3",
        "reference": None,
        "stopped": True,
        **changes,
    }


@pytest.mark.long
def test_the_process_of_the_app(tmp_path: Path) -> None:
    service = Service("score", environment=[("OMP_NUM_THREADS", "1")])
    try:
        config = config_of(tmp_path, {"kind": "reward_model", "model": str(tmp_path / "reward")}, LENGTH)
        scored, refused = service.submit(request(config)), service.submit({**request(config), "config": {"reward": {"components": []}}})
        assert scored.ended.wait(120) and refused.ended.wait(30)
    finally:
        service.close()
    assert scored.events[0]["text"].startswith("Loading the reward model")
    assert [row["name"] for row in scored.last("result")["result"]["components"]] == ["reward_model", "length"]
    assert refused.last("failed")["error"].startswith("reward.components: needs a value")
