"""The Road page without a browser: what it tells, and what it does for an operator, a viewer and a rater."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest
from starlette.datastructures import Headers

from rlhf_studio.config.bundled import EXAMPLE_ROAD_EVALUATION
from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.inputs.provenance import hash_of
from rlhf_studio.jobs.road.begin import begin_road
from rlhf_studio.jobs.road.plan import SMALL, RoadSettings
from rlhf_studio.jobs.road.state import OwnSettings, TrainingEnds, driven, list_roads, read_road, write_road
from rlhf_studio.runs.finding.recordings import Recordings
from rlhf_studio.runs.lineage import EVENT
from rlhf_studio.runs.records import EventRecord
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.access import RATER_HEADER, Access, Raters
from rlhf_studio.ui.road import page as pages
from rlhf_studio.ui.road.page import RoadPage
from tests.road.own_files import own_files
from tests.road.stand_ins import new_road
from tests.runs.stage_helpers import write_stage_run
from tests.runs.store_helpers import end
from tests.runs.test_answers import answer
from tests.runs.test_checkpoints import checkpoint
from tests.ui.train_helpers import OPERATOR, VIEWER
from tests.waiting import wait_until

PLAYER = SimpleNamespace(headers=Headers({"host": "lab.example", RATER_HEADER: "link"}), client=VIEWER.client, query_params={})
ACTIONS = ("road_look", "road_start", "road_go", "road_stop")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Every driver that the page starts is a process that only waits."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(folder: Path, workspace: Path) -> subprocess.Popen[bytes]:
        assert read_road(folder).parts and workspace == folder.parents[1]
        processes.append(subprocess.Popen(["sleep", "60"]))
        return processes[-1]

    monkeypatch.setattr(pages, "start_driver", start)
    yield processes
    for process in processes:
        end(process)


@pytest.fixture
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Recordings:
    return Recordings(cache_folder=tmp_path_factory.mktemp("cache"))


@pytest.fixture
def page(tmp_path: Path) -> RoadPage:
    return RoadPage(Workspace(tmp_path), Access(raters=Raters(lambda: "link")))


def news(page: RoadPage, request: Any = OPERATOR) -> dict[str, Any]:
    return page.road_news({}, request)


def test_an_empty_workspace_shows_what_a_road_is_made_of(page: RoadPage) -> None:
    reply = news(page)
    assert reply["roads"] == [] and reply["operator"] is True and reply["why_not"] == ""
    assert [part["key"] for part in reply["parts"]] == ["sft", "pairs", "reward_model", "ppo", "evaluation"]


def test_a_page_without_a_road_shows_the_recorded_one(tmp_path: Path, recordings: Recordings) -> None:
    page = RoadPage(Workspace(tmp_path, recordings), Access(raters=Raters(lambda: "link")))
    example = news(page, VIEWER)["example"]
    assert {part["state"] for part in example["parts"]} == {"done"} and "The trained policy is better" in example["verdict"]
    assert not any(part["run"] for part in example["parts"] if part["key"] != "evaluation")  # of the others only the numbers are there
    answers = page.road_examples({"road": example["id"]}, VIEWER)
    shown = answers["examples"]
    assert [one["gained"] for one in shown] == ["most", "the middle", "least"] and shown[0]["before"] != shown[0]["after"]
    records = Workspace(tmp_path, recordings).reader(EXAMPLE_ROAD_EVALUATION).answers()
    gold = {(row.policy, row.prompt): row.gold for row in records if row.draw == 0}
    start, end = dict.fromkeys(row.policy for row in records)
    gains = sorted(gold[end, prompt] - gold[start, prompt] for policy, prompt in gold if policy == start)
    assert [one["score_after"] - one["score_before"] for one in (shown[0], shown[-1])] == pytest.approx([gains[-1], gains[0]])
    counts = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains), len(gains)
    assert (answers["better"], answers["worse"], answers["of"], answers["decides"]) == (*counts, "gold")
    ends = [row.policy for row in records if row.draw == 0 and "Cinema at its" in row.response]
    assert f"{ends.count(end)} of 64 say “Cinema at its” at the end, {ends.count(start)} at the start." == answers["phrase"]
    assert page.road_go({"road": example["id"]}, OPERATOR) == page.road_stop({"road": example["id"]}, OPERATOR) == {"problem": pages.GONE}
    new_road(tmp_path)
    assert news(page)["example"] is None


def test_who_only_watches_sees_roads_and_starts_none(page: RoadPage, started: list[Any], tmp_path: Path) -> None:
    folder = new_road(tmp_path)
    for who, request_of in (("viewer", VIEWER), ("player", PLAYER), ("nobody", None)):
        reply = news(page, request_of)
        assert [road["id"] for road in reply["roads"]] == [folder.name] and reply["operator"] is False, who
        assert "watch" in reply["why_not"], who
        for name in ACTIONS:
            with pytest.raises(gr.Error, match="watch"):
                getattr(page, name)({"road": folder.name, "rounds": 1}, request_of)
        assert page.road_lineage({"road": folder.name}, request_of) == {"rows": [], "again": False}, who
        assert page.road_examples({"road": folder.name}, request_of) == {"examples": []}, who
    with pytest.raises(gr.Error, match="watch"):  # an operator's page that was opened with ?view=1
        page.road_start({"rounds": 1, "view": True}, OPERATOR)
    assert started == [] and len(list_roads(tmp_path)) == 1


def test_a_road_is_begun_once_and_shows_as_going_before_its_process_has_loaded(page: RoadPage, started: list[Any], tmp_path: Path) -> None:
    wish = {"rounds": 2, "nonce": "a"}
    first, again = page.road_start(wish, OPERATOR), page.road_start(wish, OPERATOR)
    assert first["road"] == again["road"] and len(started) == 1
    (road,) = list_roads(tmp_path)
    assert road.settings == RoadSettings(rounds=2) and len(road.parts) == 8
    assert news(page)["roads"][0]["going"] is True
    assert "under way" in page.road_start({"rounds": 1, "nonce": "b"}, OPERATOR)["problem"]
    assert page.road_go({"road": road.id}, OPERATOR) == {"problem": "Another process goes along this road already."}
    assert page.road_stop({"road": road.id}, OPERATOR) == {"road": road.id}
    assert started[0].wait(20) == -signal.SIGTERM
    assert news(page)["roads"][0]["going"] is False
    assert page.road_stop({"road": road.id}, OPERATOR) == {"problem": "Nothing is under way on this road."}
    assert page.road_go({"road": road.id}, OPERATOR) == {"road": road.id} and len(started) == 2


def test_a_number_of_rounds_that_is_none_begins_nothing(page: RoadPage, started: list[Any], tmp_path: Path) -> None:
    replies = [page.road_start({"rounds": rounds}, OPERATOR) for rounds in (0, 6, "2", 1.0, True, None)]
    assert replies == [{"problem": "A road has from 1 to 5 rounds.", "nonce": ""}] * 6
    assert started == [] and list_roads(tmp_path) == []


def test_the_small_form(page: RoadPage, started: list[Any], tmp_path: Path) -> None:
    page.road_start({"rounds": 1, "small": True}, OPERATOR)
    assert list_roads(tmp_path)[0].settings == SMALL and len(started) == 1


def test_own_files_are_looked_at_and_a_road_on_them_is_begun(page: RoadPage, started: list[Any], tmp_path: Path) -> None:
    form = {"policy": "bundled/world-policy", **own_files(tmp_path), "judge": "lexicon", "minutes": 30}
    rows = page.road_look({"own": {**form, "pairs": ""}}, OPERATOR)["rows"]
    assert [row["state"] for row in rows] == ["waiting", "skipped", "skipped", "skipped"]
    assert rows[0]["time"] == "at most 30 minutes" and rows[0]["memory"] and any("sft.epochs" in line for line in rows[0]["fitted"])
    assert rows[2]["text"].startswith("Nothing says which answer is good.")
    assert started == [] and list_roads(tmp_path) == []

    begun = page.road_start({"own": form, "nonce": "a"}, OPERATOR)
    (road,) = list_roads(tmp_path)
    assert begun["road"] == road.id and isinstance(road.settings, OwnSettings) and len(started) == 1
    assert (road.settings.minutes, road.settings.judge, road.settings.pairs) == (30.0, {"kind": "lexicon"}, form["pairs"])
    shown = news(page, VIEWER)["roads"][0]
    assert shown["own"] == "world-policy" and [part["limit"] for part in shown["parts"]] == [6, 6, 15, 3]
    assert str(tmp_path) not in str(shown)


def test_what_is_wrong_with_own_files_stands_at_its_field(page: RoadPage, started: list[Any], tmp_path: Path) -> None:
    form = {"policy": "bundled/world-policy", **own_files(tmp_path)}
    for change, field, words in (
        ({"policy": ""}, "policy", "name the model"),
        ({"pairs": str(tmp_path / "none.jsonl")}, "pairs", "there is no file"),
        ({"reward": "{kind: nothing}"}, "reward", ""),
        ({"reward": "{"}, "reward", ""),
        ({"reward": str(tmp_path / "mine.py")}, "reward", "--allow-custom-rewards"),  # which only the start of the program allows
        ({"minutes": -5}, "minutes", "from 0"),
        ({"minutes": "many"}, "minutes", "a number"),
        ({"prompts": ["a"]}, "prompts", "a text"),
    ):
        for reply in (page.road_look({"own": {**form, **change}}, OPERATOR), page.road_start({"own": {**form, **change}}, OPERATOR)):
            assert {row["field"] for row in reply["problems"]} == {field}, (change, reply)
            assert words in reply["problems"][0]["text"], reply
    assert page.road_start({"own": "all"}, OPERATOR)["problems"] and started == [] and list_roads(tmp_path) == []


def test_a_road_that_waits_says_what_would_help_and_goes_on_anyway(page: RoadPage, started: list[Any], tmp_path: Path) -> None:
    road = begin_road(tmp_path, "", OwnSettings("m", "d", "p", "q"), 0.0)
    write_road(road.with_part("sft", state="done", course=TrainingEnds("sft/eval_loss", 1.0, 1.2, 20, rate=1e-3)))
    shown = news(page)["roads"][0]
    assert shown["held_up"]["title"] == "Fine-tune on your demonstrations" and "0.0003" in shown["held_up"]["advice"]
    assert [part["weak"] for part in shown["parts"]] == [True, False, False, False]
    assert page.road_go({"road": road.id, "anyway": True}, OPERATOR) == {"road": road.id} and len(started) == 1
    assert news(page)["roads"][0]["held_up"] is None
    world = new_road(tmp_path)
    assert "goes on by itself" in page.road_go({"road": world.name, "anyway": True}, OPERATOR)["problem"] and len(started) == 1


def test_answers_before_and_after_are_those_of_the_evaluation(page: RoadPage, tmp_path: Path) -> None:
    texts = (("start", "no", -1.0), ("end", "yes", 1.0))
    answers = [
        replace(answer(2 * place + number, name, place=place, gold=score), response=text)
        for place in (0, 1)
        for number, (name, text, score) in enumerate(texts)
    ]
    run = write_stage_run(tmp_path, "evaluation", [{"time/total": 1.0}], rollouts=answers).run_dir.name
    road = begin_road(tmp_path, "", OwnSettings("m", "d", "p", "q"), 0.0)
    write_road(road.with_part("evaluation", state="done", run=run))
    examples = page.road_examples({"road": road.id}, VIEWER)["examples"]
    assert [(one["before"], one["after"], one["score_before"], one["score_after"]) for one in examples] == [("no", "yes", -1.0, 1.0)] * 2
    shutil.rmtree(tmp_path / "runs" / run)
    assert "There is no run" in page.road_examples({"road": road.id}, VIEWER)["problem"]


def test_a_road_that_cannot_be_begun_is_told(page: RoadPage, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path, workspace: Path) -> Any:
        raise OSError("no more processes")

    monkeypatch.setattr(pages, "start_driver", refuse)
    assert page.road_start({"rounds": 1}, OPERATOR)["problem"] == "The road could not be begun: no more processes"
    (road,) = news(page)["roads"]
    assert page.road_go({"road": road["id"]}, OPERATOR)["problem"] == "The road could not be gone on with: no more processes"
    assert page.road_go({"road": "road-none"}, OPERATOR) == page.road_stop({}, OPERATOR) == {"problem": pages.GONE}


def test_the_process_that_holds_the_road_is_stopped(page: RoadPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever started it, for instance a terminal."""
    folder, killed = new_road(tmp_path), list[tuple[int, int]]()
    monkeypatch.setattr(pages.os, "kill", lambda pid, number: killed.append((pid, number)))
    with driven(folder):
        assert news(page)["roads"][0]["going"] is True
        assert "problem" not in page.road_stop({"road": folder.name}, OPERATOR)
        assert "under way" in page.road_start({"rounds": 1}, OPERATOR)["problem"]
    assert killed == [(pages.os.getpid(), signal.SIGTERM)]


def test_a_card_says_how_far_its_run_is_and_what_the_run_was_made_from(page: RoadPage, tmp_path: Path) -> None:
    made = tmp_path / "pairs.jsonl"
    made.write_text("{}\n")
    ingredient = {
        "setting": "data.source",
        "name": str(made),
        "kind": "data",
        "path": str(made),
        "sha256": hash_of(made),
        "run": "",
        "step": None,
    }
    event = EventRecord("info", EVENT, "made from", {"ingredients": [ingredient]})
    run = write_stage_run(tmp_path, "reward_model", [{"reward_model/loss": 0.5}] * 3, events=[event], reward_model={"max_steps": 5})
    road = read_road(new_road(tmp_path))
    write_road(
        road.with_part("reward_model", run=run.run_dir.name, state="done").with_part("ppo", run="20200101-000000-gone", state="done")
    )
    cards = {part["key"]: part for part in news(page, VIEWER)["roads"][0]["parts"]}
    card = cards["reward_model"]
    assert (card["run_state"], card["step"], card["total_steps"]) == ("finished", 3, run.status().total_steps)
    assert cards["ppo"]["run_state"] == "" and cards["pairs"]["file"] == ""

    def rows() -> list[dict[str, Any]]:
        lineage_rows: list[dict[str, Any]] = page.road_lineage({"road": road.id}, VIEWER)["rows"]
        return lineage_rows

    (source,) = rows()[0]["sources"]
    assert source["standing"] == "as it was" and source["path"] == "" and str(tmp_path) not in source["name"]
    assert rows()[1]["sources"] == [] and rows()[1]["problem"]
    made.write_text("{} \n")
    wait_until(lambda: rows()[0]["sources"][0]["standing"] == "changed")
    sentence = rows()[0]["sources"][0]["sentence"]
    assert sentence.startswith(f"{tmp_path.name}/pairs.jsonl has changed since the run began") and str(tmp_path) not in sentence
    assert page.road_lineage({"road": "x"}, VIEWER)["problem"] == pages.GONE


def test_a_part_whose_run_goes_on_is_under_way_whatever_became_of_the_roads_process(page: RoadPage, tmp_path: Path) -> None:
    run = Workspace(tmp_path).submit(load_recipe("world").config)
    road = read_road(new_road(tmp_path))
    for state in ("stopped", "failed"):
        write_road(road.with_part("sft", run=run, state=state, problem="It had failed."))
        card = news(page)["roads"][0]["parts"][0]
        assert (card["state"], card["run_state"], card["problem"]) == ("running", "queued", ""), state
    Workspace(tmp_path).cancel(run)
    assert news(page)["roads"][0]["parts"][0]["state"] == "failed"


def test_a_run_that_is_only_being_made_is_no_problem(page: RoadPage, tmp_path: Path) -> None:
    """The road writes the run's id before the run's folder exists, and the engine writes what the run is made from some time later."""
    folder = new_road(tmp_path)

    def lineage(state: str, run: str) -> dict[str, Any]:
        write_road(read_road(folder).with_part("sft", run=run, state=state))
        lineage_reply: dict[str, Any] = page.road_lineage({"road": folder.name}, VIEWER)
        return lineage_reply

    with driven(folder):
        assert lineage("running", "20200101-000000-abcdef") == {"rows": [], "again": True}
        run = write_stage_run(tmp_path, "sft", [{"sft/loss": 0.5}]).run_dir.name
        made = lineage("running", run)  # nothing is noted yet
        assert made["again"] is True and [row["problem"] for row in made["rows"]] == [""]
        assert lineage("done", run)["again"] is False
        assert lineage("waiting", "20200101-000000-abcdef") == {"rows": [], "again": False}
        deleted = lineage("done", "20200101-000000-abcdef")
        assert "There is no run" in deleted["rows"][0]["problem"] and deleted["again"] is True


def test_an_older_road_is_told_to_who_asks_for_it(page: RoadPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MOST_ROADS", 2)
    written = read_road(new_road(tmp_path))
    for day in "1234":
        folder = written.folder.parent / f"road-2020010{day}-000000-0000"
        folder.mkdir()
        write_road(replace(written, folder=folder))
    newest = [written.id, "road-20200104-000000-0000"]

    def news_of(road: str) -> tuple[list[str], int, str]:
        reply = page.road_news({"road": road}, VIEWER)
        return [road_row["id"] for road_row in reply["roads"]], reply["older"], reply["wanted"]

    assert news_of("") == (newest, 3, "")
    assert news_of("road-20200101-000000-0000") == ([*newest, "road-20200101-000000-0000"], 2, "road-20200101-000000-0000")
    assert news_of("road-20200104-000000-0000")[:2] == (newest, 3)
    assert news_of("road-none") == (newest, 3, "road-none")
    with driven(written.folder.parent / "road-20200101-000000-0000"):  # a road that is not listed holds the others up
        assert news(page)["under_way"] is True
    assert news(page)["under_way"] is False


def test_the_end_of_a_road_is_judged(page: RoadPage, tmp_path: Path) -> None:
    road = read_road(new_road(tmp_path))
    assert news(page)["roads"][0]["verdict"] == ""
    road = replace(road, parts=[replace(part, state="done") for part in road.parts])
    road = road.with_part("ppo", course=TrainingEnds("gold/score", 0.5, 1.5))
    write_road(road.with_part("reward_model", headline="50.0% → 70 % of 9 pairs."))
    first = news(page, VIEWER)["roads"][0]
    assert first["verdict"] == "With PPO the gold score rose from 0.50 to 1.50."
    headlines = {part["key"]: part["headline"] for part in first["parts"]}
    assert headlines["reward_model"] == "50.0\u202f%\u00a0→\u00a070\u202f% of 9 pairs."


def test_pairs_are_in_the_chain_with_the_policy_that_wrote_them(page: RoadPage, tmp_path: Path) -> None:
    run = write_stage_run(tmp_path, "sft", [{"sft/loss": 0.5}] * 3).run_dir
    policy = checkpoint(run, 3) / "policy"
    road = read_road(new_road(tmp_path)).with_part("sft", run=run.name, state="done")
    made = road.folder / "pairs-1.jsonl"
    made.write_text("{}\n")
    hashes = {"sha256": hash_of(made), "policy_sha256": hash_of(policy)}
    complete = road.with_part("pairs", state="done", file=str(made), policy=str(policy), **hashes)

    def sources() -> list[tuple[str, int | None, str, str]]:
        (row,) = [row for row in page.road_lineage({"road": road.id}, VIEWER)["rows"] if row["title"].startswith("Sample pairs")]
        assert str(tmp_path) not in str(row)
        return [(source["name"], source["step"], source["standing"], source["sentence"]) for source in row["sources"]]

    title, name = "Fine-tune a new policy", f"{road.id}/pairs-1.jsonl"
    write_road(road.with_part("pairs", state="done", file=str(made)))  # as earlier versions wrote it
    assert sources() == [(title, None, "not checked", ""), (name, None, "not checked", "")]
    write_road(complete)
    assert sources() == [(title, 3, "as it was", ""), (name, None, "as it was", "")]
    made.write_text("{} \n")
    wait_until(lambda: sources()[1] == (name, None, "changed", f"{name} has changed since it was written."))
    shutil.rmtree(run)
    assert sources()[0] == (title, None, "gone", f"{title} is no longer there.")


def test_a_road_of_another_version_does_not_hide_the_others(page: RoadPage, tmp_path: Path) -> None:
    folder = new_road(tmp_path)
    other = new_road(tmp_path) / "road.json"
    other.write_text(other.read_text(encoding="utf-8").replace('"reviews"', '"length"'), encoding="utf-8")
    assert [road["id"] for road in news(page)["roads"]] == [folder.name]
