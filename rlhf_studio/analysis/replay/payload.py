"""The replay of one run as plain data: what the player in the page, the page as one file, and the animated picture draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlhf_studio.analysis.compare.runs import numbers
from rlhf_studio.analysis.doctor.doctor import diagnosis
from rlhf_studio.analysis.doctor.in_counts import in_counts
from rlhf_studio.analysis.doctor.recorded import RecordedRun
from rlhf_studio.analysis.doctor.run_data import RunCache, RunData
from rlhf_studio.analysis.logs.shareable import without_secrets
from rlhf_studio.analysis.records import Verdict
from rlhf_studio.analysis.replay.answers import answers_of, is_shaped, score_of
from rlhf_studio.analysis.replay.moments import USUAL_KL, marks_of, moments_of, told
from rlhf_studio.analysis.series import evenly
from rlhf_studio.language import _, together
from rlhf_studio.language import told as in_words
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import RolloutRecord
from rlhf_studio.runs.rows import tenth

SERIES = {"score": "objective/scores", "gold": "gold/score", "kl": "objective/kl"}
MOST_STEPS = 240
"""Steps that a replay shows; of a longer run they lie evenly, and those of the moments are among them."""
STEP_SECONDS, BREATH = 0.5, 3.0
"""How long a step and a moment last, where the whole fits between the two limits below and the moments take at most half of it."""
SHORTEST, LONGEST = 20, 120
FEWEST_JUDGED, FIRST_JUDGED = 8, 64
ONE_SCALE = 4.0
"""Times: how far the spreads of two judges on one scale may differ."""


def replay_of(reader: RunReader) -> dict[str, Any]:
    """Everything that a replay shows, as JSON: no NaN, and null, never 0, for what is not known.

    Keys:

    - ``run``, ``title``: the run's id and what people call it.
    - ``problem``: present alone beside those two, where there is nothing to replay: one sentence that says why.
    - ``seconds``: how long the whole lasts at single speed, 20 to 120, the pauses at the moments included; ``breath``: the seconds of
      each pause, one for each step that has moments. The steps share the rest evenly.
    - ``steps``: the steps shown, ascending; ``of``: how many the run has.
    - ``series``: ``score``, ``gold`` and ``kl`` (nats per response), one number or null for each of ``steps``; ``gold`` is null as a whole
      in a run without a gold score.
    - ``kl_target``: what the adaptive controller aims at, in nats, else null; ``kl_usual``: where the usual range of a KL ends.
    - ``one_scale``: whether score and gold may share an axis (:func:`on_one_scale`). Where false, each needs an axis of its own, and
      the distance between the two lines says nothing.
    - ``moments``: ascending by step: ``step``, ``kind``, ``sentence``, perhaps a ``name`` for its mark. At most eight that matter:
      ``phrase`` (a phrase spreads), ``gold_turns`` (the doctor's check ``judge-falls``), ``kl`` (its target, or the usual range, is
      passed), ``clipping`` (far too many tokens are clipped, or an update moves too far), ``settings`` (changed while the run went on),
      ``score`` (it has risen by more than chance), ``alarm`` (any other alarm of the doctor's). Beside them ``start`` (the first numbers),
      ``stretch`` (what has changed in a long stretch without a moment) and ``end`` (what a run that is over came to).
    - ``marks``: small marks without a pause, of the same form; kinds ``first``, ``last``, ``checkpoint``.
    - ``tokens``: what colours them: ``quantity`` (``advantages`` or ``kl``), its ``label``, ``centre`` and ``limit``: a value is
      coloured by its distance from the centre, fully at ``limit``. One scale for all answers and steps. Null where no token has a number.
    - ``answers``: up to four: ``prompt``, ``watched`` (false for prompts that the run sampled now and then), and ``frames``, ascending by
      step: ``step`` (0 is the starting policy; a frame stands until the next one), ``tokens``, ``values``, ``score`` (as the curve's),
      ``gold``, ``stopped`` (whether the last of ``tokens`` is the end token; null where not known), ``left_out`` (tokens behind those
      shown). A frame has a ``prompt`` of its own where the run answered no prompt twice; the answer's is empty then. Without recorded
      tokens a frame has words, with the value null. A token has at most 160 characters.

    Texts lose secrets that are well known, as everywhere (:func:`~rlhf_studio.analysis.logs.shareable.without_secrets`).

    Raises StoreError when the run cannot be read.
    """
    run = RunCache(reader).read()
    with reader.snapshot():
        status = reader.status()
        head = {"run": status.run_id, "title": in_words(status.name) if status.recording else without_secrets(status.name or status.run_id)}
        problem = nothing_to_replay(run)
        if problem or not isinstance(run, RunData):
            return {**head, "problem": problem}
        found = diagnosis(run)
        moments = told(run, moments_of(run, found.findings), _outcome(run, found.verdict))
        rows = shown_rows(run.steps, [moment["step"] for moment in moments])
        answers, tokens = answers_of(reader, run)
    series = {name: numbers(run.column(metric)[rows]) if run.has(metric) else None for name, metric in SERIES.items()}
    adaptive = run.settings_known and run.config.ppo.kl_controller == "adaptive"
    return {
        **head,
        **timing(len(rows), len({moment["step"] for moment in moments})),
        "steps": run.steps[rows].tolist(),
        "of": len(run.steps),
        "series": {name: [None] * len(rows) if line is None and name != "gold" else line for name, line in series.items()},
        "kl_target": float(run.setting("ppo.kl_target")[-1]) if adaptive else None,
        "kl_usual": USUAL_KL,
        "one_scale": on_one_scale([record for _, rows_of_step in run.looks for record in rows_of_step], shaped=is_shaped(run)),
        "moments": moments,
        "marks": marks_of(run),
        "tokens": tokens,
        "answers": answers,
    }


def _outcome(run: RunData, verdict: Verdict) -> str:
    """What a run that is over came to: the first sentence at the end of its page; empty where there is nothing to say yet."""
    known = run.ended and verdict.kind not in ("too early", "not known")
    if not known:
        return ""
    said, last = in_counts(run, verdict.kind, with_phrase=False), run.steps[-tenth(len(run.steps)) :]
    if said or len(last) == 1 or " \u2192 " not in verdict.sentence:
        return said or verdict.sentence
    means = _("The numbers after the arrows are means of steps {first:,} to {last:,}.")
    return together(verdict.sentence, means.format(first=int(last[0]), last=int(last[-1])))


def nothing_to_replay(run: RecordedRun) -> str:
    """Why there is nothing to replay, in one sentence; empty where there is something."""
    if not isinstance(run, RunData):
        return _("Only a PPO run can be replayed: in other stages no answers are scored at each step.")
    if len(run.steps) < 2:
        return _("There is nothing to replay yet: a replay needs two recorded steps.")
    if not any(run.has(metric) for metric in SERIES.values()):
        return _("There is nothing to replay: this run has recorded no score, no gold score and no KL.")
    return ""


def shown_rows(steps: np.ndarray, moments: Sequence[int], most: int = MOST_STEPS) -> np.ndarray:
    """Which of the steps (S,) are shown, as ascending indices: all, or at most ``most``, with the first, the last and the moments'."""
    if len(steps) <= most:
        return np.arange(len(steps))
    needed = np.searchsorted(steps, np.array(sorted(moments), np.int64))
    return np.union1d(evenly(len(steps), most - len(needed)), needed)


def timing(steps: int, pauses: int) -> dict[str, float]:
    """How long it all lasts, and each pause."""
    paused = BREATH * pauses
    wanted = max(STEP_SECONDS * steps + paused, 2 * paused)
    return {"seconds": float(min(max(wanted, SHORTEST), LONGEST)), "breath": BREATH}


def on_one_scale(responses: Sequence[RolloutRecord], *, shaped: bool = False) -> bool:
    """Whether score and gold are numbers of one scale, told by what both say of the run's first responses.

    ``shaped`` says that the recorded scores are not those of the chart (:func:`~rlhf_studio.analysis.replay.answers.score_of`).
    Neither is converted, so one axis can hold both only if their points are alike: over the first responses that both have judged the
    standard deviations differ by no more than :data:`ONE_SCALE` times, and the means lie no further apart than the larger of the two. In
    the review world the score has mean 0 and standard deviation 1, and gold lies between -1 and 1: one scale. False with fewer than
    :data:`FEWEST_JUDGED` responses.
    """
    both = [(score_of(row, shaped), row.gold) for row in responses if row.gold is not None]
    judged = [pair for pair in both if np.isfinite(pair).all()]
    if len(judged) < FEWEST_JUDGED:
        return False
    means, spreads = np.mean(judged[:FIRST_JUDGED], axis=0), np.std(judged[:FIRST_JUDGED], axis=0)
    alike = spreads.min() > 0 and spreads.max() <= ONE_SCALE * spreads.min()
    return bool(alike and abs(means[0] - means[1]) <= spreads.max())
