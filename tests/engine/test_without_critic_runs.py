"""A whole run without a critic, from the command line: what reads it shows what is missing as missing, and it goes on as other runs do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from rlhf_studio.analysis.doctor import diagnose
from rlhf_studio.analysis.logs.open_log import open_log
from rlhf_studio.analysis.logs.write import lines_of
from rlhf_studio.cli.main import main
from rlhf_studio.config import RunConfig
from rlhf_studio.config.io import config_to_yaml
from rlhf_studio.exit_codes import DONE
from rlhf_studio.jobs.export.report import report
from rlhf_studio.jobs.export.story import story_of
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import CRITIC_QUANTITIES
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.live.payloads import settings_payload
from rlhf_studio.ui.live.responses import answer_payload, tokens_payload
from tests.engine.conftest import small_config
from tests.engine.test_processes import TWO, check_metrics, check_records, run

pytestmark = pytest.mark.slow

GRPO = {"advantage": "grpo", "responses_per_prompt": 4, "kl_placement": "loss", "kl_estimator": "k3"}


def settings_of(folder: Path, name: str, **changes: Any) -> Path:
    engine = {
        "watch_prompts": 2,
        "checkpoint_every": 1,
        "keep_checkpoints": 1,
        "keep_best": "objective/scores",
        "threads": 1,
        **changes.pop("engine", {}),
    }
    path = folder / f"{name}.yaml"
    path.write_text(
        config_to_yaml(small_config(folder, ppo={**GRPO, "steps": 3, **changes.pop("ppo", {})}, engine=engine)), encoding="utf-8"
    )
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three steps, with a checkpoint after each, of which the newest and the best stay; tests must not change it."""
    folder = tmp_path_factory.mktemp("grpo")
    assert main(["train", "--config", str(settings_of(folder, "run")), "--run-dir", str(folder / "run")]) == DONE
    return folder / "run"


def test_the_inspector_gets_no_values(trained: Path) -> None:
    reader = RunReader(trained)
    config = reader.config()
    assert isinstance(config, RunConfig)
    shown = json.loads(tokens_payload(3, reader.rollout(3, 0), config.ppo))["tokens"]
    assert not set(CRITIC_QUANTITIES) & shown["arrays"].keys() and len(shown["arrays"]["advantages"]) > 0
    card = shown["card"]
    assert card["compared"] == "grpo" and card["factors"] == {"minus_beta": "−0.1"} and not card["whitened"]
    assert not {"advantages", "deltas", "returns"} & card["sums"].keys()  # GAE's sums need a critic
    answers = json.loads(answer_payload(reader.watched(), 0))
    assert "values" not in json.dumps(answers) and "entropy" in json.dumps(answers)
    told = settings_payload(reader.config())
    assert (told["advantage"], told["whiten_advantages"]) == ("grpo", False)


def test_the_doctor_and_the_report_read_it(trained: Path) -> None:
    reader = RunReader(trained)
    actual = {finding.check for finding in diagnose(reader).findings}
    assert not actual & {"critic-no-use", "value-loss-overflow", "critic-warm-up", "not-finite", "batch"}
    shown = report(story_of(reader))
    assert "Value fit" not in shown
    assert "Clipped tokens" in shown


def test_its_log_is_the_run(trained: Path, tmp_path: Path) -> None:
    """Written as a log and opened again: the same arrays, and none of a critic."""
    path, ours = tmp_path / "log.jsonl", RunReader(trained)
    path.write_text("".join(lines_of(ours)), encoding="utf-8")
    theirs = Workspace(tmp_path / "workspace").reader(open_log(path, tmp_path / "workspace").run_id)
    for sample in range(3):
        one, other = (reader.rollout(2, sample).tokens for reader in (ours, theirs))
        assert one is not None and other is not None and one.arrays.keys() == other.arrays.keys()
        assert all(np.array_equal(other.arrays[name], array) for name, array in one.arrays.items())
        assert np.isnan(other.gamma) and np.isnan(other.lam)
    assert theirs.episodes(2)[2].tokens.keys() == {"logprobs", "ref_logprobs"}
    assert [set(values) for _, values in theirs.metrics_since(0)] == [set(values) for _, values in ours.metrics_since(0)]


@pytest.mark.long
@pytest.mark.parametrize("kinds", [{}, {"loss_average": "responses", "ratio_level": "sequence"}], ids=["GRPO", "GSPO"])
def test_two_processes_compare_all_responses_to_a_prompt(tmp_path: Path, kinds: dict[str, str]) -> None:
    """Each process has half of the eight responses to the only prompt of a step."""
    ppo = {"responses_per_prompt": 8, "steps": 2, "mini_batch_size": 4, **kinds}
    assert main(["train", "--config", str(settings_of(tmp_path, "one", ppo=ppo)), "--run-dir", str(tmp_path / "one")]) == DONE
    run("train", "--config", settings_of(tmp_path, "two", ppo=ppo, engine=TWO), "--run-dir", tmp_path / "two")
    check_metrics(tmp_path / "two", tmp_path / "one", steps=2)
    check_records(tmp_path / "two", tmp_path / "one", steps=2)
    assert yaml.safe_load((tmp_path / "two.yaml").read_text())["ppo"]["advantage"] == "grpo"
