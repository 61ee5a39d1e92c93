"""The Runs page's answers, without a browser: rows, what deleting loses, and what may be done by whom."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import gradio as gr
import pytest

from rlhf_studio.config import RunConfig
from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.runs import launch, paths
from rlhf_studio.runs.finding.folders import Listing
from rlhf_studio.runs.liveness import EngineLock
from rlhf_studio.runs.records import ALIVE, EventRecord, Origin, RunStatus, State, StepRecord
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.runs.writer import RunWriter
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.news import News
from rlhf_studio.ui.runs_page import RunsPage, allowed_actions, course_of
from rlhf_studio.ui.visiting.modes import Mode
from tests.ui.train_helpers import OPERATOR, VIEWER

CONFIG = load_recipe("world").config


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


@pytest.fixture
def page(workspace: Workspace) -> RunsPage:
    return RunsPage(workspace, Access())


def rows(page: RunsPage, request: Any = OPERATOR) -> list[dict[str, Any]]:
    page._table.forget()  # do not wait until the listing is old enough
    return asyncio.run(page.runs({}, request))["rows"]


def ended(workspace: Workspace, state: State = "finished", steps: int = 3, name: str = "a run", cause: str = "") -> str:
    """A run that has written some steps and ended."""
    run_id = workspace.submit(CONFIG, name)
    folder = workspace.run_dir(run_id)
    workspace.cancel(run_id)
    with EngineLock(folder), RunWriter(folder) as writer:
        for step in range(1, steps + 1):
            writer.commit_step(StepRecord(step, {"objective/scores": step - 1.0, "gold/score": 0.5, "objective/kl": 2.0 * step}, []))
        writer.set_state(state, cause=cause)
    return run_id


def checkpoint(workspace: Workspace, run_id: str, step: int, size: int) -> None:
    folder = paths.checkpoint_dir(workspace.run_dir(run_id), step)
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"\0" * size)
    (folder / paths.MANIFEST).write_text(json.dumps({"step": step}))


def test_an_empty_workspace(page: RunsPage) -> None:
    answer = asyncio.run(page.runs(None, OPERATOR))
    assert (answer["rows"], answer["operator"], answer["why_not"]) == ([], True, "")


def test_a_row_says_what_the_run_has_done(page: RunsPage, workspace: Workspace) -> None:
    run_id = ended(workspace, name="<b>x</b>")
    (row,) = rows(page)
    assert json.loads(json.dumps(row, allow_nan=False)) == row
    expected = {
        "id": run_id,
        "name": "<b>x</b>",
        "recipe": "world",
        "model": "bundled/world-policy",
        "state": "finished",
        "step": 3,
        "total": CONFIG.ppo.steps,
    }
    assert {key: row[key] for key in expected} == expected
    assert (row["score_first"], row["score_last"], row["gold_last"], row["kl_last"]) == (0.0, 2.0, 0.5, 6.0)
    assert row["actions"] == ["go_on", "follow", "copy", "rename", "mark", "archive", "delete"] and not row["alive"]


def test_a_small_picture_spans_the_scores_and_shows_no_rounding_as_news() -> None:
    assert course_of([-1.0, 1.0, 0.0]) == [0, 99, 50]
    assert course_of([0.5]) == [] and max(course_of([0.5, 0.5001])) <= 1


def test_newest_first_with_the_queue_and_the_cause(page: RunsPage, workspace: Workspace) -> None:
    failed = ended(workspace, "failed", cause="The disk is full.")
    first, second = workspace.submit(CONFIG, "first"), workspace.submit(CONFIG, "second")
    by_id = {row["id"]: row for row in rows(page)}
    assert list(by_id) == sorted(by_id, key=lambda run_id: by_id[run_id]["created_at"], reverse=True)
    assert (by_id[first]["queue_position"], by_id[second]["queue_position"]) == (1, 2)
    assert by_id[first]["actions"] == ["move", "cancel", "follow", "copy", "rename", "mark", "archive", "delete"]
    assert by_id[failed]["note"] == "The disk is full."
    assert by_id[failed]["actions"] == ["resume", "follow", "copy", "rename", "mark", "archive", "delete"]


def test_an_unchanged_table_is_not_sent_again(page: RunsPage, workspace: Workspace) -> None:
    run_id = ended(workspace)
    version = asyncio.run(page.runs({}, OPERATOR))["version"]
    again = asyncio.run(page.runs({"version": version}, OPERATOR))
    assert again["same"] and "rows" not in again
    workspace.rename(run_id, "other")
    page._table.forget()
    changed = asyncio.run(page.runs({"version": version}, OPERATOR))
    assert [row["name"] for row in changed["rows"]] == ["other"]


def test_only_rows_that_have_changed_are_sent_and_another_start_of_the_app_sends_all(page: RunsPage, workspace: Workspace) -> None:
    first, second = ended(workspace, name="first"), ended(workspace, name="second")
    version = asyncio.run(page.runs({}, OPERATOR))["version"]
    workspace.rename(first, "other")
    page._table.forget()
    changed = asyncio.run(page.runs({"version": version}, OPERATOR))
    assert [row["name"] for row in changed["rows"]] == ["other"] and changed["ids"] == [second, first]
    workspace.delete(second)
    page._table.forget()
    gone = asyncio.run(page.runs({"version": changed["version"]}, OPERATOR))
    assert gone["ids"] == [first] and gone["rows"] == []
    assert len(asyncio.run(RunsPage(workspace, Access()).runs({"version": gone["version"]}, OPERATOR))["rows"]) == 1
    for nonsense in ("x", "-", f"{page._boot}-nan", 7, None, f"{page._boot}-{'9' * 40}"):
        assert len(asyncio.run(page.runs({"version": nonsense}, OPERATOR))["rows"]) == 1


def test_many_viewers_cost_one_reading(page: RunsPage, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    ended(workspace)
    read: list[int] = []
    listing = Listing.runs
    monkeypatch.setattr(Listing, "runs", lambda self: read.append(1) or listing(self))
    for _ in range(30):
        asyncio.run(page.runs({}, VIEWER))
    assert len(read) == 1


def test_figures_are_read_again_only_when_the_run_moved_on(page: RunsPage, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = ended(workspace)
    assert rows(page)[0]["step"] == 3
    monkeypatch.setattr("rlhf_studio.runs.reader.RunReader.summary", lambda _: pytest.fail("read without need"))
    assert rows(page)[0]["step"] == 3
    monkeypatch.undo()
    with EngineLock(workspace.run_dir(run_id)), RunWriter(workspace.run_dir(run_id)) as writer:
        writer.commit_step(StepRecord(4, {"objective/scores": 9.0}, []))
    assert rows(page)[0]["step"] == 4


def test_a_secret_in_a_cause_is_not_shown(page: RunsPage, workspace: Workspace) -> None:
    ended(workspace, "failed", cause=f"The hub refused hf_{'a' * 30}.")
    assert [row["note"] for row in rows(page)] == ["The hub refused hf_\u2026."]


def test_a_damaged_run_is_listed_with_its_cause_and_can_be_deleted(page: RunsPage, workspace: Workspace) -> None:
    run_id = ended(workspace)
    (workspace.run_dir(run_id) / "run.db").write_bytes(b"not a database" * 100)
    (row,) = rows(page)
    assert row["state"] == "failed" and "damaged" in row["note"] and row["score_last"] is None
    assert "cannot be read" in page.loss({"run": run_id}, OPERATOR)["text"]
    page.act({"action": "delete", "run": run_id}, OPERATOR)
    assert rows(page) == []


def test_a_workspace_that_cannot_be_read_is_said(page: RunsPage, workspace: Workspace) -> None:
    ended(workspace)
    (workspace.root / paths.STUDIO_DATABASE).write_bytes(b"not a database" * 100)
    page._table.forget()
    answer = asyncio.run(page.runs({}, OPERATOR))
    assert "rows" not in answer and "damaged" in answer["problem"]
    assert page.waiting() == 0


def test_why_the_queue_stands_still_is_said_beside_the_rows(workspace: Workspace) -> None:
    workspace.submit(CONFIG, "waiting")
    page = RunsPage(workspace, Access(), lambda: "The queue stands still: the disk is full.")
    answer = asyncio.run(page.runs({}, OPERATOR))
    assert (len(answer["rows"]), answer["problem"]) == (1, "The queue stands still: the disk is full.")
    assert page.waiting() == 1


@pytest.mark.parametrize("state", get_args(State))
def test_what_may_be_done_in_each_state(state: State) -> None:
    values: dict[str, Any] = {**dict.fromkeys(RunStatus.__dataclass_fields__), "origin": Origin()}
    actions = allowed_actions(RunStatus(**{**values, "state": state}))
    assert ("resume" in actions) == (state in ("stopped", "failed", "interrupted"))
    assert ("cancel" in actions) == (state == "queued")
    assert ("delete" in actions) == (state not in ALIVE)
    assert "force_stop" not in actions
    late = allowed_actions(RunStatus(**{**values, "state": state, "stop_asked_age": 20.0}))
    assert ("force_stop" in late) == (state in ALIVE)
    assert {"copy", "follow"} <= set(actions)
    log = Origin(imported="a.jsonl", settings_known=False)
    for origin in (Origin(program="mine.py"), log, replace(log, controls=["stop"])):
        of_others = allowed_actions(RunStatus(**{**values, "state": state, "stage": "ppo", "stop_asked_age": 20.0, "origin": origin}))
        assert not {"resume", "go_on", "copy", "follow"} & set(of_others), origin
        assert "force_stop" not in of_others or not origin.trained_by


# --- deleting says what is lost ------------------------------------------------------------------------------------------------


def test_what_deleting_loses(page: RunsPage, workspace: Workspace) -> None:
    run_id = ended(workspace, name="mine")
    for step in (2, 3):
        checkpoint(workspace, run_id, step, 3_000_000)
    text = page.loss({"run": run_id}, OPERATOR)["text"]
    assert text.startswith(
        "Deleting mine removes 3 recorded steps with every response and token and 2 checkpoints with the trained weights"
    )
    assert "(the last at step 3): 6." in text and text.endswith(" MB. It cannot be undone.")


def test_what_deleting_loses_when_there_is_little(page: RunsPage, workspace: Workspace) -> None:
    queued = workspace.submit(CONFIG, "young")
    assert "its settings and its log; it has no steps yet" in page.loss({"run": queued}, OPERATOR)["text"]
    small = ended(workspace, steps=1)
    checkpoint(workspace, small, 1, 10)
    text = page.loss({"run": small}, OPERATOR)["text"]
    assert "1 recorded step with" in text and "1 checkpoint with" in text


# --- acting --------------------------------------------------------------------------------------------------------------------


def test_resume_cancel_rename_delete(page: RunsPage, workspace: Workspace) -> None:
    run_id = ended(workspace, "stopped")
    assert page.act({"action": "resume", "run": run_id, "from_start": True}, OPERATOR)["done"] == "resume"
    assert rows(page)[0]["queue_position"] == 1
    page.act({"action": "cancel", "run": run_id}, OPERATOR)
    assert rows(page)[0]["state"] == "stopped"
    young = workspace.submit(CONFIG, "young")
    page.act({"action": "cancel", "run": young}, OPERATOR)
    (unbegun,) = [row for row in rows(page) if row["id"] == young]
    assert unbegun["note"] == "Cancelled before it started"
    assert unbegun["actions"] == ["resume", "copy", "rename", "mark", "archive", "delete"]
    assert page.act({"action": "resume", "run": young}, OPERATOR)["done"] == "resume"  # without a question
    for action in ("cancel", "delete"):
        page.act({"action": action, "run": young}, OPERATOR)
    page.act({"action": "rename", "run": run_id, "name": " new "}, OPERATOR)
    assert rows(page)[0]["name"] == "new"
    page.act({"action": "delete", "run": run_id}, OPERATOR)
    assert rows(page) == [] and not (workspace.root / paths.RUNS / run_id).exists()


def test_a_living_run_is_not_deleted(page: RunsPage, workspace: Workspace) -> None:
    run_id = ended(workspace)
    with EngineLock(workspace.run_dir(run_id)), pytest.raises(gr.Error, match="Stop it before deleting"):
        page.act({"action": "delete", "run": run_id}, OPERATOR)
    assert rows(page)[0]["id"] == run_id


def test_force_stop_is_for_operators(page: RunsPage, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    stops: list[tuple[str, str]] = []
    monkeypatch.setattr(launch, "force_stop", lambda folder, by: stops.append((folder.name, by)))
    run_id = ended(workspace)
    page.act({"action": "force_stop", "run": run_id}, OPERATOR)
    assert stops == [(run_id, "an operator")]
    monkeypatch.undo()
    with pytest.raises(gr.Error, match="nothing to end"):
        page.act({"action": "force_stop", "run": run_id}, OPERATOR)


def test_tags_note_archive_and_places_in_the_queue(page: RunsPage, workspace: Workspace) -> None:
    first, second = workspace.submit(CONFIG, "first"), workspace.submit(CONFIG, "second")
    page.act({"action": "mark", "run": first, "tags": ["a", "<b>"], "note": "look at this"}, OPERATOR)
    page.act({"action": "archive", "run": first}, OPERATOR)
    page.act({"action": "move", "run": second, "to": 1}, OPERATOR)
    by_id = {row["id"]: row for row in rows(page)}
    assert (by_id[first]["tags"], by_id[first]["remark"], by_id[first]["archived"]) == (["a", "<b>"], "look at this", True)
    assert (by_id[first]["queue_position"], by_id[second]["queue_position"]) == (2, 1)
    assert "unarchive" in by_id[first]["actions"] and "archive" not in by_id[first]["actions"]
    page.act({"action": "unarchive", "run": first}, OPERATOR)
    assert not {row["id"]: row for row in rows(page)}[first]["archived"]
    for wrong in ({"tags": "a"}, {"tags": ["x" * 41]}, {"tags": [3]}, {"note": 5}, {"note": "x" * 4001}):
        with pytest.raises(gr.Error):
            page.act({"action": "mark", "run": first, **wrong}, OPERATOR)
    for to in (0, -1, "1", True, None):
        with pytest.raises(gr.Error):
            page.act({"action": "move", "run": first, "to": to}, OPERATOR)
    assert {row["id"]: row for row in rows(page)}[first]["tags"] == ["a", "<b>"]


@pytest.mark.parametrize("action", ["resume", "cancel", "force_stop", "move", "rename", "mark", "archive", "unarchive", "delete"])
def test_viewers_change_nothing(action: str, page: RunsPage, workspace: Workspace) -> None:
    run_id = ended(workspace, "stopped") if action not in ("cancel", "move") else workspace.submit(CONFIG, "queued")
    before = rows(page)
    with pytest.raises(gr.Error, match="operator link"):
        page.act({"action": action, "run": run_id, "name": "theirs", "tags": ["theirs"], "to": 1}, VIEWER)
    assert rows(page) == before
    answer = asyncio.run(page.runs({}, VIEWER))
    assert not answer["operator"] and "operator link" in answer["why_not"]
    assert not asyncio.run(page.runs({"view": True}, OPERATOR))["operator"]


@pytest.mark.parametrize(
    "data",
    [None, [], {}, {"action": "delete"}, {"action": "_rows", "run": "x"}, {"action": "delete", "run": 3}, {"action": "submit", "run": "x"}],
)
def test_what_is_no_action(data: Any, page: RunsPage) -> None:
    with pytest.raises(gr.Error, match="There is no such"):
        page.act(data, OPERATOR)


@pytest.mark.parametrize("run_id", ["../../etc", "/etc", "..", "a/b", "x" * 300, "%2e%2e", "", "nowhere-at-all"])
def test_ids_that_are_none_reach_no_file(run_id: str, page: RunsPage, workspace: Workspace) -> None:
    ended(workspace)
    with pytest.raises(gr.Error, match="There is no|no run|no such"):
        page.act({"action": "delete", "run": run_id}, OPERATOR)
    assert "problem" in page.settings({"run": run_id}, OPERATOR)
    assert "cannot be read" in page.loss({"run": run_id}, OPERATOR)["text"]
    assert len(rows(page)) == 1


def test_a_long_name_is_refused(page: RunsPage, workspace: Workspace) -> None:
    run_id = ended(workspace)
    with pytest.raises(gr.Error):
        page.act({"action": "rename", "run": run_id, "name": "x" * 500}, OPERATOR)
    page.act({"action": "rename", "run": run_id, "name": ["x"]}, OPERATOR)
    assert rows(page)[0]["name"] == "a run"


def test_settings_of_a_run_for_the_train_page(page: RunsPage, workspace: Workspace) -> None:
    config = RunConfig.model_validate({**CONFIG.model_dump(), "name": "old"})
    answer = page.settings({"run": workspace.submit(config, "old")}, OPERATOR)
    assert answer["basis"] == "world"
    assert (answer["values"]["ppo.steps"], answer["values"]["name"]) == (CONFIG.ppo.steps, "")


def test_a_file_of_the_runs_own_folder_is_named_in_full_for_the_train_page(
    page: RunsPage, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "projects").mkdir()
    (tmp_path / "projects" / "mine.txt").write_text("the film was\n")
    config = RunConfig.model_validate({**CONFIG.model_dump(), "data": {"prompts": "mine.txt"}})
    with monkeypatch.context() as patched:
        patched.chdir(tmp_path / "projects")
        run_id = workspace.submit(config, "mine")
    assert page.settings({"run": run_id}, OPERATOR)["values"]["data.prompts"] == str(tmp_path / "projects" / "mine.txt")


# --- resuming ----------------------------------------------------------------------------------------------------------------


def test_resuming_without_a_checkpoint_is_a_question(page: RunsPage, workspace: Workspace) -> None:
    run_id = ended(workspace, "stopped", steps=3)
    before = workspace.status(run_id)
    question = page.resume_question({"run": run_id}, OPERATOR)
    assert question["title"] == "Begin this run again at step 1?" and question["confirm"] == "Begin again"
    assert "it has no checkpoint" in question["text"] and "You would lose its 3 recorded steps" in question["text"]
    with pytest.raises(gr.Error, match="it has no checkpoint") as refused:
        page.act({"action": "resume", "run": run_id}, OPERATOR)
    assert not re.search("python|/", refused.value.message)  # a command for a terminal, or a place on this machine
    for vague in ("true", 1, None):
        with pytest.raises(gr.Error, match="cannot go on from a checkpoint"):
            page.act({"action": "resume", "run": run_id, "from_start": vague}, OPERATOR)
    after = workspace.status(run_id)
    assert (after.state, after.seq, after.queue_position) == (before.state, before.seq, None)
    assert page.act({"action": "resume", "run": run_id, "from_start": True}, OPERATOR)["done"] == "resume"
    assert workspace.status(run_id).state == "queued"


def test_a_run_that_goes_on_needs_no_question(page: RunsPage, workspace: Workspace) -> None:
    run_id = ended(workspace, "stopped", steps=3)
    folder = paths.checkpoint_dir(workspace.run_dir(run_id), 2)
    folder.mkdir(parents=True)
    (folder / "weights").write_text("weights")
    files = {"weights": {"bytes": 7, "sha256": hashlib.sha256(b"weights").hexdigest()}}
    (folder / paths.MANIFEST).write_text(json.dumps({"format": 1, "step": 2, "files": files}))
    assert page.resume_question({"run": run_id}, OPERATOR) == {}
    (folder / paths.MANIFEST).write_text("{")
    assert "step-000002: the manifest cannot be read" in page.resume_question({"run": run_id}, OPERATOR)["text"]


def test_the_question_is_for_operators_and_bears_nonsense(page: RunsPage, workspace: Workspace) -> None:
    run_id = ended(workspace, "stopped", steps=3)
    assert set(RunsPage(workspace, Access(Mode.READ_ONLY)).resume_question({"run": run_id}, VIEWER)) == {"problem"}
    for nonsense in (None, 5, {}, {"run": 7}, {"run": "../../etc"}, {"run": "no-such-run"}):
        assert set(page.resume_question(nonsense, OPERATOR)) == {"problem"}


def test_the_bell_tells_ends_and_the_first_alarm_of_each_kind_the_newest_first(workspace: Workspace) -> None:
    def alarm(kind: str, text: str) -> EventRecord:
        return EventRecord("warning", kind, text)

    first = ended(workspace, name="good")
    failed = ended(workspace, "failed", cause="Out of memory with hf_abcdefghijklmnopqrstuvwxyz.")
    going = workspace.submit(CONFIG, "going")
    folder = workspace.run_dir(going)
    workspace.cancel(going)
    told = (alarm("skip", "one"), alarm("skip", "two"), alarm("control", "no alarm"), EventRecord("info", "health", "no alarm"))
    with EngineLock(folder), RunWriter(folder) as writer:
        writer.set_state("running")
        for event in told:
            writer.event(event)
        events = asyncio.run(News(workspace).news({}, VIEWER))["events"]
    assert [(event["run"], event["what"]) for event in events] == [(going, "alarm"), (failed, "failed"), (first, "finished")]
    assert [event["text"].split(" with ")[0] for event in events] == ["one", "Out of memory", "Step 3 of 30"]
    assert "hf_abcdef" not in str(events) and events[0]["at"] >= events[1]["at"] >= events[2]["at"]


def test_rows_say_what_differs_between_runs_of_one_name_and_which_differ_in_the_seed_alone(workspace: Workspace, page: RunsPage) -> None:
    def run(seed: int, name: str = "same", **ppo: float) -> str:
        changes = {"engine": CONFIG.engine.model_copy(update={"seed": seed}), "ppo": CONFIG.ppo.model_copy(update=ppo)}
        return workspace.submit(CONFIG.model_copy(update=changes), name)

    first, second, other, alone = run(0), run(1), run(1, kl_coef=0.5), run(2, name="alone")
    of = {row["id"]: row for row in rows(page)}
    coefficient = f"KL coefficient {CONFIG.ppo.kl_coef:g}"
    assert (of[first]["apart"], of[second]["apart"]) == (f"seed 0, {coefficient}", f"seed 1, {coefficient}")
    assert (of[other]["apart"], of[alone]["apart"]) == ("seed 1, KL coefficient 0.5", "")
    assert of[first]["alike"] == of[second]["alike"] == of[alone]["alike"] != of[other]["alike"]
    workspace.rename(other, "another name")
    assert {row["id"]: row["apart"] for row in rows(page)}[second] == "seed 1"
    workspace.rename(other, "same")
    workspace.rename(first, "the first")
    again = run(1, name="the first")
    workspace.rename(second, "the first")
    workspace.rename(first, "alone too")
    assert [(row["apart"], row["same"]) for row in rows(page) if row["id"] in (second, again)] == [("", True)] * 2
