"""The container's app: started as the Dockerfile says, by a user without rights, on a tree that it cannot write, without a network."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy import container
from tests.deploy.container import Container
from tests.deploy.dockerfile import ROOT, context, environment, only, read
from tests.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.skipif(bool(container.why_not()), reason=container.why_not() or "-")]
INSTRUCTIONS = read()
WORK = only(INSTRUCTIONS, "WORKDIR").text
VOLUMES = only(INSTRUCTIONS, "VOLUME").words()
PYTHON = "/home/python"
HEALTH = only(INSTRUCTIONS, "HEALTHCHECK").words()
PAGE = """
import sys, urllib.request
with urllib.request.urlopen(f"http://127.0.0.1:7860{sys.argv[1]}") as answer:
    print(answer.status, answer.read().decode())
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``COPY . ./`` brings into the image."""
    folder = tmp_path_factory.mktemp("app")
    folder.chmod(0o755)
    for name in context():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, str]]:
    """This Python and its packages, where everybody may reach them and as an image has them: the packages are Python's own."""
    base = Path(sys.base_prefix)
    ask = [str(base / "bin" / "python3"), "-c", "import site; print(site.getsitepackages()[0])"]
    own = Path(subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip())
    names = tmp_path_factory.mktemp("names")
    names.chmod(0o755)
    (names / "python").symlink_to(f"{PYTHON}/bin/python3")
    packages = Path(sysconfig.get_path("purelib"))
    return [(base, PYTHON), (packages, f"{PYTHON}/{own.relative_to(base)}"), (names, "/home/bin")]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "printed.txt"


@pytest.fixture(scope="module")
def app(source: Path, python: list[tuple[Path, str]], log: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    """CMD, with the variables of ENV, in this machine's tree."""
    box = Container(
        tmp_path_factory.mktemp("box"),
        Path("/"),
        only(INSTRUCTIONS, "CMD").words(),
        {**environment(INSTRUCTIONS), "PATH": "/home/bin:/usr/bin:/bin", "LD_LIBRARY_PATH": f"{PYTHON}/lib", "OMP_NUM_THREADS": "1"},
        WORK,
        int(only(INSTRUCTIONS, "USER").text),
        tmpfs=[("/home", 0), ("/tmp", 0), *((path, container.USER) for path in VOLUMES)],
        binds=[(source, WORK), *python],
    )
    with log.open("w") as file:
        box.start(file.fileno())
    try:
        wait_until(lambda: "operator" in log.read_text() or box.process.poll() is not None, seconds=120)
        assert box.process.poll() is None, log.read_text()
        yield box
    finally:
        box.close()


def test_it_serves_and_says_that_it_is_healthy(app: Container, log: Path) -> None:
    asked = app.run(HEALTH)
    assert (asked.returncode, asked.stdout, asked.stderr) == (0, "", ""), log.read_text()
    assert app.run(["python", "-c", PAGE, "/health"]).stdout == "200 ok\n\n"
    page = app.run(["python", "-c", PAGE, "/"])
    assert page.stdout.startswith("200 ") and "RLHF Studio" in page.stdout
    assert "Everyone who reaches this address may watch" in log.read_text()  # 0.0.0.0: a token was made


def test_a_port_where_nothing_serves_is_not_healthy(app: Container) -> None:
    elsewhere = app.run(["env", "GRADIO_SERVER_PORT=7861", *HEALTH])
    assert (elsewhere.returncode, elsewhere.stdout, elsewhere.stderr) == (1, "", "")


def test_it_has_no_rights_and_can_write_nothing_but_the_volumes_and_tmp(app: Container) -> None:
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{app.first()}/status").read_text().splitlines())
    assert status["Uid"].split() == ["1000"] * 4 and int(status["CapEff"], 16) == 0
    for folder in (*VOLUMES, "/tmp"):
        assert app.run(["touch", f"{folder}/mine"]).returncode == 0
    for folder in ("/", "/home", "/home/user", WORK, f"{WORK}/rlhf_studio", PYTHON, "/etc", "/var/tmp", "/dev"):
        refused = app.run(["touch", f"{folder}/mine"], user=0)
        assert "Read-only file system" in refused.stderr, folder


def test_it_trains_there(app: Container, log: Path) -> None:
    """The engine's own files, its caches too, find a place: two updates of the tiny world."""
    done = app.run(["python", "-m", "rlhf_studio", "train", "--recipe", "world", "--ppo.steps", "2"], seconds=400)
    assert done.returncode == 0, done.stdout + done.stderr
    printed = log.read_text() + done.stdout + done.stderr
    assert "Read-only file system" not in printed and "Permission denied" not in printed and "Traceback" not in printed
