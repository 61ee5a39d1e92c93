"""Analyses for the tests of the Live page: answers by hand in the place of the real ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlhf_studio.analysis.records import Diagnosis, Evidence, Finding, Gap, Learned, Phrase, TokenShift, Trait, Verdict
from rlhf_studio.ui.live.responses import clearest_move, run_scales

PHRASE = Finding(
    "phrase-takes-over",
    "note",
    "One phrase takes over: “tender”.",
    6,
    "A phrase in more than half of the responses that the start did not have.",
    [Evidence("the phrase ends this response", step=6, sample=2, token=3), Evidence("score goes on rising", metric="objective/scores")],
    "The reward pays for the phrase itself, so the policy says it whether it fits or not.",
    "Raise the KL coefficient, or punish repetition.",
    {"ppo.kl_coef": 0.2},
    4,
)
KL = Finding(
    "kl-exploding",
    "alarm",
    "KL is 395, far beyond what this model can bear.",
    3,
    "KL above 50 nats per response.",
    [Evidence("KL leaves the usual range", step=3, metric="objective/kl")],
    "Steps of this size leave the language behind: the learning rate is 4,500 times the recipe's.",
    "Go back to the recipe's learning rate.",
    {"ppo.learning_rate": 0.0002},
)


def diagnosis(reader: Any, kind: str = "improving") -> Diagnosis:
    """What the doctor might say of a fake run, up to its newest step."""
    step = reader.status().step
    if kind == "exploiting the reward":
        sentence = "Exploiting the reward: the score rose from −0.40 to 1.90 while gold fell from 0.42 to 0.31."
        return Diagnosis(step, Verdict(kind, sentence, "Score up, gold down by more than two standard errors.", [], 5), [KL, PHRASE])
    if kind == "collapsed":
        sentence = "Collapsed: every response is cut off, entropy is 0 and KL 395."
        return Diagnosis(step, Verdict(kind, sentence, "Entropy below 0.05 since step 3.", [], 3), [KL])
    word = "Improved" if kind == "improved" else "Improving"
    sentence = f"{word}. Reviews turn friendly; “tender” now ends 9 of 16 responses: the judge may be fooled by it."
    return Diagnosis(
        step,
        Verdict(kind, sentence, "Score and gold rose by more than chance explains.", ["Gold rose less than the score."], 4),  # type: ignore[arg-type]
        [PHRASE],
        {"objective/scores": 1, "gold/score": -1},
    )


def learned(reader: Any) -> Learned:
    """What a fake run might have learned."""
    step = reader.status().step
    examples = [(step, row.sample) for row in reader.rollouts(step) if " tender" in row.response] or [(step, 1)]
    phrases = [
        Phrase(" tender", "ending", 1, 16, 9, 16, 2.3, 4.1, examples),
        Phrase(" dull", "anywhere", 6, 16, 0, 16, -2.9, -3.8, [(1, 0)]),
        Phrase(" the", "anywhere", 9, 16, 14, 16, 1.4, 3.4, [(step, 0)]),  # common before and after: no news for a reader
        Phrase(",", "anywhere", 2, 16, 12, 16, 2.1, 3.3, [(step, 0)]),
        Phrase("<img src=x onerror='window.__pwned=6'>", "opening", 0, 16, 4, 16, 1.9, 2.7, []),
    ]
    few = step < 6
    gap = Gap(step, 3, "score", "gold", 2.11, 0.0, "the acting is charming, A masterpiece")
    traits = [
        Trait("length", "Response length", "tokens", 22.4, 26.1),
        Trait("ended", "Ended by themselves", "share of responses", 0.81, 0.80),
        Trait("distinct", "Different words", "share of words", 0.62, 0.41),
    ]
    rose = [TokenShift(0, 4, "The movie was", " tender", 0.02, 0.31)]
    fell = [TokenShift(0, 4, "The movie was", " dull", 0.18, 0.01)]
    return Learned((1, 2), (max(1, step - 1), step), [] if few else phrases, traits, [gap], rose, fell, enough=not few)


def analyses(kind: Callable[[], str] = lambda: "improving") -> dict[str, Any]:
    """These in the place of the real ones, for Insights. ``kind`` is asked for at each diagnosis."""
    return {
        "diagnosis": lambda reader: lambda: diagnosis(reader, kind()),
        "learned": lambda reader: lambda: learned(reader),
        "scales": lambda reader: lambda: run_scales(reader),
        "moved": lambda reader: lambda: clearest_move(reader),
    }
