"""A checkpoint that another run is made from stays, as long as that run is there."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pytest import MonkeyPatch

from rlhf_studio.config import EvaluationRunConfig, RunConfig, StageConfig
from rlhf_studio.runs import checkpoints
from rlhf_studio.runs.checkpoints import newest_valid, only_named
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.lab.fork import fork_run, forked_settings
from rlhf_studio.runs.lineage import keep_sources
from rlhf_studio.runs.manifest import is_used, mark_used, users_of
from rlhf_studio.runs.records import Origin
from rlhf_studio.runs.writer import RunWriter
from tests.runs.store_helpers import new_run, step_record
from tests.runs.test_checkpoints import checkpoint, folder_of, names, save


@pytest.fixture
def first(tmp_path: Path) -> Path:
    """A run with checkpoints of steps 1, 2, 3 and 4."""
    run = new_run(tmp_path / "first")
    with RunWriter(run) as writer:
        for step in (1, 2, 3, 4):
            writer.commit_step(step_record(step))
    for step in (1, 2, 3, 4):
        checkpoint(run, step)
    return run


def prune(run: Path) -> list[str]:
    """Keep the newest alone. Returns what is there then."""
    checkpoints.prune(folder_of(run, 4), 1)
    return names(run)


def settings(**sections: Any) -> RunConfig:
    return RunConfig.model_validate(sections)


NAMING: dict[str, Callable[[Path], StageConfig]] = {
    "its policy": lambda run: settings(model={"policy": f"{run}@2"}),
    "its reference, by the folder": lambda run: settings(model={"reference": str(folder_of(run, 2) / "policy")}),
    "a reward model": lambda run: settings(reward={"components": [{"kind": "reward_model", "model": f"{run}@2"}]}),
    "one of an ensemble": lambda run: settings(reward={"components": [{"kind": "ensemble", "models": f"gpt2, {run}@2"}]}),
    "a judge": lambda run: EvaluationRunConfig.model_validate({"evaluation": {"judge": f"{run}@2"}}),
    "a line of an evaluation": lambda run: EvaluationRunConfig.model_validate({"evaluation": {"policies": f"gpt2\n{run}@2"}}),
    "a relative name": lambda run: settings(model={"policy": f"{run.name}@2"}),
}


def test_what_another_run_names_is_not_removed(first: Path, tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    """From the moment that the other run is made, though it waits in a queue; and only what it names."""
    for number, (how, config) in enumerate(NAMING.items()):
        run = tmp_path / str(number) / "first"
        shutil.copytree(first, run)
        monkeypatch.chdir(run.parent)
        create_run(run.parent / "second", config(run), name="second")
        monkeypatch.chdir("/")
        assert prune(run) == ["step-000002", "step-000004"], how
        assert newest_valid(run) == (folder_of(run, 4), []) and checkpoints.require_whole(folder_of(run, 2)) is None, how
        with only_named(folder_of(run, 2)) as view:  # the note is no stray file, for which a view of links would be made
            assert view == folder_of(run, 2), how


def test_all_of_a_run_is_all_that_it_has_kept(first: Path, tmp_path: Path) -> None:
    config = EvaluationRunConfig.model_validate({"evaluation": {"policies": f"{first}@all"}})
    create_run(tmp_path / "second", config, name="second")
    assert prune(first) == [f"step-{step:06d}" for step in (1, 2, 3, 4)]


def test_it_goes_when_its_last_user_has_gone(first: Path, tmp_path: Path) -> None:
    for name in ("second", "third"):
        create_run(tmp_path / name, settings(model={"policy": f"{first}@2"}), name=name)
    shutil.rmtree(tmp_path / "second")
    assert prune(first) == ["step-000002", "step-000004"]
    shutil.rmtree(tmp_path / "third")
    assert prune(first) == ["step-000004"]


def test_a_workspace_that_was_moved_keeps_it(first: Path, tmp_path: Path) -> None:
    create_run(tmp_path / "second", settings(model={"policy": f"{first}@2"}), name="second")
    (tmp_path / "moved").mkdir()
    for name in ("first", "second"):
        (tmp_path / name).rename(tmp_path / "moved" / name)
    assert prune(tmp_path / "moved" / "first") == ["step-000002", "step-000004"]


def test_a_fork_keeps_what_its_parent_was_made_from(first: Path, tmp_path: Path) -> None:
    """The fork has its own copy of the parent's checkpoint; the policy that both began with lies in a third run."""
    create_run(tmp_path / "parent", settings(model={"policy": f"{first}@2"}), name="parent")
    with RunWriter(tmp_path / "parent") as writer:
        writer.commit_step(step_record(1))
    checkpoint(tmp_path / "parent", 1)
    fork_run(tmp_path / "parent", 1, tmp_path / "fork", forked_settings(tmp_path / "parent", 1, {}))
    shutil.rmtree(tmp_path / "parent")
    assert prune(first) == ["step-000002", "step-000004"]


def test_a_run_in_its_own_settings_keeps_nothing_of_itself(first: Path) -> None:
    assert keep_sources(first, settings(model={"policy": f"{first}@2"}), Path("/")) == []
    assert not is_used(folder_of(first, 2))


def test_others_logs_keep_nothing(first: Path, tmp_path: Path) -> None:
    origin = Origin(imported="their.jsonl")
    create_run(tmp_path / "second", settings(model={"policy": f"{first}@2"}), name="second", origin=origin)
    assert prune(first) == ["step-000004"]


def test_a_checkpoint_that_cannot_be_marked_is_told(first: Path, tmp_path: Path) -> None:
    """A file lies where the notes would be: as root, nothing is read-only."""
    (folder_of(first, 2) / "used-by").write_text("somebody's")
    config = settings(model={"policy": f"{first}@2"})
    create_run(tmp_path / "second", config, name="second")
    (sentence,) = keep_sources(tmp_path / "second", config, tmp_path)
    assert sentence == "The run first may remove its checkpoint step-000002, which this run is made from: File exists."
    assert prune(first) == ["step-000004"]


def test_a_step_that_is_trained_again_keeps_the_notes_of_who_uses_it(first: Path, tmp_path: Path) -> None:
    """A resume from an earlier checkpoint, or --from-start, writes step 2 anew; the note of a run that is gone is left behind."""
    for name in ("second", "third"):
        create_run(tmp_path / name, settings(model={"policy": f"{first}@2"}), name=name)
    assert users_of(folder_of(first, 2)) == ["second", "third"]
    shutil.rmtree(tmp_path / "third")
    save(first, 2, 1, "other weights")
    assert checkpoints.require_whole(folder_of(first, 2)) is None and users_of(folder_of(first, 2)) == ["second"]
    assert len(list((folder_of(first, 2) / "used-by").iterdir())) == 1
    assert prune(first) == ["step-000002", "step-000004"]


def test_a_note_that_is_written_while_the_checkpoint_is_replaced_is_kept(first: Path, tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    create_run(tmp_path / "second", settings(), name="second")
    rename = os.rename

    def noting(source: Path, target: Path) -> None:
        if Path(source) == folder_of(first, 2):
            mark_used(folder_of(first, 2), tmp_path / "second")
        rename(source, target)

    monkeypatch.setattr(os, "rename", noting)
    save(first, 2, 1, "other weights")
    assert users_of(folder_of(first, 2)) == ["second"]


def test_a_run_that_cannot_be_looked_at_keeps_its_checkpoint(first: Path, tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    """A disk that does not answer for a moment is no run that is gone."""
    create_run(tmp_path / "second", settings(model={"policy": f"{first}@2"}), name="second")
    stat = os.stat

    def failing(path: Any, **options: Any) -> os.stat_result:
        if str(path) == str(tmp_path / "second" / "run.db"):
            raise OSError(errno.EIO, "Input/output error", str(path))
        return stat(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", failing)
        assert is_used(folder_of(first, 2))
    (note,) = (folder_of(first, 2) / "used-by").iterdir()
    note.unlink()
    note.symlink_to(note.name)  # a note that cannot be read
    assert is_used(folder_of(first, 2)) and users_of(folder_of(first, 2)) == []
    save(first, 2, 1, "other weights")
    assert prune(first) == ["step-000002", "step-000004"]


def test_a_note_that_is_none_keeps_nothing(first: Path, tmp_path: Path) -> None:
    mark_used(folder_of(first, 2), first)
    (note,) = (folder_of(first, 2) / "used-by").iterdir()
    assert is_used(folder_of(first, 2))
    for content in ("", "[]", "{}", '{"run": 3, "from_here": null}', "\0"):
        note.write_text(content)
        assert not is_used(folder_of(first, 2))
    note.unlink()
    os.mkfifo(note)  # which nothing would ever be read from
    assert not is_used(folder_of(first, 2))
