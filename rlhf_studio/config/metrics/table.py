"""The table of metrics: one row each. The order of the rows is the order of the lines in a chart and of the tiles."""

from __future__ import annotations

from rlhf_studio.config.metrics.metric import ChartLine, Metric, Tile
from rlhf_studio.config.metrics.stages import STAGE_METRICS

_OBJECTIVE = (
    Metric(
        "objective/scores",
        "Score",
        "points",
        "Mean score of this step's responses, as the reward sees them.",
        "Rises, then flattens; the gold score should follow it.",
        colour="score",
        lines=(
            ChartLine("score"),
            ChartLine("frontier"),
        ),
        tile=Tile(),
    ),
    Metric(
        "objective/scores_std",
        "Score spread",
        "points",
        "Standard deviation of the scores within one step.",
        "Stays above zero; when it collapses, all answers earn the same and nothing more is learned.",
    ),
    Metric(
        "objective/scores_se",
        "Score standard error",
        "points",
        "Uncertainty of the mean score in one step. Responses to the same prompt count as one.",
        "Small beside the change you want to see.",
    ),
    Metric("objective/scores_min", "Lowest score", "points", "The worst score in this step.", "Rises with the mean."),
    Metric(
        "objective/scores_max",
        "Highest score",
        "points",
        "The best score in this step.",
        "Stays within what the reward model saw in training.",
    ),
    Metric(
        "gold/score",
        "Gold score",
        "points",
        "A second scorer that the policy never sees: the truth that the reward model only approximates.",
        "Rises with the score. When the score rises and gold falls, the reward is being gamed.",
        colour="gold",
        lines=(
            ChartLine("score", axis="right"),
            ChartLine("frontier", axis="right"),
        ),
        tile=Tile(),
    ),
    Metric(
        "gold/score_se",
        "Gold standard error",
        "points",
        "Uncertainty of the mean gold score in one step. Responses to the same prompt count as one.",
        "Small beside the change you want to see.",
    ),
    Metric(
        "eval/scores",
        "Score on eval_dataset",
        "points",
        "Mean score of almost greedy answers to prompts that are not trained on: of programs for TRL that give an eval_dataset.",
        "Rises with the score.",
        colour="heldout",
        lines=(ChartLine("score", style="sparse"),),
    ),
    Metric(
        "objective/kl",
        "KL",
        "nats per response",
        "How far the policy has moved from the reference: the sum of log-probability differences over a response, averaged.",
        "Starts at 0 and grows slowly to a few nats; a steep climb means the policy leaves fluent text behind.",
        usual=(0.0, 15.0),
        colour="kl",
        lines=(ChartLine("kl"),),
        tile=Tile(),
    ),
    Metric(
        "objective/kl_k3",
        "KL (k3)",
        "nats per response",
        "The same distance by an estimator that is never negative and less noisy.",
        "Close to the plain KL; a large gap says that few responses dominate.",
        usual=(0.0, 15.0),
        colour="kl-soft",
        lines=(ChartLine("kl", style="asked"),),
    ),
    Metric(
        "objective/entropy",
        "Response surprise",
        "nats per response",
        "Mean of minus the log-probability of whole responses: how unpredictable what was written is.",
        "Falls gently; a crash means the policy repeats itself.",
    ),
    Metric(
        "objective/non_score_reward",
        "KL penalty",
        "points",
        "What the KL penalty cost per response, summed over tokens.",
        "Small beside the score, never zero for long.",
    ),
    Metric(
        "objective/rlhf_reward",
        "Total reward",
        "points",
        "Score plus KL penalty: what PPO really maximises.",
        "Rises; falling while the score rises means the KL eats the gain.",
    ),
    Metric(
        "objective/kl_coef",
        "KL coefficient",
        "points per nat",
        "The price β of moving away from the reference, per nat.",
        "Constant when fixed; when adaptive it moves until the KL stays near its target.",
        colour="coef",
        lines=(ChartLine("kl", axis="right", style="steps"),),
    ),
    Metric(
        "reward/*",
        "Reward part",
        "points",
        "Weighted score of one reward component, averaged over the step.",
        "Every part you care about rises or holds.",
    ),
)

_POLICY = (
    Metric(
        "policy/entropy_avg",
        "Entropy",
        "nats per token",
        "How open the policy's choice is at each token, averaged.",
        "Falls slowly; near 0 it has become certain and stops exploring.",
        colour="entropy",
        lines=(ChartLine("entropy"),),
        tile=Tile(),
    ),
    Metric(
        "policy/approxkl_avg",
        "Step size (approx. KL)",
        "nats per token",
        "How far one update moved the policy: half the mean squared change in log-probability.",
        "Around 0.001 to 0.02; above 0.05 updates are too large.",
        usual=(0.0, 0.02),
    ),
    Metric(
        "policy/clipfrac_avg",
        "Clipped tokens",
        "share of tokens",
        "Clip fraction: the share of tokens whose loss clipping decided. They had moved as far as their advantage may take them, and "
        "taught nothing more.",
        "0 to 20 %; more means the learning rate or the number of passes is too high. With ppo.ratio_level sequence whole responses are "
        "clipped, and more than half is usual.",
        usual=(0.0, 0.2),
        colour="clip",
        lines=(ChartLine("clip", percent=True),),
        tile=Tile(digits=1, percent=True),
    ),
    Metric(
        "val/ratio",
        "Ratio",
        "",
        "Mean probability ratio of new to old policy over the update.",
        "Very close to 1; far from 1 the old samples no longer speak for the policy.",
        usual=(0.95, 1.05),
        colour="ratio",
        lines=(ChartLine("clip", axis="right"),),
    ),
    Metric("val/ratio_var", "Ratio variance", "", "Variance of the probability ratio over tokens.", "Small; spikes show unstable updates."),
    Metric(
        "policy/first_log_ratio",
        "First log-ratio",
        "nats",
        "Largest log-ratio before the first optimizer step of an update: the same model must give the same probabilities twice.",
        "Below 0.0001; more means sampling and learning disagree about the model.",
        usual=(0.0, 0.0001),
    ),
    Metric(
        "loss/policy_avg",
        "Policy loss",
        "",
        "The clipped objective that the policy descends, averaged over the update: the mean over all response tokens of a mini-batch, "
        "where long responses count more, unless ppo.loss_average says otherwise.",
        "Small and noisy around a slightly negative value; its level says little.",
        colour="policy",
        lines=(ChartLine("loss"),),
    ),
)

_VALUE = (
    Metric(
        "loss/value_avg",
        "Value loss",
        "points²",
        "Half the squared error of the value head, averaged over the update.",
        "Falls early, then stays low.",
        colour="value",
        lines=(ChartLine("loss", axis="right"),),
    ),
    Metric(
        "val/clipfrac_avg",
        "Clipped values",
        "share of tokens",
        "Value clip fraction: the share of tokens whose value loss was decided by clipping, so that they pulled the critic no further.",
        "Low after the first steps.",
        usual=(0.0, 0.3),
    ),
    Metric(
        "val/explained_variance",
        "Value fit",
        "",
        "Explained variance: 1 less the mean squared error of the values, divided by the variance of the returns: 1 is perfect, 0 is no "
        "better than always saying the mean return, below 0 is worse. A constant mistake counts too.",
        "Climbs above 0 within the first steps and stays there.",
        usual=(0.0, 1.0),
        colour="critic",
        lines=(ChartLine("critic"),),
        tile=Tile(),
    ),
    Metric("val/returns_mean", "Mean return", "points", "Average return over tokens: advantage plus value.", "Rises with the score."),
    Metric("val/values_mean", "Mean value", "points", "Average prediction of the value head.", "Follows the mean return closely."),
)

_TEXT = (
    Metric(
        "val/num_eos_tokens",
        "Finished responses",
        "responses",
        "How many responses of the step ended with the stop token.",
        "Most of the batch, unless lengths are capped on purpose.",
    ),
    Metric(
        "tokens/response_length",
        "Response length",
        "tokens",
        "Mean number of tokens per response, the stop token included.",
        "Steady; running to the limit or to a few tokens means length is being gamed.",
        colour="length",
        lines=(ChartLine("length"),),
        tile=Tile(digits=1, label="Length"),
    ),
    Metric(
        "tokens/cut_off",
        "Cut off",
        "share of responses",
        "Share of responses that hit the length limit before their stop token.",
        "Low; a rising share means answers no longer end.",
        colour="cut",
        lines=(ChartLine("length", axis="right", percent=True),),
    ),
    Metric(
        "tokens/reward_cut",
        "Cut reward texts",
        "share of texts",
        "Share of the step's texts, prompt and response together, that are longer than the reward model reads: it scored their end alone.",
        "0; a text that lost its prompt is scored without what was asked.",
    ),
)

_TRAINING = (
    Metric(
        "optim/grad_norm",
        "Gradient norm",
        "",
        "Size of the gradient before clipping, averaged over the update.",
        "Same order of magnitude throughout.",
    ),
    Metric(
        "optim/steps",
        "Optimizer steps",
        "steps",
        "Optimizer steps this update took.",
        "Passes times minibatches, unless some were skipped.",
    ),
    Metric("lr", "Learning rate", "", "The optimizer's step size in this step.", "Follows the schedule you chose."),
    Metric("episode", "Episodes", "episodes", "Responses sampled since the run began.", "Grows by the batch size each step."),
)

_SPEED = (
    Metric(
        "time/rollout",
        "Sampling",
        "seconds",
        "Time this step spent writing responses.",
        "Usually the largest part.",
        colour="phase-1",
        lines=(ChartLine("phases", style="stack"),),
    ),
    Metric(
        "time/score",
        "Scoring",
        "seconds",
        "Time this step spent in the reward components.",
        "Small beside sampling.",
        colour="phase-2",
        lines=(ChartLine("phases", style="stack"),),
    ),
    Metric(
        "time/reference",
        "Reference",
        "seconds",
        "Time for the reference policy's log-probabilities.",
        "Small beside sampling.",
        colour="phase-3",
        lines=(ChartLine("phases", style="stack"),),
    ),
    Metric(
        "time/update",
        "Update",
        "seconds",
        "Time for the optimizer's passes over the batch.",
        "Grows with PPO epochs.",
        colour="phase-4",
        lines=(ChartLine("phases", style="stack"),),
    ),
    Metric(
        "time/record",
        "Recording",
        "seconds",
        "Time for writing this step to disk.",
        "Close to 0.",
        colour="phase-5",
        lines=(ChartLine("phases", style="stack"),),
    ),
    Metric("time/total", "Step time", "seconds", "Wall-clock time of the whole step.", "Steady."),
    Metric("time/elapsed", "Elapsed", "seconds", "Time since training began, loading excluded.", "Grows evenly."),
    Metric(
        "time/left",
        "Time left",
        "seconds",
        "Steps that remain, times the median time of this run's last ten steps. Before its first step, the time on the Train page tells: "
        "it comes from the recipe, from earlier runs or from the machine's rate, and says from which.",
        "Settles after a few steps.",
    ),
    Metric("speed/episodes_per_second", "Episodes per second", "episodes/s", "Responses finished per second of the whole step.", "Steady."),
    Metric(
        "speed/tokens_per_second",
        "Speed",
        "tokens/s",
        "Response tokens handled per second of the whole step.",
        "Steady.",
        colour="speed",
        lines=(ChartLine("speed"),),
        tile=Tile(digits=0),
    ),
    Metric("memory/peak", "Peak memory", "bytes", "Most memory the engine has held so far.", "Flat after the first steps."),
)

_EVALUATION = (
    Metric(
        "evaluation/*",
        "Evaluation",
        "",
        "Of one policy's answers in this step: the mean score, gold, judge, KL or length; or what its share of the held-out text is worth.",
        "Higher scores and gold, a small KL, and no loss on the held-out text.",
    ),
)


METRICS: tuple[Metric, ...] = (*_OBJECTIVE, *_POLICY, *_VALUE, *_TEXT, *STAGE_METRICS, *_TRAINING, *_SPEED, *_EVALUATION)
"""All metrics. ``reward/*`` stands for every reward component; ``time/left`` is not recorded: the page works it out."""
