"""From claims to phrases as people read them: the text as it stands in a response, and responses that have it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Literal

from rlhf_studio.analysis.learned.ngrams import ANYWHERE, ENDING, OPENING, is_mark
from rlhf_studio.analysis.learned.phrases import ChangedPhrase
from rlhf_studio.analysis.learned.responses import PARTIAL, Corpus, ResponseSource
from rlhf_studio.analysis.records import Phrase
from rlhf_studio.runs.records import ResponseTokens

MOST_EXAMPLES = 3
Match = tuple[int, ResponseTokens, list[int], int]
"""Step, response, its ids, and where the phrase begins in it."""
Location = Literal["anywhere", "opening", "ending"]
LOCATIONS: tuple[Location, Location, Location] = ("anywhere", "opening", "ending")


class Examples:
    """The recorded responses of some steps, in which phrases are looked up."""

    def __init__(self, corpus: Corpus, source: ResponseSource, steps: Sequence[int]):
        self._corpus, self._pieces = corpus, source.pieces
        self._recorded = source.recorded_of(steps)
        self._numbered = {step: [source.ids_of(step, response) for response in self._recorded[step]] for step in steps}

    def legible(self, tokens: tuple[int, ...]) -> bool:
        """Whether these ids of the corpus begin and end with whole characters in the newest recorded response that has them."""
        return bool(self._text(tokens, list(islice(self._matches(tokens, ANYWHERE), 1))))

    def as_phrases(self, claims: Sequence[ChangedPhrase]) -> list[Phrase]:
        """The claims as records, with examples, the newest first."""
        phrases = []
        for claim in claims:
            matches = list(islice(self._matches(claim.tokens, claim.location), MOST_EXAMPLES))
            phrases.append(_phrase(claim, self._text(claim.tokens, matches), [(step, response.sample) for step, response, _, _ in matches]))
        return phrases

    def _matches(self, tokens: tuple[int, ...], location: int) -> Iterator[Match]:
        """The first match in each recorded response that has the phrase, newest steps first."""
        own_ids = [int(token) for token in self._corpus.token_ids[list(tokens)]]
        for step in sorted(self._recorded, reverse=True):
            for response, ids in zip(self._recorded[step], self._numbered[step], strict=True):
                if location == ENDING and not response.stopped:
                    continue
                starts = (start for start in range(len(ids) - len(own_ids) + 1) if ids[start : start + len(own_ids)] == own_ids)
                at = next((start for start in starts if self._is_there(start, start + len(own_ids), ids, location)), None)
                if at is not None:
                    yield step, response, ids, at

    def _is_there(self, start: int, end: int, ids: list[int], location: int) -> bool:
        if location == OPENING:
            return start == 0
        # Behind an ending there are marks, and the token that ended the response.
        return location == ANYWHERE or all(is_mark(self._pieces[token]) for token in ids[end:-1])

    def _text(self, tokens: tuple[int, ...], matches: Sequence[Match]) -> str:
        """The text, from a response that has it: tokens alone may lack the space before them, or hold a part of a character."""
        text = "".join(self._corpus.pieces[token] for token in tokens)
        if matches:
            _, response, ids, at = matches[0]
            if len(response.pieces) == len(ids):
                inside = response.pieces[at : at + len(tokens)]
                cut = inside[-1] == PARTIAL or (at > 0 and response.pieces[at - 1] == PARTIAL)
                text = "" if cut else "".join(piece for piece in inside if piece != PARTIAL)
        return "" if PARTIAL in text else " ".join(text.split())


def _phrase(claim: ChangedPhrase, text: str, examples: list[tuple[int, int]]) -> Phrase:
    return Phrase(
        text=text,
        place=LOCATIONS[claim.location],
        before=claim.before[0],
        before_of=claim.before[1],
        after=claim.after[0],
        after_of=claim.after[1],
        log_odds=claim.log_odds,
        z=claim.z,
        examples=examples,
    )
