"""What is written: how it ends, how long it is, whether it repeats itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from rlhf_studio.analysis.doctor import bounds, judges, phrases
from rlhf_studio.analysis.doctor.check import Course, check, metric_evidence
from rlhf_studio.analysis.doctor.remedies import calmer, tighter
from rlhf_studio.analysis.doctor.run_data import ENOUGH, RunData
from rlhf_studio.analysis.doctor.series import ALARM, NOTE, WARNING, at_start, carried, levels, streak, window_mean
from rlhf_studio.analysis.doctor.texts import FEWEST_RESPONSES
from rlhf_studio.analysis.learned.responses import FEWEST_OF_A_SIDE
from rlhf_studio.analysis.records import Evidence
from rlhf_studio.language import N_, _
from rlhf_studio.runs.records import RolloutRecord
from rlhf_studio.units import percent

FAMILY = "Text"

ALL = 0.95  # share of the responses that counts as all of them
ENDED_BEFORE = 0.5  # most that were cut off at the start of a run whose policy could end its answers
HALF_CUT, FEW_CUT, CUT_RISING_STEPS = 0.5, 0.2, 5
END_STEPS = 3
MANY_CUT = 0.3  # share cut off at the start, so that "all end by themselves" is news

AT_ONCE_TOKENS, AT_ONCE_SHARE = 3.0, 0.25  # tokens, the stop token included; share of the length at the start

DRIFT_STEPS = 5
DRIFT_SURE = 4.0  # standard errors: the newest window is compared with the start at every step
DRIFT_NOTED, DRIFT_FAR = 1.4, 2.0  # times longer or shorter; the recipes drift by up to 1.15

# Share of 4-grams that a response has had before ("seq-rep-4"): people 0.6 %, greedy GPT-2 44 % (Welleck et al. 2019, arXiv:1908.04319).
REPEATS, MOSTLY_REPEATS = 0.2, 0.5
MOST_LOOKS_ALIKE, ALL_ALIKE = 0.5, 0.9  # share of responses that stand in the step more than once, to different prompts
DISTINCT_LOST = 0.5  # share of the start's distinct-2 (Li et al. 2016, arXiv:1510.03055) that is left
FEWEST_WORDS = 3.0  # in a response, on average: shorter answers repeat rightly

LONGER_PAYS = N_("Longer answers earn more, or the stop token became unlikely.")
SILENCE_PAYS = N_("Writing nothing has become the safest answer: the reward punishes text more than silence.")
LENGTH_PAYS = N_(
    "Length pays: the reward favours longer or shorter answers whatever they say, or the KL, which adds "
    "up over tokens, makes short ones cheap."
)
PAYS_AGAIN = N_("A word or phrase that the reward likes pays again each time that it is written.")
ALWAYS_PAYS = N_("The policy found one answer that always pays and gives it to everything.")
PHRASE_PAYS = N_("The reward likes this phrase more than what it should judge, so the policy adds it everywhere.")
UNPAID = N_("Where the score did not rise with it, the policy is damaged: its steps were too large.")
DAMAGED = N_(
    "The score did not rise with it, so the reward does not pay for this: the policy is damaged, as after steps that were too large."
)
UNCERTAIN = N_(
    "Whether the score rose with it is not certain: the reward may pay for this, or the policy may have changed without any reward for it."
)
LOOK_AGAIN = N_("Read the responses, and look again when more steps tell whether the score rises.")
OTHER_END = N_("The model closes its answers with a token at which this run does not stop (generation.stop_token).")
END_THERE = N_("Let answers end where the model ends them: stop token eos.")
SHARES = {
    "ends": N_("ends {after} of {of} responses"),
    "opens": N_("opens {after} of {of} responses"),
    "is in": N_("is in {after} of {of} responses"),
}
MEND = N_("Go back to before it began, and go on with a lower learning rate.")


def _of_reward(run: RunData, course: Course, cause: str) -> Course:
    """The course, with the cause that fits the score at the last step with a level.

    ``cause`` where the score had surely risen. Where it had not risen, the policy is damaged, and a lower learning rate is tried. Where
    that is uncertain (a rise that matters, but perhaps by chance), or there is no score, nothing is tried.
    """
    indices, score = np.flatnonzero(course.levels), judges.score(run)
    if not len(indices) or judges.risen(score)[indices[-1]]:
        return replace(course, cause=cause)
    last = indices[-1]
    judged = np.isfinite(judges.sureness(score)[0])[last]
    if not judged or judges.risen(score, judges.LIKELY_RISE)[last] or judges.rise(score)[0][last] > bounds.MATTERS * score.spread:
        return replace(course, cause=UNCERTAIN, advice=LOOK_AGAIN, changes={})
    return replace(course, cause=DAMAGED, advice=MEND, changes=calmer(run))


@check(
    "all-cut-off",
    FAMILY,
    title="No response ends by itself",
    rule=f"at least {percent(ALL)} cut off, {END_STEPS} steps in a row; alarm: when at most {percent(ENDED_BEFORE)} were cut off at "
    "the start",
    cause="The policy writes no stop token before the length limit: it forgot how to end, or the limit is shorter than its answers.",
    advice="If it was so from the beginning, allow more tokens. If not, the policy is damaged: go back, with a lower learning rate or a "
    "penalty for missing ends.",
)
def all_cut_off(run: RunData) -> Course | None:
    if run.config.generation.stop_token == "none":
        return None
    ends = run.event_data("ends")
    never_seen = ends.get("end") is not None and ends["end"] not in ends.get("ids", [])
    cut = run.column("tokens/cut_off")
    steps = END_STEPS if never_seen else max(END_STEPS, run.steps_of(ENOUGH))
    start = at_start(cut, run.steps_of(ENOUGH))
    all_cut, lost = streak(cut >= ALL, steps), start <= ENDED_BEFORE
    none, penalised = np.zeros(len(cut), dtype=bool), run.config.reward.missing_eos_penalty > 0
    step_levels = levels(note=all_cut, warning=all_cut if penalised else none, alarm=all_cut if lost else none)
    evidence = metric_evidence(run, "tokens/cut_off", _("share cut off {{}}; {start:.2f} at the start").format(start=start))
    if never_seen:
        changes: dict[str, Any] = {"generation.stop_token": "eos"}
        return Course(step_levels, evidence, cause=OTHER_END, advice=END_THERE, changes=changes, length=steps, from_start=True)
    longer = min(8192, 2 * run.config.generation.response_length)
    changes = calmer(run) if lost else {"generation.response_length": longer}
    return Course(step_levels, evidence, changes=changes, length=steps, from_start=not lost)


@check(
    "cut-off-rising",
    FAMILY,
    title="More and more responses do not end",
    rule=f"at least {percent(HALF_CUT)} cut off, {CUT_RISING_STEPS} steps in a row, after at most {percent(FEW_CUT)} at the start",
    cause=f"{LONGER_PAYS} {UNPAID}",
    advice="A penalty for responses without an end makes ending worth it again.",
)
def cut_off_rising(run: RunData) -> Course | None:
    cut = run.column("tokens/cut_off")
    start = at_start(cut, run.steps_of(ENOUGH))
    if run.config.generation.stop_token == "none" or not start <= FEW_CUT:
        return None
    evidence = metric_evidence(run, "tokens/cut_off", _("share cut off {{}}; {start:.2f} at the start").format(start=start))
    rising = streak(cut >= HALF_CUT, max(CUT_RISING_STEPS, run.steps_of(ENOUGH)))
    course = Course(levels(warning=rising), evidence, changes={"reward.missing_eos_penalty": 1.0}, length=CUT_RISING_STEPS)
    return _of_reward(run, course, LONGER_PAYS)


@check(
    "all-end",
    FAMILY,
    title="Every response now ends by itself",
    rule=f"none cut off, 5 steps in a row, after at least {percent(MANY_CUT)} at the start",
    cause="The policy learned to finish in time: the reward, or a penalty for missing ends, asks for it.",
    advice="Usually good. Read some endings: a short stock phrase may do the ending.",
)
def all_end(run: RunData) -> Course | None:
    cut = run.column("tokens/cut_off")
    start = at_start(cut, run.steps_of(ENOUGH))
    if not start >= MANY_CUT:
        return None
    none = streak(cut == 0, max(5, run.steps_of(ENOUGH)))
    return Course(
        levels(note=none), metric_evidence(run, "tokens/cut_off", _("share cut off {{}}; {start:.2f} at the start").format(start=start))
    )


@check(
    "ends-at-once",
    FAMILY,
    title="Responses end almost at once",
    rule=f"mean length below {AT_ONCE_TOKENS:g} tokens and below {percent(AT_ONCE_SHARE)} of the start, {END_STEPS} steps in a row",
    cause=f"{SILENCE_PAYS} {UNPAID}",
    advice="Look at what the reward gives for an empty answer. A stronger KL coefficient keeps the policy writing.",
)
def ends_at_once(run: RunData) -> Course | None:
    length = run.column("tokens/response_length")
    start = at_start(length, run.steps_of(ENOUGH))
    short = streak((length < AT_ONCE_TOKENS) & (length < AT_ONCE_SHARE * start), max(END_STEPS, run.steps_of(ENOUGH)))
    evidence = metric_evidence(
        run, "tokens/response_length", _("{{}} {unit}; {start:.1f} at the start").format(unit=_(run.origin.unit), start=start)
    )
    return _of_reward(run, Course(levels(alarm=short), evidence, changes=tighter(run), length=END_STEPS), SILENCE_PAYS)


@check(
    "length-drift",
    FAMILY,
    title="The responses have changed their length",
    rule=f"mean length of {DRIFT_STEPS} steps more than {DRIFT_NOTED:g} times (warning: {DRIFT_FAR:g} times) "
    f"the start's, or less than that part of it, by more than {DRIFT_SURE:g} standard errors",
    cause=LENGTH_PAYS,
    advice="Compare score and length of the responses. A length component or penalty in the reward holds it.",
)
def length_drift(run: RunData) -> Course | None:
    length = run.column("tokens/response_length")
    first, window = max(2, run.steps_of(ENOUGH)), max(DRIFT_STEPS, run.steps_of(ENOUGH))
    start, mean = at_start(length, first), window_mean(length, window)
    with_length = np.flatnonzero(np.isfinite(length))
    error = np.zeros(len(length))  # from the steps before the newest window, whose own change is no noise
    later = with_length[window:]
    error[later] = judges.between_steps(length[with_length], exact=False)[: len(later)] * np.sqrt(1 / first + 1 / window)
    times = np.where(np.abs(mean - start) > DRIFT_SURE * error, np.maximum(mean / start, start / mean), 1.0)
    on_purpose = any(component.kind == "length" for component in run.config.reward.components) or run.config.reward.length_penalty > 0
    far = streak(times > DRIFT_FAR, 2) & (not on_purpose)
    evidence = metric_evidence(
        run, "tokens/response_length", _("{{}} {unit}; {start:.1f} at the start").format(unit=_(run.origin.unit), start=start)
    )
    step_levels = levels(note=streak(times > DRIFT_NOTED, 2), warning=far)
    course = Course(step_levels, evidence, changes={} if on_purpose else tighter(run), length=DRIFT_STEPS)
    return course if on_purpose else _of_reward(run, course, LENGTH_PAYS)


def _looked(run: RunData, judge: Callable[[list[RolloutRecord]], int]) -> np.ndarray:
    """Levels (S,): ``judge`` gives the level of a step from its recorded responses."""
    return carried(run.steps, {step: judge(rows) for step, rows in run.looks})


@check(
    "repetition",
    FAMILY,
    title="Responses repeat themselves",
    rule=f"share of a response's 4-grams that it had before, or of its words that follow themselves, on average above {percent(REPEATS)} "
    f"(alarm: {percent(MOSTLY_REPEATS)}) and {percent(REPEATS)} more than at the start",
    cause=f"{PAYS_AGAIN} {UNPAID}",
    advice="Raise the KL coefficient; a repetition component in the reward makes repeats cost something. Where the score did not rise, "
    "lower the learning rate.",
)
def repetition(run: RunData) -> Course | None:
    looks = run.looks
    if not looks:
        return None
    start = phrases.repetition(looks[0][1])

    def judge(rows: list[RolloutRecord]) -> int:
        share = phrases.repetition(rows)
        if share <= REPEATS or share <= start + REPEATS:
            return 0
        return ALARM if share > MOSTLY_REPEATS else WARNING

    def evidence(since: int, last: int) -> list[Evidence]:
        examples = []
        for step in _steps(run, since, last):
            rows = run.responses[step]
            worst = max(rows, key=lambda row: phrases.repetition([row]))
            text = _("{rows} repeats on average; most in response {sample}").format(
                rows=percent(phrases.repetition(rows)), sample=worst.sample
            )
            examples.append(Evidence(text, step=step, sample=worst.sample))
        return examples

    return _of_reward(run, Course(_looked(run, judge), evidence, changes=tighter(run)), PAYS_AGAIN)


def _steps(run: RunData, since: int, last: int) -> list[int]:
    """The looked-at steps that stand for these indices: the newest at or before each."""
    looked = [step for step, _ in run.looks]
    chosen = [max((step for step in looked if step <= int(run.steps[at])), default=looked[0]) for at in (since, last)]
    return list(dict.fromkeys(chosen))


@check(
    "diversity-loss",
    FAMILY,
    title="Different prompts get the same response",
    rule=f"more than {percent(MOST_LOOKS_ALIKE)} (alarm: {percent(ALL_ALIKE)}) of a step's responses word for word the same as another "
    "one's, to a "
    f"different prompt; note: fewer than {percent(DISTINCT_LOST)} as many distinct word pairs as at the start",
    cause=f"{ALWAYS_PAYS} {UNPAID}",
    advice="Raise the KL coefficient, lower the learning rate, or reward answers that fit their prompt.",
)
def diversity_loss(run: RunData) -> Course | None:
    looks = [rows for _, rows in run.looks if len(rows) >= FEWEST_RESPONSES]
    if not looks:
        return None
    start, start_alike = phrases.distinct_pairs(looks[0]), phrases.alike(looks[0])

    def judge(rows: list[RolloutRecord]) -> int:
        if len(rows) < FEWEST_RESPONSES or phrases.mean_words(rows) < FEWEST_WORDS:
            return 0
        alike = phrases.alike(rows)
        if alike > MOST_LOOKS_ALIKE and alike > start_alike + 0.25:
            return ALARM if alike > ALL_ALIKE else WARNING
        return NOTE if phrases.distinct_pairs(rows) < DISTINCT_LOST * start else 0

    def evidence(since: int, last: int) -> list[Evidence]:
        def text(rows: list[RolloutRecord]) -> str:
            alike, distinct = percent(phrases.alike(rows)), percent(phrases.distinct_pairs(rows))
            return _("{alike} of the responses are alike; distinct word pairs {distinct}, {start} at the start").format(
                alike=alike, distinct=distinct, start=percent(start)
            )

        return [Evidence(text(run.responses[step]), step=step) for step in _steps(run, since, last)]

    step_levels = _looked(run, judge)
    title = _("The responses have become less varied") if step_levels.max(initial=0) == NOTE else ""
    return _of_reward(run, Course(step_levels, evidence, title=title, changes=tighter(run)), ALWAYS_PAYS)


@check(
    "one-phrase",
    FAMILY,
    title="One phrase is taking over",
    rule=f"a phrase of 2 to {phrases.PHRASE_WORDS[-1]} words (or a word that hardly any response had) in at least "
    f"{percent(phrases.SHARE)} of the responses of the last tenth of the steps, {percent(phrases.RISE)} more than in the first tenth, by "
    f"more than {phrases.SURE:g} standard deviations; a tenth is {FEWEST_OF_A_SIDE} steps or more, and of all episodes where they were "
    "kept",
    cause=f"{PHRASE_PAYS} {UNPAID}",
    advice="Read the responses that have it beside those that have not. If the reward is fooled, a stronger KL coefficient slows it down; "
    "a better reward cures it.",
)
def one_phrase(run: RunData) -> Course | None:
    if not run.rising:
        return None
    by_step = {step: NOTE * (phrase is not None and phrase.takes_over) for step, phrase in run.rising.items()}
    looked = sorted(run.rising)

    def evidence(since: int, last: int) -> list[Evidence]:
        rows = []
        for step in dict.fromkeys(max(step for step in looked if step <= int(run.steps[at])) for at in (since, last)):
            phrase = run.rising[step]
            if phrase is not None:
                text = _("“{text}” {phrase}; {before} of {before_of} at the start").format(
                    text=phrase.text, phrase=_share(phrase), before=phrase.before, before_of=phrase.before_of
                )
                rows.append(_where(run, step, phrase, text))
        return rows

    newest = run.rising[looked[-1]]
    title = (
        _("“{text}” is taking over: it {newest}").format(text=newest.text, newest=_share(newest))
        if newest is not None and newest.takes_over
        else ""
    )
    course = Course(carried(run.steps, by_step), evidence, title=title, changes=tighter(run))
    return _of_reward(run, course, PHRASE_PAYS)


def _share(phrase: phrases.Rising) -> str:
    return _(SHARES[phrase.verb]).format(after=phrase.after, of=phrase.after_of)


def _where(run: RunData, step: int, phrase: phrases.Rising, text: str) -> Evidence:
    """A recorded response of the step that has the phrase, and the token where it begins there; the step alone where none has it."""
    rows = run.responses.get(step) or ([] if run.reader is None else run.reader.rollouts(step))
    row = next((row for row in rows if phrase.stands_in(row.response)), None)
    if row is None:
        return Evidence(text, step=step)
    tokens = None if run.reader is None else run.reader.rollout(step, row.sample).tokens
    return Evidence(text, step=step, sample=row.sample, token=None if tokens is None else phrase.token_index_in(tokens.response_pieces))
