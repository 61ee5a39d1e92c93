"""What people see of a language model that learns from examples: its answers to fixed prompts, and some examples token by token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from rlhf_studio.config import GenerationConfig
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.loop.generate import LOOK_EVERY, ends_with_stop, response_texts
from rlhf_studio.engine.models.critic import make_value_head
from rlhf_studio.engine.models.forward import TOP_K
from rlhf_studio.engine.models.policy import Policy
from rlhf_studio.engine.models.text_passes import logits_in_parts
from rlhf_studio.engine.padding import pad_left
from rlhf_studio.engine.sampling.decode import sample_responses
from rlhf_studio.engine.text import PieceTable, remembering_decoder, response_pieces, text_as_read, token_pieces
from rlhf_studio.ppo.logprobs import log_distribution
from rlhf_studio.runs.records import RolloutRecord, TokenRecord, WatchRecord

MOST_LOGITS = 2**24  # that are in memory together while examples are recorded, unless one text has more
FIRST_TOKENS = 8  # of a text without a prompt, as its prompt


@dataclass(frozen=True)
class Watched:
    """Prompts that are answered again and again, always with the same random numbers.

    Attributes:
        prompts: token ids of each.
        stop_ids: the tokens that end an answer; empty where only the length does.
    """

    prompts: list[tuple[int, ...]]
    generation: GenerationConfig
    seed: int
    stop_ids: tuple[int, ...]
    pad_id: int

    def answer(self, model: Any, tokenizer: PreTrainedTokenizerBase, compute: Compute) -> list[WatchRecord]:
        """The model's answers with every token's numbers; there are no scores. The model's train or eval mode is kept."""
        if not self.prompts:
            return []
        was_training, device = model.training, compute.device
        head = make_value_head(model.config.get_text_config().hidden_size, "zero", 0).to(device)
        policy = Policy(model, head)
        ids, mask = pad_left([list(prompt) for prompt in self.prompts], self.pad_id)
        generator = torch.Generator(device=device).manual_seed(self.seed)
        shape = (len(self.prompts), self.generation.response_length)
        uniforms = torch.rand(shape, generator=generator, device=device, dtype=torch.float64)
        with compute.autocast():
            ends: dict[str, Any] = {"uniforms": uniforms, "stop_ids": self.stop_ids, "pad_id": self.pad_id}
            ends["look_every"] = LOOK_EVERY if device.type == "cuda" else 1
            tokens, output = sample_responses(policy, ids.to(device), mask.to(device), self.generation, ranks=compute.ranks, **ends)
        model.train(was_training)
        texts, stopped = response_texts(tokenizer, tokens), ends_with_stop(tokens, self.stop_ids)
        columns = {name: getattr(output, name).float().cpu().numpy() for name in ("logprobs", "entropy")}
        return [
            WatchRecord(
                sample=row,
                prompt=text_as_read(tokenizer, self.prompts[row]),
                response=texts[row],
                score=float("nan"),
                gold=None,
                stopped=bool(stopped[row]),
                pieces=response_pieces(tokenizer, tokens, row),
                arrays={name: column[row, :length] for name, column in columns.items()},
            )
            for row, length in enumerate(tokens.lengths.tolist())
        ]


def watched_prompts(examples: Sequence[tuple[Sequence[int], int]], count: int) -> list[tuple[int, ...]]:
    """The first ``count`` different prompts of examples, each given as (token ids, where its response begins).

    Of a text that is all response its first tokens are the prompt.
    """
    prompts = (tuple(ids[: start if start > 1 else min(FIRST_TOKENS, max(len(ids) // 2, 1))]) for ids, start in examples)
    return list(dict.fromkeys(prompt for prompt in prompts if prompt))[:count]


class _TokenNumbers(NamedTuple):
    """Of the R tokens of a response: float32 (R,), and the k likeliest tokens at each, (R, k)."""

    logprobs: np.ndarray
    entropy: np.ndarray
    top_ids: np.ndarray
    top_logprobs: np.ndarray


class ExampleRecorder:
    """Records examples token by token: log-probability and entropy of every response token, and the likeliest tokens there."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, compute: Compute, stops: tuple[int, ...]):
        self._tokenizer, self._compute, self._stops = tokenizer, compute, stops
        self._pieces, self._decoder = PieceTable(tokenizer), remembering_decoder(tokenizer)

    def record(
        self, model: Any, texts: Sequence[tuple[Sequence[int], int]], learned: Sequence[Sequence[int]] | None = None
    ) -> list[RolloutRecord]:
        """One record for each text, given as (token ids, where its response begins). The model's train or eval mode is kept.

        ``learned`` are the positions in each text of the tokens that the loss counts; None where it counts every token of a response.
        """
        was_training = model.training
        model.eval()
        whole = [(list(ids), max(start, 1)) for ids, start in texts]
        numbers = self._read(model, [ids for ids, _ in whole], [range(start, len(ids)) for ids, start in whole])
        model.train(was_training)
        counted: Sequence[Sequence[int] | None] = learned or [None] * len(texts)
        return [
            self._record(sample, ids, start, counted[sample], numbers.get(sample) or _nothing())
            for sample, (ids, start) in enumerate(whole)
        ]

    @torch.no_grad()
    def _read(self, model: Any, texts: list[list[int]], responses: list[range]) -> dict[int, _TokenNumbers]:
        """Several texts at a time: on a GPU each pass waits, however small it is. By text, without those that have no response."""
        read: dict[int, _TokenNumbers] = {}
        with self._compute.autocast():
            for rows, logits in logits_in_parts(model, texts, responses, MOST_LOGITS):
                distribution = log_distribution(logits, 1.0)
                ids = torch.tensor([texts[row][position] for row in rows for position in responses[row]], device=logits.device)
                best = distribution.topk(min(TOP_K, distribution.shape[1]), dim=-1)
                entropy = -(distribution.exp() * distribution).sum(dim=-1)
                columns = (distribution.gather(1, ids[:, None])[:, 0], entropy, best.indices, best.values)
                ends = np.cumsum([len(responses[row]) for row in rows])[:-1]
                parts = (np.split(column.cpu().numpy(), ends) for column in columns)
                read |= {row: _TokenNumbers(*own) for row, own in zip(rows, zip(*parts, strict=True), strict=True)}
        return read

    def _record(self, sample: int, ids: list[int], start: int, learned: Sequence[int] | None, numbers: _TokenNumbers) -> RolloutRecord:
        arrays = {"logprobs": numbers.logprobs, "entropy": numbers.entropy}
        pieces, top_ids = token_pieces(self._tokenizer, ids, self._decoder), numbers.top_ids.astype(np.int32)
        if learned is not None:
            arrays["learned"] = np.isin(np.arange(start, len(ids)), learned).astype(np.float32)
        nothing = np.zeros((len(ids) - start, 0), dtype=np.int32)
        prompt = text_as_read(self._tokenizer, ids[:start])
        return RolloutRecord(
            sample=sample,
            prompt=prompt,
            response=text_as_read(self._tokenizer, ids)[len(prompt) :],
            score=float("nan"),
            parts={},
            gold=None,
            kl=float("nan"),
            length=len(ids) - start,
            stopped=not self._stops or not set(ids[start:]).isdisjoint(self._stops),  # a template may write more behind the end
            tokens=TokenRecord(
                prompt_ids=np.array(ids[:start], dtype=np.int32),
                response_ids=np.array(ids[start:], dtype=np.int32),
                prompt_pieces=pieces[:start],
                response_pieces=pieces[start:],
                arrays=arrays,
                top_ids=top_ids,
                top_logprobs=numbers.top_logprobs,
                ref_top_ids=nothing,
                ref_top_logprobs=nothing.astype(np.float32),
                top_pieces=self._pieces(set(top_ids.ravel().tolist())),
                gamma=1.0,
                lam=1.0,
                kl_coef=0.0,
            ),
        )


def _nothing() -> _TokenNumbers:
    """Of a text without a response."""
    none, no_row = np.zeros(0, np.float32), np.zeros((0, 0), np.float32)
    return _TokenNumbers(none, none, no_row, no_row)
