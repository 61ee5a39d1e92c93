"""The thread that runs the analyses: once for everybody, never twice for the same step, and never in a poll's way."""

from __future__ import annotations

import json
import threading

import pytest

from rlhf_studio.analysis.records import Diagnosis, Verdict
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui import insights
from rlhf_studio.ui.insights import Insights, Place
from tests.ui import fake_insights
from tests.ui.fake_run import FakeRun

WAIT = 20


@pytest.fixture
def run(tmp_path):
    run = FakeRun(tmp_path)
    run.run()
    run.step(3)
    yield run
    run.close()


@pytest.fixture
def made(monkeypatch):
    """The analyses that were made, as (kind, step); a rest between two is not kept."""
    calls = []

    def counted(kind, analysis):
        def analyse(reader):
            calls.append((kind, reader.status().step))
            return analysis(reader)

        return analyse

    own = fake_insights.analyses()
    monkeypatch.setattr(insights, "analyses", lambda: {kind: counted(kind, analysis) for kind, analysis in own.items()})
    monkeypatch.setattr(insights, "REST", 0)
    monkeypatch.setattr(insights, "LEAST_REST", 0)
    return calls


@pytest.fixture
def seen(tmp_path, made):
    seen = Insights(Workspace(tmp_path))
    yield seen
    seen.close()


def place(run, state="running"):
    return Place(0, run.step_number, state)


def told(seen, run, kind, where=None):
    return json.loads(seen.detail(run.run_id, kind, where or place(run)).result(timeout=WAIT))


def test_many_viewers_cost_one_analysis_of_each_kind_and_step(seen, run, made):
    asked = [seen.detail(run.run_id, kind, place(run)) for kind in ("diagnosis", "learned") for _ in range(20)]
    bodies = {answer.result(timeout=WAIT) for answer in asked}
    assert len(bodies) == 2 and sorted(made) == [("diagnosis", 3), ("learned", 3)]
    assert told(seen, run, "diagnosis")["verdict"]["kind"] == "improving" and len(made) == 2
    version, verdict = seen.watch(run.run_id, place(run))
    assert version == "0-3-0" and json.loads(verdict) == {
        "kind": "improving",
        "sentence": "Improving. Reviews turn friendly; “tender” now ends 9 of 16 responses: the judge may be fooled by it.",
        "note": "Gold rose less than the score.",
        "step": 3,
        "alarms": 0,
        "warnings": 0,
        "notes": 1,
    }


def test_the_scale_of_the_run_is_made_when_asked_for_and_once_for_each_step(seen, run, made):
    seen.watch(run.run_id, place(run))
    told(seen, run, "diagnosis")
    assert ("scales", 3) not in made
    for _ in range(2):
        found = told(seen, run, "scales")
    reader = RunReader(run.folder)
    recorded = [reader.rollout(step, row.sample).tokens.arrays["advantages"] for step in (1, 2, 3) for row in reader.rollouts(step)]
    largest = max(float(abs(values).max()) for values in recorded)
    assert found["scales"]["advantages"] == {"centre": 0.0, "limit": pytest.approx(largest, rel=1e-5)}
    assert (found["used"], found["of"], found["step"]) == (3, 3, 3) and made.count(("scales", 3)) == 1
    run.step()
    assert told(seen, run, "scales")["of"] == 4


def test_a_new_step_and_the_end_are_looked_at_again(seen, run, made):
    told(seen, run, "diagnosis")
    run.step()
    told(seen, run, "diagnosis")  # what is known serves until the new one is made
    ended = told(seen, run, "diagnosis", place(run, "finished"))
    assert ended["step"] == 4 and ("diagnosis", 4) in made
    count = made.count(("diagnosis", 4))
    told(seen, run, "diagnosis", place(run, "finished"))
    assert made.count(("diagnosis", 4)) == count


def test_a_poll_never_waits_for_an_analysis(seen, run, monkeypatch):
    go, begun = threading.Event(), threading.Event()

    def slow(reader):
        begun.set()
        assert go.wait(WAIT)
        return Diagnosis(3, Verdict("improving", "Improving.", ""), [])

    monkeypatch.setattr(insights, "analyses", lambda: {"diagnosis": slow, "learned": fake_insights.learned})
    answer = seen.detail(run.run_id, "diagnosis", place(run))
    assert begun.wait(WAIT)
    assert seen.watch(run.run_id, place(run)) == ("", b"") and not answer.done()  # while the analysis is under way
    go.set()
    assert json.loads(answer.result(timeout=WAIT))["step"] == 3


def test_an_analysis_that_fails_is_said_and_not_tried_again_at_the_same_step(seen, run, made, monkeypatch, caplog):
    tries = []

    def broken(reader):
        tries.append(1)
        raise ZeroDivisionError("a secret of the server")

    def refused(reader):
        raise StoreError("The run is damaged.", "damaged")

    monkeypatch.setattr(insights, "analyses", lambda: {"diagnosis": broken, "learned": refused})
    assert told(seen, run, "diagnosis") == {"problem": insights.BROKEN}
    assert told(seen, run, "learned") == {"problem": "The run is damaged."}
    for _ in range(5):
        assert seen.watch(run.run_id, place(run)) == ("", b"")
    assert len(tries) == 1 and "a secret of the server" in caplog.text


def test_numbers_that_are_not_finite_reach_the_page_as_null(seen, run, monkeypatch):
    def odd(reader):
        record = fake_insights.learned(reader)
        return type(record)(
            **{**vars(record), "gaps": [type(record.gaps[0])(3, 0, "score", "gold", float("nan"), 1.0, "\ud800 hf_" + "a" * 20)]}
        )

    monkeypatch.setattr(insights, "analyses", lambda: {"diagnosis": fake_insights.diagnosis, "learned": odd})
    (gap,) = told(seen, run, "learned")["gaps"]
    assert gap["first_value"] is None and gap["response"] == "\ud800 hf_…"


@pytest.mark.parametrize("where", [None, Place(0, 0, "running")])
def test_before_the_first_step_nothing_is_analysed(seen, run, made, where):
    assert seen.watch(run.run_id, where) == ("", b"")
    assert "problem" in json.loads(seen.detail(run.run_id, "learned", where).result(timeout=WAIT)) and made == []


def test_a_run_that_went_back_starts_over(seen, run, made):
    told(seen, run, "diagnosis")
    assert seen.watch(run.run_id, Place(1, 2, "running"))[0] in ("", "1-3-0")
    told(seen, run, "diagnosis", Place(1, 2, "running"))
    assert seen.watch(run.run_id, Place(1, 2, "running"))[0] == "1-3-0"  # the epoch, the step of the record
