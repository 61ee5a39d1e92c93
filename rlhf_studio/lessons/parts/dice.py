"""Ask 64 dice: what a token is worth, measured by many endings, beside GAE's guess from one response and the critic's value."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, NamedTuple

import torch

from rlhf_studio.lessons.kit import Bar, Numbers, Picture, Scene, Series, Slider, Token, Word, bars, line, tokens
from rlhf_studio.lessons.size import RESPONSES, STEPS
from rlhf_studio.ppo.advantages import gae
from rlhf_studio.ppo.kl import kl_per_token
from rlhf_studio.ppo.rewards import shape_rewards

if TYPE_CHECKING:
    from rlhf_studio.lessons.run import LessonRun

THROWS = 64
SURE = 2
"""So many standard errors must a difference have before it is called one."""
STATE, WRITTEN, SWAPPED = "state", "written", "swapped"


class Thrown(NamedTuple):
    """For each ending: the reward of the tokens from the chosen one on, the score, and their log-ratios to the reference in nats."""

    returns: list[float]
    scores: list[float]
    log_ratios: list[list[float]]


def thrown(run: LessonRun, step: int, prompt: str, begun: tuple[int, ...], at: int, seed: int) -> Thrown:
    """64 endings by the policy that sampled this step. Tokens from number ``at`` on pay for KL as in the run."""
    from rlhf_studio.lessons.endings import endings  # takes seconds to load, and the lesson's other scenes do not need it

    thrown_endings = endings(run, step - 1, prompt, begun, THROWS, seed)
    batch = run.batch([run.prompt_ids(prompt)] * THROWS, [[*begun, *ending] for ending in thrown_endings.ids])
    logprobs, ref_logprobs = (x.double()[:, at:] for x in (run.read(step - 1, batch).logprobs, run.read_reference(batch)))
    settings, mask = run.recorded(step).settings, batch.mask[:, at:]
    rewards = shape_rewards(kl_per_token(logprobs, ref_logprobs, settings.kl_estimator), thrown_endings.scores, mask, settings.kl_coef)
    _, returns, _ = gae(rewards, torch.zeros_like(rewards), mask, settings.gamma, 1.0)
    apart = [row[keep].tolist() for row, keep in zip(logprobs - ref_logprobs, mask, strict=True)]
    return Thrown(returns[:, 0].tolist(), thrown_endings.scores.tolist(), apart)


def dice(run: LessonRun, step: int, sample: int, place: int, rank: int) -> Numbers:
    """A token of a recorded response, and another token instead of it: both are continued 64 times, and so is the text before them."""
    from rlhf_studio.lessons.what_if import recompute

    step, row = int(step), int(sample) - 1
    chosen, of = run.samples(step)[row], run.recorded(step)
    at = min(int(place), len(chosen.ids)) - 1
    before = tuple(chosen.ids[:at])
    logprobs = run.distributions(step - 1, run.batch([chosen.prompt_ids], [chosen.ids[: at + 1]]))[-1]
    others = [token for token in logprobs.argsort(descending=True).tolist() if token != chosen.ids[at]]
    other = others[int(rank) - 1]
    begun = {STATE: before, WRITTEN: (*before, chosen.ids[at]), SWAPPED: (*before, other)}
    throws = {name: thrown(run, step, chosen.prompt, ids, at, seed) for seed, (name, ids) in enumerate(begun.items(), 1)}
    mean = {name: statistics.fmean(each.returns) for name, each in throws.items()}
    error = {name: statistics.stdev(each.returns) / math.sqrt(THROWS) for name, each in throws.items()}
    gap = mean[WRITTEN] - mean[SWAPPED]
    gap_error = math.hypot(error[WRITTEN], error[SWAPPED])
    again = recompute(of)
    values = of.values[row][of.mask[row]].tolist()
    names = run.tokenizer.batch_decode([[chosen.ids[at]], [other]])
    return {
        "found": throws,
        "beta": of.settings.kl_coef,
        "means": mean,
        "errors": error,
        "values": values,
        "pieces": chosen.pieces,
        "place_there": at,
        "token": names[0].strip() or names[0],
        "other": names[1].strip() or names[1],
        "text": run.tokenizer.decode([*chosen.prompt_ids, *before]),
        "other_chance": math.exp(logprobs[other]),
        "state": mean[STATE],
        "state_error": error[STATE],
        "written": mean[WRITTEN],
        "written_error": error[WRITTEN],
        "swapped": mean[SWAPPED],
        "swapped_error": error[SWAPPED],
        "gap": gap,
        "worth": mean[WRITTEN] - mean[STATE],
        "worth_error": math.hypot(error[WRITTEN], error[STATE]),
        "other_worth": mean[SWAPPED] - mean[STATE],
        "guess": float(again.advantages[row, at]),
        "value": values[at],
        "throws": THROWS,
        "better": Word("unsure" if abs(gap) < SURE * gap_error else WRITTEN if gap > 0 else SWAPPED),
    }


def draw_text(n: Numbers) -> Picture:
    """Each token, coloured by the critic's value before it."""
    items = [
        Token(piece, value, mark="chosen" if index == n["place_there"] else "")
        for index, (piece, value) in enumerate(zip(n["pieces"], n["values"], strict=True))
    ]
    return tokens(items, label=Word("value"), size=2)


def draw_expected(n: Numbers) -> Picture:
    at = float(n["place_there"] + 1)
    series = [
        Series(Word("value"), [float(index + 1) for index in range(len(n["values"]))], n["values"], tone="value"),
        Series(Word("measured"), [at], [n["state"]], tone="score", dots=True),
    ]
    return line(series, x=Word("token_number"), y=Word("points"), x_range=(1, len(n["values"])), y_range=(-1.5, 2.5), at=at)


def draw_worth(n: Numbers) -> Picture:
    rows = [
        Bar(Word("measured_written"), [n["worth"]]),
        Bar(Word("measured_swapped"), [n["other_worth"]]),
        Bar(Word("guessed"), [n["guess"]]),
    ]
    return bars(rows, [Word("points")], label=Word("points"), low=-2, high=2)


SCENE = Scene(
    "dice",
    dice,
    controls=(
        Slider("step", 1, STEPS, 1, start=3),
        Slider("sample", 1, RESPONSES, 1, start=30),
        Slider("place", 1, 12, 1, start=3),
        Slider("rank", 1, 5, 1, start=3),
    ),
    pictures={"text": draw_text, "expected": draw_expected, "worth": draw_worth},
    needs=("run",),
    slow=True,
)
