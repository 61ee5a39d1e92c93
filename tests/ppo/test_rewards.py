import json
import math
import statistics

import pytest
import torch

from rlhf_studio.ppo import RunningMoments, scale_scores, shape_rewards

# ---- rewards per token ----


def test_hand_worked():
    kl = torch.tensor([[0.5, 1.0, -2.0], [3.0, 9.0, 9.0]])
    mask = torch.tensor([[True, True, True], [True, False, False]])
    rewards = shape_rewards(kl, torch.tensor([10.0, -1.0]), mask, 0.1)
    # −0.1 · kl, and the score on the last real token of each row
    torch.testing.assert_close(rewards, torch.tensor([[-0.05, -0.1, 10.2], [-1.3, 0.0, 0.0]]))


def test_a_bad_score_stays_in_its_episode(mask, noise):
    scores = noise(4)
    kl = noise(4, 6)
    clean = shape_rewards(kl, scores, mask, 0.3)
    scores[1] = torch.nan
    bad = shape_rewards(kl, scores, mask, 0.3)
    assert bad[1, 2].isnan()
    bad[1, 2] = clean[1, 2]
    assert torch.equal(bad, clean)


def test_steps_inside_the_response_hand_worked():
    """A step of 2 ends at the first token, the whole response earned 5; -0.5 is charged for the KL of 1 at the second."""
    kl, mask = torch.tensor([[0.0, 1.0, 0.0, 9.0]]), torch.tensor([[True, True, True, False]])
    early = torch.tensor([[2.0, 0.0, 0.0, 0.0]])
    assert shape_rewards(kl, torch.tensor([5.0]), mask, 0.5, early=early).tolist() == [[2.0, -0.5, 3.0, 0.0]]


@pytest.mark.parametrize("tokens", [3, 0])
def test_response_without_tokens(tokens):
    mask = torch.ones(2, tokens, dtype=torch.bool)
    mask[1] = False
    with pytest.raises(ValueError, match=f"episode {1 if tokens else 0} has no response token"):
        shape_rewards(torch.zeros(2, tokens), torch.zeros(2), mask, 0.1)


# ---- running moments ----


def test_moments_hand_worked():
    moments = RunningMoments()
    assert moments.update(torch.tensor([1.0, 3.0])) == pytest.approx((2, math.sqrt(2)))
    assert (moments.mean, moments.std, moments.count) == pytest.approx((2, math.sqrt(2), 2))
    assert moments.update(torch.tensor([8.0])) == (8, 0)
    # 1, 3, 8: mean 4, squared deviations 9 + 1 + 16
    assert (moments.mean, moments.std, moments.count) == pytest.approx((4, math.sqrt(26 / 2), 3))


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_moments_equal_those_of_all_scores_together(offset):
    generator = torch.Generator().manual_seed(1)
    moments, recorded = RunningMoments(), []
    for size in (1, 7, 2, 64, 1, 30):
        scores = 5 * torch.randn(size, generator=generator) + offset
        batch_mean, batch_std = moments.update(scores)
        assert batch_mean == pytest.approx(statistics.fmean(scores.tolist()), rel=1e-12)
        assert batch_std == pytest.approx(statistics.stdev(scores.tolist()) if size > 1 else 0, rel=1e-9)
        recorded += scores.tolist()
    assert moments.count == len(recorded)
    assert moments.mean == pytest.approx(statistics.fmean(recorded), rel=1e-12)
    assert moments.std == pytest.approx(statistics.stdev(recorded), rel=1e-9)


def test_moments_before_two_scores_scale_nothing():
    moments = RunningMoments()
    assert (moments.count, moments.mean, moments.std) == (0, 0.0, 1.0)
    moments.update(torch.tensor([5.0]))
    assert (moments.count, moments.mean, moments.std) == (1, 5.0, 1.0)


def test_moments_continue_from_json_bit_for_bit():
    straight, first = RunningMoments(), RunningMoments()
    batches = torch.randn(6, 5, generator=torch.Generator().manual_seed(2))
    for batch in batches[:3]:
        straight.update(batch), first.update(batch)
    state = json.loads(json.dumps(first.state_dict()))
    assert all(isinstance(number, float) for number in first.state_dict().values())
    second = RunningMoments()
    second.load_state_dict(state)
    for batch in batches[3:]:
        straight.update(batch), second.update(batch)
    assert second.state_dict() == straight.state_dict()
    assert (second.count, second.mean, second.std) == (straight.count, straight.mean, straight.std)


def test_moments_refuse_what_would_spoil_them():
    moments = RunningMoments()
    moments.update(torch.tensor([1.0, 2.0]))
    before = moments.state_dict()
    with pytest.raises(ValueError, match="scores is empty"):
        moments.update(torch.tensor([]))
    for bad in (math.nan, math.inf, -math.inf):
        with pytest.raises(ValueError, match="the score of episode 2 is not finite"):
            moments.update(torch.tensor([1.0, 2.0, bad]))
    assert moments.state_dict() == before


# ---- scaling of scores ----


@pytest.fixture
def moments():
    moments = RunningMoments()
    moments.update(torch.tensor([2.0, 4.0, 6.0]))  # mean 4, std 2
    return moments


@pytest.mark.parametrize(
    ("mode", "clip", "expected"),
    [
        ("none", 0.0, [2, 4, 9]),
        ("none", None, [2, 4, 9]),
        ("none", 3.0, [2, 3, 3]),
        ("scale", 0.0, [1, 2, 4.5]),
        ("scale", 1.5, [1, 1.5, 1.5]),
        ("normalise", 0.0, [-1, 0, 2.5]),
        ("normalise", 0.5, [-0.5, 0, 0.5]),
    ],
)
def test_scaling_hand_worked(moments, mode, clip, expected):
    scores = torch.tensor([2.0, 4.0, 9.0])
    assert scale_scores(scores, moments, mode, clip).tolist() == expected
    assert scores.tolist() == [2, 4, 9] and moments.count == 3  # neither is changed


@pytest.mark.parametrize(("mode", "expected"), [("scale", 0.1), ("normalise", 0.0)])
def test_equal_scores_are_not_blown_up(mode, expected):
    moments, scores = RunningMoments(), torch.full((7,), 0.1)
    moments.update(scores)
    assert scale_scores(scores, moments, mode).tolist() == pytest.approx(7 * [expected], abs=1e-6)


def test_scaling_of_a_first_single_score():
    moments, score = RunningMoments(), torch.tensor([5.0])
    moments.update(score)
    assert scale_scores(score, moments, "scale").item() == 5
    assert scale_scores(score, moments, "normalise").item() == 0


def test_scaling_refuses_bad_settings(moments):
    with pytest.raises(ValueError, match="mode must be none, scale or normalise, got 'whiten'"):
        scale_scores(torch.zeros(2), moments, "whiten")
    for clip in (-1.0, math.nan):
        with pytest.raises(ValueError, match=f"clip must be above 0, or None or 0 for no limit, got {clip}"):
            scale_scores(torch.zeros(2), moments, "none", clip)
