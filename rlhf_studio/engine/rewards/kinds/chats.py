"""Conversations in the form of a reward model's own chat template: for models that were trained on chats, or not on the policy's form."""

from __future__ import annotations

from collections.abc import Callable

import jinja2

from rlhf_studio.config import ClassifierReward
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.engine.models.load_model import LoadedRewardModel
from rlhf_studio.engine.rewards.episodes import Episodes
from rlhf_studio.engine.rewards.errors import ComponentError
from rlhf_studio.engine.text import chat_template
from rlhf_studio.inputs.chat import ChatError, Messages, compile_template, render_chats
from rlhf_studio.inputs.checks.text_form import form_findings, is_chat
from rlhf_studio.inputs.error_text import first_line
from rlhf_studio.inputs.trained_text import TrainedText

TRY: Messages = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]

OwnChat = Callable[[Episodes], list[str]]
"""Writes whole conversations, one text per episode. Raises :class:`ComponentError`."""


def own_chat(loaded: LoadedRewardModel, name: str, settings: ClassifierReward, field: str) -> OwnChat | None:
    """The function that writes the conversations for this model; None when it reads the policy's text.

    Raises :class:`ConfigError` when the model has no template, or one that does not work, and for a form that it was not trained on.
    """
    template, trained = chat_template(loaded.tokenizer), loaded.trained_on
    if wrong := list(form_findings(name, settings, trained, None if template is None else template.source)):
        raise ConfigError([Problem(f"{field}.{finding.setting}", finding.message) for finding in wrong])
    if not is_chat(settings, trained):
        return None
    if template is None:
        raise ConfigError([Problem(f"{field}.chat_template", f"{name} has no chat template; use policy, or a model trained on chats")])
    try:
        render_chats(template, [TRY], answered=True)  # in a helper process: a template may never end
        render = compile_template(template.source, dict(template.tokens), answered=True)
    except ChatError as error:
        raise ConfigError([Problem(f"{field}.chat_template", f"{name}: {error}")]) from error
    if trained is not None and settings.chat_template == "auto":
        return lambda episodes: _as_trained(render, trained, episodes)
    return lambda episodes: _all_written(render, conversations(episodes))


def _all_written(render: Callable[[Messages], str], chats: list[Messages]) -> list[str]:
    return [_written(render, messages, row) for row, messages in enumerate(chats)]


def _as_trained(render: Callable[[Messages], str], trained: TrainedText, episodes: Episodes) -> list[str]:
    """As the model's training wrote them: also prompts that the template has written already, but no plain ones."""
    if episodes.chats is not None:
        return _all_written(render, conversations(episodes))
    for row, prompt in enumerate(episodes.prompts):
        if not trained.opens(prompt):
            raise ComponentError(
                "the model was trained on chats, and this prompt is plain text; give prompts as chats (data.chat_template), or set "
                "chat_template to own, which takes a whole prompt as what the user says",
                row,
            )
    return [prompt + response + trained.end for prompt, response in zip(episodes.prompts, episodes.responses, strict=True)]


def conversations(episodes: Episodes) -> list[Messages]:
    """Each episode as messages that end with the response. A prompt that is no conversation is what the user said."""
    chats = episodes.chats or [[{"role": "user", "content": prompt}] for prompt in episodes.prompts]
    return [[*chat, {"role": "assistant", "content": response}] for chat, response in zip(chats, episodes.responses, strict=True)]


def _written(render: Callable[[Messages], str], messages: Messages, row: int) -> str:
    try:
        return render(messages)
    except (jinja2.TemplateError, TypeError, ValueError, LookupError, ArithmeticError) as error:
        raise ComponentError(f"its chat template refuses the conversation ({first_line(error)})", row) from error
