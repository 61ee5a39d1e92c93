"""The form of the texts that a reward model was trained on. It is stored beside the weights, so that later texts can be written alike."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from rlhf_studio.inputs.chat import ChatError, ChatTemplate, Messages, render_chats
from rlhf_studio.inputs.prompts.prepare import with_system

QUESTION, ANSWER = "Hello there", "Good morning"
"""Said to a template to see what it writes around them."""


@dataclass(frozen=True)
class TrainedText:
    """The form of the texts.

    Attributes:
        chat_template: each text was a whole chat as the template of the model's own tokenizer writes it.
        template_sha256: of that template (:func:`template_digest`); empty without one.
        opening: what the template writes between what the user says and the answer; empty where that cannot be told.
        end: what the template writes behind the answer; empty where that cannot be told.
        end_id: the token that was put behind each text (``reward_model.append_eos``); None for none.
        special_tokens: whether the tokenizer put its own special tokens around each text; a template writes them itself.
    """

    chat_template: bool = False
    template_sha256: str = ""
    opening: str = ""
    end: str = ""
    end_id: int | None = None
    special_tokens: bool = True

    def opens(self, prompt: str) -> bool:
        """Whether the prompt is a chat that a template has written already, up to the place of its answer."""
        return bool(self.opening.strip()) and prompt.endswith(self.opening)


def text_form(chat: ChatTemplate | None, end_id: int | None = None, system_text: str = "") -> TrainedText:
    """The form of texts that this template writes; without one they are prompt and response as they stand."""
    if chat is None:
        return TrainedText(end_id=end_id)
    question: Messages = with_system([{"role": "user", "content": QUESTION}], system_text)
    try:
        [before] = render_chats(chat, [question])
        [answered] = render_chats(chat, [[*question, {"role": "assistant", "content": ANSWER}]], answered=True)
    except ChatError:  # a template that wants other messages than these: only what it writes around them is not known
        before = answered = ""
    opening, end = before.rpartition(QUESTION)[2], answered.rpartition(ANSWER)[2]
    return TrainedText(True, template_digest(chat.source), opening, end, end_id, special_tokens=False)


def template_digest(source: str) -> str:
    """SHA-256 of a template's text. Reading it from a file turns every line break into one character, and so does this."""
    return hashlib.sha256(source.replace("\r\n", "\n").replace("\r", "\n").encode("utf-8", "surrogatepass")).hexdigest()


def read_trained_text(data: Any) -> TrainedText | None:
    """From the plain data in a file; None for null. Raises ValueError for anything but what :class:`TrainedText` holds."""
    if data is None:
        return None
    kinds = {"chat_template": bool, "template_sha256": str, "opening": str, "end": str, "special_tokens": bool}
    if not isinstance(data, dict) or any(type(data.get(name)) is not kind for name, kind in kinds.items()):
        raise ValueError("not the form of a text")
    if type(end_id := data.get("end_id")) not in (int, type(None)):
        raise ValueError("the id of a token is a number, or null")
    return TrainedText(**{name: data[name] for name in kinds}, end_id=end_id)
