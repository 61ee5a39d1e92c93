"""A tiny model, its tokenizer, and batches of queries and responses: the same in TRL and here, from seeds alone."""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

WORDS = ["<pad>", "<end>", *(f"w{number}" for number in range(18))]
BATCH = 4

CASES: dict[str, dict[str, Any]] = {
    "kl": {"batch_size": BATCH, "mini_batch_size": BATCH, "learning_rate": 3e-3, "ppo_epochs": 4, "init_kl_coef": 0.3, "vf_coef": 0.3},
    "full": {
        **{"batch_size": BATCH, "mini_batch_size": BATCH, "learning_rate": 3e-3, "ppo_epochs": 2, "kl_penalty": "full"},
        **{"adap_kl_ctrl": False, "gamma": 0.9, "lam": 0.8, "cliprange": 0.1, "cliprange_value": 0.05},
    },
    "clipped": {
        **{"batch_size": BATCH, "mini_batch_size": BATCH, "learning_rate": 3e-3, "ppo_epochs": 2, "kl_penalty": "abs"},
        **{"adap_kl_ctrl": False, "score_clip": 0.7},
    },
    "gradient": {"batch_size": BATCH, "mini_batch_size": BATCH, "learning_rate": 3e-3, "ppo_epochs": 1, "max_grad_norm": 0.05},
    "minibatches": {"batch_size": BATCH, "mini_batch_size": 2, "learning_rate": 3e-3, "ppo_epochs": 2},
    "masked": {"batch_size": BATCH, "mini_batch_size": BATCH, "learning_rate": 3e-3, "ppo_epochs": 2, "gamma": 0.95},
}
"""Options of PPOConfig; "masked" also gives response masks.

TRL 0.11 clips the gradient of its first optimizer step only (an iterator over the weights is used up then): that step is compared.
"""


def make_model(seed: int = 0) -> GPT2LMHeadModel:
    """A GPT-2 of one layer whose weights come from ``seed``."""
    model = GPT2LMHeadModel(GPT2Config(vocab_size=20, n_positions=32, n_embd=16, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=1))
    fill(model, seed)
    return model.eval()


@torch.no_grad()
def fill(module: torch.nn.Module, seed: int, scale: float = 0.3) -> None:
    """Give every weight numbers of its own."""
    generator = torch.Generator().manual_seed(seed)
    for _, parameter in sorted(module.named_parameters()):
        parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))


def make_tokenizer() -> PreTrainedTokenizerFast:
    """A word is a token."""
    words = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<end>")


def make_step(number: int, *, masked: bool = False) -> tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor] | None]:
    """Queries, responses of unequal length, scores, and response masks where they are wanted."""
    generator = torch.Generator().manual_seed(100 + number)

    def ids(length: int) -> Tensor:
        return torch.randint(2, 20, (length,), generator=generator)

    queries, responses = [ids(length) for length in (3, 1, 4, 2)], [ids(length) for length in (6, 3, 5, 4)]
    scores = list(torch.randn(BATCH, generator=generator))
    masks = [torch.ones_like(response) for response in responses]
    masks[0][2:4], masks[2][0], masks[3][3] = 0, 0, 0
    return queries, responses, scores, masks if masked else None
