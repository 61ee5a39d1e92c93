"""The facts of a run, read once and as plain data: the report and the model card are written from them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlhf_studio.analysis.ends import PART, first_and_last, parts_without_score
from rlhf_studio.analysis.logs.shareable import Shareable, shareable_settings, without_secrets
from rlhf_studio.analysis.records import Diagnosis, Learned, Verdict
from rlhf_studio.config import REWARD_KINDS, RewardConfig, RunConfig, StageConfig
from rlhf_studio.config.glossary import glossary_of
from rlhf_studio.config.io import walk_fields
from rlhf_studio.jobs.export import insights
from rlhf_studio.jobs.export.stages import telling_of
from rlhf_studio.language import N_, _
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import Origin, RunStatus, SettingChange, StoredEvent, WatchRecord
from rlhf_studio.runs.rows import tenth

MOST_EVENTS = 300
OF_A_PART = N_("A part of the reward, averaged over the step. No score is recorded that sums the parts up.")
NOTHING_LEARNED = Learned((0, 0), (0, 0), [], [], [], [], [], enough=False)  # of a run that samples no responses while it learns


@dataclass(frozen=True)
class Setting:
    """One setting as people read it. ``changed``: whether it differs from the program's default."""

    name: str
    title: str
    value: str
    changed: bool


@dataclass(frozen=True)
class Answers:
    """The first and the last answer to a watched prompt, each with its step. The first is the starting policy's where it is recorded."""

    prompt: str
    before: tuple[int, WatchRecord]
    after: tuple[int, WatchRecord]


@dataclass(frozen=True)
class Story:
    """All facts of a run for its report and its card.

    Attributes:
        program: version of this program that created the run.
        tenth: how many steps the first and the last tenth have.
        summary: (title, unit, meaning, how it began, how it ended), where both are known:
            :func:`~rlhf_studio.analysis.ends.first_and_last`.
        series: metric -> (steps, values), NaN where a value was not finite.
        settings: by section, as far as they are known.
    """

    status: RunStatus
    config: StageConfig
    origin: Origin
    program: str
    tenth: int
    summary: list[tuple[str, str, str, float, float]]
    series: dict[str, tuple[np.ndarray, np.ndarray]]
    answers: list[Answers]
    changes: list[SettingChange]
    events: list[StoredEvent]
    settings: dict[str, list[Setting]]
    diagnosis: Diagnosis
    learned: Learned

    @property
    def compared(self) -> str:
        """What the two numbers of :attr:`summary` are, in words."""
        if self.config.stage != "ppo":
            every_step = (
                "" if self.tenth == 1 else _("; of what every step measures, the mean over the last {tenth} steps").format(tenth=self.tenth)
            )
            return _("The first measurement and the newest{every_step}.").format(every_step=every_step)
        return (
            _("The first step and the last.")
            if self.tenth == 1
            else _("The first step, and the mean of the last {tenth}.").format(tenth=self.tenth)
        )

    @property
    def name(self) -> str:
        return self.status.name or self.status.run_id


def story_of(reader: RunReader) -> Story:
    """Read a run. Raises StoreError."""
    config, status, origin = reader.config(), reader.status(), reader.origin()
    series = _series(reader)
    titles = {name: (_(term.title), _(term.unit), _(term.meaning)) for name, term in glossary_of(origin.unit).items()}
    parts = parts_without_score(series)
    titles |= {name: (name.removeprefix(PART), _("points"), _(OF_A_PART)) for name in parts}
    ends = first_and_last(reader, config.stage, (*parts, *telling_of(config).summary))
    steps = max((len(at) for at, _ in series.values()), default=0)
    leaving = Shareable(reader.run_dir)
    return Story(
        status=replace(status, name=leaving.text(status.name)),
        config=config,
        origin=replace(origin, changes=leaving.data(origin.changes)),
        program=reader.program(),
        tenth=tenth(steps),
        summary=[(*titles[name], first, last) for name, (first, last) in ends.items() if first is not None and last is not None],
        series=series,
        answers=answers_of(reader.watched()),
        changes=[replace(change, old=leaving.data(change.old), new=leaving.data(change.new)) for change in reader.changes()],
        events=[replace(event, text=leaving.text(event.text)) for event in reader.newest_events(MOST_EVENTS, of="now")],
        settings=settings_of(config, None if origin.settings_known else origin.knows),
        diagnosis=insights.diagnosis_of(reader),
        learned=insights.learned_of(reader) if isinstance(config, RunConfig) else NOTHING_LEARNED,
    )


def _series(reader: RunReader) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    rows: list[tuple[int, dict[str, float | None]]] = []
    while new_rows := reader.metrics_since(rows[-1][0] if rows else 0, 1000):
        rows += new_rows
    names = list(dict.fromkeys(name for _, metrics in rows for name in metrics))

    def value(metrics: dict[str, float | None], name: str) -> float:
        number = metrics.get(name)
        return math.nan if number is None else number

    def column(name: str) -> tuple[np.ndarray, np.ndarray]:
        """Only the steps that have the metric: held-out examples are measured now and then."""
        own = [(step, value(metrics, name)) for step, metrics in rows if name in metrics]
        return np.array([step for step, _ in own], np.int64), np.array([number for _, number in own])

    return {name: column(name) for name in names}


def sentence_of(verdict: Verdict) -> str:
    """The verdict's sentence without its kind, which stands in front of it already."""
    kind = _(verdict.kind)
    sentence = verdict.sentence.removeprefix(f"{kind[:1].upper()}{kind[1:]}")
    sentence = sentence.lstrip(":：。 ") if sentence != verdict.sentence else sentence
    return sentence[:1].upper() + sentence[1:]


def answers_of(watched: list[tuple[int, WatchRecord]], last: int | None = None) -> list[Answers]:
    """For each watched prompt its first and its last answer, up to a step; a prompt that was answered once has both the same."""
    known: dict[int, list[tuple[int, WatchRecord]]] = {}
    for step, record in watched:
        if last is None or step <= last:
            known.setdefault(record.sample, []).append((step, record))
    return [Answers(answers[-1][1].prompt, answers[0], answers[-1]) for _, answers in sorted(known.items())]


def settings_of(config: StageConfig, knows: Callable[[str], bool] | None = None) -> dict[str, list[Setting]]:
    """All settings by section, as others may see them (:func:`~rlhf_studio.analysis.logs.shareable.shareable_settings`).

    ``knows`` says which are known of a run of another trainer: the others are left out, and none counts as changed from our defaults.
    """
    ours, defaults = shareable_settings(config.model_dump(mode="json")), type(config).model_validate({}).model_dump(mode="json")
    by_section: dict[str, list[Setting]] = {section: [] for section in config.sections}
    rewards = getattr(config, "reward", None)
    for name, field in walk_fields(type(config)):
        section, _, rest = name.partition(".")
        if knows is not None and not knows(name):
            continue
        if name == "reward.components" and isinstance(rewards, RewardConfig):
            by_section[section] += _components(rewards, ours["reward"]["components"])
        elif rest:
            value, default = ours[section][rest], defaults[section][rest]
            by_section[section].append(Setting(name, field.title or rest, setting_text(value), knows is None and value != default))
    return {section: settings for section, settings in by_section.items() if settings}


def _components(rewards: RewardConfig, shareable: list[dict[str, Any]]) -> list[Setting]:
    rows = []
    for index, component in enumerate(rewards.components):
        chosen = {"weight": component.weight, **component.model_dump(mode="json", exclude_defaults=True)}
        given = {name: shareable[index][name] for name in chosen}
        kind = next(kind for kind, model in REWARD_KINDS.items() if type(component) is model)
        values = ", ".join(f"{name} {setting_text(value)}" for name, value in given.items() if name != "kind")
        rows.append(Setting(f"reward.components.{index}", _("Component {value}").format(value=index + 1), f"{kind}: {values}", True))
    return rows


def setting_text(value: Any) -> str:
    """A setting's value as text."""
    if isinstance(value, bool):
        return _("on") if value else _("off")
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return "; ".join(map(setting_text, value)) or _("none")
    if isinstance(value, dict):
        return ", ".join(f"{key} {setting_text(item)}" for key, item in value.items()) or _("none")
    return without_secrets(value) if isinstance(value, str) else "" if value is None else str(value)
