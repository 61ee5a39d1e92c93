"""What a part came to, whether the next one is worth its time, and what came of the whole road: judged from numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlhf_studio.analysis.reward_model.accuracy import share_of
from rlhf_studio.config.stability import gentler
from rlhf_studio.jobs.road.headlines import counted, interval, judged_by, title_of, written
from rlhf_studio.jobs.road.state import Comparison, OwnSettings, Part, Road, TrainingEnds
from rlhf_studio.language import N_, _
from rlhf_studio.units import percent

CHANCE = 0.5
"""The accuracy of a reward model that guesses; the win rate of a policy that is as good as the other."""
KINDS = {
    "improved": N_("PPO raised the score"),
    "improving": N_("PPO raised the score"),
    "rising": N_("The score rose, not by more than chance yet"),
    "cannot tell yet": N_("The score shows no sure change yet"),
    "cannot be told": N_("The score shows no sure change"),
    "too early": N_("There are too few steps to judge the score"),
    "not known": N_("Nothing tells whether the score rose"),
    "nothing learned": N_("PPO did not raise the score"),
    "exploiting the reward": N_("The score rose in ways that suggest a flaw of the reward: read the answers"),
    "collapsed": N_("The policy has collapsed and no longer writes useful text"),
}
"""By the doctor's verdict on a PPO run."""


@dataclass(frozen=True)
class PartVerdict:
    """Whether a part was worth it.

    Attributes:
        worth: whether the next part has something to build on.
        sentence: what the part came to.
        advice: what would help where it was not worth it; empty where it was.
    """

    worth: bool
    sentence: str
    advice: str = ""


def part_verdict_of(part: Part) -> PartVerdict | None:
    """The verdict on a part of a road on a person's own files; None before it is done, and for what is not judged."""
    if part.state != "done":
        return None
    if part.comparison is not None:
        return PartVerdict(True, better(part.comparison, _("the start")))
    judges = {"sft": _fine_tuned, "reward_model": _reward_model, "ppo": _ppo}
    if part.key not in judges:
        return None
    if part.course is None:
        return PartVerdict(False, _("Nothing was measured in the time it had."), _("Give the road more minutes."))
    return judges[part.key](part.course)


def held_up(road: Road) -> Part | None:
    """The part after which a road on own files stops, because it was not worth it; None where it may go on, and at its end.

    A reward model that is only the judge stops nothing: a weak one is not asked (:func:`rlhf_studio.jobs.road.own.made_so_far`).
    """
    own, newest = road.settings, road.last_done()
    if not isinstance(own, OwnSettings) or own.anyway or newest is None or road.next_part() is None:
        return None
    only_judge = newest.key == "reward_model" and bool(own.reward)
    return newest if is_weak(newest) and not only_judge else None


def is_weak(part: Part) -> bool:
    """Whether a part is done and was not worth it."""
    verdict = part_verdict_of(part)
    return verdict is not None and not verdict.worth


# --- each part -----------------------------------------------------------------------------------------------------------------------


def _fine_tuned(course: TrainingEnds) -> PartVerdict:
    """Worth it where the loss on held-out demonstrations fell."""
    if course.metric != "sft/eval_loss" or course.first is None:
        text = _("No demonstrations were held out, so nothing tells whether the model learned more than these by heart.")
        return PartVerdict(False, text, _("Bring at least 100 demonstrations, or choose a share to hold out with --data.eval_share."))
    first, last = written(course, course.first), written(course, course.last)
    on = _(", on {examples}").format(examples=counted(course.held_out, "example")) if course.held_out else ""
    if course.last < course.first:
        return PartVerdict(
            True,
            _("The held-out loss fell by {value}: {first} → {last}{on}.").format(
                value=percent(1 - course.last / course.first), first=first, last=last, on=on
            ),
        )
    advice = _("Bring more demonstrations, or learn more slowly: --sft.learning_rate {rate}, or --sft.epochs 1.").format(
        rate=_smaller(course)
    )
    return PartVerdict(False, _("The held-out loss did not fall: {first} → {last}{on}.").format(first=first, last=last, on=on), advice)


def _reward_model(course: TrainingEnds) -> PartVerdict:
    """Worth it where the whole 95 % interval (Wilson) of the held-out accuracy lies above chance."""
    if course.metric != "reward_model/eval_accuracy" or not course.held_out:
        text = _("No pairs were held out, so nothing tells whether the reward model learned more than these by heart.")
        return PartVerdict(False, text, _("Bring at least 100 pairs, or choose a share to hold out with --data.eval_share."))
    share = share_of("held out", np.full(course.held_out, course.last))
    assert share.low is not None and share.high is not None
    right = _("right on {last} of {held_out} ({low} to {high})").format(
        last=percent(course.last), held_out=counted(course.held_out, "held-out pair"), low=percent(share.low), high=percent(share.high)
    )
    if share.low > CHANCE:
        return PartVerdict(True, _("The reward model is better than chance: {right}.").format(right=right))
    enough = _pairs_that_tell(course.last)
    more = (
        _("About {enough:,} held-out pairs would tell, if the accuracy stays.").format(enough=enough)
        if enough
        else _("It is no better than guessing.")
    )
    text = _("Not surely better than chance: the reward model is {right}.").format(right=right)
    return PartVerdict(False, text, _("{more} Bring more pairs, or pairs whose difference is clearer.").format(more=more))


def _pairs_that_tell(accuracy: float) -> int:
    """How many held-out pairs would put the whole interval above chance, at this accuracy; 0 where a thousand would not."""
    sizes = (20, 30, 50, 75, 100, 150, 200, 300, 500, 1000)
    return next((size for size in sizes if (share_of("", np.full(size, accuracy)).low or 0) > CHANCE), 0)


def _ppo(course: TrainingEnds) -> PartVerdict:
    """Worth it where the policy has not collapsed; whether it is better is for the evaluation to say."""
    ends = "" if course.first is None else f" ({written(course, course.first)} → {written(course, course.last)})"
    text = _("{kind}{ends}, in {steps}.").format(
        kind=_(KINDS.get(course.kind, KINDS["too early"])), ends=ends, steps=counted(course.steps, "step")
    )
    if course.kind != "collapsed":
        return PartVerdict(True, text)
    smaller = _("Take smaller steps: --ppo.learning_rate {rate}, or hold it closer to its start: --ppo.kl_coef 0.2.").format(
        rate=_smaller(course)
    )
    return PartVerdict(False, text, smaller)


def _smaller(course: TrainingEnds) -> str:
    return f"{gentler(course.rate, course.usual):g}" if course.rate > 0 else _("a third of this")


# --- the whole road ------------------------------------------------------------------------------------------------------------------


def verdict_of(road: Road) -> str:
    """Whether the trained policy is better than the first one, and what its score did during PPO; empty before the road's end."""
    if road.next_part() is not None:
        return ""
    own = isinstance(road.settings, OwnSettings)
    compared = [part.comparison for part in road.parts if part.key == "evaluation" and part.comparison is not None]
    trained = [part.course for part in road.parts if part.key.startswith("ppo") and part.state == "done"]
    ended = better(compared[-1], _("the start") if own else _("the fine-tuned one")) if compared else ""
    course = trained[-1] if own and trained else None  # the doctor has judged whether its score moved by more than chance
    return " ".join(sentence for sentence in (ended, _ppo(course).sentence if course else _with_ppo(trained)) if sentence)


def better(comparison: Comparison, first: str) -> str:
    """Whether the trained policy is better: sure only where the whole interval of the win rate is on one side of half."""
    low, high = comparison.low, comparison.high
    if low is None or high is None:
        judged = _("Too few answers to tell: the trained policy wins")
    elif low > CHANCE:
        judged = _("The trained policy is better: it wins")
    elif high < CHANCE:
        judged = _("The trained policy is worse: it wins")
    else:
        judged = _("No sure difference: the trained policy wins")
    between, by = interval(comparison), judged_by(comparison)
    more = f"{_origin(comparison)}{_one_answer(comparison)}"
    return _("{judged} {rate} of comparisons with {first}{between}, {by}.{more}").format(
        judged=judged, rate=percent(comparison.rate), first=first, between=between, by=by, more=more
    )


def _one_answer(comparison: Comparison) -> str:
    """A warning where one answer has taken the place of all others, which a judge may like all the same."""
    same, prompts = comparison.same_answer, comparison.prompts
    return (
        _(" But it gives the same answer to {same} of {prompts}: read the answers.").format(same=same, prompts=counted(prompts, "prompt"))
        if 2 * same > prompts > 1
        else ""
    )


def _origin(comparison: Comparison) -> str:
    """Whether what judges is independent of the reward."""
    if comparison.same_origin is None:
        return ""
    if comparison.same_origin:
        return _(
            " Judged by what PPO learned from ({judge}), which favours what pleased it; a judge of another "
            "origin would tell more (--judge)."
        ).format(judge=comparison.judge)
    return _(" The judge ({judge}) is of another origin than the reward.").format(judge=comparison.judge)


def _with_ppo(trained: list[TrainingEnds | None]) -> str:
    """How a number changed from the beginning of the first round to the end of the last one."""
    courses = [course for course in trained if course is not None and course.first is not None]
    if not courses or len(courses) < len(trained) or len({course.metric for course in courses}) != 1:
        return ""
    title = title_of(courses[0])
    return _moved(_("With PPO the {lower}{title}").format(lower=title[:1].lower(), title=title[1:]), courses[0], courses[-1])


def _moved(what: str, begin: TrainingEnds, end: TrainingEnds) -> str:
    if begin.first is None:
        return ""
    first, last = written(begin, begin.first), written(end, end.last)
    if first == last:
        return _("{what} stayed at {last}.").format(what=what, last=last)
    return _("{what} {last} from {first} to {last_2}.").format(
        what=what, last=_("rose") if end.last > begin.first else _("fell"), first=first, last_2=last
    )
