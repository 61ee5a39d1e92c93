"""The critic: a value head on the policy's own trunk, or a trunk of its own that starts from another model."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from rlhf_studio.engine.compute.packing import attending_within, pack
from rlhf_studio.engine.models.position_ids import position_scheme_of
from rlhf_studio.engine.types import TokenBatch


def make_value_head(hidden_size: int, init: str, seed: int) -> nn.Linear:
    """A linear layer from hidden states to one value. ``zero`` predicts 0 everywhere; ``normal`` draws with variance 1 / (H + 1).

    ``seed`` seeds the head alone. Sources: Ziegler et al. 2019 (zero); Huang et al. 2024, arXiv:2403.17031 (normal).
    """
    head = nn.Linear(hidden_size, 1)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    if init == "normal":
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            head.weight.copy_(torch.randn(1, hidden_size, generator=generator) * (hidden_size + 1) ** -0.5)
    return head


class Trunk(nn.Module):
    """A transformer without its output layer, read at the positions before each response token.

    Args:
        model: any decoder of transformers that returns ``last_hidden_state`` (B, L, H).
    """

    def __init__(self, model: PreTrainedModel):
        super().__init__()
        self.model = model.float().requires_grad_(True)
        self.position_scheme = position_scheme_of(model)
        self.packs = False
        self.eval()  # dropout stays off, as in the policy

    def forward(self, batch: TokenBatch | Tensor) -> Tensor:
        """Hidden states (N, H) of the states before the N response tokens, in the order of ``batch.mask``.

        Of a row of token ids (1, L) the model's own states (L, H).
        """
        if isinstance(batch, Tensor):
            return self.model(input_ids=batch).last_hidden_state[0]
        layout = pack(batch) if self.packs else batch
        with attending_within(layout):
            output = self.model(**self.position_scheme.of_inputs(layout.model_inputs()), use_cache=False)
        return layout.predicting(output.last_hidden_state)
