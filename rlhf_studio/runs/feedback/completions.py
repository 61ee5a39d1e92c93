"""Rows with single completions, as the command generate writes them: those of one prompt are put together into items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from rlhf_studio.runs.feedback.records import MOST_RESPONSES, Kind, NewItem

OTHER_COLUMNS = ("responses", "response", "chosen", "rejected", "response_a", "response_b", "response_0", "response_1")
"""Columns that give a row items of its own: beside them a completion is not looked at."""
WHY = {
    "alone": "{n} left out: nothing with the same prompt is left to compare with.",
    "alike": "{n} left out: empty, or the same as the one beside it.",
    "beyond": f"{{n}} left out: a ranking has at most {MOST_RESPONSES} responses.",
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
    """Puts completions together: for pairs each two of a prompt that follow each other, for rankings all of it, for ratings each alone."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._waiting: dict[str, list[str]] = {}
        self._left_out: Counter[str] = Counter()

    def add(self, prompt: str, completions: list[str]) -> list[NewItem]:
        """Take the completions of one row; gives the items that are complete with them."""
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
        """The items that are complete when no row is left: the rankings."""
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
