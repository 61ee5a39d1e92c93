"""Fine-tuning, reward model and DPO: the losses of two steps are those of a run on the CPU in float32.

The CPU takes smaller micro-batches than the device. So a check of the CPU itself compares two ways of adding up the same gradients.
"""

from __future__ import annotations

from rlhf_studio.engine.check.checks import CheckFailed, Numbers, Task
from rlhf_studio.engine.check.runs import Changes, formats, metric, settings, train
from rlhf_studio.language import S_

STEPS = 2
ALLOWED = {"float32": 1e-4, "bfloat16": 1e-2}
"""Of a loss, in nats; less than of a token, because errors of many tokens cancel in their mean: attention that is off by 1 % moves it by
3e-4. Correct float32 runs differ by 1e-7. bfloat16 keeps eight binary digits: on a CPU, losses of these runs in bfloat16 and in float32
differed by at most 1.6e-3, the step after an update included."""


def check_sft(task: Task) -> tuple[str, Numbers]:
    """Fine-tuning of the bundled policy on bundled reviews."""
    return _same_losses(task, "sft", {"model": {"fresh": False}})


def check_reward_model(task: Task) -> tuple[str, Numbers]:
    """A reward model on bundled pairs."""
    return _same_losses(task, "reward_model", {})


def check_dpo(task: Task) -> tuple[str, Numbers]:
    """DPO on bundled pairs."""
    return _same_losses(task, "dpo", {})


def _same_losses(task: Task, stage: str, own: Changes) -> tuple[str, Numbers]:
    expected = _losses(task, stage, own, "float32", on_cpu=True)
    numbers: Numbers = {f"loss, step {step}, CPU": loss for step, loss in enumerate(expected, 1)}
    sentences: list[str] = []
    for dtype in formats(task):
        losses, allowed = _losses(task, stage, own, dtype), ALLOWED[dtype]
        numbers |= {f"loss, step {step}, {dtype}": loss for step, loss in enumerate(losses, 1)} | {f"{dtype}, allowed": allowed}
        apart = [abs(one - other) for one, other in zip(losses, expected, strict=True)]
        for step, difference in enumerate(apart, 1):
            if not difference <= allowed:
                text = S_(f"step {step}, {dtype}: the loss is {losses[step - 1]:.5g}, and {expected[step - 1]:.5g} on the CPU")
                raise CheckFailed(f"{text}; {S_(f'they may differ by {allowed:.0e}')}", numbers)
        sentences.append(S_(f"{dtype} to {max(apart):.1g} (allowed {allowed:.0e})"))
    return S_(f"losses of {STEPS} steps are the CPU's: {'; '.join(sentences)}"), numbers


def _losses(task: Task, stage: str, own: Changes, dtype: str, *, on_cpu: bool = False) -> list[float]:
    batch = 8 if task.quick else 32
    training = {"max_steps": STEPS, "batch_size": batch, "micro_batch_size": batch // 4 if on_cpu else batch, "warmup_steps": 0}
    data = {"max_rows": 4 * batch, "eval_share": 0.1}
    recipe = {"sft": "world-sft", "reward_model": "world-reward", "dpo": "world-dpo"}[stage]
    changes: Changes = {stage: training, "data": data, "model": {"dtype": dtype}}
    config = settings(task, recipe, changes, own, device="cpu" if on_cpu else "")
    return metric(train(task, f"{stage}-{'cpu' if on_cpu else dtype}", config), f"{stage}/loss")
