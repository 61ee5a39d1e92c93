"""Whether the prompts can be used with this policy, and what of them will be left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from rlhf_studio.config import DataConfig, RunConfig
from rlhf_studio.config.io import Problem
from rlhf_studio.inputs.chat import ChatError, ChatTemplate, find_template
from rlhf_studio.inputs.models.facts import ModelFacts
from rlhf_studio.inputs.prompts import Prompts, PromptsError
from rlhf_studio.inputs.prompts.cached import read_once
from rlhf_studio.inputs.prompts.held_out import (
    FEWEST_PROMPTS,
    SAME_PROMPTS,
    eval_error,
    eval_settings,
    held_out_notes,
    same_source,
    set_aside,
)
from rlhf_studio.inputs.prompts.lengths import PromptTokens
from rlhf_studio.inputs.prompts.prepare import Prepared, chat_texts, dialogue_notes, prompt_texts
from rlhf_studio.inputs.prompts.preview import measure, measures_all
from rlhf_studio.inputs.prompts.read import nothing_left
from rlhf_studio.inputs.tokens import count_tokens
from rlhf_studio.language import S_

LONGEST_MEASURED, LONGEST_CHARACTERS = 2_000, 2_000_000


@dataclass(frozen=True)
class PromptFacts:
    """What is known of the prompts.

    Attributes:
        count: how many there are; None when that is unknown, or the prompts cannot be read.
        longest: tokens of the longest, before the cut; None when unknown.
        tokens: lengths after the cut; None when unknown.
        risks: notes on what the doctor says of a PPO run, with a better value: prompts that are cut, and none held out.
        held_out: how many training never draws; None when unknown.
        lengths: tokens of each prompt that was looked at, before the cut.
    """

    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    count: int | None = None
    longest: int | None = None
    tokens: PromptTokens | None = None
    risks: list[str] = field(default_factory=list)
    held_out: int | None = None
    lengths: tuple[int, ...] = ()


def check_prompts(config: RunConfig, policy: ModelFacts | None) -> PromptFacts:
    """Read the prompts (of a folder or a hub dataset the first rows) and prepare the first of them as the engine will."""
    data = config.data
    chat: ChatTemplate | None = None
    try:
        prompts = read_once(data)
        if policy is None:
            return PromptFacts(count=None if prompts.partial else len(prompts))
        if data.chat_template:
            chat = find_template(policy.tokenizer_files)
        prepared = measure(prompts, data, policy.tokenizer, chat, config.engine.seed)
        if prepared is None and data.chat_template and prompts.rows:
            chat_texts(prompts.rows[:1], data, chat)  # says what is wrong with the template
        complete = measures_all(prompts) and not prompts.partial
        if prepared is not None and not prepared.ids and complete:
            raise nothing_left(data, prepared.left_out)
        longest = _longest(config, policy, prompts, chat)
        held_out, of_held_out = _held_out(config, prompts, prepared if complete else None)
    except PromptsError as error:
        return PromptFacts([Problem(error.field, error.message)])
    except ChatError as error:
        return PromptFacts([Problem("data.chat_template", str(error))])
    unmeasured = [*prompts.notes, *dialogue_notes(prompts.dialogues, data), *_notes(config)]
    cut = prepared.cut_note(data) if prepared is not None else []
    none_held_out = held_out == 0
    notes = unmeasured if prepared is None else [note for note in prepared.notes(data) if note not in cut]
    notes += [] if none_held_out else of_held_out
    risks = [*cut, *(of_held_out if none_held_out else [])]
    left = None if prompts.partial else len(prompts) if prepared is None or not complete else len(prepared.ids)
    lengths = tuple(prepared.lengths) if prepared is not None else ()
    return PromptFacts([], notes, left, longest, _tokens(prepared, data, complete, left), risks, held_out, lengths)


def _held_out(config: RunConfig, prompts: Prompts, prepared: Prepared | None) -> tuple[int | None, list[str]]:
    """(how many are held out, None when unknown; notes about them). ``prepared`` is None when not every prompt is known.

    Raises :class:`PromptsError` at its setting.
    """
    data = config.data
    settings = eval_settings(data)
    if settings is None:
        few = not prompts.partial and len(prompts) < FEWEST_PROMPTS
        aside = set_aside(prepared.ids, data.eval_share, config.engine.seed) if prepared else []
        count = len(aside) if prepared or few or not data.eval_share else None
        return count, held_out_notes(data, len(prepared.ids) if prepared else len(prompts) if few else None, len(aside), None)
    try:
        evals = read_once(settings)
    except PromptsError as error:
        raise eval_error(error) from None
    same = same_source(data)
    return None if evals.partial or same else len(evals), [SAME_PROMPTS] if same else []  # else it is as the settings say


def _tokens(prepared: Prepared | None, data: DataConfig, complete: bool, count: int | None) -> PromptTokens | None:
    if prepared is None or not prepared.ids:
        return None
    counts = [len(ids) for ids in prepared.ids]
    texts = prepared.lengths if data.overlong == "cut_left" else counts
    most = max(counts) if complete else data.max_prompt_tokens
    return PromptTokens(_mean(counts), (max(counts), most), count, _mean(texts), max(texts) if complete else None, min(counts))


def _mean(counts: list[int]) -> int:
    """Rounded up."""
    return -(-sum(counts) // len(counts))


def _notes(config: RunConfig) -> Iterator[str]:
    limits = [name for name in ("min_prompt_tokens", "query_tokens_max") if getattr(config.data, name)]
    if limits or config.data.overlong == "drop":
        yield S_("The policy's tokens cannot be counted here, so what is left out or cut by length shows only when the run starts.")


def _longest(config: RunConfig, policy: ModelFacts, prompts: Prompts, chat: ChatTemplate | None) -> int | None:
    """Tokens of the longest prompt; measured only where it matters, on those with the most characters.

    None when there may be longer ones than those looked at.
    """
    data = config.data
    if policy.max_positions is None or data.max_prompt_tokens + config.generation.response_length <= policy.max_positions:
        return None
    longest_query = data.query_tokens_max + 1 if data.query_tokens_max else None  # one more for a beginning-of-text token
    if prompts.partial:
        return longest_query
    rows = sorted(prompts.rows, key=lambda row: len(row.text), reverse=True)[:LONGEST_MEASURED]
    before = accumulate((len(row.text) for row in rows), initial=0)
    rows = [row for row, characters in zip(rows, before, strict=False) if characters < LONGEST_CHARACTERS]
    texts = prompt_texts(rows, data, chat)
    counts = count_tokens(texts, policy.tokenizer, special=not data.chat_template)
    known = [count for count in (longest_query, max(counts) if counts else None) if count is not None]
    return min(known) if known else None
