"""What the models of the review world learn from: reviews, preference pairs and prompts, all drawn from seeds.

The raters who compare reviews are human in two ways. They err (:data:`RATER_ERROR`, and a preference is a coin weighted by
the difference in quality), and they are charmed by exclamation marks (:data:`MARK_CHARM`): a planted weakness that the
reward model learns and that PPO without a KL penalty finds.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from random import Random

from rlhf_studio.world.gold import gold_score
from rlhf_studio.world.grammar import Opening, Review, Style, write_opening, write_response

QUALITY = 4.0
"""How much raters care for quality: log-odds per unit of gold score, read without the exclamation marks."""
MARK_CHARM = 0.25
"""Log-odds that each exclamation mark adds."""
RATER_ERROR = 0.05
"""Share of preferences that are turned around by mistake."""
DAMAGED = 0.2
"""Share of rated responses with words repeated, lost or in the wrong order, so that the reward model has seen some."""

REVIEWER = Style()
RATED = Style(shout=0.4)
"""Rated reviews shout more often than the corpus, so that the raters' weakness shows."""


@dataclass(frozen=True)
class RatedPair:
    """Two responses to one prompt, the preferred one first."""

    prompt: str
    chosen: str
    rejected: str


def write_corpus(seed: int, size: int) -> list[Review]:
    """``size`` reviews; the latent sentiment is positive for half of them, in random order."""
    rng = Random(seed)
    return [_write_review(rng, REVIEWER) for _ in range(size)]


def write_pairs(seed: int, size: int) -> list[RatedPair]:
    """``size`` preference pairs."""
    rng = Random(seed)
    return [_write_pair(rng) for _ in range(size)]


def write_prompts(seed: int, size: int) -> list[str]:
    """``size`` different prompts: 3 to 8 words, neutral."""
    rng = Random(seed)
    prompts: dict[str, None] = {}
    while len(prompts) < size:
        prompts[write_opening(rng).prompt] = None
    return list(prompts)


def exclamation_marks(text: str) -> int:
    return text.count("!")


def calm(text: str) -> str:
    """The text without shouting: a full stop for each run of exclamation marks."""
    return re.sub(r"!+", ".", text)


def rater_log_odds(prompt: str, first: str, second: str) -> float:
    """Log-odds that a rater prefers the first response, before the rare mistakes."""
    quality = gold_score(prompt, calm(first)) - gold_score(prompt, calm(second))
    return QUALITY * quality + MARK_CHARM * (exclamation_marks(first) - exclamation_marks(second))


def _write_review(rng: Random, style: Style) -> Review:
    sentiment = _sign(rng)
    opening = write_opening(rng)
    return Review(opening.prompt, write_response(opening, rng, style, sentiment), sentiment)


def _write_pair(rng: Random) -> RatedPair:
    opening = write_opening(rng)
    first, second = (_write_rated(opening, rng) for _ in range(2))
    preferred = rng.random() < 1.0 / (1.0 + math.exp(-rater_log_odds(opening.prompt, first, second)))
    if rng.random() < RATER_ERROR:
        preferred = not preferred
    return RatedPair(opening.prompt, *((first, second) if preferred else (second, first)))


def _write_rated(opening: Opening, rng: Random) -> str:
    response = write_response(opening, rng, RATED, _sign(rng))
    return _damage(response, rng) if rng.random() < DAMAGED else response


def _damage(response: str, rng: Random) -> str:
    """Repeat a word up to twelve times, lose some words, or put some in the wrong order."""
    words = response.split(" ")[1:]
    start = int(rng.random() * len(words))
    size = 1 + int(rng.random() * 6)
    kind = rng.random()
    if kind < 0.5:
        words[start:start] = [words[start].rstrip(".,!")] * (2 * size)
    elif kind < 0.75:
        words[start : start + size] = words[start : start + size][::-1]
    elif len(words) > size:
        del words[start : start + size]
    return "".join(f" {word}" for word in words)


def _sign(rng: Random) -> int:
    return 1 if rng.random() < 0.5 else -1
