"""Writes the folder that is handed over: script, prompts, reward file, our settings, and a page about what is different."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from rlhf_studio.child_process.environment import foreign_environment
from rlhf_studio.config import NOTHING_ALLOWED, Permissions, PythonReward, RunConfig
from rlhf_studio.config.base import free_name
from rlhf_studio.config.io import ConfigError, Problem, config_to_yaml
from rlhf_studio.handover import openrlhf, page, prompts, script, verl
from rlhf_studio.handover.prompts import HandedPrompts, Row
from rlhf_studio.handover.reward_file import RewardFile, own_problems, reward_problems, write_reward
from rlhf_studio.handover.translation import UNLIMITED, Cluster, InFolder, Remark, Translation
from rlhf_studio.inputs.chat import find_template
from rlhf_studio.inputs.ends import ends_of_files
from rlhf_studio.inputs.models.facts import ModelFacts, check_causal_lm
from rlhf_studio.inputs.models.files import ModelError
from rlhf_studio.inputs.prompts import PromptsError
from rlhf_studio.inputs.trained import resolve
from rlhf_studio.language import S_, _

Made = TypeVar("Made")
EngineName = Literal["verl", "openrlhf"]
ENGINES: tuple[EngineName, ...] = get_args(EngineName)
TRANSLATE: dict[EngineName, Callable[[RunConfig, Cluster, int | None, str, int], Translation]] = {
    "verl": verl.translate,
    "openrlhf": openrlhf.translate,
}
MOST_HELD_OUT_OF_TRAIN = 16
START_SECONDS = 120.0  # as a run has: a function's file may import large libraries
TAKEN = ("score", "input", "output", "gts", "step", "reward", "kl")
"""Names that the engines write beside those of the components."""


@dataclass(frozen=True)
class HandedOver:
    """What was written.

    Attributes:
        folder: where.
        translation: what became of the settings.
        notes: one sentence each about prompts and rewards.
    """

    folder: Path
    translation: Translation
    notes: list[str]


def hand_over(
    config: RunConfig, engine: EngineName, out: Path, *, cluster: Cluster | None = None, permissions: Permissions = NOTHING_ALLOWED
) -> HandedOver:
    """Write everything that the engine needs into ``out``, a new or empty folder; nothing is left there when something is wrong.

    Raises:
        ConfigError: a setting that cannot be handed over, or a model or prompts that cannot be read.
    """
    with _sentence(out):
        _check_free(out)
    problems = [*reward_problems(config.reward), *own_problems(config.reward, engine, permissions)]
    policy = _gathered(problems, lambda: _policy(config))
    handed = policy and _gathered(problems, lambda: _prompts(config, policy))
    if engine == "verl" and handed:
        handed = prompts.repeated(handed, config.ppo.batch_size // config.ppo.responses_per_prompt)
    size, rows = policy.parameters if policy else None, len(handed.train) if handed else 1
    translation = _gathered(problems, lambda: TRANSLATE[engine](config, cluster or Cluster(), size, _name(config.model.policy), rows))
    if problems:
        raise ConfigError(problems)
    assert policy and handed and translation  # else there was a problem
    if engine == "verl" and handed.start:
        translation.options[f"{verl.MODEL}.custom_chat_template"] = f"{{{{ bos_token }}}}{verl.AS_WRITTEN}"
    rewards = _rewards(translation, engine, policy, handed.start, permissions)
    if problems := list(script.unwritable(engine, translation)):
        raise ConfigError(problems)
    with _sentence(out):
        notes = _write_whole(out, lambda folder: _write(folder, engine, translation, handed, rewards))
    return HandedOver(out, translation, notes)


def _gathered(problems: list[Problem], make: Callable[[], Made]) -> Made | None:
    """What ``make`` gives; None where something is wrong, which is added to ``problems``."""
    try:
        return make()
    except ConfigError as error:
        problems += error.problems
        return None


@contextmanager
def _sentence(out: Path) -> Iterator[None]:
    """Says in a :class:`ConfigError` why nothing can be written there."""
    try:
        yield
    except OSError as error:
        raise ConfigError([Problem("OUT", f"{out} cannot be written: {error.strerror or error}")]) from error


def _check_free(out: Path) -> None:
    """Raises OSError where no folder of this name can be, ConfigError where something is there."""
    try:
        there = bool(os.listdir(out))
    except FileNotFoundError:
        there = False
    except NotADirectoryError:
        there = os.path.lexists(out)
        if not there:
            raise
    if there:
        raise ConfigError([Problem("OUT", f"{out} is there already; name a new folder, or an empty one")])


def _write_whole(out: Path, write: Callable[[Path], list[str]]) -> list[str]:
    """Let a folder be written beside ``out``, which becomes ``out`` when it is complete. ``out`` may be a link to an empty folder."""
    target = Path(os.path.realpath(out))
    target.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=".hand-over-", dir=target.parent))
    try:
        notes = write(made)
        made.chmod(0o755)
        made.replace(target)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return notes


def _policy(config: RunConfig) -> ModelFacts:
    try:
        return check_causal_lm(config.model.policy, config.model.revision)
    except ModelError as error:
        raise ConfigError([Problem("model.policy", str(error))]) from error


def _prompts(config: RunConfig, policy: ModelFacts) -> HandedPrompts:
    try:
        return prompts.prompts_of(config, policy)
    except PromptsError as error:
        raise ConfigError([Problem(error.field, error.message)]) from error


def _name(model: str) -> str:
    """A full path where the model lies on this machine, else its hub id."""
    named = resolve(model)
    return str(Path(named).resolve()) if Path(named).exists() else named


def _rewards(to: Translation, engine: EngineName, policy: ModelFacts, start: str, permissions: Permissions) -> RewardFile:
    """The reward file; none where a reward model scores. Sets the options that name them."""
    settings = to.config.reward
    if settings.scaling != "none":
        to.missing.append(
            Remark("reward.scaling", _("scores are not scaled by their running deviation: workers score apart from each other."))
        )
    if engine == "openrlhf":
        to.put("reward.clip_range", [-UNLIMITED, UNLIMITED])
    if settings.components[0].kind == "reward_model":
        _reward_model(to, engine)
        return RewardFile({}, [], False)
    if engine == "verl":
        to.put("reward.custom_reward_function.path", InFolder("reward.py"), "reward.components")
        to.put("reward.custom_reward_function.name", "compute_score")
        if settings.missing_eos_penalty:
            about = _("verl does not tell a reward function whether a response ended by itself.")
            to.missing.append(Remark("reward.missing_eos_penalty", about))
    else:
        to.put("reward.remote_url", InFolder("reward.py"), "reward.components")
    chat = find_template(policy.tokenizer_files) if to.config.data.chat_template else None
    ends = ends_of_files(policy, chat)
    texts = sorted(text for text, token in ends.tokens.items() if token in ends.ids) if ends else []
    names = component_names(to.config)
    tokenizer, most = _name(to.config.model.policy), to.config.generation.response_length
    step = to.config.ppo.batch_size
    return write_reward(settings, names, engine, permissions, tokenizer=tokenizer, ends=texts, most=most, step=step, start=start)


def _reward_model(to: Translation, engine: EngineName) -> None:
    part = to.config.reward.components[0]
    assert part.kind == "reward_model"
    model = _name(part.model)
    if engine == "verl":
        to.put("reward.reward_model.enable", True)
        to.put("reward.reward_model.model_path", model, "reward.components")
        to.put("reward.reward_model.rollout.name", "vllm")
        to.put("reward.reward_model.rollout.tensor_model_parallel_size", 1)
        about = _("vLLM loads the reward model and takes the last of its outputs, as a logit; the model must be one that vLLM can serve.")
    else:
        to.put("reward.model_name_or_path", model, "reward.components")
        about = _("OpenRLHF loads the reward model with a head that is called as --ds.value_head_prefix says (score).")
    to.change("reward.components", about)
    theirs = {"weight": 1.0, "output": "logit", "reads": "both", "label": "", "append_eos": False}
    for name, value in theirs.items():
        if getattr(part, name) != value:
            to.missing.append(Remark(f"reward.components.0.{name}", _("{part} is not handed over.").format(part=getattr(part, name))))
    for name in ("score_clip", "length_penalty", "missing_eos_penalty"):
        if getattr(to.config.reward, name):
            to.missing.append(Remark(f"reward.{name}", _("a reward model's score is taken as it is.")))


def component_names(config: RunConfig) -> list[str]:
    """One name for each component: its own or its kind, changed where the engine or another one has the same."""
    names: list[str] = []
    for part in config.reward.components:
        base = part.name or part.kind
        base = f"{base} component" if base in TAKEN else base
        names.append(free_name(base, names))
    return names


def _write(folder: Path, engine: EngineName, to: Translation, handed: HandedPrompts, rewards: RewardFile) -> list[str]:
    notes = list(handed.notes)
    if engine == "verl":
        source = to.config.name or to.config.recipe or "prompts"
        prompts.write_parquet(prompts.verl_rows(handed.train, source), folder / "train.parquet")
        held_out = handed.held_out or handed.train[:MOST_HELD_OUT_OF_TRAIN]
        prompts.write_parquet(prompts.verl_rows(held_out, source), folder / "held_out.parquet")
        if not handed.held_out:
            notes.append(
                _("No prompts are held out; verl asks for some, so the first prompts stand in held_out.parquet. It measures nothing.")
            )
    else:
        seed = to.config.engine.seed if to.config.data.shuffle else None
        prompts.write_lines(prompts.in_passes(handed.train, to.options["data.max_samples"], seed), folder / "train.jsonl", handed.start)
        if rewards.files:
            notes.append(_("An error in reward.py does not stop OpenRLHF: it is in its log, and the response has no reward."))
        if handed.held_out:
            prompts.write_lines(handed.held_out, folder / "held_out.jsonl", handed.start)
    if rewards.counts_tokens and engine == "verl":
        notes.append(_("The reward counts tokens: verl gives it texts, which are encoded anew and may come out some tokens shorter."))
    for name, content in rewards.files.items():
        (folder / name).write_bytes(content)
    _try_functions(folder, engine, to.config, handed.train)
    (folder / "settings.yaml").write_text(config_to_yaml(to.config), encoding="utf-8")
    launch = folder / "run.sh"
    launch.write_text(script.script(engine, to), encoding="utf-8")
    launch.chmod(0o755)
    (folder / "README.md").write_text(page.page(engine, to, notes, rewards), encoding="utf-8")
    return notes


def _try_functions(folder: Path, engine: EngineName, config: RunConfig, train: list[Row]) -> None:
    """Let ``reward.py`` score a text where functions of one's own do: there nobody would see soon that they cannot.

    Raises :class:`ConfigError` for a function that gives no score.
    """
    own = {number: part for number, part in enumerate(config.reward.components) if isinstance(part, PythonReward)}
    if not own:
        return
    asked: dict[str, Any] = {"prompt": train[0].text, "response": "12", "reference": train[0].reference}
    line = json.dumps(asked | ({"stopped": True} if engine == "openrlhf" else {}))
    command = [sys.executable, str(folder / "reward.py")]
    seconds = START_SECONDS + sum(part.timeout for part in own.values())
    fields = " and ".join(f"reward.components.{number}.function" for number in own)
    environment = foreign_environment(os.environ) | {"PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, input=line, capture_output=True, text=True, errors="replace", timeout=seconds, env=environment)
    except subprocess.TimeoutExpired:
        raise ConfigError([Problem(fields, f"no score of a first prompt within {seconds:g} seconds")]) from None
    if done.returncode:
        why = (done.stderr.strip().splitlines() or [S_(f"exit code {done.returncode}")])[-1]
        raise ConfigError([Problem(fields, f"it could not score a first prompt: {why[:500]}")])
