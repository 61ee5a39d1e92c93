"""A file of completions as a policy of an evaluation: its answers are read, and the other models score them."""

from __future__ import annotations

from pathlib import Path

from rlhf_studio.engine.stages.evaluating.prompts import EvaluationPrompts
from rlhf_studio.inputs.completions import read_completions
from rlhf_studio.inputs.prompts.errors import PromptsError
from rlhf_studio.language import S_
from rlhf_studio.runs.evaluation.policies import FIELD, PolicySource

SHOWN = 60  # characters of a prompt in a message


def answers_in(source: PolicySource, prompts: EvaluationPrompts, samples: int) -> list[list[str]]:
    """The file's first ``samples`` answers to each prompt. Raises :class:`PromptsError` where it has fewer to one of them.

    A prompt is looked up by the text that the policies read, or else by its text in the data.
    """
    answers_to = read_completions(Path(source.path), FIELD)
    rows = prompts.prepared.rows
    answers = []
    missing: list[str] = []
    for number, text in zip(prompts.row_numbers, prompts.texts(), strict=True):
        own = answers_to.get(text) or answers_to.get(rows[number].text, [])
        if len(own) < samples:
            missing.append(text)
        answers.append(own[:samples])
    if missing:
        some = S_(f"to {len(missing):,} of {len(prompts):,} prompts, such as {missing[0][:SHOWN]!r}")
        how = S_("no answer") if samples == 1 else S_(f"fewer than {samples} answers")
        raise PromptsError(FIELD, f"{Path(source.path).name} has {how} {some}; generate writes such a file for a file of prompts")
    return answers
