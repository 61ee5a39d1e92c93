"""Names of what ships with the project: ``bundled/world-policy`` instead of a path that differs on every machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rlhf_studio.language import S_

_PACKAGE = Path(__file__).resolve().parents[1]
ASSETS = _PACKAGE / "assets" if (_PACKAGE / "assets").is_dir() else _PACKAGE.parent / "assets"
"""In the package where it was installed from a wheel (``setup.py``), beside it in a checkout."""
DOCS = _PACKAGE / "docs" if (_PACKAGE / "docs").is_dir() else _PACKAGE.parent / "docs"
"""The documents, which the Help page shows; they lie as the assets do."""

BUNDLED = {
    "bundled/world-policy": "world/policy",
    "bundled/world-reward": "world/reward",
    "bundled/world-prompts": "world/prompts.jsonl",
    "bundled/world-prompts-heldout": "world/prompts_heldout.jsonl",
    "bundled/sums-policy": "sums/policy",
    "bundled/sums-prompts": "sums/prompts.jsonl",
    "bundled/sums-prompts-heldout": "sums/prompts_heldout.jsonl",
    "bundled/unsafe-prompts": "safety/unsafe.jsonl",
    "bundled/harmless-prompts": "safety/safe.jsonl",
    "bundled/swap-pairs": "safety/swaps.jsonl",
}
LESSON_RUN = ASSETS / "lessons" / "run.zip"
"""The recorded run that lessons ask; ``python -m rlhf_studio world lesson-run`` makes it."""
RECORDED, WITHOUT_KL, ADAPTERS, VALUE_HEAD = "run", "without_kl", "adapters.safetensors", "value_head."
"""What is in it: two run folders, and the policies of the first one's steps; the names of the value heads' weights begin with the last."""
NEW_LOGPROBS = "new_logprobs"
"""Of all episodes of its steps, beside what every run keeps of them: the log-probabilities in the update's last pass."""
ONE_BATCH = ASSETS / "lessons" / "one_batch.json"
"""What all algorithms made of one batch of the tiny world; ``python -m rlhf_studio compare-updates --fresh 1024 --out FILE`` makes it."""
COLLAPSED_RUN = ASSETS / "recordings" / "collapsed.zip"
"""A recorded run whose learning rate is far too high; ``python -m rlhf_studio world recordings`` makes it."""
COLLAPSED = "collapsed"
"""The run folder in it."""


@dataclass(frozen=True)
class Recording:
    """A recorded run that came with the program.

    Attributes:
        run_id: its id, and its folder's name when it is unpacked.
        name: what people call it.
        about: one sentence of what it shows.
        archive, folder: where it is packed, and the run folder in there.
    """

    run_id: str
    name: str
    about: str
    archive: Path
    folder: str


RECORDINGS = (
    Recording(
        "recording-improves",
        S_("A run that improves"),
        S_("The usual settings of the tiny world: the score rises, and the gold score rises with it."),
        LESSON_RUN,
        RECORDED,
    ),
    Recording(
        "recording-exploits",
        S_("A run that exploits its reward"),
        S_("The same run with a KL coefficient of zero: the score goes on rising while the gold score turns and falls."),
        LESSON_RUN,
        WITHOUT_KL,
    ),
    Recording(
        "recording-collapses",
        S_("A run that collapses"),
        S_("The same run with a learning rate that is far too high: sentences fall apart, until nothing is written any more."),
        COLLAPSED_RUN,
        COLLAPSED,
    ),
)
PAGES = ASSETS / "recordings" / "pages.zip"
"""Finished examples of what Road, Evaluate and Feedback show; ``python -m tools.page_examples`` makes them."""
PAGE_EXAMPLES = (
    Recording(
        "example-road", S_("The road through the tiny world"), S_("A small road, from random weights to a comparison."), PAGES, "road"
    ),
    Recording("example-road-evaluation", S_("The end of that road"), S_("Its last policy against its first."), PAGES, "road-evaluation"),
    Recording("example-evaluation", S_("A run that exploits its reward"), S_("Its policies, every six steps."), PAGES, "evaluation"),
    Recording(
        "example-feedback", S_("Start or end of a run?"), S_("Pairs that four rules have rated, in place of people."), PAGES, "feedback"
    ),
)
"""They are found by their ids, and are in no list of runs. The first is the folder of a road, the last one with answers of raters."""
EXAMPLE_ROAD, EXAMPLE_ROAD_EVALUATION, EXAMPLE_EVALUATION, EXAMPLE_FEEDBACK = (example.run_id for example in PAGE_EXAMPLES)
REPLAYED = RECORDINGS[1].run_id
"""The recording that plays where there is nothing of one's own to see yet: what can go wrong is told best by a run in which it does."""
HELD_OUT = ("bundled/world-prompts-heldout", "bundled/sums-prompts-heldout")
"""Prompts that nothing which ships with the project learned from."""
PAIR_FILES = ("bundled/swap-pairs",)
"""Of :data:`BUNDLED`, those that are pairs."""
WRITTEN = {
    "demonstrations": ("bundled/world-reviews", "bundled/world-reviews-heldout"),
    "pairs": ("bundled/world-pairs", "bundled/world-pairs-heldout"),
}
"""Kind of examples -> the names of those that are no file: the review world writes them anew from its seeds when they are read."""


def bundled_path(name: str) -> Path | None:
    """Where a bundled name lies in this installation; None for any other name."""
    return ASSETS / BUNDLED[name] if name in BUNDLED else None
