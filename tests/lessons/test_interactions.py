"""The scenes that ask the lesson run's policies to write or to learn again: held against what was recorded, and against plain sums."""

from __future__ import annotations

import math
import statistics

import pytest
import torch

from rlhf_studio.lessons import answers
from rlhf_studio.lessons.endings import endings
from rlhf_studio.lessons.parts import beta_dial, dice, microscope, one_update
from rlhf_studio.lessons.run import LessonRun


def test_endings_go_on_from_the_beginning_and_are_scored_like_recorded_responses(run: LessonRun) -> None:
    sample = run.samples(5)[0]
    begun = tuple(sample.ids[:6])
    actual = endings(run, 4, sample.prompt, begun, 3, 1)
    endings.cache_clear()
    again = endings(run, 4, sample.prompt, begun, 3, 1)
    other = endings(run, 4, sample.prompt, begun, 3, 2)
    assert actual is not again and actual.ids == again.ids and actual.ids != other.ids
    assert all(text.startswith(run.tokenizer.decode(begun)) for text in actual.responses)
    whole = run.batch([sample.prompt_ids] * 3, [[*begun, *ending] for ending in actual.ids])
    read = run.read(4, whole).logprobs
    for row, logprobs in enumerate(actual.logprobs):
        assert read[row, len(begun) : len(begun) + len(logprobs)].tolist() == pytest.approx(logprobs, abs=1e-4)
    recorded = endings(
        run, 4, sample.prompt, tuple(sample.ids), 1, 1
    )  # it has ended: nothing is sampled, and the score is the recorded one
    assert sample.stopped and recorded.ids == [[]]
    assert float(recorded.scores) == pytest.approx(sample.score, abs=1e-4)
    assert float(recorded.gold) == pytest.approx(sample.gold, abs=1e-6)


def test_a_beginning_that_is_too_long_is_refused(run: LessonRun) -> None:
    with pytest.raises(ValueError, match="at most 32 tokens, this one begins with 33"):
        endings(run, 0, "The plot", (5,) * 33, 2, 1)
    with pytest.raises(ValueError, match="the steps 0 to 36"):
        endings(run, 37, "The plot", (5,), 2, 1)


def test_the_dial_ends_at_the_reference_and_at_the_best_review() -> None:
    scores = torch.tensor([0.3, -1.0, 2.0, 0.7], dtype=torch.float64)
    gold = torch.tensor([0.1, 0.2, -0.5, 0.4], dtype=torch.float64)
    free = beta_dial.at_price(scores, gold, 1e-3)
    assert (free["proxy"], free["gold"], free["effective"]) == pytest.approx((2.0, -0.5, 1.0))
    assert free["kl"] == pytest.approx(math.log(4))
    dear = beta_dial.at_price(scores, gold, 1e6)
    assert (dear["proxy"], dear["gold"], dear["effective"]) == pytest.approx((0.5, 0.05, 4.0), abs=1e-5)
    assert dear["kl"] == pytest.approx(0, abs=1e-9)
    two = beta_dial.at_price(scores[:2], gold[:2], 1.3)  # e¹ to 1: the weights are 1 / (1 + e⁻¹) and the rest
    assert two["share"] == pytest.approx(1 / (1 + math.exp(-1)))


def test_the_dial_weighs_reviews_of_the_reference(run: LessonRun) -> None:
    actual = beta_dial.reviews(run)
    assert len(actual.ids) == beta_dial.MOST
    batch = run.batch([run.prompt_ids(beta_dial.PROMPT)] * 4, actual.ids[:4])
    read = run.read_reference(batch)
    for row in range(4):
        assert read[row][batch.mask[row]].tolist() == pytest.approx(actual.logprobs[row], abs=1e-4)


def test_the_open_loop_turns_as_far_as_it_may_while_the_kl_is_far_away(run: LessonRun) -> None:
    n = answers.find("what_goes_wrong", "open_loop").compute({"target": 0.5, "horizon": 500, "charged": False}, {"run": run})
    far = sum(kl > 0.6 for kl in n["kl"])  # more than 20 % above: each such step turns as far as it may
    assert far > 30
    first = n["path"][len(n["path"]) - far - 1]
    assert n["path"][-1] == pytest.approx(first * (1 + 0.2 * 64 / 500) ** far)


def test_a_step_on_one_token_is_a_step_of_a_copy(run: LessonRun) -> None:
    sample = run.samples(10)[56]
    before = run.distributions(9, run.batch([sample.prompt_ids], [sample.ids[:3]]))[-1]
    one_update.one_update.cache_clear()
    actual = one_update.one_update(run, 10, 56, 2, 1.0)
    after = run.distributions(9, run.batch([sample.prompt_ids], [sample.ids[:3]]))[-1]
    assert torch.equal(before, after)
    assert torch.tensor(actual.before).log_softmax(dim=0).tolist() == pytest.approx(before.tolist(), abs=1e-4)
    assert actual.after != actual.before
    one_update.one_update(run, 10, 8, 4, -1.0)
    one_update.one_update.cache_clear()
    assert one_update.one_update(run, 10, 56, 2, 1.0) == actual  # nothing is left of the step in between
    still = one_update.one_update(run, 10, 56, 2, 0.0)
    assert still.moved == 0 and still.after == still.before
    assert abs(sum(actual.slope)) < 1e-9


def test_by_the_rule_a_table_pays_by_probability() -> None:
    logits = [1.0, 0.0, -1.0]
    gained = microscope.by_the_rule(logits, 0, 0.1)
    p = torch.tensor(logits, dtype=torch.float64).softmax(dim=0).tolist()
    assert gained[0] - p[0] == pytest.approx(0.1)
    step = math.log(gained[1] / gained[2] * p[2] / p[1]) / (p[2] - p[1])  # the logits of the others fell by step times p
    moved = torch.tensor([1 + step * (1 - p[0]), -step * p[1], -1 - step * p[2]], dtype=torch.float64).softmax(dim=0)
    assert moved.tolist() == pytest.approx(gained)
    lost = microscope.by_the_rule(logits, 0, -0.1)
    assert p[0] - lost[0] == pytest.approx(0.1) and lost[1] > p[1]


def test_dice_need_no_throw_where_the_response_has_ended(run: LessonRun) -> None:
    step, row = next((step, row) for step in range(2, 37) for row, sample in enumerate(run.samples(step)) if len(sample.ids) == 12)
    n = dice.SCENE.compute({"step": step, "sample": row + 1, "place": 12, "rank": 1}, {"run": run})
    of, sample = run.recorded(step), run.samples(step)[row]
    paid = of.settings.kl_coef * float(of.logprobs[row, 11] - of.ref_logprobs[row, 11])
    assert n["written_error"] == pytest.approx(0, abs=1e-6)
    assert n["written"] == pytest.approx(sample.score - paid, abs=1e-3)
    assert n["state_error"] > 0


@pytest.mark.long
def test_dice_agree_with_themselves_in_new_throws(run: LessonRun) -> None:
    sample = run.samples(3)[29]
    means = [statistics.fmean(dice.thrown(run, 3, sample.prompt, tuple(sample.ids[:2]), 2, seed).returns) for seed in (1, 11)]
    n = dice.SCENE.compute(dice.SCENE.start(), {"run": run})
    assert means[0] == pytest.approx(n["state"])
    assert abs(means[1] - means[0]) < 4 * math.sqrt(2) * n["state_error"]
    assert n["better"] == "written" and n["guess"] < 0 < n["worth"] - 2 * n["worth_error"]  # the token that the text shows at its start
