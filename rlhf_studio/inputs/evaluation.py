"""From what a person asks for to the settings of an evaluation run. Settings that they leave open come from the first run that is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlhf_studio.config import EvaluationRunConfig, RunConfig, StageConfig, prompt_writing, short_name, used_in
from rlhf_studio.config.io import ConfigError, Problem, apply_overrides, parse_config
from rlhf_studio.inputs.completions import is_completions
from rlhf_studio.inputs.named_reward import component_named
from rlhf_studio.inputs.relative_paths import as_seen_from, with_runs_in_full
from rlhf_studio.runs.evaluation.policies import began_fresh, run_named, sources_of
from rlhf_studio.runs.paths import CHECKPOINTS, SNAPSHOTS, checkpoint_step
from rlhf_studio.runs.reader import RunReader

WORLD = "bundled/world-policy"
SHARED = ("policy", "revision", "dtype", "quantization", "attention")
OF_RUN = ("device", "threads", "seed")
REFERENCE = ("reference", "reference_revision")


@dataclass(frozen=True)
class EvaluationRequest:
    """What a person asks for.

    Attributes:
        policies: what answers: see the setting ``evaluation.policies``; a run may be named by its id alone.
        prompts: a file or dataset of prompts; None for the held-out prompts of the first run.
        reward: what scores the answers, as :func:`~rlhf_studio.inputs.named_reward.component_named` reads it; None for the first run's
            own rewards. Where there is neither, answers have no score.
        settings: of ``evaluation``, by name, beside its policies.
        overrides: any setting by its dotted name, as text.
    """

    policies: tuple[str, ...]
    prompts: str | None = None
    reward: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    overrides: Mapping[str, str] = field(default_factory=dict)


def settings_for(request: EvaluationRequest, runs: Path) -> EvaluationRunConfig:
    """The configuration. ``runs`` is the folder whose runs may be named by their id. Raises :class:`ConfigError` and StoreError.

    A single run without a step is compared with its own start. A run that began with random weights has no useful start: its newest policy
    answers alone. KL and perplexity refer to the model that the first run began with; where its weights were random, to the first policy.
    """
    named = [run_named(policy, runs) for policy in request.policies]
    run = next((pair[0] for pair in named if pair is not None), None)
    fresh = run is not None and began_fresh(RunReader(run).config())
    lines = [
        policy if pair is None else "@".join(filter(None, map(str, pair))) for policy, pair in zip(request.policies, named, strict=True)
    ]
    if len(lines) == 1 and named[0] is not None and not named[0][1] and not fresh:
        lines.insert(0, f"{lines[0]}@start")
    policies = "\n".join(lines)
    sources = sources_of(EvaluationRunConfig.model_validate({"evaluation": {"policies": policies}}))  # a wrong name is said first
    settings = _of_model(request.policies[0]) if run is None else _of_run(run)
    if fresh:
        first = next(source for source in sources if source.kind == "model")
        settings["model"] |= {"policy": f"{first.run_folder}@{first.step}" if first.checkpoint else first.path, "revision": first.revision}
    _prompts(settings, request)
    _rewards(settings, request)
    if "reference" in request.settings or "evaluation.reference" in request.overrides:
        settings["evaluation"]["reference_revision"] = "main"  # the run's own is of another model
    settings["evaluation"] |= {"policies": policies, **request.settings}
    config = parse_config(apply_overrides({"stage": "evaluation", **settings}, request.overrides))
    assert isinstance(config, EvaluationRunConfig)  # the stage says so
    return with_runs_in_full(config, runs)


def refers_to(config: StageConfig) -> str:
    """What an evaluation's KL and perplexity refer to, in short; empty for a run of another stage."""
    if not isinstance(config, EvaluationRunConfig):
        return ""
    own, revision = config.evaluation.reference, config.evaluation.reference_revision
    name, at = (own, revision) if own else (config.model.policy, config.model.revision)
    folder = Path(name)
    if folder.name in ("policy", "reward_model") and folder.parent.parent.name in (CHECKPOINTS, SNAPSHOTS):  # of a run: whose, not where
        return f"{folder.parent.parent.parent.name}@{checkpoint_step(folder.parent.name)}"
    return short_name(name) if at == "main" else f"{short_name(name)}@{at}"


def _of_run(run: Path) -> dict[str, Any]:
    """Model, prompts, rewards and sampling of a run, as seen from here."""
    reader = RunReader(run)
    config: StageConfig = as_seen_from(reader.config(), reader.working_folder())
    plain = config.model_dump(mode="json")
    own = {section: used_in("evaluation", section, plain[section]) for section in config.sections}
    settings: dict[str, Any] = {
        "model": {name: value for name, value in own["model"].items() if name in SHARED},
        "generation": own["generation"],
        "engine": {name: own["engine"][name] for name in OF_RUN} | {"checkpoint_every": 1},
        "evaluation": {name: own["model"][name] for name in REFERENCE if name in own["model"]},
    }
    if isinstance(config, RunConfig):
        return settings | {"data": own["data"], "reward": own["reward"]}
    of_world = _of_world(config.learns)
    return settings | of_world | {"data": prompt_writing(config) | of_world.get("data", {})}


def _of_model(name: str) -> dict[str, Any]:
    model = WORLD if is_completions(name) else name
    return {"model": {"policy": model}, "engine": {"checkpoint_every": 1}, "evaluation": {}, **_of_world(model)}


def _of_world(model: str) -> dict[str, Any]:
    """Prompts and rewards where no PPO run says which: those of the review world for its own policy, else none."""
    if model != WORLD:
        return {}
    return {"data": {"prompts": "bundled/world-prompts-heldout", "eval_share": 0}, "reward": {"gold": "world"}}


def _prompts(settings: dict[str, Any], request: EvaluationRequest) -> None:
    if request.prompts is not None:
        other = {"prompts": request.prompts, "eval": "", "eval_share": 0, "subset": "", "split": "train", "revision": "main"}
        settings["data"] = {**settings.get("data", {}), **other}
    elif "prompts" not in settings.get("data", {}) and not any(name.startswith("data.") for name in request.overrides):
        raise ConfigError([Problem("--prompts", "name a file of prompts: none of these policies is from a PPO run, which would have some")])


def _rewards(settings: dict[str, Any], request: EvaluationRequest) -> None:
    if request.reward is not None:
        try:
            component = component_named(request.reward)
        except ConfigError as error:
            raise ConfigError([Problem("--reward", problem.message) for problem in error.problems]) from error
        if not component:
            raise ConfigError([Problem("--reward", "name a rule such as lexicon, FILE.py, or a reward model")])
        settings["reward"] = {**settings.get("reward", {}), "components": [component]}
    elif "reward" not in settings:
        settings["reward"] = {"components": []}
