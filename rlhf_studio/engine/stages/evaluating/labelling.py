"""Preference pairs from responses that a policy wrote: a reward model says which of two is better."""

from __future__ import annotations

import math
from itertools import combinations

from rlhf_studio.config import NOTHING_ALLOWED, Permissions
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.rewards.scorer import Episodes, Scorer, build_scorer
from rlhf_studio.engine.types import OnProgress
from rlhf_studio.inputs.checks.evaluation import reward_model_settings
from rlhf_studio.inputs.completions import Labelled, LabelledPair
from rlhf_studio.inputs.models.files import ModelError

ROWS = 256
"""Responses that are scored together."""


def label_by_model(
    completions: dict[str, list[str]], model: str, compute: Compute, report: OnProgress, permissions: Permissions = NOTHING_ALLOWED
) -> Labelled:
    """Each two different responses to a prompt, the one that the reward model scores higher first; ``margin`` is the difference.

    Raises :class:`ConfigError` and RewardError.
    """
    try:
        settings = reward_model_settings(model)
    except ModelError as error:
        raise ConfigError([Problem("", str(error))]) from error
    scorer = build_scorer(settings, compute, report, permissions)
    rows = [(prompt, response) for prompt, responses in completions.items() for response in responses]
    all_scores, cut = _scores(scorer, rows, report)
    scores = iter(all_scores)
    pairs: list[LabelledPair] = []
    equal = tied = 0
    for prompt, responses in completions.items():
        own = [next(scores) for _ in responses]
        for first, second in combinations(range(len(responses)), 2):
            margin = own[first] - own[second]
            if responses[first] == responses[second]:
                equal += 1
            elif margin == 0 or not math.isfinite(margin):
                tied += 1
            else:
                best, other = (first, second) if margin > 0 else (second, first)
                pairs.append(LabelledPair(prompt, responses[best], responses[other], round(abs(margin), 6)))
    return Labelled(pairs, equal, tied, sum(len(responses) < 2 for responses in completions.values()), cut=cut)


def _scores(scorer: Scorer, rows: list[tuple[str, str]], report: OnProgress) -> tuple[list[float], int]:
    """Scores of finished responses, and how many texts lost their beginning. Lengths count as 0: the policy's tokens are unknown."""
    scores: list[float] = []
    cut = 0
    for start in range(0, len(rows), ROWS):
        report(f"Scoring {len(rows):,} responses", start / len(rows))
        part = rows[start : start + ROWS]
        episodes = Episodes([prompt for prompt, _ in part], [text for _, text in part], [True] * len(part), [0] * len(part))
        scored = scorer.read(episodes)
        scores += scored.sum.tolist()
        cut += 0 if scored.reading is None else int((scored.reading[:, 0] < scored.reading[:, 1]).sum())
    return scores, cut
