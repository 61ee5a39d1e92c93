"""The phases of a PPO step, between which a run can wait."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Phase:
    """A part of a PPO step.

    Attributes:
        name: as in the metrics: its seconds are ``time/NAME``.
        what: what it is, in the middle of a sentence.
        finds: those of :data:`~rlhf_studio.runs.records.TOKEN_QUANTITIES` that are known from its end on, if the run has them at all.
        done: what a step that waits at its end has, and what comes next. Empty for a part at whose end no step can wait.
        timed: whether its seconds are recorded; what is not takes next to none.
    """

    name: str
    what: str
    finds: tuple[str, ...] = ()
    done: str = ""
    timed: bool = True


PHASES = {
    phase.name: phase
    for phase in (
        Phase("rollout", "sampling", ("logprobs", "entropy", "values"), "its responses are written; their scores come next"),
        Phase("score", "scoring", (), "its responses are scored; the reference's probabilities come next"),
        Phase(
            "reference", "the reference pass", ("ref_logprobs", "kl"), "its responses are compared with the reference; advantages come next"
        ),
        Phase(
            "advantages",
            "the advantages",
            ("rewards", "deltas", "advantages", "whitened_advantages", "returns"),
            "its advantages are computed; the update comes next",
            timed=False,
        ),
        Phase("update", "the update", ("new_logprobs", "ratio", "clipped"), "its update is done; the step is recorded next"),
        Phase("record", "recording"),
    )
}
"""The parts of a step, in their order. After the last one the step is done."""
