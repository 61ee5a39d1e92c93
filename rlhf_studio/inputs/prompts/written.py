"""Prompts as models without a chat template read them: the same text in every stage, from supervised fine-tuning to PPO."""

from __future__ import annotations

from collections.abc import Sequence

from rlhf_studio.inputs.prompts.dialogues import read_dialogue
from rlhf_studio.inputs.prompts.messages import Message, content_of

PROMPT_SLOT = "{prompt}"
"""Where the prompt stands in ``data.prompt_format``."""
BETWEEN = "\n\n"
"""What stands between the turns of a chat that is written without a template."""


def written(prompt: str, prompt_format: str) -> str:
    """The prompt in its form. One that is in it already, or is a dialogue such as ``Human: ... Assistant:``, stays as it is."""
    before, behind = _around(prompt_format)
    in_form = len(prompt) >= len(before + behind) and prompt.startswith(before) and prompt.endswith(behind)
    if not prompt_format or in_form or read_dialogue(prompt) is not None:
        return prompt
    return before + prompt + behind


def written_chat(messages: Sequence[Message], prompt_format: str) -> str:
    """A chat up to the place where the next answer begins: what the user says in the form, answers behind it, system texts in front."""
    text = ""
    for message in messages:
        if message["role"] == "assistant":
            text += joined(text, content_of(message))
        else:
            between = BETWEEN if text else ""
            text += between + (written(content_of(message), prompt_format) if message["role"] == "user" else content_of(message))
    return text


def joined(prompt: str, response: str) -> str:
    """The response with a space in front where it would else stick to its prompt: ``Assistant:`` and ``Yes`` give ``" Yes"``."""
    return response if not prompt or prompt[-1].isspace() or response[:1].isspace() else f" {response}"


def _around(prompt_format: str) -> tuple[str, str]:
    """What stands in front of a prompt and behind it. ``\\n`` of a command line or a field of the form is a line break."""
    before, _, behind = prompt_format.replace("\\n", "\n").partition(PROMPT_SLOT)
    return before, behind
