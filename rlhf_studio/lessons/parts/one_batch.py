"""One batch, all algorithms: what seven of them made of the same responses, from ``compare-updates`` on the tiny world."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from rlhf_studio.config.bundled import ONE_BATCH
from rlhf_studio.lessons.kit import Choice, Numbers, Picture, Scene, Token, Word, ledger, tokens

Json = dict[str, Any]
ALGORITHMS = ("ppo", "reinforce", "rloo", "grpo", "dr_grpo", "dapo", "gspo")
RESPONSES = tuple(str(number) for number in range(1, 9))
SCALE = 0.5  # nats, where a token's colour is full
CLEAR = 0.1  # of a correlation; below this, two are equally near


@cache
def comparison() -> Json:
    """The figures on record."""
    data: Json = json.loads(ONE_BATCH.read_text(encoding="utf-8"))
    return data


def one_batch(algorithm: str, response: str) -> Numbers:
    """What an algorithm did to the tokens of one response, and the figures of all algorithms."""
    data, row = comparison(), int(response) - 1
    chosen, rows = data["responses"][row], {one["name"]: one for one in data["algorithms"]}
    group = data["batch"]["responses_per_prompt"]
    first = row - row % group
    others = [one["reward"] for place, one in enumerate(data["responses"][first : first + group], first) if place != row]
    change = [after - before for after, before in zip(chosen["after"][algorithm], chosen["logprobs"], strict=True)]
    names = [one["name"] for one in data["algorithms"]]
    near = {name: data["alike"][names.index(algorithm)][names.index(name)] for name in ("ppo", "grpo")}
    apart = near["ppo"] - near["grpo"]
    clearest = max(rows, key=lambda name: clearness(rows[name], "reward"))
    up = sum(move > 0 for move in change)
    return {
        "pieces": chosen["pieces"],
        "change": change,
        "advantage": sum(chosen["advantages"][algorithm]) / len(change),
        "reward": chosen["reward"],
        "others": sum(others) / len(others),
        "up": up,
        "count": len(change),
        "mostly_up": 2 * up > len(change),
        "nearer": Word("ppo" if apart > CLEAR else "grpo" if apart < -CLEAR else "both"),
        "like_ppo": near["ppo"],
        "like_grpo": near["grpo"],
        "responses": data["batch"]["responses"],
        "prompts": data["batch"]["prompts"],
        "steps": rows[algorithm]["optimizer_steps"],
        "clipped": rows[algorithm]["clipped"],
        "ppo_clipped": rows["ppo"]["clipped"],
        "gspo_clipped": rows["gspo"]["clipped"],
        "fresh": data["before"]["fresh"],
        "clearest": clearness(rows[clearest], "reward"),
        "clearest_name": Word(clearest),
        "gold_clearest": max(clearness(one, "gold") for one in rows.values()),
    }


def clearness(row: Json, of: str) -> float:
    """How many standard errors a change is from zero."""
    return float(abs(row[f"{of}_change"]) / row[f"{of}_error"])


def draw_change(n: Numbers) -> Picture:
    items = [Token(piece, move) for piece, move in zip(n["pieces"], n["change"], strict=True)]
    return tokens(items, label=Word("moved_by"), size=SCALE, digits=3)


def draw_figures(n: Numbers) -> Picture:
    def changed(row: Json, of: str) -> str:
        return f"{row[f'{of}_change']:+.3f} ± {row[f'{of}_error']:.3f}".replace("-", "−")

    return ledger(
        [Word(name) for name in ("clipped_share", "kl_old", "kl_reference", "reward_change", "gold_change")],
        {
            Word(row["name"]): [
                f"{100 * row['clipped']:.1f} %",
                f"{row['kl_old']:.3f}",
                f"{row['kl_reference']:.2f}",
                changed(row, "reward"),
                changed(row, "gold"),
            ]
            for row in comparison()["algorithms"]
        },
        result=Word(n["algorithm"]),
    )


SCENE = Scene(
    "one_batch",
    one_batch,
    controls=(Choice("algorithm", ALGORITHMS, start="grpo"), Choice("response", RESPONSES, start="3", plain=True)),
    pictures={"change": draw_change, "figures": draw_figures},
)
