"""A run's most telling number, in words, for its card on the road."""

from __future__ import annotations

from rlhf_studio.runs.reader import RunReader

LAST_TENTH = 10


def headline_of(reader: RunReader) -> str:
    """One short sentence from the run's metrics; empty when it has none. Raises StoreError."""
    rows = [metrics for _, metrics in reader.metrics_since(0)]
    if not rows:
        return ""
    stage = reader.status().stage
    if stage == "sft":
        return _last(rows, "sft/eval_perplexity", "Held-out perplexity {:.2f}.")
    if stage in ("reward_model", "dpo"):
        return _last(rows, f"{stage}/eval_accuracy", "Agrees with {:.1%} of held-out preferences.")
    if stage == "ppo":
        tail = rows[-max(len(rows) // LAST_TENTH, 1) :]
        name = "gold/score" if "gold/score" in rows[0] else "objective/scores"
        last = [row[name] for row in tail if row.get(name) is not None]
        first = rows[0].get(name)
        word = "Gold score" if name == "gold/score" else "Score"
        return f"{word} {first:.2f} → {sum(last) / len(last):.2f}." if last and first is not None else ""
    return _last(rows, "evaluation/win_rate", "Wins {:.1%} of comparisons with the start.")


def _last(rows: list[dict[str, float]], name: str, words: str) -> str:
    found = [row[name] for row in rows if row.get(name) is not None]
    return words.format(found[-1]) if found else ""
