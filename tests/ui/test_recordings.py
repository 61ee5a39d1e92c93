"""Recordings on the pages: listed in each situation, watched and compared by anyone, and refused by all that acts on a run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr
import pytest

from rlhf_studio.child_process.service import Service
from rlhf_studio.config.bundled import RECORDINGS
from rlhf_studio.config.changes import changes_between
from rlhf_studio.config.io import with_values
from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.inputs.preflight import inspect_run
from rlhf_studio.language import speaking
from rlhf_studio.runs import paths
from rlhf_studio.runs.errors import OnlyRead
from rlhf_studio.runs.finding.recordings import Recordings
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.evaluate.page import EvaluatePage
from rlhf_studio.ui.exports.actions import Exports
from rlhf_studio.ui.exports.downloads import open_export
from rlhf_studio.ui.insights import Insights
from rlhf_studio.ui.lab.comparing import Comparing
from rlhf_studio.ui.lab.experiments import Experiments
from rlhf_studio.ui.live.feed import LiveFeed
from rlhf_studio.ui.live.page import ACTIONS, LIKE_IT, OF_REPLAYED, steer
from rlhf_studio.ui.live.snapshot import Position
from rlhf_studio.ui.resume import question
from rlhf_studio.ui.runs_page import ACTIONS as RUN_ACTIONS
from rlhf_studio.ui.runs_page import RunsPage
from rlhf_studio.ui.visiting.modes import Mode
from tests.ui.polls import ask
from tests.ui.train_helpers import OPERATOR, VIEWER
from tests.waiting import wait_until

IDS = [recording.run_id for recording in RECORDINGS]
IMPROVES, EXPLOITS, COLLAPSES = IDS
REFUSAL = str(OnlyRead())
Json = dict[str, Any]


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Recordings:
    return Recordings(cache_folder=tmp_path_factory.mktemp("cache"))


@pytest.fixture
def workspace(tmp_path: Path, recordings: Recordings) -> Workspace:
    return Workspace(tmp_path, recordings)


def test_a_run_like_the_replayed_recording_has_its_settings(recordings: Recordings) -> None:
    recorded = RunReader(recordings.folder(EXPLOITS)).config()
    like = with_values(load_recipe(LIKE_IT["basis"]).config, OF_REPLAYED)
    changed = {change.setting for change in changes_between(recorded.model_dump(mode="json"), like.model_dump(mode="json"))}
    # what is written down and where it runs may differ, and the words of one default
    assert {name for name in changed if not name.startswith("engine.")} <= {"reward.components.0.chat_template"}


@pytest.fixture
def feed(workspace: Workspace) -> Iterator[LiveFeed]:
    feed = LiveFeed(workspace, interval=0.02)
    yield feed
    feed.close()


# --- listed ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("situation", "own", "first", "shown"),
    [
        ("local", False, False, True),
        ("local", True, False, False),
        ("read-only", False, True, True),
        ("read-only", True, True, True),
        ("space", False, True, True),
        ("space", True, True, True),
    ],
)
def test_where_they_stand_and_when_they_are_shown(workspace: Workspace, situation: str, own: bool, first: bool, shown: bool) -> None:
    mode = Mode(situation) if situation in ("space", "read-only") else Mode.LOCAL
    mine = [workspace.submit(load_recipe("world").config, "mine")] if own else []
    reply = asyncio.run(RunsPage(workspace, Access(mode)).runs({}, VIEWER))
    assert reply["recordings"] == {"first": first, "shown": shown}
    assert reply["ids"] == [*mine, *IDS] and reply["problem"] == ""
    rows = {row["id"]: row for row in reply["rows"]}
    for recording in RECORDINGS:
        row = rows[recording.run_id]
        assert (row["name"], row["recording"], row["state"], row["actions"]) == (recording.name, recording.about, "finished", ["copy"])
        assert row["started_at"] is None and row["elapsed"] is None
        assert row["score_last"] is not None and row["gold_last"] is not None
    assert all(rows[run]["recording"] == "" for run in mine)


def test_two_people_read_the_same_table_each_in_their_language(workspace: Workspace) -> None:
    page, seen = RunsPage(workspace, Access()), []
    for language in ("zh", "en", "zh"):
        with speaking(language):
            table = asyncio.run(page.runs({}, VIEWER))
            seen.append([row["name"] for row in table["rows"]])
    assert seen[0] == seen[2] and "一次" in seen[0][1] and seen[1] == [recording.name for recording in RECORDINGS]
    with speaking("zh"):
        assert asyncio.run(page.runs({"version": table["version"]}, VIEWER))["same"]


def test_their_verdicts_come_as_those_of_any_run(workspace: Workspace) -> None:
    insights = Insights(workspace)
    page = RunsPage(workspace, Access(), insights=insights)

    def kinds() -> list[str]:
        page._table.forget()
        return [row["verdict"]["kind"] for row in asyncio.run(page.runs({}, VIEWER))["rows"] if row["verdict"]]

    try:
        wait_until(lambda: kinds() == ["improved", "exploiting the reward", "collapsed"])
    finally:
        insights.close()


def test_the_table_says_when_they_cannot_be_unpacked(tmp_path: Path) -> None:
    table = [replace(recording, archive=tmp_path / "no.zip") for recording in RECORDINGS]
    workspace = Workspace(tmp_path, Recordings(table, tmp_path / "cache"))
    mine = workspace.submit(load_recipe("world").config, "mine")
    reply = asyncio.run(RunsPage(workspace, Access()).runs({}, OPERATOR))
    assert reply["ids"] == [mine] and reply["problem"].startswith("A recording that came with the program is damaged")
    feed = LiveFeed(workspace, interval=0.02)
    try:
        assert ask(feed, Position(run=COLLAPSES))["problem"].startswith("A recording that came with the program is damaged")
    finally:
        feed.close()


# --- watched ---------------------------------------------------------------------------------------------------------------------


def test_live_offers_them_and_shows_them(feed: LiveFeed, workspace: Workspace) -> None:
    offered = ask(feed, Position())
    assert offered["newest"] is None
    assert [(row["run"], row["name"], row["about"]) for row in offered["recordings"]] == [
        (recording.run_id, recording.name, recording.about) for recording in RECORDINGS
    ]
    for recording, steps in zip(RECORDINGS, (36, 36, 16), strict=True):
        reply = ask(feed, Position(run=recording.run_id))
        status = reply["status"]
        assert (status["name"], status["state"], status["recording"], status["kind"]) == (recording.name, "finished", True, "studio")
        assert (reply["last_step"], status["checkpoints"]) == (steps, [])
        samples = json.loads(feed.detail(recording.run_id, "samples", 3).result(timeout=20))
        assert len(samples["rows"]) == 64
        tokens = json.loads(feed.detail(recording.run_id, "tokens", 3, 0).result(timeout=20))
        assert tokens.get("tokens") is not None
    diagnosis = json.loads(feed.insights.detail(COLLAPSES, "diagnosis", feed.progress(COLLAPSES)).result(timeout=20))
    assert diagnosis["verdict"]["kind"] == "collapsed"
    settings = json.loads(feed.detail(COLLAPSES, "settings").result(timeout=20))
    assert settings["parent"] == ""  # a run with its settings is no variation of it
    assert list(workspace.root.iterdir()) == []  # nothing was copied


def test_own_runs_come_before_recordings(feed: LiveFeed, workspace: Workspace) -> None:
    mine = workspace.submit(load_recipe("world").config, "mine")
    assert ask(feed, Position())["newest"] == mine


def test_they_are_compared(workspace: Workspace) -> None:
    comparing = Comparing(workspace)
    try:
        comparison = json.loads(bytes(asyncio.run(comparing.compare({"runs": IDS}, VIEWER)).body))
    finally:
        comparing.close()
    assert [run["label"] for run in comparison["runs"]] == [recording.name for recording in RECORDINGS]
    assert {row["setting"] for row in comparison["settings"]} >= {"ppo.kl_coef", "ppo.learning_rate"}


# --- acted on --------------------------------------------------------------------------------------------------------------------


def everything(folder: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.lstat().st_mtime_ns) for path in [folder, *folder.rglob("*")])


@pytest.fixture
def unchanged(workspace: Workspace) -> Iterator[None]:
    """Neither the recording nor the workspace is written."""
    before = everything(workspace.run_dir(COLLAPSES).parent)
    yield
    assert everything(workspace.run_dir(COLLAPSES).parent) == before
    assert list(workspace.root.iterdir()) == []


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("action", RUN_ACTIONS)
def test_no_action_of_the_runs_page_takes_one(workspace: Workspace, action: str) -> None:
    sent = {"action": action, "run": COLLAPSES, "to": 1, "name": "mine", "tags": ["a"], "note": "a"}
    with pytest.raises(gr.Error) as refused:
        RunsPage(workspace, Access()).act(sent, OPERATOR)
    assert refused.value.message == REFUSAL


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("action", ACTIONS)
def test_no_button_of_the_live_page_takes_one(workspace: Workspace, action: str) -> None:
    with pytest.raises(gr.Error) as refused:
        steer(workspace, action, {"run": COLLAPSES, "changes": {"ppo.kl_coef": 0.1}})
    assert refused.value.message == REFUSAL


@pytest.mark.usefixtures("unchanged")
def test_no_question_before_an_action_is_answered(workspace: Workspace) -> None:
    assert RunsPage(workspace, Access()).loss({"run": COLLAPSES}, OPERATOR) == {"problem": REFUSAL}
    assert question(workspace, Access(), {"run": COLLAPSES}, OPERATOR) == {"problem": REFUSAL}


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(
    "how",
    [
        {"how": "variation", "changes": {"ppo.kl_coef": 0.1}},
        {"how": "fork", "step": 10, "changes": {}},
        {"how": "sweep", "axes": {"ppo.kl_coef": [0.1, 0.2]}},
        {"how": "more steps", "changes": {"ppo.steps": 100}},
    ],
    ids=lambda how: how["how"],
)
def test_no_experiment_begins_at_one(workspace: Workspace, how: Json) -> None:
    insights = Insights(workspace)
    experiments = Experiments(workspace, Access(), insights, inspect_run)
    try:
        assert asyncio.run(experiments.experiment_start({"run": COLLAPSES, **how}, OPERATOR)) == {"problem": REFUSAL}
        assert asyncio.run(experiments.experiment_ideas({"run": COLLAPSES}, OPERATOR)) == {"problem": REFUSAL}
    finally:
        experiments.close()
        insights.close()


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("policy", [COLLAPSES, f"{COLLAPSES}@start", f"{COLLAPSES}@10"])
def test_no_evaluation_asks_one(workspace: Workspace, policy: str) -> None:
    page = EvaluatePage(workspace, Access())
    assert page.begin({"policies": policy}, OPERATOR) == {"problem": REFUSAL, "fields": []}
    assert page.boot({}, OPERATOR)["runs"] == []


def test_an_export_goes_into_the_workspace(workspace: Workspace) -> None:
    before = everything(workspace.run_dir(COLLAPSES).parent)
    service = Service("export")
    exports = Exports(workspace, Access(), service)
    request = {"run": COLLAPSES, "what": "csv"}
    try:
        assert "key" not in exports.export_start(request, VIEWER)
        assert list(workspace.root.iterdir()) == []
        assert exports.export_start({**request, "what": "adapter"}, OPERATOR)["problem"].startswith("This run has no checkpoint")
        assert "key" in exports.export_start(request, OPERATOR)
        wait_until(lambda: exports.export_look(request, OPERATOR)["job"]["state"] != "working", 60)
        look = exports.export_look(request, VIEWER)
    finally:
        service.close()
    assert (look["job"]["state"], [file["name"] for file in look["files"]]) == ("done", ["metrics.csv"])
    made = workspace.root / paths.RECORDINGS / COLLAPSES / paths.EXPORTS / "metrics.csv"
    assert len(made.read_text().splitlines()) == 17  # a head, and a line for each step
    with open(open_export(workspace.exports_parent(COLLAPSES), "metrics.csv"), encoding="utf-8") as file:
        assert file.read() == made.read_text()
    assert everything(workspace.run_dir(COLLAPSES).parent) == before
    assert workspace.runs() == []
