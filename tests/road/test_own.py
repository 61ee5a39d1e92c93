"""A road on a person's own files: which parts it has, what each gets, how its time is divided, and what is said before it starts."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.cli.main import main
from rlhf_studio.config import EvaluationRunConfig, RewardModelRunConfig, RunConfig, SFTRunConfig
from rlhf_studio.config.io import ConfigError
from rlhf_studio.exit_codes import BAD_INPUT, DONE
from rlhf_studio.inputs.estimate.speed import SpeedMeasurement
from rlhf_studio.inputs.named_reward import component_named, name_of_component
from rlhf_studio.jobs.road.begin import begin_road
from rlhf_studio.jobs.road.look import look_at, problems_of
from rlhf_studio.jobs.road.outcomes import shared_frame
from rlhf_studio.jobs.road.own import Made, in_full, minutes_for, parts_of, require_known, settings_for_part, with_origin
from rlhf_studio.jobs.road.state import Comparison, OwnSettings, list_roads, read_road
from rlhf_studio.ui.road.own import as_rows
from tests.road.own_files import own_files, own_settings

ALL = ["sft", "reward_model", "ppo", "evaluation"]
D: dict[str, Any] = {"demonstrations": "d"}
P: dict[str, Any] = {"pairs": "p"}
Q: dict[str, Any] = {"prompts": "q"}
R: dict[str, Any] = {"reward": {"kind": "lexicon"}}
LEFT: list[tuple[dict[str, Any], list[str]]] = [
    ({**D, **P, **Q}, []),
    ({**P, **Q}, ["sft"]),
    ({**Q, **R}, ["sft", "reward_model"]),
    ({**D, **P, **Q, **R}, []),
    (D, ["reward_model", "ppo", "evaluation"]),
    ({**D, **Q}, ["reward_model", "ppo", "evaluation"]),
    ({**D, **P}, ["ppo", "evaluation"]),
]


def test_what_is_missing_is_left_out_with_a_sentence() -> None:
    for files, left_out in LEFT:
        parts = parts_of(OwnSettings("m", **files))
        assert [part.key for part in parts] == ALL
        assert [part.key for part in parts if part.state == "skipped"] == left_out, files
        assert all(part.headline.endswith(".") is (part.state == "skipped") for part in parts)
    assert "name a reward" in parts_of(OwnSettings("m", **D, **Q))[2].headline
    for own, field in (
        (OwnSettings("m"), "--demonstrations"),
        (OwnSettings("m", prompts="q"), "--demonstrations"),
        (OwnSettings("", demonstrations="d"), "--policy"),
        (OwnSettings("m", demonstrations="d", minutes=-1), "--minutes"),
        (OwnSettings("m", demonstrations="d", changes={"model.policy": "x"}), "model.policy"),
        (OwnSettings("m", demonstrations="d", changes={"sft.learning_rat": "1"}), "sft.learning_rat"),
    ):
        with pytest.raises(ConfigError) as caught:
            require_known(own)
        assert [problem.field for problem in caught.value.problems] == [field]


def test_a_reward_is_named_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").touch()
    for text, component in (
        ("", {}),
        (" lexicon ", {"kind": "lexicon"}),
        ("{kind: keywords, words: 'a, b'}", {"kind": "keywords", "words": "a, b"}),
        ("mine.py", {"kind": "python", "file": str(tmp_path / "mine.py")}),
        ("org/judge", {"kind": "reward_model", "model": "org/judge"}),
    ):
        assert component_named(text, tmp_path) == component
        assert component_named(name_of_component(component)) == component


def test_each_part_gets_what_the_one_before_has_made(tmp_path: Path) -> None:
    own = own_settings(tmp_path, changes={"sft.epochs": "2", "ppo.kl_coef": "0.1"}, seed=7)
    policy = "bundled/world-policy"
    made = Made()
    sft, fitted = settings_for_part(own, "sft", made, 3.0)
    assert isinstance(sft, SFTRunConfig)
    assert (sft.model.policy, sft.data.source, sft.engine.max_minutes, sft.sft.epochs) == (policy, own.demonstrations, 3.0, 2)
    assert sft.sft.learning_rate == fitted["sft.learning_rate"].value and "sft.epochs" not in fitted and sft.engine.seed == 7
    assert sft.data.eval_share == 0.333  # the rule holds 20 out, a third at most: 13 of 40

    judge, _ = settings_for_part(own, "reward_model", replace(made, sft=policy))
    assert isinstance(judge, RewardModelRunConfig) and (judge.model.policy, judge.data.source) == (policy, own.pairs)
    made = Made(policy, "bundled/world-reward")
    ppo, _ = settings_for_part(own, "ppo", made, 0.0, {"ppo.steps": 30})
    assert isinstance(ppo, RunConfig) and ppo.data.prompts == own.prompts
    assert (ppo.ppo.steps, ppo.ppo.kl_coef, ppo.ppo.warmup_steps) == (30, 0.1, 3)
    assert ppo.reward.components[0].model_names() == ["bundled/world-reward"]
    assert ppo.data.eval_share == pytest.approx(0.333)  # 64 of 120 would be more than a third

    made = replace(made, ppo="/w/runs/ppo")
    last, _ = settings_for_part(own, "evaluation", made)
    assert isinstance(last, EvaluationRunConfig)
    assert last.evaluation.policies.splitlines() == [policy, "/w/runs/ppo"] and last.model.policy == policy  # each once
    assert last.data.eval_share == ppo.data.eval_share and last.reward.components == ppo.reward.components


def test_what_decides_says_whether_it_is_the_reward_again(tmp_path: Path) -> None:
    """By the reward itself, by a rule, by a reward model of one's own, and by one trained on the pairs where another reward was given."""
    own, made = own_settings(tmp_path), Made("bundled/world-policy", "bundled/world-reward", "")
    rule, model = {"kind": "lexicon"}, {"kind": "reward_model", "model": "bundled/world-reward"}
    for settings, measure, judge, same in (
        (own, "score", "the reward model trained on your pairs", True),
        (replace(own, judge=rule), "judge", "sentiment words", False),
        (replace(own, judge=model), "judge", "world-reward", True),
        (replace(own, reward=rule), "judge", "world-reward", False),
        (replace(own, reward=rule, judge=rule), "judge", "sentiment words", True),
    ):
        config, (ppo, _) = settings_for_part(settings, "evaluation", made)[0], settings_for_part(settings, "ppo", made)
        assert isinstance(config, EvaluationRunConfig) and bool(config.evaluation.judge) is (measure == "judge")
        found = with_origin(Comparison(measure, 0.5, None, None, 3), config, ppo)
        assert (found.judge, found.same_origin) == (judge, same), asdict(settings)


def test_the_time_is_divided_and_what_is_left_over_goes_on(tmp_path: Path) -> None:
    road = begin_road(tmp_path, "", OwnSettings("m", "d", "p", "q", minutes=100), 0.0)
    assert [minutes_for(road, key) for key in ALL] == [20, 20, 50, 10]  # shares 2, 2, 5, 1
    road = road.with_part("sft", state="done", seconds=240.0)
    assert [minutes_for(road, key) for key in ALL[1:]] == [24, 60, 12]  # 96 minutes over 2, 5, 1
    road = road.with_part("reward_model", state="done", seconds=6000.0)
    assert (minutes_for(road, "ppo"), minutes_for(road, "evaluation")) == (0.5, 3.0)  # the time is over
    assert minutes_for(replace(road, settings=OwnSettings("m", "d", "p", "q")), "ppo") == 0.0


def test_what_a_chat_template_writes_around_a_prompt_is_not_shown() -> None:
    """Here all persons begin and end alike; only whole lines and marks are taken away."""
    said = ["Tell me of a tent.", "Tell me of a tram."]
    frame = shared_frame([f"<s>system\nBe kind<e>\n<s>user\n{text}<e>\n<s>assistant\n" for text in said])
    assert frame == ("<s>system\nBe kind<e>\n<s>user\n", "<e>\n<s>assistant\n")
    assert shared_frame(said) == shared_frame(said[:1]) == ("", "")


def test_relative_files_are_those_of_the_folder_that_they_were_typed_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    own = in_full(OwnSettings("org/model", "demonstrations.jsonl", "org/pairs", "prompts.jsonl"), tmp_path)
    assert (own.policy, own.pairs) == ("org/model", "org/pairs")
    assert (own.demonstrations, own.prompts) == (str(tmp_path / "demonstrations.jsonl"), str(tmp_path / "prompts.jsonl"))


def test_the_look_before_the_start_names_the_options(tmp_path: Path) -> None:
    own = own_settings(tmp_path, minutes=60.0)
    looks = look_at(own, tmp_path)
    assert problems_of(looks) == [] and all(look.report is not None and look.report.memory_estimate for look in looks)
    assert [look.minutes for look in looks] == [12, 12, 30, 6]
    assert looks[2].more_memory == looks[3].more_memory > 4_000_000 and looks[0].more_memory == 0  # 1.15 M weights of 4 bytes
    gone = replace(own, demonstrations=str(tmp_path / "a"), pairs=str(tmp_path / "b"), prompts=str(tmp_path / "c"), judge={"kind": "x"})
    fields = {problem.field for problem in problems_of(look_at(gone, tmp_path))}
    assert {"--demonstrations", "--pairs", "--prompts", "--judge"} == fields
    assert [problem.field for problem in problems_of(look_at(replace(own, policy=str(tmp_path)), tmp_path))] == ["--policy"]


def test_a_plan_says_who_scores_and_who_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 120 prompts a third at most are held out: ⌊0.333 × 120⌋ = 39, fewer than the 128 that a comparison asks for."""
    monkeypatch.setattr(SpeedMeasurement, "rate", lambda *_: 1e9)
    files = own_files(tmp_path)
    start = ["road", "run", "--policy", "bundled/world-policy", "--workspace", str(tmp_path / "workspace"), "--plan"]
    shared = ["--pairs", files["pairs"], "--prompts", files["prompts"]]
    for more, who in ([], "the start and the end"), (
        ["--demonstrations", files["demonstrations"]], "the start, the fine-tuned model and the end",
    ):  # fmt: skip
        assert main([*start, *shared, *more]) == DONE
        out = capsys.readouterr().out
        assert "a judge (the reward model trained on your pairs) scores each" in out
        assert f"\n39 held-out prompts get an answer from {who}. Nothing is trained.\n" in out
    row = as_rows([look_at(own_settings(tmp_path), tmp_path)[3]], tmp_path)[0]
    assert row["text"] == "39 held-out prompts get an answer from the start, the fine-tuned model and the end. Nothing is trained."


def test_a_plan_starts_nothing_and_bad_input_neither(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = own_files(tmp_path)
    workspace = tmp_path / "workspace"
    start = ["road", "run", "--policy", "bundled/world-policy", "--workspace", str(workspace)]
    assert main([*start, "--demonstrations", files["demonstrations"], "--prompts", files["prompts"], "--plan"]) == DONE
    out = capsys.readouterr().out
    assert "1. Fine-tune on your demonstrations\n" in out and "sft.learning_rate 0.001: " in out
    assert "Left out. Nothing says which answer is good. Bring pairs" in out
    for more, words in (
        ([], "--demonstrations: nothing can be learned"),
        (["--pairs", "none.jsonl"], "--pairs: there is no file none.jsonl"),
        (["--pairs", files["pairs"], "--engine.seed", "3"], "engine.seed: the road sets this itself"),
    ):
        assert main([*start, *more]) == BAD_INPUT
        assert words in capsys.readouterr().err
    assert main(["road", "world", "--ppo.steps", "3"]) == BAD_INPUT
    assert "road world takes no settings such as --ppo.steps" in capsys.readouterr().err
    assert list_roads(workspace) == [] and not (workspace / "runs").exists()


def test_what_a_person_brought_is_in_the_roads_file(tmp_path: Path) -> None:
    own = own_settings(tmp_path, judge={"kind": "lexicon"}, minutes=5.0, changes={"sft.epochs": "1"})
    road = begin_road(tmp_path, "your road", own, 5.0)
    assert read_road(road.folder) == road and road.settings == own
