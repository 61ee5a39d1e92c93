"""The Dockerfile's own commands, run: in a bare root with Debian's own packages, and the app of what they built. It needs the network."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy import container
from tests.deploy.dockerfile import only, read
from tests.deploy.play import built, play, prepare
from tests.waiting import wait_until

SUITE, MIRROR = "bookworm", "http://deb.debian.org/debian"


@pytest.mark.long
@pytest.mark.skipif(bool(container.why_not()), reason=container.why_not() or "-")
@pytest.mark.skipif(shutil.which("debootstrap") is None, reason="there is no debootstrap")
def test_what_the_commands_build_serves_and_trains(tmp_path: Path) -> None:
    """``TORCH_INDEX`` in the environment is the build argument; pip's own variables and its folder of wheels count as well."""
    root, log = tmp_path / "image", tmp_path / "printed.txt"
    packages = "--include=ca-certificates,python3,python3-pip,python3-venv"
    subprocess.run(["debootstrap", "--variant=minbase", packages, SUITE, str(root), MIRROR], check=True, capture_output=True)
    root.chmod(0o755)
    pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    wheels = [Path(folder) for folder in pip.get("PIP_FIND_LINKS", "").split()]
    prepare(root)
    play(root, {name: os.environ[name] for name in ("TORCH_INDEX",) if name in os.environ}, wheels, pip)
    box = built(root, tmp_path)
    with log.open("w") as file:
        box.start(file.fileno())
    try:
        wait_until(lambda: "operator" in log.read_text() or box.process.poll() is not None, seconds=120)
        assert box.process.poll() is None, log.read_text()
        health = box.run(only(read(), "HEALTHCHECK").words())
        assert health.returncode == 0, log.read_text()
        first = Path(f"/proc/{box.first()}/status").read_text()
        assert "Name:\ttini" in first and "Uid:\t1000\t1000\t1000\t1000" in first
        trained = box.run(["python", "-m", "rlhf_studio", "train", "--recipe", "world", "--ppo.steps", "2"])
        assert trained.returncode == 0, trained.stdout + trained.stderr
        printed = log.read_text() + trained.stderr
        assert "Read-only file system" not in printed and "Permission denied" not in printed
    finally:
        box.close()
