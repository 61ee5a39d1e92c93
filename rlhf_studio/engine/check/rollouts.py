"""PPO: what the device drew is read again by the CPU, and a run begins with a KL of 0 and a ratio of 1."""

from __future__ import annotations

from rlhf_studio.engine.check.against_cpu import QUANTITIES, Agreement, read_again
from rlhf_studio.engine.check.checks import CheckFailed, NotTried, Numbers, Task
from rlhf_studio.engine.check.runs import Changes, formats, metric, settings, train
from rlhf_studio.inputs.estimate.counts import parameters
from rlhf_studio.inputs.estimate.device import processor
from rlhf_studio.inputs.models.facts import check_causal_lm
from rlhf_studio.language import S_
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.units import format_bytes

STEPS = 2
FIRST_ALLOWED = {"float32": 1e-3, "bfloat16": 0.05}
"""Nats per response by which the KL may begin off 0, and by which the first ratio's logarithm may be. Policy and reference are the same
weights, read in other batches: in bfloat16 single tokens then differ by up to 1.4 % of the largest logit (see
:class:`~rlhf_studio.engine.parity.tolerance.Tolerance`), in both directions."""
LORA: Changes = {"lora": {"enabled": True}}
COPIES_BYTES = 8
"""Of a weight, for the CPU's passes: the model that the run started from, and the one that drew, in float32."""


def sizes(task: Task) -> Changes:
    """Two steps of few episodes, of which every token and every policy is kept."""
    batch = 8 if task.quick else 32
    return {
        "data": {"eval": ""},
        "engine": {"record_samples": batch, "snapshot_every": 1},
        "ppo": {"steps": STEPS, "batch_size": batch, "mini_batch_size": batch // 2, "ppo_epochs": 2},
        "generation": {"response_length": 16 if task.quick else 32},
    }


def check_ppo(task: Task) -> tuple[str, Numbers]:
    """All weights are trained."""
    return _in_all_formats(task, "ppo", {})


def check_lora(task: Task) -> tuple[str, Numbers]:
    """LoRA, merged while sampling; the critic has a trunk of its own."""
    return _in_all_formats(task, "ppo-lora", {**LORA, "critic": {"kind": "separate", "start": "policy"}})


def check_rloo(task: Task) -> tuple[str, Numbers]:
    """No critic, several answers to each prompt, layers recomputed in the backward pass."""
    return _in_all_formats(task, "ppo-rloo", {"model": {"gradient_checkpointing": True}}, recipe="world-rloo")


def check_own_model(task: Task) -> tuple[str, Numbers]:
    """The model that ``--model`` names, with LoRA, few episodes, and the length of the answer as the reward."""
    if not task.model:
        raise NotTried(S_("--model PATH or a hub id names one"))
    needed, free = COPIES_BYTES * (parameters(check_causal_lm(task.model)) or 0), processor().free or 0
    if needed > free:
        raise NotTried(S_(f"the CPU's passes need {format_bytes(needed)} of memory, and {format_bytes(free)} are free"))
    return _in_all_formats(task, "model", own_model(task.model))


def own_model(name: str) -> Changes:
    """Settings for a model of one's own: the least that shows whether its numbers are right."""
    return {
        **LORA,
        "model": {"policy": name},
        "reward": {"components": [{"kind": "length", "target": 8}], "gold": "none"},
        "engine": {"record_samples": 4},
        "ppo": {"batch_size": 4, "mini_batch_size": 2, "learning_rate": 1e-4, "critic_learning_rate": 1e-4},
        "generation": {"response_length": 16},
    }


def _in_all_formats(task: Task, name: str, own: Changes, recipe: str = "world") -> tuple[str, Numbers]:
    sentences: list[str] = []
    numbers: Numbers = {}
    for dtype in formats(task):
        config = settings(task, recipe, sizes(task), own, {"model": {"dtype": dtype}})
        reader = train(task, f"{name}-{dtype}", config)
        sentences.append(judged(reader, dtype, numbers))
    return "; ".join(sentences), numbers


def judged(reader: RunReader, dtype: str, numbers: Numbers) -> str:
    """A sentence on a run whose every token and snapshot was kept; ``numbers`` grows. Raises :class:`CheckFailed`."""
    kl, ratio, allowed = metric(reader, "objective/kl")[0], metric(reader, "policy/first_log_ratio")[0], FIRST_ALLOWED[dtype]
    numbers |= {f"first KL, {dtype}": kl, f"first log-ratio, {dtype}": ratio, f"first, {dtype}, allowed": allowed}
    agreements = {step: read_again(reader, step) for step in range(1, STEPS + 1)}
    for step, found in agreements.items():
        for one in found:
            numbers |= {f"{one.of}, step {step}, {dtype}": one.size, f"{one.of}, step {step}, {dtype}, allowed": one.allowed}
    for step, found in agreements.items():
        for one in found:
            if not one.holds:
                raise CheckFailed(f"step {step}, {dtype}: {_wrong(one)}", numbers)
    for what, number in ((S_("the KL begins at"), kl), (S_("the first ratio's logarithm is"), ratio)):
        if not abs(number) <= allowed:
            raise CheckFailed(S_(f"{dtype}: {what} {number:.2g} nats; it should be 0 to within {allowed:.2g}"), numbers)
    worst = max((one for found in agreements.values() for one in found), key=lambda one: one.size / one.allowed)
    tokens = sum(found[0].tokens for found in agreements.values())
    size, most, kl = f"{worst.size:.1g}", f"{worst.allowed:.1g}", abs(kl)
    text = S_(f"{tokens:,} drawn tokens have the CPU's log-probabilities (tokens to {size}, allowed {most})")
    if dtype == "bfloat16":
        text = S_(f"{tokens:,} drawn tokens have the CPU's log-probabilities (rows to {size}, allowed {most})")
    return S_(f"{dtype}: {text}, first KL {kl:.1g}, first log-ratio {ratio:.1g}")


def _wrong(one: Agreement) -> str:
    who = QUANTITIES[one.of]
    return S_(f"log-probabilities of {who} differ by {one.size:.2g} from the CPU's with the same weights, and {one.allowed:.2g} is allowed")
