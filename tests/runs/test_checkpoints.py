"""Which checkpoint a run goes on from, and what is on the disk wherever writing one is cut short."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.runs import checkpoints
from rlhf_studio.runs.checkpoints import NoCheckpoint, StartingPoint, newest_valid, only_named, where_to_resume
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.writer import RunWriter
from tests.runs.store_helpers import new_run, step_record

pytestmark = pytest.mark.slow

STRAY = [".DS_Store", "policy/._model.safetensors", "state.json~", "notes.txt", "empty/", "policy/pytorch_model.bin"]


def write(folder: Path, step: int, at: float | None = None, text: str = "weights") -> Path:
    """A checkpoint as the engine leaves it, written by hand."""
    files = {"state.json": f'{{"step": {step}}}', "policy/model.safetensors": text * 50, "optimizer.safetensors": "moments"}
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    entries = {name: {"bytes": len(content), "sha256": hashlib.sha256(content.encode()).hexdigest()} for name, content in files.items()}
    (folder / "manifest.json").write_text(json.dumps({"format": 1, "step": step, "recorded_at": at, "files": entries}))
    return folder


def is_whole(folder: Path) -> bool:
    """Whether every file has the hash that the manifest names."""
    files = json.loads((folder / "manifest.json").read_text())["files"]
    return all(hashlib.sha256((folder / name).read_bytes()).hexdigest() == entry["sha256"] for name, entry in files.items())


def folder_of(run: Path, step: int) -> Path:
    return run / "checkpoints" / f"step-{step:06d}"


def checkpoint(run: Path, step: int) -> Path:
    return write(folder_of(run, step), step, RunReader(run).recorded_at(step))


def stray(folder: Path) -> None:
    for name in STRAY:
        if name.endswith("/"):
            (folder / name).mkdir()
        else:
            (folder / name).write_text("stray")


def names(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir())


@pytest.fixture
def played(run: Path) -> Path:
    """Eight recorded steps, checkpoints of steps 2, 4 and 6."""
    with RunWriter(run) as writer:
        for step in range(1, 9):
            writer.commit_step(step_record(step))
            if step in (2, 4, 6):
                checkpoint(run, step)
    return run


# --- what counts as whole ----------------------------------------------------------------------------------------------------


def test_loaders_see_only_what_the_manifest_names(played: Path) -> None:
    folder = folder_of(played, 6)
    with only_named(folder) as view:
        assert view == folder
    stray(folder)
    assert where_to_resume(played) == StartingPoint(6, [])
    with only_named(folder) as view:
        contents = {str(path.relative_to(view)): path.read_bytes() for path in view.rglob("*") if path.is_file()}
    named = ["manifest.json", "optimizer.safetensors", "policy/model.safetensors", "state.json"]
    assert contents == {name: (folder / name).read_bytes() for name in named}
    assert not view.exists() and (folder / ".DS_Store").exists()


def without(name: str) -> Callable[[Path], Any]:
    return lambda folder: (folder / name).unlink()


def manifest(**changes: Any) -> Callable[[Path], Any]:
    def change(folder: Path) -> None:
        path = folder / "manifest.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def flipped(folder: Path) -> None:
    data = bytearray((folder / "policy" / "model.safetensors").read_bytes())
    data[7] ^= 1
    (folder / "policy" / "model.safetensors").write_bytes(bytes(data))


DAMAGES = {
    "flip": (flipped, "policy/model.safetensors is damaged"),
    "cut": (lambda folder: (folder / "state.json").write_text("{"), "state.json is damaged"),
    "missing": (without("optimizer.safetensors"), "optimizer.safetensors is missing"),
    "a folder": (lambda folder: ((folder / "state.json").unlink(), (folder / "state.json").mkdir()), "state.json"),
    "no manifest": (without("manifest.json"), "the manifest cannot be read"),
    "half a manifest": (lambda folder: (folder / "manifest.json").write_text("{"), "the manifest cannot be read"),
    "no manifest of ours": (lambda folder: (folder / "manifest.json").write_text("[]"), "the manifest cannot be read"),
    "no list": (manifest(files=None), "the manifest cannot be read"),
    "no entry": (manifest(files={"state.json": None}), "state.json cannot be read"),
    "format": (manifest(format=99), "format 99"),
    "renamed": (manifest(step=5), "renamed"),
    "no files": (manifest(files={}), "it has no list of files"),
    "a name with NUL": (manifest(files={"a\0b": {}}), "the manifest names 'a\\x00b', which cannot be"),
    "half a surrogate pair": (manifest(files={"\ud800": {}}), "the manifest names '\\ud800', which cannot be"),
    "leads out": (manifest(files={"../step-000004/state.json": {}}), "the manifest names '../step-000004/state.json'"),
    "absolute": (manifest(files={"/etc/hostname": {}}), "the manifest names '/etc/hostname'"),
    "an odd format": (manifest(format="\ud800"), "format '\\ud800' is not"),
    "nested deeply": (lambda folder: (folder / "manifest.json").write_text("[" * 100_000), "it is nested too deeply"),
    "a pipe": (lambda folder: pipe(folder / "manifest.json"), "it is not a regular file"),
    "an empty pipe": (lambda folder: (nothing(folder / "state.json"), pipe(folder / "state.json")), "state.json is damaged"),
}


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def nothing(path: Path) -> None:
    """Empty, and the manifest says so."""
    path.write_bytes(b"")
    entries = json.loads(path.with_name("manifest.json").read_text())
    entries["files"][path.name] = {"bytes": 0, "sha256": hashlib.sha256(b"").hexdigest()}
    path.with_name("manifest.json").write_text(json.dumps(entries))


def test_damaged_ones_are_passed_over_and_named(played: Path) -> None:
    saved = played.with_name("saved")
    shutil.copytree(folder_of(played, 6), saved)
    for case, (spoil, message) in DAMAGES.items():
        spoil(folder_of(played, 6))
        chosen, problems = newest_valid(played)
        assert chosen == folder_of(played, 4), case
        assert len(problems) == 1 and problems[0].startswith("step-000006: ") and message in problems[0], (case, problems)
        problems[0].encode()  # can be printed and stored
        assert where_to_resume(played) == StartingPoint(4, problems) and folder_of(played, 6).exists(), case
        assert [point.step for point in RunReader(played).checkpoints()][:2] == [2, 4], case  # the page answers, too
        shutil.rmtree(folder_of(played, 6))
        shutil.copytree(saved, folder_of(played, 6))


# --- links and files that have the names of checkpoints ----------------------------------------------------------------------


def elsewhere(run: Path, step: int) -> Path:
    """Moved to a bigger disk and linked back."""
    folder_of(run, step).rename(run.parent / f"disk-{step}")
    folder_of(run, step).symlink_to(run.parent / f"disk-{step}")
    return run.parent / f"disk-{step}"


def test_links_and_files_are_passed_over_and_left_alone(played: Path) -> None:
    folder = played / "checkpoints"
    disk = elsewhere(played, 4)
    folder_of(played, 3).write_text("notes")
    folder_of(played, 7).symlink_to("nowhere")
    (folder / ".step-000005.part").write_text("notes")
    (folder / ".step-000005.old").symlink_to(disk)
    (folder / ".step-000001.gone").symlink_to("nowhere")
    start = where_to_resume(played)
    assert (start.step, len(start.problems)) == (6, 1) and start.problems[0].startswith("step-000007: it is a link, and only a folder")
    before = names(played)
    assert [path.name for path in checkpoints.by_step(folder)] == ["step-000002", "step-000006"]
    assert [point.step for point in RunReader(played).checkpoints()] == [2, 6]
    save(played, 8, keep=1)
    assert names(played) == sorted({*before, "step-000008"} - {"step-000002", "step-000006"})
    assert is_whole(disk)


def test_what_stands_in_the_way_of_a_checkpoint_is_moved_aside(played: Path) -> None:
    folder = played / "checkpoints"
    disk = elsewhere(played, 6)
    (folder / ".step-000006.part").write_text("a part")
    (folder / ".step-000004.gone").write_text("a file")
    (folder / ".step-000002.gone").symlink_to("nowhere")
    save(played, 6, keep=1, text="new")
    assert names(played) == [
        ".step-000002.gone.moved-aside-1",
        ".step-000004.gone.moved-aside-1",
        ".step-000006.part.moved-aside-1",
        "step-000006",
        "step-000006.moved-aside-1",
    ]
    assert os.readlink(folder / "step-000006.moved-aside-1") == str(disk)
    assert (folder / ".step-000006.part.moved-aside-1").read_text() == "a part"
    assert is_whole(disk)
    assert where_to_resume(played) == StartingPoint(6, [])
    folder_of(played, 6).rename(folder / ".step-000006.old")  # killed while it was being replaced, and then somebody put a file there
    folder_of(played, 6).write_text("notes")
    assert [point.step for point in RunReader(played).checkpoints()] == [6] and where_to_resume(played) == StartingPoint(6, [])
    save(played, 8, keep=2)
    assert is_whole(folder_of(played, 6))
    assert (folder / "step-000006.moved-aside-2").read_text() == "notes"


def test_a_checkpoint_of_other_settings_is_passed_over(played: Path) -> None:
    """The run was to begin again from step 0 with another seed, and was ended before it had gone back."""
    settings = RunReader(played).config().model_dump(mode="json")
    for step, seed in ((4, settings["engine"]["seed"]), (6, 77)):
        path = folder_of(played, step) / "state.json"
        text = json.dumps({"settings": {**settings, "engine": {**settings["engine"], "seed": seed}, "ppo": {"steps": 1}}})
        path.write_text(text)
        known = json.loads(path.with_name("manifest.json").read_text())
        known["files"]["state.json"] = {"bytes": len(text), "sha256": hashlib.sha256(text.encode()).hexdigest()}
        path.with_name("manifest.json").write_text(json.dumps(known))
    start = where_to_resume(played)
    assert start.step == 4 and "step-000006: it was written with other settings (engine.seed from 77 to" in start.problems[0]


# --- which of them belong to the run as it goes now --------------------------------------------------------------------------


def test_a_checkpoint_of_a_step_that_was_played_again_is_not_gone_on_from(played: Path) -> None:
    flipped(folder_of(played, 6))
    good = (folder_of(played, 6) / "manifest.json").read_bytes()
    with RunWriter(played) as writer:
        writer.go_back(4)  # resumed from the checkpoint of step 4
        assert where_to_resume(played).step == 4
        folder_of(played, 6).rename(played / "aside")
        write(folder_of(played, 6), 6, json.loads(good)["recorded_at"])  # somebody brings a whole copy of the damaged one
        assert where_to_resume(played).step == 4, "the run is at step 4: step 6 is from before the resume"
        for step in (5, 6, 7):
            writer.commit_step(step_record(step))
        start = where_to_resume(played)
        assert start.step == 4 and "from before a resume" in start.problems[0]
        assert [point.step for point in RunReader(played).checkpoints()] == [2, 4]
        checkpoint(played, 6)
    assert where_to_resume(played) == StartingPoint(6, [])
    assert [point.step for point in RunReader(played).checkpoints()] == [2, 4, 6]


def test_checkpoints_of_older_versions_count(played: Path) -> None:
    for step in (2, 4, 6):
        path = folder_of(played, step) / "manifest.json"
        known = json.loads(path.read_text())
        del known["recorded_at"]
        path.write_text(json.dumps(known))
    assert where_to_resume(played) == StartingPoint(6, [])


# --- where a run goes on -----------------------------------------------------------------------------------------------------


def test_the_app_reads_a_checkpoint_once_and_again_when_it_was_touched(played: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    original = checkpoints.sha256
    monkeypatch.setattr(checkpoints, "sha256", lambda path: read.append(path.name) or original(path))
    assert where_to_resume(played, read_again=False).step == 6 and len(read) == 3
    assert where_to_resume(played, read_again=False).step == 6 and len(read) == 3
    assert where_to_resume(played).step == 6 and len(read) == 6  # as the engine does
    model = folder_of(played, 6) / "policy" / "model.safetensors"
    os.utime(model, ns=(1, 1))
    assert where_to_resume(played, read_again=False).step == 6 and len(read) == 9
    model.unlink()
    assert where_to_resume(played, read_again=False).step == 4


def test_no_checkpoint_at_all(run: Path) -> None:
    assert where_to_resume(run) == StartingPoint(None, [])  # it never got going, and starts without a question
    with RunWriter(run) as writer:
        writer.commit_step(step_record(1))
    with pytest.raises(
        NoCheckpoint, match=r"it has no checkpoint\. Nothing .* the 1 recorded step one by one.*resume .* --from-start$"
    ) as caught:
        where_to_resume(run)
    assert (caught.value.reason, caught.value.steps) == ("from-start", 1) and str(caught.value).count(str(run)) == 2


def test_only_damaged_checkpoints(played: Path) -> None:
    for step in (2, 4, 6):
        flipped(folder_of(played, step))
    with pytest.raises(NoCheckpoint) as caught:
        where_to_resume(played)
    assert all(f"step-00000{step}: policy/model.safetensors is damaged" in caught.value.why for step in (2, 4, 6))
    assert names(played) == ["step-000002", "step-000004", "step-000006"]


def test_the_checkpoint_of_the_beginning_is_no_way_on_for_recorded_steps(run: Path) -> None:
    checkpoint(run, 0)  # stopped before its first step
    assert where_to_resume(run) == StartingPoint(0, [])
    with RunWriter(run) as writer:
        writer.commit_step(step_record(1))
    with pytest.raises(NoCheckpoint, match="only whole checkpoint is of step 0"):
        where_to_resume(run)


# --- pruning -----------------------------------------------------------------------------------------------------------------


def save(run: Path, step: int, keep: int, text: str = "weights") -> None:
    """What the engine does, without the weights."""
    part = checkpoints.begin(folder_of(run, step))
    write(part, step, checkpoints.recorded_at(run, step), text)
    checkpoints.put_in_place(part, folder_of(run, step))
    checkpoints.prune(folder_of(run, step), keep)


def forget() -> None:
    """As in a new process."""
    checkpoints._known.clear()


@pytest.mark.parametrize("new_process", [False, True])
def test_only_good_checkpoints_are_counted_when_old_ones_are_removed(played: Path, new_process: bool) -> None:
    flipped(folder_of(played, 6))
    if new_process:
        forget()
    save(played, 8, keep=2)
    assert names(played) == ["step-000004", "step-000006", "step-000008"], "4 and 8 are the two good ones; 6 is damaged"
    assert where_to_resume(played) == StartingPoint(8, [])


def test_a_damaged_one_goes_when_enough_good_ones_came_after_it(played: Path) -> None:
    flipped(folder_of(played, 2))
    save(played, 8, keep=2)
    assert names(played) == ["step-000006", "step-000008"]


def test_later_folders_are_not_touched(played: Path) -> None:
    flipped(folder_of(played, 6))
    with RunWriter(played) as writer:
        writer.go_back(4)
        writer.commit_step(step_record(5))
    save(played, 5, keep=1)
    assert names(played) == ["step-000005", "step-000006"]


# --- cut short anywhere ------------------------------------------------------------------------------------------------------

FILE_EVENTS = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.scandir", "os.listdir", "shutil.rmtree"}


def cut_short(action: Callable[[], None], folder: Path, number: int, how: str) -> bool:
    """Do it in a child process that is killed, or fails, at its file operation ``number`` below ``folder``. True if it came that far."""
    child = os.fork()
    if child == 0:
        count = 0

        def watch(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal count
            if event in FILE_EVENTS and isinstance(arguments[0], str | Path) and str(arguments[0]).startswith(str(folder)):
                count += 1
                if count == number and how == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                if count == number:
                    raise OSError(5, "Input/output error")

        sys.addaudithook(watch)
        try:
            action()
            os._exit(0 if count < number else 1)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0


@pytest.mark.parametrize("how", ["kill", pytest.param("fail", marks=pytest.mark.long)])
@pytest.mark.parametrize("keep", [pytest.param(1, marks=pytest.mark.long), 2])
def test_there_is_a_good_checkpoint_wherever_saving_is_cut_short(tmp_path: Path, how: str, keep: int) -> None:
    """The same step saved twice, so that a good folder is replaced by another: the moment with the least on the disk."""
    run, number = new_run(tmp_path / "run"), 0
    with RunWriter(run) as writer:
        for step in range(1, 4):
            writer.commit_step(step_record(step))
    came_so_far = True
    while came_so_far:
        number += 1
        for path in (run / "checkpoints").iterdir():
            for inner in sorted(path.rglob("*"), reverse=True):
                inner.rmdir() if inner.is_dir() else inner.unlink()
            path.rmdir()
        save(run, 2, keep, "older")
        save(run, 3, keep, "old")
        came_so_far = cut_short(lambda: save(run, 3, keep, "new"), run / "checkpoints", number, how)
        forget()
        assert where_to_resume(run).step == 3, number
        checkpoints.tidy(run / "checkpoints")  # the next engine
        assert where_to_resume(run).step == 3, number
        assert (folder_of(run, 3) / "policy" / "model.safetensors").read_text()[:3] in ("old", "new")
        assert [name for name in names(run) if name.startswith(".")] == []
        save(run, 3, keep, "next")
        assert names(run) == (["step-000003"] if keep == 1 else ["step-000002", "step-000003"]), number
    assert number > 20, "the file operations were not seen"


def test_a_failed_sync_leaves_one_too(played: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(checkpoints, "sync", broken)
    with pytest.raises(OSError, match="Input/output"):
        save(played, 6, keep=1)
    monkeypatch.undo()
    assert where_to_resume(played) == StartingPoint(6, [])


def test_a_folder_that_was_being_replaced_is_usable_before_it_has_its_name_back(played: Path) -> None:
    folder_of(played, 6).rename(folder_of(played, 6).with_name(".step-000006.old"))
    assert where_to_resume(played) == StartingPoint(6, [])
    write(folder_of(played, 6).with_name(".step-000007.gone"), 7)
    write(folder_of(played, 6).with_name(".step-000008.part"), 8)
    checkpoints.tidy(played / "checkpoints")
    assert names(played) == ["step-000002", "step-000004", "step-000006"]
    assert is_whole(folder_of(played, 6))
