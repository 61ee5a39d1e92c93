"""``python -m tools.frozen collect CHECKOUT OUT``, ``compare OLD NEW``, and ``make-archive CHECKOUT``."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tools.frozen import archive, commands, comparing, pages, readers, roles, weights
from tools.frozen.running import CALM, Checkout

PARTS: dict[str, Callable[..., None]] = {
    "weights": weights.collect,
    "readers": readers.collect,
    "commands": commands.collect,
    "roles": roles.collect,
    "pages": pages.collect,
}


def _collect(options: argparse.Namespace) -> int:
    for part in options.only.split(","):
        name, _, addresses = part.partition(":")
        started = time.monotonic()
        work = Path(tempfile.mkdtemp(prefix="frozen-"))
        more = (addresses,) if addresses else ()
        if not addresses:
            shutil.rmtree(options.out / name, ignore_errors=True)
        try:
            PARTS[name](Checkout(options.checkout.resolve(), work), options.out.resolve(), *more)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        print(f"{name}: {time.monotonic() - started:.0f} s", flush=True)
    return 0


def _make_archive(options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="frozen-") as work:
        archive.make(Checkout(options.checkout.resolve(), Path(work)), weights.ARCHIVE)
    print(f"{weights.ARCHIVE}: {weights.ARCHIVE.stat().st_size:,} bytes")
    return 0


def _compare(options: argparse.Namespace) -> int:
    differences = comparing.differences(options.old, options.new)
    print(*differences, sep="\n")
    print(f"{len(differences)} differences")
    return int(bool(differences))


def main() -> int:
    """Run one command."""
    parser = argparse.ArgumentParser(prog="python -m tools.frozen", description="What a checkout does, seen from outside.")
    commands_ = parser.add_subparsers(required=True, metavar="COMMAND")
    collect = commands_.add_parser("collect", help="write what a checkout does into a folder")
    collect.add_argument("checkout", type=Path)
    collect.add_argument("out", type=Path)
    collect.add_argument("--only", default=",".join(PARTS), help="parts, with commas between; pages:live for those whose names begin so")
    collect.set_defaults(run=_collect)
    compare = commands_.add_parser("compare", help="name each difference between two such folders")
    compare.add_argument("old", type=Path)
    compare.add_argument("new", type=Path)
    compare.set_defaults(run=_compare)
    make = commands_.add_parser("make-archive", help="make the archive of tests/old_version with a checkout of 0.2.0")
    make.add_argument("checkout", type=Path)
    make.set_defaults(run=_make_archive)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that its apps and folders go with it
    os.environ.update(CALM)  # before PyTorch is imported
    options = parser.parse_args()
    return int(options.run(options))


if __name__ == "__main__":
    sys.exit(main())
