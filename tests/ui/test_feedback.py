"""The Feedback page's answers: by raw HTTP as raters, viewers and operators send them, and its results as plain data."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest

from rlhf_studio.config import PairsConfig
from rlhf_studio.inputs.estimate.speed import SpeedMeasurement
from rlhf_studio.inputs.examples import read_pairs
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.feedback.records import NewItem, NewTask, NewVote
from rlhf_studio.runs.feedback.store import Feedback, NotPossible
from rlhf_studio.runs.records import RunStatus, StepRecord
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.runs.writer import RunWriter
from rlhf_studio.ui.access import HEADER, LINK_SECONDS, TOKEN_VARIABLE, Access, Raters
from rlhf_studio.ui.app import Server, launch
from rlhf_studio.ui.feedback import sent
from rlhf_studio.ui.feedback.from_run import Suggestion, suggested
from rlhf_studio.ui.feedback.held import Held
from rlhf_studio.ui.feedback.results import results
from rlhf_studio.ui.feedback.work import TaskWork
from rlhf_studio.ui.serving.replies import SMALLEST
from rlhf_studio.ui.visiting.modes import Mode
from tests.runs.store_helpers import new_run, rollout
from tests.runs.test_answers import answer
from tests.ui.fake_run import FakeRun
from tests.ui.raw_http import Raw
from tests.ui.train_helpers import install_world, start_stand_in

OPERATOR = {HEADER: "a-long-secret"}
JSON = {"Content-Type": "application/json"}
ROWS = "\n".join(json.dumps({"prompt": f"p{number}", "chosen": "good", "rejected": f"bad {number}"}) for number in range(5))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(TOKEN_VARIABLE, "a-long-secret")
        patch.setattr(SpeedMeasurement, "begin", lambda self, device: None)
        install_world(tmp_path_factory.mktemp("world"), patch)
        running = launch(tmp_path_factory.mktemp("workspace"), start=start_stand_in)
        yield running
        running.close()


class Page:
    """The page as one person has it."""

    def __init__(self, server: Server, headers: dict[str, str]):
        self.raw, self.headers = Raw(int(re.search(r":(\d+)/", server.url)[1])), headers
        (self.component,) = [number for number, block in server.demo.blocks.items() if block.elem_id == "feedback-page"]

    def body(self, function: str, /, **data: Any) -> dict[str, Any]:
        return {"data": data, "component_id": self.component, "fn_name": function, "session_hash": "s1"}

    def send(self, function: str, /, **data: Any) -> tuple[int, dict[str, Any]]:
        status, text = self.raw.send("POST", "/gradio_api/component_server/", self.body(function, **data), self.headers)
        return status, json.loads(text)

    def ask(self, function: str, /, **data: Any) -> dict[str, Any]:
        status, reply = self.send(function, **data)
        assert status == 200, reply
        return reply


def cookie_of(server: Server, token: str) -> tuple[int, str, str]:
    """(status, the cookie, where the link leads) of a rating link."""
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", int(re.search(r":(\d+)/", server.url)[1]))
    connection.request("GET", f"/?rate={token}&__theme=dark")
    reply = connection.getresponse()
    reply.read()
    return reply.status, (reply.getheader("set-cookie") or "").split(";")[0], reply.getheader("location") or ""


def test_from_a_new_task_to_its_results(server: Server) -> None:
    operator, viewer = Page(server, OPERATOR), Page(server, {})
    task = operator.ask("manage", op="create", settings={"name": "A task", "kind": "pair", "pass_mark": 1.0}, nonce="n1")["task"]
    assert operator.ask("manage", op="create", settings={"name": "A task"}, nonce="n1")["task"] == task, "a double click makes one"
    assert operator.ask("add_items", task=task, lines=ROWS, first=1, calibration=1) == {"added": 5, "repeated": 0, "problems": []}
    assert operator.ask("add_items", task=task, lines=ROWS + "\nnonsense", first=1) == {
        "added": 0, "repeated": 5, "problems": ["Row 6: not JSON; each line is one object in braces."],
    }  # fmt: skip
    link = operator.ask("rating_link")["token"]
    status, cookie, better = cookie_of(server, link)
    assert status == 303 and cookie == f"rlhf_studio_rater={link}" and better == "?tab=feedback&__theme=dark"
    assert cookie_of(server, "another")[0] == 403
    rater = Page(server, {"Cookie": cookie})
    me = {"task": task, "name": "Anna", "secret": "key of Anna"}
    assert rater.ask("join", **me) == {"name": "Anna"}
    turn = rater.ask("turn", **me)
    assert turn["item"]["calibration"] and "source" not in json.dumps(turn) and "answer" not in turn["item"]
    for number in range(5):
        better = turn["item"]["responses"].index("good")
        vote = {"id": f"v{number}", "item": turn["item"]["id"], "verdict": "chosen", "value": better, "confidence": 0.75, "seconds": 2.0}
        turn = rater.ask("vote", **me, **vote)
        assert (turn["expected"] or {}).get("right", True)
    assert turn["state"] == "done" and turn["progress"] == {"items": 4, "done": 4, "votes": 4, "mine": 4}
    back = rater.ask("undo", **me, vote=turn["may_undo"])
    assert back["state"] == "item" and back["progress"]["votes"] == 3
    assert "Somebody else uses" in rater.ask("turn", task=task, name="anna", secret="another browser")["problem"]
    results_shown = operator.ask("results", task=task)
    (person,) = results_shown["people"]
    assert (person["known"]["right"], person["known"]["count"]) == (1, 1)
    assert (person["name"], person["votes"], person["seconds"], person["rounds"]) == ("Anna", 3, 2.0, 1)
    lines = operator.ask("export", task=task, rows="each")["lines"].splitlines()
    assert [(json.loads(line)["chosen"], json.loads(line)["confidence"]) for line in lines] == [("good", 0.75)] * 3
    handed = operator.ask("train_on", task=task)
    path = Path(handed["values"]["data.source"])
    assert handed["recipe"] == "own-reward" and path.read_text("ascii").splitlines() == lines
    path.with_suffix(".part").mkdir()  # what another operator writes at this moment is in nobody's way
    assert operator.ask("train_on", task=task) == handed and len(list(path.parent.iterdir())) == 2
    pairs = read_pairs(PairsConfig(source=str(path))).rows
    assert [(pair.chosen, pair.weight) for pair in pairs] == [("good", 0.75)] * 3
    rows = {page: next(row for row in page.ask("boot")["tasks"] if row["id"] == task) for page in (operator, viewer, rater)}
    assert all(row["progress"]["votes"] == 3 for row in rows.values())
    assert "alpha" in rows[operator] and "alpha" not in rows[rater], "raters are not told how others rate"
    for page, name in (
        (viewer, "vote"),
        (viewer, "turn"),
        (rater, "results"),
        (rater, "train_on"),
        (rater, "export"),
        (rater, "manage"),
        (rater, "rating_link"),
    ):
        assert page.send(name, task=task)[0] == 403
    again = operator.ask("rating_link", renew=True)["token"]
    assert again != link and rater.send("turn", **me)[0] == 403, "the old link has ended"
    assert cookie_of(server, again)[0] == 303


def test_what_is_sent_is_checked(server: Server, tmp_path: Path) -> None:
    operator = Page(server, OPERATOR)
    for data, wrong in (
        ({"op": "create", "settings": {"name": ""}}, "give the task a name"),
        ({"op": "create", "settings": {"name": "x", "annotators": "many"}}, "annotators must be a number"),
        ({"op": "create", "settings": {"name": "x", "annotators": 1.5}}, "must be a whole number"),
        ({"op": "create"}, "give the task a name"),
        ({"op": "burn", "task": "x"}, "There is no such thing"),
        ({"op": "delete", "task": "x"}, "no longer here"),
        ({"op": ["delete"]}, "must be a text"),
    ):
        assert wrong in operator.ask("manage", **data)["problem"], data
    task = operator.ask("manage", op="create", settings={"name": "Files"})["task"]
    (tmp_path / "rows.jsonl").write_text(ROWS)
    assert operator.ask("add_items", task=task, path=str(tmp_path / "rows.jsonl"))["added"] == 5
    for path, wrong in ((tmp_path / "none.jsonl", "There is no file"), (tmp_path / "x.csv", "must end in .jsonl"), (tmp_path, "")):
        (tmp_path / "x.csv").write_text("a,b")
        assert wrong in operator.ask("add_items", task=task, path=str(path))["problem"]
    for settings in ("annotators", "points", "pass_mark"):
        for number in ("NaN", "Infinity", "1e400", "1" + "0" * 400):
            body = json.dumps(operator.body("manage", op="create", settings={"name": "x", settings: "HERE"})).replace('"HERE"', number)
            status, text = operator.raw.send("POST", "/gradio_api/component_server/", body.encode(), OPERATOR | JSON)
            assert status == 400 and b"A number in the body" in text, (settings, number)
        assert "finite number" in operator.ask("manage", op="create", settings={"name": "x", settings: 10**20})["problem"]
    assert len(feedback_tasks(operator)) == 1 + sum(row["name"] != "Files" for row in feedback_tasks(operator)), "none was made"


def feedback_tasks(page: Page) -> list[dict[str, Any]]:
    return list(page.ask("boot")["tasks"])


def test_a_forged_answer_is_refused_in_a_sentence_and_tells_nothing_of_the_machine(server: Server) -> None:
    operator = Page(server, OPERATOR)
    task = operator.ask("manage", op="create", settings={"name": "Forged"}, nonce="forged")["task"]
    operator.ask("add_items", task=task, lines=ROWS)
    rater = Page(server, {"X-RLHF-Studio-Rating-Token": operator.ask("rating_link")["token"]})
    me = {"task": task, "name": "Eve", "secret": "key of Eve"}
    item = rater.ask("turn", **me)["item"]["id"]
    good = {"id": "v", "item": item, "verdict": "chosen", "value": 0, "seconds": 1.0, "confidence": 1.0}
    for key in ("seconds", "item", "confidence", "value"):
        for number in ("1" + "0" * 400, "1" + "0" * 30, "1e400", "NaN", "-1", "true", "[0]", '"1"', "{}"):
            body = json.dumps(rater.body("vote", **me, **{**good, key: "HERE"})).replace('"HERE"', number)
            status, text = rater.raw.send("POST", "/gradio_api/component_server/", body.encode(), rater.headers | JSON)
            assert status == 400 or json.loads(text)["problem"], (key, number)
            assert b"damaged" not in text and str(server.workspace.root).encode() not in text, (key, number)
    assert rater.ask("vote", **me, **good)["progress"]["votes"] == 1


def test_a_store_that_fails_is_told_without_its_place_and_loses_nothing(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    operator = Page(server, OPERATOR)
    task = operator.ask("manage", op="create", settings={"name": "Fails"}, nonce="fails")["task"]
    operator.ask("add_items", task=task, lines=ROWS)
    rater = Page(server, {"X-RLHF-Studio-Rating-Token": operator.ask("rating_link")["token"]})
    me = {"task": task, "name": "Fay", "secret": "key of Fay"}
    vote = {"id": "fay", "item": rater.ask("turn", **me)["item"]["id"], "verdict": "tie"}
    path = server.workspace.root / "people.db"

    def fails(*_: Any) -> None:
        raise StoreError(f"{path} may not be written.", "read-only")

    with monkeypatch.context() as patch:
        patch.setattr(Feedback, "vote", fails)
        assert rater.ask("vote", **me, **vote) == {"problem": "people.db may not be written.", "retry": True}
        assert operator.ask("vote", **me, **vote)["problem"] == f"{path} may not be written."
    assert rater.ask("vote", **me, **vote)["progress"]["votes"] == 1, "the page sends it again"


def test_a_read_only_app_admits_no_raters() -> None:
    access = Access(Mode.READ_ONLY, raters=Raters(lambda: "token"))
    request = SimpleNamespace(headers={"x-rlhf-studio-rating-token": "token"}, client=None, query_params={})
    assert access.role_of(request).name == "VIEWER" and "nobody can vote" in access.why_not_rate()


def test_a_page_opened_only_to_watch_does_not_vote() -> None:
    access = Access(loopback=False, raters=Raters(lambda: "token"))
    request = SimpleNamespace(headers={"x-rlhf-studio-rating-token": "token"}, client=None, query_params={})
    assert access.role_of(request).name == "PLAYER" and access.role_of(request, {"view": True}).name == "VIEWER"
    assert not Raters().admits("") and not Raters().admits("x")


def test_a_renewed_link_ends_in_every_app_of_the_workspace(tmp_path: Path) -> None:
    now = 0.0
    stores = [Feedback(tmp_path), Feedback(tmp_path)]
    first, other = (Raters(store.known_rating_link, store.rating_link, lambda: now) for store in stores)
    old = first.make()
    assert first.admits(old) and other.admits(old)
    new = other.make(renew=True)
    assert not other.admits(old) and first.admits(new), "at once where it was renewed, and for a token that is not known"
    old, new = new, other.make(renew=True)
    now += LINK_SECONDS
    assert not first.admits(old) and first.admits(new)

    def fails() -> str:
        raise StoreError("not now")

    working = Raters(stores[0].known_rating_link, stores[0].rating_link, lambda: now)
    assert working.admits(new)
    monkeyed = Raters(fails, lambda renew: "a token", lambda: now)
    assert not monkeyed.admits("a token") and monkeyed.make() and monkeyed.admits("a token")


def test_results_say_who_leans_and_where_people_differ(tmp_path: Path) -> None:
    """Ben always chooses the left one, Chi the longer one; Anna always the first response."""
    feedback = Feedback(tmp_path)
    sources = ("start, answer 1", "end, answer 1")
    items = [NewItem(f"p{number}", (f"short {number:02}", f"much longer {number:02}"), sources) for number in range(30)]
    task, _ = feedback.create(NewTask("t", annotators=3), items)
    for name in ("Anna", "Ben", "Chi"):
        turn = feedback.turn(task.id, name)
        while turn.shown:
            choice = {"Anna": turn.shown.order.index(0), "Ben": 0, "Chi": turn.shown.order.index(1)}[name]
            turn = feedback.vote(task.id, name, NewVote(f"{name} {turn.shown.item.id}", turn.shown.item.id, "chosen", choice, seconds=3.0))
    votes = feedback.votes(task.id)
    summary = results(task, feedback.items(task.id), votes, [], [])
    people = {person["name"]: person for person in summary["people"]}
    assert people["Ben"]["first"]["share"] == 1.0 and people["Ben"]["first"]["leans"]
    assert people["Chi"]["longer"]["share"] == 1.0 and people["Chi"]["longer"]["leans"] and people["Anna"]["longer"]["share"] == 0.0
    assert not people["Anna"]["first"]["leans"] and people["Anna"]["first"]["count"] == 30
    left = {vote.item: vote.value for vote in votes if vote.annotator == "Ben"}
    assert {tuple(pair["people"]): pair["items"] for pair in summary["agreement"]["cohen"]} == {
        ("Anna", "Ben"): 30, ("Anna", "Chi"): 30, ("Ben", "Chi"): 30,
    }  # fmt: skip
    assert summary["agreement"]["same"] == 0.0 and len(summary["disagreements"]) == 30
    ends = 30 + sum(left.values())  # of Chi all, of Ben those that stood left
    assert {row["source"]: (row["wins"], row["count"]) for row in summary["preferred"]} == {"start": (90 - ends, 90), "end": (ends, 90)}
    # Fleiss' kappa by hand: every item has two answers against one, so P is 1/3; Ben decides how often each answer was given.
    share = (30 + sum(value == 0 for value in left.values())) / 90
    expected = share**2 + (1 - share) ** 2
    assert summary["agreement"]["fleiss"] == pytest.approx((1 / 3 - expected) / (1 - expected))


def test_rankings_and_ratings_have_results(tmp_path: Path) -> None:
    feedback = Feedback(tmp_path)
    ranking, _ = feedback.create(NewTask("r", kind="ranking", annotators=2), [NewItem("p", ("a", "b", "c"))])
    rating, _ = feedback.create(NewTask("s", kind="rating", annotators=2), [NewItem("p", ("a",)), NewItem("q", ("b",))])
    for name in ("Anna", "Ben"):
        turn = feedback.turn(ranking.id, name)
        ranks = [position + 1 for position in turn.shown.order] if name == "Anna" else [1, 1, 1]
        feedback.vote(ranking.id, name, NewVote(f"r{name}", turn.shown.item.id, "ranks", ranks))
        for points in (1, 5):
            turn = feedback.turn(rating.id, name)
            feedback.vote(rating.id, name, NewVote(f"s{name}{points}", turn.shown.item.id, "rating", points))
    summary = results(ranking, feedback.items(ranking.id), feedback.votes(ranking.id), [], [])
    assert [vote.value for vote in feedback.votes(ranking.id)] == [[1, 2, 3], [1, 1, 1]]
    assert summary["agreement"]["items"] == 3 and summary["agreement"]["same"] == 0.0
    summary = results(rating, feedback.items(rating.id), feedback.votes(rating.id), [], [])
    assert summary["agreement"]["alpha"] == 1.0 and summary["people"][0]["rating"] == 3.0 and summary["verdicts"] == {"1": 2, "5": 2}


def test_one_click_pairs_what_a_run_wrote_early_and_late(tmp_path: Path) -> None:
    feedback, workspace = Feedback(tmp_path), Workspace(tmp_path)
    run = new_run(tmp_path / "runs" / "ppo-1")
    with RunWriter(run) as writer:
        for step in range(1, 7):  # one prompt in every step, one never again, and one always answered alike
            texts = [("p", f"answer {step}"), (f"only {step}", "x"), ("same", "the same each time")]
            records = [rollout(sample, prompt=prompt, response=text) for sample, (prompt, text) in enumerate(texts)]
            writer.commit_step(StepRecord(step, {}, records))
    assert suggested(workspace.runs()) == Suggestion("ppo-1", "a run", "ppo")
    work = TaskWork(feedback, workspace)
    task = work.from_run({"run": "ppo-1", "nonce": "n"})["task"]
    assert work.from_run({"run": "ppo-1", "nonce": "n"})["task"] == task, "a double click makes one"
    (item,) = feedback.items(task)
    assert (item.prompt, item.responses, item.sources) == (
        "p",
        ("answer 2", "answer 6"),
        ("early in the run, step 2", "late in the run, step 6"),
    )
    assert feedback.task(task).settings.annotators == 2
    with RunWriter(new_run(tmp_path / "runs" / "ppo-2")) as writer:
        writer.commit_step(StepRecord(1, {}, [rollout(0)]))
    with pytest.raises(NotPossible, match="a run has no two different answers to one prompt. Evaluate it first"):
        work.from_run({"run": "ppo-2"})


def test_an_empty_page_shows_a_recorded_task(server: Server) -> None:
    reply = Page(server, {}).ask("example")
    progress, found = reply["task"]["progress"], reply["results"]
    assert progress["done"] == progress["items"] == 40 and len(found["people"]) == 4
    assert sum(row["share"] for row in found["preferred"]) == pytest.approx(1.0)
    assert all(person["known"]["count"] >= 10 for person in found["people"])


def test_a_run_in_the_queue_is_told_whose_ratings_it_waits_for(tmp_path: Path) -> None:
    feedback, run, killed = Feedback(tmp_path), FakeRun(tmp_path), FakeRun(tmp_path)
    for each in (killed, run):
        each.run()
        words = NewTask(f"{each.run_id}: rate the responses", kind="rating")
        feedback.ask(f"{each.run_id}-0", each.run_id, words, [NewItem("p", ("a",), step=1)], 1.0)
    feedback.ask("deleted-0", "deleted", NewTask("deleted", kind="rating"), [NewItem("p", ("a",), step=1)], 1.0)
    killed.die()
    status = dict.fromkeys(RunStatus.__dataclass_fields__)
    held = Held(Workspace(tmp_path))
    assert len(feedback.waiting()) == 3, "whoever was killed has not closed its task"
    assert held.by(RunStatus(**{**status, "state": "queued"})) == f"{run.run_id}: rate the responses"
    assert held.by(RunStatus(**{**status, "state": "running"})) == ""
    feedback.stop_asking(f"{run.run_id}-0", 1)
    assert held.by(RunStatus(**{**status, "state": "queued"})) == ""
    run.close()
    feedback.close()
    (tmp_path / "people.db").write_bytes(b"no database" * 100)
    assert held.by(RunStatus(**{**status, "state": "queued"})) == "", "Live follows the run all the same"


def test_nobody_is_asked_for_a_run_that_does_not_work(server: Server) -> None:
    feedback, operator = Feedback(server.workspace.root), Page(server, OPERATOR)
    run = FakeRun(server.workspace.root)
    run.run()
    task = f"{run.run_id}-0"
    feedback.ask(task, run.run_id, NewTask("asked", kind="rating"), [NewItem("p", ("a",), step=1), NewItem("p", ("b",), step=1)], 2e9)
    me = {"task": task, "name": "Gus", "secret": "key of Gus"}

    def listed() -> dict[str, Any]:
        return next(row for row in feedback_tasks(operator) if row["id"] == task)

    assert feedback_tasks(operator)[0]["id"] == task and listed()["open"]
    turn = operator.ask("turn", **me)
    assert turn["state"] == "item"
    run.die()
    assert not listed()["open"] and listed()["run_state"] == "interrupted" and operator.ask("turn", **me)["state"] == "closed"
    late = operator.ask("vote", **me, id="late", item=turn["item"]["id"], verdict="rating", value=4)
    assert late["state"] == "closed" and late["progress"]["votes"] == 1, "what was answered is kept for the resume"
    server.workspace.delete(run.run_id)
    assert not listed()["open"] and "run_state" not in listed()


def test_a_runs_own_task_takes_no_rows(tmp_path: Path) -> None:
    feedback = Feedback(tmp_path)
    feedback.ask("a-task", "a-run", NewTask("t", kind="rating"), [NewItem("p", ("a",), step=1)], 1.0)
    with pytest.raises(NotPossible, match="belongs to a run"):
        TaskWork(feedback, Workspace(tmp_path)).add({"task": "a-task", "lines": '{"response": "x"}'})
    assert sent.new_vote({"id": "x", "item": 1, "verdict": "tie"}).confidence is None


def test_the_answers_of_an_evaluation_become_a_task(tmp_path: Path) -> None:
    run = new_run(tmp_path / "runs" / "an-evaluation")
    answers = [
        answer(2 * number + of, name, place=number, response=f"{name} {number}") for number in range(3) for of, name in enumerate("xy")
    ]
    with RunWriter(run) as writer:
        writer.commit_step(StepRecord(1, {}, list(answers)))
    feedback = Feedback(tmp_path)
    task, _ = feedback.create(NewTask("t"))
    work = TaskWork(feedback, Workspace(tmp_path))
    assert work.add({"task": task.id, "run": "an-evaluation"}) == {"added": 3, "repeated": 0, "problems": []}
    assert {item.sources for item in feedback.items(task.id)} == {("x, answer 1", "y, answer 1")}
    with pytest.raises(NotPossible, match="no known answer"):
        work.add({"task": task.id, "run": "an-evaluation", "calibration": 2})
    with pytest.raises(StoreError):
        work.add({"task": task.id, "run": "../elsewhere"})
    new_run(tmp_path / "runs" / "empty")
    with pytest.raises(NotPossible, match="There is nothing to rate"):
        work.add({"task": task.id, "run": "empty"})


def test_opening_the_page_on_a_runs_task(server: Server) -> None:
    first, second = (server.services.feedback_page.open("run:abc") for _ in range(2))
    assert first["value"].startswith("run:abc@") and first != second and first["__type__"] == gr.update()["__type__"]


def test_long_replies_are_compressed_for_those_who_read_gzip(server: Server) -> None:
    page = Page(server, OPERATOR)
    page.ask("manage", op="create", nonce="long", settings={"name": "Long", "guidelines": "Words, and words again. " * 90})
    plain = page.raw.send("POST", "/gradio_api/component_server/", page.body("boot"), OPERATOR)[1]
    packed = page.raw.send("POST", "/gradio_api/component_server/", page.body("boot"), {**OPERATOR, "Accept-Encoding": "gzip"})[1]
    assert len(plain) > SMALLEST and gzip.decompress(packed) == plain and len(packed) < len(plain)
    for address in ("/gradio_api/component_server/", "/gradio_api/component_server"):
        for offer, reads in (
            ("gzip;q=0", False),
            ("br, gzip;q=0.0", False),
            ("identity", False),
            ("br;q=1, gzip ; q=0.5", True),
            ("gzip", True),
        ):
            reply = page.raw.send("POST", address, page.body("boot"), {**OPERATOR, "Accept-Encoding": offer})[1]
            assert reply.startswith(b"\x1f\x8b") == reads, (address, offer)
    short = page.raw.send("POST", "/gradio_api/component_server/", page.body("turn"), {**OPERATOR, "Accept-Encoding": "gzip"})[1]
    assert json.loads(short)["problem"] == "There is no such task."
