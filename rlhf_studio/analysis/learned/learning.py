"""What the policy of a run has learned up to a step, put together; and a form for runs that go on."""

from __future__ import annotations

from rlhf_studio.analysis.learned.chance import STEPS_TO_TELL
from rlhf_studio.analysis.learned.examples import Examples
from rlhf_studio.analysis.learned.gaps import judged, widest_gaps
from rlhf_studio.analysis.learned.phrases import changed_phrases
from rlhf_studio.analysis.learned.probes import shifts
from rlhf_studio.analysis.learned.responses import MOST_RECORDED, Corpus, ResponseSource, corpus, first_steps, side_of
from rlhf_studio.analysis.learned.same import one_answer
from rlhf_studio.analysis.learned.traits import changed_traits
from rlhf_studio.analysis.records import Learned, Phrase, TokenShift, Trait
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import RolloutRecord


class Learning:
    """What a run has learned so far, asked again and again while it goes on: steps that were read are not read again.

    Not for use by several threads at once. Every call raises StoreError where the run cannot be read.
    """

    def __init__(self, reader: RunReader):
        self._reader = reader
        self._source = ResponseSource(reader)
        self._rollouts: dict[int, list[RolloutRecord]] = {}
        self._epoch: int | None = None

    def upto(self, step: int | None = None) -> Learned:
        """What was learned between the first steps and those before and at ``step``; without it, the newest ones.

        Compared are the first and the last tenth of the steps that are looked at (see :mod:`rlhf_studio.analysis.learned.responses`),
        at least three each, or half of them where there are fewer than six. Where nearly all answers are one answer by now, the policy may
        have gone to pieces in its first update: the start is then what it wrote before
        (:func:`~rlhf_studio.analysis.learned.responses.first_steps`).
        """
        with self._reader.snapshot():
            epoch = self._reader.status().epoch
            if epoch != self._epoch:
                self._epoch, self._rollouts = epoch, {}
                self._source.forget()
            steps = self._source.steps_to_read(step)
            responses = self._source.load(steps)
            rose, fell = self._shifts(step)
            recorded = self._recorded(step)
            if not responses:
                return Learned((0, 0), (0, 0), [], [], widest_gaps(recorded), rose, fell, enough=False)
            read_steps = [tokens.step for tokens in responses]
            last = side_of(len(read_steps))
            all_responses = corpus([self._source.known[step] for step in read_steps], self._source.pieces)
            same = one_answer(all_responses, last)
            first = first_steps(responses, last) if same else last
            phrases, traits = self._responses(all_responses, read_steps, first, last)
        sides = (read_steps[0], read_steps[first - 1]), (read_steps[-last], read_steps[-1])
        enough = len(read_steps) >= STEPS_TO_TELL
        return Learned(*sides, phrases, traits, widest_gaps(recorded), rose, fell, enough, same, judged(recorded))

    def _responses(self, all_responses: Corpus, read_steps: list[int], first: int, last: int) -> tuple[list[Phrase], list[Trait]]:
        source = self._source
        ends = sorted({*read_steps[:first], *read_steps[-last:]})
        with_responses = [step for step in ends if source.recorded_of(ends)[step]]
        examples = Examples(all_responses, source, with_responses)
        phrases = examples.as_phrases(changed_phrases(all_responses, last, examples.legible, first))
        traits = changed_traits(all_responses, first, last, self._reader.origin().unit)
        return phrases, traits

    def _recorded(self, until: int | None) -> list[tuple[int, RolloutRecord]]:
        steps = self._source.recorded_steps_to_read(until)
        self._rollouts = {step: self._rollouts[step] if step in self._rollouts else self._reader.rollouts(step) for step in steps}
        return [(step, record) for step, records in self._rollouts.items() for record in records[:MOST_RECORDED]]

    def _shifts(self, until: int | None) -> tuple[list[TokenShift], list[TokenShift]]:
        probes, scores = self._reader.probes()
        if not probes:
            return [], []
        pieces = self._reader.pieces()
        return shifts(probes, scores, pieces, until)


def what_was_learned(reader: RunReader, until: int | None = None) -> Learned:
    """What the policy of a run learned between its first steps and its newest ones, or those up to ``until``. Raises StoreError."""
    return Learning(reader).upto(until)
