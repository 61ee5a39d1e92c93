"""The present round, in memory: thirty pages ask for it every few seconds, and none of them waits for the disk."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rlhf_studio.language import _, told
from rlhf_studio.runs.classroom.records import STATES, AnswerValue, Round, RoundQuestion, State, StudentAnswer, distribution, read_answer
from rlhf_studio.runs.classroom.store import GONE, ClassStore
from rlhf_studio.runs.feedback.store import NotPossible
from rlhf_studio.ui.classroom.answering import Answering

Json = dict[str, Any]


class Rounds:
    """Rounds of one class. Its methods may be called from several threads; those that read wait for nobody."""

    def __init__(self, store: ClassStore, answering: Answering) -> None:
        self._store, self._answering = store, answering
        self._changing = threading.Lock()
        self._round: Round | None = None
        self._given: dict[str, AnswerValue] = {}
        self._real: Json = {}
        self._view: Json = {}
        self.version = int(
            time.time()
        )  # grows with every change that pages must show; begins at another number after every start of the app

    @property
    def answered(self) -> int:
        """How many students have answered the present round."""
        return len(self._given)

    @property
    def present(self) -> Round:
        """The present round. Raises NotPossible."""
        if self._round is None:
            raise NotPossible(GONE)
        return self._round

    def load(self) -> None:
        """Begin with what the store has. Raises StoreError."""
        with self._changing:
            rounds = self._store.rounds()
            self._take(rounds[0] if rounds and rounds[0].state != "over" else None)

    def view(self, person: str) -> Json:
        """What a page shows: the ``round``, empty for none, and the person's ``own`` answer to it."""
        view, own = self._view, self._given.get(person)
        return {"version": self.version, "round": view, "own": own if view and person else None, "answered": self.answered}

    def ask(self, question: RoundQuestion, run: str = "") -> None:
        """Begin a round."""
        with self._changing:
            self._take(self._store.ask(question, run))

    def answer(self, round_id: str, person: str, name: str, value: Any, most: int) -> None:
        """Keep a student's answer; ``most`` students are counted. Raises NotPossible, with a sentence for the student."""
        round_ = self.present
        if round_.id != round_id:
            raise NotPossible(_("Your teacher asks something else now."))
        try:
            answer = read_answer(round_.question, value)
        except ValueError as error:
            raise NotPossible(told(error)) from None
        with self._changing:
            self._store.answer(round_id, person, name, answer, most)
            if self._is_present(round_id):
                self._given = {**self._given, person: answer}

    def move(self, round_id: str, state: State) -> None:
        """Take the present round on."""
        with self._changing:
            round_ = self._store.move(round_id, state)
            if self._is_present(round_id):
                self._take(None if round_.state == "over" else round_)

    def show_again(self, round_id: str) -> None:
        """Make a round that was put away the present one. Raises NotPossible while there is another."""
        with self._changing:
            self._take(self._store.show_again(round_id))

    def set_run(self, round_id: str, run: str) -> None:
        """Say which run answers the present round."""
        with self._changing:
            round_ = self._store.set_run(round_id, run)
            if self._is_present(round_id):
                self._take(round_)

    def delete(self, round_id: str) -> None:
        """Remove a round with its answers."""
        with self._changing:
            self._store.delete(round_id)
            if self._is_present(round_id):
                self._take(None)

    def look(self) -> Json:
        """How far the run is that answers the present round. Pages are told to fetch the round again when this has changed."""
        round_ = self.present
        real = self._answering.look(round_)
        with self._changing:
            if self._is_present(round_.id) and real != self._real:
                self._real = real
                self._publish()
        choose = {"runs": self._answering.runs()} if round_.question.kind == "curve" and not round_.question.experiment else {}
        return {**real, "curve": bool(real.get("curve", {}).get("steps")), **choose}

    def strike(self, people: Sequence[str]) -> None:
        """Remove these students with their answers."""
        with self._changing:
            self._store.strike(people)
            self._given = {person: answer for person, answer in self._given.items() if person not in people}
            self._publish()

    def tell(self) -> None:
        """Make all pages fetch the round again, because something outside the round has changed."""
        with self._changing:
            self.version += 1

    def _is_present(self, round_id: str) -> bool:
        return self._round is not None and self._round.id == round_id

    def answers(self, round_id: str) -> tuple[Round, list[StudentAnswer]]:
        """A round with its answers."""
        return self._store.round(round_id), self._store.answers(round_id)

    def _take(self, round_: Round | None) -> None:
        before, self._round = self._round, round_
        if round_ is None or before is None or before.id != round_.id:
            self._given = {given.person: given.answer for given in self._store.answers(round_.id)} if round_ else {}
            self._real = {}
        if round_ is not None and round_.run != (before.run if before else ""):
            self._real = {}
        self._publish()

    def _publish(self) -> None:
        """Make what pages get. The answers of the class are in it only after the teacher has shown them, and the right answer only after
        the teacher has revealed it."""
        round_ = self._round
        view: Json = {}
        if round_ is not None:
            question = asdict(round_.question)
            right = question.pop("right")
            settles = right is not None or bool(round_.question.metric or round_.question.experiment)
            view = {"id": round_.id, "state": round_.state, "kind": round_.question.kind, "question": question, "settles": settles}
            if STATES.index(round_.state) >= STATES.index("shown"):
                given = list(self._given.values())
                view["results"] = {**distribution(round_.question, given), "answered": len(given)}
            if round_.state == "revealed":
                real = self._real.get("right", right)
                view["real"] = {"curve": self._real.get("curve"), "right": real, "name": self._real.get("name", "")}
        self._view = view
        self.version += 1


def without_people(round_: Round) -> Json:
    """A round as the list of earlier rounds shows it, without anybody's name or answer."""
    return {
        "id": round_.id,
        "text": round_.question.text,
        "kind": round_.question.kind,
        "state": round_.state,
        "at": round_.asked_at,
        "n": round_.answered,
    }
