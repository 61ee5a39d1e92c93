"""Log-probabilities and scores of texts of unequal length against each text alone, in plain transformers, for every family."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from rlhf_studio.engine.compute.packing import enable_packing
from rlhf_studio.engine.models.text_passes import scores_packed_rows, text_logprobs, text_scores
from rlhf_studio.inputs.families import TESTED_FAMILIES
from tests.engine.small_models import config_of

TEXTS = [(2, 3, 4, 5, 6, 7, 8, 9), (10, 11), (12, 13, 14, 15, 16, 1), (17, 18, 1, 20, 21, 22)]
COUNTED: list[list[int]] = [[2, 3, 6], [1], [], [1, 2, 3, 4, 5]]
CLOSE = {"atol": 1e-5, "rtol": 1e-5}
LATER = [pytest.param(family, marks=pytest.mark.long) for family in sorted(TESTED_FAMILIES - {"gpt2", "llama"})]
FAMILIES = ["gpt2", "llama", "gemma2", *LATER]


def make(kind: Any, family: str, **more: Any) -> Any:
    torch.manual_seed(0)
    config = config_of(family, 30)
    config.num_labels = 1
    for name, value in more.items():
        setattr(config, name, value)
    model = kind.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    return model


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_logprobs_of_the_tokens_that_count(family: str) -> None:
    model = make(AutoModelForCausalLM, family)
    expected = []
    for text, indices in zip(TEXTS, COUNTED, strict=True):
        table = model(input_ids=torch.tensor([text])).logits[0].log_softmax(dim=-1)
        expected.append(torch.tensor([float(table[index - 1, text[index]]) for index in indices]))
    for packed in (False, True):
        assert not packed or enable_packing(model) is (family in TESTED_FAMILIES)
        actual = text_logprobs(model, TEXTS, COUNTED)
        for ours, alone in zip(actual.of_each(), expected, strict=True):
            torch.testing.assert_close(ours, alone, **CLOSE)
        torch.testing.assert_close(actual.sums(), torch.stack([one.sum() for one in expected]), **CLOSE)


@pytest.mark.parametrize("pad", [1, None])
@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_scores_at_the_last_token(family: str, pad: int | None) -> None:
    """Whatever the pad token is; a real end token at the end is scored, also where the pad token is the end token."""
    model = make(AutoModelForSequenceClassification, family, pad_token_id=pad)
    texts = [text[:-1] + (28,) for text in TEXTS]
    expected = torch.stack([model(input_ids=torch.tensor([text])).logits[0, 0] for text in texts])
    for packed in (False, True):
        assert not packed or (enable_packing(model) and scores_packed_rows(model)) is (family in TESTED_FAMILIES)
        torch.testing.assert_close(text_scores(model, texts, pad), expected, **CLOSE)
    ended = text_scores(model, [TEXTS[2], TEXTS[0]], pad)[0]
    model.config.get_text_config().pad_token_id = 29  # so that plain transformers does not take the end for padding
    torch.testing.assert_close(ended, model(input_ids=torch.tensor([TEXTS[2]])).logits[0, 0], **CLOSE)


@torch.no_grad()
def test_texts_on_either_side_of_a_rotation_boundary_go_apart() -> None:
    """Phi-3 rotates a batch as its longest text needs it: beside a long text, a short one would get other numbers."""
    rope = {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [4.0] * 4, "rope_theta": 10000.0}
    rope |= {"original_max_position_embeddings": 4}
    model = make(AutoModelForCausalLM, "phi3", rope_parameters=rope, original_max_position_embeddings=4)
    alone = [text_logprobs(model, [text], [[1]]).sums()[0] for text in TEXTS]
    together = text_logprobs(model, TEXTS, [[1]] * len(TEXTS)).sums()
    torch.testing.assert_close(together, torch.stack(alone), **CLOSE)
    assert text_logprobs(model, TEXTS, [[]] * len(TEXTS)).sums().tolist() == [0.0] * 4


@pytest.mark.parametrize("family", ["gpt2", "llama", *LATER])
@pytest.mark.parametrize("kind", ["logprobs", "scores"])
def test_a_shared_start_that_is_read_once_changes_nothing(family: str, kind: str) -> None:
    """Numbers and gradients of pairs, beside those of texts that are read whole."""
    texts = [(2, 3, 4, 5, 6), (7, 8, 9), (2, 3, 4, 10, 11, 12), (7, 8, 9, 13)]
    model = make(AutoModelForCausalLM if kind == "logprobs" else AutoModelForSequenceClassification, family)
    assert enable_packing(model)
    actual, read = [], []
    for twins in (False, True):
        hook = model.get_input_embeddings().register_forward_pre_hook(lambda _, given: read.append(given[0].numel()))
        model.zero_grad()
        if kind == "logprobs":
            values = text_logprobs(model, texts, [range(1, len(text)) for text in texts], twins=twins).values
        else:
            values = text_scores(model, texts, None, twins=twins)
        (values * torch.arange(1.0, len(values) + 1)).sum().backward()
        hook.remove()
        actual.append([values.detach(), *(parameter.grad for parameter in model.parameters() if parameter.grad is not None)])
    assert read == ([14, 9] if kind == "logprobs" else [18, 12])
    for shared, whole in zip(actual[1], actual[0], strict=True):
        torch.testing.assert_close(shared, whole, atol=1e-4, rtol=1e-4)
