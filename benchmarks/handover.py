"""Whether verl and OpenRLHF accept what ``hand-over`` has written: their own loaders read the script's settings, on a CPU.

    python -m benchmarks.peers verl-0.9 openrlhf-0.11        # once: the engines, each in an environment of its own
    python -m rlhf_studio hand-over --recipe sums --to verl out
    python -m benchmarks.handover out

verl's Hydra tree is composed, and verl checks it as it does before a training. OpenRLHF's parser reads the options; what it would load
after that is replaced. Further arguments are added to the script's: a made-up one,
``python -m benchmarks.handover out trainer.no_such=1``, must be refused.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import peers

PEERS = {"verl.trainer.main_ppo": ("verl-0.9", "handover_verl.py"), "openrlhf.cli.train_ppo_ray": ("openrlhf-0.11", "handover_openrlhf.py")}


def arguments_of(folder: Path, more: Sequence[str] = ()) -> list[str]:
    """What ``run.sh`` of a folder would start Python with: the module's name, then its arguments."""
    with tempfile.TemporaryDirectory() as stand_in:
        python = Path(stand_in) / "python3"
        python.write_text('#!/bin/sh\nprintf "%s\\0" "$@"\n', encoding="ascii")
        python.chmod(stat.S_IRWXU)
        environment = {**os.environ, "PATH": f"{stand_in}:{os.environ['PATH']}"}
        done = subprocess.run(["bash", folder / "run.sh", *more], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split("\0")[1:-1]


def check(folder: Path, more: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Let the engine's loader read the settings; its exit code is 0 when it takes them."""
    module, *arguments = arguments_of(folder, more)
    peer, script = PEERS[module]
    command = [peers.interpreter(peer), Path(__file__).with_name(script), *arguments]
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)


def main() -> int:
    """Print what the loader says."""
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    if not (Path(sys.argv[1]) / "run.sh").is_file():
        raise SystemExit(f"There is no run.sh in {sys.argv[1]}: name a folder that 'rlhf_studio hand-over' has written.")
    done = check(Path(sys.argv[1]), sys.argv[2:])
    sys.stdout.write(done.stdout + done.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
