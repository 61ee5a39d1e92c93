"""The blind arena: two recorded answers to one prompt, without names and in random order; a person says which is better."""

from __future__ import annotations

import random
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rlhf_studio.analysis.evaluation.answers import PolicyAnswers
from rlhf_studio.analysis.evaluation.compare import WinRate, of_points
from rlhf_studio.runs.evaluation.votes import ArenaVote, Choice, hash_of, keep_vote, read_votes

CHOICES: tuple[Choice, ...] = ("left", "right", "tie")
MOST_OPEN = 500


@dataclass(frozen=True)
class Duel:
    """Two answers to one prompt. ``left`` and ``right`` are (policy, draw); who they are is told after the vote."""

    run: str
    place: int
    prompt: str
    left: tuple[str, int]
    right: tuple[str, int]
    texts: tuple[str, str]


@dataclass(frozen=True)
class Counted:
    """The votes on answers that still exist, and how many votes are left out because their answers do not."""

    votes: list[ArenaVote] = field(default_factory=list)
    left_out: int = 0


class Arena:
    """Open duels, and the votes that are kept in the folders of the evaluations.

    Args:
        folder_of: the folder of a run.
    """

    def __init__(self, folder_of: Callable[[str], Path]) -> None:
        self._folder_of = folder_of
        self._lock = threading.Lock()
        self._open: OrderedDict[str, Duel] = OrderedDict()
        self._votes: dict[str, list[ArenaVote]] = {}
        self._random = random.SystemRandom()

    def next(self, run: str, policies: Sequence[PolicyAnswers]) -> tuple[str, Duel] | None:
        """A new duel between two of the policies, with its key; the pair of policies and the prompt with the fewest votes come first.

        None where no two of them have different answers to one prompt. Raises StoreError.
        """
        chosen = self._choose(run, policies)
        if chosen is None:
            return None
        key = secrets.token_urlsafe(12)
        with self._lock:
            self._open[key] = chosen
            while len(self._open) > MOST_OPEN:
                self._open.popitem(last=False)
        return key, chosen

    def _choose(self, run: str, policies: Sequence[PolicyAnswers]) -> Duel | None:
        votes = self.votes(run, policies).votes
        judged = {(vote.place, frozenset((vote.left, vote.right))) for vote in votes}
        pairs = [(first, other) for index, first in enumerate(policies) for other in policies[index + 1 :]]
        count = {frozenset((first.name, other.name)): 0 for first, other in pairs}
        for vote in votes:
            pair = frozenset((vote.left[0], vote.right[0]))
            if pair in count:
                count[pair] += 1
        self._random.shuffle(pairs)
        pairs.sort(key=lambda pair: count[frozenset((pair[0].name, pair[1].name))])
        for policy, other in pairs:
            theirs: dict[int, list[int]] = {}
            for index, record in enumerate(other.records):
                theirs.setdefault(record.place, []).append(index)
            pairs_of_answers = [
                (mine, other.records[index])
                for mine in policy.records
                for index in theirs.get(mine.place, [])
                if mine.response != other.records[index].response
            ]
            fresh = [
                pair
                for pair in pairs_of_answers
                if (pair[0].place, frozenset(((policy.name, pair[0].draw), (other.name, pair[1].draw)))) not in judged
            ]
            if fresh or pairs_of_answers:
                ends = list(self._random.choice(fresh or pairs_of_answers))
                self._random.shuffle(ends)
                left, right = ends
                sides = ((left.policy, left.draw), (right.policy, right.draw))
                return Duel(run, left.place, left.prompt, *sides, (left.response, right.response))
        return None

    def vote(self, key: str, choice: Choice) -> Duel | None:
        """Store a vote and give the duel, which says whose answers they were. None for a duel that is not open, or not any more.

        Raises StoreError when the vote could not be stored; then the duel stays open.
        """
        with self._lock:
            duel = self._open.get(key)
            if duel is None:
                return None
            votes = self._known(duel.run)
            vote = ArenaVote(duel.place, duel.left, duel.right, choice, hash_of(*duel.texts))
            keep_vote(self._folder_of(duel.run), vote)
            del self._open[key]
            votes.append(vote)
            return duel

    def votes(self, run: str, policies: Sequence[PolicyAnswers]) -> Counted:
        """The votes on these policies' present answers. Raises StoreError."""
        with self._lock:
            votes = list(self._known(run))
        if not votes:
            return Counted()
        names = {policy.name for policy in policies}
        texts = {(answer.place, answer.policy, answer.draw): answer.response for policy in policies for answer in policy.records}
        own = [vote for vote in votes if {vote.left[0], vote.right[0]} <= names]
        there = [vote for vote in own if _is_about(vote, texts)]
        return Counted(there, len(own) - len(there))

    def _known(self, run: str) -> list[ArenaVote]:
        if run not in self._votes:
            self._votes[run] = read_votes(self._folder_of(run))
        return self._votes[run]


def standings(votes: Sequence[ArenaVote], first: str) -> Mapping[str, WinRate]:
    """The win rate of each policy against ``first``, by people's votes."""
    points: dict[str, tuple[list[float], list[int]]] = {}
    for vote in votes:
        names = (vote.left[0], vote.right[0])
        if first not in names:
            continue
        other = "right" if names[0] == first else "left"
        own, prompt_numbers = points.setdefault(names[1] if other == "right" else names[0], ([], []))
        own.append(0.5 if vote.choice == "tie" else float(vote.choice == other))
        prompt_numbers.append(vote.place)
    return {name: of_points(np.array(own), np.array(prompt_numbers, np.int64)) for name, (own, prompt_numbers) in points.items()}


def _is_about(vote: ArenaVote, texts: Mapping[tuple[int, str, int], str]) -> bool:
    left, right = (texts.get((vote.place, *side)) for side in (vote.left, vote.right))
    return left is not None and right is not None and vote.about == hash_of(left, right)
