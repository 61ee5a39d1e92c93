"""Whether the examples of a supervised stage can be used with its model, and what of them will be left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rlhf_studio.config import DPORunConfig, RewardModelRunConfig, SFTRunConfig
from rlhf_studio.config_io import Problem
from rlhf_studio.inputs.chat import ChatError, ChatTemplate, find_template
from rlhf_studio.inputs.examples.cached import read_first
from rlhf_studio.inputs.examples.held_out import held_out_error, held_out_settings, same_source
from rlhf_studio.inputs.examples.preview import Measured, held_out_notes, held_out_of, measure, notes_of
from rlhf_studio.inputs.examples.reading.table import nothing_left_of
from rlhf_studio.inputs.models.facts import ModelFacts
from rlhf_studio.inputs.prompts.errors import PromptsError

StageWithExamples = SFTRunConfig | RewardModelRunConfig | DPORunConfig
SAME_EXAMPLES = (
    "Warning: data.eval names the examples that are trained on, so nothing is held out; name others, or leave it empty and set "
    "data.eval_share."
)


@dataclass(frozen=True)
class ExampleFacts:
    """What is known of the examples.

    Attributes:
        notes: one sentence each for what is left out, changed or held out.
        count: how many can be used; None when only the first were looked at, or they are the problem.
        longest: tokens of the longest after the cut, the end token among them; None when they could not be counted.
        usual: their mean, rounded up.
    """

    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    count: int | None = None
    longest: int | None = None
    usual: int | None = None


def check_examples(config: StageWithExamples, facts: ModelFacts | None) -> ExampleFacts:
    """Read the examples (of a large source the first rows) and prepare them as the stage will. ``facts`` are the model's, if known."""
    data = config.data
    chat: ChatTemplate | None = None
    try:
        if facts is not None and data.chat_template:
            chat = find_template(facts.tokenizer_files)
        ties = not isinstance(config, DPORunConfig)
        measured = measure(data, None if facts is None else facts.tokenizer, chat, ties=ties)
        if measured.prepared is not None and not measured.prepared.items and measured.whole:
            raise nothing_left_of(data, measured.read.left_out + measured.prepared.left_out)
        _check_held_out(config)
    except PromptsError as error:
        return ExampleFacts([Problem(error.field, error.message)])
    except ChatError as error:
        return ExampleFacts([Problem("data.chat_template", str(error))])
    aside = len(held_out_of(measured, data, config.engine.seed))
    notes = [*measured.read.notes, *notes_of(measured, data), *held_out_notes(measured, data, aside)]
    if data.eval and same_source(data):
        notes.append(SAME_EXAMPLES)
    lengths = [min(length.longest, data.max_tokens) for length in measured.prepared.lengths] if measured.prepared else []
    count = None if not measured.whole else len(measured.read.rows) if measured.prepared is None else len(measured.prepared.items)
    longest = (max(lengths) if measured.whole else data.max_tokens) if lengths else None
    usual = -(-sum(lengths) // len(lengths)) if lengths else None
    problems = [*_too_few(config, count, aside), *_too_long(config, facts, longest, measured)]
    return ExampleFacts(problems, notes, count, longest, usual)


def _check_held_out(config: StageWithExamples) -> None:
    """Raises :class:`PromptsError` at its own setting when ``data.eval`` cannot be read."""
    settings = held_out_settings(config.data)
    if settings is not None:
        try:
            read_first(settings)
        except PromptsError as error:
            raise held_out_error(error) from None


def _too_few(config: StageWithExamples, count: int | None, aside: int) -> Iterator[Problem]:
    batch = config.training.batch_size
    if count is not None and count - aside < batch:
        left = f"{count - aside:,} example{'' if count - aside == 1 else 's'} to train on"
        yield Problem(
            f"{config.stage}.batch_size", f"there {'is' if count - aside == 1 else 'are'} {left}, fewer than one batch; use at most that"
        )


def _too_long(config: StageWithExamples, facts: ModelFacts | None, longest: int | None, measured: Measured) -> Iterator[Problem]:
    if facts is None or facts.max_positions is None or config.data.max_tokens <= facts.max_positions:
        return
    if longest is not None and longest <= facts.max_positions:
        return
    known = f"the longest example has {longest:,} tokens" if longest is not None and measured.whole else "there may be longer examples"
    yield Problem("data.max_tokens", f"{known}, and the model takes {facts.max_positions:,}; use at most that")
