"""What a PPO run came to: improving, improved, rising, exploiting the reward, collapsed, nothing learned, or not to be told yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlhf_studio.analysis.doctor import bounds, judges
from rlhf_studio.analysis.doctor.check import CHECKS, figure
from rlhf_studio.analysis.doctor.expectation import outlook
from rlhf_studio.analysis.doctor.held_back import held_back
from rlhf_studio.analysis.doctor.in_counts import Told, in_counts
from rlhf_studio.analysis.doctor.judges import LIKELY_RISE, SURE_RISE, last_means, needed, rise, sureness
from rlhf_studio.analysis.doctor.run_data import RunData
from rlhf_studio.analysis.doctor.series import ALARM, WARNING
from rlhf_studio.analysis.doctor.stages.ppo_words import expectation, interval, more_steps, nothing_words
from rlhf_studio.analysis.doctor.verdict import Checked, VerdictRules, failure, risky_settings
from rlhf_studio.analysis.doctor.wording import as_sentence, joined_clauses, lowered, sentence_case
from rlhf_studio.analysis.ends import ends_of, parts_without_score
from rlhf_studio.analysis.records import OF_SETTINGS, Finding, VerdictKind
from rlhf_studio.language import N_, _, ngettext
from rlhf_studio.runs.rows import tenth
from rlhf_studio.units import score_text

FEWEST_STEPS = 5  # steps before the score is judged; a collapse is reported at once
SMALL_GAIN, REAL_LOSS = 0.5, 0.5  # the same unit: a policy whose score gained less than this while its judge lost this is spoilt
LONG_ENOUGH = 20  # steps, and half of the run, before the verdict on a run that goes on may be "nothing learned"
LONG_BY_STEPS = 40  # the same where nothing but the steps themselves tells what chance can do: fewer hide a rise that is over soon

DEAD_SIGNS = ("entropy-collapse", "all-cut-off", "ends-at-once", "diversity-loss")
BROKEN_SIGNS = (*DEAD_SIGNS, "kl-exploding", "repetition")
FEWEST_SIGNS = 2
MOST_SIGNS = 3  # named in the sentence
FAR_MORE = 1000  # times its standard error: such a change follows a line exactly, and its size in errors says nothing
STILL_SIGNS = ("not-training", "learning-rate-too-small")  # why a run may have learned nothing
EXPLOIT_SIGNS = ("length-reward", "repetition", "diversity-loss", "kl-exploding", "one-phrase")

RISES = ("rising", "improving", "improved")
UNSURE = ("cannot tell yet", "cannot be told")
OPEN = (*RISES, *UNSURE)

KINDS: tuple[VerdictKind, ...] = (
    "too early", "not known", "cannot tell yet", "nothing learned", "rising", "improving", "exploiting the reward", "collapsed",
)  # fmt: skip
TOO_EARLY, UNKNOWN, UNDECIDED, NOTHING, RISING, IMPROVING, EXPLOITING, COLLAPSED = range(8)


def _kinds(checked: Checked[RunData]) -> np.ndarray:
    run = checked.run
    score, gold = judges.score(run), judges.gold(run)
    count = score.counts
    risen = judges.risen(score)
    if run.over:
        risen[-1] = judges.risen(score, needed(run))[-1]
    rises, falls = sureness(score)
    kinds = np.full(len(run.steps), TOO_EARLY)
    kinds[_untold(run, count)] = UNKNOWN
    kinds[(count >= FEWEST_STEPS) & np.isfinite(rises)] = UNDECIDED  # without a score and its error there is no verdict
    enough = LONG_BY_STEPS if score.by_steps else LONG_ENOUGH
    late = (count >= enough) & (2 * run.steps >= run.total_steps)
    if run.over:  # nothing more will come
        late[-1] = count[-1] >= (enough if score.by_steps else FEWEST_STEPS)
    kinds[late & np.isfinite(rises) & (bounds.excluded(run, score) | (falls < -SURE_RISE))] = NOTHING
    kinds[judges.risen(score, LIKELY_RISE) & (count >= FEWEST_STEPS)] = RISING
    kinds[risen & (count >= FEWEST_STEPS)] = IMPROVING
    kinds[_exploiting(checked, gold is not None) & (risen | (gold is not None)) & (count >= FEWEST_STEPS)] = EXPLOITING
    kinds[_collapsed(checked, score, gold)] = COLLAPSED
    return kinds


def _untold(run: RunData, count: np.ndarray) -> np.ndarray:
    """At which steps more of the same would tell no more, shape (S,): no step has a score, or nothing says how sure it is.

    ``count`` says how many steps have had a score so far.
    """
    untold: np.ndarray = ((np.arange(1, len(count) + 1) >= FEWEST_STEPS) & (count == 0)) | (count >= FEWEST_STEPS)
    untold[-1] |= (run.over and not count[-1]) or bool(left_out(run))
    return untold


def _exploiting(checked: Checked[RunData], independent: bool) -> np.ndarray:
    if independent:
        return checked.level("judge-falls") >= WARNING
    signs = np.sum([checked.level(name) >= WARNING for name in EXPLOIT_SIGNS], axis=0)
    return np.asarray((signs >= FEWEST_SIGNS) | (checked.level("held-out-falls") >= WARNING))


def _collapsed(checked: Checked[RunData], score: judges.ScoreSeries, gold: judges.ScoreSeries | None) -> np.ndarray:
    """At which steps the policy is broken, shape (S,): until the judge finds it as good as at the start and none of its alarms holds.

    Broken is a policy with two alarms, one of them of having no choice left; one with such an alarm that gained nothing by it; and one far
    from its reference that the judge finds clearly worse than at the start.
    """
    alarms = {name: checked.level(name) >= ALARM for name in BROKEN_SIGNS}
    signs = np.sum(list(alarms.values()), axis=0)
    dead: np.ndarray = np.any([alarms[name] for name in DEAD_SIGNS], axis=0)
    judge = gold or score
    loss = judge.start - judge.window(judges.WINDOW)[0]
    gained = score.window(judges.WINDOW)[0] - score.start >= SMALL_GAIN * score.spread
    far = (checked.level("kl-exploding") >= WARNING) | (checked.level("repetition") >= WARNING) | dead
    broken = ((signs >= FEWEST_SIGNS) & dead) | (~gained & (dead | (far & (loss > REAL_LOSS * judge.spread))))
    broken[-1] |= checked.died_of_its_numbers
    return _until(broken, (loss <= 0) & (signs == 0))


def _until(begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """True from where ``begins`` is true until ``ends`` is, shape (S,)."""
    state = begins.copy()
    for index in range(1, len(state)):
        state[index] |= state[index - 1] & ~ends[index]
    return state


# --- words -------------------------------------------------------------------------------------------------------------------------


def _words(checked: Checked[RunData], kind: VerdictKind) -> tuple[str, str]:
    run = checked.run
    score, gold = judges.score(run), judges.gold(run)
    gain = rise(score)[0]
    change = _("Score {change}") if gold is None else _("Score {change}, gold {gold}")
    change = change.format(change=_change(run, score), gold="" if gold is None else _change(run, gold))
    rises, falls = (float(part[-1]) for part in sureness(score))
    fell = kind == "nothing learned" and falls < -SURE_RISE and gain[-1] < 0
    compared, sure = _compared(run, score), _sure(score, falls if fell else rises, SURE_RISE if fell else needed(run))
    if kind in ("too early", "not known"):
        return _early_words(run, score, compared, sure)
    if kind == "collapsed":
        signs = list(_signs(checked).values()) or [_("the judge finds it worse than at the start")]
        sentence = _("Collapsed: {signs}. {change}.").format(signs=joined_clauses(signs), change=change)
        return sentence, _("The policy no longer writes useful text, whatever its score says.")
    if kind == "exploiting the reward":
        return _exploit_words(checked, change, gold)
    if kind == "nothing learned" and fell:
        return _("The score fell. {change}.").format(change=change), _("{compared}: {result}.").format(compared=compared, result=sure)
    if kind == "nothing learned":
        return nothing_words(run, score, change, compared)
    if kind == "cannot tell yet":
        sentence = _("Cannot tell yet: it {ended}. {change}.") if run.broke_off else _("Cannot tell yet. {change}.")
        return sentence.format(ended=run.broke_off, change=change), _between(score, compared, sure)
    if kind == "cannot be told":
        sentence = _("Cannot be told: the change is no larger than chance makes it, and a rise that matters is not excluded. {change}.")
        return sentence.format(change=change), _between(score, compared, sure)
    change = lowered(change)
    if kind == "rising":
        return _("Rising, not yet certain: {change}.").format(change=change), _between(score, compared, sure)
    reason = _("{compared}: between the means of these two the score rose by {gain}. {sure}.")
    reason = (_("{compared}. {sure}.") if _ends_overlap(score) else reason).format(
        compared=compared, gain=score_text(float(gain[-1])), sure=sentence_case(sure)
    )
    kl = run.column("objective/kl")
    if np.isfinite(kl).any():
        change = _("{change}, KL {kl} nats").format(change=change, kl=figure(float(last_means(kl[np.isfinite(kl)])[-1]), 2))
    if kind != "improved" and run.broke_off:
        return _("Improving when it {ended}: {change}.").format(ended=run.broke_off, change=change), reason
    return (_("Improved: {change}.") if kind == "improved" else _("Improving: {change}.")).format(change=change), reason


def _between(score: judges.ScoreSeries, compared: str, sure: str) -> str:
    """The reason where a rise is not sure."""
    words = _("{compared}: {interval} {sure}.")
    return words.format(compared=compared, interval=interval(score), sure=sentence_case(sure))


def _compared(run: RunData, score: judges.ScoreSeries) -> str:
    """Which steps are compared, as the beginning of a sentence."""
    count = len(score.known)
    changed = score.changed_after
    steps = _("{count} steps") if count == np.sum(run.steps > changed) else _("{count} steps with a score")
    start = min(score.first_steps, count)
    if _ends_overlap(score):
        few = _("Looked at is the trend over {steps}, which are too few to compare the first ones with the last")
        return few.format(steps=steps.format(count=count))
    first = ngettext("the first step", "the first {count} steps", start).format(count=start)
    last = ngettext("the last step", "the last {count} steps", tenth(count)).format(count=tenth(count))
    words = _("Looked at is the trend over {steps}, and {first} beside {last}")
    if changed:
        words = _(
            "The reward was changed after step {step}, and scores before and after it are not the same quantity. "
            "Looked at is the trend over {steps} since then, and {first} beside {last}"
        )
    return words.format(step=changed, steps=steps.format(count=count), first=first, last=last)


def _ends_overlap(score: judges.ScoreSeries) -> bool:
    """Whether the steps of the start are so many of all that the last tenth is among them; not after a change of the reward."""
    return not score.changed_after and score.first_steps + tenth(len(score.known)) > len(score.known)


def _early_words(run: RunData, score: judges.ScoreSeries, compared: str, sure: str) -> tuple[str, str]:
    """The sentence and the reason where nothing can be said: too few steps, no score, or no standard error of it."""
    count = len(score.known)
    early = _("Too early to say: it {ended}.").format(ended=run.broke_off) if run.broke_off else _("Too early to say.")
    early = _("Cannot be told: the run had too few steps.") if run.over else early
    if count < FEWEST_STEPS and (lost := left_out(run)):
        reason = _("A verdict needs {fewest} steps with a score; there are {count}.").format(fewest=FEWEST_STEPS, count=count)
        return _("Not known: {left_out}.").format(left_out=lowered(lost)), reason
    if not count and (len(run.steps) >= FEWEST_STEPS or run.over):
        reason = _("A verdict needs the mean score of each step.")
        if run.origin.log_of == "TRL" and parts_without_score(run.metrics):
            reason = _(
                "A verdict needs the mean score of each step. Open the log again with the weights of its reward columns "
                "(--reward-weights; TRL's default is 1 for each)."
            )
        return _("Not known: no score is recorded."), reason
    if count < FEWEST_STEPS:
        return early, _needed(count, bool(score.changed_after), count == len(run.steps)).format(fewest=FEWEST_STEPS, count=count)
    reason = _("{compared}: {result}.").format(compared=compared, result=sure)
    return _("Not known: nothing tells how far the score moves by chance."), reason


def _needed(count: int, changed: bool, all_have_a_score: bool) -> str:
    """How many steps a verdict needs, and how many there are."""
    if changed:
        return ngettext(
            "A verdict needs {fewest} steps; there is 1 since the reward was changed.",
            "A verdict needs {fewest} steps; there are {count} since the reward was changed.",
            count,
        )
    if all_have_a_score:
        return ngettext("A verdict needs {fewest} steps; there is 1.", "A verdict needs {fewest} steps; there are {count}.", count)
    return ngettext(
        "A verdict needs {fewest} steps with a score; there is 1.", "A verdict needs {fewest} steps with a score; there are {count}.", count
    )


def left_out(run: RunData) -> str:
    """How many steps and responses were left out of training, and why, from their events; empty without any."""
    skips = [event for event in run.step_events if event.kind == "skip" and event.text.startswith(("This update", *"123456789"))]
    if not skips:
        return ""
    skipped = {event.step for event in skips if event.text.startswith("This update")}
    partly = {event.step for event in skips} - skipped
    cause = _(" or ").join(_(why) for why in sorted({_why_left_out(event.text) for event in skips}))
    counts = {
        "total": len(run.steps),
        "skipped": len(skipped),
        "partly": len(partly),
        "responses": len(skipped) * run.batch,
        "cause": cause,
    }
    if skipped and partly:
        words = _(
            "Left out: the updates of {skipped} of {total} steps, with {responses:,} responses and minibatches of {partly} "
            "of {total} steps, "
            "as {cause}"
        )
    elif skipped:
        words = _("Left out: the updates of {skipped} of {total} steps, with {responses:,} responses, as {cause}")
    else:
        words = _("Left out: minibatches of {partly} of {total} steps, as {cause}")
    return words.format(**counts)


def _why_left_out(text: str) -> str:
    """The kind of problem that an event of a skip tells. The engine names the problem first, and may quote a prompt after it."""
    what, _colon, problem = text.partition(" left out: ")
    if problem.startswith("the mean ratio"):
        return N_("the mean ratio exceeded its threshold (ppo.ratio_threshold)")
    # A minibatch has no other problem than these two; a whole update may lack its rewards.
    if "not finite" in problem or not what.startswith("This update"):
        return N_("a number was not finite")
    return N_("a reward was missing")


def _change(run: RunData, series: judges.ScoreSeries) -> str:
    """From the first step to the mean of the last tenth, as the pages say it everywhere; the tests take more steps where one is few."""
    first, last = ends_of(series.values[run.steps > series.changed_after])
    if not np.isfinite(first + last):
        return _("not known")
    return f"{score_text(first)} → {score_text(last)}"


def _sure(score: judges.ScoreSeries, times: float, enough: float) -> str:
    """How sure a rise or a fall is, and by which rule."""
    if not np.isfinite(score.start):
        return _("no score is known")
    if not np.isfinite(times):
        return _("the standard error of the score is not known")
    if score.known.size and np.ptp(score.values[score.known]) <= 1e-9:
        return _("all scores are the same, so there is no chance to compare with")
    words = _(
        "the change is {times} times its standard error, and from {enough:g} times on it is more than chance: of simulated runs that learn "
        "nothing at most 1 in 20 got there"
    )
    if score.by_steps:
        words = _(
            "the change is {times} times its standard error (estimated from how far the means of successive steps lie apart), and from "
            "{enough:g} times on it is more than chance: of simulated runs that learn nothing at most 1 in 20 got there"
        )
    near = abs(times) < FAR_MORE
    return words.format(times=f"{times:.1f}".replace("-", "−") if near else _("more than {many:,}").format(many=FAR_MORE), enough=enough)


def _signs(checked: Checked[RunData]) -> dict[str, str]:
    """The first three alarms that show a collapse: the check's name and the words for it."""
    words = {
        "entropy-collapse": _("the policy has no choice left at any token"),
        "all-cut-off": _("no response ends by itself"),
        "ends-at-once": _("responses end at once"),
        "diversity-loss": _("all prompts get the same response"),
        "repetition": _("responses repeat themselves"),
        "kl-exploding": _("the KL is {kl} nats").format(kl=figure(checked.run.column("objective/kl")[-1])),
        "not-finite": _("its numbers are no longer finite"),
    }
    return {name: words[name] for name in checked.at_newest(list(words), ALARM)[:MOST_SIGNS]}


def _exploit_words(checked: Checked[RunData], change: str, gold: judges.ScoreSeries | None) -> tuple[str, str]:
    if gold is None:
        titles = [CHECKS[name].title for name in checked.at_newest(EXPLOIT_SIGNS)] or [CHECKS["held-out-falls"].title]
        reason = _("The score rose, and nothing else judges this run. Signs of it: {signs}.")
        reason = reason.format(signs=joined_clauses([lowered(_(title)) for title in titles]))
        return _("Exploiting the reward. {change}.").format(change=change), reason
    fall = judges.fall(gold)
    best = int(checked.run.steps[fall.best_at[-1]])
    reason = _("Gold was {best:.2f} around step {step} and is {now:.2f} now, while the score kept rising.")
    reason = reason.format(best=fall.best[-1], step=best, now=fall.now[-1])
    sentence = _("Exploiting the reward: the score rises and the gold score falls. {change}.").format(change=change)
    return sentence, reason.replace(" -", " −")


def _notes(checked: Checked[RunData], kind: VerdictKind) -> list[str]:
    run, now = checked.run, checked.lasting
    phrases = [] if kind == "collapsed" else [finding for finding in now if finding.check == "one-phrase"]
    score = judges.score(run)
    paid = judges.risen(score, needed(run))[-1]
    expected = None if kind not in OPEN or run.closed else outlook(run, score)
    notes = [more_steps(expected)] if expected and kind in (*UNSURE, "rising") else []
    hindrance = held_back(run, score, now) if kind in (*UNSURE, "rising", "nothing learned") else None
    notes += [str(hindrance)] if hindrance else []
    fooled = _("{finding}; the judge may be fooled by it.")
    notes += [fooled.format(finding=finding.title) if paid else as_sentence(finding.title) for finding in phrases]
    named = {"one-phrase", hindrance.check if hindrance else ""}  # and what the sentence or the reason has
    if kind in ("collapsed", "exploiting the reward", "nothing learned"):
        notes += risky_settings([finding for finding in checked.findings if finding.check not in named])
    if kind in ("nothing learned", "too early", "not known"):
        notes += [as_sentence(finding.title) for finding in now if finding.check in STILL_SIGNS and hindrance is None]
    if kind == "collapsed":
        named |= _signs(checked).keys()
    elif kind == "exploiting the reward" and judges.gold(run) is None:
        named |= set(checked.at_newest(EXPLOIT_SIGNS))
    more = {*EXPLOIT_SIGNS, "length-drift", "entropy-collapse"} - named
    signs = [finding for finding in now if finding.check in more]
    notes += [
        as_sentence(finding.title) for finding in signs if finding.level != "note" or finding.check in ("length-drift", "length-reward")
    ]
    gold = judges.gold(run)
    if gold is None and kind in ("improving", "improved"):
        notes.append(_("No gold score: nothing independent of the reward judges this run."))
    if gold is not None and kind in ("improving", "improved") and sureness(gold)[0][-1] <= LIKELY_RISE:
        notes.append(_("The gold score did not rise with it: the reward may be something else than what was meant."))
    if kind in RISES and run.settings_known and not run.config.data.shuffle:
        notes.append(_("The prompts are not shuffled: later ones may be easier, so the score may rise although the policy does not."))
    known = run.ended or run.total_steps > 0  # of a run that goes on to no known end, nobody can say what comes until then
    notes += [expectation(expected)] if expected and known and np.isfinite(expected.low) else []
    if kind != "collapsed":
        notes += failure(run)
    told = ("too early", "not known", "cannot tell yet", "improving")
    if run.broke_off and not run.closed and run.state != "failed" and kind not in told:
        notes.append(_("It {ended}, and can go on.").format(ended=run.broke_off))
    lost = left_out(run)
    return [*notes, as_sentence(lost)] if lost and len(judges.score(run).known) >= FEWEST_STEPS else notes


def _changes(checked: Checked[RunData], kind: VerdictKind) -> dict[str, Any]:
    if kind == "collapsed":
        return _mending(checked.lasting)
    hindrance = held_back(checked.run, judges.score(checked.run), checked.lasting) if kind == "nothing learned" else None
    return hindrance.changes if hindrance else {}


def _mending(findings: Sequence[Finding]) -> dict[str, Any]:
    """What the alarms would change: all of those about settings, and the first one about what happened, where it names another."""
    alarms = [finding for finding in findings if finding.level == "alarm" and finding.changes]
    happened = [finding for finding in alarms if not finding.check.startswith(OF_SETTINGS)]
    changes: dict[str, Any] = {}
    for alarm in [*(one for one in alarms if one not in happened), *happened[:1]]:
        changes = alarm.changes | changes
    return changes


def _in_counts(checked: Checked[RunData], kind: VerdictKind) -> Told:
    told = in_counts(checked.run, kind)
    return told if told.sentence else Told(_outcome(checked.run, kind))


def _outcome(run: RunData, kind: VerdictKind) -> str:
    """The outcome of a run that has ended, where no counts of answers can be told; empty where the verdict's own sentence is as plain."""
    score, gold = judges.score(run), judges.gold(run)
    if not run.ended or run.state == "failed" or kind not in ("improved", "improving", "exploiting the reward"):
        return ""
    if gold is None:
        fooled = _("The judge may have been fooled: score {change}. Read the answers.").format(change=_change(run, score))
        return fooled if kind == "exploiting the reward" else ""
    change = _("score {change}, gold {gold}").format(change=_change(run, score), gold=_change(run, gold))
    if kind == "exploiting the reward":
        return _("The judge was fooled: {change}.").format(change=change)
    return _("It worked: {change}.").format(change=change) if sureness(gold)[0][-1] > LIKELY_RISE else ""


VERDICT = VerdictRules(
    KINDS, _kinds, _words, _notes, _in_counts, _changes, when_over={"improving": "improved", "cannot tell yet": "cannot be told"}
)
