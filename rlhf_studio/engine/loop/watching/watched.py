"""The watched prompts: answered again and again while the policy changes."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from rlhf_studio.engine.compute.lanes import better_with_one_thread
from rlhf_studio.engine.loop.generate import decode_responses, ends_with_stop, generate
from rlhf_studio.engine.loop.models import Models
from rlhf_studio.engine.loop.phases import episodes_of, exact
from rlhf_studio.engine.loop.prompts import PromptStream
from rlhf_studio.engine.text import response_pieces
from rlhf_studio.engine.types import ForwardOutput, PromptBatch, TokenBatch
from rlhf_studio.ppo.kl import kl_per_token
from rlhf_studio.runs.records import WatchRecord


@dataclass(frozen=True)
class Answers:
    """The policy's answers to the watched prompts, W of them, before they are scored.

    Attributes:
        policy: the policy's log-probabilities, entropy and, with a critic, values of the answers, each (W, T).
        ref_logprobs, kl: (W, T) the reference's log-probabilities, and the KL by the configured estimator.
    """

    prompts: PromptBatch
    tokens: TokenBatch
    policy: ForwardOutput
    ref_logprobs: Tensor
    kl: Tensor


@contextlib.contextmanager
def few_threads(models: Models) -> Iterator[None]:
    """Inside, a small model on a CPU computes a few rows with one thread: several wait for each other after each short operation."""
    threads = torch.get_num_threads()
    if models.compute.device.type == "cpu" and better_with_one_thread(models.policy):
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def answer_watched(models: Models, prompts: PromptStream) -> Answers | None:
    """Answer the watched prompts, always with the same random numbers, so that differences come from the policy alone.

    None when no prompt is watched. Where weights are sharded, all ranks call this, and all have the same answers.
    """
    engine, forward = models.config.engine, models.forward_pass
    batch = prompts.watched(engine.watch_prompts)
    if batch is None:
        return None
    generator = torch.Generator(device=models.compute.device).manual_seed(engine.seed + 2)
    with few_threads(models):
        tokens, output = generate(models, batch, models.config.generation, generator)
        policy = exact(models, tokens, output, 0)
        with models.reference.active() as reference:
            ref_logprobs = forward.run(reference, tokens, 0).logprobs
        if models.config.ppo.kl_estimator == "full":
            kl = forward.full_kl(models.policy, models.reference, tokens)
        else:
            kl = kl_per_token(policy.logprobs, ref_logprobs, models.config.ppo.kl_estimator)
    return Answers(batch, tokens, policy, ref_logprobs, kl)


def score_watched(models: Models, answers: Answers) -> list[WatchRecord]:
    """The answers with their scores and every token's numbers. Raises :class:`RewardError`."""
    tokens, responses = answers.tokens, decode_responses(models, answers.tokens)
    stopped = ends_with_stop(tokens, models.stop_ids)
    episodes = episodes_of(answers.prompts, tokens, responses, stopped)
    if models.scorer.people():  # nobody is asked for these, so they have no score
        scores = [math.nan] * len(responses)
    else:
        scores = torch.stack(list(models.scorer.parts(episodes).values())).sum(dim=0).tolist()
    gold = models.scorer.gold(episodes)
    policy = answers.policy
    columns = {"logprobs": policy.logprobs, "ref_logprobs": answers.ref_logprobs, "kl": answers.kl}
    columns |= {} if policy.values is None else {"values": policy.values}
    columns |= {"entropy": policy.entropy}
    arrays = {name: column.float().cpu().numpy() for name, column in columns.items()}
    records = []
    for row, length in enumerate(tokens.lengths.tolist()):
        own = {name: column[row, :length] for name, column in arrays.items()}
        records.append(
            WatchRecord(
                sample=row,
                prompt=answers.prompts.texts[row],
                response=responses[row],
                score=scores[row],
                gold=float(gold[row]) if gold is not None else None,
                kl=float((own["logprobs"] - own["ref_logprobs"]).sum()),
                stopped=bool(stopped[row]),
                pieces=response_pieces(models.tokenizer, tokens, row),
                arrays=own,
            )
        )
    return records
