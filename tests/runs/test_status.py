"""Which state a run is shown in, for every row of the table in rlhf_studio.runs.status."""

import json
import os
import signal
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from rlhf_studio.runs import status
from rlhf_studio.runs.commands import send_command
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.liveness import EngineLock
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import Origin, RunStatus, StepRecord
from rlhf_studio.runs.show import show_text, show_values
from rlhf_studio.runs.status import Locks, derive, last_log_line, read_log
from rlhf_studio.runs.studio import QueueEntry, Studio
from rlhf_studio.runs.writer import RunWriter
from tests.runs.store_helpers import new_run

FREE, HELD, STARTING = Locks(False, False), Locks(False, True), Locks(True, False)


def entry(state: str, seq: int = 5, **changes: object) -> QueueEntry:
    return replace(QueueEntry("run-one", 1, state, "train", seq, 123, 0, None, ""), **changes)  # type: ignore[arg-type]


def test_silence_and_when_force_is_offered(tmp_path: Path):
    stored_status = RunReader(new_run(tmp_path / "run")).status()

    def run(**changes: object) -> RunStatus:
        return replace(stored_status, **changes)  # type: ignore[arg-type]

    assert status.silence(run(state="running", heartbeat_age=9.0)) is None
    assert status.silence(run(state="running", heartbeat_age=35.4)) == 35
    assert status.silence(run(state="queued", heartbeat_age=35.4)) is status.silence(run(state="interrupted", heartbeat_age=35.4)) is None
    assert all(status.may_force_stop(run(state=state, stop_asked_age=16.0)) for state in ("loading", "running", "paused"))
    for changes in ({"stop_asked_age": 14.0}, {"stop_asked_age": None}, {"stop_asked_age": 99.0, "state": "interrupted"}):
        assert not status.may_force_stop(run(**{"state": "running", **changes}))


def test_a_request_to_stop_is_open_until_the_run_has_stopped(run: Path):
    with EngineLock(run), RunWriter(run) as writer:
        writer.set_state("running")
        assert RunReader(run).status().stop_asked_age is None
        send_command(run, "pause")
        assert RunReader(run).status().stop_asked_age is None
        send_command(run, "stop")
        age = RunReader(run).status().stop_asked_age
        assert age is not None and 0 <= age < 60
        writer.set_state("stopped")
        assert RunReader(run).status().stop_asked_age is None


def test_an_engine_that_does_not_answer_is_shown_as_on_the_page(run: Path, monkeypatch: pytest.MonkeyPatch):
    with EngineLock(run), RunWriter(run) as writer:
        writer.set_state("running")
        now = time.time()
        monkeypatch.setattr(status.time, "time", lambda: now + 33.5)
        values = show_values(run)
    assert values["silent"] == 33 and "state        running; the engine has not answered for 33 s" in show_text(values)
    assert "device " not in show_text(values)  # none is known
    monkeypatch.undo()
    assert show_values(run)["silent"] is None


TABLE: list[tuple[str, Locks, QueueEntry | None, bool, str]] = [
    # engine.lock held
    ("queued", HELD, None, True, "loading"),
    ("stopped", HELD, entry("claimed"), True, "loading"),  # resumed, nothing written yet
    ("stopped", HELD, entry("claimed", seq=4), True, "stopped"),  # it wrote its end and is leaving
    ("running", HELD, entry("claimed", seq=4), True, "running"),
    ("paused", HELD, None, False, "paused"),
    ("finished", HELD, None, True, "finished"),
    # start.lock held
    ("queued", STARTING, entry("claimed"), True, "loading"),
    ("running", STARTING, entry("claimed"), True, "loading"),  # resuming an interrupted run
    ("running", STARTING, None, False, "loading"),  # started without a queue
    ("stopped", STARTING, entry("claimed"), True, "loading"),
    ("stopped", STARTING, entry("claimed", seq=4), True, "stopped"),  # a helper outlived the engine and kept the ticket
    # both free
    ("queued", FREE, entry("waiting"), True, "queued"),
    ("stopped", FREE, entry("waiting", mode="resume"), True, "queued"),
    ("interrupted-on-disk", FREE, entry("waiting", mode="resume"), True, "queued"),
    ("stopped", FREE, entry("waiting", mode="resume", seq=4), True, "queued"),
    ("finished", FREE, entry("waiting", mode="resume", seq=4), True, "finished"),  # ran from a shell meanwhile
    ("queued", FREE, entry("claimed"), True, "failed"),
    ("stopped", FREE, entry("claimed"), True, "failed"),
    ("queued", FREE, entry("claimed", pid=None), True, "queued"),
    ("queued", FREE, entry("lost", cause="because"), True, "failed"),
    ("stopped", FREE, entry("lost", cause="because", seq=4), True, "stopped"),
    ("loading", FREE, entry("claimed", seq=4), True, "interrupted"),
    ("running", FREE, entry("done"), True, "interrupted"),
    ("paused", FREE, None, False, "interrupted"),
    ("queued", FREE, entry("cancelled"), True, "stopped"),
    ("stopped", FREE, entry("cancelled"), True, "stopped"),
    ("queued", FREE, None, True, "interrupted"),
    ("queued", FREE, entry("done"), True, "failed"),
    ("queued", FREE, entry("claimed", seq=4), True, "failed"),
    ("queued", FREE, None, False, "queued"),
    ("failed", FREE, None, True, "failed"),
    ("finished", FREE, entry("done"), True, "finished"),
]


def test_the_table(tmp_path: Path):
    stored_status = replace(RunReader(new_run(tmp_path / "run-one")).status(), seq=5, created_at=0.0)
    wrong = []
    for stored, locks, queue, in_workspace, expected in TABLE:
        row = replace(stored_status, state="running" if stored == "interrupted-on-disk" else stored)  # type: ignore[arg-type]
        derived = derive(row, locks, Studio({"run-one": queue} if queue else {}, {}), tmp_path, in_workspace)
        waits = expected == "queued" and queue is not None and queue.state == "waiting"
        has_cause = derived.state in ("failed", "interrupted") and derived.state != stored
        if (derived.state, derived.queue_position == 1, bool(derived.cause)) != (expected, waits, has_cause):
            wrong.append((stored, locks, queue, derived))
    assert wrong == []


def derived_cause(tmp_path: Path, stored: str, queue: QueueEntry | None) -> str:
    row: RunStatus = replace(RunReader(new_run(tmp_path / "run-one")).status(), seq=5, state=stored)  # type: ignore[arg-type]
    return derive(row, FREE, Studio({"run-one": queue} if queue else {}, {}), tmp_path, True).cause


def test_the_cause_names_what_is_known(tmp_path: Path):
    log = tmp_path / "engine.log"
    assert derived_cause(tmp_path / "1", "running", None).startswith("The engine ended without saying why: it was killed, memory")
    killed = derived_cause(tmp_path / "2", "running", entry("done", exit_code=-signal.SIGKILL))
    assert "SIGKILL" in killed and "memory ran out" in killed
    assert "Resume" not in killed  # what that does depends on the checkpoints, which the page knows
    older = derived_cause(tmp_path / "3", "running", entry("done", exit_code=-signal.SIGKILL, seq=4))
    assert "SIGKILL" not in older  # that exit belongs to an earlier start
    segfault = derived_cause(tmp_path / "4", "running", entry("done", exit_code=-signal.SIGSEGV))
    assert "SIGSEGV" in segfault and "none" in segfault
    assert "signal 99" in derived_cause(tmp_path / "5", "running", entry("done", exit_code=-99))
    assert "Its log is empty" in derived_cause(tmp_path / "6", "queued", entry("claimed"))
    log.write_text("Traceback\nValueError: no model here\n\n")
    del log
    cause = status.early_end(tmp_path, 2)
    assert "(exit code 2)" in cause and "The last line of its log: ValueError: no model here" in cause and "resume" in cause
    assert "ValueError: no model here" in status._interruption(entry("done", exit_code=1), tmp_path, Origin())


def test_a_young_run_without_queue_entry_is_still_queued(run: Path):
    row = RunReader(run).status()
    assert derive(row, FREE, Studio({}, {}), run, in_workspace=True).state == "queued"  # submit() is between its two steps


def test_the_log(tmp_path: Path):
    assert read_log(tmp_path, 100) == "" and last_log_line(tmp_path) == ""
    log = tmp_path / "engine.log"
    log.write_bytes("progress 1\rprogress 2 ééé\n \n".encode() + b"\xff\x00")
    assert read_log(tmp_path, 1000) == "progress 1\rprogress 2 ééé\n \n�\x00"
    log.write_bytes(("x" * 50 + "é" * 50).encode())
    for size in range(1, 100):
        assert set(read_log(tmp_path, size)) <= {"é"}  # never begins inside a character
        assert len(read_log(tmp_path, size).encode()) in (size, size - 1)
    assert read_log(tmp_path, 0) == ""
    log.write_text("bar 1 %\rbar 2 %\r\n\n")
    assert last_log_line(tmp_path) == "bar 2 %"
    log.write_text("y" * 5000)
    assert last_log_line(tmp_path) == "y" * 300


def test_a_log_that_is_a_link_or_cannot_be_read(tmp_path: Path):
    (tmp_path / "engine.log").symlink_to("/etc/hostname")
    with pytest.raises(StoreError):
        read_log(tmp_path, 100)
    os.unlink(tmp_path / "engine.log")
    (tmp_path / "engine.log").symlink_to(tmp_path / "nowhere")
    with pytest.raises(StoreError):
        RunReader(tmp_path).log_tail()


def test_bad_news_needs_a_second_look(run: Path, monkeypatch: pytest.MonkeyPatch):
    with RunWriter(run) as writer:
        writer.set_state("running")
    looks = [FREE, HELD]  # the engine took its lock between the first look and reading the row
    monkeypatch.setattr(status, "look_at_locks", lambda folder: looks.pop(0))
    assert RunReader(run).status().state == "running" and looks == []
    monkeypatch.setattr(status, "look_at_locks", lambda folder: FREE)
    assert RunReader(run).status().state == "interrupted"


def test_checkpoints_that_count(run: Path):
    folder = run / "checkpoints"
    with EngineLock(run), RunWriter(run) as writer:
        for step in (5, 20, 30, 40, 1_000_000):
            writer.commit_step(StepRecord(step, {}, []))
    for name in ("step-000040", "step-000005", "step-000020", "step-000030", "step-000060.tmp", "other", "step-1000000"):
        (folder / name).mkdir()
        (folder / name / "weights.safetensors").write_bytes(b"x" * 100)
        (folder / name / "inner").mkdir()
        if name != "step-000020":  # killed before its manifest was written
            step = 31 if name == "step-000030" else int(name[5:]) if name[5:].isdigit() else 0  # somebody renamed one
            (folder / name / "manifest.json").write_text(json.dumps({"step": step}))
    (folder / "step-000070").symlink_to(folder / "step-000040")
    (folder / "step-000080").write_text("a file")
    (folder / "step-000040" / "link").symlink_to("/etc/passwd")
    checkpoints = RunReader(run).checkpoints()
    assert [(info.step, info.bytes) for info in checkpoints] == [(5, 111), (40, 112), (1_000_000, 117)]
    assert checkpoints[0].path == str(run.resolve() / "checkpoints" / "step-000005") and checkpoints[0].time > 0
    (run / "checkpoints").rename(run / "away")
    assert RunReader(run).checkpoints() == []
    (run / "checkpoints").write_text("")
    with pytest.raises(StoreError):
        RunReader(run).checkpoints()


def test_a_configuration_that_cannot_be_used(run: Path, tmp_path: Path):
    (run / "config.yaml").write_text("ppo: {steps: many}")
    with pytest.raises(StoreError, match=r"config\.yaml cannot be used: ppo\.steps"):
        RunReader(run).config()
    (run / "config.yaml").unlink()
    with pytest.raises(StoreError, match=r"There is no run at .*: config\.yaml is missing"):
        RunReader(run).config()
    (tmp_path / "elsewhere.yaml").write_text("{}")
    (run / "config.yaml").symlink_to(tmp_path / "elsewhere.yaml")
    with pytest.raises(StoreError, match="is a link"):
        RunReader(run).config()


def test_the_summary_is_worked_out_by_hand(run: Path):
    nothing = {"model": "bundled/world-policy", "steps": 0, "scores": [], "elapsed": None}
    keys = [f"{name}_{end}" for name in ("score", "gold", "kl") for end in ("first", "last")]
    assert RunReader(run).summary() == {**nothing, **dict.fromkeys(keys)}
    with RunWriter(run) as writer:
        writer.set_state("running")
        for step in range(1, 26):  # a tenth of 25 steps is 2
            kl = float("nan") if step in (2, 24, 25) else step / 10
            writer.commit_step(StepRecord(step, {"objective/scores": float(step), "objective/kl": kl}, []))
        summary = RunReader(run).summary()
        assert (summary["steps"], summary["score_first"], summary["score_last"]) == (25, 1.0, 24.5)
        assert (summary["kl_first"], summary["kl_last"], summary["gold_first"], summary["gold_last"]) == (0.1, None, None, None)
        assert 0 <= summary["elapsed"] < 60
        scores = summary["scores"]  # 20 of 25: two of them are at most two steps apart
        assert (len(scores), scores[0], scores[-1]) == (20, 1.0, 25.0) and {b - a for a, b in pairwise(scores)} == {1.0, 2.0}
        writer.commit_step(StepRecord(30, {"time/elapsed": 1234.5}, []))
        assert RunReader(run).summary()["elapsed"] == 1234.5
