"""The thread that runs the analyses: once for everybody, never twice for the same step, and never in a poll's way."""

from __future__ import annotations

import functools
import json
import threading
from pathlib import Path
from typing import get_args

import pytest

from rlhf_studio import lessons
from rlhf_studio.analysis.doctor.doctor import CHECKS
from rlhf_studio.analysis.records import VerdictKind
from rlhf_studio.lessons.shelf import text_of
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.insights import BROKEN, Progress, worker
from rlhf_studio.ui.insights.analyses import EXPLAINED_BY_CHECK, EXPLAINED_BY_VERDICT, MOST_KEPT, Analyses, explained
from rlhf_studio.ui.insights.worker import Analyst
from tests.ui import fake_insights
from tests.ui.fake_run import FakeRun
from tests.waiting import wait_until

WAIT = 20
PAGES = Path(lessons.__file__).parent / "pages"
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
    """The analyses that were made, as a list of (kind, step).

    ``runs`` lists (kind, run id) in the same order, ``begun`` the same for each time that an analysis of a run began anew. While ``gate``
    is cleared, the next analysis waits.
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
    """The analyses that were made. There is no rest between two of them."""
    monkeypatch.setattr(worker, "REST", 0)
    return Made()


@pytest.fixture
def insights(tmp_path, made):
    insights = Analyst(Workspace(tmp_path), find_analyses=made.find, rests=(0.0, 0.0))
    yield insights
    made.gate.set()
    insights.close()


def with_analyses(tmp_path, **functions):
    """Insights with these analyses, which are functions of a reader."""
    begin = {kind: functools.partial(functools.partial, analysis) for kind, analysis in functions.items()}
    return Analyst(Workspace(tmp_path), find_analyses=lambda: begin)


def progress_of(run, state="running"):
    return Progress(0, run.step_number, state)


def detail_of(insights, run, kind, where=None):
    return json.loads(insights.detail(run.run_id, kind, where or progress_of(run)).result(timeout=WAIT))


def test_many_viewers_cost_one_analysis_of_each_kind_and_step(insights, run, made):
    answers = [insights.detail(run.run_id, kind, progress_of(run)) for kind in ("diagnosis", "learned") for _ in range(20)]
    bodies = {answer.result(timeout=WAIT) for answer in answers}
    assert len(bodies) == 2 and sorted(made) == [("diagnosis", 3), ("learned", 3)]
    assert detail_of(insights, run, "diagnosis")["verdict"]["kind"] == "improving" and len(made) == 2
    version, verdict = insights.watch(run.run_id, progress_of(run))
    assert version == "0-3-0" and json.loads(verdict) == {
        "kind": "improving",
        "sentence": SENTENCE,
        "in_counts": "",
        "note": "Gold rose less than the score.",
        "step": 3,
        "alarms": 0,
        "warnings": 0,
        "notes": 1,
        "directions": {"objective/scores": 1, "gold/score": -1},
        "lesson": None,
        "doubted": False,
        "changes": {},
    }


def heading_of(place):
    scene = next(scene for scene in text_of(place["lesson"]).scenes if scene.name == place["scene"])
    return scene.blocks[0]["content"][0]


def test_a_run_leads_to_the_lesson_that_is_about_it():
    def said(kind, *findings):
        named = [dict(zip(("check", "level", "until"), finding, strict=True)) for finding in findings]
        return explained({"verdict": {"kind": kind}, "findings": named})

    two_curves = {"lesson": "what_goes_wrong", "scene": "two_curves"}
    assert said("exploiting the reward") == two_curves and said("collapsed") == {"lesson": "what_goes_wrong", "scene": "price"}
    assert said("improved", ("one-phrase", "note", None)) == two_curves  # it worked, and a phrase took over
    assert said("improved", ("one-phrase", "warning", 9)) is said("improved", ("repetition", "note", None)) is said("improved") is None
    assert said("rising", ("clip-low", "alarm", None), ("kl-exploding", "alarm", None))["scene"] == "price"
    for place in (*EXPLAINED_BY_VERDICT.values(), *EXPLAINED_BY_CHECK.values()):
        assert f":::scene {place['scene']}\n" in PAGES.joinpath(f"{place['lesson']}.en.md").read_text(encoding="utf-8")
    headings = {
        "exploiting the reward": "The judge is pleased",
        "collapsed": "The price that keeps it honest",
        "nothing learned": "What a setting does when it is doubled",
    }
    assert {kind: heading_of(place) for kind, place in EXPLAINED_BY_VERDICT.items()} == headings
    assert {*EXPLAINED_BY_CHECK} <= {*CHECKS} and {*EXPLAINED_BY_VERDICT} <= {*get_args(VerdictKind)}


def test_the_scale_of_the_run_is_made_when_asked_for_and_once_for_each_step(insights, run, made):
    insights.watch(run.run_id, progress_of(run))
    detail_of(insights, run, "diagnosis")
    assert ("scales", 3) not in made
    for _ in range(2):
        scales = detail_of(insights, run, "scales")
    reader = RunReader(run.folder)
    recorded = [reader.rollout(step, row.sample).tokens.arrays["advantages"] for step in (1, 2, 3) for row in reader.rollouts(step)]
    largest = max(float(abs(values).max()) for values in recorded)
    assert scales["scales"]["advantages"] == {"centre": 0.0, "limit": pytest.approx(largest, rel=1e-5)}
    assert (scales["used"], scales["of"], scales["step"]) == (3, 3, 3) and made.count(("scales", 3)) == 1
    run.step()
    assert detail_of(insights, run, "scales")["of"] == 4


def test_a_new_step_and_the_end_are_looked_at_again(insights, run, made):
    detail_of(insights, run, "diagnosis")
    run.step()
    detail_of(insights, run, "diagnosis")  # what is known serves until the new one is made
    ended = detail_of(insights, run, "diagnosis", progress_of(run, "finished"))
    assert ended["step"] == 4 and ("diagnosis", 4) in made
    count = made.count(("diagnosis", 4))
    detail_of(insights, run, "diagnosis", progress_of(run, "finished"))
    assert made.count(("diagnosis", 4)) == count


def test_a_poll_never_waits_for_an_analysis(insights, run, made):
    made.gate.clear()
    answer = insights.detail(run.run_id, "diagnosis", progress_of(run))
    assert made.waits.wait(WAIT)
    assert insights.watch(run.run_id, progress_of(run)) == ("", b"") and not answer.done()  # while the analysis is under way
    assert insights.verdicts({run.run_id: progress_of(run)}) == {}
    made.gate.set()
    assert json.loads(answer.result(timeout=WAIT))["step"] == 3


def test_an_analysis_that_fails_is_said_and_not_tried_again_at_the_same_step(tmp_path, run, made, caplog):
    tries = []

    def broken(reader):
        tries.append(1)
        raise ZeroDivisionError("a secret of the server")

    def refused(reader):
        raise StoreError("The run is damaged.", "damaged")

    insights = with_analyses(tmp_path, diagnosis=broken, learned=refused)
    assert detail_of(insights, run, "diagnosis") == {"problem": BROKEN}
    assert detail_of(insights, run, "learned") == {"problem": "The run is damaged."}
    for _ in range(5):
        assert insights.watch(run.run_id, progress_of(run)) == ("", b"") and insights.verdicts({run.run_id: progress_of(run)}) == {}
    with pytest.raises(StoreError, match="could not be made"):
        insights.verdict_of(run.run_id, progress_of(run))
    assert len(tries) == 1 and "a secret of the server" in caplog.text
    insights.close()


def test_numbers_that_are_not_finite_reach_the_page_as_null(tmp_path, run):
    def odd(reader):
        record = fake_insights.learned(reader)
        return type(record)(
            **{**vars(record), "gaps": [type(record.gaps[0])(3, 0, "score", "gold", float("nan"), 1.0, "\ud800 hf_" + "a" * 20)]}
        )

    insights = with_analyses(tmp_path, diagnosis=fake_insights.diagnosis, learned=odd)
    (gap,) = detail_of(insights, run, "learned")["gaps"]
    assert gap["first_value"] is None and gap["response"] == "\ud800 hf_…"
    insights.close()


@pytest.mark.parametrize("where", [None, Progress(0, 0, "running")])
def test_before_the_first_step_nothing_is_analysed(insights, run, made, where):
    assert insights.watch(run.run_id, where) == ("", b"")
    assert "problem" in json.loads(insights.detail(run.run_id, "learned", where).result(timeout=WAIT)) and made == []


def test_a_run_that_went_back_starts_over(insights, run, made):
    detail_of(insights, run, "diagnosis")
    assert insights.watch(run.run_id, Progress(1, 2, "running"))[0] in ("", "1-3-0")
    detail_of(insights, run, "diagnosis", Progress(1, 2, "running"))
    assert insights.watch(run.run_id, Progress(1, 2, "running"))[0] == "1-3-0"  # the epoch, the step of the record


# --- one thread and one memory for all pages --------------------------------------------------------------------------------------


def test_table_live_page_and_experiments_share_one_diagnosis(insights, run, made):
    where = progress_of(run, "finished")
    wait_until(lambda: insights.verdicts({run.run_id: where}), WAIT)
    assert insights.verdicts({run.run_id: where, "none": Progress(0, 0, "queued")}) == {
        run.run_id: {"kind": "improving", "sentence": SENTENCE, "alarms": 0, "warnings": 0}
    }
    assert insights.watch(run.run_id, where)[0] == "0-3-1"
    assert detail_of(insights, run, "diagnosis", where)["step"] == 3
    assert [insights.verdict_of(run.run_id, at)["kind"] for at in (where, Progress(0, 0, "queued"))] == ["improving", "too early"]
    assert made.count(("diagnosis", 3)) == 1


def test_what_is_asked_for_comes_first_then_what_is_watched_then_the_table(insights, run, others, made):
    made.gate.clear()
    blocker, watched, listed = others
    first = insights.detail(blocker.run_id, "scales", progress_of(blocker))
    assert made.waits.wait(WAIT)  # the thread is busy while the others come
    insights.verdicts({fake_run.run_id: progress_of(fake_run) for fake_run in (listed, watched)})
    insights.watch(watched.run_id, progress_of(watched))
    learned = insights.detail(run.run_id, "learned", progress_of(run))
    made.gate.set()
    for answer in (first, learned):
        answer.result(timeout=WAIT)
    wait_until(lambda: ("diagnosis", listed.run_id) in made.runs, WAIT)
    assert made.runs == [
        ("scales", blocker.run_id),
        ("learned", run.run_id),
        *((kind, watched.run_id) for kind in ("diagnosis", "learned")),
        ("diagnosis", listed.run_id),
    ]


def test_the_newest_runs_of_the_table_come_first_and_only_their_verdicts_are_made(insights, others, made):
    wait_until(lambda: len(insights.verdicts({fake_run.run_id: progress_of(fake_run) for fake_run in reversed(others)})) == 3, WAIT)
    assert made.runs == [("diagnosis", fake_run.run_id) for fake_run in reversed(others)]


def test_the_table_does_not_move_a_run_back_that_is_watched(insights, run, made):
    detail_of(insights, run, "diagnosis")
    before = Progress(0, 2, "running")  # the table was read a moment earlier than what the viewer sees
    for _ in range(3):
        insights.watch(run.run_id, progress_of(run))
        assert insights.verdicts({run.run_id: before})[run.run_id]["kind"] == "improving"
        assert insights._runs[run.run_id].progress == progress_of(run)
    detail_of(insights, run, "learned")
    assert made == [("diagnosis", 3), ("learned", 3)]


def test_a_run_that_goes_on_is_read_by_the_same_doctor_until_it_ends(insights, run, made):
    for step in (3, 4, 5):
        insights.watch(run.run_id, progress_of(run))
        wait_until(lambda step=step: {("diagnosis", step), ("learned", step)} <= set(made), WAIT)
        run.step()
    assert made.begun == [("diagnosis", run.run_id), ("learned", run.run_id)]
    detail_of(insights, run, "diagnosis", progress_of(run, "finished"))
    detail_of(insights, run, "diagnosis", Progress(1, 3, "running"))  # resumed: what was read before is not used
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
    """A run that was followed step by step gets the same analyses as a run that is read at once."""
    followed, at_once = Analyses(Workspace(tmp_path)), Analyses(Workspace(tmp_path))
    for _ in range(3):
        records = [followed.make(run.run_id, kind, False) for kind in ("diagnosis", "learned")]
        run.step()
    records = [followed.make(run.run_id, kind, False) for kind in ("diagnosis", "learned")]
    assert records == [at_once.make(run.run_id, kind, True) for kind in ("diagnosis", "learned")]
    assert records[0][0]["step"] == 6


def test_many_runs_and_long_answers_are_not_all_remembered(insights, run, others, made, monkeypatch):
    monkeypatch.setattr(worker, "MOST_RUNS", 2)
    monkeypatch.setattr(worker, "MOST_BODIES", 2)
    for each in (run, *others):
        detail_of(insights, each, "diagnosis")
    assert list(insights._runs) == [other.run_id for other in others[1:]] and len(insights._bodies) == 2
    wait_until(
        lambda: len(insights.verdicts({fake_run.run_id: progress_of(fake_run) for fake_run in (run, *others)})) == 4, WAIT
    )  # the table has them all


def test_who_waits_is_told_when_the_app_closes(insights, run, others, made):
    made.gate.clear()
    insights.detail(run.run_id, "diagnosis", progress_of(run))
    assert made.waits.wait(WAIT)
    late = insights.detail(others[0].run_id, "diagnosis", progress_of(others[0]))
    insights._closed.set()
    made.gate.set()
    insights.close()
    assert json.loads(late.result(timeout=WAIT)) == {"problem": "The app is closing."}
    assert detail_of(insights, others[1], "diagnosis") == {"problem": "The app is closing."}
