"""Feedback as rows of JSON Lines, in the columns that the field uses: items in, answers out; and items from an evaluation's answers."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from rlhf_studio.language import S_
from rlhf_studio.runs.evaluation.answers import Answer, disagreement
from rlhf_studio.runs.feedback.records import MOST_RESPONSES, Item, Kind, NewItem, NewTask, Task, Vote, check_item, dense

Row = dict[str, Any]
MOST_COLUMNS, LONGEST_COLUMN = 12, 40  # that are named where a row has not the right ones


@dataclass(frozen=True)
class ReadRow:
    """One row of JSON Lines: its items, or what is wrong with it. ``number`` is the number of its line."""

    number: int
    items: list[NewItem] = field(default_factory=list)
    problem: str = ""


def read_lines(
    lines: Iterable[str], settings: NewTask, *, known: int = 0, first: int = 1, rows_before: int | None = None
) -> Iterator[ReadRow]:
    """The rows of JSON Lines as items that a task with these settings takes; blank lines are no rows.

    Rows with single completions are put together by their prompt (:class:`Together`). What comes of them only when all rows are read, and
    how many became no item, stands behind the last row.

    Args:
        known: so many of the first rows must have a known answer; each of them that has none is a problem.
        first: the number of the first line.
        rows_before: how many rows came before; None where no line before was blank.
    """
    row = first - 1 if rows_before is None else rows_before
    together, number = Together(settings.kind), first
    for number, line in enumerate(lines, start=first):
        if not line.strip():
            continue
        row += 1
        try:
            values = _object(line)
            completions = completions_of(values)
            if completions is None:
                items = read_row(values, settings, must_be_known=row <= known)
            else:
                _known_answer(values, None, must_be_known=row <= known)
                items = together.add(values["prompt"], completions)
        except ValueError as error:
            yield ReadRow(number, problem=f"Row {number}: {error}.")
        else:
            yield _checked(number, items, settings)
    for item in together.rest():
        yield _checked(number, [item], settings)
    yield from (ReadRow(number, problem=note) for note in together.notes())


def _checked(number: int, items: list[NewItem], settings: NewTask) -> ReadRow:
    """The row with these items, or why the task cannot take one of them."""
    try:
        for item in items:
            check_item(settings, item)
    except ValueError as error:
        return ReadRow(number, problem=f"Row {number}: {error}.")
    return ReadRow(number, items)


def _object(line: str) -> Row:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("not JSON; each line is one object in braces") from None
    if not isinstance(row, dict):
        raise ValueError("not an object; each line is one object in braces")
    return row


def read_row(row: Mapping[str, Any], settings: NewTask, *, must_be_known: bool = False) -> list[NewItem]:
    """The items of one row: one, or for ratings one for each response. Raises ValueError that says what is wrong."""
    responses, chosen = _responses(row)
    answer = _known_answer(row, chosen if settings.kind == "pair" else None, must_be_known=must_be_known)
    sources = _texts(row.get("sources", []), "sources")
    uncertainty, why = row.get("uncertainty"), row.get("why", "")
    if uncertainty is not None and (isinstance(uncertainty, bool) or not isinstance(uncertainty, int | float)):
        raise ValueError("uncertainty must be a number")
    if not isinstance(why, str):
        raise ValueError("why must be a text")
    prompt = _text_of(row.get("prompt", ""), "prompt")
    texts = [(text,) for text in responses] if settings.kind == "rating" else [tuple(responses)]
    parts = [(source,) for source in sources] if settings.kind == "rating" and sources else [tuple(sources)] * len(texts)
    if len(parts) != len(texts):
        raise ValueError("there must be as many sources as responses")
    return [NewItem(prompt, text, part, uncertainty, answer, why) for text, part in zip(texts, parts, strict=True)]


def _known_answer(row: Mapping[str, Any], chosen: int | None, *, must_be_known: bool) -> Any:
    """The expected answer of a row, or None for a row without one. ``chosen`` is the number of the response in its column ``chosen``.

    Raises ValueError when a row must have a known answer and has none. The program never guesses one.
    """
    calibration = row.get("calibration")
    if calibration is not None and not isinstance(calibration, bool):
        raise ValueError("calibration must be true or false")
    answer = row.get("answer")
    if answer is not None or not (calibration or must_be_known):
        return answer
    if chosen is None:
        why = S_("calibration is true") if calibration else S_("it is one of the first rows with a known answer")
        columns = "chosen and rejected, or answer" if "responses" not in row and "response" not in row else "answer"
        raise ValueError(f"{why}, but nothing in it says which answer is right; give it {columns}")
    return chosen


def _responses(row: Mapping[str, Any]) -> tuple[list[str], int | None]:
    """The responses, and the number of the chosen one where the columns say which it is."""
    if "responses" in row:
        return _texts(row["responses"], "responses"), None
    for first, second, known in (("chosen", "rejected", 0), ("response_a", "response_b", None), ("response_0", "response_1", None)):
        if first in row and second in row:
            return [_text_of(row[first], first), _text_of(row[second], second)], known
    if "response" in row:
        return [_text_of(row["response"], "response")], None
    raise ValueError(
        f"has the columns {_columns(row)}; it needs prompt with responses (a list), with chosen and rejected, with response, or with "
        "completion"
    )


def _columns(row: Mapping[str, Any]) -> str:
    names = [name[:LONGEST_COLUMN] for name in row]
    return ", ".join([*names[:MOST_COLUMNS], *(["..."] if len(names) > MOST_COLUMNS else [])]) or "none"


def _texts(value: Any, name: str) -> list[str]:
    if not isinstance(value, list):
        raise ValueError(f"{name} must be a list of texts")
    return [_text_of(text, name) for text in value]


def _text_of(value: Any, name: str) -> str:
    """A text, or a list of chat messages written one below the other."""
    if isinstance(value, str):
        return value
    if (
        isinstance(value, list)
        and value
        and all(isinstance(message, dict) and isinstance(message.get("content"), str) for message in value)
    ):
        if len(value) == 1:
            return str(value[0]["content"])
        return "\n\n".join(f"{message.get('role', '')}: {message['content']}" for message in value)
    raise ValueError(f"{name} must be a text or a list of messages")


# --- rows with single completions, as the command generate writes them --------------------------------------------------------

OTHER_COLUMNS = ("responses", "response", "chosen", "rejected", "response_a", "response_b", "response_0", "response_1")
"""Columns that give a row items of its own: beside them a completion is not looked at."""
WHY = {
    "alone": S_("{n} left out: nothing with the same prompt is left to compare with."),
    "alike": S_("{n} left out: empty, or the same as the one beside it."),
    "beyond": S_(f"{{n}} left out: a ranking has at most {MOST_RESPONSES} responses."),
}
"""Why completions become no item -> how a person is told."""


def completions_of(row: Mapping[str, Any]) -> list[str] | None:
    """The completions in a row, with ``completion`` or a list under ``completions``; None where the row is of another shape.

    Raises ValueError that says what is wrong.
    """
    if not {"completion", "completions"} & set(row) or any(name in row for name in OTHER_COLUMNS):
        return None
    if "completion" in row and "completions" in row:
        raise ValueError("has completion and completions; leave one of them out")
    if not isinstance(row.get("prompt"), str):
        raise ValueError("a completion needs its prompt, a text: those of one prompt are put together")
    if row.get("answer") is not None or row.get("calibration"):
        raise ValueError("completions have no known answer; give a row with one chosen and rejected, or responses and answer")
    given = [row["completion"]] if "completion" in row else row["completions"]
    if not isinstance(given, list) or not all(isinstance(text, str) for text in given):
        raise ValueError("completion must be a text, and completions a list of texts")
    return given


class Together:
    """Puts single completions together into items: pairs of consecutive completions of a prompt, one ranking of all of them, or single
    ratings.
    """

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._waiting: dict[str, list[str]] = {}
        self._left_out: Counter[str] = Counter()

    def add(self, prompt: str, completions: list[str]) -> list[NewItem]:
        """Take the completions of one row. Returns the items that they complete."""
        if self._kind == "rating":
            return [item for text in completions for item in self._item(prompt, [text])]
        waiting = self._waiting.setdefault(prompt, [])
        waiting += completions
        items = []
        while self._kind == "pair" and len(waiting) > 1:
            items += self._item(prompt, [waiting.pop(0), waiting.pop(0)])
        if not waiting:
            del self._waiting[prompt]
        return items

    def rest(self) -> Iterator[NewItem]:
        """The items that are complete only when every row is read: the rankings."""
        for prompt, texts in self._waiting.items():
            if len(texts) == 1 or self._kind == "pair":
                self._left_out["alone"] += len(texts)
                continue
            different = list(dict.fromkeys(text for text in texts if text.strip()))
            self._left_out["alike"] += len(texts) - len(different)
            self._left_out["beyond"] += max(0, len(different) - MOST_RESPONSES)
            if len(different) > 1:
                yield NewItem(prompt, tuple(different[:MOST_RESPONSES]))
            else:
                self._left_out["alone"] += len(different)
        self._waiting.clear()

    def notes(self) -> list[str]:
        """One sentence each for the completions that became no item."""
        counts = {reason: self._left_out[reason] for reason in WHY if self._left_out[reason]}
        return [WHY[reason].format(n=f"{count:,} completion{'' if count == 1 else 's'}") for reason, count in counts.items()]

    def _item(self, prompt: str, texts: list[str]) -> list[NewItem]:
        if len(set(texts)) < len(texts) or not all(text.strip() for text in texts):
            self._left_out["alike"] += len(texts)
            return []
        return [NewItem(prompt, tuple(texts))]


# --- answers out ---------------------------------------------------------------------------------------------------------------


def export_rows(task: Task, items: Sequence[Item], votes: Sequence[Vote]) -> Iterator[Row]:
    """One row for each answer; skips give none. Rows that differ in ``annotator`` alone are different judgements of the same item.

    A pair has ``prompt, chosen, rejected, tie, confidence``: the columns of preference data. Where both were equal, or both bad, ``tie``
    is true. A ranking has ``responses`` with their ``ranks``, a rating ``response`` with its ``rating``. ``confidence`` is None where
    somebody did not say how sure they were, and there is no such column where nobody said it.
    """
    has_confidence = any(vote.confidence is not None for vote in votes if vote.verdict != "skip")
    known = {item.id: item for item in items}
    for vote in votes:
        if vote.verdict == "skip" or vote.item not in known:
            continue
        item = known[vote.item]
        yield {
            "prompt": item.prompt,
            **_answer(item, vote),
            **({"confidence": vote.confidence} if has_confidence else {}),
            "annotator": vote.annotator,
            "criterion": task.settings.criterion,
            "task": task.settings.name,
            "item": item.number,
            "seconds": round(vote.seconds, 3),
            "at": round(vote.at, 3),
        }


def _answer(item: Item, vote: Vote) -> Row:
    if vote.verdict == "rating":
        return {"response": item.responses[0], "rating": vote.value, **_sources(item, ["source"], [0])}
    if vote.verdict == "ranks":
        return {"responses": list(item.responses), "ranks": vote.value, **({"sources": list(item.sources)} if item.sources else {})}
    best = vote.value if vote.verdict == "chosen" else 0
    row = {"chosen": item.responses[best], "rejected": item.responses[1 - best], "tie": vote.verdict != "chosen"}
    return {**row, "both_bad": vote.verdict == "both_bad", **_sources(item, ["chosen_source", "rejected_source"], [best, 1 - best])}


def _sources(item: Item, names: Sequence[str], responses: Sequence[int]) -> Row:
    return {name: item.sources[response] for name, response in zip(names, responses, strict=True)} if item.sources else {}


def agreed_rows(task: Task, items: Sequence[Item], votes: Sequence[Vote]) -> Iterator[Row]:
    """One row for each item that was answered: what most annotators said.

    ``confidence`` is the share of the answers that say so, weighted by how sure each was, times how sure those were on average who say so:
    one guess stays a guess. Who did not say how sure they were counts as 1, as in training. ``annotators`` is how many answered. Rankings
    and ratings are averaged, and so is how sure people were: they have no ``confidence`` where nobody said it.
    """
    of: dict[int, list[Vote]] = {}
    for vote in votes:
        if vote.verdict != "skip":
            of.setdefault(vote.item, []).append(vote)
    for item in items:
        if given := of.get(item.id):
            row = {"prompt": item.prompt, **_agreed(item, given), "annotators": len(given), "criterion": task.settings.criterion}
            yield {**row, "task": task.settings.name, "item": item.number}


def _agreed(item: Item, given: Sequence[Vote]) -> Row:
    if given[0].verdict == "rating":
        return {"response": item.responses[0], "rating": sum(vote.value for vote in given) / len(given), **_mean_confidence(given)}
    if given[0].verdict == "ranks":
        means = [sum(vote.value[response] for vote in given) for response in range(len(item.responses))]
        return {"responses": list(item.responses), "ranks": dense(means), **_mean_confidence(given)}
    by_choice: tuple[list[Vote], ...] = ([], [], [])  # for the first response, for the second, for none of them
    for vote in given:
        by_choice[vote.value if vote.verdict == "chosen" else 2].append(vote)
    weights = [sum(max(_weight(vote), 1e-9) for vote in votes) for votes in by_choice]
    none_of_them = weights[2] > max(weights[:2])
    best = 0 if weights[0] >= weights[1] else 1
    winner = 2 if none_of_them else best
    return {
        "chosen": item.responses[best],
        "rejected": item.responses[1 - best],
        "tie": none_of_them or weights[0] == weights[1],
        "confidence": weights[winner] / sum(weights) * _sure(by_choice[winner]),
    }


def _sure(votes: Sequence[Vote]) -> float:
    """How sure people were on average."""
    return sum(_weight(vote) for vote in votes) / len(votes)


def _mean_confidence(votes: Sequence[Vote]) -> Row:
    """How sure people were on average; empty when nobody said it."""
    return {"confidence": _sure(votes)} if any(vote.confidence is not None for vote in votes) else {}


def _weight(vote: Vote) -> float:
    """How much an answer counts beside others."""
    return 1.0 if vote.confidence is None else vote.confidence


def pairs_of_ranks(ranks: Sequence[int]) -> dict[tuple[int, int], int]:
    """A ranking as comparisons of two responses each: −1 where the first is better, 1 where the second is, 0 for a tie."""
    return {
        (first, second): (ranks[first] > ranks[second]) - (ranks[first] < ranks[second])
        for first, second in combinations(range(len(ranks)), 2)
    }


def as_lines(rows: Iterable[Row]) -> str:
    """JSON Lines. Texts that are not valid Unicode keep their escapes."""
    return "".join(json.dumps(row, ensure_ascii=True, allow_nan=False) + "\n" for row in rows)


# --- items from the answers of an evaluation run: of one policy, of two of its checkpoints, of several runs, or of a file ----------

LONGEST_SOURCE = 200  # characters of a policy's name


def items_of(answers: Sequence[Answer], kind: Kind) -> tuple[list[NewItem], int]:
    """The items, prompt by prompt, and how many there would be beside them but for empty or equal responses.

    A pair is two policies' answers of the same draw, or, where one policy answered, each two of its draws that follow each other. A
    ranking has all answers to a prompt, at most :data:`MOST_RESPONSES`. ``uncertainty`` decides where a task asks the most uncertain first.
    With an ensemble it is how far the models lie apart over the difference of the best and the worst answer, or over the one answer; else
    minus the distance of the highest from the lowest score, so that responses which the reward model can hardly tell apart come first.
    """
    by_prompt: dict[int, list[Answer]] = {}
    for answer in sorted(answers, key=lambda answer: answer.place):
        by_prompt.setdefault(answer.place, []).append(answer)
    items, left_out = [], 0
    for own in by_prompt.values():
        for group in _groups(own, kind):
            if len({answer.response for answer in group}) < len(group) or not all(answer.response.strip() for answer in group):
                left_out += 1
            else:
                items.append(_item_of(group))
    return items, left_out


def _groups(answers: list[Answer], kind: Kind) -> Iterator[list[Answer]]:
    """The answers to one prompt that are shown together."""
    if kind == "rating":
        yield from ([answer] for answer in answers)
    elif kind == "ranking":
        different: dict[str, Answer] = {}
        for answer in answers:
            if answer.response.strip():
                different.setdefault(answer.response, answer)
        if len(answers) > 1:
            yield list(different.values())[:MOST_RESPONSES] if len(different) > 1 else answers
    elif len({answer.policy for answer in answers}) > 1:
        yield from (
            [first, second] for first, second in combinations(answers, 2) if first.policy != second.policy and first.draw == second.draw
        )
    else:
        drawn = sorted(answers, key=lambda answer: answer.draw)
        yield from ([first, second] for first, second in zip(drawn[::2], drawn[1::2], strict=False))


def _item_of(group: list[Answer]) -> NewItem:
    sources = tuple(f"{answer.policy[:LONGEST_SOURCE]}, answer {answer.draw + 1}" for answer in group)
    return NewItem(group[0].prompt, tuple(answer.response for answer in group), sources, _uncertainty(group))


def _uncertainty(group: list[Answer]) -> float | None:
    best, worst = (choose(group, key=lambda answer: answer.score) for choose in (max, min))
    several = len(group) > 1
    apart = disagreement(best, worst if several else None)
    if apart is None:
        apart = worst.score - best.score if several else math.nan
    return apart if math.isfinite(apart) else None
