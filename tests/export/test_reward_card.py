"""The code on the card of an exported reward model gives the score that the model has in a run."""

from __future__ import annotations

import json
import runpy
from hashlib import sha256
from pathlib import Path

import pytest
import torch

from rlhf_studio.cli.main import main
from rlhf_studio.config import RewardModelRunConfig
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.stages.reward_model.build import build_reward_model
from rlhf_studio.engine.stages.reward_model.finish import finish_reward_model
from rlhf_studio.runs import paths
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import StepRecord
from rlhf_studio.runs.writer import RunWriter
from tests.engine.test_reward_heads import by_hand, byte_policy, silent
from tests.export import fakes


@pytest.mark.parametrize(("head", "append_eos"), [("linear", True), ("hidden", False)])
def test_the_cards_code_gives_the_runs_score(
    head: str, append_eos: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A LoRA run: its adapter is in the weights of what is exported, and there is none to take."""
    fakes.install(monkeypatch)
    policy, tokenizer = byte_policy(tmp_path / "policy", "gpt2")
    learned = {"head": head, "append_eos": append_eos}
    config = RewardModelRunConfig.model_validate(
        {"model": {"policy": str(policy)}, "lora": {"enabled": True, "r": 2}, "reward_model": learned, "engine": {"device": "cpu"}}
    )
    built = build_reward_model(config, Compute(torch.device("cpu"), torch.float32), silent)
    with torch.no_grad():
        for name, parameter in built.model.named_parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(name))))
    create_run(tmp_path / "run", config, name="a run")
    with RunWriter(tmp_path / "run") as writer:
        writer.commit_step(StepRecord(1, {}, []))
    folder = paths.checkpoint_dir(tmp_path / "run", 1)
    folder.mkdir(parents=True)
    finish_reward_model(built.model, tokenizer, built.head, [], "", folder / "reward_model")
    files = [path for path in folder.rglob("*") if path.is_file()]
    entries = {
        str(path.relative_to(folder)): {"bytes": path.stat().st_size, "sha256": sha256(path.read_bytes()).hexdigest()} for path in files
    }
    manifest = {"format": 1, "step": 1, "recorded_at": RunReader(tmp_path / "run").recorded_at(1), "files": entries}
    (folder / paths.MANIFEST).write_text(json.dumps(manifest))
    monkeypatch.chdir(tmp_path)
    assert main(["export", "run", "--adapter", "adapter"]) == 2
    assert "a reward model is kept whole" in capsys.readouterr().err
    assert main(["export", "run", "--merged", "judge"]) == 0
    Path("score.py").write_text(Path("judge", "README.md").read_text().split("```python\n")[1].split("```")[0])
    capsys.readouterr()
    runpy.run_path("score.py")
    plain = built.model.merge_and_unload()
    row = [*tokenizer("Your prompt, and the response behind it")["input_ids"], *([tokenizer.eos_token_id] if append_eos else [])]
    assert float(capsys.readouterr().out.splitlines()[-1]) == pytest.approx(by_hand(plain, row), abs=1e-4)
