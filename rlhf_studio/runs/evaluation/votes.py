"""What people said of two answers in the blind arena: JSON Lines in the evaluation's folder, on the disk before the page is told."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from rlhf_studio.regular import read_regular
from rlhf_studio.runs.errors import StoreError, store_error

FILE = "votes.jsonl"
Choice = Literal["left", "right", "tie"]


@dataclass(frozen=True)
class ArenaVote:
    """One person's answer.

    Attributes:
        place: the prompt's place among the run's prompts, from 0.
        left: the policy and the draw of the answer that stood on the left.
        right: the same of the other answer.
        about: :func:`hash_of` the two answers; empty in votes of earlier versions. An evaluation that begins again may get other answers.
    """

    place: int
    left: tuple[str, int]
    right: tuple[str, int]
    choice: Choice
    about: str = ""


def hash_of(left: str, right: str) -> str:
    """What a vote was about: SHA-256 over the two texts."""
    digest = hashlib.sha256()
    for text in (left, right):
        digest.update(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
    return digest.hexdigest()


def keep_vote(folder: Path, vote: ArenaVote) -> None:
    """Write a vote behind the others and wait until the disk has it. What a kill left of a line is removed first. Raises StoreError."""
    path = folder / FILE
    try:
        with contextlib.suppress(FileNotFoundError):
            os.truncate(path, read_regular(path).rfind(b"\n") + 1)
        with path.open("ab") as file:
            file.write(json.dumps(asdict(vote), ensure_ascii=True).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise store_error(error, path) from error


def read_votes(folder: Path) -> list[ArenaVote]:
    """All votes in their order; a last line that a kill cut off was never acknowledged and is left out. Raises StoreError."""
    path = folder / FILE
    try:
        complete_lines, _, _ = read_regular(path).rpartition(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise store_error(error, path) from error
    try:
        return [_vote(json.loads(line)) for line in complete_lines.splitlines()]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StoreError(f"{path} is damaged: {error}. Remove the line, or the file, to vote again.", "damaged") from error


def _vote(row: Any) -> ArenaVote:
    (left, left_draw), (right, right_draw), choice = row["left"], row["right"], row["choice"]
    about = row.get("about", "")
    if choice not in get_args(Choice) or not all(isinstance(text, str) for text in (left, right, about)):
        raise ValueError("a line is no vote")
    return ArenaVote(int(row["place"]), (left, int(left_draw)), (right, int(right_draw)), choice, about)
