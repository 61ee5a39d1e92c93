"""Feedback as rows of JSON Lines, in the columns that the field uses: items in, answers out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from rlhf_studio.runs.feedback.completions import Together, completions_of
from rlhf_studio.runs.feedback.records import Item, NewItem, NewTask, Task, Vote, check_item, dense

Row = dict[str, Any]
MOST_COLUMNS, LONGEST_COLUMN = 12, 40  # that are named where a row has not the right ones


@dataclass(frozen=True)
class ReadRow:
    """What one row of JSON Lines gives: its items, or what is wrong with it. ``number`` is that of its line."""

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
    """The answer that is expected, None for a real item: what the row says, or ``chosen``, the response that its columns call so.

    Raises ValueError for a row that is to have a known answer, and has none: nothing is taken for right that nobody has called so.
    """
    calibration = row.get("calibration")
    if calibration is not None and not isinstance(calibration, bool):
        raise ValueError("calibration must be true or false")
    answer = row.get("answer")
    if answer is not None or not (calibration or must_be_known):
        return answer
    if chosen is None:
        why = "calibration is true" if calibration else "it is one of the first rows with a known answer"
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


def export_rows(task: Task, items: Sequence[Item], votes: Sequence[Vote]) -> Iterator[Row]:
    """One row for each answer; skips give none. Rows that differ in ``annotator`` alone are different judgements of the same item.

    A pair has ``prompt, chosen, rejected, tie, confidence``: the columns of preference data. Where both were equal, or both bad, ``tie``
    is true. A ranking has ``responses`` with their ``ranks``, a rating ``response`` with its ``rating``. ``confidence`` is None where
    somebody did not say how sure they were, and there is no such column where nobody said it.
    """
    asked = any(vote.confidence is not None for vote in votes if vote.verdict != "skip")
    known = {item.id: item for item in items}
    for vote in votes:
        if vote.verdict == "skip" or vote.item not in known:
            continue
        item = known[vote.item]
        yield {
            "prompt": item.prompt,
            **_answer(item, vote),
            **({"confidence": vote.confidence} if asked else {}),
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


def _sources(item: Item, names: Sequence[str], places: Sequence[int]) -> Row:
    return {name: item.sources[place] for name, place in zip(names, places, strict=True)} if item.sources else {}


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
        return {"response": item.responses[0], "rating": sum(vote.value for vote in given) / len(given), **_said(given)}
    if given[0].verdict == "ranks":
        means = [sum(vote.value[place] for vote in given) for place in range(len(item.responses))]
        return {"responses": list(item.responses), "ranks": dense(means), **_said(given)}
    said: tuple[list[Vote], ...] = ([], [], [])  # for the first response, for the second, for none of them
    for vote in given:
        said[vote.value if vote.verdict == "chosen" else 2].append(vote)
    weights = [sum(max(_weight(vote), 1e-9) for vote in votes) for votes in said]
    none_of_them = weights[2] > max(weights[:2])
    best = 0 if weights[0] >= weights[1] else 1
    winner = 2 if none_of_them else best
    return {
        "chosen": item.responses[best],
        "rejected": item.responses[1 - best],
        "tie": none_of_them or weights[0] == weights[1],
        "confidence": weights[winner] / sum(weights) * _sure(said[winner]),
    }


def _sure(votes: Sequence[Vote]) -> float:
    """How sure people were on average."""
    return sum(_weight(vote) for vote in votes) / len(votes)


def _said(votes: Sequence[Vote]) -> Row:
    """How sure people were on average, where anybody said it."""
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
