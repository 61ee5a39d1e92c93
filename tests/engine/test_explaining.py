"""What ``explain`` says of models, against what transformers' source and the files themselves tell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForSequenceClassification

from rlhf_studio.cli.main import main
from rlhf_studio.engine.models.explaining import CAUSAL, CLASSIFIER, POLICY, Loaded, explain
from rlhf_studio.inputs.models.files import ModelError
from tests.engine.small_models import save_policy, save_reward_model


def ways(folder: Path) -> dict[str, Loaded]:
    return {loaded.way: loaded for loaded in explain(str(folder)).ways}


def test_a_language_model_of_the_neox_family(tmp_path: Path) -> None:
    """Its trunk and its output layer have names of their own, and its files have no score head; 32 is its width, 30 its vocabulary."""
    loaded = ways(save_policy(tmp_path / "neox", "gpt_neox"))
    causal, classifier, policy = loaded[CAUSAL], loaded[CLASSIFIER], loaded[POLICY]
    assert (causal.class_name, causal.trunk, causal.trunk_class) == ("GPTNeoXForCausalLM", "gpt_neox", "GPTNeoXModel")
    assert causal.head in ("embed_out", "lm_head")  # its name in the files, and in newer releases of transformers
    assert causal.module == "transformers.models.gpt_neox.modeling_gpt_neox" and causal.file.endswith("gpt_neox/modeling_gpt_neox.py")
    assert (causal.head_shapes, causal.tied, causal.drawn) == ({f"{causal.head}.weight": (30, 32)}, {}, ())
    assert (classifier.class_name, classifier.head) == ("GPTNeoXForSequenceClassification", "score")
    assert classifier.drawn == ("score.weight",) and "embed_out.weight" in classifier.left_out
    assert "whose id is not 0 (pad_token_id of config.json)" in classifier.scored and "end token" not in classifier.scored
    assert (policy.trunk, policy.head, policy.head_numbers) == ("model.gpt_neox", "value_head", 32 + 1)
    assert policy.parameters == causal.parameters + 33


def test_the_token_that_is_said_to_be_scored_is_the_one_that_is_scored(tmp_path: Path) -> None:
    """With the end token as pad token a row with an end token behind it has the score of the row without it."""
    folder = save_reward_model(tmp_path / "reward", "gpt2")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "pad_token_id": 1}))
    classifier = ways(folder)[CLASSIFIER]
    assert classifier.drawn == () and classifier.head_shapes == {"score.weight": (1, 32)}
    assert "whose id is not 1" in classifier.scored and "so a real end token is passed over" in classifier.scored
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    scores = [model(input_ids=torch.tensor([row])).logits.item() for row in ([5, 6, 7, 1], [5, 6, 7])]
    assert scores[0] == pytest.approx(scores[1])


def test_adapters_are_followed_to_their_base_and_bring_their_head(tmp_path: Path) -> None:
    base = AutoModelForSequenceClassification.from_pretrained(save_policy(tmp_path / "base"), num_labels=1)
    adapted = get_peft_model(base, LoraConfig(r=4, task_type="SEQ_CLS", target_modules=["c_attn"], fan_in_fan_out=True))
    adapted.save_pretrained(tmp_path / "adapter")
    explained = explain(str(tmp_path / "adapter"))
    assert explained.folder == tmp_path / "base"
    assert explained.adapters == (f"{tmp_path / 'adapter'}: LORA, r 4, lora_alpha 8, task_type SEQ_CLS",)
    assert explained.ways[1].drawn == ()


def test_what_cannot_be_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ModelError, match="not in the hub's cache on this machine; nothing is downloaded"):
        explain("nobody/no-such-model")
    folder = save_policy(tmp_path / "pickled")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert main(["explain", str(folder)]) == 2
    assert "only as a pickle" in capsys.readouterr().err


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "bundled/world-reward"]) == 0
    shown = capsys.readouterr().out
    assert "GPT2ForSequenceClassification, of transformers.models.gpt2.modeling_gpt2" in shown
    assert "model.score: score.weight 1 x 160; 160 numbers" in shown and "newly drawn   nothing" in shown
    assert main(["explain", "bundled/world-reward", "--json"]) == 0
    assert [way["head_numbers"] for way in json.loads(capsys.readouterr().out)["ways"]] == [1236 * 160, 160, 161]
