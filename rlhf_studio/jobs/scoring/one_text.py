"""Scoring one text before any run: the score of each component, and the final score that PPO would see."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from rlhf_studio.config import Permissions, RewardComponent, RunConfig
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.engine.compute.device import Compute, choose_compute
from rlhf_studio.engine.rewards.component import Component
from rlhf_studio.engine.rewards.episodes import Episodes, Source, reading_note
from rlhf_studio.engine.rewards.errors import ComponentError, RewardError
from rlhf_studio.engine.rewards.registry import BuildContext, build_source
from rlhf_studio.engine.rewards.scorer import component_names, shaped_scores
from rlhf_studio.engine.types import OnProgress
from rlhf_studio.inputs.chat import ChatError, Messages, find_template
from rlhf_studio.inputs.checks.rewards import check_component
from rlhf_studio.inputs.models.facts import check_causal_lm
from rlhf_studio.inputs.models.files import ModelError
from rlhf_studio.inputs.prompts.cells import Prompt
from rlhf_studio.inputs.prompts.errors import PromptsError
from rlhf_studio.inputs.prompts.prepare import chat_of, prompt_texts
from rlhf_studio.jobs.scoring.versions import version_of_files, version_of_model
from rlhf_studio.language import S_
from rlhf_studio.ppo.rewards import RunningMoments


@dataclass(frozen=True)
class TextToScore:
    """What is scored. ``reference`` is None when there is none; ``stopped`` says whether the response ended with its stop token."""

    prompt: str
    response: str
    reference: str | None = None
    stopped: bool = True


class TextScorer:
    """Scores single texts. Components that stay the same from one text to the next stay loaded."""

    def __init__(self, permissions: Permissions, report: OnProgress):
        self._permissions, self._report = permissions, report
        self._held: dict[str, Source] = {}

    def score(self, config: RunConfig, text: TextToScore) -> dict[str, Any]:
        """Plain data: ``components`` with ``name``, ``kind``, ``weight`` and either ``raw``, ``weighted``, ``members``, ``texts`` (what
        its reward models have read), ``cut`` (one sentence where the text lost its beginning) or ``error`` and ``field``; ``sum`` and
        ``final``, None when a component failed; ``tokens``; ``notes``.

        Raises :class:`ConfigError` when not even the device can be used, or the prompt cannot be written as the policy reads it.
        """
        compute = choose_compute(config)
        tokens, uncounted = count_response_tokens(config, text)
        references = None if text.reference is None else [text.reference]
        prompt, chat = written_prompt(config, text.prompt)
        episodes = Episodes([prompt], [text.response], [text.stopped], [tokens or 0], references, None if chat is None else [chat])
        rows = []
        before, self._held = self._held, {}
        for index, (name, component) in enumerate(zip(component_names(config.reward), config.reward.components, strict=True)):
            field = f"reward.components.{index}"
            row: dict[str, Any] = {"name": name, "kind": component.kind, "weight": component.weight}
            if component.counts_tokens and tokens is None:
                row |= {"error": uncounted, "field": field}
            else:
                row |= self._row(component, name, field, compute, episodes, before)
            rows.append(row)
        result = {"components": rows, **_final(config, rows, episodes, tokens), "tokens": tokens}
        if prompt != text.prompt and not any(row.get("texts") for row in rows):  # the texts would show it
            result["notes"].append(S_(f"The prompt was written as the policy reads it: {prompt!r}."))
        return result

    def _row(
        self, component: RewardComponent, name: str, field: str, compute: Compute, episodes: Episodes, before: dict[str, Source]
    ) -> dict[str, Any]:
        """The scores of one component, or why there are none; ``before`` holds what was loaded for the last text."""
        # The key leaves out name and weight: changing those loads nothing anew.
        plain = component.model_copy(update={"name": "", "weight": 1.0})
        key = f"{compute.device} {compute.dtype} {plain!r} {_versions(component)}"
        try:
            source = self._held[key] = before.get(key) or self._source(component, field, compute)
            self._report(f"Scoring with {name}", None)
            scored = Component(name, component.weight, source)
            answer = scored.answer(episodes)
        except ConfigError as error:
            return {"error": "; ".join(problem.message for problem in error.problems), "field": error.problems[0].field}
        except RewardError as error:
            cause = error.__cause__ if isinstance(error.__cause__, ComponentError) else error
            return {"error": str(cause), "field": field}
        raw = float(answer.scores[0])
        members = {member: float(scores[0]) for member, scores in answer.members.items()}
        texts = list(dict.fromkeys(model.text_read(episodes) for model in scored.models))
        cut = reading_note(answer.reading, name)
        return {"raw": raw, "weighted": component.weight * raw, "members": members, "texts": texts, "cut": cut}

    def _source(self, component: RewardComponent, field: str, compute: Compute) -> Source:
        problems: list[Problem] = []
        check_component(component, field, None, problems, self._permissions)
        if problems:
            raise ConfigError(problems)
        return build_source(component, BuildContext(field, compute, self._report, self._permissions))


def written_prompt(config: RunConfig, prompt: str) -> tuple[str, Messages | None]:
    """The prompt as the policy would read it, and with a chat template the conversation behind it.

    A prompt that was written with the template already stays as it is, without a conversation. Raises :class:`ConfigError`.
    """
    data, row = config.data, Prompt(1, prompt)
    try:
        chat = find_template(check_causal_lm(config.model.policy, config.model.revision).tokenizer_files) if data.chat_template else None
        [text] = prompt_texts([row], data, chat)
    except ModelError as error:
        raise ConfigError([Problem("model.policy", str(error))]) from error
    except ChatError as error:
        raise ConfigError([Problem("data.chat_template", str(error))]) from error
    except PromptsError as error:
        raise ConfigError([Problem(error.field, error.message)]) from error
    if not data.chat_template:
        return text, None
    opening = text.rpartition(prompt)[2]
    if opening.strip() and prompt.endswith(opening):
        return prompt, None
    return text, chat_of(row, data.system_text)


def _versions(component: RewardComponent) -> list[int]:
    """When each file of the component was last changed. An edited file is loaded again."""
    return [*(version_of_files([file]) for file in component.files()), *map(version_of_model, component.model_names())]


def _final(config: RunConfig, rows: list[dict[str, Any]], episodes: Episodes, tokens: int | None) -> dict[str, Any]:
    notes = [row["cut"] for row in rows if row.get("cut")]
    if config.reward.scaling != "none":
        notes.append(S_("Scaling needs the scores of a run; here it is left out."))
    if config.reward.length_penalty and tokens is None:
        notes.append(S_("The length penalty is left out: the policy's tokens cannot be counted."))
    if any("error" in row for row in rows):
        return {"sum": None, "final": None, "notes": notes}
    total = sum(row["weighted"] for row in rows)
    # Moments that have seen nothing scale by 1 and shift by 0.
    final = shaped_scores(torch.tensor([total], dtype=torch.float32), config.reward, RunningMoments(), episodes)
    return {"sum": total, "final": float(final[0]), "notes": notes}


def count_response_tokens(config: RunConfig, text: TextToScore) -> tuple[int | None, str]:
    """Tokens of the response as the policy counts them, its stop token included; or None and why they cannot be counted."""
    try:
        path: Path | None = check_causal_lm(config.model.policy, config.model.revision).tokenizer
    except ModelError as error:
        return None, S_(f"the policy's tokens cannot be counted: {error}")
    if path is None:
        return None, S_(f"the policy's tokens cannot be counted: {config.model.policy} has no tokenizer.json")
    loaded = Tokenizer.from_file(str(path))  # the check of the model has read it already
    loaded.no_truncation()
    stop_tokens = int(text.stopped and config.generation.stop_token != "none")
    return len(loaded.encode(text.response, add_special_tokens=False).ids) + stop_tokens, ""
