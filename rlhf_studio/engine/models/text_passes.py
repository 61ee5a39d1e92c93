"""Forward passes over whole texts for training: log-probabilities of the tokens that count, and scores of a classifier.

Texts go through the model as one packed row where it takes those (``engine/compute/packing.py``), else padded on the right. Logits are
computed only where a token that counts is predicted.

Shapes: B texts, L tokens of the longest, M tokens that count in all texts, H hidden size.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from rlhf_studio.engine.compute.fused import consume_logits
from rlhf_studio.engine.compute.packing import PackedRow, attention_for, pack_texts, pack_twins, takes_packed_rows
from rlhf_studio.engine.models.classifiers import last_token_logits
from rlhf_studio.engine.models.policy import OutputSelector, plain_model
from rlhf_studio.engine.models.position_ids import position_scheme_of
from rlhf_studio.engine.padding import pad_right
from rlhf_studio.inputs.models.rotation import rotation_boundary

_FILL = 0  # the id under the padding; masks hide it


@dataclass(frozen=True)
class PaddedTexts:
    """Texts padded on the right, where position ids need no thought.

    Attributes:
        ids, mask: (B, L) int64; 1 in the mask is a real token.
        used: (M,) int64, the positions in the flattened (B · L) whose hidden states are used.
    """

    ids: Tensor
    mask: Tensor
    used: Tensor

    def model_inputs(self) -> dict[str, Tensor]:
        """Keyword arguments for the model."""
        return {"input_ids": self.ids, "attention_mask": self.mask}

    def predicting(self, hidden: Tensor) -> Tensor:
        """The hidden states (M, H) at the ``used`` positions of ``hidden`` (B, L, H)."""
        return hidden.flatten(0, 1).index_select(0, self.used)


@dataclass(frozen=True)
class TokenLogprobs:
    """Log-probabilities of the tokens that count.

    Attributes:
        values: (M,) float32; those of one text are in the text's order.
        rows: (M,) int64, the number of the text that each belongs to.
        count: how many texts there are.
    """

    values: Tensor
    rows: Tensor
    count: int

    def sums(self) -> Tensor:
        """(B,) the log-probability of each text's tokens together."""
        return self.values.new_zeros(self.count).index_add(0, self.rows, self.values)

    def of_each(self) -> list[Tensor]:
        """For each text, its own values, on the CPU."""
        order = self.rows.argsort(stable=True)
        lengths = self.rows.bincount(minlength=self.count)
        return list(self.values.detach()[order].cpu().split(lengths.tolist()))


def text_logprobs(model: Any, texts: Sequence[Sequence[int]], counted: Sequence[Sequence[int]], *, twins: bool = False) -> TokenLogprobs:
    """Log-probability of every token that counts, given the tokens before it.

    Args:
        model: any causal LM of transformers, with or without LoRA.
        texts: token ids.
        counted: for each text the positions of the tokens that count, ascending and from 1 on: nothing predicts the first token.
        twins: the second half of the texts are other responses to the prompts of the first: what a pair shares is read once, if it can be.
    """
    parts = [
        (rows, _logprobs(model, [texts[row] for row in rows], [counted[row] for row in rows], twins and len(rows) == len(texts)))
        for rows in _passes(model, [row for row, positions in enumerate(counted) if positions], texts)
    ]
    if not parts:
        nothing = torch.zeros(0, device=model.device)
        return TokenLogprobs(nothing, nothing.long(), len(texts))
    numbers = [row for rows, _ in parts for row in rows for _ in counted[row]]
    return TokenLogprobs(torch.cat([values for _, values in parts]), torch.tensor(numbers, device=model.device), len(texts))


def logits_in_parts(
    model: Any, texts: Sequence[Sequence[int]], counted: Sequence[Sequence[int]], most: int
) -> Iterator[tuple[list[int], Tensor]]:
    """What the model predicts each token that counts from, for some texts at a time.

    Args:
        texts, counted: as in :func:`text_logprobs`.
        most: logits that one part may have, unless it is one text.

    Yields:
        The numbers of the texts, and their logits (M, V) one text behind the other. A text in which no token counts is in no part.
    """
    vocabulary = model.config.get_text_config().vocab_size
    for together in _passes(model, [row for row, positions in enumerate(counted) if positions], texts):
        parts: list[list[int]] = [[]]
        for row in together:
            if parts[-1] and vocabulary * sum(len(counted[other]) for other in (*parts[-1], row)) > most:
                parts.append([])
            parts[-1].append(row)
        for part in parts:
            yield part, _logits(model, [texts[row] for row in part], [counted[row] for row in part], twins=False)


def _logprobs(model: Any, texts: Sequence[Sequence[int]], counted: Sequence[Sequence[int]], twins: bool) -> Tensor:
    """(M,) text by text."""
    ids = [text[position] for text, positions in zip(texts, counted, strict=True) for position in positions]
    logits = _logits(model, texts, counted, twins)
    return consume_logits(logits, torch.tensor(ids, device=model.device), 1.0, with_entropy=False)[0]


def _logits(model: Any, texts: Sequence[Sequence[int]], counted: Sequence[Sequence[int]], twins: bool) -> Tensor:
    """(M, V) text by text. What follows the last token that is predicted is not read."""
    cut = [text[: positions[-1]] for text, positions in zip(texts, counted, strict=True)]
    layout = _lay_out(model, cut, [[position - 1 for position in positions] for positions in counted], twins)
    with _selector_of(plain_model(model))(layout.predicting), attention_for(layout):
        logits: Tensor = model(**_inputs(model, layout), use_cache=False).logits.squeeze(0)
    return logits


def text_scores(model: Any, texts: Sequence[Sequence[int]], pad_id: int | None, *, twins: bool = False) -> Tensor:
    """(B,) float32 scores of a classifier with one output; padding has no influence.

    A classifier that takes packed rows scores the last token of each text. ``pad_id`` fills the padding of any other, unless it occurs in a
    text; None when there is no pad token. ``twins`` as in :func:`text_logprobs`.
    """
    scores = torch.empty(0, device=model.device)
    passes = _passes(model, range(len(texts)), texts)
    for rows in passes:
        scores = torch.cat([scores, _scores(model, [texts[row] for row in rows], pad_id, twins and len(rows) == len(texts))])
    order = torch.tensor([row for rows in passes for row in rows], device=model.device)
    return scores if len(passes) == 1 else scores.new_empty(len(texts)).index_copy(0, order, scores)


def _scores(model: Any, texts: Sequence[Sequence[int]], pad_id: int | None, twins: bool) -> Tensor:
    if not scores_packed_rows(model):
        return last_token_logits(model, texts, pad_id)[:, 0]
    classifier: Any = plain_model(model)
    row = _packed(texts, model.device, [[len(text) - 1] for text in texts], twins)
    with attention_for(row):
        hidden = classifier.base_model(**_inputs(model, row), use_cache=False).last_hidden_state
        scores: Tensor = classifier.score(row.predicting(hidden))
        return scores[:, 0].float()


def scores_packed_rows(model: Any) -> bool:
    """Whether a classifier's scores can be computed for packed rows: a decoder with its score head behind the last hidden states."""
    return takes_packed_rows(model) and isinstance(getattr(plain_model(model), "score", None), nn.Module)


# --- layouts -----------------------------------------------------------------------------------------------------------------


def _packed(texts: Sequence[Sequence[int]], device: torch.device, used: Sequence[Sequence[int]], twins: bool) -> PackedRow:
    return pack_twins(texts, device, used) if twins else pack_texts(texts, device, used)


def _lay_out(model: Any, texts: Sequence[Sequence[int]], used: Sequence[Sequence[int]], twins: bool) -> PackedRow | PaddedTexts:
    """The texts as the model takes them; ``used`` has the positions in each text whose hidden states are used."""
    if takes_packed_rows(model):
        return _packed(texts, model.device, used, twins)
    ids, mask = pad_right(texts, _FILL, model.device), pad_right([[1] * len(text) for text in texts], 0, model.device)
    indices = [row * ids.shape[1] + position for row, within in enumerate(used) for position in within]
    return PaddedTexts(ids, mask, torch.tensor(indices, device=model.device))


def _inputs(model: Any, layout: PackedRow | PaddedTexts) -> dict[str, Tensor]:
    inputs = layout.model_inputs()
    return position_scheme_of(model).of_inputs(inputs) if isinstance(layout, PackedRow) else inputs


def _passes(model: Any, rows: Sequence[int], texts: Sequence[Sequence[int]]) -> list[list[int]]:
    """The rows that go through the model together.

    Some models (Phi-3) rotate the positions of texts beyond a boundary in another way, and a batch as its longest text needs it: texts on
    either side of the boundary then go apart, so that no text's numbers depend on its neighbours.
    """
    boundary = rotation_boundary(model.config.get_text_config().to_dict())
    if not boundary:
        return [list(rows)] if len(rows) else []
    sides = [[row for row in rows if len(texts[row]) <= boundary], [row for row in rows if len(texts[row]) > boundary]]
    return [side for side in sides if side]


_selectors: WeakKeyDictionary[nn.Module, OutputSelector] = WeakKeyDictionary()
_making = threading.Lock()


def _selector_of(model: Any) -> OutputSelector:
    """The selector of the model's output layer; one is made for each layer, and lanes share it."""
    layer = model.get_output_embeddings()
    with _making:
        if layer not in _selectors:
            _selectors[layer] = OutputSelector(layer)
        return _selectors[layer]
