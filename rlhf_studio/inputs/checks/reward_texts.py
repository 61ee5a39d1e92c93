"""Whether prompt and response together fit into what each reward model reads. A longer text loses its beginning, which is the prompt."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from rlhf_studio.config import ClassifierReward, DataConfig, RunConfig
from rlhf_studio.config.io import Problem
from rlhf_studio.inputs.chat import ChatError, ChatTemplate, find_template, render_chats
from rlhf_studio.inputs.models.facts import ModelFacts
from rlhf_studio.inputs.models.tokenizer_files import longest_of_tokenizer
from rlhf_studio.inputs.prompts import Prompts, PromptsError
from rlhf_studio.inputs.prompts.cached import read_once
from rlhf_studio.inputs.prompts.preview import measure
from rlhf_studio.inputs.tokens import count_tokens
from rlhf_studio.language import S_


@dataclass(frozen=True)
class RewardTextReader:
    """A reward model that reads texts.

    Attributes:
        field: the component that names it, such as ``reward.components.0``.
        name: the model's.
        chat: it reads whole chats as its own template writes them.
    """

    field: str
    name: str
    settings: ClassifierReward
    facts: ModelFacts
    chat: bool = False

    @property
    def able(self) -> float:
        """Most tokens of a text that it can read: the model's positions, the tokenizer's limit; infinity where nothing is known."""
        files = self.facts.tokenizer_files
        limits = (self.facts.max_positions, None if files is None else longest_of_tokenizer(files))
        return min((limit for limit in limits if limit is not None), default=math.inf)

    @property
    def longest(self) -> int:
        """Most tokens of a text that it reads: what it can read, or the component's own limit."""
        return int(min(self.settings.max_tokens, self.able))


def reward_text_problems(config: RunConfig, readers: Sequence[RewardTextReader]) -> Iterator[Problem]:
    """Reward models that could score a response without its prompt, because the response alone fills ``max_tokens``.

    A model that cannot read more is not refused, because responses may end early: :func:`reward_text_notes` says so. Both functions assume
    that a response has as many tokens for the reward model as for the policy. Each step counts what was really cut (the metric
    ``tokens/reward_cut``).
    """
    response = config.generation.response_length
    for reader in readers:
        if reader.settings.reads == "both" and reader.longest <= response < reader.able:
            yield Problem(
                f"{reader.field}.max_tokens",
                f"{reader.name} reads {reader.longest:,} tokens of prompt and response together, and a response alone may have "
                f"{response:,}: it would be scored without its prompt; use more than {response:,}, or a shorter generation.response_length",
            )


def reward_text_notes(config: RunConfig, policy: ModelFacts | None, readers: Sequence[RewardTextReader]) -> Iterator[str]:
    """One sentence for each reward model that cannot read all texts whole."""
    response = config.generation.response_length
    for reader in readers:
        most = reader.longest
        if reader.settings.reads == "response":
            if response > most:
                yield S_(f"{reader.name} reads {most:,} tokens: of a longer response, of up to {response:,}, it scores the end alone.")
            continue
        counts = _prompt_tokens(config, policy, reader)
        few = sum(count + response > most for count in counts)
        if few:
            filled = sum(count >= most for count in counts)
            alone = S_(f", and {filled:,} fill them alone") if filled else ""
            yield (
                S_(
                    f"{few:,} of {len(counts):,} prompts leave no room for a response of {response:,} tokens in the {most:,} that "
                    f"{reader.name} reads{alone}: such texts lose their beginning before they are scored. "
                    f"The longest prompt has {max(counts):,} tokens."
                )
            )


def _prompt_tokens(config: RunConfig, policy: ModelFacts | None, reader: RewardTextReader) -> tuple[int, ...]:
    """Tokens of the prompts as the reward model reads them; none where they cannot be counted here."""
    tokenizer, data = reader.facts.tokenizer, config.data
    if policy is None or policy.tokenizer is None or tokenizer is None:
        return ()
    stat = tokenizer.stat()
    try:
        chat = find_template(policy.tokenizer_files) if data.chat_template else None
        own = find_template(reader.facts.tokenizer_files) if reader.chat else None
        of_policy = (read_once(data), data, policy.tokenizer, chat, config.engine.seed)
        return _counted(of_policy, own, tokenizer, (stat.st_mtime_ns, stat.st_size))
    except (PromptsError, ChatError):  # told by the check of the prompts, and of the component
        return ()


@lru_cache(maxsize=8)
def _counted(
    of_policy: tuple[Prompts, DataConfig, Path, ChatTemplate | None, int], own: ChatTemplate | None, tokenizer: Path, state: tuple[int, int]
) -> tuple[int, ...]:
    """Remembered, because the form asks at every change of any setting; ``state`` notices a new file.

    Raises :class:`PromptsError` and :class:`ChatError`.
    """
    prepared = measure(*of_policy)
    if prepared is None:
        return ()
    texts = prepared.texts
    if own is not None:
        texts = render_chats(own, prepared.chats or [[{"role": "user", "content": text}] for text in texts])
    return tuple(count_tokens(texts, tokenizer, special=own is None) or ())
