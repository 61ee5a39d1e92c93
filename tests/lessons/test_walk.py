"""One walk through the scenes of all lessons and stations: at the start, in the corners of their controls, and at random places."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from rlhf_studio.lessons import answers, shelf
from rlhf_studio.lessons.kit import Scene
from rlhf_studio.lessons.kit.text import SceneText
from tests.lessons.claims import claims_of

NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
STATIONS = [entry.name for entry in shelf.entries(shelf=shelf.TOUR)]
NAMES = [*(entry.name for entry in shelf.entries()), *STATIONS]


def scene_text(lesson: str, language: str, scene: str) -> SceneText:
    return next(problems for problems in shelf.text_of(lesson, language).scenes if problems.name == scene)


def words_named(piece: Any) -> Iterator[str]:
    """The names of the words in what is shown."""
    if isinstance(piece, str) and piece.startswith("@"):
        yield piece[1:]
    elif isinstance(piece, dict):
        yield from words_named([*piece, *piece.values()])
    elif isinstance(piece, list):
        for part in piece:
            yield from words_named(part)


def corners(scene: Scene, needed: dict[str, Any], most: int) -> Iterator[dict[str, Any]]:
    """The first (0) or last (-1) value of each control; what a run makes depends on the controls before it."""
    every = list(itertools.product((0, -1), repeat=len(scene.controls)))
    for corner in every if len(every) <= most else random.Random(0).sample(every, most):
        values = scene.start()
        for at, (control, pick) in enumerate(zip(scene.controls, corner, strict=True)):
            values[control.name] = scene.made(values, needed)[at][0].values()[pick]
        yield values


def problems_at(lesson: str, scene: Scene, needed: dict[str, Any], values: dict[str, Any]) -> Iterator[str]:
    """What is wrong with what a scene shows and claims for these values of its controls."""
    numbers = scene.compute(values, needed)
    for language in shelf.languages(lesson):
        text, own = shelf.text_of(lesson, language), scene_text(lesson, language, scene.name)
        content = answers.scene_content(scene, numbers, own.slots)  # raises for what is missing or not finite
        if missing := set(words_named([content["slots"], content["pictures"]])) - text.words.keys():
            yield f"the words {missing} have no text in {language}"
        for block in own.blocks:
            if block["kind"] == "predict" and content["slots"][block["slot"]].lstrip("@") not in dict(block["answers"]):
                yield f"the answer {content['slots'][block['slot']]!r} of {block['slot']} cannot be chosen"
    for claim, holds in claims_of(lesson, scene).items():
        if not holds(numbers):
            yield f"it does not hold that {claim}"


def walk(lesson: str, most_corners: int, seeds: Sequence[int]) -> list[str]:
    """Every problem of a lesson's scenes; slow scenes are looked at with few values."""
    problems = []
    for name, scene in answers.scenes_of(lesson).items():
        needed, slow = answers.needed_by(scene), scene.slow
        at_corners = [] if slow else corners(scene, needed, most_corners)
        draws = [] if slow else [answers.drawn(lesson, name, seed) for seed in seeds]
        for values in [scene.start(), *at_corners, *draws]:
            problems += [f"{name} at {values}: {problem}" for problem in problems_at(lesson, scene, needed, values)]
    return problems


@pytest.mark.parametrize("lesson", NAMES)
def test_numbers_are_there_and_claims_hold(lesson: str) -> None:
    assert walk(lesson, most_corners=1, seeds=range(1)) == []


@pytest.mark.long
@pytest.mark.parametrize("lesson", NAMES)
def test_numbers_are_there_and_claims_hold_everywhere(lesson: str) -> None:
    assert walk(lesson, most_corners=32, seeds=range(50)) == []


def test_every_claim_is_about_a_scene() -> None:
    scenes = [(lesson, scene) for lesson in NAMES for scene in answers.scenes_of(lesson).values()]
    assert [f"{lesson}/{scene.name}" for lesson, scene in scenes if not claims_of(lesson, scene)] == []


def test_what_comes_with_a_lesson_is_what_the_app_computes() -> None:
    """``python -m tools.prepared_numbers`` writes it; numbers of a model may differ in their last digit between processors."""
    for entry in shelf.entries():
        prepared = (shelf.prepared(entry.name) or {})["scenes"]
        for name, scene in answers.scenes_of(entry.name).items():
            assert prepared[name]["slow"] == scene.slow and (prepared[name]["shown"] is None) == scene.slow
            if not scene.slow:
                assert_close(answers.computed(entry.name, name, scene.start()), prepared[name]["shown"], f"{entry.name}/{name}")


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
        assert_close([float(text) for text in NUMBER.findall(now)], [float(text) for text in NUMBER.findall(kept)], where)
    elif isinstance(now, float | int) and not isinstance(now, bool):
        assert now == pytest.approx(kept, rel=0.02, abs=0.011), where
    else:
        assert now == kept, where


@pytest.mark.long
def test_every_control_changes_what_is_seen() -> None:
    dead = []
    for lesson in NAMES:
        for name, scene in answers.scenes_of(lesson).items():
            start, needed = scene.start(), answers.needed_by(scene)
            for control, _ in [] if scene.slow else scene.made(start, needed):
                own = {key for key, (number, _) in answers.slots_of(lesson, name, "en").items() if number == control.name}

                def seen(value: Any, own: set[str] = own, lesson: str = lesson, name: str = name, at: Any = (start, control.name)) -> Any:
                    content = answers.computed(lesson, name, {**at[0], at[1]: value})
                    return content["pictures"], {key: text for key, text in content["slots"].items() if key not in own}

                first, *others = control.values()
                before = seen(first)
                if all(seen(value) == before for value in reversed(others)):
                    dead.append(f"{lesson}/{name}: {control.name}")
    assert dead == []


def test_lessons_have_numbers_of_their_own_and_stations_follow_the_step() -> None:
    for on in (shelf.LESSONS, shelf.TOUR):
        numbers = [entry.number for entry in shelf.entries(shelf=on)]
        assert numbers and len(set(numbers)) == len(numbers)
    order = (
        "prompts sampling score pooling reference rewards gae whitening minibatch policy_loss value_loss total optimizer controller record"
    )
    assert [name.rpartition(".")[2] for name in STATIONS] == order.split()
