"""The report as a table: one row for each policy, the same columns on the page, in the terminal, in CSV and in Markdown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rlhf_studio.analysis.evaluation.answers import GOLD, JUDGE, PART, SCORE
from rlhf_studio.analysis.evaluation.intervals import NOTHING, Interval
from rlhf_studio.analysis.evaluation.report import PolicyReport, Report
from rlhf_studio.language import _, pgettext

Cell = Interval | float | None

TITLES = {SCORE: "Score", GOLD: "Gold", JUDGE: "Judge"}


@dataclass(frozen=True)
class Column:
    """A column of numbers.

    Attributes:
        key: stable name, for files.
        title: what people read.
        meaning: one sentence.
        percent: whether it is a share.
        digits: behind the point.
    """

    key: str
    title: str
    meaning: str
    percent: bool = False
    digits: int = 2


@dataclass(frozen=True)
class ReportTable:
    """``rows`` has for each policy its name and a cell for each column."""

    columns: list[Column]
    rows: list[tuple[str, list[Cell]]]


def title_of(measure: str) -> str:
    """What people call a measure."""
    return _(TITLES[measure]) if measure in TITLES else measure.removeprefix(PART)


def table_of(report: Report) -> ReportTable:
    """All columns in which at least one policy has a number."""
    made = [*_measures(report), *_texts(), *_against(report)]
    rows = [(policy.name, [cell(policy) for _, cell in made]) for policy in report.policies]
    used = [index for index in range(len(made)) if any(_is_known(cells[index]) for _, cells in rows)]
    return ReportTable([made[index][0] for index in used], [(name, [cells[index] for index in used]) for name, cells in rows])


AGREEMENTS = {"own": "within", "first": "against"}

_Made = list[tuple[Column, Callable[[PolicyReport], Cell]]]


def _measures(report: Report) -> _Made:
    meanings = {
        SCORE: _("Mean weighted sum of the reward's components."),
        GOLD: _("Mean gold reward, which no policy ever sees."),
        JUDGE: _("Mean score of a reward model that was not used in training."),
    }
    made: _Made = [
        (
            Column(measure, title_of(measure), meanings.get(measure, _("Mean of this component of the score, times its weight."))),
            lambda policy, measure=measure: policy.measures[measure],  # type: ignore[misc]
        )
        for measure in report.measures
    ]
    apart = _("How far an ensemble's models lie apart over an answer (standard deviation): large on texts unlike those they learned from.")
    made.append((Column("disagreement", _("Disagreement"), apart), lambda policy: policy.disagreement))
    made.append((Column("kl", "KL", _("Mean KL of an answer from the reference, in nats.")), lambda policy: policy.kl))
    made.append((Column("length", _("Length"), _("Mean tokens of an answer."), digits=1), lambda policy: policy.length))
    made.append((Column("ended", _("Ended"), _("Share of the answers that ended by themselves."), True, 0), lambda policy: policy.stopped))
    return made


def _texts() -> _Made:
    made: _Made = [
        (
            Column(
                "perplexity",
                _("Perplexity"),
                _("Of all tokens of the answers, under the reference: low is text that it would write too."),
            ),
            lambda policy: policy.perplexity,
        ),
        (
            Column("text_perplexity", _("Text perplexity"), _("Of the held-out text under the policy: higher than before is forgetting.")),
            lambda policy: policy.text_perplexity,
        ),
    ]
    made += [
        (
            Column(
                f"distinct_{n}",
                f"Distinct-{n}",
                _("Different {what}, as a share of all: low is always the same.").format(what=what),
                digits=3,
            ),
            lambda policy, n=n: policy.distinct[n - 1],  # type: ignore[misc]
        )
        for n, what in ((1, _("words")), (2, _("sequences of 2 words")), (3, _("sequences of 3 words")))
    ]
    repeated = _("Share of the phrases of four words that stood in the same answer before.")
    made.append((Column("repetition", _("Repetition"), repeated, True, 1), lambda policy: policy.repetition))
    return made


def _against(report: Report) -> _Made:
    made: _Made = []
    for measure in dict.fromkeys([report.decides, *report.measures]):
        title = title_of(measure)
        win = _("How often its answer is better than that of {first} by {by}; a tie counts half.").format(
            first=report.first, by=title.lower()
        )
        made.append(
            (
                Column(f"win_rate/{measure}", _("Win rate ({by})").format(by=title.lower()), win, True, 0),
                lambda policy, measure=measure: policy.win_rates[measure].rate if policy.win_rates else NOTHING,  # type: ignore[misc]
            )
        )
        gain = _("{title} less that of {first}, paired by prompt.").format(title=title, first=report.first)
        made.append(
            (
                Column(f"difference/{measure}", _("{title} gained").format(title=title), gain),
                lambda policy, measure=measure: policy.differences.get(measure, NOTHING),  # type: ignore[misc]
            )
        )
    for measure in report.measures:
        if measure == GOLD or GOLD not in report.measures:
            continue
        title = title_of(measure)
        for key, called, where in (
            ("own", pgettext("answers", "own"), _("of its own answers")),
            ("first", pgettext("answers", "first"), _("of its answers and those of {first}").format(first=report.first)),
        ):
            meaning = _("How often {measure} orders two {where} to one prompt as gold does.").format(measure=title.lower(), where=where)
            made.append(
                (
                    Column(
                        f"agreement/{key}/{measure}",
                        _("{title} agrees with gold ({key})").format(title=title, key=called),
                        meaning,
                        True,
                        0,
                    ),
                    lambda policy, measure=measure, key=key: getattr(policy.agreements[measure], AGREEMENTS[key]),  # type: ignore[misc]
                )
            )
    return made


def _is_known(cell: Cell) -> bool:
    return cell.value is not None if isinstance(cell, Interval) else cell is not None
