"""The road on own files for real, at tiny size: engines that train, in this process every day, as processes in the long tests."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlhf_studio.engine.loop import models
from rlhf_studio.engine.sampling.traced_step import CannotTrace
from rlhf_studio.exit_codes import DONE
from rlhf_studio.jobs.road import drive as driving
from rlhf_studio.jobs.road.begin import begin_road
from rlhf_studio.jobs.road.drive import drive
from rlhf_studio.jobs.road.outcomes import examples_of
from rlhf_studio.jobs.road.state import Road, read_road
from rlhf_studio.runs.queue import Dispatcher
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import StartMode
from tests.road.own_files import PROMPTS, own_settings
from tests.runs.store_helpers import python_environment

TINY = {"lora.enabled": "true", "sft.max_steps": "2", "reward_model.max_steps": "2", "ppo.steps": "1", "ppo.batch_size": "4",
        "ppo.mini_batch_size": "4", "ppo.ppo_epochs": "1", "generation.response_length": "4", "engine.watch_prompts": "0",
        "engine.probe_prompts": "0", "evaluation.prompts": "4", "evaluation.batch_size": "4", "data.eval_share": "0.2"}  # fmt: skip


def in_this_process(run_dir: Path, mode: StartMode, *, ticket: Any) -> Any:
    """An engine that has ended when it is started."""
    from rlhf_studio.engine.process.worker import run_engine

    code = run_engine(run_dir, mode)
    return SimpleNamespace(pid=1, poll=lambda: code)


def check(road: Road, runs: Path) -> None:
    """Each part's model is what the next one took, and the end was compared with the start."""
    assert [part.state for part in road.parts] == ["done"] * 4 and all(part.course or part.comparison for part in road.parts)
    readers = {part.key: RunReader(runs / part.run) for part in road.parts}
    configs: dict[str, Any] = {key: reader.config() for key, reader in readers.items()}
    sft, judge, ppo = (f"{runs / road.part(key).run}@" for key in ("sft", "reward_model", "ppo"))
    assert configs["sft"].model.policy == "bundled/world-policy"
    assert configs["reward_model"].model.policy.startswith(sft) and configs["ppo"].model.policy.startswith(sft)
    assert configs["ppo"].reward.components[0].model.startswith(judge)
    policies = configs["evaluation"].evaluation.policies.splitlines()
    assert policies[0] == "bundled/world-policy" and policies[1].startswith(sft) and policies[2].startswith(ppo)
    comparison = road.part("evaluation").comparison
    assert comparison is not None and comparison.same_origin is False and comparison.judge == "sentiment words"
    examples = examples_of(readers["evaluation"], 2).shown
    assert len(examples) == 2 and all(example.prompt in PROMPTS for example in examples)
    answers = readers["evaluation"].answers()  # the last policy reads and writes with its own tokenizer, which its base has not
    assert any(answer.response for answer in answers[-4:]) and all(math.isfinite(answer.kl) for answer in answers)


def untraced(policy: Any, settings: Any) -> Any:
    """Sampling calls the model itself: tracing takes longer than these few tokens."""
    raise CannotTrace("a test")


@pytest.mark.slow
def test_from_files_to_a_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driving, "Dispatcher", lambda workspace, interval: Dispatcher(workspace, in_this_process, 0.01))
    monkeypatch.setattr(models, "trace_step", untraced)
    road = begin_road(tmp_path, "", own_settings(tmp_path, judge={"kind": "lexicon"}, changes=TINY, anyway=True), 0.0)
    lines: list[str] = []
    assert drive(road.folder, tmp_path, lines.append) == DONE, lines
    check(read_road(road.folder), tmp_path / "runs")


@pytest.mark.long
def test_by_the_command_stopped_and_gone_on_with(tmp_path: Path) -> None:
    own = own_settings(tmp_path)
    files = [text for name in ("demonstrations", "pairs", "prompts") for text in (f"--{name}", getattr(own, name))]
    command = [sys.executable, "-m", "rlhf_studio", "road"]
    start = ["run", "--policy", "bundled/world-policy", *files, "--judge", "lexicon", "--minutes", "5", "--workspace", str(tmp_path)]
    changes = [text for name, value in TINY.items() if name != "sft.max_steps" for text in (f"--{name}", value)]
    went = subprocess.run([*command, *start, *changes], env=python_environment(), capture_output=True, text=True, timeout=900)
    (folder,) = (tmp_path / "roads").iterdir()
    if went.returncode:  # two steps make no reward model that is surely better than chance
        assert "the road stops after this part: " in went.stdout, went.stdout + went.stderr
        went = subprocess.run(
            [*command, "go", str(folder), "--anyway"], env=python_environment(), capture_output=True, text=True, timeout=900
        )
    assert went.returncode == 0, went.stdout + went.stderr
    check(read_road(folder), tmp_path / "runs")
    assert "of comparisons with the start" in went.stdout and "  before  " in went.stdout
    assert json.loads((folder / "road.json").read_text())["settings"]["minutes"] == 5
