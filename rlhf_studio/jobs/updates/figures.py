"""A comparison as plain data, for a file that a page can open, and as tables for a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from rlhf_studio.engine.text import response_pieces
from rlhf_studio.engine.types import TokenBatch
from rlhf_studio.jobs.updates.algorithms import Algorithm
from rlhf_studio.jobs.updates.compare import Comparison, Fresh, Update
from rlhf_studio.language import _, labelled, listing, pgettext, told
from rlhf_studio.visible import cells, padded, visible

Json = dict[str, Any]
VERSION = 1
MOST_MOVERS, SHOWN_PROMPTS, MOST_SHOWN = 12, 2, 8
AROUND = 5  # tokens before a token that moved, so that it can be recognised


def as_data(comparison: Comparison, tokenizer: Any, left_out: Sequence[tuple[Algorithm, str]], about: Json) -> Json:
    """All figures, by name. Numbers have six digits; a figure that there is not is null.

    ``about`` says what was compared: the run and its step.
    """
    batch, first = comparison.batch, comparison.updates[0] if comparison.updates else None
    samples, tokens = batch.samples, batch.samples.tokens
    group = first.config.ppo.responses_per_prompt if first else 1
    shown = _shown(len(tokens), group)
    movers = _movers(comparison)
    rows = {row for row, _ in movers} | set(shown)
    pieces = {row: response_pieces(tokenizer, tokens, row) for row in rows}
    return {
        "version": VERSION,
        **about,
        "batch": {
            "responses": len(tokens),
            "responses_per_prompt": group,
            "tokens": int(samples.mask.sum()),
            "kl_coef": batch.kl_coef,
            "reward": _plain(batch.scores.raw.float().mean()),
            "silent_prompts": _silent(batch.scores.shaped, group),
            "prompts": len(tokens) // group,
        },
        "before": {"kl_reference": _plain(comparison.before.kl_reference), **_earned(comparison.before.fresh, group)},
        "algorithms": [_row(update, comparison) for update in comparison.updates],
        "left_out": [{"name": one.name, "title": one.title, "why": why} for one, why in left_out],
        "alike": _alike(comparison),
        "movers": [_mover(comparison, pieces[row], row, token) for row, token in movers],
        "responses": [_response(comparison, pieces[row], row) for row in shown],
    }


def _row(update: Update, comparison: Comparison) -> Json:
    ppo, sums, mask = update.config.ppo, update.stats.sums, comparison.batch.samples.mask
    change = (update.after.logprobs - comparison.before.logprobs)[mask]
    names = ("advantage", "ratio_level", "loss_average", "cliprange", "cliprange_high", "kl_placement", "kl_estimator")
    return {
        "name": update.algorithm.name,
        "title": update.algorithm.title,
        "source": update.algorithm.source,
        "settings": {name: getattr(ppo, name) for name in (*names, "ppo_epochs", "mini_batch_size")},
        "optimizer_steps": update.stats.optimizer_steps,
        "grad_norm": _plain(update.stats.grad_norm),
        "clipped": _plain(sums.clip_fraction),
        "likelier": _plain((change > 0).float().mean()),
        "change": _plain(change.abs().mean()),
        "moved": _plain(update.moved),
        "kl_old": _plain(update.kl_old),
        "kl_reference": _plain(update.after.kl_reference),
        **_earned(update.after.fresh, ppo.responses_per_prompt, comparison.before.fresh, len(mask)),
        "problems": list(update.stats.problems),
    }


def _earned(fresh: Fresh, group: int, before: Fresh | None = None, batch: int = 0) -> Json:
    """Means of fresh responses and, against ``before``, their changes with standard errors: the same prompts and random numbers.

    The responses are several batches of ``batch``, with ``group`` for each prompt side by side. Changes of one prompt's responses go
    together, so the error is that of the prompts' means.
    """
    result: Json = {"fresh": len(fresh.reward)}
    for name in ("reward", "gold"):
        now: Tensor | None = getattr(fresh, name)
        was: Tensor | None = None if before is None else getattr(before, name)
        result[name] = None if now is None else _plain(now.float().mean())
        if now is not None and was is not None:
            by_prompt = (now - was).float().reshape(-1, batch // group, group).mean(dim=(0, 2))
            result[f"{name}_change"] = _plain(by_prompt.mean())
            result[f"{name}_error"] = _plain(by_prompt.std() / math.sqrt(len(by_prompt))) if len(by_prompt) > 1 else None
    return result


def _silent(scores: Tensor, group: int) -> int:
    """Prompts whose responses all have one score: within a prompt there is nothing to compare."""
    groups = scores.reshape(-1, group)
    return int((groups == groups[:, :1]).all(dim=1).sum()) if group > 1 else 0


def _alike(comparison: Comparison) -> list[list[float | None]]:
    """The correlation of what two algorithms did to the log-probabilities of the batch's tokens, for each pair."""
    mask = comparison.batch.samples.mask
    changes = [(update.after.logprobs - comparison.before.logprobs)[mask].double() for update in comparison.updates]
    return [[_correlation(one, other) for other in changes] for one in changes]


def _correlation(one: Tensor, other: Tensor) -> float | None:
    one, other = one - one.mean(), other - other.mean()
    size = float(one.norm() * other.norm())
    return _plain(float(one @ other) / size) if size else None


def _movers(comparison: Comparison) -> list[tuple[int, int]]:
    """The tokens of the batch whose probability an algorithm moved most, the largest move first: (response, place)."""
    mask = comparison.batch.samples.mask
    if not comparison.updates:
        return []
    old = comparison.before.logprobs.exp()
    moves = torch.stack([(update.after.logprobs.exp() - old).abs() for update in comparison.updates]).amax(dim=0)
    order = torch.where(mask, moves, -1.0).flatten().argsort(descending=True)[: min(MOST_MOVERS, int(mask.sum()))]
    return [(int(place) // mask.shape[1], int(place) % mask.shape[1]) for place in order]


def _mover(comparison: Comparison, pieces: list[str], row: int, token: int) -> Json:
    return {
        "response": row,
        "place": token,
        "before": "".join(pieces[max(token - AROUND, 0) : token]),
        "token": pieces[token],
        "probability": _plain(comparison.before.logprobs[row, token].exp()),
        "after": {update.algorithm.name: _plain(update.after.logprobs[row, token].exp()) for update in comparison.updates},
        "advantages": {update.algorithm.name: _plain(update.advantages[row, token]) for update in comparison.updates},
    }


def _shown(responses: int, group: int) -> list[int]:
    """The responses whose every token is kept: those to the first prompts."""
    return list(range(min(responses, group * SHOWN_PROMPTS if group > 1 else MOST_SHOWN, MOST_SHOWN)))


def _response(comparison: Comparison, pieces: list[str], row: int) -> Json:
    samples, scores = comparison.batch.samples, comparison.batch.scores
    tokens: TokenBatch = samples.tokens
    real = tokens.mask[row]

    def numbers(x: Tensor) -> list[float | None]:
        return [_plain(value) for value in x[row][real]]

    return {
        "prompt": samples.prompts.texts[row],
        "pieces": pieces,
        "reward": _plain(scores.raw[row]),
        "gold": None if scores.gold is None else _plain(scores.gold[row]),
        "logprobs": numbers(comparison.before.logprobs),
        "after": {update.algorithm.name: numbers(update.after.logprobs) for update in comparison.updates},
        "advantages": {update.algorithm.name: numbers(update.advantages) for update in comparison.updates},
    }


def _plain(value: Any) -> float | None:
    number = float(value)
    return float(f"{number:.6g}") if math.isfinite(number) else None


# --- tables ----------------------------------------------------------------------------------------------------------------


def as_text(data: Json) -> str:
    """The comparison for a terminal."""
    batch, before = data["batch"], data["before"]
    about = _("{responses} responses to {prompts} prompts, {tokens} tokens, mean reward {reward:.3f}; learning rate {rate:.2g}")
    lines = [labelled(told(data["title"]), about.format(**batch, rate=data["learning_rate"]))]
    if batch["silent_prompts"]:
        silent = _("For {count} of the prompts all responses have one score: within those nothing is learned.")
        lines.append(silent.format(count=batch["silent_prompts"]))
    lines += ["", *_table(list(_main_rows(data))), ""]
    gold = "" if before["gold"] is None else _(", gold {gold:.3f}").format(gold=before["gold"])
    earned = _("Before: KL to the reference {kl_reference:.3f}; {fresh} fresh responses earn {reward:.3f}{gold}.")
    lines.append(earned.format(**{**before, "gold": gold}))
    for why in dict.fromkeys(one["why"] for one in data["left_out"]):
        names = listing(one["title"] for one in data["left_out"] if one["why"] == why)
        lines.append(_("Left out: {names}. {why}.").format(names=names, why=told(f"{why[0].upper()}{why[1:]}")))
    if data["movers"]:
        lines += ["", _("The tokens that moved most, and their probabilities before and after:"), "", *_table(list(_mover_rows(data)))]
    if len(data["algorithms"]) > 1:
        lines += ["", _("How alike the moves of all tokens are (correlation):"), "", *_table(list(_alike_rows(data)))]
    return "\n".join(lines)


def _main_rows(data: Json) -> Iterator[list[str]]:
    gold = data["before"]["gold"] is not None
    clip = _("clipped"), _("silent clip")
    yield ["", _("steps"), _("gradient"), *clip, _("KL from old"), _("KL to ref."), _("reward"), *([_("gold")] if gold else [])]
    for row in data["algorithms"]:
        clipped = row["clipped"]
        shares = ["", ""] if clipped is None else [f"{clipped:.1%}", f"{1 - clipped:.1%}"]
        figures = [str(row["optimizer_steps"]), _figure(row["grad_norm"]), *shares, _figure(row["kl_old"]), _figure(row["kl_reference"])]
        yield [row["title"], *figures, _change(row, "reward"), *([_change(row, "gold")] if gold else [])]


def _change(row: Json, name: str) -> str:
    error = row[f"{name}_error"]
    return f"{row[f'{name}_change']:+.3f}" + ("" if error is None else f" ± {error:.3f}")


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _mover_rows(data: Json) -> Iterator[list[str]]:
    yield [_("token"), _("response"), pgettext("an update", "before"), *(row["title"] for row in data["algorithms"])]
    for one in data["movers"]:
        text = visible(f"{'…' if one['place'] > AROUND else ''}{one['before']}[{one['token']}]")
        after = [f"{one['after'][row['name']]:.3f}" for row in data["algorithms"]]
        yield [text, str(one["response"]), f"{one['probability']:.3f}", *after]


def _alike_rows(data: Json) -> Iterator[list[str]]:
    titles = [row["title"] for row in data["algorithms"]]
    yield ["", *titles]
    for title, row in zip(titles, data["alike"], strict=True):
        yield [title, *("" if value is None else f"{value:.2f}" for value in row)]


def _table(rows: list[list[str]]) -> list[str]:
    """The first column to the left, the others to the right."""
    widths = [max(cells(cell) for cell in column) for column in zip(*rows, strict=True)]
    first, *others = widths
    return [
        "  ".join([padded(row[0], first), *(padded(cell, width, right=True) for cell, width in zip(row[1:], others, strict=True))])
        for row in rows
    ]
