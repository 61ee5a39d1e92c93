"""Kill the writer at any moment: nothing acknowledged is lost, no step is half there, and the next writer goes on."""

import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest

from rlhf_studio.runs import schema
from rlhf_studio.runs.liveness import EngineLock, is_alive
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.schema import connect
from rlhf_studio.runs.writer import Heartbeat, RunWriter
from tests.runs.store_helpers import new_run, same, step_record

pytestmark = pytest.mark.slow

KILLS = {"wal": 8, "delete": 12}


def write_until_killed(run: Path, acknowledgements: int, journal: str) -> None:
    """In a forked child: commit step after step, and say so on the pipe after each."""
    if journal == "delete":
        schema.set_journal = lambda connection, mode, seconds: "delete"
    with EngineLock(run), RunWriter(run) as writer, Heartbeat(run, 0.001):
        writer.set_state("running")
        step = RunReader(run).status().step
        while True:
            step += 1
            writer.commit_step(step_record(step))
            os.write(acknowledgements, b"%d\n" % step)


def killed_at_random(run: Path, draw: random.Random, journal: str) -> int:
    """Fork a writer, kill it at a random moment, and return the last step that it acknowledged (0 for none)."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            write_until_killed(run, writing, journal)
        finally:
            os._exit(1)
    os.close(writing)
    received = b""
    acknowledgements = draw.randrange(12)  # to wait for; 0 kills during the opening
    while received.count(b"\n") < acknowledgements:
        received += os.read(reading, 100)
    moment = time.perf_counter() + draw.random() * 0.02
    while time.perf_counter() < moment:
        pass
    os.kill(pid, signal.SIGKILL)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    while part := os.read(reading, 1000):
        received += part
    os.close(reading)
    return int(received.split()[-1]) if received else 0


def check_history(run: Path, acknowledged: int) -> int:
    """Everything up to the run's step is whole and equals what was written; returns that step."""
    reader = RunReader(run)
    status = reader.status()
    steps = list(range(1, status.step + 1))
    assert status.step in (acknowledged, acknowledged + 1)  # the last one may have been committed and not yet said
    assert status.state == ("interrupted" if status.started_at else "queued") and not is_alive(run) and status.epoch == 0
    metrics = reader.metrics_since(0, limit=100_000)
    assert metrics == [(step, step_record(step).metrics) for step in steps]
    assert reader.rollout_steps() == steps
    assert [step for step, _ in reader.watched()] == steps
    assert [event.data["step"] for event in reader.events_since(0, limit=100_000)] == steps
    assert [event.id for event in reader.events_since(0, limit=100_000)] == steps
    for step in steps[-3:]:
        assert same([reader.rollout(step, sample) for sample in (0, 1)], step_record(step).rollouts)
    connection = connect(run / "run.db", read_only=True)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    count = connection.execute("SELECT count(*), count(DISTINCT step || ':' || sample) FROM token_arrays").fetchone()
    connection.close()
    assert count == (len(steps) * 2 * 19, len(steps) * 2)
    return status.step


@pytest.mark.parametrize("journal", ["wal", pytest.param("delete", marks=pytest.mark.long)])
def test_sigkill_at_random_moments(run: Path, journal: str):
    draw = random.Random(1)
    known = 0
    seq = 0
    for _ in range(KILLS[journal]):
        before = known
        acknowledged = max(killed_at_random(run, draw, journal), known)
        known = check_history(run, acknowledged)
        transactions = RunReader(run).status().seq - seq  # opening, set_state, and one for each step
        assert transactions == known - before + 2 if known > before else transactions in (0, 1, 2)
        seq += transactions
    assert known > KILLS[journal]  # the writers really wrote
    with RunWriter(run) as writer:
        writer.set_state("running")
        writer.go_back(5)
        writer.commit_step(step_record(6))
        writer.set_state("finished")
    assert RunReader(run).rollout_steps() == [1, 2, 3, 4, 5, 6]


def test_a_write_ahead_log_cut_anywhere_gives_the_whole_steps_before(tmp_path: Path):
    """The log of a machine that lost power: whatever length is left of it, the reader sees complete steps only."""
    run = new_run(tmp_path / "run")
    ends = []
    with RunWriter(run) as writer:
        writer.set_state("running")
        writer._connection.execute("PRAGMA wal_autocheckpoint = 0")
        for step in range(1, 5):
            writer.commit_step(step_record(step))
            ends.append((run / "run.db-wal").stat().st_size)
        shutil.copytree(run, tmp_path / "cut")
    log = (tmp_path / "cut" / "run.db-wal").read_bytes()
    assert len(log) == ends[-1] and ends == sorted(set(ends))
    frame = 4096 + 24
    lengths = {ends[0] + offset for offset in range(0, ends[-1] - ends[0], 3989)}
    lengths |= {end + delta for end in ends for delta in (-frame, -frame - 1, -frame + 24, -1, 0, 1, 24) if end + delta <= ends[-1]}
    for length in sorted(lengths):
        for name in ("run.db-wal", "run.db-shm"):
            (tmp_path / "cut" / name).unlink(missing_ok=True)
        (tmp_path / "cut" / "run.db-wal").write_bytes(log[:length])
        steps = sum(end <= length for end in ends)
        reader = RunReader(tmp_path / "cut")
        assert reader.rollout_steps() == list(range(1, steps + 1)) == [step for step, _ in reader.metrics_since(0)]
        assert reader.status().step == len(reader.events_since(0)) == steps
