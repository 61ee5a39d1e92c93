"""Part 3: the help of every command, and how calls that are right or wrong end."""

from __future__ import annotations

import re
import time
from pathlib import Path

from tools.frozen.running import Checkout, write
from tools.frozen.weights import unpack_archive

_SUBCOMMAND = re.compile(r"^    ([a-z][a-z-]*)(?:\s{2,}|$)", re.MULTILINE)
_CHOICES = re.compile(r"^  (?:COMMAND|ACTION)$|^positional arguments:$", re.MULTILINE)
CALLS = """
--version
--no-such-option
no-such-command
train
train --recipe no-such-recipe
train --recipe world --ppo.stepz 3
train --recipe world --ppo.steps -3
train --recipe world --ppo.steps three
train --recipe world --ppo.lam 2 --ppo.gamma -1
train --recipe world --ppo.batch_size 10 --ppo.mini_batch_size 4
train --recipe world --ppo.steps
train --recipe world --model.policy no/such/folder --engine.device cpu
train --recipe world --data.prompts no-such-file.jsonl --engine.device cpu
train --recipe world --engine.device cuda
train --recipe world --sft.epochs 2
train --recipe world --config settings/only-steps.yaml
train --config no-such-file.yaml
train --config settings/damaged.yaml
train --config settings/no-mapping.yaml
train --config settings/empty.yaml
train --config settings/bad-name.yaml
train --config settings/bad-stage.yaml
train --config settings/twice.yaml
train no-such-run
train runs/ppo
train inputs
train --recipe world --run-dir runs/ppo
train --recipe world --learning_rate 1e-4
train --recipe world --vf_coef 0.2
resume no-such-run
resume runs/ppo
resume runs/recorded
resume runs/evaluation
fork runs/ppo --at 3
fork runs/ppo --at best
fork runs/ppo --at newest --ppo.nonsense 1
fork runs/sft --at 4 --ppo.steps 8
sweep --recipe world
sweep --recipe world --vary ppo.kl_coef=0.1
sweep --recipe world --vary ppo.kl_coef=0.1,x --workspace swept
stop runs/ppo
stop no-such-run
runs
runs list --workspace no-such-folder
runs list --workspace .
runs show no-such-run
runs show runs/ppo-stopped
runs config runs/dpo
doctor no-such-run
doctor runs/ppo --until 2
doctor runs/ppo --until 99
doctor inputs
export runs/ppo
export runs/ppo --csv settings/only-steps.yaml
export runs/ppo --csv out.csv --at 3
export runs/sft --adapter adapter-out
export runs/sft --merged merged-out
export runs/reward_model --merged reward-out.zip
export no-such-run --csv out.csv
evaluate runs/evaluation
evaluate runs/ppo --prompts no-such-file.txt
evaluate runs/ppo@9 --prompts inputs/prompts.jsonl
evaluate inputs/policy
evaluate
score --recipe world --help
score --config settings/small-ppo.yaml --response w3 --prompt w1
generate runs/ppo w1
generate runs/ppo
label inputs/pairs.jsonl
ensemble runs/reward_model
lessons
open-log no-such-file.jsonl
open-log inputs/pairs.jsonl
convert inputs/policy converted
convert no/such/folder converted2
from-trl no-such-file.py
from-trl settings/only-steps.yaml
road list
road go no-such-road
recipes list
recipes show world
recipes show no-such-recipe
world check
world nonsense
app --no-such-option
app --port x
app --read-only --classroom
"""


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
    ends = {}
    for call in filter(None, CALLS.splitlines()):
        started = time.monotonic()
        code, output, errors = there.run(*call.split())
        print(f"{time.monotonic() - started:5.1f} s  {code}  {call}", flush=True)
        ends[call] = {"code": code, "output": there.tidy(output).splitlines(), "errors": there.tidy(errors).splitlines()}
    write(out / "commands" / "calls.json", ends)
