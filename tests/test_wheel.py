"""The wheel in a fresh environment: what the smallest installation can do, and that the bundled world came along.

It fetches packages from the index, so it is run by hand: ``pytest -m long tests/test_wheel.py``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOOP = """
import sys
from rlhf_studio.attach import Studio
with Studio(run="mine", workspace=sys.argv[1]) as studio:
    for step in range(3):
        studio.step(prompts=["a", "b"], response_tokens=[["x", "y"], ["z"]], logprobs=[[-1.0, -0.5], [-2.0]], rewards={"good": [step, 1.0]})
print(studio.run_dir is None)
assert not {"torch", "gradio", "transformers"} & sys.modules.keys()
from rlhf_studio.config.bundled import BUNDLED, COLLAPSED_RUN, DOCS, LESSON_RUN, bundled_path
missing = [path for path in [*map(bundled_path, BUNDLED), LESSON_RUN, COLLAPSED_RUN, DOCS / "faq.md"] if not path.exists()]
assert not missing, missing
"""


def run(*command: str | Path, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.long
def test_the_wheel_records_other_trainers_without_torch_and_brings_the_world(tmp_path: Path) -> None:
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, files):  # a copy: building leaves files behind
        target = tmp_path / "source" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, ".", cwd=tmp_path / "source")
    (wheel,) = tmp_path.glob("*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", wheel, cwd=tmp_path)
    assert run(python, "-c", LOOP, tmp_path / "workspace", cwd=tmp_path).strip() == "True"
    (folder,) = (tmp_path / "workspace" / "runs").iterdir()
    command = tmp_path / "venv" / "bin" / "rlhf-studio"
    shown = run(command, "runs", "show", folder, cwd=tmp_path)
    assert "step         3" in shown and "finished" in shown
    assert "Not checked" in run(command, "doctor", folder, cwd=tmp_path)
