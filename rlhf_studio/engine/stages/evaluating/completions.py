"""A file of completions as a policy of an evaluation: its answers are given, only the others' opinions of them are computed."""

from __future__ import annotations

from pathlib import Path

from rlhf_studio.engine.stages.evaluating.questions import Questions
from rlhf_studio.inputs.completions import read_completions
from rlhf_studio.inputs.prompts.errors import PromptsError
from rlhf_studio.runs.evaluation.policies import FIELD, PolicySource

SHOWN = 60  # characters of a prompt in a message


def answers_in(source: PolicySource, questions: Questions, samples: int) -> list[list[str]]:
    """The file's first ``samples`` answers to each prompt. Raises :class:`PromptsError` where it has fewer to one of them.

    A prompt is found by its text as the policies read it, or as it stands in the data.
    """
    found = read_completions(Path(source.path), FIELD)
    rows = questions.prepared.rows
    answers = []
    missing: list[str] = []
    for place, text in zip(questions.places, questions.texts(), strict=True):
        own = found.get(text) or found.get(rows[place].text, [])
        if len(own) < samples:
            missing.append(text)
        answers.append(own[:samples])
    if missing:
        some = f"to {len(missing):,} of {len(questions):,} prompts, such as {missing[0][:SHOWN]!r}"
        how = "no answer" if samples == 1 else f"fewer than {samples} answers"
        raise PromptsError(FIELD, f"{Path(source.path).name} has {how} {some}; generate writes such a file for a file of prompts")
    return answers
