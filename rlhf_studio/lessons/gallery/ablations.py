"""The cards of the choices that people argue about: ``benchmarks.ablations`` makes their runs, and its plan has the rule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlhf_studio.language import N_, _
from rlhf_studio.lessons.gallery.card import HEAD, OUTCOMES, WORDS, Card, Numbers, signed, start, unfinished
from rlhf_studio.lessons.kit.pictures import Series, plane

TONES = ("policy", "value")
VERDICTS = {
    "higher": N_("{change}: gold ends higher, by {mean} ({low} to {high})."),
    "lower": N_("{change}: gold ends lower, by {mean} ({low} to {high})."),
    "leans": N_("{change}: gold moves by {mean} in one direction in all seeds, but three seeds leave {low} to {high} open."),
    "no difference": N_("{change}: no difference in gold was seen: {mean}, somewhere from {low} to {high}."),
    "unfinished": N_("{change}: not all runs are finished; so far gold moves by {mean}."),
}
"""An answer, by the verdict on gold."""


@dataclass(frozen=True)
class Argument:
    """A question, and the arms of the plan that answer it, with what each of them changes in words.

    Attributes:
        said: what people argue.
    """

    name: str
    question: str
    said: str
    arms: tuple[tuple[str, str], ...]


ARGUMENTS = (
    Argument(
        "value-clipping",
        N_("Does clipping the value loss help?"),
        N_("Many programs clip how far a value may move per step, as in the first PPO code; others found that it slows the critic down."),
        (("value-clipping", N_("Values clipped at 0.2")),),
    ),
    Argument(
        "whitening",
        N_("Must advantages be whitened?"),
        N_("Whitening gives the advantages of every batch mean 0 and one size. But Adam divides by the size of the gradient anyway."),
        (("no-whitening", N_("Without whitening")),),
    ),
    Argument(
        "epochs",
        N_("How often may one batch be used?"),
        N_("More passes get more out of answers that were costly to sample; later passes learn from a policy that no longer exists."),
        (("one-epoch", N_("1 pass in place of 4")), ("eight-epochs", N_("8 passes in place of 4"))),
    ),
    Argument(
        "critic-warm-up",
        N_("Should the critic learn first?"),
        N_("A critic that knows nothing gives poor advantages. A warm-up costs steps in which the policy learns nothing: here 5 of 30."),
        (("critic-warm-up", N_("5 steps for the critic alone")),),
    ),
    Argument(
        "kl-estimator",
        N_("Does it matter how the KL is estimated?"),
        N_(
            "k1 is noisy, k3 is never negative, and both estimate the same KL. Their gradients differ: k1 in the reward has the KL's, "
            "k3 has another one in either place. The same β need not weigh the same in the loss: whitening scales the KL with the "
            "advantages only where it is part of the reward."
        ),
        (("k3-in-reward", N_("k3 in the reward")), ("k3-in-loss", N_("k3 in the loss"))),
    ),
    Argument(
        "following-reference",
        N_("May the reference follow the policy?"),
        N_(
            "A reference that moves charges less for what was learned long ago. Here a tenth of the policy is mixed into it after each "
            "step; no setting replaces it now and then, which is the other form of the argument."
        ),
        (("following-reference", N_("A reference that follows")),),
    ),
    Argument(
        "reward-scaling",
        N_("Should rewards be scaled?"),
        N_("Scores divided by their running standard deviation have a size that does not drift, and the charge for KL weighs differently."),
        (("reward-scaling", N_("Scores scaled")),),
    ),
)


def ablation(argument: Argument, n: Numbers) -> Card | None:
    """The card of an argument; None before the first pair of runs."""
    arms = [(_(words), n["arms"][name]) for name, words in argument.arms if name in n["arms"]]
    if not arms:
        return None
    clouds = [
        (_("Unchanged"), n["unchanged"], "coef"),
        *((words, arm["points"], tone) for (words, arm), tone in zip(arms, TONES, strict=False)),
    ]
    points = [Series(words, [x for x, _y in cloud], [y for _x, y in cloud], tone, dots=True) for words, cloud, tone in clouds]
    all_kl, all_gold = zip(*(point for _words, cloud, _tone in clouds for point in cloud), strict=True)
    kls, golds = (math.floor(min(all_kl) - 0.5), math.ceil(max(all_kl) + 0.5)), (math.floor(10 * min(all_gold) - 0.5) / 10, 1)
    picture = plane(points, x=_("KL to the start, nats per answer"), y=_("Gold"), x_range=kls, y_range=golds)
    return Card(
        argument.name, _(argument.question), "\n".join(_answer(words, arm["differences"][0]) for words, arm in arms), picture,
        _("Each dot is a run: {answers} fresh answers of its last policy.").format(answers=n["answers"]), n["hours"] * (1 + len(arms)),
        notes=[*unfinished(n), _(argument.said)],
        head=[_(words) for words in HEAD],
        rows=[_row(words if len(arms) > 1 else "", one) for words, arm in arms for one in arm["differences"]],
        starts=[start("world", arm["settings"], words if len(arms) > 1 else "") for words, arm in arms],
    )  # fmt: skip


def _answer(change: str, gold: Numbers) -> str:
    kind = gold["word"] if gold["word"] != "differs" else "higher" if gold["mean"] > 0 else "lower"
    low, high = (signed(value) for value in gold["interval"] or (0.0, 0.0))
    return _(VERDICTS[kind]).format(change=change, mean=signed(gold["mean"]), low=low, high=high)


def _row(change: str, one: Numbers) -> Sequence[str]:
    digits = 3 if one["outcome"] == "clipped" else 2
    outcome, interval = _(OUTCOMES[one["outcome"]]), "–"
    if one["interval"]:
        interval = _("{low} to {high}").format(low=signed(one["interval"][0], digits), high=signed(one["interval"][1], digits))
    named = _("{change}: {outcome}").format(change=change, outcome=outcome) if change else outcome
    return [named, signed(one["mean"], digits), interval, _(WORDS[one["word"]])]
