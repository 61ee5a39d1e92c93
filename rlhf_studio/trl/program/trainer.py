"""``PPOTrainer``: one name for the trainers of two generations of TRL's PPO; the configuration says which it is."""

from __future__ import annotations

import inspect
from typing import Any

from rlhf_studio.trl.program.classic import ClassicPPOTrainer
from rlhf_studio.trl.program.config import ClassicPPOConfig, LaterPPOConfig
from rlhf_studio.trl.program.later import LaterPPOTrainer

RENAMED = {"config": "args", "policy": "model", "ref_policy": "ref_model", "tokenizer": "processing_class"}
"""Arguments of the later trainer as TRL 0.11 and 0.12 called them."""


class _OneOfTwo(type):
    """Makes the trainer that the configuration belongs to."""

    def __call__(cls, *positional: Any, **options: Any) -> Any:
        given = positional[0] if positional else options.get("args", options.get("config"))
        if isinstance(given, ClassicPPOConfig):
            return _made(ClassicPPOTrainer, "classic (TRL 0.11 and before)", positional, options)
        if isinstance(given, LaterPPOConfig):
            return _made(
                LaterPPOTrainer, "later (TRL 0.12 to 1.12)", positional, {RENAMED.get(name, name): options[name] for name in options}
            )
        what = "nothing" if given is None else f"a {type(given).__name__}"
        raise TypeError(f"PPOTrainer: give a PPOConfig of rlhf_studio.trl, as config= (classic) or args= (later); it was given {what}")

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, ClassicPPOTrainer | LaterPPOTrainer)


def _made(kind: Any, form: str, positional: tuple[Any, ...], options: dict[str, Any]) -> Any:
    known = set(inspect.signature(kind.__init__).parameters) - {"self"}
    if kind is ClassicPPOTrainer and "processing_class" in options:
        options["tokenizer"] = options.pop("processing_class")
    if unknown := sorted(set(options) - known):
        way = "output_dir or per_device_train_batch_size in PPOConfig makes it the later one" if kind is ClassicPPOTrainer else ""
        hint = f": {way}" if way and unknown[0] in inspect.signature(LaterPPOTrainer.__init__).parameters else ""
        raise TypeError(f"PPOTrainer: its PPOConfig is {form}, and that trainer has no argument {unknown[0]}{hint}")
    return kind(*positional, **options)


class PPOTrainer(metaclass=_OneOfTwo):
    """The trainer of TRL's PPO, of whichever generation. See this file's first lines."""


PPOv2Trainer = PPOTrainer
