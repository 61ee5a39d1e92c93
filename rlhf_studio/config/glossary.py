"""What every number means, in one place: charts, tooltips, docs and lessons all read it here.

Keys are the stored names: metrics as in a step's record (``objective/kl``), which stand in :mod:`rlhf_studio.config.metrics.table`; and
the quantities of one token or one response (``advantages``), which stand here: those of
:data:`rlhf_studio.runs.records.TOKEN_QUANTITIES`, and the few that the Live page works out from them (``log_ratio``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from rlhf_studio.config.metrics.metric import Metric, Term
from rlhf_studio.config.metrics.table import METRICS
from rlhf_studio.language import shown

_TOKENS = {
    "logprobs": Term(
        "Log-prob when sampled", "nats", "Log-probability the policy gave this token when it wrote it.", "Near 0 for expected tokens."
    ),
    "new_logprobs": Term(
        "Log-prob, last pass",
        "nats",
        "Log-probability of the same token when this step's update went through it for the last time, before that pass's optimizer step: "
        "what the update made of it in the end is not measured.",
        "Up where the advantage is positive, down where negative.",
    ),
    "ref_logprobs": Term(
        "Log-prob, reference", "nats", "Log-probability the reference policy gives this token.", "Not far from the policy's own."
    ),
    "kl": Term(
        "KL",
        "nats",
        "How much likelier the policy finds this token than the reference does, by the run's KL estimator.",
        "Small for most tokens; the few large ones show where the policy changed its mind.",
    ),
    "rewards": Term(
        "Reward",
        "points",
        "What this token earned: minus β times its KL, and the whole score on the last token.",
        "One number at the end carries the score; the rest is the price of moving away.",
    ),
    "values": Term(
        "Value",
        "points",
        "What the value head expects this response to earn from here on.",
        "Drifts towards the final score as the text unfolds.",
    ),
    "advantages": Term(
        "Advantage",
        "points",
        "How much better this token turned out than the value head expected, before whitening. Without a critic, how much better its whole "
        "response did than the others to its prompt.",
        "Both signs; positive tokens become likelier, negative ones rarer.",
    ),
    "whitened_advantages": Term(
        "Advantage, whitened",
        "standard deviations",
        "The advantage shifted and scaled over the batch: what the loss used.",
        "Between about −3 and 3.",
    ),
    "returns": Term(
        "Return",
        "points",
        "What the value head is taught for this position: advantage plus value.",
        "Close to the value when the critic is good.",
    ),
    "deltas": Term(
        "TD error δ", "points", "Surprise at this token: reward plus the next value minus this value.", "Small once the critic is good."
    ),
    "entropy": Term(
        "Entropy", "nats", "How open the choice was at this position: 0 is certain.", "High where several continuations make sense."
    ),
    "ratio": Term(
        "Ratio",
        "",
        "Probability in the update's last pass divided by probability when sampled. With ppo.ratio_level sequence all tokens "
        "of a response share one: the geometric mean of theirs.",
        "Within the clip range around 1.",
    ),
    "clipped": Term(
        "Clipped",
        "",
        "Whether clipping decided this token's loss in the last pass: it had moved as far as its advantage may take it, and taught nothing "
        "more. A ratio out of the range on the other side is clipped only by dual clip.",
        "Few tokens, at most one in five; with ppo.ratio_level sequence whole responses.",
    ),
    "log_ratio": Term(
        "Log-ratio",
        "nats",
        "Log of this token's own ratio: how far this step's update had moved its probability by its last pass.",
        "Same sign as the advantage; small.",
    ),
    "loss": Term(
        "Loss", "nats", "Minus the log-probability of this token: how surprised the model was by it.", "Near 0 for tokens that it expected."
    ),
    "score": Term(
        "Score", "points", "What the whole response earned; it enters at the last token.", "Higher is better in the reward's eyes."
    ),
    "gold": Term(
        "Gold",
        "points",
        "What the response is really worth. It is known only in this tiny world, which is made by rules; training never sees it.",
        "Rises with the score. Where it falls, the judge is being fooled.",
    ),
    "sample_kl": Term("KL", "nats", "Log-probability under the policy minus under the reference, summed over the response.", "A few nats."),
    "length": Term("Length", "tokens", "Tokens in the response, the stop token included.", "Near the run's usual length."),
    "stopped": Term("Ended", "", "Whether the response ended with its stop token or was cut at the limit.", "Ended."),
    "probability": Term("Probability", "share", "The chance of this token at this position.", "Read policy and reference side by side."),
}

_WORDS = {
    "kl_estimator": Term(
        "KL estimator",
        "",
        "How the KL of a token is worked out from d, its log-probability under the policy less that under the reference: k1 is d, k2 is "
        "d²/2, k3 is exp(−d) − 1 + d, abs is d without its sign; full adds up the exact KL over all tokens that could have come.",
        "",
    ),
    "nats": Term(
        "Nats",
        "",
        "The unit of differences between log-probabilities: 1 nat apart means about 2.7 times as likely, 2 nats about 7.4 times.",
        "",
    ),
    "win_rate": Term(
        "Win rate",
        "share of prompts",
        "How often this policy's answer is better than the other one's to the same prompt; a tie counts half.",
        "Above 50 %, with an interval that leaves out 50 %.",
    ),
    "token_mean": Term(
        "Mean over tokens",
        "",
        "How a mini-batch's loss becomes one number: the loss of all its response tokens, divided by how many there are. A response of 200 "
        "tokens therefore counts ten times as much as one of 20. TRL calls this bnpo. With ppo.loss_average responses it is the mean "
        "of each response first, as in the GRPO paper.",
        "Keep it in mind where responses are of very unlike lengths.",
    ),
    "perplexity": Term(
        "Perplexity",
        "",
        "The exponential of the mean loss of a token, over all tokens of all texts together, not the mean of the texts' own perplexities: "
        "a long text counts more than a short one.",
        "Compare it only between models that share a tokenizer, on the same texts.",
    ),
    "tie": Term(
        "Tie",
        "",
        "A pair whose responses people found equally good. It is learned from as half a preference in either direction; its margin is "
        "not used, and accuracy does not count it.",
        "Few; many mean that people cannot tell the responses apart.",
    ),
    "overfitting": Term(
        "Overfitting",
        "",
        "The model learns its examples by heart: it still gets better on them, and worse on examples that it has never seen.",
        "None: stop where the held-out loss is lowest.",
    ),
    "bradley-terry": Term(
        "Bradley-Terry",
        "",
        "The rule that turns scores into choices: the larger the difference of two scores, the surer people prefer the higher one. With a "
        "difference of 0 they toss a coin, with 1 point 73 % choose the higher one, with 2 points 88 %.",
        "The scores differ as much as people's choices say, no more.",
    ),
    "calibration": Term(
        "Calibration",
        "",
        "Whether the model is as often right as it believes: of all pairs where it is 80 % sure, 80 % should go the way it says.",
        "The points lie on the diagonal; below it the model is too sure of itself.",
    ),
    "score_histogram": Term(
        "Scores of both",
        "points",
        "How often each score occurs among the chosen and among the rejected responses of the held-out pairs.",
        "Two hills side by side that overlap: the chosen ones further right.",
    ),
    "length_bias": Term(
        "Length bias",
        "",
        "Accuracy by how much longer the chosen response is than the rejected one. A model that has learned to like long responses is "
        "right where the chosen one is longer, and wrong where it is shorter.",
        "About the same accuracy everywhere.",
    ),
    "group_accuracy": Term(
        "Accuracy by group", "share of pairs", "Accuracy for each group of prompts.", "About the same for all; a low one needs more pairs."
    ),
    "dpo": Term(
        "DPO",
        "",
        "Direct preference optimisation: the policy learns from the pairs themselves. The chosen response becomes likelier than the "
        "rejected one, measured against a reference; no reward model and no sampling are needed.",
        "A baseline: PPO from the same pairs should do better to be worth its price.",
    ),
    "implicit_reward": Term(
        "Implicit reward",
        "points",
        "What DPO takes for the score of a response: β times the logarithm of how much likelier the policy finds it than the reference.",
        "Higher for the chosen response than for the rejected one.",
    ),
}


def glossary(metrics: Iterable[Metric] = METRICS) -> dict[str, Term]:
    """Stored name -> :class:`Term`, for these metrics, for every quantity of a token or a response, and for the words of the stages."""
    return {**{metric.name: metric.term for metric in metrics}, **_TOKENS, **_WORDS}


GLOSSARY = glossary()
"""Stored name -> :class:`Term`. ``reward/*`` stands for every reward component."""

IN_WORDS = {
    "tokens/response_length": Term(
        "Response length", "words", "Mean number of words per response: the run was recorded from texts, without their tokens.", ""
    ),
    "length": Term("Length", "words", "Words in the response: the run was recorded from texts, without their tokens.", ""),
}
"""What is said otherwise of a run whose lengths count words (``Origin.unit``)."""


def explained(terms: Mapping[str, Term]) -> dict[str, Any]:
    """Terms as plain data, in the language that is spoken now. A unit stays English: pages translate it where they show it."""
    return {name: shown(asdict(term), ("title", "meaning", "good")) for name, term in terms.items()}


def glossary_of(unit: str) -> dict[str, Term]:
    """The glossary for a run whose lengths count ``unit``, tokens or words."""
    return GLOSSARY | IN_WORDS if unit == "words" else GLOSSARY
