"""The probes: a few sentences of the starting policy that every step's policy scores again, one short forward pass a step.

What changes between two steps is then the policy alone, never the text: the same token at the same place becomes likelier or less likely.

The starting policy's log-probabilities are needed at any token of the vocabulary, because each step has likeliest tokens of its own. So
its whole distribution at each probe token is kept in memory; it is exact, and no step asks the starting policy again. When a run goes on
from a checkpoint, the distribution is computed again where that gives the same numbers: by the policy with its adapters off, or by a
reference that is a float32 copy of the starting policy. Everywhere else (a reference of another model, one that follows the policy, half
precision, adapters whose start changes the base) the starting policy is gone, and the checkpoint holds the distribution. Another number
format or machine computes other last digits, so what is on record of the starting policy is kept then (:meth:`Probes.keep_start`).

Shapes: N probes, M tokens of all probes together, V vocabulary.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlhf_studio.engine.compute.lanes import ONE_LANE
from rlhf_studio.engine.loop.models import Models
from rlhf_studio.engine.models.forward import TOP_K, ForwardPass
from rlhf_studio.engine.models.policy import ResponseModel
from rlhf_studio.engine.padding import pad_left
from rlhf_studio.engine.text import response_pieces
from rlhf_studio.engine.types import TokenBatch
from rlhf_studio.runs.records import Probe, ProbeScore

MOST_TOKENS = 64  # of a probe: longer answers are cut, so that the distribution stays small


class Probes:
    """The probes of one run. Build them with :func:`first_probes` or :func:`restored_probes`.

    Where weights are sharded, every rank has them, because each forward pass needs all ranks; rank 0 alone has numbers to give.

    Args:
        tokens: the N probes, as answers to their prompts.
        prompts: the prompts' texts.
        temperature: the sampling temperature at the start of the run. It stays the same for the probes when the run's changes, so that
            steps can be compared.
        start: (M, V) float32 log-probabilities of the starting policy, on the CPU; None on ranks that have no numbers to give.
    """

    def __init__(self, models: Models, tokens: TokenBatch, prompts: Sequence[str], temperature: float, start: Tensor | None):
        self._models, self._tokens, self._prompts, self._temperature = models, tokens, list(prompts), temperature
        self._start, self._ids = start, tokens.response_ids[tokens.mask].cpu()
        self._start_top = None if start is None else start.topk(min(TOP_K, start.shape[1]), dim=-1).indices

    def texts(self) -> list[Probe]:
        """The probes for people."""
        pieces = [response_pieces(self._models.tokenizer, self._tokens, row) for row in range(len(self._tokens))]
        return [Probe(row, prompt, pieces[row]) for row, prompt in enumerate(self._prompts)]

    def of_start(self) -> list[ProbeScore]:
        """What the starting policy gives to the probes: step 0. Empty on ranks other than 0."""
        return [] if self._start is None else self._by_probe([self._read(self._start, torch.arange(len(self._start)))])

    def keep_start(self, recorded: Sequence[ProbeScore]) -> None:
        """Go on with the recorded numbers of the starting policy: its likeliest tokens, to which all steps are compared, and the
        log-probabilities of these and of the probes' own tokens. ``recorded``: :meth:`of_start` as it was when the run began."""
        if self._start is None:
            return
        arrays = [[getattr(score, name) for score in recorded] for name in ("top_ids", "top_logprobs", "logprobs")]
        top, top_logprobs, logprobs = (torch.from_numpy(np.concatenate(parts)) for parts in arrays)
        self._start_top = top.long()
        self._start.scatter_(1, self._start_top, top_logprobs).scatter_(1, self._ids[:, None], logprobs[:, None])

    def scores(self) -> list[ProbeScore]:
        """What the policy gives to them now. Where weights are sharded, all ranks call this; empty on ranks other than 0."""
        forward = _forward_pass(self._models, self._temperature)
        read = forward.read_distributions(self._models.policy, self._tokens, self._read)
        return [] if self._start is None else self._by_probe(read)

    def shown_ids(self, scores: Sequence[ProbeScore]) -> list[np.ndarray]:
        """The tokens whose texts people need to read these scores: the likeliest now, and the likeliest at the start."""
        return [score.top_ids for score in scores] + ([] if self._start_top is None else [self._start_top.numpy()])

    def _read(self, now: Tensor, indices: Tensor) -> dict[str, Tensor]:
        """Arrays of :class:`ProbeScore` from the log-probabilities (n, V) of a step's policy at the tokens ``indices`` (n,) of the M."""
        if self._start is None or self._start_top is None:
            return {}
        at = indices.cpu()
        top = now.topk(self._start_top.shape[1], dim=-1)
        arrays = {
            "logprobs": now.gather(1, self._ids[at, None].to(now.device)).squeeze(1),
            "top_ids": top.indices.int(),
            "top_logprobs": top.values,
            "logprobs_of_start": now.gather(1, self._start_top[at].to(now.device)),
        }
        return {name: x.cpu() for name, x in arrays.items()} | {"start_logprobs": self._start[at].gather(1, top.indices.cpu())}

    def _by_probe(self, parts: list[dict[str, Tensor]]) -> list[ProbeScore]:
        ends = self._tokens.lengths.cumsum(dim=0).tolist()[:-1]
        arrays = {name: np.split(torch.cat([part[name] for part in parts]).numpy(), ends) for name in parts[0]}
        return [ProbeScore(row, **{name: arrays[name][row] for name in arrays}) for row in range(len(self._prompts))]

    # --- for a checkpoint --------------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """The probes as JSON values."""
        tokens = self._tokens
        return {
            "prompts": self._prompts,
            "temperature": self._temperature,
            "prompt_ids": [ids[mask].tolist() for ids, mask in zip(tokens.prompt_ids, tokens.prompt_mask, strict=True)],
            "response_ids": [ids[mask].tolist() for ids, mask in zip(tokens.response_ids, tokens.mask, strict=True)],
        }

    def lasting_start(self) -> Tensor | None:
        """(M, V) what only the checkpoint can keep of the starting policy; None where it can be asked again."""
        return None if can_ask_start(self._models) else self._start


def first_probes(models: Models, tokens: TokenBatch, prompts: Sequence[str]) -> Probes | None:
    """The first of these answers of the starting policy become the run's probes; None when it is to have none.

    Where weights are sharded, all ranks call this.
    """
    count = min(models.config.engine.probe_prompts, len(tokens))
    if not count:
        return None
    first = tokens.rows(torch.arange(count, device=tokens.mask.device))
    first = TokenBatch(first.prompt_ids, first.prompt_mask, first.response_ids[:, :MOST_TOKENS], first.mask[:, :MOST_TOKENS])
    temperature = models.config.generation.temperature
    return Probes(models, first, prompts[:count], temperature, _distribution(models, models.policy, first, temperature))


def restored_probes(models: Models, state: dict[str, Any] | None, start: Tensor | None) -> Probes | None:
    """The probes of :meth:`Probes.state`; ``start`` is what the checkpoint has of :meth:`Probes.lasting_start`.

    None for a checkpoint without probes: the run has none, or an earlier version began it. Where weights are sharded, all ranks call this.
    """
    if not state:
        return None
    device = models.compute.device
    prompts, prompt_mask = pad_left(state["prompt_ids"], models.pad_id)
    lengths = torch.tensor([len(ids) for ids in state["response_ids"]])
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    responses = torch.full(mask.shape, models.pad_id)
    responses[mask] = torch.tensor([token for ids in state["response_ids"] for token in ids])
    tokens = TokenBatch(*(x.to(device) for x in (prompts, prompt_mask, responses, mask)))
    if start is None:
        with _starting_policy(models) as model:
            start = _distribution(models, model, tokens, state["temperature"])
    return Probes(models, tokens, state["prompts"], state["temperature"], start if models.compute.ranks.is_main else None)


def _forward_pass(models: Models, temperature: float) -> ForwardPass:
    """A forward pass without lanes: for few short texts, lanes would wait for each other longer than they work."""
    return replace(models.forward_pass, temperature=temperature, compute=replace(models.compute, lanes=ONE_LANE))


def _distribution(models: Models, model: ResponseModel, tokens: TokenBatch, temperature: float) -> Tensor | None:
    """(M, V) on the CPU of rank 0. The other ranks go along where weights are sharded."""
    ranks = models.compute.ranks
    if not (ranks.is_main or ranks.sharded):
        return None
    parts = _forward_pass(models, temperature).read_distributions(
        model, tokens, lambda logprobs, indices: logprobs.cpu() if ranks.is_main else None
    )
    return torch.cat([part for part in parts if part is not None]) if ranks.is_main else None


def can_ask_start(models: Models) -> bool:
    """Whether the starting policy can still be asked, whatever was learned since, and gives exactly what it gave at the start."""
    config = models.config
    if models.policy.has_lora:
        return config.lora.off_is_start
    return not config.model.reference and not config.ppo.reference_ema and models.compute.dtype is torch.float32


@contextlib.contextmanager
def _starting_policy(models: Models) -> Iterator[ResponseModel]:
    """The starting policy, where :func:`can_ask_start` said so when the checkpoint was written."""
    if models.policy.has_lora:  # the reference may be another adapter on the same base
        model: Any = models.policy.model
        with model.disable_adapter():
            yield models.policy
        return
    with models.reference.active() as reference:
        yield reference
