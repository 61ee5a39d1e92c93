"""Questions and answers that people add to lessons and stations: one plain file in the workspace, ``added-questions.json``.

Every change reads the file, changes it, and replaces it in one step, under a lock: a file that somebody edits or copies meanwhile is whole.
An entry without an answer waits, and only those who may answer see it. What is deleted stays in the file for ten minutes, so that it can be
taken back, and is then gone at the next change.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rlhf_studio.language import S_
from rlhf_studio.lessons import shelf
from rlhf_studio.regular import read_regular
from rlhf_studio.runs.create import write_durably
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.liveness import FileLock
from rlhf_studio.visible import refuse_hidden

FILE, LOCK, KIND, VERSION = "added-questions.json", "added-questions.lock", "questions and answers of RLHF Studio", 1
ROLES = ("teacher", "operator", "student")
LONGEST = {"question": 300, "answer": 2_000}
CALLED = {"question": S_("The question"), "answer": S_("The answer")}
MOST, MOST_OF_A_PLACE, MOST_WAITING = 500, 50, 60
MOST_BYTES = 700_000  # of the file, so that what is saved of it can be sent to another app, which takes a million
KEPT_SECONDS, WAIT_SECONDS = 600.0, 5.0
Json = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """A question and its answer.

    Attributes:
        place: a lesson (``clip``) or a station (``tour.gae``).
        answer: empty while it waits for one.
        role: who added it, of :data:`ROLES`.
        at: when it was added, or answered.
        deleted_at: zero, or when it was deleted.
    """

    id: str
    place: str
    question: str
    answer: str
    role: str
    at: float
    deleted_at: float = 0.0


class Added:
    """The file of a workspace. The methods may be called from several threads and processes. Each may raise StoreError; those that change
    something raise ValueError for what cannot be kept."""

    def __init__(self, folder: Path, now: Callable[[], float] = time.time) -> None:
        self._folder, self._now = folder, now

    def entries(self, place: str = "") -> list[Entry]:
        """What there is, of a place or of all, in the order in which it was added; without what is deleted."""
        return [entry for entry in self._read() if not entry.deleted_at and place in ("", entry.place)]

    def add(self, place: str, question: str, answer: str, role: str) -> Entry:
        """Add an entry; without an answer it waits for one."""
        made = self._made({"place": place, "question": question, "answer": answer, "role": role})
        with self._changing() as entries:
            if not made.answer and sum(not entry.answer and not entry.deleted_at for entry in entries) >= MOST_WAITING:
                raise ValueError("Too many questions wait for an answer already. Ask again when some are answered.")
            entries.append(made)
        return made

    def answer(self, entry_id: str, question: str, answer: str) -> Entry:
        """Answer an entry, or word it anew."""
        question, answer = _worded("question", question), _worded("answer", answer)
        if not answer:
            raise ValueError("Write an answer.")
        with self._changing() as entries:
            at = self._place_of(entries, entry_id)
            entries[at] = replace(entries[at], question=question, answer=answer, at=self._now())
            return entries[at]

    def delete(self, entry_id: str) -> None:
        with self._changing() as entries:
            at = self._place_of(entries, entry_id)
            entries[at] = replace(entries[at], deleted_at=self._now())

    def restore(self, entry_id: str) -> None:
        """Take a deletion back, within ten minutes."""
        with self._changing() as entries:
            at = self._place_of(entries, entry_id)
            entries[at] = replace(entries[at], deleted_at=0.0)

    def exported(self) -> str:
        """All that is answered, as a text for :meth:`take_in`."""
        rows = [{key: value for key, value in asdict(entry).items() if key in _TAKEN} for entry in self.entries() if entry.answer]
        return json.dumps({"kind": KIND, "version": VERSION, "entries": rows}, ensure_ascii=False, indent=1) + "\n"

    def take_in(self, text: str) -> tuple[int, int]:
        """Add what another workspace exported, or nothing where anything is wrong. Gives how many are new, and how many were here."""
        rows = _rows_of(text)
        made = [self._made(row) for row in rows]
        if not all(entry.answer for entry in made):
            raise ValueError("An entry of this file has no answer.")
        with self._changing() as entries:
            known = {(entry.place, entry.question, entry.answer) for entry in entries if not entry.deleted_at}
            new = [entry for entry in made if (entry.place, entry.question, entry.answer) not in known]
            entries += new
        return len(new), len(made) - len(new)

    # --- the file ----------------------------------------------------------------------------------------------------------------

    def _made(self, row: Json) -> Entry:
        place, role, at = row.get("place"), row.get("role"), row.get("at", self._now())
        try:
            shelf.text_of(place if isinstance(place, str) else "")
        except shelf.NoLesson as error:
            raise ValueError(f"There is no lesson {str(place)[:60]!r} here.") from error
        question, answer = _worded("question", row.get("question")), _worded("answer", row.get("answer", ""))
        if not question:
            raise ValueError("Write a question.")
        if role not in ROLES or type(at) not in (int, float) or not 0 <= at < 1e11:
            raise ValueError("An entry has a role and a time that are none.")
        return Entry(secrets.token_hex(6), str(place), question, answer, role, float(at))

    def _read(self) -> list[Entry]:
        path = self._folder / FILE
        try:
            return [_kept(row) for row in json.loads(read_regular(path, 10 * MOST_BYTES))["entries"]]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise StoreError(f"{path} cannot be read: {error}. Move it away, or mend it.", "damaged") from error

    @contextmanager
    def _changing(self) -> Iterator[list[Entry]]:
        lock = FileLock(self._folder / LOCK, StoreError("Somebody else changes the questions right now. Try again.", "busy"), WAIT_SECONDS)
        lock.take()
        try:
            entries = [entry for entry in self._read() if not entry.deleted_at or entry.deleted_at > self._now() - KEPT_SECONDS]
            yield entries
            _refuse_too_many(entries)
            self._write(entries)
        finally:
            lock.release()

    def _write(self, entries: Sequence[Entry]) -> None:
        data = json.dumps({"version": VERSION, "entries": [asdict(entry) for entry in entries]}, ensure_ascii=False, indent=1).encode()
        if len(data) > MOST_BYTES and len(data) > self._size():
            raise ValueError(
                f"All questions and answers together may have {MOST_BYTES:,} bytes. Delete some first; they are gone after ten minutes."
            )
        temporary = self._folder / f".{FILE}.{secrets.token_hex(4)}"
        try:
            write_durably(temporary, data + b"\n")
            os.replace(temporary, self._folder / FILE)
        except OSError as error:
            raise StoreError(f"The questions cannot be kept: {error}", "io") from error

    def _size(self) -> int:
        path = self._folder / FILE
        return path.stat().st_size if path.exists() else 0

    def _place_of(self, entries: Sequence[Entry], entry_id: str) -> int:
        at = next((at for at, entry in enumerate(entries) if entry.id == entry_id), None)
        if at is None:
            raise ValueError("This question is not there any more.")
        return at


_TAKEN = ("place", "question", "answer", "role", "at")


def _kept(row: Json) -> Entry:
    """An entry as it stands in the file. Raises TypeError and ValueError."""
    entry = Entry(**row)
    texts = (entry.id, entry.place, entry.question, entry.answer, entry.role)
    if not all(isinstance(text, str) for text in texts) or not all(type(at) in (int, float) for at in (entry.at, entry.deleted_at)):
        raise TypeError("an entry has a value of a wrong kind")
    _worded("question", entry.question)
    _worded("answer", entry.answer)
    return entry


def _worded(what: str, value: Any) -> str:
    """A text as it is kept: without space around it. Raises ValueError."""
    if not isinstance(value, str) or len(value) > LONGEST[what]:
        raise ValueError(f"{CALLED[what]} must be a text of at most {LONGEST[what]:,} characters.")
    refuse_hidden(value, CALLED[what], lines=what == "answer")
    return value.strip()


def _rows_of(text: str) -> list[Json]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = None
    rows = data.get("entries") if isinstance(data, dict) and data.get("kind") == KIND and data.get("version") == VERSION else None
    if not isinstance(rows, list) or len(rows) > MOST or not all(isinstance(row, dict) for row in rows):
        raise ValueError("This is no file of questions and answers that was saved here.")
    return rows


def _refuse_too_many(entries: Sequence[Entry]) -> None:
    there = [entry.place for entry in entries if not entry.deleted_at]
    if len(there) > MOST or any(there.count(place) > MOST_OF_A_PLACE for place in set(there)):
        raise ValueError(f"There can be {MOST_OF_A_PLACE} questions of a lesson, and {MOST} in all. Delete some first.")
