"""The command ``measure-reward``: a model whose scores are set by the test, margins worked out by hand, and plain transformers."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, GPT2Config, GPT2ForSequenceClassification

from rlhf_studio.cli.main import main
from rlhf_studio.cli.measure_reward import learned_from, request_of
from rlhf_studio.config import RewardModelRunConfig
from rlhf_studio.config.bundled import ASSETS
from rlhf_studio.engine.compute.device import choose_compute
from rlhf_studio.engine.stages.reward_model.on_pairs import measure_on_pairs
from rlhf_studio.inputs.examples import read_pairs
from rlhf_studio.runs.reader import RunReader
from tests.engine.small_models import WORDS, save_tokenizer
from tests.engine.test_rewards_chats import PLAIN, by_transformers, reward_model

LN3 = math.log(3)  # a margin of ln 3 is a probability of 3/4
WIDTH = 32


def model_of_words(folder: Path, scores: dict[str, float]) -> Path:
    """A classifier that gives a text the score of its last word, and 0 for a word that has none.

    Every layer adds nothing, and the state of word number i is unit vector i. The last norm makes of it (e_i − 1/n) / s, with n the width
    and s² = (1/n)(1 − 1/n). A head whose weights are s times the scores, with sum 0, gives the scores back.
    """
    tokenizer = save_tokenizer(folder)
    config = GPT2Config(
        vocab_size=len(tokenizer), n_embd=WIDTH, n_layer=1, n_head=1, n_positions=64, num_labels=1, layer_norm_epsilon=1e-12
    )
    model = GPT2ForSequenceClassification(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "ln_" not in name:
                parameter.zero_()
        model.transformer.wte.weight.copy_(torch.eye(len(tokenizer), WIDTH))
        for word, score in scores.items():
            model.score.weight[0, tokenizer.convert_tokens_to_ids(word)] = score
        model.score.weight[0, -1] = -sum(scores.values())  # no word has the last place
        model.score.weight.mul_(math.sqrt((1 - 1 / WIDTH) / WIDTH))
    model.save_pretrained(folder)
    assert len(WORDS) + 2 < WIDTH
    return folder


def rows_file(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_all_measures_of_pairs_worked_out_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = model_of_words(tmp_path / "model", {"w1": LN3})
    rows = [
        {"prompt": "w9", "chosen": " w9 w5 w1", "rejected": " w2", "tie": False},  # right, margin ln 3, longer
        {"prompt": "w8", "chosen": " w2", "rejected": " w5\nw1", "tie": False},  # wrong, margin −ln 3, shorter
        {"prompt": "w7", "chosen": " w4 w2", "rejected": " w3 w2", "tie": False},  # equal scores: one half
        {"prompt": "w6", "chosen": " w1", "rejected": " w5 w2", "tie": False},  # right, shorter
        {"prompt": "w6", "chosen": " w1", "rejected": " w2", "tie": True},  # counts nowhere
    ]
    out = tmp_path / "numbers.json"
    assert main(["measure-reward", str(model), "--pairs", str(rows_file(tmp_path / "p.jsonl", rows)), "--json", str(out)]) == 0
    told, numbers = capsys.readouterr().out, json.loads(out.read_text(encoding="utf-8"))
    assert numbers["pairs"] == 5 and numbers["fit"]["ties"] == 1 and numbers["fit"]["accuracy"]["share"] == 0.625  # 2½ of 4
    margins = numbers["margins"]
    assert margins["mean"] == pytest.approx(LN3 / 4, rel=1e-4) and margins["equal"] == 1
    assert margins["deviation"] == pytest.approx(LN3 * math.sqrt(3 / 4 - 1 / 16), rel=1e-4)
    assert margins["quantiles"]["0.5"] == pytest.approx(LN3 / 2, rel=1e-4)  # of −ln 3, 0, ln 3, ln 3
    assert margins["quantiles"]["0.25"] == pytest.approx(-LN3 / 4, rel=1e-4)
    # Three pairs at 3/4 of which two are right, one at 1/2 of which one half is: 3/4 · (3/4 − 2/3)
    assert numbers["calibration"]["error"] == pytest.approx(0.0625, abs=1e-4)
    rule = {name: (part["pairs"], part["right"]) for name, part in numbers["length_rule"].items()}
    assert rule == {"longer": (1, 1.0), "shorter": (2, 1.0), "rule": (4, 1.5)}
    (wrong,) = numbers["wrong"]
    assert wrong["texts"] == ["w8", " w2", " w5\nw1"] and wrong["number"] == 2 and wrong["probability"] == pytest.approx(0.25, abs=1e-4)
    assert (
        "62.5 % of 4" in told
        and "equal scores, which count one half each: 1" in told
        and "row 2: the model gives the chosen response 25.0 %" in told
    )
    assert "The 5 pairs are of 4 prompts" in told and " w5\\nw1" in told


def test_scores_of_chats_and_of_the_bundled_model_are_those_of_plain_transformers(tmp_path: Path) -> None:
    def scores_of(model: str, pair: dict[str, str], **settings: str) -> list[float]:
        request = request_of(model, str(rows_file(tmp_path / "pairs.jsonl", [pair])), settings)
        rows = read_pairs(request.data).rows
        pairs = measure_on_pairs(request.reward, rows, request.data, choose_compute(request.run), lambda text, fraction: None).pairs
        return [float(pairs.chosen[0]), float(pairs.rejected[0])]

    pair = {"prompt": "w2 w3", "chosen": " w7 w8 w9", "rejected": " w5"}
    folder = reward_model(tmp_path / "chats", PLAIN)
    chats = [[{"role": "user", "content": pair["prompt"]}, {"role": "assistant", "content": pair[side]}] for side in ("chosen", "rejected")]
    expected = [by_transformers(folder, chat) for chat in chats]
    assert scores_of(str(folder), pair, **{"reward.chat_template": "own"}) == pytest.approx(expected, abs=1e-5)

    film = {"prompt": "The plot", "chosen": " is superb.", "rejected": " is a disaster. I walked out before the end."}
    bundled = ASSETS / "world" / "reward"
    tokenizer, network = AutoTokenizer.from_pretrained(bundled), AutoModelForSequenceClassification.from_pretrained(bundled).eval()
    with torch.no_grad():
        ids = [tokenizer(film["prompt"] + film[side], return_tensors="pt")["input_ids"] for side in ("chosen", "rejected")]
        alone = [float(network(row).logits) for row in ids]
    assert scores_of("bundled/world-reward", film) == pytest.approx(alone, abs=1e-4)


def test_what_cannot_be_measured_is_refused_at_the_door(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = rows_file(tmp_path / "pairs.jsonl", [{"prompt": "w1", "chosen": " w2", "rejected": " w3"}])
    texts = rows_file(tmp_path / "texts.jsonl", [{"text": "w1"}])
    there = rows_file(tmp_path / "there.json", [])
    world = "bundled/world-reward"
    for arguments, part in (
        (["no/such-folder/here", "--pairs", str(pairs)], "MODEL: there is no folder"),
        (["bundled/world-policy", "--pairs", str(pairs)], "MODEL: "),
        ([world, "--pairs", str(tmp_path / "none.jsonl")], "--pairs: "),
        ([world, "--pairs", str(texts)], "--pairs: the columns are: text; pairs need chosen and rejected"),
        ([world, "--pairs", str(pairs), "--json", str(there)], "--json: "),
        ([world, "--pairs", str(pairs), "--ppo.steps", "3"], "ppo.steps: measure-reward takes settings of data, reward, engine only"),
        ([world, "--pairs", str(pairs), "--reward.label", "GOOD"], "reward.label: "),
        ([world, "--pairs", str(pairs), "--reward.kind", "length"], "reward.kind: "),
        ([world, "--pairs", str(pairs), "--reward.chat_template", "own"], "reward.chat_template: "),
        ([world, "--pairs", str(pairs), "--data.chat_template", "true"], "there is no policy here"),
        ([world], "the following arguments are required: --pairs"),
    ):
        assert main(["measure-reward", *arguments]) == 2, arguments
        assert part in (error := capsys.readouterr().err), (arguments, error)


def test_pairs_that_the_model_has_learned_from_are_named(small_runs: Path) -> None:
    config = RunReader(small_runs / "reward_model").config()
    assert isinstance(config, RewardModelRunConfig)
    source = config.data.source
    (note,) = learned_from(request_of(str(small_runs / "reward_model"), source, {}))
    assert "learned from these pairs" in note
    assert learned_from(request_of(str(small_runs / "reward_model"), "bundled/world-pairs-heldout", {})) == []
    assert learned_from(request_of("bundled/world-reward", source, {})) == []
