"""The trainers that ours is measured against or hands its settings to, and what cannot be installed beside it: an environment for each.

    python -m benchmarks.peers                  # make them all; about 5 GB
    python -m benchmarks.peers trl-1.12         # only this one
    python -m benchmarks.peers --list           # where they are, and what is in them

``mcp`` is Gradio with its extra for MCP, which needs an older pydantic; all else comes from the Python that makes it.

They lie in .peers/ of the repository, or where RLHF_STUDIO_PEERS says. On a machine without a GPU,
PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu with a torch pinned as 2.13.0 saves the CUDA libraries.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

PINS = {
    # Trains with GRPO, which rlhf_studio.attach watches; pydantic and PyYAML are what the recording needs beside it.
    "trl-1.16": (
        *("trl==1.16.0", "torch==2.13.0", "transformers==5.23.0", "peft==0.21.2", "accelerate==1.15.0", "datasets==5.2.0"),
        *("pydantic>=2.11", "pyyaml>=6", "pytest>=8"),
    ),
    "trl-1.12": ("trl==1.12.0", "torch==2.13.0", "transformers==5.23.0", "peft==0.21.2", "accelerate==1.15.0", "datasets==5.2.0"),
    "trl-0.11": (
        *("trl==0.11.0", "torch==2.13.0", "transformers==4.45.2", "peft==0.13.2", "accelerate==1.0.1", "datasets==3.1.0"),
        *("numpy<2", "pyarrow<19", "rich"),  # newer ones want numpy 2; TRL imports rich without asking for it
    ),
    "mcp": ("gradio[mcp]==6.31.0",),
    "verl-0.9": ("verl==0.9.1", "torch==2.13.0"),
    "openrlhf-0.11": ("--no-deps", "openrlhf==0.11.2"),  # its parser needs none of them; flash-attn and vLLM need a GPU
}
WITH_OURS = ("mcp",)
"""Environments that find the packages of the Python that makes them, behind their own."""


def folder() -> Path:
    """Where the environments lie."""
    return Path(os.environ.get("RLHF_STUDIO_PEERS") or Path(__file__).resolve().parents[1] / ".peers")


def interpreter(name: str) -> Path:
    """The Python of a peer. Raises :class:`SystemExit` when it was not made."""
    path = folder() / name / "bin" / "python"
    if not path.exists():
        raise SystemExit(f"{name} is not installed in {folder()}; run: python -m benchmarks.peers {name}")
    return path


def make(name: str) -> None:
    """Create the environment and install what is pinned."""
    target = folder() / name
    venv.create(target, with_pip=True, clear=False)
    subprocess.run([target / "bin" / "python", "-m", "pip", "install", "--quiet", *PINS[name]], check=True)
    if name in WITH_OURS:
        ask = [target / "bin" / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        packages = Path(subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip())
        (packages / "ours.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")


def installed(name: str) -> str:
    """The versions that are really there."""
    packages = [re.split("[=[]", pin)[0] for pin in PINS[name] if "==" in pin][:3]
    code = f"from importlib.metadata import version; print(*(f'{{n}} {{version(n)}}' for n in {packages}), sep=', ')"
    return subprocess.run([interpreter(name), "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *PINS], help="which; all when none is named")
    parser.add_argument("--list", action="store_true", help="make nothing")
    options = parser.parse_args()
    for name in options.names or PINS:
        if not options.list:
            make(name)
        print(f"{name}: {installed(name)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
