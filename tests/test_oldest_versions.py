"""With the oldest versions of its dependencies that pyproject.toml allows, the program trains and its quick tests pass.

Some gigabytes are fetched from the package index (torch comes with CUDA there), so this is run by hand:
``pytest -m long tests/test_oldest_versions.py``.
"""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NEEDED = ("pytest", "hypothesis", "trl", "setuptools")  # what the tests below need beside the program itself


def run(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout


@pytest.mark.long
def test_the_oldest_versions_that_are_allowed_work(tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    needed = dict.fromkeys([*project["project"]["dependencies"], *extras["train"], *extras["app"]])
    oldest = [re.sub(r">=([\d.]+)(,<\d+)?", r"==\1", one) for one in needed]
    wanted = [*extras["test"], *project["build-system"]["requires"]]
    tools = [one for one in wanted if one.startswith(NEEDED) and not one.startswith("pytest-")]
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", *oldest, *tools)
    small = ["--ppo.steps", "2", "--engine.device", "cpu", "--run-dir", str(tmp_path / "run")]
    assert "step 2/2" in run(python, "-m", "rlhf_studio", "train", "--recipe", "world", *small)
    tests = ["tests/ppo", "tests/test_config.py", "tests/runs"]
    run(python, "-m", "pytest", "-p", "no:cacheprovider", "-o", "filterwarnings=", "-m", "quick", "-x", *tests)
