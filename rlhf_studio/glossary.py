"""What every number means, in one place: charts, tooltips, docs and lessons all read it here.

Keys are the stored names: metrics as in a step's record (``objective/kl``), token quantities as in
:data:`rlhf_studio.runs.records.TOKEN_QUANTITIES` (``advantages``), and the few numbers the Live page derives
(``log_ratio``, ``time/left``). This module imports nothing of ours, so that every layer may import it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Term:
    """One quantity, explained.

    Attributes:
        title: short name for labels, in sentence case.
        unit: unit of the number, empty where it has none.
        meaning: one sentence: what it is.
        good: one sentence: what good looks like.
        healthy_low, healthy_high: the usual range of a healthy run, in the number's own unit; None where none is known.
    """

    title: str
    unit: str
    meaning: str
    good: str
    healthy_low: float | None = None
    healthy_high: float | None = None


_OBJECTIVE = {
    "objective/scores": Term(
        "Score",
        "points",
        "Mean score of this step's responses, as the reward sees them.",
        "Rises, then flattens; the gold score should follow it.",
    ),
    "objective/scores_std": Term(
        "Score spread",
        "points",
        "Standard deviation of the scores within one step.",
        "Stays above zero; when it collapses, all answers earn the same and nothing more is learned.",
    ),
    "objective/scores_min": Term("Lowest score", "points", "The worst score in this step.", "Rises with the mean."),
    "objective/scores_max": Term(
        "Highest score", "points", "The best score in this step.", "Stays within what the reward model saw in training."
    ),
    "objective/kl": Term(
        "KL",
        "nats per response",
        "How far the policy has moved from the reference: the sum of log-probability differences over a response, averaged.",
        "Starts at 0 and grows slowly to a few nats; a steep climb means the policy leaves fluent text behind.",
        0.0,
        15.0,
    ),
    "objective/kl_k3": Term(
        "KL (k3)",
        "nats per response",
        "The same distance by an estimator that is never negative and less noisy.",
        "Close to the plain KL; a large gap says that few responses dominate.",
        0.0,
        15.0,
    ),
    "objective/entropy": Term(
        "Response surprise",
        "nats per response",
        "Mean of minus the log-probability of whole responses: how unpredictable what was written is.",
        "Falls gently; a crash means the policy repeats itself.",
    ),
    "objective/non_score_reward": Term(
        "KL penalty", "points", "What the KL penalty cost per response, summed over tokens.", "Small beside the score, never zero for long."
    ),
    "objective/rlhf_reward": Term(
        "Total reward",
        "points",
        "Score plus KL penalty: what PPO really maximises.",
        "Rises; falling while the score rises means the KL eats the gain.",
    ),
    "objective/kl_coef": Term(
        "KL coefficient",
        "points per nat",
        "The price β of moving away from the reference, per nat.",
        "Constant when fixed; when adaptive it moves until the KL stays near its target.",
    ),
    "reward/*": Term(
        "Reward part",
        "points",
        "Weighted score of one reward component, averaged over the step.",
        "Every part you care about rises or holds.",
    ),
    "gold/score": Term(
        "Gold score",
        "points",
        "A second scorer that the policy never sees: the truth that the reward model only approximates.",
        "Rises with the score. When the score rises and gold falls, the reward is being gamed.",
    ),
    "gold/score_se": Term(
        "Gold standard error", "points", "Uncertainty of the mean gold score in one step.", "Small beside the change you want to see."
    ),
}

_POLICY = {
    "policy/approxkl_avg": Term(
        "Step size (approx. KL)",
        "nats per token",
        "How far one update moved the policy: half the mean squared change in log-probability.",
        "Around 0.001 to 0.02; above 0.05 updates are too large.",
        0.0,
        0.02,
    ),
    "policy/clipfrac_avg": Term(
        "Clip fraction",
        "share of tokens",
        "Share of tokens whose loss clipping decided: they had moved as far as their advantage may take them, and taught nothing more.",
        "0 to 20 %; more means the learning rate or the number of passes is too high.",
        0.0,
        0.2,
    ),
    "policy/entropy_avg": Term(
        "Entropy",
        "nats per token",
        "How open the policy's choice is at each token, averaged.",
        "Falls slowly; near 0 it has become certain and stops exploring.",
    ),
    "val/ratio": Term(
        "Ratio",
        "",
        "Mean probability ratio of new to old policy over the update.",
        "Very close to 1; far from 1 the old samples no longer speak for the policy.",
        0.95,
        1.05,
    ),
    "val/ratio_var": Term("Ratio variance", "", "Variance of the probability ratio over tokens.", "Small; spikes show unstable updates."),
    "policy/first_log_ratio": Term(
        "First log-ratio",
        "nats",
        "Largest log-ratio before the first optimizer step of an update: the same model must give the same probabilities twice.",
        "Below 0.0001; more means sampling and learning disagree about the model.",
        0.0,
        0.0001,
    ),
    "loss/policy_avg": Term(
        "Policy loss",
        "",
        "The clipped objective that the policy descends, averaged over the update.",
        "Small and noisy around a slightly negative value; its level says little.",
    ),
}

_VALUE = {
    "loss/value_avg": Term(
        "Value loss", "points²", "Half the squared error of the value head, averaged over the update.", "Falls early, then stays low."
    ),
    "val/clipfrac_avg": Term(
        "Value clip fraction",
        "share of tokens",
        "Share of tokens whose value loss was decided by clipping, so that they pulled the critic no further.",
        "Low after the first steps.",
        0.0,
        0.3,
    ),
    "val/explained_variance": Term(
        "Explained variance",
        "",
        "How much of the returns' variation the value head predicts: 1 is perfect, 0 is no better than a constant, below 0 is worse.",
        "Climbs above 0 within the first steps and stays there.",
        0.0,
        1.0,
    ),
    "val/returns_mean": Term("Mean return", "points", "Average return over tokens: advantage plus value.", "Rises with the score."),
    "val/values_mean": Term("Mean value", "points", "Average prediction of the value head.", "Follows the mean return closely."),
}

_TEXT = {
    "val/num_eos_tokens": Term(
        "Finished responses",
        "responses",
        "How many responses of the step ended with the stop token.",
        "Most of the batch, unless lengths are capped on purpose.",
    ),
    "tokens/response_length": Term(
        "Response length",
        "tokens",
        "Mean number of tokens per response, the stop token included.",
        "Steady; running to the limit or to a few tokens means length is being gamed.",
    ),
    "tokens/cut_off": Term(
        "Cut off",
        "share of responses",
        "Share of responses that hit the length limit before their stop token.",
        "Low; a rising share means answers no longer end.",
    ),
}

_TRAINING = {
    "optim/grad_norm": Term(
        "Gradient norm", "", "Size of the gradient before clipping, averaged over the update.", "Same order of magnitude throughout."
    ),
    "optim/steps": Term(
        "Optimizer steps", "steps", "Optimizer steps this update took.", "Passes times minibatches, unless some were skipped."
    ),
    "lr": Term("Learning rate", "", "The optimizer's step size in this step.", "Follows the schedule you chose."),
    "episode": Term("Episodes", "episodes", "Responses sampled since the run began.", "Grows by the batch size each step."),
}

_SPEED = {
    "time/rollout": Term("Sampling", "seconds", "Time this step spent writing responses.", "Usually the largest part."),
    "time/score": Term("Scoring", "seconds", "Time this step spent in the reward components.", "Small beside sampling."),
    "time/reference": Term("Reference", "seconds", "Time for the reference policy's log-probabilities.", "Small beside sampling."),
    "time/update": Term("Update", "seconds", "Time for the optimizer's passes over the batch.", "Grows with PPO epochs."),
    "time/record": Term("Recording", "seconds", "Time for writing this step to disk.", "Close to 0."),
    "time/total": Term("Step time", "seconds", "Wall-clock time of the whole step.", "Steady."),
    "time/elapsed": Term("Elapsed", "seconds", "Time since training began, loading excluded.", "Grows evenly."),
    "time/left": Term(
        "Time left", "seconds", "Steps that remain, times the mean time of the last ten steps.", "Settles after a few steps."
    ),
    "speed/episodes_per_second": Term("Episodes per second", "episodes/s", "Responses finished per second of the whole step.", "Steady."),
    "speed/tokens_per_second": Term("Speed", "tokens/s", "Response tokens handled per second of the whole step.", "Steady."),
    "memory/peak": Term("Peak memory", "bytes", "Most memory the engine has held so far.", "Flat after the first steps."),
}

_TOKENS = {
    "logprobs": Term(
        "Log-prob when sampled", "nats", "Log-probability the policy gave this token when it wrote it.", "Near 0 for expected tokens."
    ),
    "new_logprobs": Term(
        "Log-prob, last pass",
        "nats",
        "Log-probability of the same token when this step's update went through it for the last time.",
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
        "How much better this token turned out than the value head expected, before whitening.",
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
        "Ratio", "", "Probability in the update's last pass divided by probability when sampled.", "Within the clip range around 1."
    ),
    "clipped": Term(
        "Clipped",
        "",
        "Whether clipping decided this token's loss in the last pass: it had moved as far as its advantage may take it, and taught nothing "
        "more. A ratio out of the range on the other side is clipped only by dual clip.",
        "Few tokens, at most one in five.",
    ),
    "log_ratio": Term(
        "Log-ratio",
        "nats",
        "Log of the ratio: how far this step's update had moved this token's probability by its last pass.",
        "Same sign as the advantage; small.",
    ),
    "score": Term(
        "Score", "points", "What the whole response earned; it enters at the last token.", "Higher is better in the reward's eyes."
    ),
    "gold": Term("Gold", "points", "The hidden scorer's opinion of the response.", "Agrees with the score."),
    "sample_kl": Term("KL", "nats", "Log-probability under the policy minus under the reference, summed over the response.", "A few nats."),
    "length": Term("Length", "tokens", "Tokens in the response, the stop token included.", "Near the run's usual length."),
    "stopped": Term("Ended", "", "Whether the response ended with its stop token or was cut at the limit.", "Ended."),
    "probability": Term("Probability", "share", "The chance of this token at this position.", "Read policy and reference side by side."),
}

GLOSSARY: dict[str, Term] = {**_OBJECTIVE, **_POLICY, **_VALUE, **_TEXT, **_TRAINING, **_SPEED, **_TOKENS}
"""Stored name -> :class:`Term`. ``reward/*`` stands for every reward component."""


def term(name: str) -> Term:
    """The entry of ``name``; ``reward/<component>`` takes the component's name as its title.

    An unknown name gets an entry that shows the name itself, so that a newer run's metrics still have a label.
    """
    if name in GLOSSARY:
        return GLOSSARY[name]
    if name.startswith("reward/"):
        part = GLOSSARY["reward/*"]
        return Term(name.removeprefix("reward/"), part.unit, part.meaning, part.good)
    return Term(name, "", "A number this version has no explanation for.", "")
