"""From claims to phrases as people read them: their text where it stands in a response, and responses that have it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from rlhf_studio.analysis.learned.ngrams import ANYWHERE, ENDING, OPENING, is_mark
from rlhf_studio.analysis.learned.phrases import Claim
from rlhf_studio.analysis.learned.responses import PARTIAL, Corpus, ResponseSource
from rlhf_studio.analysis.records import Phrase
from rlhf_studio.runs.records import ResponseTokens

MOST_EXAMPLES = 3
Place = Literal["anywhere", "opening", "ending"]
PLACES: tuple[Place, Place, Place] = ("anywhere", "opening", "ending")


def as_phrases(claims: Sequence[Claim], corpus: Corpus, source: ResponseSource, steps: Sequence[int]) -> list[Phrase]:
    """The claims as records, with examples from the recorded responses of ``steps``, newest first.

    A phrase that begins or ends inside a character, so that nobody could read it, is left out.
    """
    recorded = source.recorded_of(steps)
    numbered = {step: [source.numbered(response) for response in recorded[step]] for step in steps}
    phrases = []
    for claim in claims:
        wanted = [int(token) for token in corpus.token_ids[list(claim.tokens)]]
        found = list(_found(wanted, claim.place, recorded, numbered, source.pieces))
        text = _text([corpus.pieces[token] for token in claim.tokens], found, source.pieces)
        if text:
            phrases.append(_phrase(claim, text, [(step, response.sample) for step, response, _, _ in found[:MOST_EXAMPLES]]))
    return phrases


Found = tuple[int, ResponseTokens, list[int], int]
"""Step, response, its ids, and where the phrase begins in it."""


def _found(
    wanted: list[int],
    place: int,
    recorded: Mapping[int, list[ResponseTokens]],
    numbered: Mapping[int, list[list[int]]],
    pieces: Mapping[int, str],
) -> Iterator[Found]:
    """One place in each recorded response that has the phrase, newest steps first."""
    for step in sorted(recorded, reverse=True):
        for response, ids in zip(recorded[step], numbered[step], strict=True):
            if place == ENDING and not response.stopped:
                continue
            starts = (start for start in range(len(ids) - len(wanted) + 1) if ids[start : start + len(wanted)] == wanted)
            at = next((start for start in starts if _is_there(start, start + len(wanted), ids, place, pieces)), None)
            if at is not None:
                yield step, response, ids, at


def _is_there(start: int, end: int, ids: list[int], place: int, pieces: Mapping[int, str]) -> bool:
    if place == OPENING:
        return start == 0
    # Behind an ending there are marks, and the token that ended the response.
    return place == ANYWHERE or all(is_mark(pieces[token]) for token in ids[end:-1])


def _text(alone: list[str], found: Sequence[Found], pieces: Mapping[int, str]) -> str:
    """The phrase's text, from a response that has it: tokens alone may lack the space before them, or hold a part of a character."""
    text = "".join(alone)
    for _, response, ids, at in found:
        if len(response.pieces) != len(ids):
            break
        inside = response.pieces[at : at + len(alone)]
        cut = inside[-1] == PARTIAL or (at > 0 and response.pieces[at - 1] == PARTIAL)
        text = "" if cut else "".join(piece for piece in inside if piece != PARTIAL)
        break
    return "" if PARTIAL in text else " ".join(text.split())


def _phrase(claim: Claim, text: str, examples: list[tuple[int, int]]) -> Phrase:
    return Phrase(
        text=text,
        place=PLACES[claim.place],
        before=claim.before[0],
        before_of=claim.before[1],
        after=claim.after[0],
        after_of=claim.after[1],
        log_odds=claim.log_odds,
        z=claim.z,
        examples=examples,
    )
