"""The models that a run can start from: trained here, on this disk, used before, bundled, recommended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlhf_studio.config import RunConfig, StageConfig, short_name
from rlhf_studio.config.bundled import BUNDLED
from rlhf_studio.config.io import with_values
from rlhf_studio.inputs.choices.choice import Choice, ChoiceGroup, distinct
from rlhf_studio.inputs.choices.hub_cache import CachedRepo
from rlhf_studio.inputs.choices.recommended import RECOMMENDED
from rlhf_studio.inputs.choices.used import UsedRun
from rlhf_studio.inputs.estimate.counts import RunModels, parameters
from rlhf_studio.inputs.estimate.device import Device
from rlhf_studio.inputs.estimate.memory.total import MemoryEstimate, estimate_memory
from rlhf_studio.inputs.estimate.supervised.memory import estimate_training_memory
from rlhf_studio.inputs.fitted import fitted_settings
from rlhf_studio.inputs.models.facts import ModelFacts
from rlhf_studio.inputs.models.files import ModelError
from rlhf_studio.inputs.models.learner import remembered_learner
from rlhf_studio.inputs.preflight.supervised import is_supervised
from rlhf_studio.language import _
from rlhf_studio.units import format_byte_range, format_bytes, short_count

MOST = 40
"""Models of one origin: the newest; reading the small files of each takes some hundredths of a second."""
USUAL_PROMPT, USUAL_EXAMPLE, USUAL_BATCH = 64, 256, 8
"""Tokens of a prompt and of an example, and examples of a batch, for which memory is told before there is data."""
TINY = [name for name in BUNDLED if name.endswith("policy")]
NAMED = 3
"""Models that cannot be used and are named all the same."""


@dataclass
class ModelChoices:
    """The lists of models for one stage.

    Attributes:
        base: the settings of the stage's recipe for a model of one's own.
        device: on which a run will compute.
        learner: gives the facts about a model of a name; replaced in tests.
    """

    base: StageConfig
    device: Device
    learner: Callable[[StageConfig, str], ModelFacts] = remembered_learner

    def groups(self, runs: Iterable[UsedRun], cached: Iterable[CachedRepo]) -> list[ChoiceGroup]:
        """All groups that have a choice; each model once."""
        runs = list(runs)
        rewards = self.base.stage == "reward_model"  # which can start from a policy, and from a classifier
        trained = [run for run in runs if run.kind == "policy" or (rewards and run.kind)]
        repos = [repo for repo in cached if rewards or not repo.is_classifier]
        used = [name for name in dict.fromkeys(run.config.model.policy for run in runs) if name not in BUNDLED and Path(name).is_dir()]
        about = [
            (run.name, _("{about}, from {model}").format(about=run.about, model=short_name(run.config.model.policy))) for run in trained
        ]
        made = [
            self._group(_("Trained here"), [(str(run.folder), *words, run.folder) for run, words in zip(trained, about, strict=True)]),
            self._group(_("On this disk"), [(repo.name, repo.name, "", repo.folder) for repo in repos]),
            self._group(_("Used before"), [(name, short_name(name), name, Path(name)) for name in used]),
            ChoiceGroup(_("Recommended, to be downloaded"), [self.choice(m.name, m.name, "", m.facts(), m.licence) for m in RECOMMENDED]),
            self._group(_("Comes with RLHF Studio"), [(name, name, _("a tiny model, to try things out"), None) for name in TINY]),
        ]
        return distinct(made, lambda choice: str(choice.settings["model.policy"]))

    def _group(self, title: str, rows: Sequence[tuple[str, str, str, Path | None]]) -> ChoiceGroup:
        """A group of (name, title, detail, folder): a model is read in its folder, and chosen by its name."""
        choices, unfit = list[Choice](), list[str]()
        for name, shown, detail, folder in rows[:MOST]:
            try:
                choices.append(self.choice(name, shown, detail, self.learner(self.base, str(folder or name))))
            except ModelError as error:
                unfit.append(f"{shown} ({error})")
        more = _(", and {count} more").format(count=len(unfit) - NAMED) if len(unfit) > NAMED else ""
        return ChoiceGroup(
            title, choices, _("Cannot be used here: {value}{more}.").format(value="; ".join(unfit[:NAMED]), more=more) if unfit else ""
        )

    def choice(self, name: str, title: str, detail: str, facts: ModelFacts, licence: str = "") -> Choice:
        """A model with its size and what a run with it needs."""
        weights = parameters(facts)
        size = "" if weights is None else _("{count} weights").format(count=short_count(weights))
        needs, room = self.needs(facts)
        download = (
            _("about {download_bytes} to download").format(download_bytes=format_bytes(facts.download_bytes))
            if facts.download_bytes
            else ""
        )
        settings = {"model.policy": name, "model.revision": "main"}
        return Choice(settings, title, size, detail, needs, room, download, licence)

    def needs(self, facts: ModelFacts) -> tuple[str, str]:
        """(the memory of a run with settings that fit the model and usual texts, in words; whether that is free), by the planner."""
        fitted = fitted_settings(self.base, (), self.device, with_data=False, facts=facts)
        values = {name: value.value for name, value in fitted.items()} | usual_texts(self.base)
        memory = _memory(with_values(self.base, values), facts, self.device)
        if memory is None or memory.low is None or memory.high is None:
            return "", ""
        room = "" if memory.fits is None else "fits" if memory.fits else "too_large" if memory.too_large else "tight"
        return _("needs {low} of memory").format(low=format_byte_range(memory.low, memory.high)), room


def usual_texts(base: StageConfig) -> dict[str, int]:
    """Lengths and a batch to compare models by, before there is data: the last step of a choice has the data's own."""
    if isinstance(base, RunConfig):
        return {"data.max_prompt_tokens": USUAL_PROMPT}
    return {"data.max_tokens": USUAL_EXAMPLE, f"{base.stage}.batch_size": USUAL_BATCH}


def _memory(config: StageConfig, facts: ModelFacts, device: Device) -> MemoryEstimate | None:
    """Of the model that learns, without reward models: they are chosen later."""
    models = RunModels(facts)
    if isinstance(config, RunConfig):
        config = config.model_copy(update={"reward": config.reward.model_copy(update={"components": []})})
        return estimate_memory(config, models, device)
    return estimate_training_memory(config, models, device) if is_supervised(config) else None
