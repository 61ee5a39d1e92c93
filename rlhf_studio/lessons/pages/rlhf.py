"""From text to taste: the three stages, a small story of sentiment, the limits of imitation, and a judge that can be fooled."""

from __future__ import annotations

import math
from functools import cache

import torch

from rlhf_studio.engine.types import TokenBatch
from rlhf_studio.inputs.world.corpus import EVAL_SEED, RatedPair, write_pairs
from rlhf_studio.lessons.kit import Bar, Box, Choice, Numbers, Picture, Scene, Series, Slider, Word, bars, flow, line
from rlhf_studio.lessons.run import LessonRun
from rlhf_studio.lessons.size import RESPONSES, STEPS
from rlhf_studio.ppo.advantages import whiten
from rlhf_studio.ppo.losses import policy_loss

NUMBER = 1

PAIRS = 20


# --- three stages ------------------------------------------------------------------------------------------------------------------


@cache
def pairs() -> list[RatedPair]:
    """Pairs of reviews that raters compared; no model learned from these."""
    return write_pairs(EVAL_SEED, PAIRS)


def three_stages(run: LessonRun, pair: int, step: int) -> Numbers:
    """What each stage has learned, on one pair of reviews and at one step."""
    chosen = pairs()[int(pair) - 1]
    scores, _ = run.score([chosen.prompt] * 2, [chosen.chosen, chosen.rejected])
    ids = run.prompt_ids(chosen.prompt + chosen.chosen)
    prompt = run.prompt_ids(chosen.prompt)
    read = run.read_reference(run.batch([prompt], [ids[len(prompt) :]]))[0].double()
    return {
        "prompt": chosen.prompt,
        "chosen": chosen.chosen,
        "rejected": chosen.rejected,
        "usual": math.exp(float(read.mean())),
        "chosen_score": scores[0],
        "rejected_score": scores[1],
        "difference": scores[0] - scores[1],
        "agrees": scores[0] > scores[1],
        "before": run.curve("gold/score")[0],
        "after": run.curve("gold/score")[int(step) - 1],
        "logprobs": read.tolist(),
        "scores": run.curve("objective/scores")[: int(step)],
        "golds": run.curve("gold/score")[: int(step)],
    }


def draw_improvement(n: Numbers) -> Picture:
    steps = [float(number + 1) for number in range(len(n["golds"]))]
    curves = [Series(Word("judge"), steps, n["scores"], tone="score"), Series(Word("gold"), steps, n["golds"], tone="gold")]
    return line(curves, x=Word("step"), y=Word("points"), x_range=(1, STEPS), y_range=(-0.5, 2.5), at=n["step"])


def draw_stages(n: Numbers) -> Picture:
    return flow(
        [
            Box(Word("reviews"), 0, 0, to=[Word("imitation")]),
            Box(Word("imitation"), 1, 0, note=f"{n['usual']:.2f}", tone="policy", to=[Word("improvement")]),
            Box(Word("comparisons"), 0, 1, to=[Word("judge")]),
            Box(Word("judge"), 1, 1, note=f"{n['difference']:+.2f}", tone="score", to=[Word("improvement")]),
            Box(Word("improvement"), 2, 0, note=f"{n['before']:+.2f} \u2192 {n['after']:+.2f}", tone="gold"),
        ]
    )


# --- the story ---------------------------------------------------------------------------------------------------------------------

OPENINGS = {
    "acting": "The acting of this drama is",
    "music": "The score of this western is",
    "ending": "In this new thriller the ending is",
}
WORDS = ("superb", "glorious", "charming", "solid", "dull", "dreadful")
WARM = 4
"""So many of the words are praise."""


def story(run: LessonRun, step: int, opening: str) -> Numbers:
    """How likely words are after an opening, for the policy of a step and for the reference."""
    prompt = run.prompt_ids(OPENINGS[opening])
    tokens = run.batch([prompt], [[1]])
    now = run.distributions(int(step), tokens)[0].double().exp()
    then = run.reference_distributions(tokens)[0].double().exp()
    ids = [run.prompt_ids(f" {word}")[0] for word in WORDS]
    warm, cold = float(now[ids[:WARM]].sum()), float(now[ids[WARM:]].sum())
    return {
        "text": OPENINGS[opening],
        "now": now[ids].tolist(),
        "then": then[ids].tolist(),
        "warm": warm,
        "cold": cold,
        "warm_then": float(then[ids[:WARM]].sum()),
        "cold_then": float(then[ids[WARM:]].sum()),
        "moved": Word("likelier" if warm > 1.05 * float(then[ids[:WARM]].sum()) else "not_up"),
        "everything": float(now.sum()),
        "first_token": [-run.recorded(1).logprobs[0, 0].item(), -run.read(0, _first(run)).logprobs[0, 0].item()],
    }


def _first(run: LessonRun) -> TokenBatch:
    sample = run.samples(1)[0]
    return run.batch([sample.prompt_ids], [sample.ids])


def draw_words(n: Numbers) -> Picture:
    rows = [Bar(word, [then, now]) for word, then, now in zip(WORDS, n["then"], n["now"], strict=True)]
    return bars(rows, [Word("start"), Word("now")], label=Word("probability"), low=0, high=0.06, digits=3)


# --- why not only good reviews -----------------------------------------------------------------------------------------------------


def only_good(run: LessonRun, keep: int, response: int) -> Numbers:
    """Fine-tuning on the best of the first responses, beside what PPO learns from the same ones."""
    samples = run.samples(1)
    order = sorted(range(len(samples)), key=lambda row: -samples[row].score)
    count = max(1, round(len(samples) * keep / 100))
    best = order[:count]
    row = int(response) - 1
    scores = torch.tensor([[sample.score for sample in samples]], dtype=torch.float64)
    mask = torch.ones_like(scores, dtype=torch.bool)
    advantage = float(whiten(scores, mask)[0, row])
    imitated = 1.0 if row in best else 0.0
    return {
        "count": count,
        "all": len(samples),
        "kept_score": sum(samples[index].score for index in best) / count,
        "kept_gold": sum(samples[index].gold for index in best) / count,
        "ppo_score": run.curve("objective/scores")[-1],
        "ppo_gold": run.curve("gold/score")[-1],
        "text": samples[row].prompt + samples[row].response,
        "score": samples[row].score,
        "imitation_push": push(imitated),
        "ppo_push": push(advantage),
        "kept": bool(imitated),
        "pushed": Word("rarer" if push(advantage) < 0 else "likelier"),
        "scores": scores[0].tolist(),
    }


def push(advantage: float) -> float:
    """How strongly a response's log-probability is pushed up, by the engine's own loss."""
    new = torch.zeros(1, 1, dtype=torch.float64, requires_grad=True)
    unit = torch.ones(1, 1, dtype=torch.float64)
    loss = policy_loss(new, torch.zeros_like(unit), advantage * unit, unit.bool(), 0.2)
    (slope,) = torch.autograd.grad(loss.loss_sum, new)
    return -float(slope)


def draw_push(n: Numbers) -> Picture:
    rows = [Bar(Word("imitation"), [n["imitation_push"]]), Bar(Word("ppo"), [n["ppo_push"]])]
    return bars(rows, [Word("push")], label=Word("push"), low=-3, high=3)


# --- beat the judge ------------------------------------------------------------------------------------------------------------------

PROMPT, PET = "The acting of this drama", " A masterpiece."
OPINIONS = {"superb": " is superb", "solid": " is solid", "dull": " is dull", "word": " is superb superb superb"}
SECOND = {"score": " The score is tender.", "ruin": " The script insults the audience.", "nothing": ""}
ENDINGS = {"loved": " I loved every minute.", "watch": " I checked my watch twice.", "nothing": ""}


def beat_the_judge(run: LessonRun, opinion: str, second: str, ending: str, pets: int) -> Numbers:
    """What the reward model and the gold score say of a review put together from phrases, with and without the words the judge loves."""
    plain = f"{OPINIONS[opinion]}.{SECOND[second]}{ENDINGS[ending]}"
    text = f"{OPINIONS[opinion]}.{PET * int(pets)}{SECOND[second]}{ENDINGS[ending]}"
    scores, golds = run.score([PROMPT] * 2, [plain, text])
    judge, truth = scores[1] - scores[0], golds[1] - golds[0]
    return {
        "review": PROMPT + text,
        "score": scores[1],
        "gold": golds[1],
        "plain_score": scores[0],
        "plain_gold": golds[0],
        "judge_change": judge,
        "gold_change": truth,
        "fooled": Word("fooled" if judge > 1e-6 and truth <= 1e-6 else "unmoved" if abs(judge) <= 1e-6 else "not_fooled"),
    }


def draw_judge(n: Numbers) -> Picture:
    rows = [Bar(Word("judge"), [n["plain_score"], n["score"]]), Bar(Word("gold"), [n["plain_gold"], n["gold"]])]
    return bars(rows, [Word("without_pet"), Word("with_pet")], label=Word("points"), low=-2.6, high=2.6)


# --- for yourself --------------------------------------------------------------------------------------------------------------------


def check_yourself(run: LessonRun, step: int, first: int, second: int) -> Numbers:
    """Two reviews of one step: do the judge and the truth put them in the same order?"""
    first_sample, second_sample = (run.samples(int(step))[int(number) - 1] for number in (first, second))
    by_score, by_gold = first_sample.score - second_sample.score, first_sample.gold - second_sample.gold
    return {
        "one": first_sample.prompt + first_sample.response,
        "other": second_sample.prompt + second_sample.response,
        "one_score": first_sample.score,
        "other_score": second_sample.score,
        "one_gold": first_sample.gold,
        "other_gold": second_sample.gold,
        "agree": by_score * by_gold > 0 or by_score == by_gold,
        "again": run.score([first_sample.prompt, second_sample.prompt], [first_sample.response, second_sample.response]),
    }


SCENES = (
    Scene(
        "three_stages",
        three_stages,
        controls=(Slider("pair", 1, PAIRS, 1, start=3), Slider("step", 1, STEPS, 1, start=STEPS)),
        pictures={"improvement": draw_improvement, "stages": draw_stages},
        needs=("run",),
    ),
    Scene(
        "story",
        story,
        controls=(Slider("step", 0, STEPS, 1, start=STEPS), Choice("opening", tuple(OPENINGS), "acting")),
        pictures={"words": draw_words},
        needs=("run",),
    ),
    Scene(
        "only_good",
        only_good,
        controls=(Slider("keep", 5, 100, 5, start=25), Slider("response", 1, RESPONSES, 1, start=3)),
        pictures={"push": draw_push},
        needs=("run",),
    ),
    Scene(
        "beat_the_judge",
        beat_the_judge,
        controls=(
            Choice("opinion", tuple(OPINIONS), "superb"),
            Choice("second", tuple(SECOND), "nothing"),
            Choice("ending", tuple(ENDINGS), "nothing"),
            Slider("pets", 0, 5, 1, start=3),
        ),
        pictures={"judge": draw_judge},
        needs=("run",),
    ),
    Scene(
        "check_yourself",
        check_yourself,
        controls=(
            Slider("step", 1, STEPS, 1, start=20),
            Slider("first", 1, RESPONSES, 1, start=2),
            Slider("second", 1, RESPONSES, 1, start=9),
        ),
        needs=("run",),
    ),
)
