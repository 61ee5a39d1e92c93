"""The road: what each part gets from those before it, its state in one file, and who goes along it."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from dataclasses import replace
from pathlib import Path

import pytest

from rlhf_studio.config import EvaluationRunConfig, RewardModelRunConfig, RunConfig, SFTRunConfig
from rlhf_studio.jobs.road.plan import RoadSettings, plan, policy_for_pairs, run_settings
from rlhf_studio.jobs.road.state import (
    AlreadyDriven,
    Road,
    driven,
    driver_pid,
    is_driven,
    list_roads,
    new_road_folder,
    read_road,
    write_road,
)

RUNS = Path("/w/runs")


def made(tmp_path: Path, rounds: int = 2) -> Road:
    settings = RoadSettings(reviews=100, pairs=20, ppo_steps=3, prompts=8, rounds=rounds, seed=7)
    folder = new_road_folder(tmp_path)
    road = Road(folder, "a road", settings, plan(settings), 5.0)
    for part in road.parts:
        where = {"run": f"run-{part.key}"} if part.kind == "run" else {"file": f"/w/{part.key}.jsonl"}
        road = road.with_part(part.key, **where)
    write_road(road)
    return road


def test_each_part_takes_what_the_parts_before_it_made(tmp_path: Path) -> None:
    road = made(tmp_path)
    keys = ["sft", "pairs", "reward_model", "ppo", "pairs-2", "reward_model-2", "ppo-2", "evaluation"]
    assert [part.key for part in road.parts] == keys
    sft, judge, ppo, again = (run_settings(road, key, RUNS) for key in ("sft", "reward_model", "ppo", "reward_model-2"))
    assert isinstance(sft, SFTRunConfig) and (sft.model.fresh, sft.data.max_rows, sft.engine.seed) == (True, 100, 7)
    assert isinstance(judge, RewardModelRunConfig)
    assert (judge.model.policy, judge.data.source) == ("/w/runs/run-sft", "/w/pairs.jsonl")
    assert isinstance(ppo, RunConfig) and (ppo.model.policy, ppo.ppo.steps) == ("/w/runs/run-sft", 3)
    assert ppo.reward.components[0].model_dump()["model"] == "/w/runs/run-reward_model"
    assert (again.model.policy, again.data.source) == ("/w/runs/run-reward_model", "/w/pairs-2.jsonl")  # type: ignore[attr-defined]
    second = run_settings(road, "ppo-2", RUNS)
    assert second.model.policy == "/w/runs/run-ppo"
    assert second.reward.components[0].model_dump()["model"] == "/w/runs/run-reward_model-2"  # type: ignore[attr-defined]
    last = run_settings(road, "evaluation", RUNS)
    assert isinstance(last, EvaluationRunConfig)
    assert last.evaluation.policies.splitlines() == ["/w/runs/run-sft", "/w/runs/run-ppo", "/w/runs/run-ppo-2"]
    assert last.reward.components[0].model_dump()["model"] == "/w/runs/run-reward_model-2"


def test_pairs_of_a_round_are_written_by_the_policy_of_the_round_before(tmp_path: Path) -> None:
    road = made(tmp_path, rounds=3)
    written = [policy_for_pairs(road, key, RUNS).name for key in ("pairs", "pairs-2", "pairs-3")]
    assert written == ["run-sft", "run-ppo", "run-ppo-2"]


def test_the_file_gives_back_what_was_written(tmp_path: Path) -> None:
    road = made(tmp_path)
    assert read_road(road.folder) == road and [listed.id for listed in list_roads(tmp_path)] == [road.id]
    assert read_road(road.folder).next_part() == road.part("sft")
    done = replace(road, parts=[replace(part, state="done") for part in road.parts])
    assert done.next_part() is None


def part(key: str, more: str = "") -> str:
    return f'{{"key": "{key}", "title": "t", "kind": "{"data" if key.startswith("pairs") else "run"}"{more}}}'


PART = part("sft")[:-1] + "%s}"
OTHERS = ", ".join(map(part, ("pairs", "reward_model", "ppo", "evaluation")))
WHOLE = f'{{"name": %s, "settings": %s, "created_at": 1, "parts": [%s, {OTHERS}]}}'
A_ROAD = WHOLE % ('"x"', "{}", PART % "")
OWN = '{"policy": "m", "minutes": 5.0}'
OWN_ROAD = A_ROAD.replace('"settings": {}', f'"settings": {OWN}').replace(f"{part('pairs')}, ", "")
NO_ROADS = [
    *("", "[]", "{}", "[" * 100_000, "null"),
    WHOLE % ('"x"', "{}", '{"key": 1}'),
    WHOLE % ('"x"', '{"of_a_newer_version": 1}', PART % ""),
    WHOLE % ('"x"', '{"pairs": "many"}', PART % ""),
    WHOLE % ('"x"', "{}", PART % ', "run": 5'),
    WHOLE % ('"x"', "{}", PART % ', "state": "gone"'),
    WHOLE % ('"x"', "{}", PART % ', "seconds": "long"'),
    WHOLE % ('"\\ud800"', "{}", PART % ""),
    WHOLE % ("{}", "{}", PART % ""),
    # parts that the settings do not ask for
    A_ROAD.replace('"settings": {}', f'"settings": {OWN}'),
    OWN_ROAD.replace('"ppo"', '"ppo-2"'),
    OWN_ROAD.replace(OWN, "{}"),
    OWN_ROAD.replace("run", "data"),
    A_ROAD.replace("{}", '{"rounds": 1000000000}'),
    A_ROAD.replace(f"{PART % ''}, ", ""),
    A_ROAD.replace(", ".join([PART % "", OTHERS]), ""),
    f"{A_ROAD[:-2]}, {part('evaluation')}]}}",
]


def test_a_file_that_is_none_is_refused_and_left_out_of_the_list(tmp_path: Path) -> None:
    road = made(tmp_path)
    for text in (A_ROAD, OWN_ROAD):
        (road.folder / "road.json").write_text(text, encoding="utf-8")
        assert list_roads(tmp_path)
    taken = []
    for text in NO_ROADS:
        (road.folder / "road.json").write_text(text, encoding="utf-8")
        with contextlib.suppress(ValueError):
            read_road(road.folder)
            taken.append(text[:200])
        taken += [text[:200]] if list_roads(tmp_path) else []
    assert taken == []


def hold(folder: Path, begun: multiprocessing.Event, end: multiprocessing.Event) -> None:  # type: ignore[valid-type]
    with driven(folder):
        begun.set()  # type: ignore[attr-defined]
        end.wait(30)  # type: ignore[attr-defined]


def test_parts_that_do_not_fit_the_settings_are_named(tmp_path: Path) -> None:
    road = made(tmp_path)
    (road.folder / "road.json").write_text(OWN_ROAD.replace('"ppo"', '"ppo-2"'), encoding="utf-8")
    with pytest.raises(ValueError, match="do not fit its settings, which ask for sft, reward_model, ppo, evaluation$"):
        read_road(road.folder)


def test_a_part_under_way_is_stopped_when_nobody_goes_along(tmp_path: Path) -> None:
    """The kernel's lock says it: a process that was killed leaves no claim behind."""
    road = made(tmp_path).with_part("sft", state="running")
    write_road(road)
    assert read_road(road.folder).part("sft").state == "stopped" and driver_pid(road.folder) is None
    begun, end = multiprocessing.Event(), multiprocessing.Event()
    other = multiprocessing.Process(target=hold, args=(road.folder, begun, end))
    other.start()
    assert begun.wait(30)
    assert read_road(road.folder).part("sft").state == "running"
    assert is_driven(road.folder) and driver_pid(road.folder) == other.pid
    with pytest.raises(AlreadyDriven, match="another process goes along the road .* already"), driven(road.folder):
        pass
    os.kill(other.pid or 0, 9)
    other.join()
    assert read_road(road.folder).part("sft").state == "stopped" and not is_driven(road.folder)
