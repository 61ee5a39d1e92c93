"""The thread that runs the analyses: once for everybody, never twice for the same step, and never in a poll's way."""

from __future__ import annotations

import functools
import json
import threading

import pytest

from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.insights import BROKEN, Insights, Place, worker
from rlhf_studio.ui.insights.analyses import MOST_KEPT, Analyses
from tests.ui import fake_insights
from tests.ui.fake_run import FakeRun
from tests.waiting import wait_until

WAIT = 20
SENTENCE = "Improving. Reviews turn friendly; “tender” now ends 9 of 16 responses: the judge may be fooled by it."


@pytest.fixture
def run(tmp_path):
    run = FakeRun(tmp_path)
    run.run()
    run.step(3)
    yield run
    run.close()


@pytest.fixture
def others(tmp_path):
    """Three more runs, for the table."""
    runs = [FakeRun(tmp_path, seed=seed) for seed in (1, 2, 3)]
    for other in runs:
        other.run()
        other.step(2)
    yield runs
    for other in runs:
        other.close()


class Made(list):
    """The analyses that were made, as (kind, step); ``runs`` are theirs, ``begun`` counts how often one began anew for a run.

    ``gate`` holds up the next one while it is cleared.
    """

    def __init__(self):
        super().__init__()
        self.runs, self.begun, self.gate, self.waits = [], [], threading.Event(), threading.Event()
        self.gate.set()

    def find(self):
        return {kind: functools.partial(self._begin, kind, begin) for kind, begin in fake_insights.analyses().items()}

    def _begin(self, kind, begin, reader):
        self.begun.append((kind, reader.run_dir.name))
        analysis = begin(reader)

        def analyse():
            self.append((kind, reader.status().step))
            self.runs.append((kind, reader.run_dir.name))
            self.waits.set()
            assert self.gate.wait(WAIT)
            return analysis()

        return analyse


@pytest.fixture
def made(monkeypatch):
    """What was made; a rest between two is not kept."""
    monkeypatch.setattr(worker, "REST", 0)
    return Made()


@pytest.fixture
def seen(tmp_path, made):
    seen = Insights(Workspace(tmp_path), find_analyses=made.find, rests=(0.0, 0.0))
    yield seen
    made.gate.set()
    seen.close()


def with_analyses(tmp_path, **found):
    """Insights with these analyses, which are functions of a reader."""
    begin = {kind: functools.partial(functools.partial, analysis) for kind, analysis in found.items()}
    return Insights(Workspace(tmp_path), find_analyses=lambda: begin)


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
        "sentence": SENTENCE,
        "note": "Gold rose less than the score.",
        "step": 3,
        "alarms": 0,
        "warnings": 0,
        "notes": 1,
        "directions": {"objective/scores": 1, "gold/score": -1},
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


def test_a_poll_never_waits_for_an_analysis(seen, run, made):
    made.gate.clear()
    answer = seen.detail(run.run_id, "diagnosis", place(run))
    assert made.waits.wait(WAIT)
    assert seen.watch(run.run_id, place(run)) == ("", b"") and not answer.done()  # while the analysis is under way
    assert seen.verdicts({run.run_id: place(run)}) == {}
    made.gate.set()
    assert json.loads(answer.result(timeout=WAIT))["step"] == 3


def test_an_analysis_that_fails_is_said_and_not_tried_again_at_the_same_step(tmp_path, run, made, caplog):
    tries = []

    def broken(reader):
        tries.append(1)
        raise ZeroDivisionError("a secret of the server")

    def refused(reader):
        raise StoreError("The run is damaged.", "damaged")

    seen = with_analyses(tmp_path, diagnosis=broken, learned=refused)
    assert told(seen, run, "diagnosis") == {"problem": BROKEN}
    assert told(seen, run, "learned") == {"problem": "The run is damaged."}
    for _ in range(5):
        assert seen.watch(run.run_id, place(run)) == ("", b"") and seen.verdicts({run.run_id: place(run)}) == {}
    with pytest.raises(StoreError, match="could not be made"):
        seen.kind_of(run.run_id, place(run))
    assert len(tries) == 1 and "a secret of the server" in caplog.text
    seen.close()


def test_numbers_that_are_not_finite_reach_the_page_as_null(tmp_path, run):
    def odd(reader):
        record = fake_insights.learned(reader)
        return type(record)(
            **{**vars(record), "gaps": [type(record.gaps[0])(3, 0, "score", "gold", float("nan"), 1.0, "\ud800 hf_" + "a" * 20)]}
        )

    seen = with_analyses(tmp_path, diagnosis=fake_insights.diagnosis, learned=odd)
    (gap,) = told(seen, run, "learned")["gaps"]
    assert gap["first_value"] is None and gap["response"] == "\ud800 hf_…"
    seen.close()


@pytest.mark.parametrize("where", [None, Place(0, 0, "running")])
def test_before_the_first_step_nothing_is_analysed(seen, run, made, where):
    assert seen.watch(run.run_id, where) == ("", b"")
    assert "problem" in json.loads(seen.detail(run.run_id, "learned", where).result(timeout=WAIT)) and made == []


def test_a_run_that_went_back_starts_over(seen, run, made):
    told(seen, run, "diagnosis")
    assert seen.watch(run.run_id, Place(1, 2, "running"))[0] in ("", "1-3-0")
    told(seen, run, "diagnosis", Place(1, 2, "running"))
    assert seen.watch(run.run_id, Place(1, 2, "running"))[0] == "1-3-0"  # the epoch, the step of the record


# --- one thread and one memory for all pages --------------------------------------------------------------------------------------


def test_table_live_page_and_experiments_share_one_diagnosis(seen, run, made):
    where = place(run, "finished")
    wait_until(lambda: seen.verdicts({run.run_id: where}), WAIT)
    assert seen.verdicts({run.run_id: where, "none": Place(0, 0, "queued")}) == {
        run.run_id: {"kind": "improving", "sentence": SENTENCE, "alarms": 0, "warnings": 0}
    }
    assert seen.watch(run.run_id, where)[0] == "0-3-1"
    assert told(seen, run, "diagnosis", where)["step"] == 3
    assert seen.kind_of(run.run_id, where) == "improving" and seen.kind_of(run.run_id, Place(0, 0, "queued")) == "too early"
    assert made.count(("diagnosis", 3)) == 1


def test_what_is_asked_for_comes_first_then_what_is_watched_then_the_table(seen, run, others, made):
    made.gate.clear()
    blocker, watched, listed = others
    first = seen.detail(blocker.run_id, "scales", place(blocker))
    assert made.waits.wait(WAIT)  # the thread is busy while the others come
    seen.verdicts({one.run_id: place(one) for one in (listed, watched)})
    seen.watch(watched.run_id, place(watched))
    asked = seen.detail(run.run_id, "learned", place(run))
    made.gate.set()
    for answer in (first, asked):
        answer.result(timeout=WAIT)
    wait_until(lambda: ("diagnosis", listed.run_id) in made.runs, WAIT)
    assert made.runs == [
        ("scales", blocker.run_id),
        ("learned", run.run_id),
        *((kind, watched.run_id) for kind in ("diagnosis", "learned")),
        ("diagnosis", listed.run_id),
    ]


def test_the_newest_runs_of_the_table_come_first_and_only_their_verdicts_are_made(seen, others, made):
    wait_until(lambda: len(seen.verdicts({one.run_id: place(one) for one in reversed(others)})) == 3, WAIT)
    assert made.runs == [("diagnosis", one.run_id) for one in reversed(others)]


def test_the_table_does_not_move_a_run_back_that_is_watched(seen, run, made):
    told(seen, run, "diagnosis")
    before = Place(0, 2, "running")  # the table was read a moment earlier than what the viewer sees
    for _ in range(3):
        seen.watch(run.run_id, place(run))
        assert seen.verdicts({run.run_id: before})[run.run_id]["kind"] == "improving"
        assert seen._runs[run.run_id].place == place(run)
    told(seen, run, "learned")
    assert made == [("diagnosis", 3), ("learned", 3)]


def test_a_run_that_goes_on_is_read_by_the_same_doctor_until_it_ends(seen, run, made):
    for step in (3, 4, 5):
        seen.watch(run.run_id, place(run))
        wait_until(lambda step=step: {("diagnosis", step), ("learned", step)} <= set(made), WAIT)
        run.step()
    assert made.begun == [("diagnosis", run.run_id), ("learned", run.run_id)]
    told(seen, run, "diagnosis", place(run, "finished"))
    told(seen, run, "diagnosis", Place(1, 3, "running"))  # resumed: what was read before is not used
    assert made.begun.count(("diagnosis", run.run_id)) == 2


def test_what_is_kept_of_runs_that_go_on_is_bounded_and_dropped_after_a_failure(tmp_path):
    begun, fail = [], []

    def begin(reader):
        begun.append(reader)

        def analyse():
            if fail:
                raise StoreError("The run is damaged.", "damaged")
            return {"of": reader}

        return analyse

    (tmp_path / "runs").mkdir()
    names = [f"20260101-000000-{number:06d}" for number in range(MOST_KEPT + 1)]
    for name in names:
        (tmp_path / "runs" / name).mkdir()
    analyses = Analyses(Workspace(tmp_path), lambda folder: folder.name, lambda: {"diagnosis": begin})
    for name in [*names[:-1], *names[:-1]]:
        assert analyses.make(name, "diagnosis", False)[0] == {"of": name}
    assert begun == names[:-1]
    analyses.make(names[-1], "diagnosis", False)  # one too many: the first is let go
    analyses.make(names[0], "diagnosis", False)
    assert begun == [*names, names[0]]
    fail.append(1)
    assert analyses.make(names[0], "diagnosis", False)[0] is None
    fail.clear()
    analyses.make(names[0], "diagnosis", False)
    assert begun[-2:] == [names[0], names[0]]


def test_the_real_doctor_and_learning_go_on_where_they_were(tmp_path, run):
    """What they say of a run that was followed is what they say of it when it is read at once."""
    followed, at_once = Analyses(Workspace(tmp_path)), Analyses(Workspace(tmp_path))
    for _ in range(3):
        found = [followed.make(run.run_id, kind, False) for kind in ("diagnosis", "learned")]
        run.step()
    found = [followed.make(run.run_id, kind, False) for kind in ("diagnosis", "learned")]
    assert found == [at_once.make(run.run_id, kind, True) for kind in ("diagnosis", "learned")]
    assert found[0][0]["step"] == 6


def test_many_runs_and_long_answers_are_not_all_remembered(seen, run, others, made, monkeypatch):
    monkeypatch.setattr(worker, "MOST_RUNS", 2)
    monkeypatch.setattr(worker, "MOST_BODIES", 2)
    for one in (run, *others):
        told(seen, one, "diagnosis")
    assert list(seen._runs) == [one.run_id for one in others[1:]] and len(seen._bodies) == 2
    wait_until(lambda: len(seen.verdicts({one.run_id: place(one) for one in (run, *others)})) == 4, WAIT)  # the table has them all


def test_who_waits_is_told_when_the_app_closes(seen, run, others, made):
    made.gate.clear()
    seen.detail(run.run_id, "diagnosis", place(run))
    assert made.waits.wait(WAIT)
    late = seen.detail(others[0].run_id, "diagnosis", place(others[0]))
    seen._closed.set()
    made.gate.set()
    seen.close()
    assert json.loads(late.result(timeout=WAIT)) == {"problem": "The app is closing."}
    assert told(seen, others[1], "diagnosis") == {"problem": "The app is closing."}
