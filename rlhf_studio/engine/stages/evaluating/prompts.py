"""The prompts of an evaluation as each tokenizer reads them, and the held-out text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerBase

from rlhf_studio.config import DataConfig, EvaluationRunConfig, RunConfig
from rlhf_studio.config.bundled import HELD_OUT
from rlhf_studio.engine.loop.prompts import TokenizerEncoder, hold_out, prepare_prompts, read_held_out
from rlhf_studio.engine.padding import pad_right
from rlhf_studio.engine.text import chat_template
from rlhf_studio.engine.types import OnProgress, TokenBatch
from rlhf_studio.inputs.checks.evaluation import text_error, text_settings
from rlhf_studio.inputs.prompts import Prompts, PromptsError, read_prompts
from rlhf_studio.inputs.prompts.prepare import Prepared, prepare
from rlhf_studio.inputs.trained import resolve
from rlhf_studio.language import S_
from rlhf_studio.runs.evaluation.policies import PolicySource
from rlhf_studio.runs.reader import RunReader

LONGEST_WINDOW = 512
"""Tokens of a held-out text that are read at a time: a longer text is read in windows."""
NOT_HELD_OUT = S_("No prompts are held out (data.eval, data.eval_share): what is measured may be on prompts that a policy learned from.")


@dataclass(frozen=True)
class EvaluationPrompts:
    """The prompts that all policies answer.

    Attributes:
        prepared: all prompts of the data, as the reference reads them.
        row_numbers: the rows of ``prepared`` that are answered, in this order.
        notes: sentences for people.
    """

    prepared: Prepared
    row_numbers: list[int]
    notes: list[str]

    def __len__(self) -> int:
        return len(self.row_numbers)

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt, as the reference reads it."""
        return max(len(self.prepared.ids[row]) for row in self.row_numbers)

    def texts(self) -> list[str]:
        """The text of each prompt, for people."""
        return [self.prepared.texts[row] for row in self.row_numbers]


def read_evaluation_prompts(
    config: EvaluationRunConfig, as_ppo: RunConfig, tokenizer: PreTrainedTokenizerBase, report: OnProgress, trained_on: Collection[str] = ()
) -> EvaluationPrompts:
    """The held-out prompts, or some of them spread evenly. Raises :class:`PromptsError`.

    A PPO run with the same ``data`` and ``engine.seed`` would not train on them. Where nothing is held out, all prompts are used, and a
    note says so. There is no note for a bundled file of held-out prompts (:data:`HELD_OUT`), unless it is in ``trained_on``: the sources
    that the compared policies learned from (:func:`learned_from`).
    """
    report("Reading the prompts", None)
    rows = read_prompts(config.data, tick=lambda text: report(S_(f"Reading the prompts: {text}"), None))
    prepared = prepare_prompts(rows, tokenizer, as_ppo, report)
    held_out = hold_out(prepared, read_held_out(config.data, report), tokenizer, as_ppo, report)
    notes = prepared.notes(config.data)
    candidates = list(range(len(prepared.ids)))
    if held_out.prompts is not None:
        prepared = held_out.prompts
        candidates, notes = list(range(len(prepared.ids))), prepared.notes(config.data)
    elif held_out.aside:
        candidates = held_out.aside
    elif config.data.prompts not in HELD_OUT or resolve(config.data.prompts) in trained_on:
        notes.append(NOT_HELD_OUT)
    count = min(config.evaluation.prompts or len(candidates), len(candidates))
    return EvaluationPrompts(prepared, [candidates[index * len(candidates) // count] for index in range(count)], notes)


def learned_from(sources: Iterable[PolicySource]) -> set[str]:
    """What the runs of these policies trained on, as paths or names of datasets. Raises StoreError."""
    names: set[str] = set()
    for folder in {source.run_folder for source in sources if source.run_folder}:
        data = RunReader(Path(folder)).config().data  # type: ignore[attr-defined]  # every stage has data
        names.add(resolve(data.prompts if isinstance(data, DataConfig) else data.source))
    return names


def read_as(prompts: EvaluationPrompts, data: DataConfig, tokenizer: PreTrainedTokenizerBase, seed: int, policy: str) -> Prepared:
    """All prompts to be answered, as another tokenizer reads them. Raises :class:`PromptsError`."""
    rows = [prompts.prepared.rows[number] for number in prompts.row_numbers]
    if data.query_tokens_max or data.overlong == "cut_right":  # where the first tokenizer cut a text, the prompt ends for all
        rows = [replace(row, text=text) for row, text in zip(rows, prompts.texts(), strict=True)]
    uncut = {"min_prompt_tokens": 0, "query_tokens_min": 0, "query_tokens_max": 0, "overlong": "cut_left"}
    data = data.model_copy(update=uncut)
    chat = chat_template(tokenizer) if data.chat_template else None
    has_references = prompts.prepared.references is not None
    try:
        return prepare(Prompts(rows, Counter(), has_references=has_references), data, TokenizerEncoder(tokenizer), chat, seed)
    except PromptsError as error:
        raise PromptsError(error.field, f"for {policy}, {error.message}") from None


def read_texts(config: EvaluationRunConfig, report: OnProgress) -> list[str]:
    """The held-out texts; empty without any. Raises :class:`PromptsError`."""
    settings = config.evaluation
    if not settings.text:
        return []
    report("Reading the held-out text", None)
    try:
        return read_prompts(text_settings(settings)).texts
    except PromptsError as error:
        raise text_error(error) from None


def text_tokens(texts: Sequence[str], tokenizer: PreTrainedTokenizerBase, longest: int, device: torch.device) -> TokenBatch | None:
    """Texts as rows whose tokens are predicted one by one, all but the first of each text; None where no text has two tokens.

    A text longer than ``longest``, or than :data:`LONGEST_WINDOW`, is read in windows: each begins with the last token of the one before.
    """
    step = min(longest, LONGEST_WINDOW) - 1
    encoded = TokenizerEncoder(tokenizer).encode(list(texts), special=True)
    rows = [ids[start : start + step + 1] for ids in encoded for start in range(0, len(ids) - 1, step)]
    return token_batch([ids[:1] for ids in rows], [ids[1:] for ids in rows], device) if rows else None


def token_batch(prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]], device: torch.device) -> TokenBatch:
    """Prompts and responses as ids, padded; each has at least one token."""
    longest = max(map(len, prompts))
    prompt_ids = torch.tensor([[*[0] * (longest - len(ids)), *ids] for ids in prompts], device=device)
    prompt_mask = torch.tensor([[*[False] * (longest - len(ids)), *[True] * len(ids)] for ids in prompts], device=device)
    response_ids = pad_right(responses, 0, device)
    lengths = torch.tensor([len(ids) for ids in responses], device=device)
    return TokenBatch(prompt_ids, prompt_mask, response_ids, torch.arange(response_ids.shape[1], device=device) < lengths[:, None])
