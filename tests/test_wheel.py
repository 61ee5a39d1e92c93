"""The wheel in fresh environments, far from the checkout: what the smallest installation can do, and the whole one.

It fetches packages from the index, so it is run by hand: ``pytest -m long tests/test_wheel.py``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MOST_BYTES = 25_000_000
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

BUILD = "import setuptools.build_meta as build, sys; getattr(build, sys.argv[1])(sys.argv[2])"


def run(*command: str | Path, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of what git tracks, as building leaves files behind."""
    folder = tmp_path_factory.mktemp("built")
    for name in tracked():
        target = folder / "source" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ".", cwd=folder / "source")
    (built,) = folder.glob("*.whl")
    return built


def tracked(*below: str) -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z", *below], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.split("\0") if name]


def contents(wheel: Path) -> dict[str, int]:
    """Name -> checksum of the files, without the package's description."""
    with zipfile.ZipFile(wheel) as files:
        return {file.filename: file.CRC for file in files.infolist() if ".dist-info/" not in file.filename}


def environment(folder: Path, wheel: str) -> Path:
    """The programs of a new environment with the wheel."""
    venv.create(folder, with_pip=True)
    programs = folder / "bin"
    run(programs / "python", "-m", "pip", "install", "-q", wheel, cwd=folder)
    return programs


@pytest.mark.long
def test_the_wheel_and_that_of_the_sdist_hold_the_package_and_the_world(wheel: Path, tmp_path: Path) -> None:
    wanted = {name if name.startswith("rlhf_studio/") else f"rlhf_studio/{name}" for name in tracked("rlhf_studio", "assets", "docs/*.md")}
    assert set(contents(wheel)) == {name for name in wanted if not name.startswith("rlhf_studio/assets/images/")}
    assert wheel.stat().st_size < MOST_BYTES
    run(sys.executable, "-c", BUILD, "build_sdist", tmp_path, cwd=wheel.parent / "source")
    (sdist,) = tmp_path.glob("*.tar.gz")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, sdist, cwd=tmp_path)
    (again,) = tmp_path.glob("*.whl")
    assert contents(again) == contents(wheel)


@pytest.mark.long
def test_the_wheel_records_other_trainers_without_torch_and_names_what_is_missing(wheel: Path, tmp_path: Path) -> None:
    programs = environment(tmp_path / "venv", str(wheel))
    assert run(programs / "python", "-c", LOOP, tmp_path / "workspace", cwd=tmp_path).strip() == "True"
    (folder,) = (tmp_path / "workspace" / "runs").iterdir()
    command = programs / "rlhf-studio"
    shown = run(command, "runs", "show", folder, cwd=tmp_path)
    assert "step         3" in shown and "finished" in shown
    assert "not checked" in run(command, "doctor", folder, cwd=tmp_path)
    for arguments, package in ((), "gradio"), (("train", "--recipe", "world"), "torch"), (("check",), "torch"):
        done = subprocess.run([command, *arguments], cwd=tmp_path, capture_output=True, text=True)
        (line,) = done.stderr.splitlines()
        assert done.returncode == 2 and f"this needs {package}, which is not installed" in line and "pip install 'rlhf-studio[all]'" in line


@pytest.mark.long
def test_the_whole_installation_opens_the_app_trains_and_teaches(wheel: Path, tmp_path: Path) -> None:
    """What somebody does who has nothing else: the program alone, in an empty folder."""
    command = environment(tmp_path / "venv", f"{wheel}[all]") / "rlhf-studio"
    (work := tmp_path / "work").mkdir()
    assert "step 2/2" in run(command, "train", "--recipe", "world", "--ppo.steps", "2", cwd=work)
    run(command, "lessons", "sheet", "--lessons", "gae", "--seed", "1", "--out", "sheet.html", cwd=work)
    assert (work / "sheet.html").is_file()
    app = subprocess.Popen([command], cwd=work, stdout=subprocess.PIPE, text=True)
    try:
        assert app.stdout is not None
        first = app.stdout.readline()
        assert first.startswith("RLHF Studio is at http://127.0.0.1:") and str(work / "workspace") in first
        with urllib.request.urlopen(first.split()[4], timeout=60) as answer:
            assert b"RLHF Studio" in answer.read()
    finally:
        app.terminate()
        app.communicate(timeout=60)
