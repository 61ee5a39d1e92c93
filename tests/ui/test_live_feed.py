"""The feed: what viewers are told, how little is read from disk, and what happens when a run is cut back, breaks or goes."""

from __future__ import annotations

import json
import shutil
import time
from types import SimpleNamespace

import pytest

from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import EventRecord, StepRecord
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.runs.writer import RunWriter
from rlhf_studio.ui.live import feed as live_feed
from rlhf_studio.ui.live.feed import LiveFeed
from rlhf_studio.ui.live.snapshot import Position
from tests.runs.stage_helpers import write_stage_run
from tests.ui.fake_run import FakeRun, config
from tests.ui.polls import ask
from tests.waiting import wait_until

DEADLINE = 20


class CountingReader(RunReader):
    """Counts the reads of a run's data."""

    reads: dict[str, int] = {}

    def _count(self, name):
        self.reads[name] = self.reads.get(name, 0) + 1

    def metrics_since(self, *arguments, **options):
        self._count("metrics")
        return super().metrics_since(*arguments, **options)

    def rollouts(self, step):
        self._count("rollouts")
        return super().rollouts(step)


@pytest.fixture
def workspace(tmp_path):
    return Workspace(tmp_path)


@pytest.fixture
def feed(workspace):
    CountingReader.reads = {}
    feed = LiveFeed(workspace, open_reader=CountingReader, interval=0.02)
    yield feed
    feed.close()


@pytest.fixture
def run(tmp_path):
    run = FakeRun(tmp_path)
    run.run()
    yield run
    run.close()


def position_after(run, reply, **changes):
    event = max((row["id"] for row in reply["events"]), default=0)
    known = {"run": run.run_id, "version": reply["version"], "epoch": reply["epoch"], "step": reply["last_step"], "event": event}
    return Position(**{**known, **changes})


def test_a_new_viewer_gets_everything_and_then_only_what_is_new(feed, run):
    run.step(3)
    first = ask(feed, Position(run=run.run_id))
    assert first["full"] and first["last_step"] == 3 and first["settings"]["kl_target"] == 6.0 and first["sample_steps"] == [[1, 3]]
    at = position_after(run, first)
    assert ask(feed, at) == {"same": True}
    run.step(2)
    news = ask(feed, at, until=lambda reply: reply.get("last_step") == 5)
    assert not news["full"] and "settings" not in news and news["series"]["x"][0] == [4, 5]
    assert news["status"]["step"] == 5 and news["sample_steps"] == [[1, 5]]


def test_the_curves_of_a_stage_begin_with_what_was_measured_before_training(feed, workspace):
    """The measurements are in the event ``start``. A viewer who asked before that event gets them, too."""
    reader = write_stage_run(workspace.root, "sft", [], state="running")
    run = SimpleNamespace(run_id=reader.run_dir.name)
    early = ask(feed, Position(run=run.run_id))
    assert early["last_step"] == 0 and early["series"]["names"] == []
    with RunWriter(reader.run_dir) as writer:
        measured = {"sft/eval_loss": 4.0, "sft/eval_perplexity": 54.6}
        writer.event(EventRecord("info", "start", "Before training.", {**measured, "note": "no number"}))
        first = ask(feed, position_after(run, early), until=lambda reply: reply.get("series", {}).get("names"))
        writer.commit_step(StepRecord(1, {"sft/loss": 3.0, "sft/eval_loss": 3.5, "episode": 64.0}, []))
    later = ask(feed, position_after(run, first), until=lambda reply: reply.get("last_step") == 1)
    new = ask(feed, Position(run=run.run_id))
    for reply, steps, losses in ((first, [0], [4.0]), (later, [0, 1], [4.0, 3.5]), (new, [0, 1], [4.0, 3.5])):
        series, index = reply["series"], reply["series"]["names"].index("sft/eval_loss")
        assert reply["full"] and "note" not in series["names"]
        assert series["x"][series["at"][index]] == steps and series["y"][index] == losses
    assert new["series"]["y"][new["series"]["names"].index("episode")] == [0, 64]


def test_a_run_that_began_again_has_the_step_0_of_its_newest_beginning(feed, workspace):
    """For a viewer who was there at the first one, and for a new one."""
    reader = write_stage_run(workspace.root, "sft", [], state="running")
    run = SimpleNamespace(run_id=reader.run_dir.name)
    with RunWriter(reader.run_dir) as writer:
        writer.event(EventRecord("info", "start", "Before training.", {"sft/eval_loss": 4.0}))
        writer.commit_step(StepRecord(1, {"sft/loss": 3.0, "sft/eval_loss": 3.5}, []))
    watching = ask(feed, Position(run=run.run_id), until=lambda reply: reply.get("last_step") == 1)
    assert held_out(watching) == [4.0, 3.5]
    with RunWriter(reader.run_dir) as writer:
        writer.go_back(0)
        begun = ask(feed, position_after(run, watching), until=lambda reply: reply.get("last_step") == 0)
        assert held_out(begun) == [4.0]  # until the new beginning is measured
        writer.event(EventRecord("info", "start", "Before training.", {"sft/eval_loss": 5.0}))
        again = ask(feed, position_after(run, begun), until=lambda reply: "series" in reply)
        writer.commit_step(StepRecord(1, {"sft/loss": 3.0, "sft/eval_loss": 4.5}, []))
    later = ask(feed, position_after(run, again), until=lambda reply: reply.get("last_step") == 1)
    new = ask(feed, Position(run=run.run_id))
    assert again["full"] and (held_out(again), held_out(later), held_out(new)) == ([5.0], [5.0, 4.5], [5.0, 4.5])


def held_out(reply):
    series = reply["series"]
    return series["y"][series["names"].index("sft/eval_loss")]


def test_events_come_once(feed, run):
    first = ask(feed, Position(run=run.run_id))
    assert [event["kind"] for event in first["events"]] == ["phase"]
    run.step(7)
    news = ask(feed, position_after(run, first), until=lambda reply: reply.get("last_step") == 7)
    assert [event["kind"] for event in news["events"]] == ["health"]


def test_many_viewers_share_the_bytes_and_one_read_per_change(feed, run):
    run.step(2)
    first = ask(feed, Position(run=run.run_id))
    reads = CountingReader.reads["metrics"]
    answers = {feed.poll(Position(run=run.run_id)) for _ in range(200)}
    bodies = [feed.poll(Position(run=run.run_id)) for _ in range(2)]
    assert len(answers) == 1 and bodies[0] is bodies[1]
    assert CountingReader.reads["metrics"] == reads
    run.step()
    at = position_after(run, first)
    ask(feed, at, until=lambda reply: reply.get("last_step") == 3)
    for _ in range(200):
        feed.poll(at)
    assert CountingReader.reads["metrics"] - reads <= 2  # one with rows, one that finds no more


def test_details_are_read_once_however_many_ask(feed, run):
    run.step(2)
    ask(feed, Position(run=run.run_id), until=lambda reply: reply["last_step"] == 2)
    before = CountingReader.reads["rollouts"]
    answers = [feed.detail(run.run_id, "samples", 2) for _ in range(50)]
    assert len({answer.result(DEADLINE) for answer in answers}) == 1
    assert CountingReader.reads["rollouts"] == before + 1
    tokens = json.loads(feed.detail(run.run_id, "tokens", 2, 3).result(DEADLINE))
    assert tokens["sample"] == 3 and len(tokens["tokens"]["arrays"]["advantages"]) == len(tokens["tokens"]["response_pieces"])


def test_a_step_that_is_not_there_yet_is_not_remembered_as_empty(feed, run):
    run.step()
    ask(feed, Position(run=run.run_id), until=lambda reply: reply["last_step"] == 1)
    assert json.loads(feed.detail(run.run_id, "samples", 2).result(DEADLINE))["rows"] == []
    run.step()
    assert len(json.loads(feed.detail(run.run_id, "samples", 2).result(DEADLINE))["rows"]) == 12


def test_a_viewer_of_a_cut_history_starts_over(feed, run):
    run.step(6)
    first = ask(feed, Position(run=run.run_id), until=lambda reply: reply["last_step"] == 6)
    run.writer.go_back(2)
    run.step_number = 2
    again = ask(feed, position_after(run, first), until=lambda reply: reply.get("epoch") == 1)
    assert again["full"] and again["series"]["x"][0] == [1, 2] and again["sample_steps"] == [[1, 2]]
    run.step()
    later = ask(feed, position_after(run, again), until=lambda reply: reply.get("last_step") == 3)
    assert not later["full"] and later["series"]["x"][0] == [3]


def test_a_viewer_far_behind_gets_a_full_copy(feed, run):
    run.step(1)
    for step in range(2, 600):
        run.writer.commit_step(type(run)._bare(step))
    reply = ask(feed, Position(run=run.run_id, epoch=0, step=1), until=lambda reply: reply.get("last_step") == 599)
    assert reply["full"] and len(reply["series"]["x"][0]) == 599
    near = ask(feed, Position(run=run.run_id, epoch=0, step=580))
    assert not near["full"] and len(near["series"]["x"][0]) == 19


def test_a_number_that_was_not_finite_is_null(feed, run):
    run.step(4)  # the fake run's gold score is NaN at step 4
    reply = ask(feed, Position(run=run.run_id), until=lambda reply: reply["last_step"] == 4)
    gold = reply["series"]["y"][reply["series"]["names"].index("gold/score")]
    assert gold[3] is None and gold[2] is not None


def test_an_ended_run_is_summed_up_by_its_first_step_and_its_last_tenth(feed, workspace, tmp_path):
    ended = FakeRun(tmp_path)
    ended.run()
    ended.step(21)  # a tenth is two steps
    first = ask(feed, Position(run=ended.run_id), until=lambda reply: reply["last_step"] == 21)
    assert first["status"]["first"] == first["status"]["last"] == {}
    ended.finish()
    over = ask(feed, position_after(ended, first), until=lambda reply: not reply.get("same"))["status"]
    names, values = first["series"]["names"], first["series"]["y"]
    for name in ("objective/scores", "objective/kl", "tokens/response_length"):
        series = values[names.index(name)]
        assert over["first"][name] == pytest.approx(series[0], rel=1e-4), name
        assert over["last"][name] == pytest.approx(sum(series[-2:]) / 2, rel=1e-4), name


def test_a_killed_engine_shows_as_interrupted_and_a_failed_one_with_its_cause(feed, run, tmp_path):
    run.step()
    first = ask(feed, Position(run=run.run_id))
    run.lock.release()
    gone = ask(feed, position_after(run, first), until=lambda reply: not reply.get("same"))
    assert gone["status"]["state"] == "interrupted"
    failing = FakeRun(tmp_path)
    failing.run()
    failing.step(2)
    failing.fail("It broke. Do this next.")
    status = ask(feed, Position(run=failing.run_id))["status"]
    assert status["cause"] == "It broke. Do this next." and status["first"] and status["last"], "how far it came"


def test_a_queued_run_has_its_position(feed, workspace):
    workspace.submit(config(), "first")
    second = workspace.submit(config(), "second")
    reply = ask(feed, Position(run=second))
    assert reply["status"]["state"] == "queued" and reply["status"]["queue_position"] == 2 and reply["last_step"] == 0


def test_unknown_and_deleted_runs_are_missing(feed, run):
    assert ask(feed, Position(run="nobody-here")) == {"missing": True}
    ask(feed, Position(run=run.run_id))
    shutil.rmtree(run.folder)
    assert ask(feed, Position(run=run.run_id), until=lambda reply: "missing" in reply) == {"missing": True}


def test_a_damaged_run_says_what_is_wrong(feed, tmp_path):
    folder = tmp_path / "runs" / "20261121-000000-broken"
    folder.mkdir(parents=True)
    (folder / "run.db").write_bytes(b"not a database at all" * 100)
    (folder / "config.yaml").write_text("{}", encoding="utf-8")
    assert "run.db" in ask(feed, Position(run=folder.name))["problem"]


def test_what_goes_wrong_with_one_run_is_said_to_its_viewers_once_logged_and_nobody_elses_trouble(feed, run, tmp_path, monkeypatch, caplog):
    odd = FakeRun(tmp_path)
    of_all = CountingReader.rollout_steps
    monkeypatch.setattr(CountingReader, "rollout_steps", lambda self: 1 / 0 if self.run_dir == odd.folder else of_all(self))
    monkeypatch.setattr(live_feed, "BROKEN_REST", 0.0)
    broken = ask(feed, Position(run=odd.run_id))
    assert "ZeroDivisionError" in broken["problem"]
    run.step()
    later = ask(feed, Position(run=run.run_id), until=lambda reply: reply["last_step"] == 1)  # opened after the odd one
    run.step()
    assert ask(feed, position_after(run, later), until=lambda reply: not reply.get("same"))["last_step"] == 2
    assert ask(feed, Position(), until=lambda reply: reply["newest"])["alive"] is True
    assert len([record for record in caplog.records if odd.run_id in record.getMessage()]) == 1
    monkeypatch.setattr(CountingReader, "rollout_steps", of_all)
    assert ask(feed, Position(run=odd.run_id), until=lambda reply: "problem" not in reply)["last_step"] == 0
    odd.close()


def test_the_list_names_the_newest_run_and_prefers_one_that_is_alive(feed, workspace, tmp_path):
    assert ask(feed, Position()) == {"newest": None, "alive": False, "recordings": []}
    alive = FakeRun(tmp_path)
    alive.run()
    workspace.submit(config(), "waits")
    assert ask(feed, Position(), until=lambda reply: reply["newest"]) == {"newest": alive.run_id, "alive": True, "recordings": []}
    feed._listing_asked, feed._listing_read = 0.0, time.monotonic() - 3600  # an hour passed in which nobody asked
    assert feed.poll(Position()) == live_feed.OPENING, "what was read then answers nobody now"
    alive.close()


def test_details_of_nonsense_are_refused_in_words(feed, run):
    for arguments in (("../../etc", "samples"), (run.run_id, "secrets"), ("nobody-here", "log"), (run.run_id, "tokens", 99, 0)):
        assert json.loads(feed.detail(*arguments).result(DEADLINE))["problem"]


def test_an_unexpected_fault_is_answered_and_the_thread_lives_on(feed, run, monkeypatch):
    ask(feed, Position(run=run.run_id))
    monkeypatch.setattr(CountingReader, "watched", lambda self, **options: 1 / 0)
    assert "ZeroDivisionError" in json.loads(feed.detail(run.run_id, "watched").result(DEADLINE))["problem"]
    assert "engine started" in json.loads(feed.detail(run.run_id, "log").result(DEADLINE))["text"]


def test_the_log_is_shown_without_access_tokens(feed, run):
    text = json.loads(feed.detail(run.run_id, "log").result(DEADLINE))["text"]
    assert "engine started" in text and "AAAAAAAA" not in text


def test_runs_nobody_watches_are_forgotten(workspace, run):
    feed = LiveFeed(workspace, interval=0.02, forget_after=0.1)
    try:
        ask(feed, Position(run=run.run_id))
        wait_until(lambda: not feed._followers, DEADLINE)
        assert not feed._answers
    finally:
        feed.close()


def test_too_many_runs_at_once_are_refused(feed, run, tmp_path, monkeypatch):
    monkeypatch.setattr(live_feed, "MOST_RUNS", 1)
    other = FakeRun(tmp_path)
    ask(feed, Position(run=run.run_id))
    assert "Too many" in ask(feed, Position(run=other.run_id))["problem"]
    assert b"Too many" in feed.detail(other.run_id, "log").result(DEADLINE)
    assert "problem" not in ask(feed, Position(run=run.run_id))
    other.close()


def test_names_that_no_run_has_keep_nobody_from_watching(feed, run, monkeypatch):
    """Whoever makes up names must not take the places of those who watch runs."""
    for number in range(200):
        feed.poll(Position(run=f"run-number-{number}"))
    assert ask(feed, Position(run=run.run_id))["last_step"] == 0
    assert ask(feed, Position(run="run-number-7")) == {"missing": True}
    monkeypatch.setattr(live_feed, "FORGET_MISSING", 0.0)
    wait_until(lambda: len(feed._asked_at) <= 1, DEADLINE)
    assert set(feed._asked_at) == {run.run_id} and set(feed._answers) == {run.run_id}
    monkeypatch.setattr(live_feed, "MOST_ASKED", 1)
    assert b"Too many" in feed.poll(Position(run="one-too-many"))


def test_requests_wait_in_a_bounded_line(feed, run, monkeypatch):
    monkeypatch.setattr(live_feed, "MOST_WAITING", 0)
    assert b"Try again in a moment" in feed.detail(run.run_id, "log").result(0)


def test_of_the_watched_answers_only_the_first_and_the_newest_are_read(feed, run, monkeypatch):
    every = run.config.engine.watch_every
    run.step(3 * every)
    held = CountingReader.watched
    read = []
    monkeypatch.setattr(CountingReader, "watched", lambda self, **options: read.append(held(self, **options)) or read[-1])
    rows = json.loads(feed.detail(run.run_id, "watched").result(DEADLINE))["rows"]
    answer = json.loads(feed.detail(run.run_id, "answer", 0, rows[0]["sample"]).result(DEADLINE))
    assert {(row["before"]["step"], row["now"]["step"]) for row in rows} == {(0, 3 * every)}
    assert (answer["before"]["step"], answer["now"]["step"]) == (0, 3 * every)
    assert [{step for step, _ in records} for records in read] == [{0, 3 * every}] * 2
    assert {step for step, _ in held(RunReader(run.folder))} == {0, every, 2 * every, 3 * every}


def test_numbers_that_matter_not_make_no_second_reading(feed, run, monkeypatch):
    run.step()
    read = []
    held = CountingReader.watched
    monkeypatch.setattr(CountingReader, "watched", lambda self, **options: read.append(1) or held(self, **options))
    first = feed.detail(run.run_id, "watched", 1, 1).result(DEADLINE)
    assert [feed.detail(run.run_id, "watched", step, sample).result(DEADLINE) for step, sample in ((0, 5), (1, 7))] == [first] * 2
    assert len(read) == 1


@pytest.mark.parametrize(
    "data", [None, 7, "x", [], {"run": "../x"}, {"run": 5, "step": True, "epoch": "1", "event": 1.5, "follows": -2}, {"run": "a" * 101}]
)
def test_a_malformed_position_is_nowhere(data):
    assert Position.parse(data) == Position()


def test_a_position_is_read():
    sent = {"run": "20261121-000000-abcdef", "version": "v", "epoch": 2, "step": 7, "event": 3, "follows": -1}
    assert Position.parse(sent) == Position("20261121-000000-abcdef", "v", 2, 7, 3, follows=-1)
