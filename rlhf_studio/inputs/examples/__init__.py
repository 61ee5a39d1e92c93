"""What the supervised stages learn from, in the steps in which it is made:

:mod:`reading`   rows of a source become demonstrations or pairs
:mod:`rows`      what comes of them, and why some are left out
:mod:`held_out`  examples that training never sees
:mod:`texts`     examples as the texts that models read: chat template or prompt format
:mod:`prepare`   token ids, labels, and cuts by length; :mod:`pieces` encodes, :mod:`encoded` is what comes of it
:mod:`cached`    the same, remembered, so that a form can ask at every change
:mod:`preview`   what a person sees of it before anything is loaded
:mod:`check`     what is wrong with it before a stage starts, and how long the examples are
"""

from __future__ import annotations

from rlhf_studio.inputs.examples.encoded import EncodedExample, EncodedPair, PreparedDemonstrations, PreparedPairs
from rlhf_studio.inputs.examples.held_out import split_held_out
from rlhf_studio.inputs.examples.prepare import prepare_demonstrations, prepare_pairs
from rlhf_studio.inputs.examples.reading.demonstrations import read_demonstrations
from rlhf_studio.inputs.examples.reading.pairs import read_pairs
from rlhf_studio.inputs.examples.rows import Demonstration, Demonstrations, Pair, Pairs
from rlhf_studio.inputs.prompts.errors import PromptsError

__all__ = [
    "Demonstration", "Demonstrations", "EncodedExample", "EncodedPair", "Pair", "Pairs", "PreparedDemonstrations", "PreparedPairs",
    "PromptsError", "prepare_demonstrations", "prepare_pairs", "read_demonstrations", "read_pairs", "split_held_out",
]  # fmt: skip
