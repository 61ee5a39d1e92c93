"""What is known of a supervised stage's examples before it starts, by reading and preparing them as the stage will."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from rlhf_studio.config import DemonstrationsConfig, DPORunConfig, RewardModelRunConfig, SFTRunConfig
from rlhf_studio.config.io import Problem
from rlhf_studio.inputs.chat import ChatError, find_template
from rlhf_studio.inputs.examples.cached import read_first
from rlhf_studio.inputs.examples.encoded import PreparedDemonstrations, PreparedPairs
from rlhf_studio.inputs.examples.held_out import held_out_error, held_out_settings, same_contents, same_source
from rlhf_studio.inputs.examples.preview import MeasuredExamples, held_out_notes, held_out_of, measure, notes_of
from rlhf_studio.inputs.examples.reading.table import nothing_left_of
from rlhf_studio.inputs.examples.rows import holds_plain_texts
from rlhf_studio.inputs.models.facts import ModelFacts
from rlhf_studio.inputs.prompts.errors import PromptsError
from rlhf_studio.language import S_

StageWithExamples = SFTRunConfig | RewardModelRunConfig | DPORunConfig
COPIED_EXAMPLES = S_(
    "Warning: data.eval holds the same as data.source under another name, so nothing is held out; name other examples, or leave it empty "
    "and set data.eval_share."
)
SAME_EXAMPLES = S_(
    "Warning: data.eval names the examples that are trained on, so nothing is held out; name others, or leave it empty and set "
    "data.eval_share."
)


@dataclass(frozen=True)
class CheckedExamples:
    """What was found.

    Attributes:
        problems: what keeps the stage from starting.
        notes: one sentence each for what is left out, changed or held out.
        count: how many training learns from; None when only the first were looked at, or they are the problem.
        held_out: how many are held out; None when unknown.
        texts: tokens of each text that was looked at after the cut, ascending; a pair is two texts, each with the prompt. Empty when they
            could not be counted.
        counted: of a text, the tokens that the loss is taken over, on average.
        complete: whether every example was looked at.
        plain: whether there are texts without a prompt among them.
    """

    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    count: int | None = None
    held_out: int | None = None
    texts: tuple[int, ...] = ()
    counted: float = 0.0
    complete: bool = True
    plain: bool = False


def check_examples(config: StageWithExamples, facts: ModelFacts | None) -> CheckedExamples:
    """Read the examples (of a large source the first rows) and prepare them. Raises nothing.

    ``facts``: of the model, whose tokenizer counts; None where it is not known, and nothing can be counted.
    """
    try:
        return _checked(config, facts)
    except PromptsError as error:
        return CheckedExamples([Problem(error.field, error.message)])
    except ChatError as error:
        return CheckedExamples([Problem("data.chat_template", str(error))])


def _checked(config: StageWithExamples, facts: ModelFacts | None) -> CheckedExamples:
    data = config.data
    chat = find_template(facts.tokenizer_files) if facts is not None and data.chat_template else None
    tokenizer = None if facts is None else facts.tokenizer
    loss_on = config.sft.loss_on if isinstance(config, SFTRunConfig) else "response"
    measured = measure(data, tokenizer, chat, loss_on=loss_on)
    evals = _held_out(config)
    held_out_rows = {id(row) for row in held_out_of(measured, data, config.engine.seed)}
    used = measured.read.rows if measured.prepared is None else measured.prepared.rows
    aside = sum(id(row) in held_out_rows for row in used)
    if measured.complete and len(used) == aside:
        raise _nothing_to_learn(config, measured, aside)
    notes = [*measured.read.notes, *notes_of(measured, data), *held_out_notes(measured, data, len(held_out_rows))]
    notes += [SAME_EXAMPLES] if data.eval and same_source(data) else [COPIED_EXAMPLES] if data.eval and same_contents(data) else []
    texts, counted = _tokens(measured, isinstance(config, RewardModelRunConfig))
    known = measured.complete
    held_out = evals if data.eval else aside if known or not data.eval_share else None
    return CheckedExamples(
        [], notes, len(used) - aside if known else None, held_out, texts, counted, known, holds_plain_texts(measured.read.rows)
    )


def _nothing_to_learn(config: StageWithExamples, measured: MeasuredExamples, aside: int) -> PromptsError:
    if aside:
        return PromptsError("data.eval_share", f"all {aside:,} examples are held out, so none is left to train on; use less, or more data")
    out = Counter() if measured.prepared is None else measured.prepared.left_out
    return nothing_left_of(config.data, measured.read.left_out + out)


def _held_out(config: StageWithExamples) -> int | None:
    """How many examples ``data.eval`` has; None when it names none, or not all were read. Raises at its own setting."""
    data = config.data
    settings = held_out_settings(data) if isinstance(data, DemonstrationsConfig) else held_out_settings(data)
    if settings is None:
        return None
    try:
        held_out = read_first(settings)
    except PromptsError as error:
        raise held_out_error(error) from None
    return None if held_out.partial else len(held_out)


def _tokens(measured: MeasuredExamples, scored: bool) -> tuple[tuple[int, ...], float]:
    """(tokens of each text, ascending; mean number of tokens that count). ``scored``: for a reward model, whose loss is on whole texts."""
    prepared = measured.prepared
    texts: list[int] = []
    counted = 0
    if isinstance(prepared, PreparedDemonstrations):
        texts = [len(item.ids) for item in prepared.items]
        counted = sum(item.counted for item in prepared.items)
    elif isinstance(prepared, PreparedPairs):
        responses = [(len(item.prompt), len(ids)) for item in prepared.items for ids in (item.chosen, item.rejected)]
        texts = [prompt + response for prompt, response in responses]
        counted = sum(texts) if scored else sum(response for _, response in responses)
    return tuple(sorted(texts)), counted / len(texts) if texts else 0.0
