"""Prompts from files and from the Hugging Face hub, in the steps in which they are made:

:mod:`sources`    rows of a source, bounded in memory
:mod:`cells`      a row's cells become a prompt: text or chat messages, and a reference text
:mod:`dialogues`  the parts of a whole conversation that is written as one text
:mod:`read`       all rows of a source, filtered by their text
:mod:`cached`     the same, remembered, so that a form can ask at every change
:mod:`prepare`    chat template, token ids, filters and cuts by length
:mod:`lengths`    how long the prompts are, for the estimates
:mod:`held_out`   prompts that are set aside for evaluation
:mod:`preview`    what a person sees of it before anything is loaded
"""

from __future__ import annotations

from rlhf_studio.inputs.prompts.errors import PromptsError
from rlhf_studio.inputs.prompts.read import Prompts, read_prompts

__all__ = ["Prompts", "PromptsError", "read_prompts"]
