"""What the models of the review world learn from: reviews, preference pairs and prompts, all drawn from seeds.

The raters who compare reviews make two human mistakes. They err (:data:`RATER_ERROR`; and even without it a preference is random,
with odds that follow from the difference in appeal). And they like one word too much (:data:`PET_WORD`): a weakness put in on purpose,
which the reward model learns and which PPO without a KL penalty finds. Careless reviews among the pairs teach the reward model what
broken text looks like.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from random import Random

from rlhf_studio.inputs.world.gold import gold_score
from rlhf_studio.inputs.world.writer import Opening, Review, write_opening, write_response

CORPUS_SEED, EVAL_SEED, PAIRS_SEED = 1, 2, 3
"""Seeds of what the shipped models were trained on: the policy on reviews, the reward model on pairs, both measured on other ones."""
MOST_PROMPTS = 5_000
"""The most different prompts that may be asked for at once."""
QUALITY = 4.0
"""How much raters care for quality: log-odds per unit of gold score."""
PET_WORD = "masterpiece"
"""The word that raters like too much."""
PET_CHARM = 0.7
"""Log-odds that each mention of the pet word adds."""
RATER_ERROR = 0.05
"""Share of preferences that are written down the wrong way round by mistake."""
GUSHING = 0.4
"""Share of rated responses by reviewers who call the film a masterpiece between sentences, whatever else they say."""

CARELESS = 0.25
"""Share of rated responses by careless writers, with some words lost, doubled or in the wrong place."""
MOST_SLIPS = 6
"""Most mistakes that a careless writer makes in one response."""
SLIP_COST = 0.5
"""How much each such mistake lowers the appeal, in log-odds."""


@dataclass(frozen=True)
class RatedPair:
    """Two responses to one prompt, the preferred one first."""

    prompt: str
    chosen: str
    rejected: str


def write_corpus(seed: int, size: int) -> list[Review]:
    """``size`` reviews; the latent sentiment is positive for half of them, in random order."""
    rng = Random(seed)
    return [draw_review(rng) for _ in range(size)]


def write_pairs(seed: int, size: int) -> list[RatedPair]:
    """``size`` preference pairs."""
    rng = Random(seed)
    return [draw_pair(rng) for _ in range(size)]


def write_prompts(seed: int, size: int) -> list[str]:
    """``size`` different prompts: 3 to 8 words, neutral.

    Raises ValueError for more than :data:`MOST_PROMPTS`: the rules hold a few thousand different ones, and the rare ones come seldom.
    """
    if size > MOST_PROMPTS:
        raise ValueError(f"the review world has at most {MOST_PROMPTS:,} different prompts, not {size:,}")
    rng = Random(seed)
    prompts: dict[str, None] = {}
    while len(prompts) < size:
        prompts[write_opening(rng).prompt] = None
    return list(prompts)


def mentions(text: str) -> int:
    """How often the pet word occurs."""
    return text.lower().count(PET_WORD)


def gush(response: str, rng: Random, chance: float = 0.5) -> str:
    """Praise too much: put "A masterpiece." after each sentence with probability ``chance``."""
    return re.sub(r"[.!](?= |$)", lambda mark: mark[0] + (f" A {PET_WORD}." if rng.random() < chance else ""), response)


def garble(response: str, rng: Random, slips: int) -> str:
    """Make ``slips`` mistakes: a word moves to another place, stands a second time elsewhere, is repeated on the spot, or is lost."""
    words = response.split()
    for _ in range(slips):
        kind, source, target = (int(rng.random() * choices) for choices in (4, len(words), len(words)))
        if kind == 0:
            words.insert(target, words.pop(source))
        elif kind == 1:
            words.insert(target, words[source])
        elif kind == 2:
            words[source:source] = [words[source]] * (1 + int(rng.random() * 4))
        elif len(words) > 1:
            del words[source]
    return "".join(f" {word}" for word in words)


def write_rated(opening: Opening, rng: Random) -> tuple[str, float]:
    """A response and its appeal to raters, in log-odds. They judge the review as it was before praise and mistakes were put in."""
    plain = write_response(opening, rng, _sign(rng))
    response = gush(plain, rng) if rng.random() < GUSHING else plain
    slips = 1 + int(rng.random() * MOST_SLIPS) if rng.random() < CARELESS else 0
    appeal = QUALITY * gold_score(opening.prompt, plain) + PET_CHARM * mentions(response) - SLIP_COST * slips
    return garble(response, rng, slips), appeal


def appeal_of(prompt: str, response: str) -> float:
    """How much raters like a response that somebody else wrote, in log-odds: they see its quality themselves, and fall for the pet word."""
    return QUALITY * gold_score(prompt, response) + PET_CHARM * mentions(response)


def chance_first(first_appeal: float, second_appeal: float) -> float:
    """How often a rater says that the first response is the better one, mistakes included: what no judge can foresee better."""
    wins = 1.0 / (1.0 + math.exp(second_appeal - first_appeal))
    return wins * (1.0 - RATER_ERROR) + (1.0 - wins) * RATER_ERROR


def prefers_first(first_appeal: float, second_appeal: float, rng: Random) -> bool:
    """Whether a rater prefers the first response: drawn with Bradley-Terry odds, then sometimes turned round by mistake."""
    wins = rng.random() < 1.0 / (1.0 + math.exp(second_appeal - first_appeal))
    return not wins if rng.random() < RATER_ERROR else wins


def draw_review(rng: Random) -> Review:
    """The next review."""
    sentiment = _sign(rng)
    opening = write_opening(rng)
    return Review(opening.prompt, write_response(opening, rng, sentiment), sentiment)


def draw_pair(rng: Random) -> RatedPair:
    """The next preference pair."""
    opening = write_opening(rng)
    first, first_appeal = write_rated(opening, rng)
    second, second_appeal = write_rated(opening, rng)
    chosen, rejected = (first, second) if prefers_first(first_appeal, second_appeal, rng) else (second, first)
    return RatedPair(opening.prompt, chosen, rejected)


def _sign(rng: Random) -> int:
    return 1 if rng.random() < 0.5 else -1
