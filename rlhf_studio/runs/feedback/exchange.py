"""Feedback as rows of JSON Lines, in the columns that the field uses: items in, answers out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from rlhf_studio.runs.feedback.records import Item, Kind, NewItem, NewTask, Task, Vote, dense

Row = dict[str, Any]
MOST_PROBLEMS = 20


def read_lines(lines: Iterable[str], kind: Kind, first_row: int = 1) -> tuple[list[NewItem], list[str]]:
    """The items of JSON Lines, and what is wrong with lines that give none, each with its number."""
    items: list[NewItem] = []
    problems: list[str] = []
    for number, line in enumerate(lines, start=first_row):
        if not line.strip():
            continue
        try:
            items += read_row(line, kind)
        except ValueError as error:
            problems.append(f"Row {number}: {error}.")
    return items, problems


def read_row(line: str, kind: Kind) -> list[NewItem]:
    """The items of one row: one, or for ratings one for each response. Raises ValueError that says what is wrong."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("not JSON; each line is one object in braces") from None
    if not isinstance(row, dict):
        raise ValueError("not an object; each line is one object in braces")
    responses, answer = _responses(row)
    answer = row.get("answer", answer if row.get("calibration") is True else None)
    sources = _texts(row.get("sources", []), "sources")
    uncertainty, why = row.get("uncertainty"), row.get("why", "")
    if uncertainty is not None and (isinstance(uncertainty, bool) or not isinstance(uncertainty, int | float)):
        raise ValueError("uncertainty must be a number")
    if not isinstance(why, str):
        raise ValueError("why must be a text")
    prompt = _text_of(row.get("prompt", ""), "prompt")
    texts = [(text,) for text in responses] if kind == "rating" else [tuple(responses)]
    parts = [(source,) for source in sources] if kind == "rating" and sources else [tuple(sources)] * len(texts)
    if len(parts) != len(texts):
        raise ValueError("there must be as many sources as responses")
    return [NewItem(prompt, text, part, uncertainty, answer, why) for text, part in zip(texts, parts, strict=True)]


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
        f"has the columns {', '.join(row) or 'none'}; it needs prompt with responses (a list), with chosen and rejected, or with response"
    )


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
    """One row for each answer; skips give none. ``margin`` and ``answer`` are left out where the kind has none.

    A pair has ``prompt, chosen, rejected, tie, confidence``: the columns of preference data. Where both were equal, or both bad, ``tie``
    is true. A ranking has ``responses`` with their ``ranks``, a rating ``response`` with its ``rating``.
    """
    known = {item.id: item for item in items}
    for vote in votes:
        if vote.verdict == "skip" or vote.item not in known:
            continue
        item = known[vote.item]
        yield {
            "prompt": item.prompt,
            **_answer(item, vote),
            "confidence": vote.confidence,
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

    ``confidence`` is the share of the answers that say so, weighted by how sure each was; ``annotators`` how many answered. Rankings and
    ratings are averaged.
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
        return {"response": item.responses[0], "rating": sum(vote.value for vote in given) / len(given)}
    if given[0].verdict == "ranks":
        means = [sum(vote.value[place] for vote in given) for place in range(len(item.responses))]
        return {"responses": list(item.responses), "ranks": dense(means)}
    weights = [0.0, 0.0, 0.0]  # for the first response, for the second, for none of them
    for vote in given:
        weights[vote.value if vote.verdict == "chosen" else 2] += max(vote.confidence, 1e-9)
    tie = weights[0] == weights[1] or weights[2] > max(weights[:2])
    best = 0 if weights[0] >= weights[1] else 1
    share = (weights[2] if tie and weights[2] > max(weights[:2]) else max(weights[:2])) / sum(weights)
    return {"chosen": item.responses[best], "rejected": item.responses[1 - best], "tie": tie, "confidence": share}


def pairs_of_ranks(ranks: Sequence[int]) -> dict[tuple[int, int], int]:
    """A ranking as comparisons of two responses each: −1 where the first is better, 1 where the second is, 0 for a tie."""
    return {
        (first, second): (ranks[first] > ranks[second]) - (ranks[first] < ranks[second])
        for first, second in combinations(range(len(ranks)), 2)
    }


def as_lines(rows: Iterable[Row]) -> str:
    """JSON Lines. Texts that are not valid Unicode keep their escapes."""
    return "".join(json.dumps(row, ensure_ascii=True, allow_nan=False) + "\n" for row in rows)


def with_calibration(items: Sequence[NewItem], settings: NewTask, known: Sequence[int]) -> list[NewItem]:
    """The items, those at the places ``known`` as calibration items: the first response, the file's chosen one, is the expected answer.

    Raises ValueError for a kind whose files have no chosen response.
    """
    if known and settings.kind != "pair":
        raise ValueError("only pairs say by their columns which answer is expected; give each row of the round an answer column")
    chosen = set(known)
    return [
        NewItem(item.prompt, item.responses, item.sources, item.uncertainty, 0, item.why)
        if place in chosen and item.answer is None
        else item
        for place, item in enumerate(items)
    ]
