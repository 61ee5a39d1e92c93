"""The shipped world is what the seeds give, its models can do what they should, and a small world builds from nothing."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlhf_studio.config import DemonstrationsConfig, PairsConfig
from rlhf_studio.config.bundled import ASSETS, BUNDLED
from rlhf_studio.inputs.examples import read_demonstrations, read_pairs
from rlhf_studio.inputs.examples.reading.world import SIZES as ROWS
from rlhf_studio.inputs.trained import resolve
from rlhf_studio.inputs.world.corpus import write_corpus, write_pairs
from rlhf_studio.lessons.world_build.build import (
    CORPUS_SEED,
    EVAL_SEED,
    PAIRS_SEED,
    WorldSizes,
    build_prompts,
    build_tokenizer,
    data_hashes,
    file_hashes,
)
from rlhf_studio.lessons.world_build.check import check_world, sample_responses
from rlhf_studio.lessons.world_build.command import main

pytestmark = pytest.mark.slow

WORLD = ASSETS / "world"
SIZES = WorldSizes()
SMALL = WorldSizes(
    reviews=64, tokenizer_reviews=64, vocabulary=400, pairs=32, eval_items=8, prompts=10, heldout_prompts=4, calibration_samples=16
)


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    return json.loads((WORLD / "manifest.json").read_bytes())


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(WORLD / "policy", local_files_only=True)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def lines(path: Path) -> list[str]:
    return [json.loads(line)["prompt"] for line in path.read_text(encoding="utf-8").splitlines()]


# --- what ships is what the seeds give ---------------------------------------------------------------------------------------


def test_corpus_and_pairs_are_rebuilt_byte_for_byte(manifest: dict[str, Any]) -> None:
    rebuilt = data_hashes(write_corpus(CORPUS_SEED, SIZES.hashed_items), write_pairs(PAIRS_SEED, SIZES.hashed_items), SIZES)
    assert rebuilt == {name: manifest["sha256"][name] for name in ("corpus", "pairs")}


def test_the_stages_read_what_the_shipped_models_learned_from() -> None:
    """The test above ties the same reviews and pairs to the hashes that ship."""
    for name, seed in (("world-reviews", CORPUS_SEED), ("world-reviews-heldout", EVAL_SEED)):
        rows = read_demonstrations(DemonstrationsConfig(source=f"bundled/{name}", max_rows=40)).rows
        assert [(row.prompt, row.completion) for row in rows] == [(review.prompt, review.response) for review in write_corpus(seed, 40)]
    for name, seed in (("world-pairs", PAIRS_SEED), ("world-pairs-heldout", EVAL_SEED)):
        pairs = read_pairs(PairsConfig(source=f"bundled/{name}", max_rows=40)).rows
        expected = [(pair.prompt, pair.chosen, pair.rejected) for pair in write_pairs(seed, 40)]
        assert [(pair.prompt, pair.chosen, pair.rejected) for pair in pairs] == expected
    assert list(ROWS.values()) == [SIZES.reviews, SIZES.eval_items, SIZES.pairs, SIZES.eval_items]


def test_prompts_are_rebuilt() -> None:
    prompts, heldout = build_prompts(SIZES)
    assert lines(WORLD / "prompts.jsonl") == prompts and lines(WORLD / "prompts_heldout.jsonl") == heldout
    assert len(set(prompts)) == 512 and not set(prompts) & set(heldout)


@pytest.mark.long
def test_tokenizer_is_rebuilt_byte_for_byte(tmp_path: Path) -> None:
    build_tokenizer(write_corpus(CORPUS_SEED, SIZES.tokenizer_reviews), SIZES.vocabulary).save_pretrained(tmp_path)
    rebuilt = json.loads((tmp_path / "tokenizer.json").read_bytes())
    for name in ("policy", "reward"):
        assert json.loads((WORLD / name / "tokenizer.json").read_bytes()) == rebuilt


def test_every_file_is_the_one_that_was_built(manifest: dict[str, Any]) -> None:
    recorded = {name: value for name, value in manifest["sha256"].items() if name not in ("corpus", "pairs")}
    assert file_hashes(WORLD) == recorded
    sample = WORLD / "prompts.jsonl"
    assert recorded["prompts.jsonl"] == hashlib.sha256(sample.read_bytes()).hexdigest()
    assert manifest["sizes"] == {**SIZES.__dict__}


def test_the_folder_stays_small_and_holds_no_pickle() -> None:
    sizes = {path: path.stat().st_size for path in WORLD.rglob("*") if path.is_file()}
    assert sum(sizes.values()) < 20e6 and max(sizes.values()) < 10e6
    assert {path.suffix for path in sizes} == {".json", ".jsonl", ".safetensors", ".md"}
    assert all(Path(resolve(name)).exists() for name in BUNDLED)


# --- tokenizer and models --------------------------------------------------------------------------------------------------------


def test_tokenizer_keeps_words_whole_and_marks_apart(tokenizer: Any) -> None:
    words = {word for review in write_corpus(CORPUS_SEED, 2000) for word in re.findall(r" [\w']+", review.response)}
    assert len(words) > 200
    assert [word for word in words if len(tokenizer(word)["input_ids"]) != 1] == []
    assert tokenizer.tokenize("superb!!!")[-3:] == ["!", "!", "!"]


def test_tokenizer_special_tokens_and_round_trip(tokenizer: Any) -> None:
    assert tokenizer.pad_token_id is not None and tokenizer.eos_token_id is not None
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    assert tokenizer.padding_side == "left"
    for text in ("The plot is superb, simply superb!", "  spaces\n\tand Größe \N{PILE OF POO}", "director's cut...", ""):
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.decode(ids, skip_special_tokens=True) == text
        assert not {tokenizer.pad_token_id, tokenizer.eos_token_id} & set(ids)


def test_responses_fit_the_recipes_limit(tokenizer: Any) -> None:
    for review in write_corpus(CORPUS_SEED, 1000):
        assert len(tokenizer(review.response)["input_ids"]) < 32
        assert 3 <= len(tokenizer(review.prompt)["input_ids"]) <= 8


def test_shipped_models_do_what_they_should() -> None:
    report: list[str] = []
    assert check_world(WORLD, samples=150, report=report.append), "\n".join(report)
    assert len(report) == 5 + 15 and all(line.startswith("ok") for line in report[5:])


def test_sampling_follows_the_seed_and_leaves_the_random_state(tokenizer: Any) -> None:
    policy = AutoModelForCausalLM.from_pretrained(WORLD / "policy", local_files_only=True)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, again, other = (sample_responses(policy, tokenizer, ["In this western", "I think"], seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    assert torch.equal(before, torch.get_rng_state())
    assert sample_responses(policy, tokenizer, [], seed=1) == []


# --- building ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_small_world_builds_and_fails_its_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """64 reviews teach nothing, so the check at the end must say so; all files are there and load."""
    monkeypatch.setattr("rlhf_studio.lessons.world_build.build.WorldSizes", lambda: SMALL)
    folder = tmp_path / "new"
    assert main(["build", "--dir", str(folder), "--samples", "16", "--threads", "1"]) == 1
    printed = capsys.readouterr().out
    assert "built the world" in printed and "BAD" in printed and "policy: share of reviews that parse" in printed
    manifest = json.loads((folder / "manifest.json").read_bytes())
    assert file_hashes(folder) == {name: value for name, value in manifest["sha256"].items() if name not in ("corpus", "pairs")}
    (folder / "README.md").write_text("not part of the build", encoding="utf-8")
    assert "README.md" not in file_hashes(folder)


@pytest.mark.parametrize("arguments", [[], ["destroy"], ["check", "--samples", "0"], ["check", "--threads", "many"]])
def test_bad_arguments_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert "error:" in capsys.readouterr().err
