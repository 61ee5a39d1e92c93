"""What the supervised stages learn from, in the steps in which it is made:

:mod:`shapes`          which columns hold what, and how a shape is recognised
:mod:`table`           rows of a source, bounded, as the cells of the shape's parts
:mod:`world`           the review world's own examples, written from its seeds
:mod:`demonstrations`  rows become examples to imitate
:mod:`pairs`           rows become pairs of responses; :mod:`rated` where each response has a rating
:mod:`rows`            what comes of them, and why some are left out
:mod:`notes`           what a person should know of a source
"""

from __future__ import annotations

from rlhf_studio.inputs.examples.demonstrations import read_demonstrations
from rlhf_studio.inputs.examples.pairs import read_pairs
from rlhf_studio.inputs.examples.rows import Demonstration, Demonstrations, Pair, Pairs
from rlhf_studio.inputs.prompts.errors import PromptsError

__all__ = ["Demonstration", "Demonstrations", "Pair", "Pairs", "PromptsError", "read_demonstrations", "read_pairs"]
