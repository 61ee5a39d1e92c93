"""The frozen records of human feedback, their codecs, and the checks of what people enter."""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from rlhf_studio.runs.codec import RecordTable, as_json, converted, integer, plain, real, text, truth
from rlhf_studio.runs.values import decode_pieces, encode_pieces

Kind = Literal["pair", "ranking", "rating"]
"""What is asked: which of two responses is better; the order of two or more; or how good a single one is, from 1 upwards."""
Order = Literal["random", "uncertainty"]
"""Which item comes next: any, the same order for all annotators; or the one of which a model is least sure."""
Verdict = Literal["chosen", "tie", "both_bad", "ranks", "rating", "skip"]

WAITING_FOR_RATINGS = "Waiting for your ratings"
"""How the phase of a run begins that waits for people in its score phase; its state stays ``running``."""
MOST_ITEMS = 100_000
MOST_RESPONSES = 9
LONGEST_TEXT = 100_000  # characters of a prompt or a response
LONGEST_NAME, LONGEST_LINE, LONGEST_GUIDELINES = 40, 200, 20_000
LONGEST_LOOK = 1e9  # seconds that somebody may have looked at an item
LARGEST_ID = 2**63 - 1  # that SQLite holds
LONGEST_QUOTE = 60  # characters of what somebody sent, in a sentence that says what is wrong with it
CONFIDENCES = (0.5, 0.75, 1.0)  # a guess, fairly sure, sure


@dataclass(frozen=True)
class NewTask:
    """A task as a person writes it.

    Attributes:
        warning: what annotators must know of the content before they see it; empty for none.
        criterion: what is judged, in a word or two such as ``helpful``; goes into the exported rows.
        annotators: how many different people answer each item.
        points: the highest rating; the lowest is 1.
        pass_mark: share of the calibration items that an annotator must answer as expected before the task begins, 0 to 1.
        ask_confidence: whether annotators say how sure they are.
    """

    name: str
    kind: Kind = "pair"
    guidelines: str = ""
    warning: str = ""
    criterion: str = ""
    annotators: int = 1
    points: int = 5
    pass_mark: float = 0.8
    order: Order = "random"
    ask_confidence: bool = True

    def __post_init__(self) -> None:
        """Raises ValueError that says what is wrong."""
        if not self.name.strip() or len(self.name) > LONGEST_LINE:
            raise ValueError(f"give the task a name of at most {LONGEST_LINE} characters")
        if self.kind not in get_args(Kind):
            raise ValueError(f"a task is one of {', '.join(get_args(Kind))}, not {quoted(self.kind)}")
        if self.order not in get_args(Order):
            raise ValueError(f"the order is one of {', '.join(get_args(Order))}, not {quoted(self.order)}")
        if len(self.guidelines) > LONGEST_GUIDELINES or len(self.warning) > LONGEST_GUIDELINES:
            raise ValueError(f"guidelines and warning have at most {LONGEST_GUIDELINES:,} characters each")
        if len(self.criterion) > LONGEST_LINE:
            raise ValueError(f"the criterion has at most {LONGEST_LINE} characters")
        if not is_whole(self.annotators, 1, 100):
            raise ValueError(f"each item goes to 1 to 100 annotators, not {quoted(self.annotators)}")
        if not is_whole(self.points, 2, 9):
            raise ValueError(f"ratings go from 1 up to a number from 2 to 9, not to {quoted(self.points)}")
        if not is_number(self.pass_mark, 0, 1):
            raise ValueError(f"the pass mark is a share from 0 to 1, not {quoted(self.pass_mark)}")


@dataclass(frozen=True)
class Task:
    """A task with its id. ``run`` is the run that waits for its ratings, empty for none; ``deadline`` until when (seconds since 1970)."""

    id: str
    settings: NewTask
    run: str
    open: bool
    deadline: float | None
    created_at: float


@dataclass(frozen=True)
class NewItem:
    """A prompt with its responses.

    Attributes:
        sources: where each response came from, such as a run and its step; annotators never see it. Empty: not known.
        uncertainty: how unsure a model is of the answer; larger comes earlier in a task by uncertainty. None: last.
        answer: for a calibration item, the answer that is expected: the number of the chosen response from 0, ``tie``, ``both_bad``, a
            list of ranks, or a rating. None: a real item.
        why: one sentence that is shown after a calibration item was answered.
        step: the step of the run that asks; None for items that no run asks for.
    """

    prompt: str
    responses: tuple[str, ...]
    sources: tuple[str, ...] = ()
    uncertainty: float | None = None
    answer: int | str | list[int] | None = None
    why: str = ""
    step: int | None = None


@dataclass(frozen=True, kw_only=True)
class Item(NewItem):
    """A stored item: ``number`` counts those of its task, ``votes`` the answers that are in force."""

    id: int
    number: int
    votes: int


@dataclass(frozen=True)
class Shown:
    """An item as one annotator gets it: ``order[i]`` is the number of the response that stands at place i."""

    item: Item
    order: tuple[int, ...]
    attempt: int  # 0 for a real item; 1 and more for a round of calibration


@dataclass(frozen=True)
class NewVote:
    """What the page sends. Raises ValueError for numbers that no page can mean; whether it fits its item is checked where it is stored.

    Attributes:
        id: made by the page, new for each answer; the same one sent again counts once.
        value: for ``chosen`` the place of the response, from 0; for ``ranks`` a list with the rank of each place, 1 is best; for
            ``rating`` the number; else None.
        confidence: how sure the annotator was, from 0 to 1. None: nobody said.
        seconds: how long the annotator looked.
    """

    id: str
    item: int
    verdict: Verdict
    value: Any = None
    confidence: float | None = None
    seconds: float = 0.0

    def __post_init__(self) -> None:
        """Raises ValueError that says what is wrong."""
        if not is_whole(self.item, 1, LARGEST_ID):
            raise ValueError("there is no such item")
        if self.confidence is not None and not is_number(self.confidence, 0, 1):
            raise ValueError("the confidence is a number from 0 to 1")
        if not is_number(self.seconds, 0, LONGEST_LOOK):
            raise ValueError(f"the seconds are a number from 0 to {LONGEST_LOOK:,.0f}")


@dataclass(frozen=True)
class Vote:
    """A stored answer. ``value`` refers to the item's own responses, not to their order on the page; ``shown`` is that order."""

    id: str
    item: int
    annotator: str
    attempt: int
    verdict: Verdict
    value: Any
    confidence: float | None
    seconds: float
    shown: tuple[int, ...]
    at: float


@dataclass(frozen=True)
class CalibrationState:
    """How an annotator stands in the round of items with known answers."""

    attempt: int
    answered: int
    correct: int
    total: int
    passed: bool

    @property
    def failed(self) -> bool:
        """All answered, and too few as expected."""
        return self.answered == self.total and not self.passed


@dataclass(frozen=True)
class TaskProgress:
    """How far a task is. ``done`` items have all the votes that they need; ``mine`` counts one annotator's votes.

    Items with known answers do not count.
    """

    items: int
    done: int
    votes: int
    mine: int = 0


@dataclass(frozen=True)
class Turn:
    """What an annotator does next: an item; or why there is none (``done`` for this annotator, ``failed`` calibration, ``closed``)."""

    state: Literal["item", "done", "failed", "closed"]
    shown: Shown | None
    calibration: CalibrationState
    progress: TaskProgress
    expected: dict[str, Any] | None = None  # after a calibration item: whether it was right, the answer, and why
    may_undo: str = ""  # the id of the vote that can be taken back


@dataclass(frozen=True)
class AskedItems:
    """What a run has asked people: the task, and the ids of the items by :func:`rlhf_studio.runs.feedback.records.item_key`."""

    task: str
    items: dict[str, int]


@dataclass(frozen=True)
class Added:
    """What became of items that were to be added."""

    added: int
    repeated: int
    problems: list[str] = field(default_factory=list)


# --- as rows of people.db --------------------------------------------------------------------------------------------------------

TASKS = RecordTable(
    "tasks",
    Task,
    plain("id"),
    as_json("settings", read=lambda values: NewTask(**values), write=asdict),
    plain("run"),
    truth("open"),
    *map(real, ("deadline", "created_at")),
)
ITEMS = RecordTable(
    "items",
    NewItem,
    text("prompt"),
    converted("responses", encode_pieces, lambda stored: tuple(decode_pieces(stored))),
    converted("sources", encode_pieces, lambda stored: tuple(decode_pieces(stored))),
    converted("uncertainty", lambda value: None if value is None else float(value), lambda stored: stored),
    as_json("answer", write=lambda answer: answer),
    text("why"),
    integer("step"),
)
"""A new item; with the columns :data:`OF_ITEM` it is an :class:`Item`."""
OF_ITEM = ("id", "number", "votes")
VOTES = RecordTable(
    "votes",
    Vote,
    plain("id"),
    integer("item"),
    plain("annotator"),
    integer("attempt"),
    plain("verdict"),
    as_json("value"),
    *map(real, ("confidence", "seconds")),
    as_json("shown", read=tuple),
    real("at"),
)
LAST = 1e300  # the priority of items of which no model has said how unsure it is


def item_key(item: NewItem) -> str:
    """The same for the same texts, asked for in the same step of a run."""
    texts = json.dumps([item.step, item.prompt, *item.responses]).encode()
    return hashlib.sha256(texts).hexdigest()


def priority(task: NewTask, key: str, uncertainty: float | None) -> float:
    """An item's place in the task's order, smallest first. At random it is the same for all, so that items are completed early."""
    if task.order == "uncertainty":
        return LAST if uncertainty is None else -uncertainty
    return int(key[:12], 16) / 16.0**12


def order_for(item: Item, annotator: str, attempt: int) -> tuple[int, ...]:
    """In which order an annotator sees the responses: drawn from names, so that it is the same again, and nobody can choose it."""
    order = list(range(len(item.responses)))
    seed = hashlib.sha256(f"{item.id}\0{annotator.casefold()}\0{attempt}".encode()).digest()
    random.Random(seed).shuffle(order)
    return tuple(order)


# --- checks of what people enter -------------------------------------------------------------------------------------------------


def check_item(task: NewTask, item: NewItem) -> None:
    """Raises ValueError that says why the task cannot take the item."""
    least, most = (1, 1) if task.kind == "rating" else (2, 2) if task.kind == "pair" else (2, MOST_RESPONSES)
    if not least <= len(item.responses) <= most:
        needed = str(least) if least == most else f"{least} to {most}"
        raise ValueError(f"a {task.kind} needs {needed} response{'' if most == 1 else 's'}, and this has {len(item.responses)}")
    if any(not response.strip() for response in item.responses):
        raise ValueError("a response is empty")
    if len(set(item.responses)) < len(item.responses):
        raise ValueError("two responses are the same, so there is nothing to compare")
    if max(len(text) for text in (item.prompt, *item.responses)) > LONGEST_TEXT:
        raise ValueError(f"a text has more than {LONGEST_TEXT:,} characters")
    if item.sources and len(item.sources) != len(item.responses):
        raise ValueError("there must be as many sources as responses")
    if item.uncertainty is not None and not is_number(item.uncertainty, -sys.float_info.max, sys.float_info.max):
        raise ValueError("the uncertainty must be a finite number")
    if item.answer is not None and not answer_fits(task, len(item.responses), item.answer):
        raise ValueError(f"the known answer {quoted(item.answer)} does not fit a {task.kind}")


def answer_fits(task: NewTask, responses: int, answer: Any) -> bool:
    """Whether a known answer is one that an annotator could give."""
    if task.kind == "pair":
        return answer in ("tie", "both_bad") or is_whole(answer, 0, responses - 1)
    if task.kind == "rating":
        return is_whole(answer, 1, task.points)
    return are_ranks(answer, responses)


def is_whole(value: Any, least: int, most: int) -> bool:
    """Whether it is a whole number in these bounds; ``True`` is none."""
    return type(value) is int and least <= value <= most


def is_number(value: Any, least: float, most: float) -> bool:
    """Whether it is a number in these bounds; ``True`` is none, and neither is what is not finite."""
    return type(value) in (int, float) and least <= value <= most


def quoted(value: Any) -> str:
    """What somebody sent, short enough for a sentence."""
    try:
        text = repr(value)
    except ValueError:  # a number with more digits than Python writes
        return "a number with thousands of digits"
    return text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]} ..."


def are_ranks(value: Any, count: int) -> bool:
    """Whether it is a rank for each of ``count`` responses, 1 for the best; equal ranks tie, and a rank may be left out."""
    return isinstance(value, list) and len(value) == count and all(is_whole(rank, 1, count) for rank in value) and min(value) == 1


def stored_answer(task: NewTask, order: Sequence[int], vote: NewVote) -> Any:
    """The vote's value, told of the item's own responses. Raises ValueError for a verdict or a value that the task does not know."""
    allowed = {"pair": ("chosen", "tie", "both_bad", "skip"), "ranking": ("ranks", "skip"), "rating": ("rating", "skip")}[task.kind]
    if vote.verdict not in allowed:
        raise ValueError(f"an answer to a {task.kind} is one of {', '.join(allowed)}")
    if vote.verdict == "chosen":
        if not is_whole(vote.value, 0, len(order) - 1):
            raise ValueError("choose one of the responses")
        return order[vote.value]
    if vote.verdict == "rating":
        if not is_whole(vote.value, 1, task.points):
            raise ValueError(f"a rating is a whole number from 1 to {task.points}")
        return vote.value
    if vote.verdict == "ranks":
        if not are_ranks(vote.value, len(order)):
            raise ValueError("give every response a rank; 1 is best")
        ranks = [0] * len(order)
        for position, response in enumerate(order):
            ranks[response] = vote.value[position]
        return dense(ranks)
    return None


def dense(ranks: Sequence[int]) -> list[int]:
    """The same order with ranks 1, 2, 3 ... and none left out."""
    levels = sorted(set(ranks))
    return [levels.index(rank) + 1 for rank in ranks]


def as_expected(verdict: Verdict, value: Any, answer: Any) -> bool:
    """Whether a vote is the known answer; a rating may be one point away from it."""
    if verdict == "rating":
        return bool(abs(value - answer) <= 1)
    if verdict == "ranks":
        return bool(value == dense(answer))
    return bool((value if verdict == "chosen" else verdict) == answer)
