"""8-bit and 4-bit bases under LoRA, where bitsandbytes is installed."""

from __future__ import annotations

from importlib.util import find_spec

from rlhf_studio.engine.check.against_cpu import read_again
from rlhf_studio.engine.check.checks import CheckFailed, NotTried, Numbers, Task
from rlhf_studio.engine.check.rollouts import LORA, sizes
from rlhf_studio.engine.check.runs import Changes, settings, train
from rlhf_studio.language import S_

ALLOWED = {"8bit": 0.05, "4bit": 0.5}
"""Root mean square, in nats, by which log-probabilities of the bundled policy may differ from those of its whole weights: about four times
what bitsandbytes 0.50 was measured to do to it on a CPU, 0.012 (8-bit) and 0.145 (its layers rounded to NF4)."""


def check_quantized(task: Task) -> tuple[str, Numbers]:
    """Each run compares its passes with the quantized model's own first; here, its first step is compared with the whole weights, too."""
    if task.kind != "cuda":
        raise NotTried(S_(f"quantized bases need a CUDA GPU, and this is {task.device}"))
    if find_spec("bitsandbytes") is None:
        raise NotTried(S_("bitsandbytes is not installed: pip install bitsandbytes"))
    numbers: Numbers = {}
    for bits, allowed in ALLOWED.items():
        changes: Changes = {**LORA, "model": {"quantization": bits}}
        first = read_again(train(task, f"quantized-{bits}", settings(task, "world", sizes(task), changes)), 1)[0]
        numbers |= {f"{bits}, root mean square": first.rms, f"{bits}, allowed": allowed}
        if not first.rms <= allowed:
            text = S_(f"{bits}: log-probabilities differ by {first.rms:.2g} nats (root mean square) from those of the whole weights")
            raise CheckFailed(f"{text}; {S_(f'{allowed:g} is allowed')}", numbers)
    parts = (f"{bits} {float(numbers[f'{bits}, root mean square']):.2g}" for bits in ALLOWED)
    return S_(f"log-probabilities off those of the whole weights by (nats, root mean square): {', '.join(parts)}"), numbers
