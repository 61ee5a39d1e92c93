"""Play the Dockerfile without Docker: its own commands, one after the other, in a bare root.

By hand, as root, after ``debootstrap --variant=minbase --include=ca-certificates,python3-pip,python3-venv SUITE ROOT MIRROR``:

    python -m tests.deploy.play ROOT [--build-arg TORCH_INDEX=...] [--bind FOLDER] [--env NAME=VALUE]

What the image ``python:3.12-slim`` brings, ``python`` and ``pip`` that may install, is made from the root's own Python first.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.deploy.container import Container
from tests.deploy.dockerfile import ROOT, Instruction, context, environment, filled, read

PATH = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
MACHINE_FILES = ("/etc/resolv.conf", "/etc/ssl/certs/ca-certificates.crt")


def prepare(root: Path) -> None:
    """Make the bare root what ``FROM`` gives: ``python`` and a ``pip`` that installs, and this machine's way to the network."""
    for name in MACHINE_FILES:
        shutil.copy(name, root / name.lstrip("/"))
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")  # Docker writes it
    for found in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
        found.unlink()
    place = root / "usr/local/bin/python"
    if not place.is_symlink():
        place.symlink_to("/usr/bin/python3")


def copy(instruction: Instruction, root: Path, work: str) -> None:
    """``COPY``, as root. Raises FileNotFoundError for a source that is not in the context."""
    *sources, to = instruction.words()
    target = root / (Path(work) / to).as_posix().lstrip("/")
    known = list(context())
    for source in sources:
        names = known if source == "." else [name for name in known if name == source]
        if not names:
            raise FileNotFoundError(f"COPY {source}: there is no such file, or .dockerignore keeps it out")
        for name in names:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target / name)


def play(root: Path, arguments: Mapping[str, str], binds: Sequence[Path] = (), extra: Mapping[str, str] | None = None) -> None:
    """Every instruction of the Dockerfile in its order. Raises SystemExit when a command of it fails."""
    variables: dict[str, str] = {"PATH": PATH, "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive", **(extra or {})}
    work, user = "/", 0
    for one in read():
        began = time.monotonic()
        if one.name == "RUN":
            text = ["/bin/sh", "-c", one.text]
            with tempfile.TemporaryDirectory() as folder:
                box = Container(Path(folder), root, text, variables, work, user, binds=[(path, str(path)) for path in binds])
                box.read_only, box.network = False, True
                if box.start().process.wait():
                    raise SystemExit(f"RUN {one.text}: ended with {box.process.returncode}")
        elif one.name == "ARG":
            variables |= {name: arguments.get(name, value) for name, value in one.pairs().items()}
        elif one.name == "ENV":
            variables |= {name: filled(value, variables) for name, value in one.pairs().items()}
        elif one.name == "WORKDIR":
            work = one.text
            (root / work.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif one.name == "COPY":
            copy(one, root, work)
        elif one.name == "USER":
            user = int(one.text)
        print(f"{time.monotonic() - began:7.1f} s  {one.name} {one.text[:100]}", flush=True)


def built(root: Path, folder: Path) -> Container:
    """The app of a root that was played, as the Dockerfile starts it: not begun yet, read-only, without a network."""
    found = {one.name: one for one in read()}
    return Container(
        folder,
        root,
        [*found["ENTRYPOINT"].words(), *found["CMD"].words()],
        {"PATH": PATH, **environment(read())},
        found["WORKDIR"].text,
        int(found["USER"].text),
        tmpfs=[("/tmp", 0), *((path, int(found["USER"].text)) for path in found["VOLUME"].words())],
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--bind", action="append", default=[], type=Path)
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    prepare(options.root)
    pairs = [dict(text.split("=", 1) for text in given) for given in (options.build_arg, options.env)]
    play(options.root, pairs[0], options.bind, pairs[1])


if __name__ == "__main__":
    sys.exit(main())
