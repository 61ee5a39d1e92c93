"""Runs side by side: which are seeds of the same settings, what differs, their first and last tenths, their answers."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import numpy as np

from rlhf_studio.analysis.compare.records import ComparedRun, Comparison, RunGroup, SettingRow, WatchedAnswer, WatchedPrompt
from rlhf_studio.analysis.compare.scale import of_one_scale
from rlhf_studio.analysis.compare.verdict import judge
from rlhf_studio.analysis.compare.wording import SEED, SUM, fields_of, telling, title, value_text, what_teaches
from rlhf_studio.analysis.ends import first_and_last, parts_without_score
from rlhf_studio.analysis.series import rounded
from rlhf_studio.config import STAGES, Stage
from rlhf_studio.config.changes import flat
from rlhf_studio.config.metrics.stages import HEADLINES, SUMMARIES
from rlhf_studio.config.metrics.table import METRICS
from rlhf_studio.language import _
from rlhf_studio.runs.lab.fault import noted_fault
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import Origin, RunStatus, SettingChange, WatchRecord

MOST_RUNS = 20
MOST_PARTS = 8
MOST_IN_LABEL = 3
"""Settings that tell runs of the same name apart."""
LABELS = ("name", "recipe", "stage")
"""Parts of the configuration that set nothing."""
_SEED_PART = re.compile(r"[\s,;_(-]*\bseed[\s_=:-]*\d+\)?\s*$", re.IGNORECASE)
_ALL: dict[frozenset[str], dict[str, set[str]]] = {
    frozenset(kind.sections): {section: set(fields_of(kind, section)) for section in kind.sections} for kind in STAGES.values()
}
"""By the names of its sections, what there is to be set in a run of each stage."""


def compare(readers: Sequence[RunReader], names: Sequence[str] = ()) -> Comparison:
    """Compare up to :data:`MOST_RUNS` runs, in the order given. Curves are asked for with :func:`~rlhf_studio.analysis.compare.overlay`.

    Args:
        readers: of the runs.
        names: what people call the runs now; without it, the names that they were started with.

    Raises:
        ValueError: no run, too many runs, or the same run twice.
        StoreError: one of them cannot be read.
    """
    check_number(readers)
    settings = [plain_settings(reader) for reader in readers]
    stages = [reader.config().stage for reader in readers]
    recorded = [set(reader.metric_names()) for reader in readers]
    summary = [*_summary(stages), *_parts(recorded)]
    changed = [reader.changes() for reader in readers]
    group_of_run = group_numbers(settings, [what_changed(reader) for reader in readers])
    statuses = [reader.status() for reader in readers]
    statuses = [replace(status, name=name) for status, name in zip(statuses, names, strict=True)] if names else statuses
    origins = [reader.origin() for reader in readers]
    rows = [*_sums(origins), *differing(settings, {name for origin in origins for name in origin.settings_given})]
    labels = _labels(statuses, rows)
    runs = [
        _compared(reader, status, label, group, plain, own, stage, summary)
        for reader, status, label, group, plain, own, stage in zip(
            readers, statuses, labels, group_of_run, settings, changed, stages, strict=True
        )
    ]
    groups = _groups(labels, [status.name for status in statuses], group_of_run, rows)
    verdict, notes = judge(readers, runs, groups, rows)
    broken = _("{label} is broken on purpose: it has the fault {fault}.")
    notes = [*(broken.format(label=run.label, fault=run.fault) for run in runs if run.fault), *notes]
    metrics = _in_order(set.union(*recorded) if len(set(stages)) == 1 else set.intersection(*recorded))
    return Comparison(runs, groups, rows, metrics, _watched(readers), verdict, notes, of_one_scale(readers, recorded, metrics))


def _sums(origins: Sequence[Origin]) -> list[SettingRow]:
    """The weights that people gave to the rewards of logs, as a setting; none where nobody gave any, or all the same."""
    row = SettingRow(SUM, [origin.reward or None for origin in origins], [bool(origin.reward) for origin in origins])
    return [row] if any(row.known) and (row.differs() or not all(row.known)) else []


def _summary(stages: Sequence[Stage]) -> list[str]:
    """The metrics by which runs of these stages are summed up."""
    names = [
        name for stage in dict.fromkeys(stages) for name in (*SUMMARIES[stage], *(HEADLINES[stage].names if stage in HEADLINES else ()))
    ]
    return list(dict.fromkeys(names))


def _parts(recorded: Sequence[Set[str]]) -> list[str]:
    """The parts of the reward of runs without a score that would sum them up, such as a log that does not give the weights."""
    return sorted({name for names in recorded for name in parts_without_score(names)})[:MOST_PARTS]


def check_number(readers: Sequence[RunReader]) -> None:
    """Raises ValueError for what cannot be compared."""
    if not 1 <= len(readers) <= MOST_RUNS:
        raise ValueError(f"Between 1 and {MOST_RUNS} runs can be compared, not {len(readers)}.")
    folders = Counter(reader.run_dir for reader in readers)
    twice = [folder.name for folder, times in folders.items() if times > 1]
    if twice:
        raise ValueError(f"Each run can be compared once, but {twice[0]} was given {folders.most_common(1)[0][1]} times.")


def plain_settings(reader: RunReader) -> dict[str, Any]:
    """A run's configuration as nested mappings, without what sets nothing, and without what is not known of it."""
    settings = {name: value for name, value in reader.config().model_dump(mode="json").items() if name not in LABELS}
    knows = reader.origin().knows
    return {section: {name: value for name, value in own.items() if knows(f"{section}.{name}")} for section, own in settings.items()}


def what_changed(reader: RunReader) -> list[SettingChange]:
    """The changes while a run went on. A fault that was put in on purpose counts as one, so that the run is no seed of a sound run."""
    fault = noted_fault(reader.run_dir)
    return [*reader.changes(), *([SettingChange(1, "fault", "", fault)] if fault else [])]


def group_numbers(settings: Sequence[Mapping[str, Any]], changed: Sequence[Sequence[SettingChange]]) -> list[int]:
    """For each run the number of its group, from 0.

    Runs of one group have the same settings, but for the seed and settings that only say what is stored of a run (checkpoints, watched
    prompts, names of components), and the same changes while they ran. A run whose settings are not all known is a group of its own,
    because the unknown ones may differ.
    """
    known: dict[tuple[int | None, str], int] = {}
    group_of_run = []
    for run, (plain, own) in enumerate(zip(settings, changed, strict=True)):
        alone = None if all_known(plain) else run
        group_of_run.append(known.setdefault((alone, but_for_the_seed(plain, own)), len(known)))
    return group_of_run


def but_for_the_seed(settings: Mapping[str, Any], changed: Sequence[SettingChange]) -> str:
    """A text that is the same for runs whose known settings differ in the seed alone, as :func:`group_numbers` takes them."""
    return json.dumps([what_teaches(settings), [(change.step, change.setting, change.new) for change in changed]], sort_keys=True)


def _groups(labels: Sequence[str], names: Sequence[str], group_of_run: Sequence[int], rows: Sequence[SettingRow]) -> list[RunGroup]:
    """The groups, in the order in which their first runs come. One of several seeds is called by what the names of its runs have in
    common, or by its settings.
    """
    members = [[run for run, number in enumerate(group_of_run) if number == group] for group in range(max(group_of_run) + 1)]
    common = _common_names(members, names)
    group_labels = [_distinct_label(runs[0], common, telling(rows)) or names[runs[0]] for runs in members]
    taken = Counter(group_labels)
    return [RunGroup(label if taken[label] == 1 else labels[runs[0]], runs) for label, runs in zip(group_labels, members, strict=True)]


def _common_names(members: Sequence[Sequence[int]], names: Sequence[str]) -> list[str]:
    """For each run what the names of its group's runs have in common but the seed; empty where these are different names."""
    common = list(names)
    for runs in members:
        stems = {_SEED_PART.sub("", names[run]) for run in runs}
        for run in runs if len(runs) > 1 else ():
            common[run] = min(stems) if len(stems) == 1 else ""
    return common


def differing(settings: Sequence[Mapping[str, Any]], given: Set[str] = frozenset()) -> list[SettingRow]:
    """The settings that are not the same in all runs, in the order of the configuration, the seed last.

    Of runs of different stages, only the settings that all of these stages have. Those ``given`` by a log or by another trainer, which
    names what somebody found important, also where they are not known of all runs.
    """
    leaves = [flat(plain) for plain in settings]
    if len({frozenset(plain) for plain in settings}) > 1:
        leaves = [{name: value for name, value in own.items() if all(_has(plain, name) for plain in settings)} for own in leaves]
    rows = []
    for name in dict.fromkeys(name for own in leaves for name in own):
        known, chosen = [is_known(plain, name) for plain in settings], _setting_of(name) in given
        row = SettingRow(name, [own.get(name) for own in leaves], known)
        if row.differs() or (chosen and not all(known)):
            rows.append(row)
    sections = list(settings[0])
    return sorted(rows, key=lambda row: (row.setting == SEED, sections.index(row.setting.split(".")[0])))


def is_known(settings: Mapping[str, Any], name: str) -> bool:
    """Whether a run's plain settings hold the setting with this dotted name, or the list that it is in."""
    section, _, setting = _setting_of(name).partition(".")
    return setting in settings[section]


def _setting_of(name: str) -> str:
    """The setting that a dotted name is of, or is a part of: ``reward.components`` of ``reward.components.0.weight``."""
    return ".".join(name.split(".")[:2])


def _has(settings: Mapping[str, Any], name: str) -> bool:
    """Whether the stage of a run with these plain settings has a setting with this dotted name."""
    section, _, rest = name.partition(".")
    return rest.split(".")[0] in _ALL[frozenset(settings)].get(section, ())


def all_known(settings: Mapping[str, Any]) -> bool:
    """Whether a run's plain settings are all there."""
    return all(settings[section].keys() >= names for section, names in _ALL[frozenset(settings)].items())


def _labels(statuses: Sequence[RunStatus], rows: Sequence[SettingRow]) -> list[str]:
    """The runs' names. Runs with the same name also get the settings that differ among them, or their ids."""
    names = [status.name for status in statuses]
    seeds = [row for row in rows if row.setting == SEED]
    labels = [_distinct_label(run, names, [*seeds, *telling(rows)]) for run in range(len(names))]
    taken = Counter(labels)
    return [label if taken[label] == 1 else f"{label} {status.run_id}" for label, status in zip(labels, statuses, strict=True)]


def _distinct_label(run: int, names: Sequence[str], rows: Sequence[SettingRow]) -> str:
    """The run's name, with the settings in which it differs from other runs of that name; only the settings where it has no name."""
    same = [index for index, name in enumerate(names) if name == names[run] or not names[run]]
    parts = in_words([(row.setting, row.values[run]) for row in _apart(rows, same)])
    return f"{names[run]} ({parts})" if names[run] and parts else names[run] or parts


def _apart(rows: Sequence[SettingRow], runs: Sequence[int]) -> list[SettingRow]:
    """The first of these settings that are known of these runs and tell them apart."""
    known = [row for row in rows if all(row.known[run] for run in runs)]
    return [row for row in known if len({value_text(row.values[run]) for run in runs}) > 1][:MOST_IN_LABEL]


def told_apart(settings: Sequence[Mapping[str, Any]]) -> list[list[tuple[str, Any]]]:
    """For each of several runs of one name the settings, with its values, that tell it from the others: the seed first."""
    rows = differing(settings)
    seeds = [row for row in rows if row.setting == SEED]
    chosen = _apart([*seeds, *telling(rows)], range(len(settings)))
    return [[(row.setting, row.values[run]) for row in chosen] for run in range(len(settings))]


def in_words(settings: Sequence[tuple[str, Any]]) -> str:
    """Settings with their values, as they stand behind the name of a run: ``seed 1, KL coefficient 0.2``."""
    return ", ".join(f"{title(setting)} {value_text(value)}" for setting, value in settings)


def _compared(
    reader: RunReader,
    status: RunStatus,
    label: str,
    group: int,
    settings: Mapping[str, Any],
    changed: Sequence[SettingChange],
    stage: Stage,
    summary: Sequence[str],
) -> ComparedRun:
    ends = first_and_last(reader, stage, summary)
    return ComparedRun(
        run_id=status.run_id,
        label=label,
        state=status.state,
        group=group,
        seed=settings["engine"].get("seed"),
        settings_known=all_known(settings),
        step=status.step,
        total_steps=status.total_steps,
        first={name: first for name, (first, _last) in ends.items()},
        last={name: last for name, (_first, last) in ends.items()},
        changed=[(change.step, change.setting, change.new) for change in changed],
        stage=stage,
        fault=noted_fault(reader.run_dir) or "",
        kind=status.origin.kind,
        unit=status.origin.unit,
    )


def _in_order(names: set[str]) -> list[str]:
    """In the order of the table of metrics; names that are not in the table come last."""
    order = {metric.name: index for index, metric in enumerate(METRICS)}
    return sorted(names, key=lambda name: (order.get(name, len(order)), name))


def _watched(readers: Sequence[RunReader]) -> list[WatchedPrompt]:
    answers = [_first_and_newest(reader) for reader in readers]
    prompts = Counter(prompt for own in answers for prompt in own)
    chosen = [prompt for prompt, times in prompts.items() if times > 1 or len(readers) == 1]
    nothing: tuple[None, None] = (None, None)
    pairs = {prompt: [own.get(prompt, nothing) for own in answers] for prompt in chosen}
    return [WatchedPrompt(prompt, [first for first, _newest in own], [newest for _first, newest in own]) for prompt, own in pairs.items()]


def _first_and_newest(reader: RunReader) -> dict[str, tuple[WatchedAnswer, WatchedAnswer]]:
    answers: dict[str, tuple[WatchedAnswer, WatchedAnswer]] = {}
    for step, record in reader.watched(ends=True):  # by step
        answer = _answer(step, record)
        answers[record.prompt] = (answers[record.prompt][0] if record.prompt in answers else answer, answer)
    return answers


def _answer(step: int, record: WatchRecord) -> WatchedAnswer:
    score, gold, kl = numbers([np.nan if value is None else value for value in (record.score, record.gold, record.kl)])
    arrays = {name: numbers(array) for name, array in record.arrays.items()}
    return WatchedAnswer(step, record.response, score, gold, kl, record.stopped, list(record.pieces), arrays)


def numbers(values: Sequence[float] | np.ndarray) -> list[float | None]:
    """Plain numbers of at most six significant digits; None for those that are not finite."""
    short = rounded(np.asarray(values, np.float64))
    return [value if finite else None for value, finite in zip(short.tolist(), np.isfinite(short).tolist(), strict=True)]
