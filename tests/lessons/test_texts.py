"""The texts of lessons, stations and experiments fit their modules: scenes, controls, questions, links, code, and no typed results."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.config.glossary import GLOSSARY
from rlhf_studio.lessons import answers, shelf
from rlhf_studio.lessons.faults import shelf as experiments
from rlhf_studio.lessons.kit import code
from rlhf_studio.lessons.kit.code import CodeError
from rlhf_studio.lessons.kit.text import LessonText, read_text
from rlhf_studio.lessons.tour.line import MOST
from tests.lessons.test_walk import NAMES, STATIONS, scene_text

MOST_WORDS, FEWEST_WORDS_OF_AN_ANSWER, FEWEST_CHARACTERS_OF_AN_ANSWER, MOST_CODE = 90, 5, 8, 30
TABS = ("train", "live", "runs", "talk", "feedback", "road", "evaluate", "learn")
NO_PROSE = ("code", "formula", "slot")
# A digit that no letter or hyphen comes before: "k1" and "GPT-2" are names, "2 of 3" would be a typed result.
TYPED_NUMBER = re.compile(r"(?<![A-Za-z\d-])\d")
FOR_YES_OR_NO = re.compile(r"(?:Is|Are|Was|Were|Does|Do|Did|Has|Have|Had|Can|Could|Will|Would|Should)\b")
CHINESE = re.compile(r"[\u4e00-\u9fff]")
DENIES = re.compile(r"[不没否]")
ASKS_WHICH = re.compile(r"(?:What|Which|Where|Whose|Who|How|Among which)\b")
KNOWN = {
    "lesson": [entry.name for entry in shelf.entries()],
    "tour": [station.rpartition(".")[2] for station in STATIONS],
    "term": list(GLOSSARY),
    "tab": list(TABS),
}


def texts() -> Iterator[tuple[str, LessonText]]:
    for name in NAMES:
        yield from ((name, shelf.text_of(name, language)) for language in shelf.languages(name))
    yield from ((entry["name"], experiments.text_of(entry["name"])) for entry in experiments.entries())


def blocks_of(text: LessonText) -> Iterator[dict[str, Any]]:
    yield from text.introduction
    for scene in text.scenes:
        yield from scene.blocks


def prose(piece: Any) -> Iterator[str]:
    """All text that people read as prose: no code, formulas, slots, or titles of sources on the web."""
    if isinstance(piece, str):
        yield piece
    elif isinstance(piece, list):
        for part in piece:
            yield from prose(part)
    elif isinstance(piece, dict) and piece.get("kind") not in NO_PROSE and not str(piece.get("to", "")).startswith("http"):
        for key in ("content", "items", "caption", "question", "label"):
            yield from prose(piece.get(key, []))
        for _, explanation in piece.get("answers", []):
            yield from prose(explanation)


def links(piece: Any) -> Iterator[str]:
    if isinstance(piece, dict):
        if piece.get("kind") == "link":
            yield piece["to"]
        piece = list(piece.values())
    for part in piece if isinstance(piece, list) else []:
        yield from links(part)


def test_text_and_module_have_the_same_scenes_controls_and_pictures() -> None:
    for name in NAMES:
        text, scenes = shelf.text_of(name), answers.scenes_of(name)
        assert text.title and [scene.name for scene in text.scenes] == list(scenes), name
        for scene in text.scenes:
            kinds = {kind: [block for block in scene.blocks if block["kind"] == kind] for kind in ("controls", "picture")}
            controls = [item["name"] for block in kinds["controls"] for item in block["items"]]
            assert sorted(controls) == sorted(control.name for control in scenes[scene.name].controls), f"{name}/{scene.name}"
            assert sorted(block["name"] for block in kinds["picture"]) == sorted(scenes[scene.name].pictures), f"{name}/{scene.name}"
            assert kinds["picture"] or scene.slots, f"{name}/{scene.name} shows no number"


def explains(text: str) -> bool:
    """Whether an answer says enough. Chinese does not separate words: there each character counts, and each Latin word."""
    if CHINESE.search(text):
        return len(re.findall(rf"{CHINESE.pattern}|[\w-]+", text, re.ASCII)) >= FEWEST_CHARACTERS_OF_AN_ANSWER
    return len(text.split()) >= FEWEST_WORDS_OF_AN_ANSWER


def problems_of(block: dict[str, Any]) -> Iterator[str]:
    """What is wrong with a block of a text."""
    for piece in prose(block):
        if TYPED_NUMBER.search(piece):
            yield f"a number stands in the text: {piece!r}"
    if block["kind"] == "code" and len(block["lines"]) > MOST_CODE:
        yield f"{block['symbol']} has {len(block['lines'])} lines: name from and to"
    for to in links(block):
        kind, _, rest = to.partition(":")
        name, _, scene = rest.partition("#") if kind == "lesson" else (rest, "", "")
        if kind not in ("http", "https") and (name not in KNOWN.get(kind, ()) or (scene and scene not in answers.scenes_of(name))):
            yield f"a link leads to {to}"
    if block["kind"] == "predict" and len(block["answers"]) < 2:
        yield f"{block['slot']} has one answer"
    for key, explanation in block.get("answers", []):
        if not explains(" ".join(prose(explanation))):
            yield f"the answer {key} explains nothing"


def test_no_result_is_typed_links_lead_somewhere_and_answers_explain() -> None:
    assert [f"{name}: {problem}" for name, text in texts() for block in blocks_of(text) for problem in problems_of(block)] == []


def test_no_stretch_of_a_lesson_is_long() -> None:
    for name in NAMES:
        count = 0
        for block in blocks_of(shelf.text_of(name)):
            count = 0 if block["kind"] in ("picture", "controls", "predict", "code") else count + len(" ".join(prose(block)).split())
            assert count <= MOST_WORDS, f"{name}: {count} words without anything to do, at {' '.join(prose(block))[:60]!r}"


# --- questions: yes and no answer a question for yes or no, and no other one --------------------------------------------------------


def plain(pieces: list[Any]) -> str:
    return "".join(piece if isinstance(piece, str) else plain(piece.get("content", [])) or "X" for piece in pieces)


def fits(question: str, options: list[str]) -> bool:
    """Whether these are answers to it, going by the question's last sentence."""
    if CHINESE.search(question):
        return fits_in_chinese(question, options)
    if "?" not in question:
        return False
    lead = re.split(r"(?<=[.?!])\s+", question[: question.rindex("?") + 1])[-1]
    chosen = {option.split(",")[0].split(":")[0] for option in options}
    if ASKS_WHICH.match(lead) or " or " in lead:
        return not {"yes", "no"} & chosen
    return {"yes", "no"} <= chosen <= {"yes", "no", "neither"} if FOR_YES_OR_NO.match(lead) else True


def fits_in_chinese(question: str, options: list[str]) -> bool:
    """A question that ends with 吗 is answered by 是 and 否, or by a verb and its denial (有, 没有); no other one by 是 or 否."""
    lead = question[: question.rfind("？") + 1]
    if not lead.endswith("吗？"):
        return bool(lead) and not {"是", "否"} & set(options)
    return {"是", "否"} <= set(options) or any(DENIES.match(option) for option in options)


def test_the_answers_fit_the_question() -> None:
    wrong = []
    for name, text in texts():
        for block in blocks_of(text):
            if block["kind"] == "predict":
                question = plain(block["question"])
                options = [text.words.get(key, key).lower() for key, _ in block["answers"]]
                wrong += [] if fits(question, options) else [f"{name}: {question} {options}"]
    assert wrong == []


# --- the tour ---------------------------------------------------------------------------------------------------------------------


def source_of(station: str) -> str:
    return (Path(shelf.__file__).parent / "tour" / f"{station.rpartition('.')[2]}.en.md").read_text(encoding="utf-8")


def test_a_station_has_code_a_formula_shapes_tensors_and_questions() -> None:
    for station in STATIONS:
        (scene,) = shelf.text_of(station).scenes
        kinds = [block["kind"] for block in scene.blocks]
        assert {"code", "formula"} <= set(kinds) and kinds.count("predict") >= 2 and kinds.count("controls") == 1, station
        assert "\nShapes: " in source_of(station) and "## This line now" in source_of(station), station
        for index, kind in enumerate(kinds):
            assert kind != "code" or kinds[index - 1] == "paragraph", f"{station}: a note stands before each piece of code"
        picture = answers.computed(station, "line", answers.find(station, "line").start())["pictures"]["tensors"]
        assert len(picture["columns"]) <= MOST and picture["rows"], station
        for row in picture["rows"]:
            assert any(kind in row["label"] for kind in ("float", "int", "bool")), f"{station}: {row['label']} names no format"
            assert len(row["cells"]) == len(picture["columns"]), station


def test_an_anchor_that_no_longer_matches_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each anchor in turn is changed in what is read of the source: the station can then not be read."""
    real = code._line_with
    for station in STATIONS:
        source = source_of(station)
        for anchor in [line.partition(": ")[2].strip() for line in source.splitlines() if line.startswith(("from: ", "to: "))]:

            def of_changed(lines: list[str], numbers: list[int], text: str, symbol: str, gone: str = anchor) -> int:
                return real([line.replace(gone, "changed") for line in lines], numbers, text, symbol)

            monkeypatch.setattr(code, "_line_with", of_changed)
            with pytest.raises(CodeError, match="must stand in one"):
                read_text(source)
            monkeypatch.setattr(code, "_line_with", real)


def test_a_saying_leads_to_the_scene_that_refutes_it_and_its_two_numbers_differ() -> None:
    from rlhf_studio.lessons.pages.often_said import SAYINGS

    for saying in SAYINGS:
        text, scene = scene_text("often_said", "en", saying.name), answers.find("often_said", saying.name)
        assert list(links(text.blocks)) == [f"lesson:{saying.lesson}#{saying.scene}"] and text.slots, saying.name
        as_said, as_it_is = saying.compared(scene.compute({}, answers.needed_by(scene)))
        assert abs(as_said - as_it_is) > 0.2 * max(abs(as_said), abs(as_it_is)), f"{saying.name}: {as_said} and {as_it_is} look the same"
