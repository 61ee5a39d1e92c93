"""Questions that are ready for a teacher: those of "Break it on purpose", which students answer with a choice or a curve, and those of the
lessons."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from rlhf_studio.language import N_, S_, _, language, together, told
from rlhf_studio.lessons import shelf as lessons
from rlhf_studio.lessons.faults import shelf as faults
from rlhf_studio.lessons.faults.experiment import MOST_SEED, STEPS
from rlhf_studio.lessons.faults.pair import METRICS
from rlhf_studio.lessons.kit.text import LessonText
from rlhf_studio.lessons.teaching.questions import question_of, questions_of
from rlhf_studio.runs.classroom.records import LONGEST_QUESTION, RoundQuestion
from rlhf_studio.runs.feedback.store import NotPossible
from rlhf_studio.visible import refuse_hidden

FIELDS: Mapping[str, tuple[float, float]] = {
    "kl": (0, 60),
    "gold": (-1.5, 1.5),
    "score": (-1, 3),
    "clip": (0, 0.5),
    "value": (-1, 3),
    "value_loss": (0, 0.5),
    "explained": (-1, 1),
    "length": (0, 32),
    "entropy": (0, 2.5),
    "gradient": (0, 2),
}
"""The metrics that can be drawn, by their short names, with the lowest and the highest value of the field. A run may leave the field."""
DRAWN = ("kl", "gold", "score")  # by their short names, for each experiment
NUMBERED = ("first", "second", "third")  # options of lessons that stand for numbers
PLAIN = {"yes": N_("Yes"), "no": N_("No")}
Json = dict[str, Any]


def label_of(short: str) -> str:
    """What people read at a curve's axis."""
    return faults.text_of(faults.entries()[0]["name"], language()).words[short]


def metrics() -> list[Json]:
    """What can be drawn: names, labels and fields."""
    return [{"name": name, "label": label_of(name), "low": low, "high": high} for name, (low, high) in FIELDS.items()]


def field_of(draw: str) -> Json:
    """The field in which a metric is drawn, as :class:`RoundQuestion` takes it. Raises NotPossible for what cannot be drawn."""
    if draw not in FIELDS:
        raise NotPossible(_("This curve cannot be drawn."))
    low, high = FIELDS[draw]
    return {"metric": METRICS[draw], "label": label_of(draw), "first": 1, "last": STEPS, "low": low, "high": high}


# --- Break it on purpose ------------------------------------------------------------------------------------------------------------


def of_experiments() -> list[Json]:
    """The questions of experiments, one group per experiment. Each has its text, and ``ask``, which :func:`experiment_question` takes."""
    return _of_experiments(language())


@cache
def _of_experiments(of: str) -> list[Json]:
    groups = []
    for entry in faults.entries(of):
        name, ask = entry["name"], _predict_block(entry["name"])
        choices = [{"ask": {"show": name}, "text": plain(ask["question"], {}, {})}]
        curves = [{"ask": {"show": name, "draw": short}, "text": _("Draw a curve: {name}").format(name=label_of(short))} for short in DRAWN]
        groups.append({"group": _("Break it: {title}").format(title=entry["title"]), "questions": [*choices, *curves]})
    return groups


def experiment_question(show: str, draw: str, seed: int) -> RoundQuestion:
    """A question that the second run of an experiment answers. Raises NotPossible."""
    try:
        text, experiment = faults.text_of(show, language()), faults.experiment_of(show)
    except faults.NoExperiment as error:
        raise NotPossible(told(error)) from None
    if not 0 <= seed <= MOST_SEED:
        raise NotPossible(_("The seed is a whole number from 0 to {most_seed}.").format(most_seed=MOST_SEED))
    if draw:
        question_text = _("{title}. What happens? Draw the curve from step 1 to step {last}.").format(title=text.title, last=STEPS)
        return as_question(question_text, experiment=experiment.name, seed=seed, **field_of(draw))
    ask = _predict_block(show)
    question = plain(ask["question"], {}, {})
    options = _as_named(question, [text.words[key] for key, _ in ask["answers"]])
    question_text = together(_("Two runs differ in one thing only: “{title}”.").format(title=text.title), question)
    return as_question(question_text, options=options, experiment=experiment.name, seed=seed)


def option_of(show: str, key: str) -> str:
    """What people read for an answer of an experiment."""
    return faults.text_of(show, language()).words[key]


def _as_named(question: str, options: list[str]) -> tuple[str, ...]:
    """Options in the order in which the question names them, where it names them all."""
    positions = {option: question.lower().find(option.lower()) for option in options}
    return tuple(sorted(options, key=positions.__getitem__) if -1 not in positions.values() else options)


def _predict_block(show: str) -> Json:
    """The question in an experiment's text."""
    blocks = (block for scene in faults.text_of(show, language()).scenes for block in scene.blocks)
    return next(block for block in blocks if block["kind"] == "predict")


# --- lessons ------------------------------------------------------------------------------------------------------------------------


def of_lessons() -> list[Json]:
    """The questions of lessons, one group per lesson. Each has its text without the numbers, and ``ask``, which :func:`lesson_question`
    takes."""
    return _of_lessons(language())


@cache
def _of_lessons(of: str) -> list[Json]:
    groups = []
    for entry in lessons.entries(of):
        text = lessons.text_of(entry.name, of)
        rows = []
        for question in questions_of(entry.name):
            block = _question_block(text, question.scene)
            rows.append({"ask": {"lesson": entry.name, "scene": question.scene}, "text": plain(block["question"], {}, text.words)})
        if rows:
            groups.append({"group": _("Lesson {number}: {title}").format(number=entry.number, title=entry.title), "questions": rows})
    return groups


def lesson_question(lesson: str, scene: str, compute: Callable[[Json], Any]) -> RoundQuestion:
    """The question of a scene, with the numbers that the scene has when a lesson is opened. Raises NotPossible."""
    try:
        question, text = question_of(lesson, scene), lessons.text_of(lesson, language())
    except (lessons.NoLesson, ValueError) as error:
        raise NotPossible(told(error)) from None
    slots = _slots_at_start(lesson, scene, compute)
    block = _question_block(text, scene)
    keys = [key for key, _ in block["answers"]]
    known = slots[question.slot].removeprefix("@")
    question_text = plain(block["question"], slots, text.words)[:LONGEST_QUESTION]
    options = tuple(_option(key, slots, text.words) for key in keys)
    right = keys.index(known) if known in keys else None
    return as_question(question_text, options=options, right=right, lesson=lesson, scene=scene)


def _slots_at_start(lesson: str, scene: str, compute: Callable[[Json], Any]) -> Mapping[str, str]:
    """The texts of a scene's slots when its lesson is opened. A scene that must load something first has no numbers in the lesson's
    description; its numbers are computed, as the lesson's own page does. Raises NotPossible when the scene has no numbers."""
    of_lesson: Json = {"lesson": lesson, "language": language()}
    described = compute({"op": "describe", **of_lesson})["scenes"][scene]
    computed = described["shown"] or compute({"op": "compute", "scene": scene, "values": _start(described["controls"]), **of_lesson})
    if "problem" in computed:
        raise NotPossible(str(computed["problem"]))
    slots: Mapping[str, str] = computed["slots"]
    return slots


def _start(controls: list[Json]) -> Json:
    """The values of the controls at the start. None for a control whose values come from a run."""
    return {
        control["name"]: control["start"] if not control.get("made") else control["value"] if control["shared"] else None
        for control in controls
    }


def as_question(question: str, **more: Any) -> RoundQuestion:
    """A question for a round. Raises NotPossible, with a sentence for the teacher, when the question cannot be used."""
    try:
        refuse_hidden(question, S_("The question"), lines=True)
        for option in more.get("options", ()):
            refuse_hidden(option, S_("An option"))
        return RoundQuestion(question, **more)
    except ValueError as error:
        raise NotPossible(told(error)) from None


def _question_block(text: LessonText, scene: str) -> Json:
    scene_text = next(candidate for candidate in text.scenes if candidate.name == scene)
    return next(block for block in scene_text.blocks if block["kind"] == "predict")


def _option(key: str, slots: Mapping[str, str], words: Mapping[str, str]) -> str:
    """An option as the lesson's button shows it: a number when the option stands for a number, else a word."""
    if key in NUMBERED:
        number = next((text for name, text in slots.items() if name == key or name.startswith(f"{key}:")), "")
        if number:
            return _in_words(number, words)
    word = words.get(key) or _(PLAIN.get(key, key.replace("_", " ")))
    return word[:1].upper() + word[1:]


# --- a line of text from its tree -----------------------------------------------------------------------------------------------------


def plain(pieces: list[Any], slots: Mapping[str, str], words: Mapping[str, str]) -> str:
    """A text without its markup. A number that is not known becomes "…"."""
    return "".join(_plain(pieces, slots, words))


def _plain(pieces: list[Any], slots: Mapping[str, str], words: Mapping[str, str]) -> Iterator[str]:
    for piece in pieces:
        if isinstance(piece, str):
            yield piece
        elif piece["kind"] == "slot":
            yield _in_words(slots.get(piece["key"], "…"), words)
        elif piece["kind"] == "formula":
            yield _flat(piece["tree"])
        else:
            yield piece["text"] if "text" in piece else plain(piece["content"], slots, words)


def _in_words(text: str, words: Mapping[str, str]) -> str:
    return words.get(text[1:], text[1:]) if text.startswith("@") else text


def _flat(tree: Any) -> str:
    """The signs of a formula in a row."""
    return tree if isinstance(tree, str) else "".join(_flat(part) for part in tree[2:])
