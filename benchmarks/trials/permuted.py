"""How often "what did it learn" claims something of a run whose steps stand in an order drawn at random: nothing is to be learned there."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rlhf_studio.analysis.learned.phrases import changed_phrases
from rlhf_studio.analysis.learned.responses import ResponseSource, corpus, side_of
from rlhf_studio.analysis.learned.traits import changed_traits
from rlhf_studio.runs.reader import RunReader


def claims(folder: Path, tries: int, seed: int = 0) -> int:
    """In how many of the tries any phrase or trait was claimed, from all episodes of the run."""
    source, draw = ResponseSource(RunReader(folder)), np.random.default_rng(seed)
    found = source.load(source.kept_steps(None))
    source.recorded_of([tokens.step for tokens in found])
    side = side_of(len(found))
    claimed = 0
    for _ in range(tries):
        whole = corpus([found[index] for index in draw.permutation(len(found))], source.pieces)
        claimed += bool(changed_phrases(whole, side)) or any(trait.changed for trait in changed_traits(whole, side))
    return claimed
