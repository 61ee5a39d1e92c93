"""Started by accelerate, once in each process of tests/engine/test_sharding.py: works on several prepared runs, one after the other."""

from __future__ import annotations

import sys

from rlhf_studio.cli.main import main

sys.modules["rlhf_studio.inputs.preflight"] = None  # type: ignore[assignment] # who asks again what was asked before the start, fails

if __name__ == "__main__":
    for command, folder in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        if code := main([command, folder]):
            sys.exit(code)
