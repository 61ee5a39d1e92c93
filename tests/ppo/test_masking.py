import pytest
import torch

from rlhf_studio.ppo import masked_mean, masked_select, masked_sum, masked_var

X = torch.tensor([[1.0, 2.0, 6.0], [7.0, 8.0, 9.0]])
MASK = torch.tensor([[True, True, True], [True, False, False]])
EMPTY = torch.zeros(2, 3, dtype=torch.bool)


def test_hand_worked():
    # the real tokens are 1, 2, 6, 7: sum 16, mean 4, squared deviations 9 + 4 + 4 + 9 = 26
    assert masked_sum(X, MASK).item() == 16
    assert masked_mean(X, MASK).item() == 4
    assert masked_var(X, MASK).item() == pytest.approx(26 / 3)
    assert masked_var(X, MASK, unbiased=False).item() == pytest.approx(26 / 4)


def test_select_fills_hidden_slots():
    assert masked_select(X, MASK).tolist() == [[1, 2, 6], [7, 0, 0]]
    assert masked_select(X, MASK, fill=-1.0).tolist() == [[1, 2, 6], [7, -1, -1]]
    assert masked_select(X, torch.tensor([[True], [False]])).tolist() == [[1, 2, 6], [0, 0, 0]]


def test_variance_of_large_numbers_keeps_its_digits():
    x = torch.tensor([[4096.25, 4096.75]])
    assert masked_var(x, torch.ones(1, 2, dtype=torch.bool), unbiased=False).item() == 0.0625


def test_empty_mask():
    assert masked_sum(X, EMPTY).item() == 0
    with pytest.raises(ValueError, match="the mask is empty"):
        masked_mean(X, EMPTY)
    with pytest.raises(ValueError, match="the mask is empty"):
        masked_var(X, EMPTY, unbiased=False)
    with pytest.raises(ValueError, match="0 real tokens"):
        masked_var(X, EMPTY)


def test_single_token_has_no_sample_variance():
    one = torch.tensor([[True, False, False], [False, False, False]])
    assert masked_mean(X, one).item() == 1
    assert masked_var(X, one, unbiased=False).item() == 0
    with pytest.raises(ValueError, match="1 real tokens: a sample variance needs at least two"):
        masked_var(X, one)


@pytest.mark.parametrize("function", [masked_sum, masked_mean, masked_var])
@pytest.mark.parametrize("shape", [(2, 1), (2, 3, 1), (3,)])
def test_shapes_that_only_broadcast_are_refused(function, shape):
    with pytest.raises(ValueError, match=r"x has shape .* but the mask has shape \(2, 3\)"):
        function(torch.ones(shape), MASK)


@pytest.mark.parametrize("function", [masked_select, masked_sum, masked_mean, masked_var])
def test_a_mask_of_numbers_is_refused(function):
    with pytest.raises(RuntimeError, match="boolean"):
        function(X, MASK.long())
