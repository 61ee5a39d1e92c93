"""How one reward model scores one text: the score at each token, and how it changes when a word is swapped or left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rlhf_studio.engine.models.classifiers import classifier_facts
from rlhf_studio.engine.rewards.episodes import Episodes
from rlhf_studio.engine.rewards.kinds.reward_model import RewardModelScorer
from rlhf_studio.engine.text import token_pieces
from rlhf_studio.language import S_

Json = dict[str, Any]
MOST_WORDS = 150
AT_ONCE = 32  # changed texts between two reports
SAME = 1e-3  # the last prefix is the whole text: how far its score may be from the scorer's own
WORD = re.compile(r"[\w'’-]+|[^\w\s]")


@dataclass(frozen=True)
class ProbedResponse:
    """A response to its prompt, and the words to try in it.

    Attributes:
        candidates: words that each word of the response is replaced by, in turn.
        stopped: whether the response ended with its stop token.
    """

    prompt: str
    response: str
    candidates: tuple[str, ...] = ()
    stopped: bool = True

    def episodes(self, responses: Sequence[str]) -> Episodes:
        """The same prompt with other responses. For a model that reads chats the prompt is what the user says."""
        count = len(responses)
        chats = [[{"role": "user", "content": self.prompt}]] * count
        return Episodes([self.prompt] * count, list(responses), [self.stopped] * count, [1] * count, None, chats)


def facts_of(scorer: RewardModelScorer) -> Json:
    """Facts that need the loaded model: its class, its head, its weights, and which token it scores."""
    return {**classifier_facts(scorer.network), "reads_left": scorer.reads_last}


def look(scorer: RewardModelScorer, probed: ProbedResponse) -> Json:
    """The score of the text, and of each of its beginnings, from one forward pass.

    Gives ``score``; ``ids`` and ``pieces`` of all L tokens; ``first``, the index of the response's first token; ``prefixes``, L scores of
    the text as if it ended at each token, or None for a model that reads in both directions; ``scored``, the index of the token whose
    state gives the score, None for the latter; ``cut``, how many tokens were too many; ``notes``.
    """
    episodes, notes = probed.episodes([probed.response]), []
    score = float(scorer(episodes)[0])
    text = scorer.tokens(episodes)
    prefixes = scorer.prefix_scores(episodes)
    if prefixes is None:
        notes.append(S_("This model reads a text in both directions, so a beginning of it has no score of its own in the same pass."))
    elif abs(prefixes[-1] - score) > SAME * max(1.0, abs(score)):
        notes.append(
            S_(f"The score at the last token is {prefixes[-1]:.4g}, and the model's own is {score:.4g}: scores per token are left out.")
        )
        prefixes = None
    if text.cut:
        notes.append(S_(f"The text is longer than the model reads: its first {text.cut:,} tokens were cut off."))
    if scorer.reads_chats:
        notes.append(S_("The model reads chats: the prompt is what the user says, and the rest is written as its template does."))
    if text.ended:
        notes.append(S_("The end token was put behind the response, as this model was trained."))
    return {
        "score": score,
        "ids": text.ids,
        "pieces": token_pieces(scorer.tokenizer, text.ids),
        "first": text.first,
        "prefixes": prefixes,
        "scored": None if prefixes is None else len(text.ids) - 1,
        "cut": text.cut,
        "notes": notes,
    }


@dataclass(frozen=True)
class ResponseWord:
    """A word or a punctuation mark of a response; ``start`` and ``end`` count its characters."""

    start: int
    end: int
    text: str


def words_of(response: str) -> list[ResponseWord]:
    """Words and marks in their order; a word may have apostrophes and hyphens inside."""
    return [ResponseWord(match.start(), match.end(), match[0]) for match in WORD.finditer(response)]


def without(response: str, word: ResponseWord, prompt: str = "") -> str:
    """The response without the word, and without one of the two spaces around it; ``prompt`` is what stands before the response."""
    before, after = response[: word.start], response[word.end :]
    if before and before[-1].isspace():
        return before.rstrip() + after if before.strip() else before + after.lstrip()
    begins = not before and (not prompt or prompt[-1].isspace())
    return before + (after.lstrip() if begins else after)


def replaced(response: str, word: ResponseWord, candidate: str) -> str:
    """The response with another word instead. The new word gets a capital letter if the old one has one."""
    taken = candidate[:1].upper() + candidate[1:] if word.text[:1].isupper() else candidate
    return response[: word.start] + taken + response[word.end :]


def swaps(scorer: RewardModelScorer, probed: ProbedResponse, stop: Callable[[], bool] = lambda: False) -> Iterator[Json]:
    """Every word left out, and replaced by every candidate: the change of the score.

    Yields ``{"done", "of"}`` while it goes on, and at the end ``{"words", "left"}``: a list with ``start``, ``end``, ``text``, ``without``
    and ``with`` (a number for each candidate, None where the word is that candidate), and how many words were too many to be tried.
    """
    words = words_of(probed.response)
    tried = words[:MOST_WORDS]
    texts = [probed.response]
    for word in tried:
        texts += [
            without(probed.response, word, probed.prompt),
            *(replaced(probed.response, word, candidate) for candidate in probed.candidates),
        ]
    scores: list[float] = []
    for first in range(0, len(texts), AT_ONCE):
        if stop():
            return
        scores += scorer(probed.episodes(texts[first : first + AT_ONCE])).tolist()
        yield {"done": len(scores), "of": len(texts)}
    original, *changed = scores
    width = 1 + len(probed.candidates)
    rows = []
    for number, word in enumerate(tried):
        own = [score - original for score in changed[number * width : (number + 1) * width]]
        same = [word.text.casefold() == candidate.casefold() for candidate in probed.candidates]
        rows.append(
            {
                "start": word.start,
                "end": word.end,
                "text": word.text,
                "without": own[0],
                "with": [None if is_same else value for is_same, value in zip(same, own[1:], strict=True)],
            }
        )
    yield {"words": rows, "left": len(words) - len(tried)}
