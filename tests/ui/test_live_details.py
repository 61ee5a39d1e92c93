"""Details of a run on the Live page: kept for those who ask next, and sent along to those who follow the newest step."""

from __future__ import annotations

import json

import pytest

from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.live.feed import LiveFeed
from rlhf_studio.ui.live.snapshot import Position
from tests.ui.fake_run import FakeRun
from tests.ui.polls import ask, poll

DEADLINE = 20


@pytest.fixture
def feed(tmp_path):
    feed = LiveFeed(Workspace(tmp_path), interval=0.02)
    yield feed
    feed.close()


@pytest.fixture
def run(tmp_path):
    run = FakeRun(tmp_path)
    run.run()
    yield run
    run.close()


def is_at(feed, run, step, epoch=0):
    """Wait until the feed has read a step."""
    ask(feed, Position(run.run_id), until=lambda reply: (reply["last_step"], reply["epoch"]) == (step, epoch))


def following(feed, run, follows):
    """The answer to a viewer at step 0 who shows the samples of the step ``follows``."""
    return poll(feed, Position(run.run_id, "", 0, 0, 0, follows=follows))


def test_who_follows_the_newest_step_gets_its_samples_with_the_poll_once_one_has_asked(feed, run):
    run.step(3)
    is_at(feed, run, 3)
    assert "samples" not in following(feed, run, -1)  # nobody has asked for them yet
    detail = json.loads(feed.detail(run.run_id, "samples", 3, -1).result(DEADLINE))
    assert following(feed, run, -1)["samples"] == following(feed, run, 2)["samples"] == detail
    assert detail["step"] == 3 and detail["rows"] and detail["chosen"]["tokens"]
    assert "samples" not in following(feed, run, 3)  # they are shown already
    assert "samples" not in following(feed, run, None)  # another step was chosen
    version = following(feed, run, 3)["version"]
    assert "samples" not in poll(feed, Position(run.run_id, version, 0, 3, 0, follows=1))  # nothing new: the page asks by itself


def test_samples_of_before_a_resume_are_not_those_of_the_newest_step(feed, run):
    run.step(3)
    is_at(feed, run, 3)
    before = json.loads(feed.detail(run.run_id, "samples", 3, -1).result(DEADLINE))
    run.writer.go_back(2)
    run.step_number = 2
    run.step()
    is_at(feed, run, 3, epoch=1)
    assert "samples" not in following(feed, run, 3)
    after = json.loads(feed.detail(run.run_id, "samples", 3, -1).result(DEADLINE))
    assert following(feed, run, 3)["samples"] == after != before  # the step has the same number


def test_what_was_asked_for_before_is_answered_without_the_thread(feed, run):
    run.step()
    is_at(feed, run, 1)
    first = feed.detail(run.run_id, "samples", 1, -1).result(DEADLINE)
    again = feed.detail(run.run_id, "samples", 1, -1)
    assert again.done() and again.result() == first
