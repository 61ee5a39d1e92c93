"""Break it on the Learn page, without a browser: what it tells, what it starts, for whom, and that broken runs say what they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gradio as gr
import pytest

from rlhf_studio.analysis.compare import compare, overlay
from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.lessons.faults.experiment import WHICH, Experiment
from rlhf_studio.lessons.faults.runs import TAG
from rlhf_studio.lessons.faults.shelf import experiment_of
from rlhf_studio.lessons.faults.table import EXPERIMENTS
from rlhf_studio.runs.lab.fault import note_of, noted_fault
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.learn.breaking import BUSY, Breaking, how_long
from tests.ui.breaking_stand_in import PLACE, write_run
from tests.ui.train_helpers import OPERATOR, VIEWER


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


@pytest.fixture
def woken() -> list[bool]:
    return []


@pytest.fixture
def page(workspace: Workspace, woken: list[bool]) -> Breaking:
    return Breaking(workspace, Access(), lambda: woken.append(True))


def train_queued(workspace: Workspace, **how: Any) -> list[str]:
    """Train all runs that wait, as the queue would. Returns their ids in the order of their names."""
    waiting = [run for run in workspace.runs() if run.state == "queued"]
    for run in waiting:
        write_run(workspace.run_dir(run.run_id), **how)
        workspace.cancel(run.run_id)
    return [run.run_id for run in sorted(waiting, key=lambda run: run.name)]


def test_how_long_both_runs_take_is_told_from_what_was_measured(page: Breaking, workspace: Workspace) -> None:
    experiment = experiment_of("no_kl")
    configs = [experiment.config(which, 0) for which in WHICH]
    recipe = load_recipe("world")
    assert how_long(workspace, configs) == "Both runs together take about 1.3 minutes on two CPU cores that do nothing else."
    assert recipe.minutes == 1 and recipe.config.ppo.steps == 30  # 2 x 20 of 30 steps
    news = page.break_news({"show": "no_kl", "seed": 0}, VIEWER)
    assert news["takes"] == how_long(workspace, configs)
    assert how_long(workspace, configs[:1]).startswith("The missing run takes about 40 s on two")


def test_everyone_may_read(page: Breaking) -> None:
    shelf = page.break_shelf({}, VIEWER)
    assert [row["name"] for row in shelf["experiments"]] == [row.name for row in EXPERIMENTS]
    news = page.break_news({"show": "no_kl"}, VIEWER)
    assert news["seed"] == 0 and news["seeds"] == [] and not news["under_way"] and "key" not in news
    assert [news["runs"][which]["state"] for which in WHICH] == ["", ""]
    assert news["operator"] is False and news["why_not"]


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"show": "no_such"}, "There is no experiment 'no_such'."),
        ({}, "There is no experiment 'None'."),
        ({"show": "no_kl", "seed": -1}, "seed must be a whole number"),
        ({"show": "no_kl", "seed": 1000}, "seed must be a whole number"),
        ({"show": "no_kl", "seed": True}, "seed must be a whole number"),
        ({"show": "no_kl", "seed": "0"}, "seed must be a whole number"),
    ],
)
def test_what_is_asked_for_must_exist(asked: dict[str, Any], error: str, page: Breaking, workspace: Workspace) -> None:
    assert page.break_news(asked, OPERATOR)["error"].startswith(error)
    assert page.break_start(asked, OPERATOR)["problem"].startswith(error)
    assert workspace.runs() == []


def test_only_operators_start_runs(page: Breaking, workspace: Workspace) -> None:
    for request in (VIEWER, None):
        with pytest.raises(gr.Error):
            page.break_start({"show": "no_kl", "seed": 0}, request)
    assert workspace.runs() == []


def test_a_pair_is_queued_once_trained_and_shown(page: Breaking, workspace: Workspace, woken: list[bool]) -> None:
    start = {"show": "no_kl", "seed": 0, "nonce": "one"}
    assert page.break_start(start, OPERATOR) == {"seed": 0, "nonce": "one"}
    assert page.break_start(start, OPERATOR)["seed"] == 0  # a double click
    assert page.break_start({**start, "nonce": "two"}, OPERATOR)["problem"] == BUSY
    assert page.break_start({"show": "critic", "seed": 3, "nonce": "three"}, OPERATOR)["problem"] == BUSY
    assert [run.name for run in reversed(workspace.runs())] == ["Break it: as the recipe has it, seed 0", "Break it: no KL penalty, seed 0"]
    assert woken == [True]
    news = page.break_news({"show": "no_kl", "seed": 0}, VIEWER)
    assert news["under_way"] and [news["runs"][which]["state"] for which in WHICH] == ["queued", "queued"]
    train_queued(workspace)
    news = page.break_news({"show": "no_kl"}, VIEWER)
    assert news["seeds"] == [0] and news["next_seed"] == 1 and not news["under_way"]
    slots = news["result"]["slots"]
    assert slots["answer"] == "@lower"
    assert slots["gold_first:+.2f"] == "+0.50" and slots["gold_second:+.2f"] == "−0.50"  # the means of 0.25, 0.50, 0.75
    assert slots["kl_second:.0f"] == "12"
    assert (slots["token_step"], slots["token_number"], slots["token_text"]) == ("2", str(PLACE + 1), "is")
    assert news["result"]["token"] == {"step": 2, "sample": 0, "token": PLACE}
    assert [row["y"] for row in news["result"]["pictures"]["gold"]["series"]] == [[0.25, 0.5, 0.75], [-0.25, -0.5, -0.75]]
    again = page.break_news({"show": "no_kl", "known": news["key"]}, VIEWER)
    assert "result" not in again and again["key"] == news["key"]
    json.dumps(news, allow_nan=False)


def test_experiments_share_the_run_that_is_as_it_should_be(page: Breaking, workspace: Workspace) -> None:
    page.break_start({"show": "no_kl", "seed": 0}, OPERATOR)
    train_queued(workspace)
    page.break_start({"show": "critic", "seed": 0}, OPERATOR)
    names = [run.name for run in workspace.runs() if run.state == "queued"]
    assert names == ["Break it: a critic that never learns (broken on purpose), seed 0"]
    page.break_start({"show": "no_kl", "seed": 1}, OPERATOR)
    assert len(workspace.runs()) == 3  # one pair at a time: nothing of another seed while this one waits
    train_queued(workspace)
    page.break_start({"show": "no_kl", "seed": 1}, OPERATOR)
    assert len(workspace.runs()) == 5


def test_a_run_that_broke_down_is_a_result_and_one_that_never_began_is_not(page: Breaking, workspace: Workspace) -> None:
    page.break_start({"show": "critic", "seed": 0}, OPERATOR)
    train_queued(workspace, state="failed", steps=0)
    assert "result" not in page.break_news({"show": "critic"}, VIEWER)
    page.break_start({"show": "critic", "seed": 0}, OPERATOR)
    train_queued(workspace, state="failed", steps=1)
    news = page.break_news({"show": "critic"}, VIEWER)
    assert news["runs"]["second"]["cause"] == "it broke" and news["result"]["token"] is None
    assert news["result"]["slots"]["token_step"] == "(not recorded)"


def test_a_broken_run_says_what_it_is_wherever_it_goes(page: Breaking, workspace: Workspace) -> None:
    page.break_start({"show": "critic", "seed": 0}, OPERATOR)
    broken, healthy = train_queued(workspace)
    assert noted_fault(workspace.run_dir(broken)) == "critic" and noted_fault(workspace.run_dir(healthy)) == ""
    status = workspace.status(broken)
    assert "broken on purpose" in status.name and status.marks.tags == (TAG,) and "critic" in status.marks.note
    assert workspace.status(healthy).marks.tags == ()
    variation = workspace.fork(broken, None, {"ppo.gamma": 0.9})
    assert noted_fault(workspace.run_dir(variation)) == "critic"
    readers = [workspace.reader(healthy), workspace.reader(broken)]
    comparison = compare(readers)
    assert [run.group for run in comparison.runs] == [0, 1]  # not two seeds of the same settings
    assert any("broken on purpose: it has the fault critic" in note for note in comparison.notes)
    assert "They differ in a fault that was made on purpose." in comparison.verdict
    assert overlay(readers, "gold/score").bands == []


def test_a_run_of_other_settings_does_not_count(page: Breaking, workspace: Workspace) -> None:
    experiment: Experiment = experiment_of("critic")
    for which in WHICH:
        config = experiment.config(which, 0)
        longer = config.model_copy(update={"ppo": config.ppo.model_copy(update={"steps": 50})})
        workspace.submit(longer, "longer", files=note_of(experiment.side(which).fault))
    workspace.submit(experiment.config("first", 0), "an ordinary run of the same settings")  # no note: not made for this
    train_queued(workspace)
    assert [page.break_news({"show": "critic"}, VIEWER)["runs"][which]["run"] for which in WHICH] == ["", ""]
