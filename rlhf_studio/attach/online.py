"""Trainers that sample while they learn, as TRL's GRPO and RLOO do: what their inner methods say of every response and token.

Four methods of one trainer are wrapped; none of their arguments or results is changed, but for one key that travels with a batch:
the batch is shuffled and split afterwards, and only such a key says which response a row is. A step of the run is a generation batch,
which may serve several optimizer steps.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlhf_studio.attach.arrays import to_numpy
from rlhf_studio.attach.loops import give_rewards
from rlhf_studio.attach.session import Session
from rlhf_studio.attach.steps import Response
from rlhf_studio.language import S_
from rlhf_studio.runs.means import mean_metrics, part_metrics
from rlhf_studio.runs.messages import text_of
from rlhf_studio.runs.records import reward_told

REWARDS, GENERATE, LOGPROBS, LOSS = (
    "_calculate_rewards",
    "_generate_and_score_completions",
    "_get_per_token_logps_and_entropies",
    "_compute_loss",
)
HOOKS = (REWARDS, GENERATE, LOGPROBS, LOSS)
ROW = "rlhf_studio_row"
"""The key that travels with a batch: for each of its rows, which response of the generation batch it is."""

_KEPT = ("prompt_ids", "prompt_mask", "advantages")

Deliver = Callable[[int, Callable[[], tuple[list[Response], dict[str, float]]], str], None]


@dataclass
class Generation:
    """One generation batch: B responses of this process, as the trainer has them.

    Attributes:
        prompts, completions: texts, or lists of messages, B each.
        ids: token ids of each response, without padding.
        rewards: (N, functions), the rewards of all processes before their weights, NaN for none; the first B are this process's.
        batch: what the trainer made of it.
        old, reference: log-probabilities (B, T) of the policy that sampled and of the reference, or None.
        passes: of each pass with gradients the rows (b,), log-probabilities (b, T), and entropies (b, T) or None.
    """

    number: int
    prompts: Sequence[Any]
    completions: Sequence[Any]
    ids: Sequence[Sequence[int]]
    rewards: Any
    batch: Mapping[str, Any]
    old: Any | None
    reference: Any | None
    passes: list[tuple[Any, Any, Any | None]] = field(default_factory=list)
    micro_steps: int = 0


class Online:
    """Watches one trainer that samples.

    Args:
        deliver: takes the number of a generation batch that is complete, a function that gives its responses and metrics, and what people
            should know of it.
    """

    def __init__(self, trainer: Any, session: Session, deliver: Deliver):
        self._trainer, self._session, self._deliver_to = trainer, session, deliver
        self._current: Generation | None = None
        self._scored: tuple[Any, Any, Any, Any] | None = None
        self._without_gradients: list[Any] = []
        self._rows: Any | None = None
        self._count, self._training, self._noted = 0, False, False
        self._wrap(GENERATE, self._before_generation, self._after_generation)
        self._wrap(REWARDS, None, self._after_rewards)
        self._wrap(LOGPROBS, None, self._after_logprobs)
        self._wrap(LOSS, self._before_loss, self._after_loss)

    def _wrap(self, name: str, before: Callable[..., None] | None, after: Callable[..., None]) -> None:
        original, session = getattr(self._trainer, name), self._session

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if before is not None and session.active:
                with session.guard:
                    before(*args, **kwargs)
            result = original(*args, **kwargs)
            if session.active:
                with session.guard:
                    after(result, *args, **kwargs)
            return result

        setattr(self._trainer, name, watched)

    # --- settings ------------------------------------------------------------------------------------------------------------

    @property
    def reward_names(self) -> list[str]:
        """The names of the reward functions; where two have one name, the second gets a number."""
        names = list[str]()
        for name in map(str, self._trainer.reward_func_names):
            names.append(name if name not in names else f"{name} {names.count(name) + 1}")
        return names

    @property
    def reward(self) -> str:
        """What the trainer sums: each function with its weight."""
        return reward_told(to_numpy(self._trainer.reward_weights), self.reward_names)

    def base_settings(self, args: Any) -> dict[str, Any]:
        """What a run of such a trainer is by our settings, by dotted name."""
        size, each = self._batch_size(args), int(getattr(args, "num_generations", 2))
        group = {"ppo.batch_size": size, "ppo.mini_batch_size": size, "ppo.responses_per_prompt": each}
        if any(base.__name__.startswith("RLOO") for base in type(self._trainer).__mro__):
            return {**group, "ppo.advantage": "rloo"}
        scaled = getattr(args, "scale_rewards", "group") not in ("none", False)  # by the deviation of the group, or of the batch
        advantage = "grpo" if scaled else "dr_grpo"
        return {**group, "ppo.advantage": advantage, "ppo.kl_placement": "loss", "ppo.kl_estimator": "k3"}

    def _batch_size(self, args: Any) -> int:
        processes = max(1, int(getattr(args, "world_size", 1) or 1))
        return int(args.per_device_train_batch_size) * int(getattr(args, "steps_per_generation", 1) or 1) * processes

    def _micro_steps(self) -> int:
        """Passes with gradients that one generation batch serves."""
        args = self._trainer.args
        return int(getattr(args, "steps_per_generation", 1) or 1) * int(getattr(self._trainer, "num_iterations", 1) or 1)

    def generations(self, args: Any, optimizer_steps: int) -> int:
        """How many generation batches a training of so many optimizer steps has."""
        return -(-optimizer_steps * int(args.gradient_accumulation_steps) // self._micro_steps())

    # --- hooks ---------------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A training begins."""
        self._current, self._rows, self._count, self._noted = None, None, 0, False

    @property
    def complete(self) -> bool:
        """Whether every pass over the generation batch has been made."""
        return self._current is not None and self._current.micro_steps >= self._micro_steps()

    def _before_generation(self, inputs: Any) -> None:
        self.deliver()
        self._scored, self._training = None, bool(self._trainer.model.training)
        self._without_gradients = []

    def _after_rewards(self, rewards: Any, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> None:
        self._scored = (prompts, completions, [list(ids) for ids in completion_ids_list], rewards.detach().clone())

    def _after_logprobs(self, result: Any, *args: Any, **kwargs: Any) -> None:
        logprobs, entropies = result[0], result[1] if len(result) > 1 else None
        if not logprobs.requires_grad:
            self._without_gradients.append(logprobs)
        elif self._rows is not None and self._current is not None:
            self._current.passes.append((self._rows, logprobs.detach(), None if entropies is None else entropies.detach()))

    def _after_generation(self, batch: Any, inputs: Any) -> None:
        if not self._training or self._scored is None:
            return  # an evaluation
        passes, self._without_gradients = self._without_gradients, []
        old, reference = batch.get("old_per_token_logps"), batch.get("ref_per_token_logps")
        if "old_logps" in batch:  # RLOO: sums alone; the passes that they come from are the policy's, then the reference's
            old, reference = (passes + [None, None])[:2]
        self._count += 1
        self._current = Generation(self._count, *self._scored, {name: batch[name] for name in _KEPT}, old, reference)
        ids = batch["completion_ids"]
        batch[ROW] = ids.new_tensor(range(ids.shape[0]))

    def _before_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> None:
        self._rows = inputs.get(ROW) if model.training else None

    def _after_loss(self, loss: Any, *args: Any, **kwargs: Any) -> None:
        if self._rows is not None and self._current is not None:
            self._current.micro_steps += 1
        self._rows = None

    # --- what comes of it ----------------------------------------------------------------------------------------------------

    def deliver(self) -> None:
        """Hand over the generation batch, if there is one."""
        generation, self._current = self._current, None
        if generation is None:
            return
        note = ""
        if generation.old is None and not self._noted and (note := _dropout_note(self._trainer.model)):
            self._noted = True
        weights, names, ends = self._trainer.reward_weights, self.reward_names, self._ends()
        each = int(getattr(self._trainer, "num_generations", 0) or 0)
        self._deliver_to(generation.number, lambda: read(generation, names, weights, ends, each), note)

    def _ends(self) -> set[int]:
        """Ids of the tokens with which a response ends by itself."""
        tokenizer = getattr(self._trainer.processing_class, "tokenizer", self._trainer.processing_class)
        settings = getattr(self._trainer, "generation_config", None)
        given = [getattr(tokenizer, "eos_token_id", None), getattr(settings, "eos_token_id", None)]
        return {int(token) for part in given if part is not None for token in (part if isinstance(part, list | tuple) else [part])}


def _dropout_note(model: Any) -> str:
    """What people should know where the log-probabilities are those of the first pass of the update, with dropout."""
    active = any("Dropout" in type(module).__name__ and getattr(module, "p", 0) > 0 for module in model.modules())
    text = S_(
        "The trainer does not compute log-probabilities when it samples. Those shown are of the first pass of the update, in which dropout "
        "was active: they differ from what was sampled with. disable_dropout=True makes them equal."
    )
    return text if active else ""


def read(generation: Generation, names: Sequence[str], weights: Any, ends: set[int], each: int) -> tuple[list[Response], dict[str, float]]:
    """The responses of a generation batch, and the means of the rewards over all processes; ``each`` responses to one prompt."""
    responses = [
        Response(
            prompt=str(text_of(prompt)),
            response=str(text_of(completion)),
            response_ids=np.array(ids, np.int32),
            stopped=bool(len(ids)) and int(ids[-1]) in ends if ends else None,
        )
        for prompt, completion, ids in zip(generation.prompts, generation.completions, generation.ids, strict=True)
    ]
    prompt_ids, mask = to_numpy(generation.batch["prompt_ids"]), to_numpy(generation.batch["prompt_mask"]).astype(bool)
    for response, row, inside in zip(responses, prompt_ids, mask, strict=True):
        response.prompt_ids = row[inside].astype(np.int32)
    _give_numbers(responses, generation)
    weighted = to_numpy(generation.rewards).astype(np.float64) * to_numpy(weights).astype(np.float64)
    give_rewards(responses, {name: weighted[: len(responses), column] for column, name in enumerate(names)})
    return responses, _over_all(weighted, names, each) if len(weighted) > len(responses) else {}


def _give_numbers(responses: Sequence[Response], generation: Generation) -> None:
    """The numbers of every token, by the names of the run folder."""
    _give(responses, "logprobs", generation.old)
    _give(responses, "ref_logprobs", generation.reference)
    advantages = to_numpy(generation.batch["advantages"]).astype(np.float32)
    for row, response in enumerate(responses):
        count = response.length or 0
        own = np.full(count, advantages[row], np.float32) if advantages.ndim == 1 else advantages[row, :count]
        response.arrays |= {"advantages": own, "whitened_advantages": own}
    for rows, logprobs, entropies in generation.passes:
        table, spread = to_numpy(logprobs).astype(np.float32), None if entropies is None else to_numpy(entropies).astype(np.float32)
        for place, row in enumerate(to_numpy(rows).tolist()):
            own = responses[row]
            count = own.length or 0
            own.arrays.setdefault("logprobs", table[place, :count])
            own.arrays["new_logprobs"] = table[place, :count]
            if spread is not None:
                own.arrays.setdefault("entropy", spread[place, :count])


def _give(responses: Sequence[Response], name: str, table: Any | None) -> None:
    if table is not None:
        for response, row in zip(responses, to_numpy(table).astype(np.float32), strict=True):
            response.arrays[name] = row[: response.length or 0]


def _over_all(weighted: np.ndarray, names: Sequence[str], each: int) -> dict[str, float]:
    """Means over the responses of all processes; ``weighted`` (N, functions) has NaN for none.

    ``each``: so many rows, one after another, are the responses to one prompt, as the trainer's own advantages have it; 0 for unknown.
    """
    rows = np.flatnonzero(~np.isnan(weighted).all(axis=1))
    prompts = (rows // each).tolist() if each > 0 and len(weighted) % each == 0 else None
    metrics = mean_metrics("objective/scores", np.nansum(weighted[rows], axis=1), prompts)
    return metrics | part_metrics([dict(zip(names, row, strict=True)) for row in weighted.tolist()])
