"""The whole road for real, in a tiny form with two rounds: what each part got from those before it, and that none of it has changed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from rlhf_studio.analysis.evaluation.report import report_of
from rlhf_studio.config.bundled import bundled_path
from rlhf_studio.inputs.provenance import hash_of
from rlhf_studio.jobs.road.begin import begin_road
from rlhf_studio.jobs.road.state import RoadSettings, list_roads
from rlhf_studio.runs.lineage import Source, sources
from rlhf_studio.runs.reader import RunReader
from tests.runs.store_helpers import python_environment

pytestmark = pytest.mark.long
KEYS = ["sft", "pairs", "reward_model", "ppo", "pairs-2", "reward_model-2", "ppo-2", "evaluation"]


def test_two_rounds_to_the_end(tmp_path: Path) -> None:
    begun = begin_road(tmp_path, "a road", RoadSettings(reviews=2_000, pairs=200, ppo_steps=2, prompts=8, rounds=2), time.time())
    command = [sys.executable, "-m", "rlhf_studio", "road", "go", str(begun.folder)]
    went = subprocess.run(command, env=python_environment(), capture_output=True, text=True, timeout=1200)
    assert went.returncode == 0, went.stdout + went.stderr
    (road,) = list_roads(tmp_path)
    assert [part.key for part in road.parts] == KEYS and all(part.headline for part in road.parts)
    assert {part.state for part in road.parts} == {"done"}
    readers = {part.key: RunReader(tmp_path / "runs" / part.run) for part in road.parts if part.run}
    assert len(readers) == 6 and all(reader.status().state == "finished" for reader in readers.values())

    by_part = {key: sources(reader, hash_of, bundled_path) for key, reader in readers.items()}
    assert all(by_part.values())
    # bundled/world-reviews is written from a seed: there is no file of it
    checked = [source for own in by_part.values() for source in own if source.name != "bundled/world-reviews"]
    assert {source.standing for source in checked} == {"as it was"}
    keys = {part.run: part.key for part in road.parts if part.run}

    def trained(key: str) -> set[str]:
        """The parts whose models a part was made from."""
        return {keys[source.run] for source in by_part[key] if source.run}

    assert trained("sft") == set()
    assert trained("reward_model") == {"sft"} and trained("reward_model-2") == {"reward_model"}
    assert trained("ppo") == {"sft", "reward_model"} and trained("ppo-2") == {"ppo", "reward_model-2"}
    assert trained("evaluation") == {"sft", "ppo", "ppo-2", "reward_model-2"}

    def data(key: str) -> list[Source]:
        return [source for source in by_part[key] if source.kind == "data"]

    for key, pairs in (("reward_model", "pairs-1.jsonl"), ("reward_model-2", "pairs-2.jsonl")):
        assert pairs in {Path(source.path).name for source in data(key)}
    first, second = ((road.folder / f"responses-{number}.jsonl").read_text() for number in (1, 2))
    assert first.splitlines() and second.splitlines() and first != second
    assert len(report_of(readers["evaluation"]).policies) == 3
    assert "of comparisons with the first" in road.part("evaluation").headline
