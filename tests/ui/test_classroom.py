"""A class: its links, following the teacher, names, prediction rounds, and the end of the class; all of it by raw HTTP."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.datastructures import Headers

from rlhf_studio.lessons.faults.experiment import WHICH
from rlhf_studio.lessons.faults.shelf import experiment_of
from rlhf_studio.runs import paths, people, studio
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.feedback.records import NewItem, NewTask
from rlhf_studio.runs.feedback.store import Feedback
from rlhf_studio.runs.lab.fault import note_of
from rlhf_studio.runs.visitors.starters import Starter, set_starter
from rlhf_studio.ui.access import CLASS_HEADER, CLASS_QUERY, HEADER
from rlhf_studio.ui.app import Server
from rlhf_studio.ui.classroom import link
from rlhf_studio.ui.visiting import identity
from rlhf_studio.ui.visiting.modes import Mode
from rlhf_studio.ui.visiting.where import offered
from tests.ui.breaking_stand_in import write_run
from tests.ui.raw_http import functions_of
from tests.ui.test_visiting import TOKEN, raw_of, served

TEACHER = {HEADER: TOKEN}


@pytest.fixture
def lesson(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(Mode.CLASSROOM, tmp_path, tmp_path_factory.mktemp("world")) as running:
        yield running


@pytest.fixture(scope="module")
def lesson_of_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(Mode.CLASSROOM, tmp_path_factory.mktemp("workspace"), tmp_path_factory.mktemp("world")) as running:
        yield running


def post(server: Server, name: str, data: Any, headers: dict[str, str]) -> tuple[int, Any]:
    path, body = functions_of(server)[name]
    status, text = raw_of(server).send("POST", path, body(data), headers)
    return status, json.loads(text) if status in (200, 403) else text


def test_the_class_link_makes_a_student_until_it_is_renewed(lesson_of_module: Server) -> None:
    teacher = {HEADER: TOKEN}
    link = post(lesson_of_module, "shell-page.class_link", {}, teacher)[1]
    token = link["link"].partition("class=")[2]
    ann = student(lesson_of_module, 1)
    assert ann[CLASS_HEADER] == token
    assert "You are in a class" in post(lesson_of_module, "shell-page.where", {}, ann)[1]["line"]
    assert post(lesson_of_module, "shell-page.class_link", {}, ann)[0] == 403
    assert post(lesson_of_module, "start_run", {}, {})[0] == 403
    renewed = post(lesson_of_module, "shell-page.class_change", {"renew": True}, teacher)[1]
    assert renewed["link"] != link["link"]
    assert "You are in a class" not in post(lesson_of_module, "shell-page.where", {}, ann)[1]["line"]


def test_students_follow_where_the_teacher_leads(lesson_of_module: Server) -> None:
    teacher, ann = {HEADER: TOKEN}, student(lesson_of_module, 1)
    assert post(lesson_of_module, "shell-page.class_now", {}, ann)[1]["seq"] == 0
    leads_to: dict[str, Any] = {"page": "live", "params": {"run": "r", "step": "3", "token": "7"}}
    assert post(lesson_of_module, "shell-page.class_change", {"lead": leads_to}, ann)[0] == 403
    assert post(lesson_of_module, "shell-page.class_change", {"lead": leads_to}, teacher)[0] == 200
    now = post(lesson_of_module, "shell-page.class_now", {}, ann)[1]
    assert {name: now[name] for name in ("seq", "page", "params")} == {"seq": 1, **leads_to}
    wrong = [{"page": "elsewhere", "params": {}}, {"page": "live", "params": {"run": "x" * 301}}, {"page": "live", "params": []}, 7]
    for elsewhere in (*wrong, {"page": {"x": 1}, "params": {}}, {"page": ["live"], "params": {}}):
        assert "no place" in answer_of(lesson_of_module, "change", {"lead": elsewhere}, teacher)["problem"]
    post(lesson_of_module, "shell-page.class_change", {"lead": None}, teacher)
    assert post(lesson_of_module, "shell-page.class_now", {}, ann)[1]["seq"] == 0


def test_the_teacher_decides_whether_students_start_runs(lesson_of_module: Server) -> None:
    access, headers = lesson_of_module.access, student(lesson_of_module, 1)
    ann = SimpleNamespace(headers=Headers({"host": "lab", **headers}), client=SimpleNamespace(host="10.0.0.7"), query_params={})
    sentences = [post(lesson_of_module, "shell-page.where", {}, headers)[1]["line"], access.why_not(ann)]
    assert access.may_start(ann) and offered(access, {}, ann)["here"] and all("start" in words for words in sentences)
    post(lesson_of_module, "shell-page.class_change", {"runs": False}, {HEADER: TOKEN})
    sentences = [post(lesson_of_module, "shell-page.where", {}, headers)[1]["line"], access.why_not(ann)]
    assert not access.may_start(ann) and access.plays(ann)
    assert not offered(access, {}, ann)["here"] and all("start" not in words and "answer" in words for words in sentences)
    assert post(lesson_of_module, "shell-page.class_link", {}, headers) == (
        403,
        {"detail": access.why_not(ann)},
    )  # the door says it too
    assert "Students open the class link" in access.why_not(None)


def test_a_qr_code_has_three_corners_and_the_size_of_its_version() -> None:
    from rlhf_studio.ui.classroom.link import code_of, printed_code

    rows = code_of("http://192.168.1.20:7860/?class=abcdefghijkl")
    assert len(rows) in range(21, 60, 4) and all(len(row) == len(rows) for row in rows)
    for top, left in ((0, 0), (0, -7), (-7, 0)):
        corner = [row[left:][:7] for row in rows[top:][:7]]
        assert corner == ["1111111", "1000001", "1011101", "1011101", "1011101", "1000001", "1111111"]
    assert len(printed_code("a")) == 13  # 21 rows and a border of 2 on each side, two in a line


def student(server: Server, number: int) -> dict[str, str]:
    """The headers of a student who has opened the class link, and has a cookie of their own."""
    cookie = server.access.visitors.signed(str(number).rjust(22, "s"))
    server.access.room.students.come(server.access.visitors.key_of(cookie))
    return {CLASS_HEADER: server.access.room.link, "Cookie": f"{identity.COOKIE}={cookie}"}


def answer_of(server: Server, name: str, data: Any, headers: dict[str, str]) -> dict[str, Any]:
    status, answer = post(server, f"shell-page.class_{name}", data, headers)
    assert status == 200, answer
    assert isinstance(answer, dict)
    return answer


def present_round(server: Server, headers: dict[str, str]) -> dict[str, Any]:
    """What the page of a person is told of the present round when it has seen none yet."""
    present: dict[str, Any] = answer_of(server, "now", {}, headers)["present"]
    return present


def begun(server: Server, **question: Any) -> str:
    """Ask the class; gives the round."""
    answer = answer_of(server, "ask", question or {"text": "Higher or lower?", "options": ["Higher", "Lower"], "right": 1}, TEACHER)
    return str(answer["round"])


def test_thirty_students_who_answer_at_once_are_all_counted_once(lesson: Server) -> None:
    round_id = begun(lesson)
    pages = list(range(30)) * 2  # each sends the same answer twice, as a page does that got no reply
    with ThreadPoolExecutor(30) as pool:
        answers = list(
            pool.map(lambda n: answer_of(lesson, "answer", {"round": round_id, "answer": n % 3 == 0}, student(lesson, n)), pages)
        )
        assert all("problem" in answer for answer in answers)  # true and false are no numbers
        answers = list(
            pool.map(lambda n: answer_of(lesson, "answer", {"round": round_id, "answer": int(n % 3 == 0)}, student(lesson, n)), pages)
        )
    assert all("problem" not in answer for answer in answers), answers
    assert answer_of(lesson, "now", {}, TEACHER)["answered"] == 30
    answer_of(lesson, "answer", {"round": round_id, "answer": 0}, student(lesson, 0))  # changed
    answer_of(lesson, "steer", {"op": "close", "round": round_id}, TEACHER)
    assert "closed" in answer_of(lesson, "answer", {"round": round_id, "answer": 1}, student(lesson, 0))["problem"]
    assert "results" not in present_round(lesson, student(lesson, 1))["round"]
    answer_of(lesson, "steer", {"op": "show", "round": round_id}, TEACHER)
    present = present_round(lesson, student(lesson, 0))
    assert present["round"]["results"]["counts"] == [21, 9] and present["own"] == 0 and "real" not in present["round"]
    answer_of(lesson, "steer", {"op": "reveal", "round": round_id}, TEACHER)
    assert present_round(lesson, {})["round"]["real"]["right"] == 1


def opened_link(server: Server, headers: dict[str, str]) -> dict[str, str]:
    """What a browser shows after it has opened the class link."""
    connection = http.client.HTTPConnection("127.0.0.1", raw_of(server).port, timeout=20)
    connection.request("GET", f"/?{CLASS_QUERY}={server.access.room.link}", headers=headers)
    given = connection.getresponse().msg.get_all("set-cookie") or []
    connection.close()
    return {"Cookie": "; ".join([cookie.split(";")[0] for cookie in given] + [headers[name] for name in headers if name == "Cookie"])}


def test_nobody_is_more_students_than_have_opened_the_link(lesson: Server) -> None:
    """Any 22 characters were a student once: one student answered as three hundred."""
    round_id, link = begun(lesson), lesson.access.room.link
    made_up = [f"{number:022d}" for number in range(5)] + [f"{number:022d}.{number:022d}" for number in range(5)]
    for value in made_up:
        headers = {CLASS_HEADER: link, "Cookie": f"{identity.COOKIE}={value}"}
        assert post(lesson, "shell-page.class_answer", {"round": round_id, "answer": 0}, headers)[0] == 403
    ann = opened_link(lesson, {})
    for _ in range(3):
        again = opened_link(lesson, ann)  # the same browser: it has its cookie, and gets no other one
        assert identity.COOKIE in ann["Cookie"] and again["Cookie"].count(identity.COOKIE) == 1
        assert "problem" not in answer_of(lesson, "answer", {"round": round_id, "answer": 0}, again)
    assert answer_of(lesson, "now", {}, TEACHER)["answered"] == 1
    assert len(answer_of(lesson, "link", {}, TEACHER)["students"]) == 1


def test_a_round_counts_as_many_as_the_teacher_has_places_for(lesson: Server) -> None:
    round_id = begun(lesson)
    answer_of(lesson, "change", {"places": 2}, TEACHER)
    first, second, third, fourth = (student(lesson, number) for number in range(4))
    data = {"round": round_id, "answer": 0}
    assert [post(lesson, "shell-page.class_answer", data, who)[0] for who in (third, first, second)] == [403, 200, 200]
    assert "All 2 places" in present_round(lesson, third)["why_not"] and present_round(lesson, first)["why_not"] == ""
    facts = answer_of(lesson, "link", {}, TEACHER)
    assert [student["late"] for student in facts["students"]] == [False, False, True, True] and answer_of(lesson, "now", {}, {})[
        "late"
    ] == 2
    answer_of(lesson, "change", {"strike": facts["students"][1]["id"]}, TEACHER)  # with the answer
    assert answer_of(lesson, "now", {}, {})["answered"] == 1 and post(lesson, "shell-page.class_answer", data, second)[0] == 403
    assert "problem" not in answer_of(lesson, "answer", data, third)
    killed_and_begun = lesson.services.class_page._store.students()
    assert list(killed_and_begun) == [facts["students"][number]["id"] for number in (0, 2, 3)]  # what the next app goes on with
    answer_of(lesson, "change", {"strike": "late"}, TEACHER)
    answer_of(lesson, "change", {"places": 3}, TEACHER)
    assert post(lesson, "shell-page.class_answer", data, fourth)[0] == 403  # until the link is opened again
    for wrong in (0, 301, 2.5, "x"):
        assert answer_of(lesson, "change", {"places": wrong}, TEACHER)["problem"]


def test_nobody_who_comes_is_lost_while_the_teacher_makes_room(lesson: Server) -> None:
    """A change of places once put back the list as it was before; a round of thirty lost a third of the class."""
    students, struck = lesson.access.room.students, lesson.access.visitors.key_of(lesson.access.visitors.signed("x" * 22))
    students.come(struck)
    came = [lesson.access.visitors.key_of(lesson.access.visitors.new_value()) for _ in range(40)]
    with ThreadPoolExecutor(8) as pool:
        changes = [pool.submit(answer_of, lesson, "change", {"places": 30 + number}, TEACHER) for number in range(10)]
        changes.append(pool.submit(answer_of, lesson, "change", {"strike": struck}, TEACHER))
        coming = [pool.submit(students.come, key) for key in came]
        for pending in (*changes, *coming):
            pending.result()
    assert set(students.came) == set(came) == set(lesson.services.class_page._store.students())


def test_a_student_votes_under_few_names(lesson: Server) -> None:
    task, _ = Feedback(lesson.workspace.root).create(NewTask("which is better"), [NewItem("a prompt", ("one", "two"))])
    path, body = functions_of(lesson)["feedback-page.join"]
    ann, bob = student(lesson, 1), student(lesson, 2)

    def join(name: str, who: dict[str, str]) -> bool:
        data = body({"task": task.id, "name": name, "secret": "s" * 20})
        return b"problem" not in raw_of(lesson).send("POST", path, data, who)[1]

    assert [join(f"ann {number}", ann) for number in range(5)] == [True, True, True, False, False]
    assert join("ann 0", ann) and join("bob", bob)


def test_who_may_answer_and_who_may_ask(lesson: Server) -> None:
    round_id = begun(lesson)
    data = {"round": round_id, "answer": 0, "name": "x", "op": "close", "text": "?", "options": ["a", "b"], "end": True}
    for name in ("ask", "steer", "change", "ready", "link"):
        for headers in ({}, student(lesson, 1)):
            assert post(lesson, f"shell-page.class_{name}", data, headers)[0] == 403
    for name in ("answer", "name"):
        status, why = post(lesson, f"shell-page.class_{name}", data, {})
        assert status == 403 and "class link" in why["detail"]
        assert "class link" in answer_of(lesson, name, data, TEACHER)["problem"]  # a teacher's own answer would count as a student's
    assert post(lesson, "shell-page.class_answer", {**data, "view": True}, student(lesson, 1))[1]["problem"]
    assert present_round(lesson, {})["may"] is False and present_round(lesson, student(lesson, 1))["may"] is True
    assert "something else" in answer_of(lesson, "answer", {"round": "0" * 12, "answer": 0}, student(lesson, 1))["problem"]
    assert answer_of(lesson, "now", {}, TEACHER)["answered"] == 0


def test_names_are_the_teachers_to_see_and_to_turn_off(lesson: Server) -> None:
    round_id, ann = begun(lesson), student(lesson, 1)
    assert answer_of(lesson, "name", {"name": "  Ann\n B. "}, ann) == {"name": "Ann B."}
    assert "40" in answer_of(lesson, "name", {"name": "x" * 41}, ann)["problem"]
    answer_of(lesson, "answer", {"round": round_id, "answer": 1}, ann)
    assert present_round(lesson, ann)["name"] == "Ann B."
    assert "Ann" not in json.dumps(present_round(lesson, student(lesson, 2)))
    assert answer_of(lesson, "steer", {"op": "answers", "round": round_id}, TEACHER)["answers"] == [
        {"name": "Ann B.", "said": "Lower", "changes": 0}
    ]
    assert "Ann B." in answer_of(lesson, "steer", {"op": "file", "round": round_id, "table": True}, TEACHER)["text"]
    request = SimpleNamespace(headers=Headers({"host": "lab", **ann}), client=SimpleNamespace(host="10.0.0.7"), query_params={})
    assert lesson.access.starter(request).name == "Ann B."  # as the runs have it that she starts
    answer_of(lesson, "change", {"names": False}, TEACHER)
    assert lesson.access.starter(request).name == ""
    assert answer_of(lesson, "steer", {"op": "answers", "round": round_id}, TEACHER)["answers"][0]["name"] == ""
    assert "off" in answer_of(lesson, "name", {"name": "Ann"}, ann)["problem"]


def test_the_end_of_a_class_ends_its_link_and_forgets_who_was_there(lesson: Server) -> None:
    round_id, ann = begun(lesson), student(lesson, 1)
    answer_of(lesson, "name", {"name": "Ann"}, ann)
    answer_of(lesson, "answer", {"round": round_id, "answer": 1}, ann)
    with people.change(lesson.workspace.root) as connection:
        set_starter(connection, "run", Starter("student", "Ann", identity.key_of("s" * 21 + "1"), "address"))
    ended = answer_of(lesson, "change", {"end": True}, TEACHER)
    assert ended["ended"] is True and ended["link"] == ""
    assert post(lesson, "shell-page.class_answer", {"round": round_id, "answer": 0}, ann)[0] == 403
    now = answer_of(lesson, "now", {}, ann)
    assert now["ended"] is True and now["seq"] == 0 and present_round(lesson, ann)["round"] == {}
    assert studio.read(lesson.workspace.root).starters["run"] == Starter("student", "Ann")
    assert "ended" in answer_of(lesson, "ask", {"text": "?", "options": ["a", "b"]}, TEACHER)["problem"]
    answer_of(lesson, "change", {"renew": True}, TEACHER)
    begun(lesson)
    assert present_round(lesson, student(lesson, 1))["own"] is None


def test_a_new_teachers_link_ends_the_old_one(lesson: Server) -> None:
    fresh = answer_of(lesson, "change", {"teacher": True}, TEACHER)["teacher"].partition("operator=")[2]
    assert fresh != TOKEN and post(lesson, "shell-page.class_link", {}, TEACHER)[0] == 403
    assert answer_of(lesson, "link", {}, {HEADER: fresh})["link"]


def write_pair(root: Path, seed: int) -> None:
    """Both runs of the experiment without a KL penalty, which have ended; nothing is trained."""
    made = experiment_of("no_kl")
    for which in WHICH:
        folder = paths.run_dir(root, paths.new_run_id())
        folder.parent.mkdir(parents=True, exist_ok=True)
        create_run(folder, made.config(which, seed), name=made.run_name(which, seed), files=note_of(""))
        write_run(folder)


def test_a_drawn_curve_and_the_runs_own(lesson: Server) -> None:
    round_id = begun(lesson, show="no_kl", draw="kl", seed=3)
    view = present_round(lesson, student(lesson, 1))["round"]
    assert view["kind"] == "curve" and view["question"]["metric"] == "objective/kl" and view["question"]["last"] == 20
    assert "left edge" in answer_of(lesson, "answer", {"round": round_id, "answer": [[1, 0], [9, 9]]}, student(lesson, 1))["problem"]
    for number, end in enumerate((10, 20, 60)):
        assert "problem" not in answer_of(lesson, "answer", {"round": round_id, "answer": [[1, 0], [20, end]]}, student(lesson, number))
    assert answer_of(lesson, "steer", {"op": "look", "round": round_id}, TEACHER) == {
        "run": "",
        "startable": True,
        "ended": False,
        "curve": False,
    }
    write_pair(lesson.workspace.root, 3)
    for op in ("close", "show", "reveal"):
        answer_of(lesson, "steer", {"op": op, "round": round_id}, TEACHER)
    revealed = present_round(lesson, student(lesson, 1))["round"]
    assert revealed["results"]["median"][-1] == 20 and revealed["results"]["low"][-1] == 15
    assert revealed["real"]["curve"] == {"steps": [1, 2, 3], "values": [6.0, 12.0, 18.0]}


def test_the_two_runs_say_which_option_is_right(lesson: Server) -> None:
    round_id = begun(lesson, show="no_kl", seed=4)
    write_pair(lesson.workspace.root, 4)
    for op in ("close", "show", "reveal"):
        answer_of(lesson, "steer", {"op": op, "round": round_id}, TEACHER)
    view = present_round(lesson, TEACHER)["round"]
    assert view["question"]["options"] == ["Higher", "Lower", "About the same"]  # as the question names them
    assert view["question"]["options"][view["real"]["right"]] == "Lower"


def test_a_round_that_was_put_away_is_shown_again(lesson: Server) -> None:
    first = begun(lesson)
    answer_of(lesson, "answer", {"round": first, "answer": 1}, student(lesson, 1))
    answer_of(lesson, "steer", {"op": "over", "round": first}, TEACHER)
    second = begun(lesson)
    assert "present round" in answer_of(lesson, "steer", {"op": "again", "round": first}, TEACHER)["problem"]
    assert present_round(lesson, TEACHER)["round"]["id"] == second
    answer_of(lesson, "steer", {"op": "over", "round": second}, TEACHER)
    assert "problem" not in answer_of(lesson, "steer", {"op": "again", "round": first}, TEACHER)
    shown_again = present_round(lesson, student(lesson, 1))
    assert shown_again["round"]["state"] == "shown" and shown_again["round"]["results"]["counts"] == [0, 1] and shown_again["own"] == 1
    answer_of(lesson, "steer", {"op": "reveal", "round": first}, TEACHER)
    assert present_round(lesson, {})["round"]["real"]["right"] == 1
    assert "not there" in answer_of(lesson, "steer", {"op": "again", "round": "0" * 12}, TEACHER)["problem"]


def test_pages_are_told_of_a_new_class_link(lesson: Server) -> None:
    ann, version = student(lesson, 1), answer_of(lesson, "now", {}, {})["round"]
    assert present_round(lesson, ann)["may"] is True
    answer_of(lesson, "change", {"renew": True}, TEACHER)
    assert answer_of(lesson, "now", {}, {})["round"] > version  # so that each asks again
    assert present_round(lesson, ann)["may"] is False


@pytest.mark.parametrize(
    "wrong",
    [
        {"text": "", "options": ["a", "b"]},
        {"text": "x" * 401, "options": ["a", "b"]},
        {"text": "?", "options": ["a"]},
        {"text": "?", "options": ["a", "a"]},
        {"text": "?", "options": ["a"] * 7},
        {"text": "?", "options": ["a", 3]},
        {"text": "?", "draw": "rm -rf"},
        {"text": "?", "draw": "kl", "low": 5, "high": 5},
        {"text": "?", "draw": "kl", "first": 20, "last": 3},
        {"show": "elsewhere"},
        {"show": "no_kl", "seed": 1000},
        {"lesson": "../../etc", "scene": "x"},
        {"text": "?", "options": ["a", "b"], "run": "../.."},
        7,
    ],
)
def test_what_cannot_be_asked_is_refused_in_a_sentence(lesson_of_module: Server, wrong: Any) -> None:
    assert answer_of(lesson_of_module, "ask", wrong, TEACHER)["problem"].endswith((".", "!"))
    assert present_round(lesson_of_module, TEACHER)["round"] == {}


@pytest.mark.parametrize(
    ("host", "alone", "network", "address", "here"),
    [
        ("localhost:7860", False, "192.168.1.5", "http://192.168.1.5:7860/", False),
        ("0.0.0.0:7860", False, "192.168.1.5", "http://192.168.1.5:7860/", False),
        ("127.0.0.1:7860", True, "192.168.1.5", "http://localhost:7860/", True),
        ("0.0.0.0:7860", False, "", "http://localhost:7860/", True),
        ("class.example", True, "192.168.1.5", "http://class.example/", False),
    ],
)
def test_the_link_has_an_address_that_answers(
    monkeypatch: pytest.MonkeyPatch, host: str, alone: bool, network: str, address: str, here: bool
) -> None:
    monkeypatch.setattr(link, "lan_address", lambda: network)
    assert (link.address_for(host, alone=alone), link.only_here(address)) == (address, here)
