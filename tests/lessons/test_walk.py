"""One walk through all lessons and stations of the tour: at the start, in the corners of their controls, and at random places."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from rlhf_studio.glossary import GLOSSARY
from rlhf_studio.lessons import answers, shelf
from rlhf_studio.lessons.kit import Scene
from rlhf_studio.lessons.kit.text import LessonText, SceneText

MOST_WORDS, FEWEST_WORDS_OF_AN_ANSWER, MOST_CORNERS, MOST_CODE = 90, 5, 32, 30
FEW, MANY = range(12), range(12, 50)  # seeds of random places
TABS = ("train", "live", "runs", "talk", "feedback", "road", "evaluate", "learn")
NO_PROSE = ("code", "formula", "slot")
# A digit that no letter or hyphen comes before: "k1" and "GPT-2" are names, "2 of 3" would be a typed result.
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
TYPED_NUMBER = re.compile(r"(?<![A-Za-z\d-])\d")

STATIONS = [entry.name for entry in shelf.entries(shelf=shelf.TOUR)]
NAMES = [*(entry.name for entry in shelf.entries()), *STATIONS]
LESSONS = [(name, language) for name in NAMES for language in shelf.languages(name)]
SCENES = [(name, scene) for name, _ in dict.fromkeys((name, "") for name, _ in LESSONS) for scene in answers.scenes_of(name)]


def blocks_of(text: LessonText) -> Iterator[dict[str, Any]]:
    yield from text.introduction
    for scene in text.scenes:
        yield from scene.blocks


def prose(piece: Any) -> Iterator[str]:
    """All text that people read as prose: no code, formulas, slots, or titles of sources on the web."""
    if isinstance(piece, str):
        yield piece
    elif isinstance(piece, list):
        for one in piece:
            yield from prose(one)
    elif isinstance(piece, dict) and piece.get("kind") not in NO_PROSE and not str(piece.get("to", "")).startswith("http"):
        for key in ("content", "items", "caption", "question", "label"):
            yield from prose(piece.get(key, []))
        for _, explanation in piece.get("answers", []):
            yield from prose(explanation)


def links(piece: Any) -> Iterator[str]:
    if isinstance(piece, dict):
        if piece.get("kind") == "link":
            yield piece["to"]
        for value in piece.values():
            yield from links(value)
    elif isinstance(piece, list):
        for one in piece:
            yield from links(one)


def words_named(piece: Any) -> Iterator[str]:
    """The names of the words in what is shown."""
    if isinstance(piece, str) and piece.startswith("@"):
        yield piece[1:]
    elif isinstance(piece, dict):
        for key, value in piece.items():
            yield from words_named(key)
            yield from words_named(value)
    elif isinstance(piece, list):
        for one in piece:
            yield from words_named(one)


def place(scene: Scene, picks: tuple[int, ...], needed: dict[str, Any]) -> dict[str, Any]:
    """The first (0) or last (-1) value of each control; what a run makes depends on the controls before it."""
    values = scene.start()
    for at, (control, pick) in enumerate(zip(scene.controls, picks, strict=True)):
        values[control.name] = scene.made(values, needed)[at][0].values()[pick]
    return values


def places(lesson: str, scene: Scene, needed: dict[str, Any]) -> list[dict[str, Any]]:
    """The start, corners, and a few draws."""
    corners = list(itertools.product((0, -1), repeat=len(scene.controls)))
    picked = corners if len(corners) <= MOST_CORNERS else random.Random(0).sample(corners, MOST_CORNERS)
    at_corners = [] if scene.slow else [place(scene, corner, needed) for corner in picked]
    draws = [] if scene.slow else [answers.drawn(lesson, scene.name, seed) for seed in FEW]
    return [scene.start(), *at_corners, *draws]


def scene_text(lesson: str, language: str, scene: str) -> SceneText:
    return next(found for found in shelf.text_of(lesson, language).scenes if found.name == scene)


@pytest.mark.parametrize(("name", "language"), LESSONS)
def test_text_and_module_have_the_same_scenes_controls_and_pictures(name: str, language: str) -> None:
    text, scenes = shelf.text_of(name, language), answers.scenes_of(name)
    assert text.title
    assert [scene.name for scene in text.scenes] == list(scenes)
    for scene in text.scenes:
        kinds = {kind: [block for block in scene.blocks if block["kind"] == kind] for kind in ("controls", "picture", "predict")}
        controls = [item["name"] for block in kinds["controls"] for item in block["items"]]
        assert sorted(controls) == sorted(control.name for control in scenes[scene.name].controls)
        assert sorted(block["name"] for block in kinds["picture"]) == sorted(scenes[scene.name].pictures)
        assert kinds["picture"] or scene.slots, f"{scene.name} shows no number"


@pytest.mark.parametrize(("name", "language"), LESSONS)
def test_no_result_is_typed_and_no_stretch_of_text_is_long(name: str, language: str) -> None:
    text = shelf.text_of(name, language)
    for block in blocks_of(text):
        for piece in prose(block):
            assert not TYPED_NUMBER.search(piece), f"a number stands in the text: {piece!r}"
    count = 0
    for block in blocks_of(text):
        if block["kind"] in ("picture", "controls", "predict", "code"):
            count = 0
            continue
        count += len(" ".join(prose(block)).split())
        assert count <= MOST_WORDS, f"{count} words without anything to do, at {' '.join(prose(block))[:60]!r}"


@pytest.mark.parametrize(("name", "language"), LESSONS)
def test_answers_explain_links_lead_somewhere_and_code_is_short(name: str, language: str) -> None:
    text = shelf.text_of(name, language)
    for block in blocks_of(text):
        if block["kind"] == "predict":
            assert len(block["answers"]) >= 2
            for key, explanation in block["answers"]:
                assert len(" ".join(prose(explanation)).split()) >= FEWEST_WORDS_OF_AN_ANSWER, f"{block['slot']}: {key}"
        if block["kind"] == "code":
            assert len(block["lines"]) <= MOST_CODE, f"{block['symbol']} has {len(block['lines'])} lines: name from and to"
        for to in links(block):
            kind, _, rest = to.partition(":")
            stations = [station.rpartition(".")[2] for station in STATIONS]
            known = {"lesson": [entry.name for entry in shelf.entries()], "tour": stations, "term": list(GLOSSARY), "tab": list(TABS)}
            name, _, scene = rest.partition("#") if kind == "lesson" else (rest, "", "")
            assert kind in ("http", "https") or name in known[kind], f"a link leads to {to}"
            assert not scene or scene in answers.scenes_of(name), f"a link leads to {to}"


@pytest.mark.parametrize(("lesson", "name"), SCENES)
def test_numbers_are_there_and_claims_hold_everywhere(lesson: str, name: str) -> None:
    scene = answers.find(lesson, name)
    needed = answers.needed_by(scene)
    hold(lesson, scene, needed, places(lesson, scene, needed))


@pytest.mark.parametrize(("lesson", "name"), [place for place in SCENES if place[0] not in STATIONS])
def test_what_comes_with_a_lesson_is_what_the_app_computes(lesson: str, name: str) -> None:
    """``python -m tools.prepared_numbers`` writes it; numbers of a model may differ in their last digit between processors."""
    scene, kept = answers.find(lesson, name), (shelf.prepared(lesson) or {})["scenes"][name]
    assert kept["slow"] == scene.slow and (kept["shown"] is None) == scene.slow
    if not scene.slow:
        assert_close(answers.computed(lesson, name, scene.start()), kept["shown"], name)


def assert_close(now: Any, kept: Any, where: str) -> None:
    """The same words, and numbers that differ by rounding at most."""
    if isinstance(now, dict):
        assert list(now) == list(kept), where
        for key in now:
            assert_close(now[key], kept[key], f"{where}, {key}")
    elif isinstance(now, list):
        assert len(now) == len(kept), where
        for first, second in zip(now, kept, strict=True):
            assert_close(first, second, where)
    elif isinstance(now, str):
        assert NUMBER.sub("#", now) == NUMBER.sub("#", kept), where
        assert_close([float(one) for one in NUMBER.findall(now)], [float(one) for one in NUMBER.findall(kept)], where)
    elif isinstance(now, float | int) and not isinstance(now, bool):
        assert now == pytest.approx(kept, rel=0.02, abs=0.011), where
    else:
        assert now == kept, where


@pytest.mark.long
@pytest.mark.parametrize(("lesson", "name"), SCENES)
def test_numbers_are_there_and_claims_hold_in_more_places(lesson: str, name: str) -> None:
    scene = answers.find(lesson, name)
    if scene.slow:
        pytest.skip("measured when it is asked for")
    hold(lesson, scene, answers.needed_by(scene), [answers.drawn(lesson, name, seed) for seed in MANY])


def hold(lesson: str, scene: Scene, needed: dict[str, Any], places: list[dict[str, Any]]) -> None:
    """All that a scene shows at these places has a text, and all that it claims is so."""
    name = scene.name
    for values in places:
        numbers = scene.compute(values, needed)
        for language in shelf.languages(lesson):
            text = shelf.text_of(lesson, language)
            shown = answers.shown(scene, numbers, scene_text(lesson, language, name).slots)  # raises for what is missing or not finite
            missing = set(words_named([shown["slots"], shown["pictures"]])) - text.words.keys()
            assert not missing, f"the words {missing} have no text in {language}"
            for block in scene_text(lesson, language, name).blocks:
                if block["kind"] == "predict":
                    said = shown["slots"][block["slot"]].lstrip("@")
                    assert said in dict(block["answers"]), f"at {values} the answer is {said!r}"
        for claim, holds in scene.claims.items():
            assert holds(numbers), f"at {values} it does not hold that {claim}"


@pytest.mark.parametrize(("lesson", "name"), SCENES)
def test_every_control_changes_what_is_seen(lesson: str, name: str) -> None:
    scene = answers.find(lesson, name)
    if scene.slow:
        pytest.skip("measured when it is asked for")
    start, needed = scene.start(), answers.needed_by(scene)
    for control, _ in scene.made(start, needed):
        own = {key for key, (number, _) in answers.slots_of(lesson, name, "en").items() if number == control.name}

        def seen(value: Any, own: set[str] = own, moved: str = control.name) -> dict[str, Any]:
            shown = answers.computed(lesson, name, {**start, moved: value})
            assert "problem" not in shown
            return {"pictures": shown["pictures"], "slots": {key: text for key, text in shown["slots"].items() if key not in own}}

        first, *others = control.values()
        before = seen(first)
        assert any(seen(value) != before for value in reversed(others)), f"{control.name} changes nothing but itself"


def test_lessons_have_numbers_of_their_own() -> None:
    for one in (shelf.LESSONS, shelf.TOUR):
        numbers = [entry.number for entry in shelf.entries(shelf=one)]
        assert numbers and len(set(numbers)) == len(numbers)
