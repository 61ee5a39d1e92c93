"""Recordings: small, unpacked once, found by their id, read like any run, and never changed."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rlhf_studio.analysis.doctor import diagnose
from rlhf_studio.analysis.records import Diagnosis
from rlhf_studio.analysis.replay import replay_of
from rlhf_studio.config import RunConfig
from rlhf_studio.config.bundled import COLLAPSED_RUN, RECORDINGS
from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.lessons.world_build.recordings import TIMES, build_collapsed_run, collapsed_config
from rlhf_studio.runs import paths
from rlhf_studio.runs.errors import OnlyRead, StoreError
from rlhf_studio.runs.finding.recordings import Recordings
from rlhf_studio.runs.lab.fork import refuse_only_read
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.workspace import Workspace
from tests.runs.store_helpers import new_run

IDS = [recording.run_id for recording in RECORDINGS]
IMPROVES, EXPLOITS, COLLAPSES = IDS
CONFIG = load_recipe("world").config


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Recordings:
    return Recordings(cache_folder=tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def diagnoses(recordings: Recordings) -> dict[str, Diagnosis]:
    return {run: diagnose(RunReader(recordings.folder(run))) for run in IDS}


@pytest.fixture
def workspace(tmp_path: Path, recordings: Recordings) -> Workspace:
    return Workspace(tmp_path, recordings)


def everything(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of change of every file below a folder, and of the folders."""
    return {str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in [folder, *folder.rglob("*")]}


def test_each_has_tokens_to_inspect_in_every_step_and_prompts_that_are_answered_before_and_now(recordings: Recordings) -> None:
    for recording in RECORDINGS:
        reader = RunReader(recordings.folder(recording.run_id))
        steps = reader.rollout_steps()
        assert steps == list(range(1, reader.status().step + 1))
        assert all(reader.rollout(step, sample).tokens is not None for step in (steps[0], steps[-1]) for sample in range(4))
        watched = {(step, row.sample) for step, row in reader.watched(ends=True)}
        assert watched == {(at, row) for at in (0, steps[-1]) for row in range(4)}


def test_the_starting_policy_answers_the_watched_prompts_in_each_alike(recordings: Recordings) -> None:
    """The answers in the first run were made from the adapters on record, the others while the runs were trained."""
    starts = [[row.response for _, row in RunReader(recordings.folder(run)).watched()[:4]] for run in IDS]
    assert starts[0] == starts[1] == starts[2] and len(set(starts[0])) == 4


def test_replays_tell_when_gold_turns_as_the_doctor_does(recordings: Recordings, diagnoses: dict[str, Diagnosis]) -> None:
    replays = {run: replay_of(RunReader(recordings.folder(run))) for run in (IMPROVES, EXPLOITS)}
    for run, payload in replays.items():
        turns = [moment["step"] for moment in payload["moments"] if moment["kind"] == "gold_turns"]
        assert turns == [finding.since for finding in diagnoses[run].findings if finding.check == "judge-falls"]
        assert len(turns) == (run == EXPLOITS) and payload["one_scale"] and payload["tokens"]["quantity"] == "advantages"
        assert len(payload["answers"]) == 4 and all(len(frame["tokens"]) > 1 for frame in payload["answers"][0]["frames"])
    assert [frame["step"] for frame in replays[IMPROVES]["answers"][0]["frames"]] == list(range(37))


def test_each_shows_what_its_name_says(recordings: Recordings, diagnoses: dict[str, Diagnosis]) -> None:
    """By plain means over the recorded steps, and by the doctor."""
    curves = {}
    for recording in RECORDINGS:
        reader = RunReader(recordings.folder(recording.run_id))
        curves[recording.run_id] = reader.columns(["objective/scores", "gold/score", "policy/entropy_avg", "tokens/response_length"])[1]
    early, late = slice(0, 3), slice(-3, None)

    def rose(run: str, metric: str, first: slice = early) -> float:
        return float(np.mean(curves[run][metric][late]) - np.mean(curves[run][metric][first]))

    assert rose(IMPROVES, "objective/scores") > 1 and rose(IMPROVES, "gold/score") > 0.4
    best = int(np.argmax(curves[EXPLOITS]["gold/score"]))
    assert rose(EXPLOITS, "objective/scores") > 1 and rose(EXPLOITS, "gold/score") < -0.3
    assert 2 < best < 10 and rose(EXPLOITS, "gold/score", slice(best, best + 1)) < -0.6
    start = slice(0, 1)  # it breaks in the second step
    assert rose(COLLAPSES, "objective/scores", start) < -0.8 and rose(COLLAPSES, "gold/score", start) < -0.8
    assert np.mean(curves[COLLAPSES]["tokens/response_length"][late]) < 1.5  # the end token alone
    assert np.mean(curves[COLLAPSES]["policy/entropy_avg"][late]) < 0.1 < np.mean(curves[COLLAPSES]["policy/entropy_avg"][early])
    kinds = {run: diagnosis.verdict.kind for run, diagnosis in diagnoses.items()}
    assert kinds == {IMPROVES: "improved", EXPLOITS: "exploiting the reward", COLLAPSES: "collapsed"}
    grave = {finding.check for finding in diagnoses[COLLAPSES].findings if finding.level != "note"}
    assert grave == {
        "kl-exploding",
        "ends-at-once",
        "settings-learning-rate",
        "settings-critic-learning-rate",
        "unstable-start",
        "steps-too-large",
        "repetition",
        "length-drift",
        "entropy-collapse",
    }
    advised = {finding.check: finding.changes for finding in diagnoses[COLLAPSES].findings}
    assert advised["ends-at-once"] == advised["settings-learning-rate"] == {"ppo.learning_rate": 0.002}


def test_the_collapse_differs_from_the_others_in_its_learning_rates_alone(recordings: Recordings) -> None:
    first, last = (RunReader(recordings.folder(run)).config() for run in (IMPROVES, COLLAPSES))
    assert isinstance(first, RunConfig) and isinstance(last, RunConfig)
    expected = collapsed_config().model_dump()
    expected["reward"]["components"][0]["chat_template"] = "policy"  # it was recorded before "auto", which is the same for this model
    assert last.model_dump() == expected
    assert last.ppo.learning_rate == TIMES * first.ppo.learning_rate == TIMES * first.ppo.critic_learning_rate
    watching = {name: getattr(last.engine, name) for name in ("watch_prompts", "watch_every")}  # the first is answered at every step
    first = first.model_copy(update={"engine": first.engine.model_copy(update=watching)})
    rates = {"learning_rate": 0.0, "critic_learning_rate": 0.0, "steps": 1}
    assert first.model_copy(update={"ppo": first.ppo.model_copy(update=rates)}) == last.model_copy(
        update={"ppo": last.ppo.model_copy(update=rates)}
    )


@pytest.mark.long
def test_the_same_bytes_come_out_again(tmp_path: Path) -> None:
    for name in ("first.zip", "second.zip"):
        build_collapsed_run(tmp_path / name, lambda text: None, steps=2)
    assert (tmp_path / "first.zip").read_bytes() == (tmp_path / "second.zip").read_bytes()


# --- unpacking -------------------------------------------------------------------------------------------------------------------


def test_they_are_unpacked_once_and_again_when_the_cache_was_cleared(tmp_path: Path) -> None:
    recordings = Recordings(cache_folder=tmp_path)
    assert list(tmp_path.iterdir()) == []  # nobody has asked
    folder = recordings.folder(COLLAPSES)
    made = (folder / paths.DATABASE).stat().st_ino
    assert recordings.folder(COLLAPSES) == Recordings(cache_folder=tmp_path).folder(COLLAPSES) == folder
    assert (folder / paths.DATABASE).stat().st_ino == made
    assert sorted(path.name for path in folder.iterdir()) == [paths.CONFIG, paths.DATABASE]
    assert recordings.folder(IMPROVES).parent == recordings.folder(EXPLOITS).parent != folder.parent
    assert sorted(path.name for path in recordings.folder(IMPROVES).parent.iterdir()) == [EXPLOITS, IMPROVES]  # no adapters
    shutil.rmtree(folder.parent)
    assert (recordings.folder(COLLAPSES) / paths.DATABASE).is_file()


def test_damage_is_told_plainly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    cut, other = tmp_path / "cut.zip", tmp_path / "other.zip"
    cut.write_bytes(COLLAPSED_RUN.read_bytes()[:100_000])
    with zipfile.ZipFile(COLLAPSED_RUN) as files, zipfile.ZipFile(other, "w") as copy:
        for name in files.namelist():
            copy.writestr(name, b"other" if name.endswith(".yaml") else files.read(name))
    flipped, data = tmp_path / "flipped.zip", bytearray(COLLAPSED_RUN.read_bytes())
    data[5_000] ^= 255
    flipped.write_bytes(data)
    causes = {
        cut: "is damaged",
        other: "has another hash than when it was packed",
        flipped: "is damaged",
        tmp_path / "no.zip": "No such file",
    }
    for archive, cause in causes.items():
        table = [replace(recording, archive=archive) for recording in RECORDINGS if recording.run_id == COLLAPSES]
        workspace = Workspace(tmp_path / "workspace", Recordings(table, tmp_path / "cache"))
        with pytest.raises(StoreError, match=f"^A recording that came with the program .*{cause}") as refused:
            workspace.run_dir(COLLAPSES)
        assert refused.value.reason == "damaged"
        with pytest.raises(OnlyRead):
            workspace.delete(COLLAPSES)


# --- reading ---------------------------------------------------------------------------------------------------------------------


def test_they_are_found_by_their_id_and_are_no_runs_of_the_workspace(workspace: Workspace) -> None:
    assert workspace.runs() == [] and workspace.folders() == []
    statuses = {status.run_id: status for status in workspace.recordings.runs()[0]}
    assert list(statuses) == [IMPROVES, EXPLOITS, COLLAPSES]
    assert [statuses[recording.run_id].name for recording in RECORDINGS] == [recording.name for recording in RECORDINGS]
    assert {(status.state, status.recording) for status in statuses.values()} == {("finished", True)}
    assert replace(workspace.status(EXPLOITS), heartbeat_age=None) == replace(statuses[EXPLOITS], heartbeat_age=None)
    assert workspace.reader(COLLAPSES).status().step == 16
    assert workspace.queue_position(COLLAPSES) is None
    assert not workspace.is_recording("recording") and not Workspace(workspace.root).is_recording(COLLAPSES)
    with pytest.raises(StoreError, match="no run"):
        Workspace(workspace.root).run_dir(COLLAPSES)


def test_a_run_of_the_workspace_comes_first(workspace: Workspace) -> None:
    folder = new_run(workspace.root / paths.RUNS / COLLAPSES)
    assert workspace.run_dir(COLLAPSES) == workspace.own_dir(COLLAPSES) == workspace.exports_parent(COLLAPSES) == folder
    assert not workspace.status(COLLAPSES).recording
    workspace.rename(COLLAPSES, "mine")
    assert workspace.status(COLLAPSES).name == "mine"


def test_looking_writes_nothing(workspace: Workspace) -> None:
    for recording in RECORDINGS:
        folder = workspace.run_dir(recording.run_id)
        before = everything(folder.parent)
        reader = workspace.reader(recording.run_id)
        reader.summary(), reader.rollouts(1), reader.log_tail(), reader.policies(), reader.working_folder()
        with reader.snapshot():
            reader.metrics_since(0)
        assert everything(folder.parent) == before
    assert os.listdir(workspace.root) == []


# --- changing --------------------------------------------------------------------------------------------------------------------

CHANGES: dict[str, Callable[[Workspace], object]] = {
    "rename": lambda workspace: workspace.rename(COLLAPSES, "mine"),
    "tags": lambda workspace: workspace.mark(COLLAPSES, tags=["a"]),
    "note": lambda workspace: workspace.mark(COLLAPSES, note="a"),
    "archive": lambda workspace: workspace.mark(COLLAPSES, archived=True),
    "delete": lambda workspace: workspace.delete(COLLAPSES),
    "resume": lambda workspace: workspace.resume(COLLAPSES),
    "resume from the start": lambda workspace: workspace.resume(COLLAPSES, from_start=True),
    "resume with": lambda workspace: workspace.resume_with(COLLAPSES, CONFIG),
    "more steps": lambda workspace: workspace.go_on(COLLAPSES, 100),
    "fork": lambda workspace: workspace.fork(COLLAPSES, 10, {}),
    "variation": lambda workspace: workspace.fork(COLLAPSES, None, {"ppo.kl_coef": 0.1}),
    "settings of a fork": lambda workspace: workspace.fork_settings(COLLAPSES, None, {}),
    "start from its settings": lambda workspace: workspace.submit(CONFIG, parent=COLLAPSES),
    "sweep": lambda workspace: workspace.submit_sweep(CONFIG, {"ppo.kl_coef": [0.1, 0.2]}, parent=COLLAPSES),
    "trained policy": lambda workspace: workspace.trained_policy(COLLAPSES),
    "force stop": lambda workspace: workspace.force_stop(COLLAPSES),
    "cancel": lambda workspace: workspace.cancel(COLLAPSES),
    "move": lambda workspace: workspace.move(COLLAPSES, 1),
    "from a shell": lambda workspace: refuse_only_read(workspace.reader(COLLAPSES)),
}


def test_everything_that_changes_a_run_refuses_in_one_sentence(workspace: Workspace) -> None:
    before = everything(workspace.run_dir(COLLAPSES))
    for name, change in CHANGES.items():
        with pytest.raises(OnlyRead, match="This is a recording that came with the program"):
            print(name, change(workspace))
    assert everything(workspace.run_dir(COLLAPSES)) == before
    assert os.listdir(workspace.root) == []
