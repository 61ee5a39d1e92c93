"""The same sentence under every policy of a run. The bundled run's policies read it now; for other runs the recorded probes are used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlhf_studio.engine.text import token_pieces
from rlhf_studio.lessons.kit import CannotAsk
from rlhf_studio.lessons.record import RecordedRun
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
        candidates: for each position the texts of K tokens, the sentence's own token among them, and their log-probabilities (S, K).
            They are the starting policy's likeliest; for the bundled run also the last policy's.
        recorded: the step whose policy wrote the sentence, and the log-probabilities of its tokens that were recorded then; None for
            probes.
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
        chances: np.ndarray = np.exp(self.logprobs)
        return chances


def count(record: RecordedRun) -> int:
    """How many sentences there are. Raises :class:`CannotAsk` for a run without."""
    return len(WRITTEN_AT) if record.models is not None else len(_probes(record))


def history(record: RecordedRun, number: float) -> History:
    """A sentence's history, by its number from 1. Raises :class:`CannotAsk`."""
    models = record.models
    if models is not None:
        return record.remember(("history", number), lambda: _computed(record, models, *WRITTEN_AT[int(number) - 1]))
    return _probes(record)[int(number) - 1]


def _computed(record: RecordedRun, models: LessonRun, step: int, sample: int) -> History:
    chosen, of = models.samples(step)[sample - 1], record.recorded(step)
    tokens = models.batch([chosen.prompt_ids], [chosen.ids])
    steps = list(range(models.steps + 1))
    all_logprobs = np.stack([models.distributions(at, tokens).double().numpy() for at in steps])  # (S, T, V)
    candidates = []
    for index, own in enumerate(chosen.ids):
        likeliest = [np.argsort(-all_logprobs[at, index])[:LIKELIEST].tolist() for at in (0, -1)]
        ids = list(dict.fromkeys([own, *likeliest[0], *likeliest[1]]))
        candidates.append(([token_pieces(models.tokenizer, [token])[0] for token in ids], all_logprobs[:, index, ids]))
    logprobs = all_logprobs[:, range(len(chosen.ids)), chosen.ids]
    on_record = of.logprobs[sample - 1][of.mask[sample - 1]].numpy()
    return History(chosen.prompt, chosen.pieces, steps, logprobs, candidates, (step - 1, on_record))


def _probes(record: RecordedRun) -> list[History]:
    return record.remember("probes", lambda: _read(record))


def _read(record: RecordedRun) -> list[History]:
    probes, scores = record.reader.probes()
    pieces = record.reader.pieces()
    histories = [_of_probe(probe, [(step, score) for step, score in scores if score.probe == probe.probe], pieces) for probe in probes]
    complete = [known for known in histories if known is not None]
    if not complete:
        raise CannotAsk(
            f"This run has no probes with {FEWEST_STEPS} steps or more. A run reads probes after each step when it watches prompts "
            "(engine.watch_prompts, engine.probe_prompts)."
        )
    return complete


def _of_probe(probe: Probe, scores: Sequence[tuple[int, ProbeScore]], pieces: dict[int, str]) -> History | None:
    """A probe's history; None without the starting policy, or with too few steps."""
    steps = [step for step, _ in scores]
    if len(steps) < FEWEST_STEPS or steps[0] != 0:
        return None
    start, logprobs = scores[0][1], np.stack([score.logprobs for _, score in scores]).astype(np.float64)
    others = np.stack([score.logprobs_of_start for _, score in scores]).astype(np.float64)  # (S, T, 5)
    candidates = []
    for index, own in enumerate(probe.pieces):
        texts = [pieces.get(token, "") for token in start.top_ids[index].tolist()]
        keep = [at for at, text in enumerate(texts) if text and not _is_own(own, text, logprobs[:, index], others[:, index, at])]
        columns = np.concatenate([logprobs[:, [index]], others[:, index, keep]], axis=1)
        candidates.append(([own, *(texts[at] for at in keep)], columns))
    return History(probe.prompt, probe.pieces, steps, logprobs, candidates)


def _is_own(own: str, text: str, of_own: np.ndarray, of_other: np.ndarray) -> bool:
    """Whether a likely token is the probe's own: a text may miss its space there, and two tokens are never equally likely all the time."""
    return own.strip() == text.strip() and bool(np.abs(of_own - of_other).max() < 1e-4)
