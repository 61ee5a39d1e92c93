"""The questions of the lessons, and which of them a seed picks. Read from texts and source alone: no lesson's module is imported."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rlhf_studio.lessons import parts, shelf
from rlhf_studio.lessons.kit.code import syntax

MOST_EACH, MOST_SEED, MOST_QUESTIONS = 6, 999_999, 40
PARTS = parts.__name__


@dataclass(frozen=True)
class Question:
    """The first question of a scene.

    Attributes:
        lesson, scene: where it is asked.
        slot: the number or word that answers it.
        title: the lesson's title.
        light: no model has to be loaded for it.
        drawn: a picture stands before it.
    """

    lesson: str
    scene: str
    slot: str
    title: str
    light: bool
    drawn: bool


@cache
def questions_of(lesson: str, language: str = "en") -> tuple[Question, ...]:
    """A lesson's questions in order, without those that have to be measured first. Raises :class:`~rlhf_studio.lessons.shelf.NoLesson`."""
    text, needs = shelf.text_of(lesson, language), _needs(lesson)
    questions = []
    for scene in text.scenes:
        kinds = [block["kind"] for block in scene.blocks]
        index = kinds.index("predict") if "predict" in kinds else None
        of_scene = needs.get(scene.name, {"needs"})  # what is not found in the source may need anything
        if index is not None and "slow" not in of_scene:
            light, drawn = "needs" not in of_scene, "picture" in kinds[:index]
            questions.append(Question(lesson, scene.name, scene.blocks[index]["slot"], text.title, light, drawn))
    return tuple(questions)


def question_of(lesson: str, scene: str) -> Question:
    """The question of a scene. Raises ValueError where it has none, and :class:`~rlhf_studio.lessons.shelf.NoLesson`."""
    match = next((question for question in questions_of(lesson) if question.scene == scene), None)
    if match is None:
        raise ValueError(f"The lesson {lesson} has no question in a scene {scene!r}.")
    return match


@dataclass(frozen=True)
class Selection:
    """What a sheet or a quiz is made from: equal selections give equal questions with equal numbers.

    Attributes:
        lessons: names of lessons, in the order of the list.
        each: how many questions of each lesson, from 1 to 6; a lesson that has fewer gives all.
        seed: from 0 to 999,999.

    Raises ValueError for what does not fit or makes more than 40 questions, and :class:`~rlhf_studio.lessons.shelf.NoLesson`.
    """

    lessons: tuple[str, ...]
    each: int
    seed: int

    def __post_init__(self) -> None:
        if not self.lessons:
            raise ValueError("name at least one lesson")
        if type(self.each) is not int or not 1 <= self.each <= MOST_EACH:
            raise ValueError(f"questions of each lesson: a whole number from 1 to {MOST_EACH}, got {self.each!r}")
        if type(self.seed) is not int or not 0 <= self.seed <= MOST_SEED:
            raise ValueError(f"the seed is a whole number from 0 to 999,999, got {self.seed!r}")
        for name in self.lessons:
            shelf.text_of(name)  # only names that are known
        count = sum(min(self.each, len(questions_of(name))) for name in self.lessons)
        if count > MOST_QUESTIONS:
            raise ValueError(f"that would be {count} questions, and {MOST_QUESTIONS} are the most: take fewer lessons, or fewer of each")

    @classmethod
    def of(cls, lessons: Sequence[str], each: int, seed: int) -> Selection:
        """A selection that does not depend on the order of the names, or on how often a name occurs."""
        order = {entry.name: entry.number for entry in shelf.entries()}
        named = dict.fromkeys(lessons)
        return cls(tuple(sorted(named, key=lambda name: (order.get(name, 0), name))), each, seed)

    def picked(self, language: str = "en") -> tuple[Question, ...]:
        """The questions, lesson by lesson. Those of one lesson do not depend on which others are chosen."""
        picked: list[Question] = []
        for lesson in self.lessons:
            known = questions_of(lesson, language)
            numbers = random.Random(f"sheet {lesson} {self.seed}").sample(range(len(known)), min(self.each, len(known)))
            picked += [known[number] for number in sorted(numbers)]
        return tuple(picked)


def two_back(lesson: str, seed: int, language: str = "en") -> Question | None:
    """A question of the lesson that stands two places before this one; None for the first two lessons.

    It is a small one where there is one: no model has to be loaded for it, and no picture stands before it.
    """
    names = [entry.name for entry in shelf.entries()]
    index = names.index(lesson) - 2 if lesson in names else -1
    if index < 0:
        return None
    known = questions_of(names[index], language)
    light = [question for question in known if question.light] or list(known)
    small = [question for question in light if not question.drawn] or light
    return random.Random(f"two back {lesson} {seed}").choice(small) if small else None


def _needs(lesson: str) -> dict[str, set[str]]:
    """By the scenes' names: which of ``needs`` and ``slow`` the source gives them, in the lesson's module and in the parts it imports."""
    needs = {}
    for path in _sources(shelf.file_of(lesson, "py")):
        for node in ast.walk(syntax(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Scene" and node.args and isinstance(node.args[0], ast.Constant):
                needs[str(node.args[0].value)] = {str(keyword.arg) for keyword in node.keywords if keyword.arg in ("needs", "slow")}
    return needs


def _sources(path: Path) -> Iterator[Path]:
    yield path
    for node in ast.walk(syntax(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PARTS):
            inner = (node.module or "").removeprefix(PARTS).strip(".")
            for name in [inner] if inner else [alias.name for alias in node.names]:
                yield Path(parts.__file__).parent / f"{name}.py"
