"""The tables of docs/performance.md, made from benchmarks/results/.

    python -m benchmarks.report            # write them into the page
    python -m benchmarks.report --check    # exit code 1 when the page does not say what the results say

A table stands between ``<!-- results: NAME -->`` and ``<!-- end -->``; the text around it is written by hand.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.speed.floor import floor
from benchmarks.speed.workloads import RECIPE, WORKLOADS, Shape, Workload

ROOT = Path(__file__).resolve().parents[1]
PAGE, RESULTS = ROOT / "docs" / "performance.md", ROOT / "benchmarks" / "results"
NAMES = {"ours": "RLHF Studio", "trl-1.12": "TRL 1.12.0", "trl-0.11": "TRL 0.11.0"}
BLOCK = re.compile(r"(<!-- results: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
SMOKE = ("w0", "w0-lora")

Results = dict[str, dict[str, Any]]


def load(folder: Path = RESULTS) -> Results:
    """Every result by its file's name."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}


def filled(page: str, results: Results) -> str:
    """The page with every block made anew. Raises KeyError for a block that is not known."""
    return BLOCK.sub(lambda match: match[1] + "\n".join(BLOCKS[match[2]](results)) + "\n" + match[3], page)


# --- blocks --------------------------------------------------------------------------------------------------------------------


def workloads(_: Results) -> list[str]:
    """What is run, from the definitions themselves."""
    lines = ["| | policy | trained | prompts × tokens | new tokens | passes | reward model |", "|---|---|---|---|---|---|---|"]
    for workload in _workloads_shown():
        trained = f"LoRA r 16 on {', '.join(workload.lora)}" if workload.lora else "all weights"
        prompts = f"{workload.batch} × {workload.prompt[0]} to {workload.prompt[1]}"
        lines.append(
            f"| {workload.name}{' (GPU)' if workload.gpu else ''} | {_shape(workload.policy)} | {trained} | {prompts} "
            f"| {workload.response} | {workload.epochs} | {_shape(workload.reward)} |"
        )
    return [*lines, f"| {RECIPE} | the bundled world recipe: the whole command line, start and end included | | | | | |"]


def speed(results: Results) -> list[str]:
    """Seconds, memory and ratios of every workload that was measured."""
    measured = [results[name] for name in (*(workload.name for workload in _workloads_shown()), RECIPE) if name in results]
    if not measured:
        return ["Not measured yet."]
    lines = [
        "| | | seconds | sampling | scoring | update | rest | episodes/s | tokens/s | peak MB | times as long as ours |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for result in measured:
        for name, numbers in result["contestants"].items():
            parts = numbers["seconds"]
            peak = numbers["peak_gpu"] or numbers["peak_resident"]
            split = " | ".join(f"{parts[phase]:.2f}" for phase in ("rollout", "scoring", "optimisation", "rest"))
            rates = f"{numbers['episodes']:.1f} | {numbers['tokens']:,.0f} | {peak / 1e6:,.0f}"
            ratio = _ratio(result["ratios"].get(name))
            lines.append(f"| {result['workload']} | {NAMES[name]} | **{parts['total']:.2f}** | {split} | {rates} | {ratio} |")
    return [*lines, "", *(line for result in measured for line in _made_by(result["workload"], result))]


def captured(results: Results) -> list[str]:
    """Sampling on a GPU with and without the captured step."""
    if "captured" not in results:
        return ["Not measured yet."]
    result = results["captured"]
    lines = [
        "| | sampling, plain | captured | ratio | scoring | reference | update | a step | peak GB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in result["rows"].items():
        step, ratio = row["step"], row["plain"] / row["captured"]
        phases = " | ".join(f"{step[phase]:.2f}" for phase in ("score", "reference", "update"))
        both = f"{row['plain']:.3f} s | {row['captured']:.3f} s | {ratio:.1f}"
        lines.append(f"| {name} | {both} | {phases} | **{step['total']:.2f} s** | {row['peak'] / 1e9:.1f} |")
    return [*lines, "", f"- `{result['command']}` ({result['gpu']}, torch {result['torch']}; {result['date']})"]


def floors(results: Results) -> list[str]:
    """Operations from the definitions; rate and distance where they were measured."""
    lines = [
        "| | GFLOP | sampling | scoring | update | measured GFLOP/s | floor in seconds | ours ÷ floor |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for workload in _workloads_shown():
        counted = floor(workload)
        measured = results.get(workload.name, {}).get("floor")
        tail = " | | "
        if measured:
            away = measured["distance"]
            tail = f" {measured['rate'] / 1e9:,.0f} | {measured['seconds']:.2f} | {_spread(away)} "
        parts = " | ".join(f"{part / 1e9:,.0f}" for part in (counted.total, counted.rollout, counted.scoring, counted.optimisation))
        lines.append(f"| {workload.name} | {parts} |{tail}|")
    return lines


def stages(results: Results) -> list[str]:
    """The stages around PPO: what is trained, and seconds, memory and ratios where they were measured."""
    lines = [
        "| | model | trained | examples × prompt + completion | GFLOP a step | | seconds | tokens/s | peak MB | times as long as ours "
        "| its memory ÷ ours | ours ÷ floor |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    measured = []
    for stage in (workload for workload in WORKLOADS.values() if workload.stage != "ppo"):
        reward = stage.stage == "reward_model"
        trained = f"LoRA r 16 on {', '.join(stage.lora)}" if stage.lora else "all weights"
        lengths = " + ".join(f"{low} to {high}" for low, high in (stage.prompt, stage.completion))
        what = f"{_shape(stage.reward if reward else stage.policy)} | {trained} | {stage.batch}{' pairs' if reward else ''} × {lengths}"
        about = f"| {stage.name} | {what} | {floor(stage).total / 1e9:,.0f} |"
        result = results.get(stage.name)
        if result is None:
            lines.append(f"{about} | | | | | | |")
            continue
        measured.append(result)
        for name, who in result["contestants"].items():
            ratio = result["ratios"].get(name)
            memory = f"{ratio['memory']['median']:.2f}" if ratio else ""
            distance = "" if ratio else _spread(result["floor"]["distance"])
            numbers = f"**{who['seconds']['total']:.3f}** | {who['tokens']:,.0f} | {who['peak_resident'] / 1e6:,.0f}"
            lines.append(f"{about} {NAMES[name]} | {numbers} | {_ratio(ratio)} | {memory} | {distance} |")
    return [*lines, "", *(line for each in measured for line in _made_by(each["workload"], each))] if measured else lines


def profiles(results: Results) -> list[str]:
    """Shares of one update by kind of operation."""
    measured = [result for name, result in results.items() if name.startswith("profile-")]
    if not measured:
        return ["Not measured yet."]
    kinds = list(measured[0]["kinds"])
    lines = [f"| | {' | '.join(kinds)} |", f"|---|{'---|' * len(kinds)}"]
    for update in measured:
        total = sum(update["kinds"].values())
        shares = [f"{100 * update['kinds'][kind] / total:.1f} %" for kind in kinds]
        lines.append(f"| {update['workload']} | {' | '.join(shares)} |")
    return [*lines, "", *(line for result in measured for line in _made_by(result["workload"], result))]


def watching(results: Results) -> list[str]:
    """What watching costs."""
    result = results.get("watching")
    if not result:
        return ["Not measured yet."]
    answered = ", ".join(f"{1000 * result['latency'][part]:.1f} ms" for part in ("median", "p95"))
    cells = (
        *(f"{result['viewers']}", _spread(result["slowdown"], 3), f"{1000 * result['cpu_per_viewer']:.1f} ms/s"),
        *(f"{result['poll_bytes']['median']:.0f} B", answered, f"{result['bytes_per_viewer_second'] / 1000:.1f} kB/s"),
    )
    return [
        "| viewers | step time, watched ÷ alone | app's CPU per viewer | a poll | answered in (median, 95 %) | traffic per viewer |",
        "|---|---|---|---|---|---|",
        f"| {' | '.join(cells)} |",
        "",
        f"The simulated viewers themselves used {1000 * result['viewers_cpu']:.0f} ms of CPU a second on the same machine.",
        *_made_by("watching", result),
    ]


def recording(results: Results) -> list[str]:
    """What recording costs."""
    measured = [result for name, result in results.items() if name.startswith("recording-")]
    if not measured:
        return ["Not measured yet."]
    lines = [
        "| | seconds a step, recorded | not recorded | watched prompts | probes | tokens | all episodes | commit | together "
        "| of the processor time | pair by pair |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for run in measured:
        gap = {name: 100 * value for name, value in run["difference"].items()}
        shares = (run["parts"].get(name) for name in ("watch", "probes", "tokens", "episodes", "commit"))
        parts = " | ".join("–" if share is None else f"{100 * share:.1f} %" for share in shares)  # some results are older than a part
        cpu = f"{100 * run['cpu']['openly']:.1f} %" if "cpu" in run else "–"  # newer than some results
        both = f"{100 * run['openly']:.1f} % | {cpu} | {_spread(gap, 1)} %, {run['pairs']} pairs"
        lines.append(f"| {run['workload']} | {run['on']:.3f} | {run['off']:.3f} | {parts} | {both} |")
    return [*lines, "", *(line for result in measured for line in _made_by(f"recording {result['workload']}", result))]


def parity(results: Results) -> list[str]:
    """How well the world is learned beside TRL at equal settings; the mean's error is that of the seeds' means."""
    result = results.get("parity")
    if not result:
        return ["Not measured yet."]
    ours, theirs = result["ours"], result["trl-1.12"]
    lines = ["| seed | gold here | gold TRL 1.12 | reward here / TRL | KL here / TRL |", "|---|---|---|---|---|"]
    for seed, own, other in zip(result["seeds"], ours, theirs, strict=True):
        golds = " | ".join(f"{run['gold']:.3f} ± {run['gold_error']:.3f}" for run in (own, other))
        lines.append(f"| {seed} | {golds} | {own['reward']:.2f} / {other['reward']:.2f} | {own['kl']:.1f} / {other['kl']:.1f} |")
    if len(ours) > 1:
        lines.append(f"| mean | {' | '.join(_mean([run['gold'] for run in runs]) for runs in (ours, theirs))} | | |")
    start = f"{result['steps']} batches; gold on {result['answered']} held-out prompts, before training {result['start']['gold']:.3f}."
    return [start, "", *lines, "", *_made_by("parity", result)]


BLOCKS: dict[str, Callable[[Results], list[str]]] = {
    "workloads": workloads,
    "speed": speed,
    "floors": floors,
    "stages": stages,
    "profiles": profiles,
    "watching": watching,
    "recording": recording,
    "parity": parity,
    "captured": captured,
}


# --- parts of them -------------------------------------------------------------------------------------------------------------


def _workloads_shown() -> list[Workload]:
    """PPO's workloads but the smallest."""
    return [workload for workload in WORKLOADS.values() if workload.stage == "ppo" and workload.name not in SMOKE]


def _shape(shape: Shape) -> str:
    family = {"gpt2": "GPT-2", "gpt_neox": "GPT-NeoX", "llama": "Llama"}[shape.family]
    return f"{family}, {shape.layers} × {shape.width}, vocabulary {shape.vocabulary:,}"


def _mean(values: list[float]) -> str:
    return f"**{statistics.mean(values):.3f}** ± {statistics.stdev(values) / math.sqrt(len(values)):.3f}"


def _ratio(ratio: dict[str, Any] | None) -> str:
    return "" if ratio is None else _spread(ratio)


def _spread(values: dict[str, float], digits: int = 2) -> str:
    middle, low, high = (f"{values[name]:.{digits}f}" for name in ("median", "min", "max"))
    return f"**{middle}** ({low} to {high})"


def _made_by(name: str, result: dict[str, Any]) -> list[str]:
    """The command and the machine, as a list item."""
    where = result["machine"]
    gpu = {contestant["device"] for contestant in result.get("contestants", {}).values()} - {"cpu"}
    torch = {contestant["versions"].get("torch") for contestant in result.get("contestants", {}).values()}
    device = ", ".join(
        [*sorted(gpu), f"{where['cpu']}, {where['cpus']} CPUs", *(f"torch {version}" for version in sorted(torch) if version)]
    )
    return [f"- {name}: `{result['command']}` ({device}; {result['date']})"]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 when the page is out of date")
    options = parser.parse_args(arguments)
    before = PAGE.read_text(encoding="utf-8")
    after = filled(before, load())
    if options.check:
        print("up to date" if before == after else "out of date; run: python -m benchmarks.report")
        return int(before != after)
    PAGE.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
