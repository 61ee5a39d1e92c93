"""The gold reward of the review world: what a reward model should measure, computed from the grammar itself.

    gold = parsed * balance - (1 - parsed),   in [-1, 1]

* ``parsed``: share of the response's words and punctuation marks that the grammar accepts, 0 to 1 (0 for an empty response).
* ``balance``: sum of the opinions in complete, well-formed sentences, divided by their number, or by
  :data:`FULL_REVIEW` if that is more; -1 to 1. A strong opinion counts 1.0, a mild one 0.6.

So a fluent review that loves the film in strong words earns almost 1, one that hates it almost -1, one with a single
opinion at most a third, and text that is not a review earns -1. Repeated words, exclamation marks, unfinished sentences and
whatever else a policy may find to please a reward model lower it step by step. The prompt is needed to parse the text, but only
the response earns.
"""

from __future__ import annotations

from rlhf_studio.inputs.world.parser import parse_review

LOWEST, HIGHEST = -1.0, 1.0
FULL_REVIEW = 3
"""Opinions that a full review has."""


def gold_score(prompt: str, response: str) -> float:
    """Gold reward of a response to a prompt, in [-1, 1]. Any two texts have one, reviews or not."""
    text = join(prompt, response)
    boundary = len(text) - len(response)
    review = parse_review(text)
    accepted = [taken for start, taken in zip(review.starts, review.accepted, strict=True) if start >= boundary]
    if not accepted:
        return LOWEST
    parsed = sum(accepted) / len(accepted)
    balance = sum(review.sentiments) / max(FULL_REVIEW, len(review.sentiments))
    return parsed * balance - (1.0 - parsed)


def join(prompt: str, response: str) -> str:
    """Prompt and response as one text, with a space between them where two words would else run together."""
    lost = prompt[-1:].isalnum() and response[:1].isalnum()
    return f"{prompt} {response}" if lost else prompt + response
