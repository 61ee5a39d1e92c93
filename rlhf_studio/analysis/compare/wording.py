"""Settings as a comparison names them: by their titles, and without those that only say what is stored of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rlhf_studio.analysis.compare.records import ComparedRun, SettingRow
from rlhf_studio.config import STAGES, StageConfig, short_name
from rlhf_studio.language import ENGLISH, N_, _, language, ngettext

SEED = "engine.seed"
ONLY_STORED = frozenset(
    f"engine.{name}"
    for name in (
        *("checkpoint_every", "keep_checkpoints", "keep_best", "snapshot_every", "record_samples"),
        *("watch_prompts", "watch_every", "probe_prompts", "report_to", "notify"),
        *("device", "processes", "threads", "accelerate_config"),
    )
)
"""Settings that say what is stored and reported of a run, and on which machine it ran. They do not change what it learns."""
SUM = "reward.weights"
"""Not a setting of ours: what the reward of a log is the sum of, see ``Origin.reward``. It is compared as if it were one."""
COMPONENTS = "reward.components"
OF_COMPONENT = frozenset({"name", "member_curves"})
"""The same of a reward component."""
MOST_NAMED = 3
"""So many of the differing settings are named in a sentence."""
LONGEST_VALUE = 40


def teaches(setting: str) -> bool:
    """Whether a setting, by its dotted name, may change what a run learns."""
    return setting not in ONLY_STORED and not (setting.startswith(f"{COMPONENTS}.") and setting.rpartition(".")[2] in OF_COMPONENT)


def what_teaches(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a run's configuration that changes what it learns, as nested mappings, without the seed."""
    teaching: dict[str, Any] = {}
    for section, own in settings.items():
        plain = own if not isinstance(own, Mapping) else {name: value for name, value in own.items() if _counts(f"{section}.{name}")}
        teaching[section] = plain
    if "components" in teaching.get("reward", {}):  # another stage has none, and a log may not give them
        components = settings["reward"]["components"]
        teaching["reward"]["components"] = [
            {name: value for name, value in component.items() if name not in OF_COMPONENT} for component in components
        ]
    return teaching


def _counts(setting: str) -> bool:
    return setting != SEED and teaches(setting)


def fields_of(kind: type[StageConfig], section: str) -> dict[str, FieldInfo]:
    """The settings of one section of a stage's configuration."""
    model = kind.model_fields[section].annotation
    assert isinstance(model, type) and issubclass(model, BaseModel)
    return dict(model.model_fields)


@lru_cache(maxsize=1)
def _titles() -> dict[str, str]:
    """Of all stages; where two have a setting of one name, PPO's title."""
    titles: dict[str, str] = {}
    for kind in reversed(STAGES.values()):
        for section in kind.sections:
            titles |= {f"{section}.{name}": field.title or name for name, field in fields_of(kind, section).items()}
    return titles


def title(setting: str) -> str:
    """A setting's title inside a sentence: "KL coefficient", "learning rate"; of a part of a component "weight of component 1"."""
    known = N_("Reward as a sum") if setting == SUM else _titles().get(setting)
    if known is not None and language() != ENGLISH:
        return _(known)
    if known is not None:
        return known if known[1:2].isupper() or not known[1:2].isalpha() else known[0].lower() + known[1:]
    if setting.startswith(f"{COMPONENTS}."):
        index, _dot, part = setting.removeprefix(f"{COMPONENTS}.").partition(".")
        named = _("reward component {number}").format(number=int(index) + 1)
        return _("{part} of {whole}").format(part=part.replace("_", " "), whole=named) if part not in ("", "kind") else named
    parent = setting.rpartition(".")[0]
    return title(parent) if parent in _titles() else setting


def value_text(value: Any) -> str:
    """A setting's value as people read it: with a minus sign, of a model or a file its name alone, of a long text the beginning."""
    if value is None or value == "":
        return _("nothing")
    if isinstance(value, bool):
        return _("on") if value else _("off")
    if isinstance(value, int | float):
        return f"{value:g}".replace("-", "−") if isinstance(value, float) else str(value).replace("-", "−")
    text = short_name(value) if isinstance(value, str) else str(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"


def telling(rows: Sequence[SettingRow]) -> list[SettingRow]:
    """The rows that may change what a run learns, without the seed. Where a reward component differs in kind, only its kind is named."""
    kinds = {row.setting.removesuffix("kind") for row in rows if row.setting.startswith(f"{COMPONENTS}.") and row.setting.endswith(".kind")}
    parts = [row for row in rows if _counts(row.setting)]
    return [row for row in parts if not any(row.setting.startswith(kind) and row.setting != f"{kind}kind" for kind in kinds)]


def difference(rows: Sequence[SettingRow], runs: Sequence[ComparedRun], order: Sequence[int]) -> str:
    """What differs, as a sentence; of a single setting also its values, in the order of these runs."""
    named = [row for row in telling(rows) if row.differs()]
    whole = all(run.settings_known for run in runs)
    if not named and not whole:
        return _("In which settings they differ is not known.")
    if not named and any(run.fault for run in runs):
        return _("They differ in a fault that was made on purpose.")
    if not named:
        return _("They differ in what was changed while they ran.")
    titles = list(dict.fromkeys(title(row.setting) for row in named))
    told = _("They differ in {settings}.") if whole else _("Of the settings that are known, they differ in {settings}.")
    if len(named) == 1:
        given = list(dict.fromkeys(named[0].values[run] for run in order if named[0].known[run]))
        names = [value_text(value) for value in given]
        values = names if len(set(names)) == len(given) else [str(value) for value in given]  # two models of one name
        return told.format(settings=_("{setting} ({values})").format(setting=titles[0], values=_(" against ").join(values)))
    more = len(titles) - MOST_NAMED
    rest = ngettext("{count} more setting", "{count} more settings", more).format(count=more)
    parts = titles[:MOST_NAMED] + ([rest] if more > 0 else [])
    if language() != ENGLISH:
        return told.format(settings="、".join(parts))
    return told.format(settings=" and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts))
