"""The KL controller: another price for the next step."""

from __future__ import annotations

from rlhf_studio.lessons.kit import Numbers, Scene, Slider
from rlhf_studio.lessons.run import LessonRun
from rlhf_studio.lessons.size import STEPS
from rlhf_studio.lessons.tour.line import MOST, NEEDS, STEP, table
from rlhf_studio.ppo.kl_control import MAX_ERROR, AdaptiveKL

NUMBER = 14


def controlled(run: LessonRun, step: float, target: float, horizon: float) -> Numbers:
    """What an adaptive controller would answer to the recorded KL."""
    kls, betas = run.curve("objective/kl"), run.curve("objective/kl_coef")
    number, episodes = int(step), run.config.ppo.batch_size
    first = min(max(number - MOST // 2, 0), STEPS - MOST)
    columns = range(first, first + MOST)

    def answer(index: int) -> float:
        controller = AdaptiveKL(betas[index], target, horizon)
        controller.update(kls[index], episodes)
        return controller.coef

    kl, before, after = kls[number - 1], betas[number - 1], answer(number - 1)
    return {
        "columns": [str(index + 1) for index in columns],
        "rows": {
            "kl  float": [kls[index] for index in columns],
            "coef  float": [betas[index] for index in columns],
            "coef after update  float": [answer(index) for index in columns],
        },
        "digits": 4,
        "at": number - 1 - first,
        "kl": kl,
        "before": before,
        "after": after,
        "episodes": episodes,
        "raised": after > before,
        "fixed": run.config.ppo.kl_controller == "fixed",
        "limited": abs(kl / target - 1) > MAX_ERROR,
        "error": kl / target - 1,
        "most": MAX_ERROR,
        "change": after / before - 1,
    }


SCENES = (
    Scene(
        "line",
        controlled,
        controls=(
            STEP,
            Slider("target", 1, 12, 0.5, start=6, unit="nats"),
            Slider("horizon", 500, 10_000, 500, start=2000, unit="responses"),
        ),
        needs=NEEDS,
        pictures={"tensors": table},
    ),
)
