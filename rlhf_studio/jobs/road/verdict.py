"""The result of a road, in words, from the headlines of its parts."""

from __future__ import annotations

import re

from rlhf_studio.jobs.road.state import Road

_RATE = re.compile(r"The last policy wins (\d+\s?%) of comparisons with the first( \((\d+)\s?% to (\d+)\s?%\))?(, .+\.)")
_COURSE = re.compile(r"(.+) (\S+) → (\S+)\.")


def verdict_of(road: Road) -> str:
    """Whether the trained policy is better than the fine-tuned one, and what its score did during PPO; empty before the road's end."""
    if road.next_part() is not None:
        return ""
    compared = [part.headline for part in road.parts if part.key == "evaluation"]
    trained = [part.headline for part in road.parts if part.key.startswith("ppo")]
    return " ".join(sentence for sentence in (_better(compared[-1]) if compared else "", _course(trained)) if sentence)


def _better(headline: str) -> str:
    """Whether the trained policy is better: sure only where the whole interval of the win rate is on one side of 50 %."""
    match = _RATE.fullmatch(headline)
    if match is None:
        return ""
    rate, between, low, high, rest = match.groups()
    if between is None:
        judged = "Too few answers to tell: the trained policy wins"
    elif int(low) > 50:
        judged = "The trained policy is better: it wins"
    elif int(high) < 50:
        judged = "The trained policy is worse: it wins"
    else:
        judged = "No sure difference: the trained policy wins"
    return f"{judged} {rate} of comparisons with the fine-tuned one{between or ''}{rest}"


def _course(headlines: list[str]) -> str:
    """How a number changed from the beginning of the first round to the end of the last one."""
    courses = [match.groups() for headline in headlines if (match := _COURSE.fullmatch(headline))]
    if len(courses) < len(headlines) or len({title for title, _, _ in courses}) != 1:  # nothing moved, or not the same number
        return ""
    title, first, last = courses[0][0], courses[0][1], courses[-1][2]
    before, after = (float(text.replace("\u2212", "-")) for text in (first, last))
    if before == after:
        return f"With PPO the {title.lower()} stayed at {last}."
    return f"With PPO the {title.lower()} {'rose' if after > before else 'fell'} from {first} to {last}."
