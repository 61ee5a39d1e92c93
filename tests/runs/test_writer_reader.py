import math
import sqlite3
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rlhf_studio.runs import create, schema
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.liveness import EngineLock
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import (
    EPISODE_TOKENS,
    EventRecord,
    Probe,
    ProbeScore,
    SettingChange,
    State,
    StepEpisodes,
    StepRecord,
    WatchRecord,
)
from rlhf_studio.runs.writer import RunWriter
from tests.runs.store_helpers import NASTY_TEXTS, rollout, same, step_record, token_record
from tests.waiting import wait_until


def nasty_step(step: int) -> StepRecord:
    nan, inf = math.nan, math.inf
    tokens = token_record(len(NASTY_TEXTS), pieces=NASTY_TEXTS)
    tokens.arrays["kl"][:3] = [nan, inf, -inf]
    tokens.arrays["own quantity \ud800"] = np.zeros(len(NASTY_TEXTS), np.float32)
    tokens.top_pieces.update({7: "\ud800\udc00 two", 8: "x" * 10_000})
    return StepRecord(
        step=step,
        metrics={"objective/kl": nan, "reward/<b>\ud800": inf, "loss/policy_avg": -inf, "lr": 1e-300, "episode": 2**53, "zero": 0.0},
        rollouts=[
            rollout(
                number,
                score,
                tokens,
                prompt=text,
                response=text + "\x00",
                parts={text: score},
                gold=gold,
                kl=gold or 0.0,
                stopped=(True, False, None)[number % 3],
            )
            for number, (text, score, gold) in enumerate(zip(NASTY_TEXTS, [nan, inf, -inf, 1.0] * 3, [None, nan, 2.0] * 3, strict=False))
        ],
        watched=[WatchRecord(number, text, text, nan, inf) for number, text in enumerate(NASTY_TEXTS)],
        events=[EventRecord("warning", "health", text, {"where": [nan, {"deep": -inf}], "text": text}) for text in NASTY_TEXTS],
    )


def test_everything_comes_back_unchanged(run: Path):
    record = nasty_step(1)
    with RunWriter(run) as writer:
        writer.commit_step(record)
        reader = RunReader(run)
        ((step, metrics),) = reader.metrics_since(0)
        assert step == 1 and metrics == {k: v if math.isfinite(v) else None for k, v in record.metrics.items()}
        assert [(s, n) for s, n, _ in reader.non_finite()] == [(1, "objective/kl"), (1, "reward/<b>\ud800"), (1, "loss/policy_avg")]
        assert same([value for _, _, value in reader.non_finite()], [math.nan, math.inf, -math.inf])
        assert metrics["lr"] == 1e-300
        assert same(reader.rollouts(1), [replace(rollout, tokens=None) for rollout in record.rollouts])
        for expected in record.rollouts:
            assert same(reader.rollout(1, expected.sample), expected)
        assert same([watch for _, watch in reader.watched()], record.watched)
        assert {step for step, _ in reader.watched()} == {1}
        events = reader.events_since(0)
        assert [event.id for event in events] == list(range(1, len(NASTY_TEXTS) + 1))
        assert same([EventRecord(e.level, e.kind, e.text, e.data) for e in events], record.events)
        assert {event.step for event in events} == {1}


def nasty_extras(step: int) -> StepRecord:
    """What a step leaves behind beside its recorded responses, with texts and numbers that are hard to keep."""
    ragged = np.array([1.5, math.nan, -math.inf, 0.0, 2.0], np.float32)
    pieces = dict(enumerate(NASTY_TEXTS))
    episodes = StepEpisodes(
        lengths=np.array([2, 0, 3], np.int32),
        response_ids=np.array([0, 1, 2, 1, 0], np.int32),
        tokens={name: ragged * factor for factor, name in enumerate((*EPISODE_TOKENS, "kl"), start=1)},
        scores=np.array([1.0, math.nan, math.inf], np.float32),
        gold=None if step == 1 else np.zeros(3, np.float32),
        parts={text: np.full(3, number, np.float32) for number, text in enumerate(NASTY_TEXTS)},
        stopped=np.array([True, False, True]),
        pieces=pieces,
    )
    wide = np.arange(10, dtype=np.float32).reshape(2, 5)
    probe = ProbeScore(0, np.array([-1.0, math.nan], np.float32), wide.astype(np.int32), wide, wide + 1, wide + 2)
    answer = WatchRecord(0, "p", "r", 1.0, None, math.nan, False, NASTY_TEXTS, {"kl": ragged})
    changes = [SettingChange(step, "ppo.kl_coef", 0.1, 0.2), SettingChange(step, "ppo.kl_target", None, 6.0)]
    return StepRecord(step, {}, [], [answer], [], episodes, [probe], changes)


def test_episodes_probes_answers_and_changes_come_back_unchanged(run: Path):
    first, second = nasty_extras(1), nasty_extras(2)
    start = Probe(0, "\ud800", NASTY_TEXTS)
    with RunWriter(run) as writer:
        writer.probes([start], first.probes)
        for record in (first, second):
            writer.commit_step(record)
    reader = RunReader(run)
    assert same(reader.episodes(1, 9), {1: first.episodes, 2: second.episodes})
    assert same(reader.episodes(2), {2: second.episodes})
    probes, scores = reader.probes()
    assert same(probes, [start]) and [step for step, _ in scores] == [0, 1, 2] and same(scores[2][1], second.probes[0])
    assert same([answer for _, answer in reader.watched()], [*first.watched, *second.watched])
    assert same(reader.changes(), [*first.changes, *second.changes])
    with RunWriter(run) as writer:
        writer.go_back(1)
        assert list(reader.episodes(0, 9)) == [1] and len(reader.changes()) == 2 and len(reader.probes()[1]) == 2


@pytest.mark.parametrize("left", ["running", "paused", "stopped", "failed"])
def test_whoever_opens_a_run_is_loading_from_the_first_moment(run: Path, left: State):
    with EngineLock(run), RunWriter(run) as writer:
        assert RunReader(run).status().state == "loading"
        writer.set_state(left, cause="why it ended")
        before = RunReader(run).status()
    with EngineLock(run), RunWriter(run):
        status = RunReader(run).status()  # before the engine has said anything, the last one's words do not count
    assert (status.state, status.cause, status.ended_at, status.started_at) == ("loading", "", None, before.started_at)


def test_what_was_not_recorded(run: Path):
    reader = RunReader(run)
    assert (reader.metrics_since(0), reader.events_since(0), reader.rollout_steps(), reader.rollouts(5), reader.watched()) == (
        [],
        [],
        [],
        [],
        [],
    )
    assert (reader.checkpoints(), reader.log_tail()) == ([], "")
    with pytest.raises(StoreError, match="Step 5 has no recorded response 3") as caught:
        reader.rollout(5, 3)
    assert caught.value.reason == "absent"


def test_reading_in_portions(run: Path):
    with RunWriter(run) as writer:
        for step in range(1, 8):
            writer.commit_step(step_record(step, samples=0 if step % 2 else 1))
    reader = RunReader(run)
    assert [step for step, _ in reader.metrics_since(0, limit=3)] == [1, 2, 3]
    assert [step for step, _ in reader.metrics_since(3)] == [4, 5, 6, 7]
    assert reader.metrics_since(7) == []
    assert [event.text for event in reader.events_since(2, limit=2)] == ["step 3", "step 4"]
    assert reader.rollout_steps() == [2, 4, 6]
    assert [(step, row["objective/scores"]) for step, row in reader.metrics_since(0)] == [(step, float(step)) for step in range(1, 8)]


def test_every_transaction_is_seen_in_seq_but_heartbeats_are_not(run: Path):
    with RunWriter(run) as writer:
        reader = RunReader(run)
        actions = [
            lambda: writer.set_state("running"),
            lambda: writer.commit_step(step_record(1)),
            lambda: writer.event(EventRecord("info", "phase", "text")),
            lambda: writer.watched(0, []),
            lambda: writer.go_back(0),
        ]
        for action in actions:
            before = reader.status().seq
            action()
            assert reader.status().seq == before + 1


def test_states_and_times(run: Path):
    with EngineLock(run), RunWriter(run) as writer:
        reader = RunReader(run)
        writer.set_state("loading", "Loading \ud800 (1 of 2)", 0.25, device="cpu")
        status = reader.status()
        assert (status.state, status.phase, status.fraction, status.device) == ("loading", "Loading \ud800 (1 of 2)", 0.25, "cpu")
        assert status.started_at is not None and status.ended_at is None and status.heartbeat_age is not None
        started = status.started_at
        for fraction, expected in ((7.0, 1.0), (-1.0, 0.0), (math.nan, None), (None, None)):
            writer.set_state("running", fraction=fraction)
            assert reader.status().fraction == expected
        writer.set_state("failed", cause="The loss is not finite.")
        status = reader.status()
        assert (status.state, status.cause, status.device, status.started_at) == ("failed", "The loss is not finite.", "cpu", started)
        assert status.ended_at is not None
        writer.set_state("loading")  # resumed
        status = reader.status()
        assert (status.ended_at, status.cause, status.started_at) == (None, "", started)
        for state in ("interrupted", "queued", "dancing"):
            with pytest.raises(ValueError, match="not for an engine to store"):
                writer.set_state(state)  # type: ignore[arg-type]


def test_going_back(run: Path):
    with RunWriter(run) as writer:
        writer.watched(0, [WatchRecord(0, "p", "start", 0.0, None)])
        writer.watched(0, [WatchRecord(0, "p", "again", 0.0, None)])  # a resume from the beginning asks once more
        for step in range(1, 6):
            writer.commit_step(step_record(step))
        writer.go_back(2)
        reader = RunReader(run)
        status = reader.status()
        assert (status.step, status.epoch) == (2, 1)
        assert [step for step, _ in reader.metrics_since(0)] == [1, 2] == reader.rollout_steps()
        assert [(step, watch.response) for step, watch in reader.watched()] == [(0, "again"), (1, "answer 1"), (2, "answer 2")]
        assert reader.rollouts(3) == [] and len(reader.events_since(0)) == 5
        writer.commit_step(step_record(3))
        with pytest.raises(StoreError, match="it is at step 3"):
            writer.go_back(99)
        assert (reader.status().step, reader.status().epoch) == (3, 1)
        assert same(reader.rollout(3, 1), step_record(3).rollouts[1])


# --- all or nothing ----------------------------------------------------------------------------------------------------------


def everything(reader: RunReader) -> list:
    steps = reader.rollout_steps()
    return [
        reader.stored(),
        reader.status().step,
        reader.metrics_since(0),
        reader.events_since(0),
        reader.watched(),
        [reader.rollout(step, row.sample) for step in steps for row in reader.rollouts(step)],
    ]


def test_a_commit_that_fails_leaves_nothing_and_may_be_repeated(run: Path, monkeypatch: pytest.MonkeyPatch):
    with RunWriter(run) as writer:
        writer.commit_step(step_record(1))
        reader = RunReader(run)
        before = everything(reader)
        commit = schema.commit
        errors = {"database or disk is full": "The disk is full", "disk I/O error": "Check the disk"}
        for text, sentence in errors.items():

            def fail(connection: sqlite3.Connection, text: str = text) -> None:
                raise sqlite3.OperationalError(text)

            monkeypatch.setattr(schema, "commit", fail)
            record = replace(step_record(2), metrics={"new name": 1.0, "objective/kl": 2.0})
            with pytest.raises(StoreError, match=sentence):
                writer.commit_step(record)
            assert same(everything(reader), before)
        monkeypatch.setattr(schema, "commit", commit)
        writer.event(EventRecord("info", "phase", "in between"))
        writer.commit_step(record)
        assert reader.metrics_since(1) == [(2, {"new name": 1.0, "objective/kl": 2.0})]  # its id was not remembered wrongly


def test_a_real_full_database(run: Path):
    with RunWriter(run) as writer:
        writer.set_state("running")
        writer.commit_step(step_record(1))
        pages = writer._connection.execute("PRAGMA page_count").fetchone()[0]
        writer._connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        reader = RunReader(run)
        before = everything(reader)
        big = replace(step_record(2), rollouts=[rollout(0, response="x" * 100_000)])
        with pytest.raises(StoreError, match="The disk is full") as caught:
            writer.commit_step(big)
        assert caught.value.reason == "full"
        assert same(everything(reader), before)
        writer.set_state("failed", cause=str(caught.value))
        assert reader.status().cause.startswith("The disk is full")
        writer._connection.execute("PRAGMA max_page_count = 100000")
        writer.commit_step(big)
        assert reader.rollout(2, 0).response == "x" * 100_000


def test_the_reserve_makes_room_for_the_last_words(run: Path, monkeypatch: pytest.MonkeyPatch):
    assert (run / create.RESERVE).stat().st_size == create.RESERVE_BYTES
    with EngineLock(run):
        with RunWriter(run) as writer:
            commit = schema.commit

            def full_while_reserved(connection: sqlite3.Connection) -> None:
                if (run / create.RESERVE).exists():
                    raise sqlite3.OperationalError("database or disk is full")
                commit(connection)

            monkeypatch.setattr(schema, "commit", full_while_reserved)
            with pytest.raises(StoreError):
                writer.commit_step(step_record(1))
            with pytest.raises(StoreError):
                writer.event(EventRecord("info", "phase", "not worth the reserve"))
            assert (run / create.RESERVE).exists()
            writer.event(EventRecord("error", "failure", "no space"))  # either of the two last words gives it up
            assert not (run / create.RESERVE).exists()
            create.write_reserve(run)
            writer.set_state("failed", cause="no space")
            assert RunReader(run).status().cause == "no space"
            monkeypatch.setattr(schema, "commit", lambda connection: full_while_reserved(connection) or connection.execute("nonsense"))
            with pytest.raises(StoreError):  # without a reserve the error comes through
                writer.set_state("failed")
            monkeypatch.setattr(schema, "commit", commit)
        with RunWriter(run):
            assert (run / create.RESERVE).exists()  # and is set aside again by the next start


def test_a_start_on_a_full_disk_is_refused(run: Path, monkeypatch: pytest.MonkeyPatch):
    (run / create.RESERVE).unlink()

    def full(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(create, "write_reserve", full)
    with pytest.raises(StoreError, match="The disk is full"):
        RunWriter(run)


def test_errors_of_a_broken_connection_are_sentences(run: Path, monkeypatch: pytest.MonkeyPatch):
    writer = RunWriter(run)
    with sqlite3.connect(run / "run.db") as connection:
        connection.execute("DROP TABLE commands")
    with pytest.raises(StoreError, match="damaged"):
        writer.pending_commands()

    def broken(*_: object, **__: object) -> str:
        raise sqlite3.DatabaseError("database disk image is malformed")

    monkeypatch.setattr(schema, "set_journal", broken)
    with pytest.raises(StoreError, match="damaged"):
        writer.close()
    with pytest.raises(StoreError, match="damaged"):
        RunWriter(run)


def test_readers_never_see_half_a_step(run: Path):
    problems: list[str] = []
    done = threading.Event()
    rounds = [0, 0]

    def watch(number: int) -> None:
        reader = RunReader(run)  # also: one reader per thread, and below one shared
        while not done.is_set():
            with reader.snapshot():
                step = reader.status().step
                metrics = reader.metrics_since(0, limit=10_000)
                rollouts = reader.rollout_steps()
                last = reader.rollout(step, 1) if step else None
                events = reader.events_since(0, limit=10_000)
            complete = [number for number, values in metrics if len(values) == 3]
            if not (complete == rollouts == list(range(1, step + 1)) and len(events) == step):
                problems.append(f"{step}: {complete} {rollouts} {len(events)}")
            if last is not None and (last.score != step or last.tokens is None or len(last.tokens.arrays) != 13):
                problems.append(f"{step}: {last}")
            rounds[number] += 1

    threads = [threading.Thread(target=watch, args=(number,)) for number in range(2)]
    with RunWriter(run) as writer:
        for thread in threads:
            thread.start()
        for step in range(1, 61):
            writer.commit_step(step_record(step))
        wait_until(lambda: min(rounds) > 3)
        done.set()
        for thread in threads:
            thread.join()
    assert problems == []


def test_a_snapshot_is_one_moment_and_errors_inside_are_the_callers(run: Path):
    with RunWriter(run) as writer:
        reader = RunReader(run)
        writer.commit_step(step_record(1))
        with reader.snapshot():
            writer.commit_step(step_record(2))
            writer.go_back(1)
            assert reader.status().step == 1 and reader.status().epoch == 0
        assert reader.status().epoch == 1
        with EngineLock(run):
            writer.set_state("running")
            with reader.snapshot():
                writer.set_state("finished")
                assert reader.status().state == "running"
        with EngineLock(run):
            writer.set_state("running")
            moment = reader.snapshot()
            moment.__enter__()
        writer.set_state("finished")
        assert reader.status().state == "running"  # it was, at that moment: never "interrupted" because the lock is free by now
        moment.__exit__(None, None, None)
        assert reader.status().state == "finished"
        with pytest.raises(KeyError), reader.snapshot():
            raise KeyError("mine")
        assert reader.status().epoch == 1


def test_one_writer_may_be_used_by_several_threads(run: Path):
    with RunWriter(run) as writer:
        threads = [
            threading.Thread(target=lambda: [writer.event(EventRecord("info", "phase", "text")) for _ in range(20)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [event.id for event in RunReader(run).events_since(0)] == list(range(1, 81))
