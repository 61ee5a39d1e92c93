"""RL Logging Board, and our own lines, whose names are the same: with tokens and their numbers, or with texts alone.

Its list of tokens may go on behind its lists of numbers: padding (its README shows such a line). The numbers say where the response ends.
"""

from __future__ import annotations

import re
from typing import Any

from rlhf_studio.analysis.logs.forms.form import Form, Reading, Record, each
from rlhf_studio.analysis.logs.shape import TOKEN_KEYS, LogFields
from rlhf_studio.language import S_

PADDED = S_("In some lines the list of tokens is longer than the lists of numbers: the tokens behind are taken for padding and left out.")
PROMPTS, RESPONSES = ("prompt", "prompt_tokens"), ("response", "response_tokens")
_SPECIAL = re.compile(r"\s*[<\[].*[>\]]\s*|")
TOKENS = {"response_tokens", "response_ids", "length", "top_ids", "ref_top_ids", *TOKEN_KEYS}


def _line(record: Record, reading: Reading) -> LogFields:
    if record.get("kind", "rollout") != "rollout":
        return record
    if isinstance(record.get("response"), str) and not any(record.get(name) is not None for name in TOKENS):
        return record | reading.tokens_of(record["response"])
    tokens, length = record.get("response_tokens"), _length_of_numbers(record)
    if length is None or not isinstance(tokens, list) or length >= len(tokens) or not _is_padding(tokens[length:]):
        return record
    reading.note(PADDED)
    kept = record | {"response_tokens": tokens[:length]}
    if isinstance(ids := record.get("response_ids"), list):
        kept["response_ids"] = ids[:length]
    return kept


def _is_padding(tokens: list[Any]) -> bool:
    """Whether tokens are the same special one again and again."""
    return all(isinstance(token, str) and token == tokens[0] for token in tokens) and _SPECIAL.fullmatch(tokens[0]) is not None


def _length_of_numbers(record: Record) -> int | None:
    """How many numbers the lists of a line have, where all have as many, and at least one."""
    lists: list[Any] = [record[name] for name in TOKEN_KEYS if isinstance(record.get(name), list)]
    lengths = {len(numbers) for numbers in lists}
    return lengths.pop() if len(lengths) == 1 and lengths != {0} else None


class _Board(Form):
    def missing(self, record: Record) -> list[str]:
        """As of any form; one of our other lines has a ``kind``, tokens may stand for texts, and a reward may be unknown."""
        if "kind" in record:
            return []
        return [names[0] for names in (("step",), PROMPTS, RESPONSES) if not any(name in record for name in names)]


FORM = _Board(
    "RL Logging Board, and this program",
    S_("RL Logging Board's"),
    ("step", "prompt", "response", "reward"),
    each(_line),
)
