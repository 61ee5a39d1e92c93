"""What every reward component has, and the settings that all components with a reward model share."""

from __future__ import annotations

from typing import Any

from rlhf_studio.config.base import Section, setting


def weight_setting(default: float) -> Any:
    """A component's weight, for those that start from another one than 1."""
    return setting(
        default, "Weight", "The component's score is multiplied by this before all are summed; negative turns it into a penalty.",
        level="basic", ge=-1000, le=1000,
    )  # fmt: skip


class Component(Section):
    """What every reward component has."""

    name: str = setting("", "Name", "Label of this component in charts and tables; empty takes its kind.", max_length=60)
    weight: float = weight_setting(1.0)


REVISION = setting("main", "Hub revision", "Branch, tag or commit to load when the model is a hub id.", min_length=1, max_length=200)
LABEL = setting(
    "", "Label", "Which of the model's labels is the reward, by name or number. Leave empty for a model with a single output.",
    level="basic", max_length=200, number=True,
)  # fmt: skip
OUTPUT = setting("logit", "Output", "Take the label's raw logit, or its probability after softmax (sigmoid for a single output).")
READS = setting(
    "both", "Reads", "both: prompt and response as one text. response: the response alone, as for a sentiment classifier that should "
    "not be swayed by the prompt.",
)  # fmt: skip
CHAT_TEMPLATE = setting(
    "policy", "Chat form",
    "policy: the model reads prompt and response as the policy does. own: prompt and response are written as a chat in the form that the "
    "reward model's own tokenizer defines; a prompt that is no chat is what the user says.",
)  # fmt: skip
DTYPE = setting(
    "auto", "Number format", "Format of the model's weights and products. auto follows the run's; bfloat16 takes half the memory.",
)  # fmt: skip
BATCH_SIZE = setting(64, "Batch size", "Texts scored in one forward pass.", unit="texts", ge=1, le=4096)
MAX_TOKENS = setting(512, "Longest text", "Longer texts are cut on the left before scoring.", unit="tokens", ge=8, le=32768)
APPEND_EOS = setting(
    False, "Append end token", "Add the reward model's end-of-text token after a finished response, as some reward models were trained."
)


def reads_the_chat_it_writes(component: Any) -> Any:
    """The check that a component's chat form and what it reads fit together. Raises ValueError."""
    if component.chat_template == "own" and component.reads == "response":
        raise ValueError("chat_template: own writes prompt and response as one chat; use policy, or set reads to both")
    return component
