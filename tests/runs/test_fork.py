"""Forks and variations as the store makes them, from runs written by hand: what the new folder holds, and that the other is not touched."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sqlite3
import threading
from pathlib import Path

import numpy as np
import pytest

from rlhf_studio.config.io import ConfigError, with_values
from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.runs import checkpoints, liveness, queue, studio
from rlhf_studio.runs import workspace as workspace_module
from rlhf_studio.runs.commands import send_command
from rlhf_studio.runs.create import create_run, remove_unstarted
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.lab import resuming
from rlhf_studio.runs.lab.fault import note_of, noted_fault
from rlhf_studio.runs.lab.fork import fork_run, settings_at
from rlhf_studio.runs.lab.names import fork_name, new_name, repair_name
from rlhf_studio.runs.liveness import EngineLock
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import EventRecord, Origin, Probe, ProbeScore, SettingChange, StepEpisodes
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.runs.writer import RunWriter
from tests.runs.store_helpers import config, same, step_record
from tests.runs.test_checkpoints import folder_of, write

SETTINGS = {"steps": 8, "kl_coef": 0.1}


def episodes(step: int) -> StepEpisodes:
    numbers = np.full(3, step, np.float32)
    return StepEpisodes(
        np.array([1, 2], np.int32),
        np.array([5, 6, 7], np.int32),
        {"logprobs": numbers},
        numbers[:2],
        None,
        {},
        np.array([True, False]),
        {5: "a"},
    )


def score(step: int) -> ProbeScore:
    ids, table = np.zeros((1, 5), np.int32), np.full((1, 5), -step, np.float32)
    return ProbeScore(0, np.full(1, -step, np.float32), ids, table, table, table)


def record(step: int):
    changes = [SettingChange(step, "ppo.kl_coef", 0.1, 0.2)] if step in (3, 7) else []
    return dataclasses.replace(step_record(step), episodes=episodes(step), probes=[score(step)], changes=changes)


def save(writer: RunWriter, step: int, **live: float) -> None:
    """A checkpoint as the engine writes it, with its settings and its event."""
    run = writer.run_dir
    folder = write(folder_of(run, step), step, RunReader(run).recorded_at(step))
    changed = {f"ppo.{name}": value for name, value in live.items()}
    state = json.dumps({"step": step, "settings": RunReader(run).config().model_dump(mode="json"), "live": changed})
    (folder / "state.json").write_text(state)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["state.json"] = {"bytes": len(state), "sha256": checkpoints.sha256(folder / "state.json")}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    writer.event(EventRecord("info", "checkpoint", f"Checkpoint of step {step} written.", {"step": step}))


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "workspace")


@pytest.fixture
def parent(workspace: Workspace) -> str:
    """A finished run of eight steps, checkpoints after the fourth and the last."""
    run_id = workspace.submit(config(**SETTINGS), "parent")
    workspace.cancel(run_id)
    with RunWriter(workspace.run_dir(run_id)) as writer:
        writer.set_state("running", device="cpu")
        writer.probes([Probe(0, "prompt", ["a"])], [score(0)])
        for step in range(1, 9):
            writer.commit_step(record(step))
            if step in (4, 8):
                save(writer, step)
        writer.event(EventRecord("info", "health", "late news", {}), step=4)
        writer.set_state("finished")
    return run_id


def rows(run_dir: Path) -> dict[str, list[tuple]]:
    """Every table, read without our own reader."""
    with sqlite3.connect(run_dir / "run.db") as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")]
        rows_by_table = {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in names}
    connection.close()
    return rows_by_table


def files(folder: Path) -> dict[str, bytes]:
    """All but the locks and the log, which a reader may make, and SQLite's side files."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".lock" and not path.name.endswith(("-wal", "-shm"))
    }


def test_a_fork_holds_the_history_up_to_its_step_and_nothing_later(workspace: Workspace, parent: str) -> None:
    source = workspace.run_dir(parent)
    before, records = files(source), RunReader(source)
    fork = workspace.fork(parent, 4, {"ppo.kl_coef": 0.5})
    assert files(source) == before
    folder = workspace.run_dir(fork)
    ours, theirs = rows(folder), rows(source)
    for table in ("steps", "metrics", "rollouts", "token_texts", "token_arrays", "watched", "step_arrays", "changes"):
        first_rows = [row for row in theirs[table] if row[0] <= 4]
        assert ours[table] == first_rows and len(first_rows) < len(theirs[table]), table
    assert ours["probes"] == theirs["probes"] and ours["pieces"] == theirs["pieces"] and ours["commands"] == ours["scratch"] == []
    reader = RunReader(folder)
    assert reader.metrics_since(0) == records.metrics_since(0)[:4] and same(reader.episodes(1, 9), records.episodes(1, 4))
    assert reader.changes() == [SettingChange(3, "ppo.kl_coef", 0.1, 0.2)] and [step for step, _ in reader.probes()[1]] == [0, 1, 2, 3, 4]
    # The diary ends where the checkpoint was written, and says where the run comes from.
    texts = [event.text for event in reader.events_since(0)]
    assert texts[-2:] == ["Checkpoint of step 4 written.", f"Forked from the run {parent} after step 4."] and "late news" not in texts
    assert reader.origin() == Origin(parent, 4, {"ppo.kl_coef": 0.5}) == workspace.status(fork).origin
    assert reader.origin().made == "forked from"
    assert (reader.config().ppo.kl_coef, reader.config().ppo.steps) == (0.5, 8)
    status = workspace.status(fork)
    assert (status.state, status.step, status.last_recorded_step, status.total_steps) == ("queued", 4, 4, 8)
    assert (status.name, status.device, status.started_at, status.epoch, status.pid) == (
        "parent, from step 4, KL coefficient 0.5",
        "",
        None,
        0,
        None,
    )
    assert [point.step for point in reader.checkpoints()] == [4] and checkpoints.where_to_resume(folder).step == 4
    assert reader.working_folder() == records.working_folder()
    claim = queue.claim_next(workspace)
    assert claim is not None and (claim.run_id, claim.mode) == (fork, "resume")
    claim.ticket.close()


def test_a_fork_of_a_run_that_is_broken_on_purpose_is_broken_too(workspace: Workspace, parent: str) -> None:
    assert noted_fault(workspace.run_dir(workspace.fork(parent, 4, {}))) is None
    for name, data in note_of("critic").items():
        (workspace.run_dir(parent) / name).write_bytes(data)
    for step in (4, None):
        assert noted_fault(workspace.run_dir(workspace.fork(parent, step, {"ppo.kl_coef": 0.5}))) == "critic"
    (workspace.run_dir(parent) / "fault.json").write_text("{")
    with pytest.raises(StoreError, match="says which fault this run has, and cannot be read"):
        workspace.fork(parent, 4, {"ppo.kl_coef": 0.5})


def test_a_fork_may_be_cancelled_resumed_and_deleted(workspace: Workspace, parent: str) -> None:
    fork = workspace.fork(parent, 4, {}, "mine")
    assert workspace.status(fork).name == "mine" and not (workspace.run_dir(fork) / "config-1.yaml").exists()
    workspace.cancel(fork)
    assert workspace.status(fork).state == "stopped"
    workspace.resume(fork)
    assert studio.read(workspace.root).entries[fork].mode == "resume"  # not from the beginning: its steps are on record
    workspace.delete(parent)
    assert RunReader(workspace.run_dir(fork)).metrics_since(0)[3][0] == 4


def test_the_parent_may_be_running_meanwhile(workspace: Workspace, parent: str) -> None:
    source = workspace.run_dir(parent)
    with EngineLock(source), RunWriter(source) as writer:
        writer.set_state("running")
        writer.go_back(4)
        writer.commit_step(record(5))
        send_command(source, "checkpoint")
        ended = threading.Event()

        def train() -> None:
            step = 6
            while not ended.is_set():
                writer.commit_step(record(step))
                step += 1

        thread = threading.Thread(target=train)
        thread.start()
        try:
            forks = [workspace.fork(parent, 4, {"ppo.steps": 1000}) for _ in range(3)]
        finally:
            ended.set()
            thread.join()
        assert workspace.status(parent).state == "running"
    for fork in forks:
        rows_by_table = rows(workspace.run_dir(fork))
        assert {row[0] for row in rows_by_table["metrics"]} == {1, 2, 3, 4} and rows_by_table["commands"] == []
        assert workspace.status(fork).state == "queued"


def test_a_checkpoint_that_cannot_be_used(workspace: Workspace, parent: str) -> None:
    source = workspace.run_dir(parent)
    runs_before = sorted(path.name for path in (workspace.root / "runs").iterdir())
    with pytest.raises(StoreError, match=r"has no checkpoint of step 5; there are: 4, 8\.") as caught:
        workspace.fork(parent, 5, {})
    assert caught.value.reason == "absent"
    weights = folder_of(source, 4) / "policy" / "model.safetensors"
    good = weights.read_bytes()
    weights.write_bytes(good[:-1] + b"x")
    with pytest.raises(StoreError, match="cannot be forked from step 4: step-000004: policy/model.safetensors is damaged"):
        workspace.fork(parent, 4, {})
    weights.unlink()  # as when the run prunes it at this moment
    with pytest.raises(StoreError, match=r"step-000004 was removed or is damaged .*keep_checkpoints"):
        workspace.fork(parent, 4, {})
    weights.write_bytes(good)
    with RunWriter(source) as writer:  # step 4 is trained again, so the checkpoint is of another history
        writer.go_back(3)
        writer.commit_step(record(4))
    with pytest.raises(StoreError, match="has no checkpoint of step 4; it has none yet"):
        workspace.fork(parent, 4, {})
    assert sorted(path.name for path in (workspace.root / "runs").iterdir()) == runs_before
    assert studio.read(workspace.root).waiting() == []


def test_what_a_checkpoint_fixes_is_refused_by_name_and_a_variation_may_change_it(workspace: Workspace, parent: str) -> None:
    for changes, words in (
        ({"engine.seed": 4}, "engine.seed: cannot change in a fork from a checkpoint: the order of the prompts comes from it"),
        ({"lora.enabled": True}, "lora.enabled: cannot change in a fork"),
        ({"ppo.steps": 4}, "ppo.steps: 4 steps are done at this checkpoint; use more than that, not 4"),
        ({"ppo.kl_coefficient": 4}, "ppo.kl_coefficient: there is no such setting"),
        ({"ppo.kl_coef": "much"}, "ppo.kl_coef: "),
        ({"ppo.kl_coef.deeper": 1}, "ppo.kl_coef.deeper: there is no such setting"),
    ):
        with pytest.raises(ConfigError, match=words):
            workspace.fork(parent, 4, changes)
    varied = workspace.fork(parent, None, {"engine.seed": 4, "lora.enabled": True, "data.shuffle": False})
    reader = RunReader(workspace.run_dir(varied))
    assert (reader.config().engine.seed, reader.config().lora.enabled, reader.status().step) == (4, True, 0)
    assert reader.origin() == Origin(parent, None, {"lora.enabled": True, "data.shuffle": False, "engine.seed": 4})
    assert reader.origin().made == "varied from" and Origin().made == ""
    assert reader.events_since(0) == [] and reader.checkpoints() == [] and studio.read(workspace.root).entries[varied].mode == "train"
    with pytest.raises(ValueError, match="at most 120 characters"):
        workspace.fork(parent, 4, {}, "x" * 121)


def test_a_fork_has_the_settings_of_its_checkpoint_not_those_of_later(workspace: Workspace, parent: str) -> None:
    source = workspace.run_dir(parent)
    workspace.go_on(parent, 12)  # a finished run with other settings from step 9 on
    assert RunReader(source).config().ppo.steps == 12 and settings_at(source, 4) == config(**SETTINGS)
    fork = workspace.fork(parent, 4, {})
    assert RunReader(workspace.run_dir(fork)).config().ppo.steps == 8
    (folder_of(source, 4) / "state.json").unlink()  # as in checkpoints of the first versions, which did not name them
    assert settings_at(source, 4).ppo.steps == 12


def test_settings_that_were_changed_while_the_run_went_on_are_those_of_the_fork(workspace: Workspace, parent: str) -> None:
    """So that a fork may also go back to what such a setting was at first: the engine compares config.yaml with the checkpoint's."""
    source = workspace.run_dir(parent)
    with RunWriter(source) as writer:
        writer.commit_step(record(9))
        save(writer, 9, kl_coef=0.7)
        writer.set_state("finished")
    assert settings_at(source, 9).ppo.kl_coef == 0.7 and RunReader(source).config().ppo.kl_coef == 0.1
    before = files(source)
    for value in (0.7, 0.1):
        folder = workspace.run_dir(workspace.fork(parent, 9, {"ppo.steps": 12, "ppo.kl_coef": value}))
        state = json.loads((folder_of(folder, 9) / "state.json").read_text())
        assert (state["settings"]["ppo"]["kl_coef"], state["live"], state["step"]) == (0.7, {}, 9)
        assert RunReader(folder).config().ppo.kl_coef == value and checkpoints.where_to_resume(folder).step == 9
        assert ("ppo.kl_coef" in RunReader(folder).origin().changes) == (value == 0.1)
    assert files(source) == before


def test_a_variation_keeps_the_working_folder_of_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    create_run(tmp_path / "parent", config(), name="parent")
    monkeypatch.chdir(tmp_path)
    fork_run(tmp_path / "parent", None, tmp_path / "varied", config(steps=3))
    assert RunReader(tmp_path / "varied").working_folder() == tmp_path / "there"


def test_a_parent_of_an_earlier_version(workspace: Workspace, parent: str) -> None:
    source = workspace.run_dir(parent)
    with sqlite3.connect(source / "run.db") as connection:  # what the second version did not have
        for table in ("step_arrays", "pieces", "probes", "changes", "scratch", "answers"):
            connection.execute(f"DROP TABLE {table}")
        for column in ("kl", "stopped", "pieces"):
            connection.execute(f"ALTER TABLE watched DROP COLUMN {column}")
        for column in ("origin", "stage"):
            connection.execute(f"ALTER TABLE run DROP COLUMN {column}")
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    before = (source / "run.db").read_bytes()
    assert workspace.status(parent).origin == Origin()
    fork = workspace.fork(parent, 4, {})
    assert RunReader(workspace.run_dir(fork)).metrics_since(0) == RunReader(source).metrics_since(0)[:4]
    assert workspace.status(fork).origin.parent == parent and (source / "run.db").read_bytes() == before


def test_imported_runs_are_only_looked_at(workspace: Workspace) -> None:
    folder = workspace.root / "runs" / "imported"
    create_run(folder, config(), name="from a file", state="finished", origin=Origin(imported="rollouts.jsonl"))
    words = r"was read from rollouts\.jsonl: there is no model to train"
    for use in (
        lambda: workspace.fork("imported", None, {}),
        lambda: workspace.fork("imported", 4, {}),
        lambda: workspace.go_on("imported", 900),
        lambda: fork_run(folder, None, folder.parent / "new", config()),
    ):
        with pytest.raises(StoreError, match=words):
            use()
    with RunWriter(folder) as writer:
        writer.set_state("stopped")
    for from_start in (False, True):
        with pytest.raises(StoreError, match=words):
            workspace.resume("imported", from_start=from_start)
    assert [run.run_id for run in workspace.runs()] == ["imported"]


def test_a_fork_that_trained_nothing_can_be_taken_back(workspace: Workspace, parent: str) -> None:
    forks = [workspace.run_dir(workspace.fork(parent, 4, {})) for _ in range(2)]
    for number, folder in enumerate(forks):
        workspace.cancel(folder.name)
        with RunWriter(folder) as writer:
            if number:
                writer.commit_step(record(5))
            writer.set_state("failed", cause="bad")
    assert remove_unstarted(forks[0]) and not forks[0].exists()
    assert not remove_unstarted(forks[1]) and forks[1].exists()


def test_a_run_without_a_name_gets_one_of_its_own(tmp_path: Path) -> None:
    workspace, world = Workspace(tmp_path), load_recipe("world").config
    other = with_values(world, {"ppo.learning_rate": 0.9})
    names = [workspace.status(workspace.submit(config)).name for config in (world, world, other, other)]
    assert names == ["Tiny world", "Tiny world 2", "Tiny world, Learning rate 0.9", "Tiny world 2, Learning rate 0.9"]
    own = with_values(load_recipe("own").config, {"name": "", "model.policy": "lab/model", "ppo.steps": 3})
    assert new_name(own, ()) == "model"


def test_an_evaluation_is_called_by_those_it_compares(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    run = workspace.submit(load_recipe("world").config)
    folder = workspace.run_dir(run)
    evaluation = load_recipe("world-evaluation").config
    lines = (f"{folder}@all", f"{folder}@all", f"{folder}@start\n{run}@20\nlab/model@main", str(tmp_path / "answers.jsonl"))
    names = [workspace.status(workspace.submit(with_values(evaluation, {"evaluation.policies": some}))).name for some in lines]
    first = "Evaluation of Tiny world"
    assert names == [first, f"{first} 2", f"{first} (start, 20), model@main", "Evaluation of answers.jsonl"]
    from_run = with_values(load_recipe("world").config, {"model.policy": f"{folder}/checkpoints/step-000020/policy"})
    assert new_name(from_run, (), {run: "Tiny world"}).endswith("Tiny world") and "/" not in new_name(from_run, ())


def test_names_say_what_is_different() -> None:
    named = fork_name("world", 20, {"ppo.kl_coef": 0.0, "lora.enabled": True})
    assert named == "world, from step 20, KL coefficient 0.0, Train with LoRA on"
    assert fork_name("world", None, {}) == fork_name("world", None, {"name": ""}) == "world, again"
    four = {"name": "", "ppo.steps": 10, "ppo.learning_rate": 0.9, "engine.seed": 1}
    assert fork_name("my ppo", None, four) == "my ppo, Steps 10, Learning rate 0.9, Seed 1"
    assert repair_name("rate 0.9", ()) == "rate 0.9, repaired"
    assert repair_name("rate 0.9, repaired", {"rate 0.9, repaired"}) == "rate 0.9, repaired 2"
    assert len(repair_name("w" * 120, ())) <= 120
    assert len(fork_name("w" * 120, 20, {"model.policy": "p" * 300})) == 120
    assert fork_name("", None, {"data.eval": ""}).endswith("Held-out prompts nothing")


# --- a finished run with more steps ---------------------------------------------------------------------------------------------


def test_going_on_with_more_steps(workspace: Workspace, parent: str) -> None:
    folder = workspace.run_dir(parent)
    before = (folder / "config.yaml").read_text()
    for steps, words in ((8, "8 steps are done; use more than that, not 8"), (-1, "use more"), (10**9, "ppo.steps")):
        with pytest.raises(ConfigError, match=words):
            workspace.go_on(parent, steps)
    assert (folder / "config.yaml").read_text() == before
    assert workspace.go_on(parent, 20) == 1
    status = workspace.status(parent)
    assert (status.state, status.queue_position, RunReader(folder).config().ppo.steps) == ("queued", 1, 20)
    with pytest.raises(StoreError, match="is queued; only a finished run"):
        workspace.go_on(parent, 30)
    workspace.cancel(parent)  # as if nothing had been asked
    assert workspace.status(parent).state == "finished" and (folder / "config.yaml").read_text() == before
    assert not (folder / "config-1.yaml").exists()
    workspace.go_on(parent, 20)
    claim = queue.claim_next(workspace)
    assert claim is not None and (claim.run_id, claim.mode) == (parent, "resume")
    claim.ticket.close()


def test_going_on_needs_a_checkpoint_and_a_run_that_nobody_starts(workspace: Workspace, parent: str) -> None:
    folder = workspace.run_dir(parent)
    before = (folder / "config.yaml").read_text()
    with liveness.EngineLock(folder), pytest.raises(StoreError, match="only a finished run|is running"):
        with RunWriter(folder) as writer:
            writer.set_state("running")
        workspace.go_on(parent, 20)
    with RunWriter(folder) as writer:
        writer.set_state("finished")
    ticket = liveness.StartTicket(folder)
    ticket.take()
    with pytest.raises(StoreError, match="being started"):
        workspace.go_on(parent, 20)
    ticket.close()
    shutil.rmtree(folder / "checkpoints")
    with pytest.raises(StoreError, match="it has no checkpoint"):
        workspace.go_on(parent, 20)
    assert (folder / "config.yaml").read_text() == before


class Killed(BaseException):
    """Nothing that the program does about errors happens after it."""


@pytest.mark.parametrize("where", ["before the settings change", "after the settings changed back"])
def test_an_app_that_is_killed_leaves_a_finished_run_with_the_settings_that_it_has(
    workspace: Workspace, parent: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = workspace.run_dir(parent)
    before = (folder / "config.yaml").read_text()

    def killed(*arguments: object) -> None:
        raise Killed

    if where == "before the settings change":
        monkeypatch.setattr(workspace_module, "replace_config", killed)
        with pytest.raises(Killed):
            workspace.go_on(parent, 20)
    else:
        workspace.go_on(parent, 20)
        undo = resuming.undo_replace
        monkeypatch.setattr(resuming, "undo_replace", lambda run: (undo(run), killed()))
        with pytest.raises(Killed):
            workspace.cancel(parent)
    monkeypatch.undo()
    assert (folder / "config.yaml").read_text() == before and workspace.status(parent).state == "queued"
    (folder / "config-1.yaml").write_text("of an earlier change")
    shutil.copytree(workspace.root, workspace.root.with_name("again"))
    workspace.cancel(parent)  # nothing to take back
    again = Workspace(workspace.root.with_name("again"))
    assert queue.claim_next(again) is None  # nothing to train
    for current in (workspace, again):
        assert current.status(parent).state == "finished" and current.queue_position(parent) is None
        assert (current.run_dir(parent) / "config.yaml").read_text() == before
        assert not liveness.is_starting(current.run_dir(parent))


def test_more_steps_that_cannot_be_written_down_leave_the_queue(workspace: Workspace, parent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise StoreError("The disk is full", "full")

    monkeypatch.setattr(workspace_module, "replace_config", full)
    with pytest.raises(StoreError, match="disk is full"):
        workspace.go_on(parent, 20)
    assert workspace.status(parent).state == "finished" and workspace.queue_position(parent) is None


def test_a_failed_run_goes_on_from_its_checkpoint_with_other_settings(workspace: Workspace, parent: str) -> None:
    folder = workspace.run_dir(parent)
    before = RunReader(folder).config()
    mended = with_values(before, {"ppo.learning_rate": 1e-6})
    with pytest.raises(StoreError, match="is finished; only a stopped, failed or interrupted run"):
        workspace.resume_with(parent, mended)
    with RunWriter(folder) as writer:
        writer.set_state("failed", cause="the loss is not finite")
    # the coefficient was changed at step 7, while the run went on
    refused = (("ppo.steps", 7, "8 steps that are done"), ("engine.seed", 5, "cannot change when"), ("ppo.kl_coef", 0.3, "the Live page"))
    for setting, value, words in refused:
        with pytest.raises(ConfigError, match=words):
            workspace.resume_with(parent, with_values(before, {setting: value}))
    assert RunReader(folder).config() == before and workspace.status(parent).state == "failed"
    assert workspace.resume_with(parent, mended) == 1
    assert RunReader(folder).config().ppo.learning_rate == 1e-6
    workspace.cancel(parent)
    assert workspace.status(parent).state == "failed" and RunReader(folder).config() == before
    workspace.resume_with(parent, mended)
    claim = queue.claim_next(workspace)
    assert claim is not None and (claim.run_id, claim.mode) == (parent, "resume")
    claim.ticket.close()
    assert RunReader(folder).config() == mended


def test_a_variation_whose_settings_were_chosen_elsewhere(workspace: Workspace, parent: str) -> None:
    varied = with_values(workspace.reader(parent).config(), {"ppo.kl_coef": 0.2})
    new = workspace.submit(varied, "", (1, 2), parent)
    status = workspace.status(new)
    assert (status.name, status.queue_position) == ("parent, KL coefficient 0.2", 1)
    assert status.origin == Origin(parent, None, {"ppo.kl_coef": 0.2}) and workspace.reader(new).config() == varied
    assert workspace.status(workspace.submit(varied, "mine", None, parent)).name == "mine"
    with pytest.raises(StoreError, match="no run 'gone'"):
        workspace.submit(varied, "", None, "gone")


def test_cancelling_gives_back_only_what_more_steps_changed(workspace: Workspace, parent: str) -> None:
    """A run that waited to be resumed, and that somebody finished from a shell meanwhile, keeps its settings."""
    folder = workspace.run_dir(parent)
    with RunWriter(folder) as writer:
        writer.set_state("stopped")
    workspace.resume(parent)
    with RunWriter(folder) as writer:
        writer.set_state("finished")
    (folder / "config-1.yaml").write_text("of an earlier change")
    before = (folder / "config.yaml").read_text()
    workspace.cancel(parent)
    assert (folder / "config.yaml").read_text() == before and (folder / "config-1.yaml").exists()
    removed = workspace.submit(config())
    shutil.rmtree(workspace.run_dir(removed))  # behind our back
    workspace.cancel(removed)


def test_a_run_that_was_finished_from_a_shell_while_it_waited_is_not_started_again(workspace: Workspace, parent: str) -> None:
    workspace.go_on(parent, 9)
    with RunWriter(workspace.run_dir(parent)) as writer:
        writer.commit_step(record(9))
        writer.set_state("finished")
    assert queue.claim_next(workspace) is None and workspace.status(parent).state == "finished"
