"""What the command ``compare-updates`` computes: a recorded batch goes through every algorithm."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from pathlib import Path

import transformers

from rlhf_studio.config import Permissions, RunConfig
from rlhf_studio.config.io import ConfigError, Problem, with_values
from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.jobs.updates.algorithms import ALGORITHMS, why_not
from rlhf_studio.jobs.updates.batch import Found, fresh_batch, recorded_batch
from rlhf_studio.jobs.updates.compare import Comparer
from rlhf_studio.jobs.updates.figures import Json, as_data
from rlhf_studio.language import S_, told
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.visible import say

EXAMPLE, EXAMPLE_STEPS = {"ppo.responses_per_prompt": 4}, 10
EXAMPLE_TITLE = S_(f"The tiny world with four responses to a prompt, after {EXAMPLE_STEPS} steps")


@dataclass(frozen=True)
class Request:
    """What is to be compared.

    Attributes:
        run_dir: the run; None for the example.
        step: whose batch; of the example it is the one after its last.
        fresh: responses that are sampled with each policy.
        seed: of these.
    """

    run_dir: Path | None
    step: int
    fresh: int
    seed: int


def compare_updates(request: Request, permissions: Permissions) -> Json:
    """The figures of the comparison. Raises the errors of :func:`recorded_batch`."""
    transformers.utils.logging.disable_progress_bar()
    if request.run_dir is None:
        config = with_values(load_recipe("world").config, EXAMPLE)
        assert isinstance(config, RunConfig)  # the recipe is one of PPO
        found = fresh_batch(config, EXAMPLE_STEPS, permissions, _report)
        return _figures(found, request, {"title": EXAMPLE_TITLE, "run": "", "step": EXAMPLE_STEPS + 1, "began": 0})
    reader = RunReader(request.run_dir)
    folder = reader.working_folder()
    with contextlib.chdir(folder) if folder.is_dir() else contextlib.nullcontext():  # relative paths in its settings start there
        found = recorded_batch(reader.run_dir, request.step, permissions, _report)
        name = reader.status().name or reader.run_dir.name
        about = {"title": S_(f"Step {request.step} of {name}"), "run": reader.run_dir.name, "step": request.step, "began": found.began}
        return _figures(found, request, about)


def _figures(found: Found, request: Request, about: Json) -> Json:
    trainer = found.trainer
    if trainer.models.scorer.people():
        raise ConfigError([Problem("", "people give this run's reward: fresh responses cannot be scored without them")])
    reasons = [(algorithm, why_not(algorithm, trainer.config)) for algorithm in ALGORITHMS]
    comparer = Comparer(trainer, found.batch, fresh=request.fresh, seed=request.seed, report=_report)
    comparison = comparer.compare([algorithm for algorithm, why in reasons if not why])
    about = {**about, "learning_rate": trainer.updater.learning_rate, "recorded_off": found.off, "seed": request.seed}
    return as_data(comparison, trainer.models.tokenizer, [(algorithm, why) for algorithm, why in reasons if why], about)


def _report(text: str) -> None:
    say(told(text), sys.stderr)
