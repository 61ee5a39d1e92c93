"""Reads options with OpenRLHF's own parser and its own checks of them. Runs in its environment, without ours.

What ``train_ppo_ray`` imports beside its parser needs GPUs. It is replaced by names that do nothing, and the training by the end.
"""

import runpy
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock

MODULE = "openrlhf.cli.train_ppo_ray"


def replace(name: str, **members: object) -> None:
    module = ModuleType(name)
    module.__getattr__ = lambda member: MagicMock()  # type: ignore[method-assign]
    vars(module).update(members)
    sys.modules[name] = module


def taken(args: object) -> None:
    print("taken:", args)
    raise SystemExit(0)


def main() -> None:
    spec = find_spec("openrlhf")
    assert spec is not None and spec.origin is not None
    for name in ("ray", "ray.util", "ray.util.placement_group", "openrlhf.trainer", "openrlhf.trainer.ray"):
        replace(name)
    for name in ("launcher", "ppo_actor", "ppo_critic"):
        replace(f"openrlhf.trainer.ray.{name}")
    replace("openrlhf.utils", get_strategy=taken, __path__=[str(Path(spec.origin).parent / "utils")])
    sys.argv = [MODULE, *sys.argv[1:]]
    runpy.run_module(MODULE, run_name="__main__")


if __name__ == "__main__":
    main()
