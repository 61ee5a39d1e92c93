"""For teachers: sheets by a seed and their answers, result codes and their damage, plans whose links lead somewhere, the commands."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from rlhf_studio.cli.main import main
from rlhf_studio.exit_codes import BAD_INPUT, DONE
from rlhf_studio.lessons import answers, shelf
from rlhf_studio.lessons.teaching import codes, plan
from rlhf_studio.lessons.teaching.questions import MOST_EACH, Selection, questions_of, two_back
from rlhf_studio.lessons.teaching.sheets import opening, question_data, sheet
from tests.lessons.test_texts import links

LESSONS = [entry.name for entry in shelf.entries()]
LIGHT = ["rewards", "gae", "clip"]  # no model is loaded for them
SELECTION = Selection.of(["clip", "gae"], 3, 7)
OUTCOMES = ("first", "second", "not", "open", "first", "first")


def test_what_the_source_says_of_scenes_is_what_they_are() -> None:
    for lesson in LESSONS:
        scenes = answers.scenes_of(lesson)
        actual = {question.scene: question for question in questions_of(lesson)}
        asking = {scene.name for scene in shelf.text_of(lesson).scenes if any(block["kind"] == "predict" for block in scene.blocks)}
        assert set(actual) == {name for name in asking if not scenes[name].slow}, lesson
        for name, question in actual.items():
            assert question.light == (not scenes[name].needs), name


def test_equal_seeds_give_equal_sheets_and_others_differ() -> None:
    def made(lessons: list[str], seed: int, each: int = 3) -> str:
        return json.dumps(sheet(lessons, each, seed), sort_keys=True)

    first = made(["clip", "gae"], 7)
    assert first == made(["gae", "clip", "gae"], 7)  # the order in which lessons are named does not matter
    assert len({first, *(made(["clip", "gae"], seed) for seed in (6, 8, 70))}) == 4
    assert len(sheet(["clip"], MOST_EACH, 1)["questions"]) == min(MOST_EACH, len(questions_of("clip")))
    alone = sheet(["clip"], 3, 7)["questions"]
    assert alone == sheet(["clip", "gae"], 3, 7)["questions"][3:]


def test_answers_of_a_sheet_are_what_the_page_marks_as_right() -> None:
    """The page asks for the drawn values and compares an answer with what stands in the question's slot."""
    for seed, question in [(drawn, question) for drawn in range(6) for question in sheet(LIGHT, 2, drawn)["questions"]]:
        values = answers.drawn(question["lesson"], question["scene"], seed)
        page = answers.computed(question["lesson"], question["scene"], values)
        assert f"@{question['answer']}" == page["slots"][question["slot"]] or question["answer"] == page["slots"][question["slot"]]
        assert question["answer"] in dict(question["choices"])
        controls = answers.find(question["lesson"], question["scene"]).controls
        assert len(question["settings"]) == len(controls)
        for control, setting in zip(controls, question["settings"], strict=True):
            text, value = setting["text"], values[control.name]
            if isinstance(value, float | int) and not isinstance(value, bool):
                assert float(text.replace("−", "-").split()[0]) == value
            else:
                assert text == {True: "yes", False: "no"}.get(value, f"@{value}")


def test_an_answer_on_a_sheet_is_the_one_by_hand() -> None:
    """Of the four cases of clipping: a token is silent where it has gone the way its advantage asks for, out of the range."""
    question = next(entry for entry in questions_of("clip") if entry.scene == "dead_zones")
    seen = set()
    for seed in range(40):
        made = question_data(question, seed)
        ratio, advantage, eps = (float(setting["text"].replace("−", "-")) for setting in made["settings"])
        moved = ratio > 1 + eps + 1e-6 if advantage > 0 else ratio < 1 - eps - 1e-6
        assert made["answer"] == ("no" if moved or advantage == 0 else "yes"), (ratio, advantage, eps)
        seen.add(made["answer"])
    assert seen == {"yes", "no"}


def test_exercises_hold_no_answer() -> None:
    exercises, solved = (sheet(LIGHT, MOST_EACH, 3, with_answers=given) for given in (False, True))
    for question, whole in zip(exercises["questions"], solved["questions"], strict=True):
        assert "answer" not in question and question["slot"] not in question["shown"]["slots"]
        assert all(explanation == [] for _, explanation in question["choices"])
        assert [key for key, _ in question["choices"]] == [key for key, _ in whole["choices"]]
        assert question["settings"] == whole["settings"] and question["question"] == whole["question"]


REFUSED: list[tuple[list[str], Any, Any, str]] = [
    ([], 3, 7, "at least one lesson"),
    (["clip"], 0, 7, "from 1 to 6, got 0"),
    (["clip"], True, 7, "from 1 to 6, got True"),
    (["clip"], 3, 1_000_000, "from 0 to 999,999, got 1000000"),
    (LESSONS, 3, 1, "that would be [0-9]+ questions, and 40 are the most"),
    (["clip"], 3, 1.5, "from 0 to 999,999, got 1.5"),
]


def test_what_does_not_fit_is_refused() -> None:
    for lessons, each, seed, message in REFUSED:
        with pytest.raises(ValueError, match=message):
            Selection.of(lessons, each, seed)
    with pytest.raises(shelf.NoLesson, match="There is no lesson '../clip'"):
        Selection.of(["../clip"], 1, 1)


# --- codes -------------------------------------------------------------------------------------------------------------------


def test_codes_come_back() -> None:
    for lessons, each, seed in ((["clip", "gae"], 3, 7), (["rlhf"], 1, 0), (LESSONS[4:10], MOST_EACH, 999_999)):
        selection = Selection.of(lessons, each, seed)
        outcomes = tuple(codes.OUTCOMES[index % 4] for index in range(len(selection.picked())))
        actual = codes.decode(codes.encode(selection, outcomes))
        assert (actual.selection, actual.questions, actual.outcomes) == (selection, selection.picked(), outcomes)
        assert actual.count("first") == sum(outcome == "first" for outcome in outcomes)


def test_a_code_has_a_place_for_every_lesson() -> None:
    assert max(entry.number for entry in shelf.entries()) <= codes._WIDTHS["lessons"]


def test_a_code_may_be_typed_carelessly() -> None:
    code = codes.encode(SELECTION, OUTCOMES)
    for typed in (
        code.lower(),
        code.replace("-", " "),
        code.replace("-", ""),
        f"  {code}\n",
        "PPO-" + code[4:].replace("0", "O").replace("1", "l"),
    ):
        assert codes.decode(typed).outcomes == OUTCOMES, typed


def test_every_wrong_letter_every_swap_and_every_gap_is_found() -> None:
    code = codes.encode(SELECTION, OUTCOMES)
    letters = code.removeprefix("PPO-").replace("-", "")
    wrong = [letters[:at] + other + letters[at + 1 :] for at in range(len(letters)) for other in codes.LETTERS if other != letters[at]]
    swapped = [letters[:at] + letters[at + 1] + letters[at] + letters[at + 2 :] for at in range(len(letters) - 1)]
    shorter = [letters[:at] for at in range(len(letters))]
    for damaged in {*wrong, *swapped, *shorter} - {letters}:
        with pytest.raises(codes.BadCode, match="typing error|is no result code"):
            codes.decode(f"PPO-{damaged}")


def test_a_code_of_other_lessons_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codes, "_mark", lambda questions: 5)
    code = codes.encode(SELECTION, OUTCOMES)
    monkeypatch.undo()
    with pytest.raises(codes.BadCode, match="made with other lessons"):
        codes.decode(code)


def test_an_outcome_for_each_question_is_needed() -> None:
    for outcomes in (OUTCOMES[1:], (*OUTCOMES[1:], "perhaps")):
        with pytest.raises(ValueError, match="one outcome"):
            codes.encode(SELECTION, outcomes)


def test_lines_have_a_name_a_code_or_a_problem() -> None:
    code = codes.encode(SELECTION, OUTCOMES)
    named, alone, damaged, none = codes.checked([f"Ana, PPO class: {code}", "", code, f"Ben {code[:-1]}", "hello"])
    assert (named["who"], alone["who"], damaged["who"]) == ("Ana, PPO class", "", "Ben")
    assert named["outcomes"] == list(OUTCOMES) and named["lessons"] == ["gae", "clip"] and named["seed"] == 7
    assert [entry["scene"] for entry in named["questions"]] == [question.scene for question in SELECTION.picked()]
    assert "typing error" in damaged["problem"] and "There is no code in 'hello'" in none["problem"]


# --- plans, and the question before a lesson ---------------------------------------------------------------------------------


def test_links_of_the_plans_lead_to_scenes_that_exist_and_quizzes_that_can_be_drawn() -> None:
    scenes, quizzes = 0, 0
    for entry in plan.plans():
        for to in links(entry["blocks"]):
            kind, _, rest = to.partition(":")
            if kind == "lesson":
                lesson, _, scene = rest.partition("#")
                assert scene in answers.scenes_of(lesson), to
                scenes += 1
                continue
            assert kind == "place", to
            params = {key: values[0] for key, values in parse_qs(f"place={rest}").items()}
            assert params["place"] == "teach" and params["show"] in ("hour", "check", "quiz"), to
            if params["show"] == "quiz":
                named = dict(part.split(":") for part in params["set"].split(","))
                assert Selection.of(named["lessons"].split("."), int(named["each"]), int(params["seed"])).picked()
                quizzes += 1
    assert scenes >= 12 and quizzes == 2


def test_the_ready_hour_is_one_hour() -> None:
    hour = json.dumps(next(entry for entry in plan.plans() if entry["name"] == "hour")["blocks"])
    spans = [(int(begin), int(end)) for begin, end in re.findall(r'"(\d+) to (\d+)"', hour)]
    assert spans[0][0] == 0 and 55 <= spans[-1][1] <= 60
    assert all(before[1] == after[0] for before, after in zip(spans, spans[1:], strict=False))


def test_a_lesson_begins_with_a_question_from_two_lessons_back() -> None:
    assert two_back(LESSONS[0], 1) is None and two_back(LESSONS[1], 1) is None
    for index, lesson in enumerate(LESSONS[2:]):
        actual = [two_back(lesson, seed) for seed in range(12)]
        assert {question.lesson for question in actual if question} == {LESSONS[index]}
        if any(question.light for question in questions_of(LESSONS[index])):
            assert all(question and question.light for question in actual)
    made = opening("clip", 4)
    question = two_back("clip", 4)
    assert made and question and made == question_data(question, 4)


# --- commands ----------------------------------------------------------------------------------------------------------------


def test_a_sheet_is_written_as_one_file_that_asks_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "sheet.html"
    arguments = ["lessons", "sheet", "--lessons", "gae,clip", "--seed", "7", "--each", "1", "--out", str(out)]
    assert main(arguments) == DONE
    assert "2 questions, seed 7" in capsys.readouterr().out
    text = out.read_text(encoding="utf-8")
    assert not re.search(r'(src|href)="(?!data:)|url\((?!data:)|https?://(?!www\.w3\.org)', text)
    assert "default-src 'none'" in text
    (held,) = re.findall(r'id="sheet">(.*?)</script>', text)
    assert json.loads(held) == json.loads(json.dumps(sheet(["clip", "gae"], 1, 7, with_answers=False)))
    assert main(arguments) == BAD_INPUT and "is there already" in capsys.readouterr().err
    assert main([*arguments, "--replace", "--answers"]) == DONE


def test_no_text_of_a_sheet_can_end_its_element() -> None:
    from rlhf_studio.ui.learn.sheet_file import page_of

    made = sheet(["clip"], 1, 7)
    hostile = {**made, "titles": ["</script><script>alert(1)</script>"], "lessons": ["<b>"]}
    page = page_of(hostile)
    assert "</script><script>alert" not in page and "<b>" not in page
    (held,) = re.findall(r'id="sheet">(.*?)</script>', page)
    assert json.loads(held)["titles"] == hostile["titles"]


def test_the_command_refuses_what_does_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for lessons, seed, more, message in (
        ("nowhere", "1", [], "There is no lesson 'nowhere'. There are rlhf, "),
        (" , ", "1", [], "name at least one lesson"),
        ("clip", "-1", [], "the seed is a whole number"),
        ("clip", "1", ["--each", "7"], "from 1 to 6"),
    ):
        arguments = ["--lessons", lessons, "--seed", seed, *more, "--out", str(tmp_path / "x.html")]
        assert main(["lessons", "sheet", *arguments]) == BAD_INPUT
        assert message in capsys.readouterr().err
    assert not (tmp_path / "x.html").exists()


def test_codes_are_checked_by_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    code = codes.encode(SELECTION, OUTCOMES)
    assert main(["lessons", "check", f"Ana {code}"]) == DONE
    output = capsys.readouterr().out
    assert f"Ana: {code}\n  gae, clip, seed 7: 3 of 6 right at the first try" in output
    assert f"2  gae, {SELECTION.picked()[1].scene}: right at the second try" in output
    assert main(["lessons", "check", "--json", code, code[:-2]]) == BAD_INPUT
    good, bad = json.loads(capsys.readouterr().out)
    assert good["outcomes"] == list(OUTCOMES) and "typing error" in bad["problem"]


def test_a_code_for_more_questions_than_a_sheet_has_spoils_no_other_row() -> None:
    good = codes.encode(Selection.of(["clip"], 1, 7), ["first"])
    rows = codes.checked([f"Ana {good}", "Eve PPO-8000E0FZZY002JZ"])
    assert "problem" not in rows[0] and rows[0]["who"] == "Ana"
    assert "problem" in rows[1]
