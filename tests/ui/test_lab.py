"""The lab's answers without a browser: runs side by side, experiments, others' logs."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from rlhf_studio.analysis.logs import apart
from rlhf_studio.analysis.logs.apart import MEMORY_BYTES
from rlhf_studio.config.io import ConfigError, Problem, with_values
from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.inputs.estimate.disk import NEW_RUN, OnDisk
from rlhf_studio.inputs.helper import MEMORY_VARIABLE
from rlhf_studio.inputs.preflight import Preflight
from rlhf_studio.runs.commands import send_command
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.liveness import EngineLock
from rlhf_studio.runs.paths import checkpoint_dir, run_dir
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import StepRecord, WatchRecord
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.runs.writer import RunWriter
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.insights import Insights, Progress
from rlhf_studio.ui.lab import following
from rlhf_studio.ui.lab.comparing import Comparing
from rlhf_studio.ui.lab.desk import Desk
from rlhf_studio.ui.runs_page import RunsPage
from rlhf_studio.ui.serving.bounded import Bounded, TooBusy
from rlhf_studio.units import duration
from tests.browser.conftest import HOSTILE
from tests.inputs.in_process import in_process
from tests.runs.test_checkpoints import folder_of, write
from tests.ui.train_helpers import OPERATOR, VIEWER, install_world
from tests.waiting import wait_until

CONFIG = load_recipe("world").config


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


@dataclass
class Inspector:
    """Stands in for the check before a start."""

    problems: list[Problem] = field(default_factory=list)
    configs: list[Any] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)
    on_disk: list[OnDisk] = field(default_factory=list)

    def __call__(self, config: Any, workspace: Path, *, folder: Path, on_disk: OnDisk = NEW_RUN) -> Preflight:
        self.configs.append(config)
        self.folders.append(folder)
        self.on_disk.append(on_disk)
        return Preflight(self.problems)


@pytest.fixture
def inspector() -> Inspector:
    return Inspector()


@pytest.fixture
def insights(workspace: Workspace) -> Iterator[Insights]:
    insights = Insights(workspace)
    yield insights
    insights.close()


@pytest.fixture
def desk(workspace: Workspace, insights: Insights, inspector: Inspector) -> Iterator[Desk]:
    desk = Desk(workspace, Access(), insights, inspector)
    yield desk
    desk.close()


def ended(workspace: Workspace, name: str = "a run", steps: int = 20, kl_coef: float = 0.05, seed: int = 0, gain: float = 1.0) -> str:
    """A finished run whose score grows by ``gain`` from its first to its last step."""
    run_id = workspace.submit(with_values(CONFIG, {"ppo.kl_coef": kl_coef, "engine.seed": seed, "ppo.steps": steps}), name)
    folder = workspace.run_dir(run_id)
    workspace.cancel(run_id)
    kl = np.array([0.1, 0.2], np.float32)
    with EngineLock(folder), RunWriter(folder) as writer:
        writer.watched(0, [WatchRecord(0, HOSTILE, "before", 0.0, 0.1, 0.0, True, ["be", "fore"], {"kl": 0 * kl, "entropy": kl})])
        for step in range(1, steps + 1):
            metrics = {"objective/scores": gain * step / steps, "gold/score": 0.5, "objective/kl": 2.0}
            watched = [WatchRecord(0, HOSTILE, HOSTILE, 1.0, None, 0.3, True, [HOSTILE, "x"], {"kl": kl, "entropy": kl})]
            writer.commit_step(StepRecord(step, metrics, [], watched if step == steps else []))
        writer.set_state("finished")
    return run_id


def answer_of(call: Any) -> Any:
    """What a server function answers."""
    answer = asyncio.run(call)
    return json.loads(answer.body) if hasattr(answer, "body") else answer


# --- runs side by side -----------------------------------------------------------------------------------------------------------


def test_runs_side_by_side(desk: Desk, workspace: Workspace) -> None:
    runs = [ended(workspace, f"run {n}", kl_coef=coefficient, seed=n, gain=1.0 + n) for n, coefficient in enumerate((0.05, 0.05, 0.2))]
    workspace.rename(runs[2], HOSTILE)
    reply = answer_of(desk.comparing.compare({"runs": runs, "metrics": ["objective/kl", "nothing/such"]}, VIEWER))
    assert [run["run_id"] for run in reply["runs"]] == runs and [run["group"] for run in reply["runs"]] == [0, 0, 1]
    assert HOSTILE in reply["runs"][2]["label"]
    assert {row["setting"]: row["values"] for row in reply["settings"]} == {"ppo.kl_coef": [0.05, 0.05, 0.2], "engine.seed": [0, 1, 2]}
    assert reply["shown"] == ["objective/kl"] and [curve["metric"] for curve in reply["curves"]] == ["objective/kl"]
    assert reply["prompts"] == [HOSTILE] and reply["verdict"].endswith(".")
    (curve,) = answer_of(desk.comparing.curves({"runs": runs, "metrics": ["objective/scores"]}, VIEWER))["curves"]
    assert curve["lines"][2]["values"][-1] == pytest.approx(3.0) and curve["lines"][0]["steps"][-1] == 20
    assert curve["bands"][0]["mean"][-1] == pytest.approx(1.5)  # the mean of 1.0 and 2.0
    answers = answer_of(desk.comparing.answers({"runs": runs, "prompt": 0}, VIEWER))["answers"]
    assert answers[0]["newest"]["pieces"] == [HOSTILE, "x"] and answers[0]["first"]["step"] == 0
    assert answers[0]["newest"]["arrays"]["kl"] == [0.1, 0.2]
    table = answer_of(desk.comparing.sweep({"runs": runs, "metric": "objective/scores"}, VIEWER))
    assert (table["rows"], table["settings"]) == ([0.05, 0.2], ["ppo.kl_coef"])
    assert table["cells"][1][0]["mean"] == pytest.approx(3 * 39 / 40)  # of the last two of 20 steps


def test_a_comparison_is_made_once_and_anew_when_a_run_moves_on(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    from rlhf_studio.ui.lab import comparing

    made: list[int] = []
    compare = comparing.compare
    monkeypatch.setattr(comparing, "compare", lambda *arguments: made.append(1) or compare(*arguments))
    run, page = ended(workspace), Comparing(workspace)
    for _ in range(3):
        answer_of(page.compare({"runs": [run]}, VIEWER))
    answer_of(page.answers({"runs": [run], "prompt": 0}, VIEWER))
    assert len(made) == 1
    workspace.rename(run, "other")
    assert answer_of(page.compare({"runs": [run]}, VIEWER))["runs"][0]["label"] == "other" and len(made) == 2
    page.close()


@pytest.mark.parametrize(
    "data",
    [None, [], {"runs": None}, {"runs": []}, {"runs": [3]}, {"runs": ["../../etc"]}, {"runs": ["x"] * 21}, {"runs": [""]}],
)
def test_what_cannot_be_compared_is_said(data: Any, desk: Desk) -> None:
    for name in ("compare", "curves", "answers", "sweep"):
        assert set(answer_of(getattr(desk.comparing, name)(data, VIEWER))) == {"problem"}


def test_what_is_asked_of_a_comparison_is_bounded(desk: Desk, workspace: Workspace) -> None:
    run = ended(workspace)
    assert "At most" in answer_of(desk.comparing.curves({"runs": [run], "metrics": [f"m{n}" for n in range(13)]}, VIEWER))["problem"]
    assert "each run" in answer_of(desk.comparing.compare({"runs": [run, run]}, VIEWER))["problem"].lower()
    for prompt in (-1, 1, "0", None, True):
        assert "no such" in answer_of(desk.comparing.answers({"runs": [run], "prompt": prompt}, VIEWER))["problem"]
    assert "differ" in answer_of(desk.comparing.sweep({"runs": [run], "metric": 5}, VIEWER))["problem"]


def test_too_much_work_is_refused() -> None:
    async def try_it() -> None:
        gate = threading.Event()
        work = Bounded("test", threads=1, waiting=1)
        taken = [asyncio.create_task(work.run(gate.wait)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(TooBusy):
            await work.run(gate.wait)
        gate.set()
        assert await asyncio.gather(*taken) == [True, True]
        assert await work.run(lambda: 5) == 5
        work.close()

    asyncio.run(try_it())


# --- what follows from a run ------------------------------------------------------------------------------------------------------


def test_the_forms_know_the_settings_and_checkpoints(desk: Desk, workspace: Workspace) -> None:
    run = ended(workspace, kl_coef=0.07)
    reply = answer_of(desk.experiments.experiment_form({"run": run}, VIEWER))
    assert reply["steps"] == [] and reply["values"]["ppo.kl_coef"] == 0.07 and len(reply["common"]) == 5
    assert "checkpoint" in answer_of(desk.experiments.experiment_form({"run": run, "step": 5}, VIEWER))["problem"]
    assert (reply["stays"], reply["suggested"]) == ([], {})  # from the beginning everything may change


def test_a_fork_from_the_last_checkpoint_is_offered_steps_that_go_on(desk: Desk, workspace: Workspace) -> None:
    run = ended(workspace)
    folder = workspace.run_dir(run)
    for step in (10, 20):
        write(folder_of(folder, step), step, RunReader(folder).recorded_at(step))
    middle, last = (answer_of(desk.experiments.experiment_form({"run": run, "step": step}, VIEWER)) for step in (10, 20))
    assert middle["values"]["ppo.steps"] == last["values"]["ppo.steps"] == 20
    assert (middle["suggested"], last["suggested"]) == ({}, {"ppo.steps": 40})
    assert {"engine.seed", "data.prompts", "model.policy"} <= set(last["stays"]) and "ppo.kl_coef" not in last["stays"]
    assert workspace.fork_settings(run, 20, last["suggested"]).ppo.steps == 40  # what is offered is not refused
    for name in set(last["stays"]) & {setting["name"] for setting in last["common"]}:
        with pytest.raises(ConfigError, match="cannot change"):
            workspace.fork_settings(run, 20, {**last["suggested"], name: 77})


def test_suggestions_ask_the_doctor_that_the_table_and_the_live_page_ask(desk: Desk, workspace: Workspace, insights: Insights) -> None:
    run = ended(workspace)
    assert answer_of(desk.experiments.experiment_ideas({"run": run}, VIEWER))["kind"] in {
        *("improving", "improved", "exploiting the reward", "collapsed", "nothing learned", "too early")
    }
    known = insights.verdicts({run: Progress(0, 20, "finished")})  # it was found out for the suggestions
    assert known[run]["kind"] == answer_of(desk.experiments.experiment_ideas({"run": run}, VIEWER))["kind"]


def test_suggestions_follow_the_verdict(desk: Desk, workspace: Workspace, insights: Insights, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ended(workspace)
    monkeypatch.setattr(insights, "verdict_of", lambda run, progress: {"kind": "improved", "changes": {}})
    ideas = answer_of(desk.experiments.experiment_ideas({"run": run}, VIEWER))["ideas"]
    assert (ideas[0]["how"], ideas[0]["changes"]) == ("variation", {"ppo.kl_coef": 0.0})  # the large button
    minutes = load_recipe("world").minutes or 0.0
    assert ideas[0]["takes"] == f"about {duration(60 * minutes * 20 / CONFIG.ppo.steps)}"  # 20 steps; no run here has its time
    assert any(idea["how"] == "sweep" and idea["sweep"] == {"engine.seed": [1, 2, 3]} for idea in ideas)
    longer = next(idea for idea in ideas if idea["how"] == "more steps")
    assert longer["changes"] == {"ppo.steps": 40}


def test_a_repair_is_named_so_its_run_says_where_and_its_own_end_says_what_it_changed(
    desk: Desk, workspace: Workspace, insights: Insights, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = ended(workspace, "rate 0.9")
    rate = {"ppo.learning_rate": 0.0003}
    kinds = {broken: "collapsed"}
    monkeypatch.setattr(insights, "verdict_of", lambda run, progress: {"kind": kinds.get(run, "improved"), "changes": rate})
    ideas = answer_of(desk.experiments.experiment_ideas({"run": broken}, VIEWER))
    assert (ideas["ideas"][0]["changes"], ideas["repaired"], ideas["before"]) == (rate, None, "")
    start = {"run": broken, "how": "variation", "step": None, "changes": rate, "repair": True}
    reply = answer_of(desk.experiments.experiment_start(start, OPERATOR))
    assert reply["names"] == ["rate 0.9, repaired"]
    (repaired,) = reply["runs"]
    ideas = answer_of(desk.experiments.experiment_ideas({"run": broken}, VIEWER))
    assert ideas["repaired"] == {"run": repaired, "name": "rate 0.9, repaired"}
    assert all(idea["changes"] != rate for idea in ideas["ideas"])
    workspace.cancel(repaired)
    folder = workspace.run_dir(repaired)
    with EngineLock(folder), RunWriter(folder) as writer:
        for step in range(1, 21):
            writer.commit_step(StepRecord(step, {"objective/scores": 0.1 * step, "gold/score": 0.68}, [], []))
        writer.set_state("finished")
    told = answer_of(desk.experiments.experiment_ideas({"run": repaired}, VIEWER))["before"]
    assert told == "“rate 0.9” collapsed; this run did not: gold 0.50 there, 0.68 here."
    kinds[repaired] = "collapsed"
    told = answer_of(desk.experiments.experiment_ideas({"run": repaired}, VIEWER))["before"]
    assert told == "Like “rate 0.9” before it, this run collapsed."


def test_a_variation_and_a_sweep_are_checked_and_queued(desk: Desk, workspace: Workspace, inspector: Inspector) -> None:
    run = ended(workspace, "mine")
    made = answer_of(desk.experiments.experiment_start({"run": run, "how": "variation", "changes": {"ppo.kl_coef": "0.2"}}, OPERATOR))
    (new,) = made["runs"]
    assert workspace.reader(new).config().ppo.kl_coef == 0.2 and workspace.status(new).state == "queued"
    assert workspace.status(new).origin.parent == run and [config.ppo.kl_coef for config in inspector.configs] == [0.2]
    axes = {"ppo.kl_coef": ["0", "0.1"], "engine.seed": [1, 2]}
    swept = answer_of(desk.experiments.experiment_start({"run": run, "how": "sweep", "axes": axes, "name": "β and seeds"}, OPERATOR))[
        "runs"
    ]
    settings = [(workspace.reader(run_id).config().ppo.kl_coef, workspace.reader(run_id).config().engine.seed) for run_id in swept]
    assert settings == [(0.0, 1), (0.0, 2), (0.1, 1), (0.1, 2)] and len(inspector.configs) == 5
    assert {workspace.status(run_id).origin.parent for run_id in swept} == {run}


@pytest.mark.parametrize(
    ("start", "made"),
    [
        ({"how": "variation", "changes": {"ppo.kl_coef": 0.2}}, 1),
        ({"how": "sweep", "axes": {"engine.seed": [1, 2]}}, 2),
        ({"how": "fork", "step": 20, "changes": {"ppo.steps": 30}}, 1),
        ({"how": "more steps", "changes": {"ppo.steps": 30}}, 0),
    ],
    ids=lambda value: value["how"] if isinstance(value, dict) else "",
)
def test_a_start_that_is_asked_twice_starts_once(start: Any, made: int, desk: Desk, workspace: Workspace) -> None:
    run = ended(workspace)
    folder = workspace.run_dir(run)
    write(checkpoint_dir(folder, 20), 20, workspace.reader(run).recorded_at(20))
    request = {"run": run, **start, "nonce": "1-2-3-4"}

    async def double_click() -> list[Any]:
        return await asyncio.gather(*[desk.experiments.experiment_start(request, OPERATOR) for _ in range(2)])

    first, second = asyncio.run(double_click())
    assert first == second == answer_of(desk.experiments.experiment_start(request, OPERATOR)) and "runs" in first
    assert len(workspace.runs()) == 1 + made
    assert "operator" in answer_of(desk.experiments.experiment_start(request, VIEWER))["problem"]
    again = answer_of(desk.experiments.experiment_start({**request, "nonce": "5-6-7-8"}, OPERATOR))
    assert len(workspace.runs()) == 1 + 2 * made and again != first  # another wish; a run that waits takes no more steps


def test_a_start_that_failed_may_be_tried_again_with_the_same_nonce(desk: Desk, workspace: Workspace, inspector: Inspector) -> None:
    run = ended(workspace)
    request = {"run": run, "how": "variation", "changes": {}, "nonce": "1-2-3-4"}
    inspector.problems = [Problem("engine.device", "there is no GPU")]
    assert "problem" in answer_of(desk.experiments.experiment_start(request, OPERATOR))
    inspector.problems = []
    assert "runs" in answer_of(desk.experiments.experiment_start(request, OPERATOR)) and len(workspace.runs()) == 2


CANNOT_BE_STARTED: list[dict[str, Any]] = [
    {"how": "variation", "changes": {"ppo.kl_coef": "-1"}},
    {"how": "variation", "changes": {"ppo.nothing": 1}},
    {"how": "variation", "changes": "ppo.kl_coef"},
    {"how": "variation", "changes": {}, "name": "x" * 121},
    {"how": "fork", "changes": {}},
    {"how": "fork", "step": 7, "changes": {}},
    {"how": "fork", "step": "7", "changes": {}},
    {"how": "sweep", "axes": {}},
    {"how": "sweep", "axes": {"ppo.kl_coef": ["0.1"]}},
    {"how": "sweep", "axes": {"ppo.kl_coef": "0.1"}},
    {"how": "sweep", "axes": {"engine.seed": list(range(21))}},
    {"how": "sweep", "axes": {"ppo.kl_coef": ["0.1", "nonsense"]}},
    {"how": "sweep", "axes": {"a": [1, 2], "b": [1, 2], "c": [1, 2]}},
    {"how": "more steps", "changes": {"ppo.steps": "ten"}},
    {"how": "more steps", "changes": {"ppo.steps": 3}},
    {"how": "delete"},
    {"how": "variation", "changes": {".".join("a" * 3000): 1}},
    {"how": "sweep", "axes": {"reward.components.².weight": [1, 2]}},
]


def test_what_cannot_be_started_starts_nothing(desk: Desk, workspace: Workspace) -> None:
    run = ended(workspace)
    for wrong in CANNOT_BE_STARTED:
        reply = answer_of(desk.experiments.experiment_start({"run": run, **wrong}, OPERATOR))
        assert reply["problem"] and "runs" not in reply, wrong
        assert [status.run_id for status in workspace.runs()] == [run], wrong


def test_what_the_check_finds_starts_nothing_and_viewers_start_nothing(desk: Desk, workspace: Workspace, inspector: Inspector) -> None:
    run = ended(workspace)
    sweep = {"run": run, "how": "sweep", "axes": {"engine.seed": [1, 2]}}
    assert "operator" in answer_of(desk.experiments.experiment_start(sweep, VIEWER))["problem"]
    inspector.problems = [Problem("engine.device", "there is no GPU")]
    assert "no GPU" in answer_of(desk.experiments.experiment_start(sweep, OPERATOR))["problem"]
    assert len(workspace.runs()) == 1


def test_more_steps_are_checked_before_the_run_waits_for_them(desk: Desk, workspace: Workspace, inspector: Inspector) -> None:
    run = ended(workspace)
    folder = workspace.run_dir(run)
    write(checkpoint_dir(folder, 20), 20, workspace.reader(run).recorded_at(20))
    longer = {"run": run, "how": "more steps", "changes": {"ppo.steps": 30}}
    inspector.problems = [Problem("engine.checkpoint_every", "the disk is full")]
    assert "disk is full" in answer_of(desk.experiments.experiment_start(longer, OPERATOR))["problem"]
    assert workspace.status(run).state == "finished" and workspace.reader(run).config().ppo.steps == 20
    inspector.problems = []
    assert answer_of(desk.experiments.experiment_start(longer, OPERATOR)) == {"runs": [run], "names": ["a run"]}
    assert workspace.status(run).state == "queued" and workspace.reader(run).config().ppo.steps == 30
    assert [config.ppo.steps for config in inspector.configs] == [30, 30]
    assert inspector.on_disk == [OnDisk(steps=20, checkpoints=1)] * 2, "only what is added is to be counted"


def test_what_follows_from_a_run_is_checked_in_its_own_folder(
    desk: Desk, workspace: Workspace, inspector: Inspector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("projects", "app"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "projects")
    run = ended(workspace)
    folder = workspace.run_dir(run)
    write(checkpoint_dir(folder, 20), 20, workspace.reader(run).recorded_at(20))
    monkeypatch.chdir(tmp_path / "app")
    starts = [
        {"how": "variation", "changes": {}},
        {"how": "fork", "step": 20, "changes": {"ppo.steps": 30}},
        {"how": "sweep", "axes": {"engine.seed": [1, 2]}},
        {"how": "more steps", "changes": {"ppo.steps": 30}},
    ]
    for start in starts:
        made = answer_of(desk.experiments.experiment_start({"run": run, **start}, OPERATOR))["runs"]
        assert {workspace.reader(run_id).working_folder() for run_id in made} == {tmp_path / "projects"}  # where they will work
    assert inspector.folders == [tmp_path / "projects"] * 5


def test_the_real_check_finds_a_file_of_the_run_and_no_other(
    workspace: Workspace, insights: Insights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_world(tmp_path, monkeypatch)
    for name in ("projects", "app"):
        (tmp_path / name).mkdir()
    prompts = tmp_path / "projects" / "mine.txt"
    prompts.write_text("the film was\n" * 80)
    monkeypatch.chdir(tmp_path / "projects")
    run = workspace.submit(with_values(CONFIG, {"data.prompts": "mine.txt"}), "mine")
    monkeypatch.chdir(tmp_path / "app")
    desk = Desk(workspace, Access(), insights)
    start = {"run": run, "how": "variation", "changes": {}}
    assert "runs" in answer_of(desk.experiments.experiment_start(start, OPERATOR))
    prompts.rename(tmp_path / "app" / "mine.txt")
    problem = answer_of(desk.experiments.experiment_start(start, OPERATOR))["problem"]
    assert "data.prompts" in problem and str(prompts) in problem
    desk.close()


# --- others' logs ------------------------------------------------------------------------------------------------------------------

LINE = json.dumps({"step": 1, "prompt": "a", "response": "b", "length": 1, "reward": 0.5})


@pytest.fixture
def logs_opened_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log is opened without a process of its own, which tests/logs are about."""
    monkeypatch.setattr(apart, "ask_helper", in_process)


@pytest.mark.usefixtures("logs_opened_here")
def test_a_log_becomes_a_run_that_cannot_be_trained(desk: Desk, workspace: Workspace, tmp_path: Path) -> None:
    data = {"text": f"{LINE}\n", "file_name": "../../theirs.jsonl"}
    opened = answer_of(desk.opening.open_log(data, OPERATOR))
    assert (opened["steps"], opened["rollouts"]) == (1, 1)
    assert workspace.status(opened["run"]).name == "theirs"
    twice = [answer_of(desk.opening.open_log({**data, "nonce": "1-2-3-4"}, OPERATOR)) for _ in range(2)]
    assert twice[0] == twice[1] and len(workspace.runs()) == 2
    file = tmp_path / "log.jsonl"
    file.write_text(f"{LINE}\n")
    assert answer_of(desk.opening.open_log({"path": str(file), "name": "mine"}, OPERATOR))["steps"] == 1
    asked = {"run": opened["run"]}
    assert answer_of(desk.experiments.experiment_form(asked, OPERATOR))["known"] == {}
    assert "no model to train" in RunsPage(workspace, Access()).settings(asked, OPERATOR)["problem"]  # they would be defaults
    start = {**asked, "how": "sweep", "axes": {"engine.seed": [1, 2]}}
    assert "no model to train" in answer_of(desk.experiments.experiment_start(start, OPERATOR))["problem"]


@pytest.mark.usefixtures("logs_opened_here")
def test_a_parquet_log_that_the_browser_sends_is_opened_and_stands_in_the_table_at_once(
    desk: Desk, workspace: Workspace, tmp_path: Path
) -> None:
    page = RunsPage(workspace, Access())
    desk.opening.opened = page.forget
    asyncio.run(page.runs({}, OPERATOR))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([json.loads(LINE)]), tmp_path / "theirs.parquet")
    sent = {"base64": base64.b64encode((tmp_path / "theirs.parquet").read_bytes()).decode(), "file_name": "theirs.parquet"}
    opened = answer_of(desk.opening.open_log(sent, OPERATOR))
    (row,) = asyncio.run(page.runs({}, OPERATOR))["rows"]
    assert (row["id"], row["name"], row["state"], row["told"]) == (opened["run"], "theirs", "finished", "read from theirs.parquet")
    assert row["elapsed"] is None and (row["score_last"], opened["rollouts"]) == (0.5, 1)
    assert "theirs.parquet has 0 bytes" in answer_of(desk.opening.open_log({**sent, "base64": ""}, OPERATOR))["problem"]
    text = {**sent, "base64": base64.b64encode(LINE.encode()).decode()}
    assert "theirs.parquet: it is not a Parquet file" in answer_of(desk.opening.open_log(text, OPERATOR))["problem"]
    assert "damaged" in answer_of(desk.opening.open_log({**sent, "base64": "?"}, OPERATOR))["problem"]


def test_a_log_is_followed_in_a_process_of_its_own_until_its_run_is_stopped(desk: Desk, workspace: Workspace, tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text("".join(json.dumps({**json.loads(LINE), "step": step}) + "\n" for step in (1, 2)))
    data = {"path": str(file), "name": "grows", "follow": True}
    opened = followed(desk, data)
    status = workspace.status(opened["run"])
    assert opened["following"] and (status.state, status.name, status.origin.controls) == ("running", "grows", ["stop"])
    send_command(run_dir(workspace.root, opened["run"]), "stop")
    wait_until(lambda: workspace.status(opened["run"]).state == "finished")
    assert workspace.status(opened["run"]).step == 2
    refused = answer_of(desk.opening.open_log({**data, "text": LINE, "path": ""}, OPERATOR))
    assert "does not grow" in refused["problem"]
    file.write_text("{}\n")
    assert "are of no form that is read" in followed(desk, data)["problem"]


def followed(desk: Desk, data: dict[str, Any]) -> dict[str, Any]:
    """What becomes of a log that is followed, as the page hears it."""
    answer: dict[str, Any] = answer_of(desk.opening.open_log(data, OPERATOR))
    while "waiting" in answer:
        answer = answer_of(desk.opening.open_log({"go_on": answer["waiting"]}, OPERATOR))
    return answer


def test_a_log_that_is_followed_without_a_run_holds_no_place_and_ends_with_the_app(
    desk: Desk, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "MOST", 1)
    monkeypatch.setattr(following, "LOOKS", 1)
    monkeypatch.setattr(following, "LOOK_SECONDS", 0.0)
    started: list[subprocess.Popen[bytes]] = []
    limits: list[str] = []

    def begin(command: list[str], *, env: dict[str, str], **_: Any) -> subprocess.Popen[bytes]:
        limits.append(env[MEMORY_VARIABLE])
        started.append(sleeper())
        return started[-1]

    monkeypatch.setattr(following.subprocess, "Popen", begin)
    data = {"path": str(tmp_path), "follow": True}

    def alive() -> list[bool]:
        return [process.poll() is None for process in started]

    assert "No response has come yet" in answer_of(desk.opening.open_log(data, OPERATOR))["notes"][0]
    waits = answer_of(desk.opening.open_log({**data, "path": str(tmp_path / "later")}, OPERATOR))
    assert alive() == [False, True]
    assert answer_of(desk.opening.open_log({"go_on": waits["waiting"]}, OPERATOR)) == waits and alive() == [False, True]
    assert waits["notes"][0].startswith("Nothing is there yet; waiting.")
    monkeypatch.setattr(following, "UNASKED_SECONDS", 0.0)
    answer_of(desk.opening.open_log({"go_on": waits["waiting"]}, OPERATOR))  # the page is closed
    wait_until(lambda: alive() == [False, False])
    assert "no longer followed" in answer_of(desk.opening.open_log({"go_on": waits["waiting"]}, OPERATOR))["problem"]
    monkeypatch.setattr(following, "UNASKED_SECONDS", 60.0)
    gone_back = answer_of(desk.opening.open_log(data, OPERATOR))["waiting"]
    answer_of(desk.opening.open_log({"leave": gone_back}, OPERATOR))
    assert alive() == [False] * 3
    follows = following.Following(workspace)
    with pytest.raises(StoreError, match="closing"):
        follows.start(tmp_path, "", "", "", closing)
    answer_of(desk.opening.open_log(data, OPERATOR))
    assert alive() == [False] * 4 + [True]
    desk.close()
    assert alive() == [False] * 5 and limits == [str(MEMORY_BYTES)] * 5  # as a log that is opened


def sleeper(begin: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen) -> subprocess.Popen[bytes]:
    return begin([sys.executable, "-c", "import time; time.sleep(60)"])


def closing() -> None:
    raise StoreError("closing", "state")


WRONG_LOGS: list[tuple[Any, str]] = [
    ({"text": f"{LINE}\n{{}}\n"}, "line 2"),
    ({"text": '{"step": "x", "prompt": "a", "response": "b"}'}, "line 1, step"),
    ({"text": ""}, "has 0 bytes"),
    ({"path": "/nowhere/at/all.jsonl"}, "cannot be read"),
    ({"path": "/dev/null"}, "not a file"),
    ({"path": "~nobody-of-this-name/x"}, "nobody's home folder"),
    ({"text": LINE, "name": "x" * 121}, "at most 120"),
    (None, "Choose a file"),
]


@pytest.mark.usefixtures("logs_opened_here")
def test_what_is_wrong_with_a_log_is_said_with_its_line(desk: Desk, workspace: Workspace) -> None:
    for data, message in WRONG_LOGS:
        assert message in answer_of(desk.opening.open_log(data, OPERATOR))["problem"], data
        assert workspace.runs() == [], data
        assert "operator" in answer_of(desk.opening.open_log(data, VIEWER))["problem"], data
