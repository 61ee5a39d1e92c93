"""What the supervised stages learn from, in the steps in which it is made:

:mod:`shapes`          which columns hold what, and how a shape is recognised
:mod:`table`           rows of a source, bounded, as the cells of the shape's parts; :mod:`world` writes the review world's own
:mod:`demonstrations`  rows become examples to imitate
:mod:`pairs`           rows become pairs of responses; :mod:`rated` where each response has a rating
:mod:`rows`            what comes of them, and why some are left out; :mod:`notes` says it in sentences
:mod:`held_out`        examples that training never sees
:mod:`texts`           examples as the texts that models read: chat template or prompt format
:mod:`prepare`         token ids, labels, and cuts by length; :mod:`pieces` encodes, :mod:`encoded` is what comes of it
"""

from __future__ import annotations

from rlhf_studio.inputs.examples.demonstrations import read_demonstrations
from rlhf_studio.inputs.examples.encoded import EncodedExample, EncodedPair, PreparedDemonstrations, PreparedPairs
from rlhf_studio.inputs.examples.held_out import split_held_out
from rlhf_studio.inputs.examples.pairs import read_pairs
from rlhf_studio.inputs.examples.prepare import prepare_demonstrations, prepare_pairs
from rlhf_studio.inputs.examples.rows import Demonstration, Demonstrations, Pair, Pairs
from rlhf_studio.inputs.prompts.errors import PromptsError

__all__ = [
    "Demonstration", "Demonstrations", "EncodedExample", "EncodedPair", "Pair", "Pairs", "PreparedDemonstrations", "PreparedPairs",
    "PromptsError", "prepare_demonstrations", "prepare_pairs", "read_demonstrations", "read_pairs", "split_held_out",
]  # fmt: skip
