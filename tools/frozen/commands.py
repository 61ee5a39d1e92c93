"""Part 3: the help of every command, and how calls that are right or wrong end."""

from __future__ import annotations

import re
from pathlib import Path

from tools.frozen.running import Checkout, shortened, write
from tools.frozen.weights import tensor_sums, unpack_archive

_SUBCOMMAND = re.compile(r"^    ([a-z][a-z-]*)(?:\s{2,}|$)", re.MULTILINE)
_CHOICES = re.compile(r"^  (?:COMMAND|ACTION)$|^positional arguments:$", re.MULTILINE)
CALLS = Path(__file__).with_name("calls.txt")


def collect(checkout: Checkout, out: Path) -> None:
    """Writes ``commands/help/COMMAND.txt`` and ``commands/calls.json``: exit code, output and errors of each call."""
    waiting: list[list[str]] = [[]]
    while waiting:
        words = waiting.pop()
        code, output, errors = checkout.run(*words, "--help")
        write(out / "commands" / "help" / f"{' '.join(['rlhf-studio', *words])}.txt", f"{code}\n{checkout.tidy(output + errors)}")
        if _CHOICES.search(output) and len(words) < 3:
            begin = output.index("positional arguments:")
            inner = output[begin : output.find("\noptions:", begin)]
            waiting += [[*words, name] for name in _SUBCOMMAND.findall(inner) if code == 0]
    there = Checkout(checkout.root, unpack_archive(checkout.work / "old"))
    before, ends = set(there.work.iterdir()), {}
    for call in CALLS.read_text(encoding="utf-8").splitlines():
        code, output, errors = there.run(*call.split())
        ends[call] = {"code": code, "output": there.tidy(output).splitlines(), "errors": there.tidy(errors).splitlines()}
    write(out / "commands" / "calls.json", ends)
    files = sorted(file for new in set(there.work.iterdir()) - before for file in [new, *new.rglob("*")] if file.is_file())
    texts = [file for file in files if file.suffix in (".jsonl", ".csv", ".html", ".md")]
    made = {file.relative_to(there.work).as_posix(): there.tidy(file.read_text(encoding="utf-8")).splitlines() for file in texts}
    write(out / "commands" / "made.json", {name: [shortened(line) for line in lines] for name, lines in made.items()})
    write(out / "commands" / "made-weights.json", tensor_sums(there.work))
