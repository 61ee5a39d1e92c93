"""One recorded batch, learned from by all algorithms: PPO's update is the run's own, and none leaves a trace in the next."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.cli.main import main
from rlhf_studio.config import NOTHING_ALLOWED
from rlhf_studio.config.io import config_to_yaml
from rlhf_studio.exit_codes import BAD_INPUT, DONE
from rlhf_studio.jobs.updates import batch as recorded
from rlhf_studio.jobs.updates.algorithms import ALGORITHMS
from rlhf_studio.jobs.updates.batch import recorded_batch
from rlhf_studio.jobs.updates.compare import Comparer
from rlhf_studio.runs.reader import RunReader
from tests.engine.conftest import small_config

pytestmark = pytest.mark.slow

NAMES = ["ppo", "reinforce", "rloo", "grpo", "dr_grpo", "dapo", "gspo"]


def train(folder: Path, **ppo: Any) -> Path:
    """Four steps, with a checkpoint after the second and the last."""
    engine = {"checkpoint_every": 2, "threads": 1, "watch_prompts": 2, "probe_prompts": 0}
    settings = {"steps": 4, "kl_controller": "adaptive", "kl_horizon": 20, **ppo}
    path = folder / "run.yaml"
    path.write_text(config_to_yaml(small_config(folder, ppo=settings, engine=engine)), encoding="utf-8")
    assert main(["train", "--config", str(path), "--run-dir", str(folder / "run")]) == DONE
    return folder / "run"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("groups"), responses_per_prompt=4)


def compared(run: Path, step: int, tmp_path: Path) -> dict[str, Any]:
    assert main(["compare-updates", f"{run}@{step}", "--fresh", "16", "--out", str(tmp_path / "out.json"), "--replace"]) == DONE
    data: dict[str, Any] = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    return data


@pytest.mark.parametrize(("step", "began"), [(1, 0), (2, 0), (4, 2)])
def test_ppo_makes_the_update_that_the_run_made(run: Path, tmp_path: Path, step: int, began: int) -> None:
    """From the start and from a checkpoint, with steps trained again between: what the run recorded of its own update comes out again."""
    data = compared(run, step, tmp_path)
    own = dict(RunReader(run).metrics_since(0))[step]
    ppo = data["algorithms"][0]
    assert [row["name"] for row in data["algorithms"]] == NAMES and data["left_out"] == [] and data["began"] == began
    assert data["recorded_off"] < 1e-5
    assert ppo["grad_norm"] == pytest.approx(own["optim/grad_norm"], rel=1e-5)
    assert ppo["clipped"] == pytest.approx(own["policy/clipfrac_avg"], abs=1e-6)
    assert (ppo["optimizer_steps"], data["learning_rate"]) == (own["optim/steps"], pytest.approx(own["lr"]))
    assert data["batch"]["kl_coef"] == pytest.approx(own["objective/kl_coef"])
    assert data["batch"]["reward"] == pytest.approx(own["objective/scores"], rel=1e-5)
    assert data["before"]["kl_reference"] == pytest.approx(0, abs=1e-5) if step == 1 else data["before"]["kl_reference"] > 1e-3


def test_each_algorithm_is_itself_and_leaves_no_trace(run: Path, tmp_path: Path) -> None:
    """The first step: an optimizer without a state is put back to none. In another order each update is the same."""
    found = recorded_batch(run, 1, NOTHING_ALLOWED, lambda text: None)
    comparer = Comparer(found.trainer, found.batch, fresh=8, seed=0, report=lambda text: None)
    forwards, backwards = comparer.compare(ALGORITHMS), comparer.compare(ALGORITHMS[::-1])
    for one, other in zip(forwards.updates, backwards.updates[::-1], strict=True):
        assert one.after.logprobs.equal(other.after.logprobs) and one.stats.grad_norm == other.stats.grad_norm, one.algorithm
    assert forwards.before.logprobs.equal(backwards.before.logprobs)
    after = {update.algorithm.name: update for update in forwards.updates}
    assert len({float(update.after.logprobs.sum()) for update in forwards.updates}) == len(ALGORITHMS)
    assert after["reinforce"].stats.optimizer_steps == 1 and after["reinforce"].stats.sums.clipped == 0
    for name, low, high in (("gspo", 3e-4, 4e-4), ("dapo", 0.2, 0.28), ("grpo", 0.2, 0.0)):
        assert (after[name].config.ppo.cliprange, after[name].config.ppo.cliprange_high) == (low, high)
    assert after["grpo"].advantages.equal(after["dapo"].advantages)
    assert found.trainer.updater.optimizer.state == {} and found.trainer.models.policy.has_critic


def test_what_cannot_be_compared_is_said(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(target: str) -> str:
        assert main(["compare-updates", target]) == BAD_INPUT
        return capsys.readouterr().err

    assert "has no step 5; its last one is 4" in refused(f"{run}@5")
    assert "name a run and one of its steps, as RUN@STEP" in refused(str(run))
    other = tmp_path / "other"
    shutil.copytree(run, other)
    text = (other / "config.yaml").read_text(encoding="utf-8")
    (other / "config.yaml").write_text(text.replace("learning_rate: 0.001", "learning_rate: 0.01"), encoding="utf-8")
    assert "does not lead to the weights that sampled step 2" in refused(f"{other}@2")
    monkeypatch.setattr(recorded, "MOST_AGAIN", 0)
    assert "no checkpoint within the 0 steps before step 4. Steps that can be compared: 1, 3. For others" in refused(f"{run}@4")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("response_ids", lambda ids: ids + 9_999_999),
        ("response_ids", lambda ids: ids[:-1]),
        ("lengths", lambda lengths: lengths * 0),
        ("lengths", lambda lengths: lengths * 0 + 2_000_000_000),
        ("scores", lambda scores: scores * float("nan")),
    ],
)
def test_a_damaged_record_is_one_sentence(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, change: Any
) -> None:
    whole = recorded._episodes
    monkeypatch.setattr(recorded, "_episodes", lambda *given: replace(episodes := whole(*given), **{name: change(getattr(episodes, name))}))
    assert main(["compare-updates", f"{run}@1", "--fresh", "16"]) == BAD_INPUT
    assert "is damaged" in capsys.readouterr().err


def test_a_batch_without_groups_is_one_for_ppo_and_reinforce(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = compared(train(tmp_path, steps=1), 1, tmp_path)
    assert [row["name"] for row in data["algorithms"]] == NAMES[:2]
    shown = capsys.readouterr().out
    assert "Left out: RLOO, GRPO, Dr. GRPO, DAPO, GSPO. Each prompt of this run has one response" in shown
