"""Seconds per PPO update beside other trainers, in interleaved rounds on identical models, prompts and settings.

    python -m benchmarks.peers                                      # once: the peers' environments
    python -m benchmarks.speed --workload w1 --against trl-1.12,trl-0.11 --rounds 5
    python -m benchmarks.speed --workload w1                        # ours alone
    python -m benchmarks.speed --workload w1 --profile              # the operations that take our time

w0  a few seconds, to see that everything is there
w1  a tiny GPT-2 (4 blocks of 256), all weights: 64 prompts, 32 new tokens
w2  GPT-2 of 124 M weights, LoRA on c_attn: 16 prompts, 48 new tokens
w3  the same shape on a GPU, all weights and then LoRA: 128 prompts, 128 new tokens
w4  Pythia-1B's shape on a GPU, all weights and then LoRA: 64 prompts of up to 512 tokens, 53 new tokens
w8  SmolLM2's shape (30 × 576), LoRA: 16 prompts of 24 to 40 tokens, 32 new tokens
w5  the bundled world recipe, the whole command line
w6  supervised fine-tuning: the shape of w1, then that of w2 with LoRA; completions of unequal length
w7  a reward model: the same shapes, pairs of completions of unequal length

Every contestant is a process of its own in every round, with equal threads; every second round goes the other way round. Ratios are
taken round by round, since seconds on a shared machine drift. The result goes to benchmarks/results/, where docs/performance.md is
made from (python -m benchmarks.report). Models are random, made once in build/speed or RLHF_STUDIO_BENCH_CACHE.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.speed import machine, profile, recipe, rounds, summary
from benchmarks.speed.floor import floor
from benchmarks.speed.job import Job
from benchmarks.speed.models import default_cache, prepare
from benchmarks.speed.workloads import RECIPE, SETTINGS, WORKLOADS, Workload, chosen

RESULTS = rounds.ROOT / "benchmarks" / "results"
PEERS = tuple(name for name in rounds.MODULES if name != rounds.OURS)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    for name in chosen(options.workload):
        if name in WORKLOADS and WORKLOADS[name].gpu:
            require_gpu(name)
        job = make_job(name, options)
        if options.profile:
            profiled = profile.profile(job)
            print("\n".join(profile.lines(profiled)), flush=True)
            made_by = f"python -m benchmarks.speed --workload {name} --profile"
            about = {"workload": name, "command": made_by, "date": datetime.date.today().isoformat(), "machine": machine.describe()}
            write(profiled | about, options.json, f"profile-{name}")
            continue
        result = measure(job, options)
        print("\n".join(summary.lines(result)), flush=True)
        write(result, options.json, name)
    return 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="benchmarks.speed")
    parser.add_argument("--workload", required=True, choices=[*WORKLOADS, RECIPE])
    parser.add_argument("--against", default="", metavar="NAMES", help=f"peers, separated by commas: {', '.join(PEERS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=0, help="counted updates per process; 0 takes the workload's own number")
    parser.add_argument("--threads", type=int, default=machine.threads_here(), help="CPU threads of every contestant")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result here instead of benchmarks/results/")
    parser.add_argument("--no-recording", action="store_true", help="ours without what the Live page shows")
    parser.add_argument("--profile", action="store_true", help="ours only, on one thread: where the time of one update goes")
    options = parser.parse_args(arguments)
    options.against = [name for name in options.against.split(",") if name]
    if unknown := [name for name in options.against if name not in PEERS]:
        parser.error(f"there is no peer {unknown[0]!r}; there are: {', '.join(PEERS)}")
    if options.workload in WORKLOADS and WORKLOADS[options.workload].stage != "ppo":
        if missing := [name for name in options.against if name not in rounds.SUPERVISED]:
            parser.error(f"{missing[0]} has no part in {options.workload}; there are: {', '.join(rounds.SUPERVISED)}")
        if options.profile or options.no_recording:
            parser.error("--profile and --no-recording are for PPO")
    if options.workload == RECIPE and (options.profile or options.no_recording or options.updates):
        parser.error(f"{RECIPE} is a whole command line as shipped; --profile, --no-recording and --updates are for the other workloads")
    return options


def require_gpu(name: str) -> None:
    import torch

    if not torch.cuda.is_available():
        raise SystemExit(f"{name} needs a CUDA GPU, and there is none here. The same command runs on a machine with one.")


def make_job(name: str, options: argparse.Namespace) -> Job:
    if name == RECIPE:
        return recipe.make_job(default_cache(), options.threads)
    workload = replace(WORKLOADS[name], updates=options.updates or WORKLOADS[name].updates)
    return workload_job(workload, options.threads, not options.no_recording)


def workload_job(workload: Workload, threads: int, recording: bool = True, cache: Path | None = None) -> Job:
    """A workload with its models, made now unless they are there."""
    return Job(workload, prepare(workload, cache or default_cache()), dict(SETTINGS), threads, recording)


def measure(job: Job, options: argparse.Namespace) -> dict[str, Any]:
    names = [rounds.OURS, *options.against]
    of_the_recipe = job.workload.name == RECIPE
    played = (recipe if of_the_recipe else rounds).play(names, job, options.rounds, lambda line: print(line, file=sys.stderr, flush=True))
    about = {
        "command": command(job, options),
        "date": datetime.date.today().isoformat(),
        "machine": machine.describe(),
        "recording": job.recording,
        "settings": {**job.workload.to_json(), **job.settings},
    }
    return summary.summarise(job, played, None if of_the_recipe else floor(job.workload)) | about


def command(job: Job, options: argparse.Namespace) -> str:
    """The command that gives this result again."""
    against = f" --against {','.join(options.against)}" if options.against else ""
    more = (f" --updates {options.updates}" if options.updates else "") + ("" if job.recording else " --no-recording")
    rest = f"--rounds {options.rounds} --threads {job.threads}{more}"
    return f"python -m benchmarks.speed --workload {job.workload.name}{against} {rest}"


def write(result: dict[str, Any], target: Path | None, name: str) -> None:
    path = target or RESULTS / f"{name}.json"
    if target and name.endswith("-lora"):
        path = target.with_stem(f"{target.stem}-lora")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
