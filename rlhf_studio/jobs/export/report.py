"""A run's report: one HTML file that opens without a network and without this program. It holds no script, and its own rules forbid it
to load anything.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlhf_studio import __version__
from rlhf_studio.analysis.doctor.wording import level_word
from rlhf_studio.analysis.records import Evidence, Finding, Learned, NotChecked
from rlhf_studio.config import STAGE_TITLES
from rlhf_studio.config.glossary import GLOSSARY
from rlhf_studio.jobs.export.curves import curves_of
from rlhf_studio.jobs.export.html import Html, join, table, tag
from rlhf_studio.jobs.export.report_style import STYLE
from rlhf_studio.jobs.export.story import Answers, Story, sentence_of
from rlhf_studio.jobs.export.svg import curve_svg
from rlhf_studio.jobs.export.text import number
from rlhf_studio.language import TAGS, _, bracketed, clauses, labelled, language, told
from rlhf_studio.runs.records import WatchRecord

RULES = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'"
SECTION_TITLES = {"lora": "LoRA", "ppo": "PPO"}
SHADES = 4
_SHADES_FROM = 1e-3  # nats: smaller differences are rounding


def report(story: Story) -> str:
    """The whole file as text."""
    parts = [
        _head(story),
        _verdict(story),
        _section(_("How it began and how it ended"), _summary(story)),
        _section(_("Curves"), _curves(story)),
        _section(_("What it learned"), _learned(story.learned)) if story.config.stage == "ppo" else None,
        _section(_("The same prompts, before and after"), _answers(story)) if story.answers else None,
        _section(_("Settings"), _settings(story)),
        _section(_("Changed while it ran"), _changes(story)) if story.changes else None,
        _section(_("Diary"), _events(story)),
        tag("footer", _environment(story)),
    ]
    meta = [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=RULES),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", name="color-scheme", content="light dark"),
    ]
    head = tag("head", meta, tag("title", _("{name} – run report").format(name=story.name)), tag("style", Html(STYLE)))
    return "<!doctype html>\n" + tag("html", head, tag("body", tag("main", parts)), lang=TAGS[language()]) + "\n"


def _section(title: str, *children: Any) -> Html:
    return tag("section", tag("h2", title), *children)


def _head(story: Story) -> Html:
    status = story.status
    facts = [
        (_("{state}, step {step} of {total}") if status.total_steps else _("{state}, step {step}")).format(
            state=_(status.state), step=status.step, total=status.total_steps
        ),
        _("policy {value}").format(value=story.settings["model"][0].value)
        if story.origin.knows("model.policy") and story.settings.get("model")
        else "",
        _("recipe {recipe}").format(recipe=status.recipe) if status.recipe else "",
        "" if _is_of_others(story) else story.origin.tell(_),
        _made_of(story) if story.origin.parent else "",
    ]
    return tag(
        "header",
        tag(
            "p",
            _("Run {told}").format(told=story.origin.tell(_))
            if _is_of_others(story)
            else _("{stage_titles} run").format(stage_titles=_(STAGE_TITLES[story.config.stage])),
            class_="kind",
        ),
        tag("h1", story.name),
        tag("p", " \u00b7 ".join(filter(None, facts))),
    )


def _made_of(story: Story) -> str:
    """From which run it was made, and from which of its steps."""
    origin = story.origin
    if origin.parent_step is None:
        return _("varied from {parent}").format(parent=origin.parent)
    return _("forked from {parent}, step {step}").format(parent=origin.parent, step=origin.parent_step)


def _is_of_others(story: Story) -> bool:
    """Whether another trainer trains the run, and nothing says that it does so with PPO."""
    return story.config.stage == "ppo" and not story.origin.settings_known


def _verdict(story: Story) -> Html:
    verdict, findings = story.diagnosis.verdict, story.diagnosis.findings
    return tag(
        "section",
        tag("h2", _("Verdict")),
        tag("p", tag("span", _(verdict.kind), class_="badge"), " ", verdict.in_counts or sentence_of(verdict), class_="sentence"),
        tag("p", verdict.sentence, class_="quiet") if verdict.in_counts else None,
        tag("p", verdict.reason, class_="quiet"),
        tag("ul", [tag("li", note) for note in verdict.notes]) if verdict.notes else None,
        _not_checked(verdict.not_checked),
        tag("h3", _("Findings ({findings})").format(findings=len(findings))),
        [_finding(finding) for finding in findings] or tag("p", _("No check found anything."), class_="quiet"),
        class_="verdict",
        data_kind=verdict.kind,
    )


def _not_checked(groups: Sequence[NotChecked]) -> Html | None:
    """What could not be looked at, folded."""
    count = sum(len(group.titles) for group in groups)
    parts = [[tag("p", group.cause, class_="quiet"), tag("ul", [tag("li", title) for title in group.titles])] for group in groups]
    return tag("details", tag("summary", _("Not checked ({count})").format(count=count)), parts) if count else None


def _finding(finding: Finding) -> Html:
    head = tag("summary", tag("span", level_word(finding.level), class_="level"), " ", finding.title, tag("span", f" {finding.when}",
                                                                                          class_="quiet"))  # fmt: skip
    facts = [(_("Rule"), finding.threshold), (_("Seen"), [tag("div", _evidence_text(item)) for item in finding.evidence])]
    facts += [(_("Cause"), finding.cause), (_("What to do"), finding.advice)]
    if finding.changes:
        facts.append((_("To try"), clauses(f"{name} = {value}" for name, value in finding.changes.items())))
    body = tag("dl", [(tag("dt", name), tag("dd", value)) for name, value in facts if value])
    return tag("details", head, body, data_level=finding.level, open=finding.level != "note")


def _evidence_text(evidence: Evidence) -> str:
    position = {_("step {n}"): evidence.step, _("response {n}"): evidence.sample, _("token {n}"): evidence.token}
    where = clauses(name.format(n=value) for name, value in position.items() if value is not None)
    return evidence.text + bracketed(where) if where else evidence.text


def _summary(story: Story) -> Html:
    if not story.summary:
        return tag("p", _("No steps were recorded."), class_="quiet")
    rows: list[list[Any]] = [
        [join(title, tag("span", meaning, class_="meaning")), number(first), number(last), unit]
        for title, unit, meaning, first, last in story.summary
    ]
    nats = GLOSSARY["nats"]
    in_nats = any("nat" in unit.split() or "nats" in unit.split() for _, unit, *_ in story.summary)
    return join(
        tag("p", story.compared, class_="quiet"),
        table(["", _("First"), _("Last"), _("Unit")], rows, "figures"),
        tag("p", labelled(_(nats.title), _(nats.meaning)), class_="quiet") if in_nats else None,
    )


def _curves(story: Story) -> Html:
    curves = curves_of(story.series, story.origin.unit)
    if not curves:
        return tag("p", _("Nothing to draw: no steps were recorded."), class_="quiet")
    marks = [(change.step, labelled(change.setting, f"{change.old} \u2192 {change.new}")) for change in story.changes]
    explained = {title for title, *_ in story.summary}
    told_here = [curve.name for curve in curves if curve.title not in explained]
    meanings = {name: tag("span", _(GLOSSARY[name].meaning), class_="meaning") for name in told_here if name in GLOSSARY}
    figures = [
        tag("figure", tag("figcaption", tag("b", curve.title), f" {curve.unit}", meanings.get(curve.name)), curve_svg(curve, marks))
        for curve in curves
    ]
    return tag("div", figures, class_="curves")


def _learned(learned: Learned) -> Html:
    parts: list[Any] = []
    before, after = learned.before_steps, learned.after_steps
    parts.append(
        tag(
            "p",
            _("Steps {before} to {before2} compared with steps {after} to {after2}.").format(
                before=before[0], before2=before[1], after=after[0], after2=after[1]
            ),
            class_="quiet",
        )
    )
    if learned.phrases:
        phrase_rows: list[list[Any]] = [
            [tag("q", phrase.text), phrase.place, _of(phrase.before, phrase.before_of), _of(phrase.after, phrase.after_of),
             number(phrase.log_odds)] for phrase in learned.phrases[:20]
        ]  # fmt: skip
        parts.append(table([_("Phrase"), _("Where"), _("Before"), _("After"), _("Log-odds")], phrase_rows))
    else:
        unsure = _("No phrase has clearly become more or less common.")
        parts.append(tag("p", unsure if learned.enough else _("Too few steps to tell which phrases changed.")))
    if learned.traits:
        rows: list[list[Any]] = [[trait.title, number(trait.before), number(trait.after), trait.unit] for trait in learned.traits]
        parts.append(table(["", _("Before"), _("After"), _("Unit")], rows, "figures"))
    for title, shifts in ((_("Tokens that became likelier"), learned.rose), (_("Tokens that became less likely"), learned.fell)):
        if shifts:
            shift_rows: list[list[Any]] = [
                [join(tag("span", f"\u2026{shift.context}", class_="quiet"), tag("b", shift.token)), number(100 * shift.before) + " %",
                 number(100 * shift.after) + " %"] for shift in shifts[:10]
            ]  # fmt: skip
            parts += [tag("h3", title), table([_("Token"), _("At the start"), _("Now")], shift_rows, "figures")]
    if learned.gaps:
        gap_rows: list[list[Any]] = [
            [tag("q", gap.response), f"{gap.first} {number(gap.first_value)}", f"{gap.second} {number(gap.second_value)}", gap.step]
            for gap in learned.gaps[:5]
        ]
        parts += [tag("h3", _("Where two judges disagree most")), table([_("Response"), "", "", _("Step")], gap_rows)]
    return join(*parts)


def _of(part: int, all_of_them: int) -> str:
    return _("{part} of {all}").format(part=part, all=all_of_them)


def _answers(story: Story) -> Html:
    if not story.answers:
        return tag("p", _("This run watched no prompts."), class_="quiet")
    scale = _scale(story.answers)
    legend = tag(
        "p", _("Colour: "), tag("span", _(" less likely than at the start "), class_="b3"), " ",
        tag("span", _(" more likely "), class_="a3"), _(" (full colour from {scale} nats).").format(scale=number(scale)), class_="quiet",
    )  # fmt: skip
    pairs = [
        tag(
            "article",
            tag("h3", answers.prompt),
            tag("div", [_answer(*answer, scale) for answer in (answers.before, answers.after)], class_="pair"),
        )
        for answers in story.answers
    ]
    return join(legend if scale else None, *pairs)


def _differences(record: WatchRecord) -> np.ndarray | None:
    """Log-probability now less that of the starting policy, shape (T,); None where it was not recorded."""
    if not record.pieces or not {"logprobs", "ref_logprobs"} <= record.arrays.keys():
        return None
    return record.arrays["logprobs"].astype(np.float64) - record.arrays["ref_logprobs"].astype(np.float64)


def _scale(answers: list[Answers]) -> float:
    """The difference that gets the full colour: one for the whole report, so that colours can be compared. 0 without differences."""
    records = [record for pair in answers for _, record in (pair.before, pair.after)]
    differences = [known for record in records if (known := _differences(record)) is not None]
    sizes = np.abs(np.concatenate(differences)) if differences else np.zeros(0)
    sizes = sizes[np.isfinite(sizes) & (sizes > _SHADES_FROM)]
    return float(np.quantile(sizes, 0.95)) if len(sizes) else 0.0


def _answer(step: int, record: WatchRecord, scale: float) -> Html:
    differences = _differences(record)
    body: Any = record.response
    if differences is not None and len(differences) == len(record.pieces):
        body = [_token(piece, float(value), scale) for piece, value in zip(record.pieces, differences, strict=True)]
    facts = {_("score"): record.score, _("gold"): record.gold, "KL": record.kl}
    figures = clauses(f"{name} {number(value)}" for name, value in facts.items() if value is not None)
    who = _("starting policy") if step == 0 else _("step {step}").format(step=step)
    return tag("div", tag("p", body, class_="answer"), tag("p", labelled(who, figures), class_="quiet"))


def _token(piece: str, difference: float, scale: float) -> Html:
    shade = 0
    if np.isfinite(difference) and abs(difference) > _SHADES_FROM and scale:
        shade = min(SHADES, int(np.ceil(SHADES * abs(difference) / scale)))
    name = f"{'a' if difference > 0 else 'b'}{shade}" if shade else None
    return tag("span", piece, class_=name, title=_("{value} nats").format(value=number(difference)))


def _settings(story: Story) -> Html:
    parts = []
    if not story.origin.settings_known:
        other = _("other settings") if story.settings else _("settings")
        parts.append(
            tag("p", _("The run was {told}. Its {other} are not known.").format(told=story.origin.tell(_), other=other), class_="quiet")
        )
    for section, settings in story.settings.items():
        rows = [
            tag(
                "tr",
                tag("th", _(setting.title), scope="row"),
                tag("td", tag("code", setting.name)),
                tag("td", setting.value),
                class_=setting.changed and "changed",
            )
            for setting in settings
        ]
        changed = sum(setting.changed for setting in settings)
        title = _(SECTION_TITLES.get(section, section.capitalize()))
        head = tag(
            "summary",
            title,
            tag("span", _(" {changed} changed from the defaults").format(changed=changed), class_="quiet") if changed else None,
        )
        parts.append(tag("details", head, tag("div", tag("table", tag("tbody", rows)), class_="scroll"), open=section == "ppo"))
    return join(*parts)


def _changes(story: Story) -> Html:
    rows: list[list[Any]] = [[change.step, tag("code", change.setting), change.old, change.new] for change in story.changes]
    return table([_("From step"), _("Setting"), _("Before"), _("After")], rows)


def _events(story: Story) -> Html:
    if not story.events:
        return tag("p", _("The diary is empty."), class_="quiet")
    rows: list[list[Any]] = [
        [
            time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(event.time)),
            event.step,
            _(event.level),
            told(event.text),
        ]
        for event in story.events
    ]
    head = tag("summary", _("The last {rows} lines").format(rows=len(rows)) if len(rows) > 1 else _("One line"))
    return tag("details", head, table([_("Time (UTC)"), _("Step"), "", ""], rows, "diary"))


def _environment(story: Story) -> Html:
    run = _("Run {run_id}, made by RLHF Studio {program}, computed on {value}.").format(
        run_id=story.status.run_id, program=story.program, value=told(story.status.device) or _("an unknown device")
    )
    made = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return tag(
        "p",
        _("{run} Report written by RLHF Studio {version} on {made}, up to step {step}.").format(
            run=run, version=__version__, made=made, step=story.status.step
        ),
    )
