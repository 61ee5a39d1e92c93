"""Whether a reward model will read texts in the form that it was trained on, where that is on record."""

from __future__ import annotations

from collections.abc import Iterator

from rlhf_studio.config import ClassifierReward, ComponentProblem, DataConfig
from rlhf_studio.inputs.prompts.cached import read_once
from rlhf_studio.inputs.prompts.errors import PromptsError
from rlhf_studio.inputs.prompts.prepare import prompt_texts
from rlhf_studio.inputs.trained_text import TrainedText, template_digest
from rlhf_studio.language import S_

MOST_LOOKED_AT = 200
"""Prompts that are looked at before a run; the engine looks at each."""


def is_chat(component: ClassifierReward, trained: TrainedText | None) -> bool:
    """Whether the model reads whole chats in its own template's form, because the setting says so or because it was trained so."""
    return component.chat_template == "own" or (component.chat_template == "auto" and trained is not None and trained.chat_template)


def form_findings(
    name: str, component: ClassifierReward, trained: TrainedText | None, template: str | None, data: DataConfig | None = None
) -> Iterator[ComponentProblem]:
    """What keeps the model ``name`` from reading texts in the form that it was trained on; nothing where that is not on record.

    Args:
        template: the chat template of the model's tokenizer; None where the tokenizer has no template.
        data: the prompts that it will score; None where prompts come one by one, and each is checked when it comes.
    """
    if trained is None:
        return
    if not trained.chat_template:
        if component.chat_template == "own":
            yield ComponentProblem(
                "chat_template", S_(f"{name} was trained on plain text, not on chats in the form of its template; use auto")
            )
        return
    if component.reads == "response":
        yield ComponentProblem(
            "reads", S_(f"{name} was trained on whole chats, so a response alone has no score that means anything; use both")
        )
    elif component.chat_template == "policy":
        message = S_(f"{name} was trained on whole chats in the form of its own template, whose end the policy does not write; use auto")
        yield ComponentProblem("chat_template", message)
    elif template is None or template_digest(template) != trained.template_sha256:
        message = S_(f"the chat template of {name} is not the one that it was trained with; put back the tokenizer that was saved with it")
        yield ComponentProblem("chat_template", message)
    elif component.chat_template == "auto" and data is not None and not data.chat_template and not _opens_all(trained, data):
        message = S_(
            f"{name} was trained on chats, and the prompts are plain text; switch data.chat_template on, or use own, which takes a whole "
            "prompt as what the user says"
        )
        yield ComponentProblem("chat_template", message)


def _opens_all(trained: TrainedText, data: DataConfig) -> bool:
    """Whether the prompts are chats that the template has written already. True for a file that cannot be read: another check says so."""
    try:
        prompts = prompt_texts(read_once(data).rows[:MOST_LOOKED_AT], data, None)
    except PromptsError:
        return True
    return all(trained.opens(prompt) for prompt in prompts)
