"""The same sentence under every policy of a run: of the bundled run its policies are asked, of other runs the probes were recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlhf_studio.engine.text import token_pieces
from rlhf_studio.lessons.kit import CannotAsk
from rlhf_studio.lessons.record import Record
from rlhf_studio.lessons.run import LessonRun
from rlhf_studio.runs.records import Probe, ProbeScore

WRITTEN_AT = ((12, 3), (1, 3), (1, 7), (36, 4))
"""The sentences that the bundled run's policies read: step and number of the response."""
LIKELIEST = 5
FEWEST_STEPS = 4


@dataclass(frozen=True)
class History:
    """A sentence of T tokens under the S policies of ``steps``; step 0 is the starting policy.

    Attributes:
        pieces: the texts of its tokens.
        logprobs: (S, T) of its own tokens.
        candidates: for each place the texts of tokens that could stand there, its own one among them, and their log-probabilities (S, K).
            They are those that the starting policy found likeliest; of the bundled run also those of the last policy.
        recorded: what the run has on record of the sentence's tokens from when it was written, and by the policy of which step; of probes
            nothing beside the history itself.
    """

    prompt: str
    pieces: list[str]
    steps: list[int]
    logprobs: np.ndarray
    candidates: list[tuple[list[str], np.ndarray]]
    recorded: tuple[int, np.ndarray] | None = None

    @property
    def chances(self) -> np.ndarray:
        """(S, T) probabilities of its own tokens."""
        found: np.ndarray = np.exp(self.logprobs)
        return found


def count(record: Record) -> int:
    """How many sentences there are. Raises :class:`CannotAsk` for a run without."""
    return len(WRITTEN_AT) if record.models is not None else len(_probes(record))


def history(record: Record, number: float) -> History:
    """A sentence's history, by its number from 1. Raises :class:`CannotAsk`."""
    models = record.models
    if models is not None:
        return record.remember(("history", number), lambda: _asked(record, models, *WRITTEN_AT[int(number) - 1]))
    return _probes(record)[int(number) - 1]


def _asked(record: Record, models: LessonRun, step: int, sample: int) -> History:
    one, of = models.samples(step)[sample - 1], record.recorded(step)
    tokens = models.batch([one.prompt_ids], [one.ids])
    steps = list(range(models.steps + 1))
    whole = np.stack([models.distributions(at, tokens).double().numpy() for at in steps])  # (S, T, V)
    candidates = []
    for place, own in enumerate(one.ids):
        likeliest = [np.argsort(-whole[at, place])[:LIKELIEST].tolist() for at in (0, -1)]
        ids = list(dict.fromkeys([own, *likeliest[0], *likeliest[1]]))
        candidates.append(([token_pieces(models.tokenizer, [token])[0] for token in ids], whole[:, place, ids]))
    logprobs = whole[:, range(len(one.ids)), one.ids]
    on_record = of.logprobs[sample - 1][of.mask[sample - 1]].numpy()
    return History(one.prompt, one.pieces, steps, logprobs, candidates, (step - 1, on_record))


def _probes(record: Record) -> list[History]:
    return record.remember("probes", lambda: _read(record))


def _read(record: Record) -> list[History]:
    probes, scores = record.reader.probes()
    pieces = record.reader.pieces()
    found = [_of_probe(probe, [(step, score) for step, score in scores if score.probe == probe.probe], pieces) for probe in probes]
    kept = [one for one in found if one is not None]
    if not kept:
        raise CannotAsk(
            f"This run has no probes with {FEWEST_STEPS} steps or more. A run reads probes after each step when it watches prompts "
            "(engine.watch_prompts, engine.probe_prompts)."
        )
    return kept


def _of_probe(probe: Probe, scores: Sequence[tuple[int, ProbeScore]], pieces: dict[int, str]) -> History | None:
    """A probe's history; None without the starting policy, or with too few steps."""
    steps = [step for step, _ in scores]
    if len(steps) < FEWEST_STEPS or steps[0] != 0:
        return None
    start, logprobs = scores[0][1], np.stack([score.logprobs for _, score in scores]).astype(np.float64)
    others = np.stack([score.logprobs_of_start for _, score in scores]).astype(np.float64)  # (S, T, 5)
    candidates = []
    for place, own in enumerate(probe.pieces):
        texts = [pieces.get(token, "") for token in start.top_ids[place].tolist()]
        keep = [at for at, text in enumerate(texts) if text and not _is_own(own, text, logprobs[:, place], others[:, place, at])]
        columns = np.concatenate([logprobs[:, [place]], others[:, place, keep]], axis=1)
        candidates.append(([own, *(texts[at] for at in keep)], columns))
    return History(probe.prompt, probe.pieces, steps, logprobs, candidates)


def _is_own(own: str, text: str, of_own: np.ndarray, of_other: np.ndarray) -> bool:
    """Whether a likely token is the probe's own: a text may miss its space there, and two tokens are never equally likely all the time."""
    return own.strip() == text.strip() and bool(np.abs(of_own - of_other).max() < 1e-4)
