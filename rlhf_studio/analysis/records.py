"""What the analyses return: frozen records of plain values. ``dataclasses.asdict`` makes of them what pages and ``--json`` show."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from rlhf_studio.language import _

Level = Literal["note", "warning", "alarm"]
"""note: worth knowing, often normal. warning: the run probably does not do what it should. alarm: numbers or policy are spoilt."""

VerdictKind = Literal[
    "too early", "not known", "cannot tell yet", "cannot be told", "rising", "improving", "improved", "exploiting the reward", "collapsed",
    "nothing learned", "learning", "learned", "overfits", "got worse", "diverged", "evaluated",
]  # fmt: skip
"""``too early`` before enough steps are recorded to say anything, ``not known`` where no score is recorded, or nothing that says how sure
it is, so that more steps would not help. Of PPO ``improving`` while the run goes on, ``improved`` when it
is over, and ``rising`` where the score rises, but chance may have done it; ``nothing learned`` only where a rise that matters is excluded,
and ``cannot tell yet``, or ``cannot be told`` when it is over, where it is neither sure nor excluded. A run that was stopped can go on,
so that it is not over.

Of fine-tuning, reward models and DPO in the same way ``learning`` and ``learned``, or ``overfits``, ``got worse``, ``diverged``,
``nothing learned``; of an evaluation, which trains nothing, ``evaluated``.
"""


OF_SETTINGS = "settings-"
"""With this begin the names of the checks of a configuration, which need no step: their ``since`` is 0 for what a run began with."""


@dataclass(frozen=True)
class Evidence:
    """A place where a person can see for themselves. What is None does not narrow the place down.

    Attributes:
        text: what is to be seen there, one short clause with its figure.
        metric: name of the metric whose chart shows it; empty for none.
    """

    text: str
    step: int | None = None
    sample: int | None = None
    token: int | None = None
    metric: str = ""


@dataclass(frozen=True)
class Finding:
    """What one check of the doctor found.

    Attributes:
        check: the check's stable short name, e.g. ``kl-negative``.
        title: what is the matter, a short sentence.
        since: the first step at which the check found it, at this level, from the steps up to then; 0 for before the first step.
        until: the last step at which it was so; None when it is so at the newest step.
        threshold: the rule that was applied, in words and figures.
        cause: where this usually comes from, in plain words.
        advice: what to do about it.
        changes: settings, by dotted name, that a fork would try; empty where no setting helps.
        fork_step: the step that such a fork should go on from at the latest (before the trouble began); None for from the beginning.
    """

    check: str
    level: Level
    title: str
    since: int
    threshold: str
    evidence: list[Evidence]
    cause: str
    advice: str
    changes: dict[str, Any] = field(default_factory=dict)
    fork_step: int | None = None
    until: int | None = None

    @property
    def when(self) -> str:
        """Since when, or until when, in words."""
        if self.until is not None:
            return _("steps {first} to {last}, not since").format(first=max(1, self.since), last=self.until)
        return _("since step {step}").format(step=self.since) if self.since else _("from the beginning")


@dataclass(frozen=True)
class NotChecked:
    """Checks that could not be made of a run, all for one cause; ``titles`` are what they would have said."""

    cause: str
    titles: list[str]

    @property
    def sentence(self) -> str:
        return _("{cause}: {titles}.").format(cause=self.cause, titles=_("; ").join(self.titles))


@dataclass(frozen=True)
class Verdict:
    """What the run came to, in one sentence.

    Attributes:
        sentence: for people; with the figures that matter.
        reason: which figures decided, and the rule.
        notes: short further sentences, e.g. of a phrase that took over.
        since: the step at which the verdict became this one.
        in_counts: the same of a run that has ended, told in answers (:mod:`rlhf_studio.analysis.doctor.in_counts`); empty where
            they would not say it.
        changes: settings, by dotted name, that the next run should try where this one learned nothing or collapsed; empty where none
            stands out.
        not_checked: what could not be looked at, of a run that another program has recorded; it says nothing of the run.
    """

    kind: VerdictKind
    sentence: str
    reason: str
    notes: list[str] = field(default_factory=list)
    since: int = 0
    in_counts: str = ""
    changes: dict[str, Any] = field(default_factory=dict)
    not_checked: list[NotChecked] = field(default_factory=list)


@dataclass(frozen=True)
class Diagnosis:
    """The doctor's whole answer up to ``step``; findings are sorted, the gravest and earliest first.

    ``directions`` has, of the metrics that the page's tiles show, where each goes: 1 and -1 for up and down by more than chance, by the
    verdict's own rules; 0 for no clear change.
    """

    step: int
    verdict: Verdict
    findings: list[Finding]
    directions: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Phrase:
    """A phrase (consecutive tokens) whose frequency changed.

    Attributes:
        text: as people read it.
        place: ``anywhere``, ``opening`` or ``ending``: where in a response it was counted.
        before, after: responses that have it among ``before_of`` and ``after_of`` responses.
        log_odds: log of the odds ratio, after over before, under a prior that pulls rare phrases towards no change.
        z: the same divided by its standard deviation.
        examples: (step, sample) of recorded responses that have it, newest first, at most 3.
    """

    text: str
    place: Literal["anywhere", "opening", "ending"]
    before: int
    before_of: int
    after: int
    after_of: int
    log_odds: float
    z: float
    examples: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True)
class Gap:
    """A recorded response where two judges of it disagree most.

    Attributes:
        step, sample: which response.
        first, second: their names: ``score`` and ``gold``.
        first_value, second_value: what they say.
        response: its text.
    """

    step: int
    sample: int
    first: str
    second: str
    first_value: float
    second_value: float
    response: str


@dataclass(frozen=True)
class TokenShift:
    """A token whose probability at one position of a probe rose or fell.

    Attributes:
        probe, position: which probe, and before which of its tokens.
        context: the text before it, shortened.
        token: its text.
        before, after: its probability under the starting policy and now.
    """

    probe: int
    position: int
    context: str
    token: str
    before: float
    after: float


@dataclass(frozen=True)
class Trait:
    """A property of the responses, before and after: mean length in tokens, share that ended by itself, diversity ...

    ``changed``: whether it changed over the steps by more than chance explains.
    """

    name: str
    title: str
    unit: str
    before: float
    after: float
    changed: bool = False


@dataclass(frozen=True)
class Same:
    """How the policy begins nearly every answer by now, whatever the prompt.

    Attributes:
        text: the first words of these answers, or a whole one that is shorter.
        count, of: so many of the answers of the last steps begin so.
        before, before_of: the same of the first step.
    """

    text: str
    count: int
    of: int
    before: int
    before_of: int


@dataclass(frozen=True)
class Learned:
    """What the policy learned between the first steps and the newest ones.

    Attributes:
        before_steps, after_steps: (first, last) step that each side counts.
        phrases: whose frequency changed more than chance explains, the strongest first; empty when nothing did.
        traits: properties of the responses.
        gaps: the widest gaps between judges, widest first.
        rose, fell: tokens on the probes, the largest change first.
        enough: whether there are steps enough for the test of phrases and traits to find even a change that comes all at once.
        same: how nearly every answer begins now, where they are so much alike.
        judged: how many recorded responses have a score and a gold score; the gaps are of these.
    """

    before_steps: tuple[int, int]
    after_steps: tuple[int, int]
    phrases: list[Phrase]
    traits: list[Trait]
    gaps: list[Gap]
    rose: list[TokenShift]
    fell: list[TokenShift]
    enough: bool = True
    same: Same | None = None
    judged: int = 0
