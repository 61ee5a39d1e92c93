"""Query and response: how a text becomes a prompt, why its length is drawn, what the mask hides, and what padding must not do."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch

from rlhf_studio.config import DataConfig
from rlhf_studio.engine.loop.prompts import TokenizerEncoder
from rlhf_studio.engine.types import TokenBatch, position_ids
from rlhf_studio.inputs.prompts.cells import Prompt
from rlhf_studio.inputs.prompts.prepare import Prepared, prepare
from rlhf_studio.inputs.prompts.read import Prompts
from rlhf_studio.inputs.world.corpus import EVAL_SEED, write_corpus
from rlhf_studio.lessons.kit import Bar, Numbers, Picture, Scene, Slider, Token, Word, bars, ledger, tokens
from rlhf_studio.lessons.run import LessonRun
from rlhf_studio.ppo.logprobs import token_logprobs
from rlhf_studio.ppo.losses import policy_loss

NUMBER = 2

REVIEWS, SHOWN = 64, 12


@cache
def texts() -> list[str]:
    """Whole reviews, as a dataset has them."""
    return [review.prompt + review.response for review in write_corpus(EVAL_SEED, REVIEWS)]


def prompts_of(run: LessonRun, low: int, high: int, seed: int) -> Prepared:
    """The prompts that a run makes of these texts when it keeps ``low`` to ``high`` tokens of each."""
    data = DataConfig(query_tokens_min=low, query_tokens_max=high)
    rows = Prompts([Prompt(number, text) for number, text in enumerate(texts(), 1)])
    encoder: Any = TokenizerEncoder(run.tokenizer)
    return prepare(rows, data, encoder, None, seed)


# --- from a text to a query ----------------------------------------------------------------------------------------------------------


def from_text_to_query(run: LessonRun, review: int, length: int) -> Numbers:
    """The beginning of a review becomes the query; what the model says next is its own."""
    row = int(review) - 1
    ids = run.prompt_ids(texts()[row])
    query = prompts_of(run, int(length), int(length), 0).ids[row]
    batch = run.batch([query], [[ids[len(query)]]])
    likely = run.reference_distributions(batch)[0].double().exp()
    top = int(likely.argmax())
    pieces = [run.tokenizer.decode([token]) for token in ids[:SHOWN]]
    return {
        "query": run.tokenizer.decode(query),
        "count": len(query),
        "whole": len(ids),
        "pieces": pieces,
        "ids": ids,
        "query_ids": query,
        "next": run.tokenizer.decode([ids[len(query)]]),
        "chance": float(likely[ids[len(query)]]),
        "top": run.tokenizer.decode([top]),
        "top_chance": float(likely[top]),
        "same": top == ids[len(query)],
        "sum": float(likely.sum()),
    }


def draw_query(n: Numbers) -> Picture:
    items = [
        Token(piece, 1.0 if index < n["count"] else 0.0, "" if index < n["count"] else "masked") for index, piece in enumerate(n["pieces"])
    ]
    return tokens(items, label=Word("query"), size=2, digits=0)


# --- drawn lengths ---------------------------------------------------------------------------------------------------------------------


def drawn_lengths(run: LessonRun, low: int, spread: int, seed: int) -> Numbers:
    """How long the queries of all texts are, and how many texts another seed cuts at the same token."""
    prompts, other = (prompts_of(run, int(low), int(low + spread), int(seed) + more) for more in (0, 1))
    lengths = [len(ids) for ids in prompts.ids]
    counts = {length: lengths.count(length) for length in range(2, 15)}
    endings = {ids[-1] for ids in prompts.ids}
    return {
        "lengths": lengths,
        "counts": counts,
        "different": len(set(lengths)),
        "endings": len(endings),
        "same_cut": sum(a == b for a, b in zip(prompts.ids, other.ids, strict=True)),
        "all": len(lengths),
        "mean": sum(lengths) / len(lengths),
        "several": len(set(lengths)) > 1,
        "beginnings": all(run.prompt_ids(text)[: len(ids)] == ids for text, ids in zip(texts(), prompts.ids, strict=True)),
    }


def draw_lengths(n: Numbers) -> Picture:
    return bars(
        [Bar(str(length), [count]) for length, count in n["counts"].items()],
        [Word("queries")],
        label=Word("queries"),
        low=0,
        high=64,
        digits=0,
    )


# --- only the response counts ----------------------------------------------------------------------------------------------------------

ADVANTAGES = [[0.8, 0.5, -0.4, 1.1, 0.3, 0.9], [-1.2, -0.3, -0.7, 0.2, 0.0, 0.0]]
RATIOS = [[1.1, 0.95, 1.3, 1.4, 1.0, 0.9], [0.9, 1.0, 1.15, 0.7, 1.0, 1.0]]
LENGTHS = (6, 4)
EPS = 0.2


def only_the_response(junk: float, ended: int) -> Numbers:
    """The policy's loss on two responses of unequal length; what stands behind the shorter one is junk."""
    mask = torch.arange(6) < torch.tensor([[LENGTHS[0]], [int(ended)]])
    new = torch.tensor(RATIOS, dtype=torch.float64).log()
    advantages = torch.tensor(ADVANTAGES, dtype=torch.float64)
    advantages = torch.where(mask, advantages, torch.full_like(advantages, junk))
    old = torch.zeros_like(new)
    right = policy_loss(new, old, advantages, mask, EPS)
    clean = policy_loss(new, old, torch.where(mask, advantages, 0.0), mask, EPS)
    wrong = policy_loss(new, old, advantages, torch.ones_like(mask), EPS)
    return {
        "right": float(right.loss_sum / right.tokens),
        "clean": float(clean.loss_sum / clean.tokens),
        "wrong": float(wrong.loss_sum / wrong.tokens),
        "tokens": int(right.tokens),
        "slots": mask.numel(),
        "width": mask.shape[1],
        "behind": int((~mask[1]).sum()),
        "moves": abs(float(right.loss_sum - clean.loss_sum)) > 1e-12,
        "off": abs(float(wrong.loss_sum / wrong.tokens - right.loss_sum / right.tokens)),
        "advantages": advantages.tolist(),
        "mask": mask.tolist(),
    }


def draw_slots(n: Numbers) -> Picture:
    rows: dict[str, list[float]] = {Word("first"): n["advantages"][0], Word("second"): n["advantages"][1]}
    rows[Word("counts")] = [float(counted) for counted in n["mask"][1]]
    return ledger([str(number) for number in range(1, 7)], rows, result=Word("counts"), at=int(n["ended"]) - 1, digits=1)


# --- padding -----------------------------------------------------------------------------------------------------------------------------


def padding(run: LessonRun, pads: int, response: int) -> Numbers:
    """A response's log-probability when its prompt has padding in front: with positions that follow the mask, and with none given."""
    sample, of = run.samples(1)[int(response) - 1], run.recorded(1)
    count = int(pads)
    plain = run.batch([sample.prompt_ids], [sample.ids])
    front = torch.zeros(1, count, dtype=torch.long)
    ids = torch.cat([front, plain.prompt_ids], dim=1)
    mask = torch.cat([front.bool(), plain.prompt_mask], dim=1)
    padded = TokenBatch(ids, mask, plain.response_ids, plain.mask)
    engine = run.read_reference(padded)[0].double()
    row = torch.cat([ids, plain.response_ids], dim=1)
    attention = torch.cat([mask, plain.mask], dim=1)
    length = len(sample.ids)
    model: Any = run.reference.model
    with torch.no_grad():
        given, none = (
            model(input_ids=row, attention_mask=attention.long(), **more).logits[:, -length - 1 : -1]
            for more in ({"position_ids": position_ids(attention)}, {"position_ids": torch.arange(row.shape[1])[None]})
        )
    right, wrong = (token_logprobs(logits, plain.response_ids)[0].double() for logits in (given, none))
    recorded = of.ref_logprobs[int(response) - 1, :length]
    return {
        "recorded": float(recorded.sum()),
        "engine": float(engine.sum()),
        "right": float(right.sum()),
        "wrong": float(wrong.sum()),
        "error": float((wrong - recorded).abs().max()),
        "ratio": math.exp(float((wrong - recorded).abs().max())),
        "differs": float((wrong - recorded).abs().max()) > 1e-3,
        "largest": float(torch.maximum((engine - recorded).abs(), (right - recorded).abs()).max()),
        "first": [x.tolist()[:8] for x in (recorded, wrong)],
        "pieces": sample.pieces[:8],
    }


def draw_padding(n: Numbers) -> Picture:
    rows: dict[str, list[float]] = {Word("recorded"): n["first"][0], Word("wrong"): n["first"][1]}
    return ledger(n["pieces"], rows, result=Word("recorded"))


# --- for yourself ------------------------------------------------------------------------------------------------------------------------


def check_yourself(length: int, place: int) -> Numbers:
    """Whether a slot pushes the policy, by the slope of the engine's loss there."""
    mask = torch.arange(10)[None] < int(length)
    new = torch.zeros(1, 10, dtype=torch.float64, requires_grad=True)
    loss = policy_loss(new, torch.zeros(1, 10, dtype=torch.float64), torch.ones(1, 10, dtype=torch.float64), mask, EPS)
    (slope,) = torch.autograd.grad(loss.loss_sum / loss.tokens, new)
    return {
        "counts": bool(slope[0, int(place) - 1] != 0),
        "slope": float(slope[0, int(place) - 1]),
        "tokens": int(loss.tokens),
        "slots": 10,
    }


SCENES = (
    Scene(
        "from_text_to_query",
        from_text_to_query,
        controls=(Slider("review", 1, REVIEWS, 1, start=2), Slider("length", 2, SHOWN, 1, start=7)),
        pictures={"query": draw_query},
        needs=("run",),
    ),
    Scene(
        "drawn_lengths",
        drawn_lengths,
        controls=(Slider("low", 2, 8, 1, start=2), Slider("spread", 0, 6, 1, start=6), Slider("seed", 0, 10, 1, start=0)),
        pictures={"lengths": draw_lengths},
        needs=("run",),
    ),
    Scene(
        "only_the_response",
        only_the_response,
        controls=(Slider("junk", -5, 5, 0.5, start=5), Slider("ended", 1, 6, 1, start=4)),
        pictures={"slots": draw_slots},
    ),
    Scene(
        "padding",
        padding,
        controls=(Slider("pads", 0, 10, 1, start=6), Slider("response", 1, 20, 1, start=1)),
        pictures={"padding": draw_padding},
        needs=("run",),
    ),
    Scene("check_yourself", check_yourself, controls=(Slider("length", 1, 10, 1, start=6), Slider("place", 1, 10, 1, start=6))),
)
