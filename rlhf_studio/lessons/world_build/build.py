"""Build the review world from seeds: prompts, tokenizer, policy and reward model, in ten minutes on two CPU cores.

    corpus -> tokenizer -> policy (supervised fine-tuning) -> reward model (preference pairs) -> scores with mean 0, deviation 1

Everything but the trained weights comes out byte for byte the same on every machine; ``manifest.json`` keeps the hashes.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import GPT2Config, GPT2ForSequenceClassification, GPT2LMHeadModel, PreTrainedTokenizerFast

from rlhf_studio.config import RewardTrainingConfig, SFTConfig
from rlhf_studio.engine.models.classifiers import normalise_scores
from rlhf_studio.engine.stages.reward_model.training import (
    Preference,
    RewardTrainingResult,
    initialise_head,
    score_texts,
    train_reward_model,
)
from rlhf_studio.engine.stages.sft import Example, SFTResult, train_sft
from rlhf_studio.engine.stages.supervised.training_loop import OnStep, TrainingProgress
from rlhf_studio.inputs.world.corpus import CORPUS_SEED, EVAL_SEED, PAIRS_SEED, RatedPair, write_corpus, write_pairs, write_prompts
from rlhf_studio.inputs.world.writer import Review
from rlhf_studio.lessons.world_build.check import sample_responses
from rlhf_studio.units import percent

PROMPTS_SEED, MODEL_SEED = 4, 5
PAD, EOS = "<|pad|>", "<|endoftext|>"
POSITIONS = 512
"""Longest texts the models take, in tokens; reviews have about 35."""

Log = Callable[[str], None]


@dataclass(frozen=True)
class WorldSizes:
    """How much of everything the build makes. Tests build a small world."""

    reviews: int = 110_000
    tokenizer_reviews: int = 20_000
    vocabulary: int = 1280  # at most; the trainer stops when every word is one token
    pairs: int = 16_000
    eval_items: int = 1000
    prompts: int = 512
    heldout_prompts: int = 128
    calibration_samples: int = 1024
    hashed_items: int = 2000


def build_world(out: Path, sizes: WorldSizes, report: Log) -> dict[str, Any]:
    """Build everything and write it below ``out``; returns the manifest."""
    start = time.monotonic()
    reviews = write_corpus(CORPUS_SEED, sizes.reviews)
    pairs = write_pairs(PAIRS_SEED, sizes.pairs)
    prompts, heldout = build_prompts(sizes)
    report(f"wrote {len(reviews)} reviews, {len(pairs)} preference pairs and {len(prompts) + len(heldout)} prompts")
    tokenizer = build_tokenizer(reviews[: sizes.tokenizer_reviews], sizes.vocabulary)
    policy, policy_result = build_policy(tokenizer, reviews, sizes, report)
    reward, reward_result = build_reward_model(policy, tokenizer, pairs, sizes, report)
    calibrate(policy, reward, tokenizer, prompts, sizes, report)

    out.mkdir(parents=True, exist_ok=True)
    save_model(policy, tokenizer, out / "policy", padding_side="left")
    save_model(reward, tokenizer, out / "reward", padding_side="right")
    (out / "prompts.jsonl").write_bytes(json_lines({"prompt": prompt} for prompt in prompts))
    (out / "prompts_heldout.jsonl").write_bytes(json_lines({"prompt": prompt} for prompt in heldout))
    manifest = {
        "sizes": asdict(sizes),
        "policy_eval_loss": round(policy_result.eval_loss or 0.0, 4),
        "reward_eval_accuracy": round(reward_result.eval_accuracy or 0.0, 4),
        "seconds": round(time.monotonic() - start),
        "versions": {module.__name__: module.__version__ for module in (torch, transformers, tokenizers)},
        "sha256": data_hashes(reviews, pairs, sizes) | file_hashes(out),
    }
    (out / "manifest.json").write_bytes(json.dumps(manifest, indent=2).encode() + b"\n")
    report(f"built the world in {time.monotonic() - start:.0f} s at {out}")
    return manifest


# --- prompts and tokenizer -----------------------------------------------------------------------------------------------------


def build_prompts(sizes: WorldSizes) -> tuple[list[str], list[str]]:
    """Prompts for training, and others to check with."""
    prompts = write_prompts(PROMPTS_SEED, sizes.prompts + sizes.heldout_prompts)
    return prompts[: sizes.prompts], prompts[sizes.prompts :]


def build_tokenizer(reviews: Sequence[Review], vocabulary: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer as GPT-2's, but marks stand alone, so that ``!!!`` is three tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex("[.,!?]"), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, EOS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator((review.prompt + review.response for review in reviews), trainer)
    return for_transformers(tokenizer, POSITIONS)


def for_transformers(tokenizer: Tokenizer, positions: int) -> PreTrainedTokenizerFast:
    """A trained tokenizer as transformers takes it: it pads on the left, and texts begin and end with the end token."""
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=EOS,
        eos_token=EOS,
        pad_token=PAD,
        padding_side="left",
        model_max_length=positions,
        clean_up_tokenization_spaces=False,
    )


# --- models --------------------------------------------------------------------------------------------------------------------


def build_policy(
    tokenizer: PreTrainedTokenizerFast, reviews: Sequence[Review], sizes: WorldSizes, report: Log
) -> tuple[GPT2LMHeadModel, SFTResult]:
    """The policy: 1.2 million parameters, one pass over the corpus."""
    torch.manual_seed(MODEL_SEED)
    model = GPT2LMHeadModel(_shape(tokenizer))
    config = SFTConfig(batch_size=64, learning_rate=3e-3, lr_schedule="cosine", warmup_steps=50, weight_decay=0.01, adam_beta2=0.98)
    result = train_sft(
        model,
        tokenizer,
        [Example(review.prompt, review.response) for review in reviews],
        config,
        seed=MODEL_SEED,
        eval_examples=[Example(review.prompt, review.response) for review in write_corpus(EVAL_SEED, sizes.eval_items)],
        on_step=reporter(report, "policy"),
    )
    report(f"policy: {model.num_parameters()} parameters, eval loss {result.eval_loss:.3f} nats per token, {result.seconds:.0f} s")
    return model, result


def build_reward_model(
    policy: GPT2LMHeadModel, tokenizer: PreTrainedTokenizerFast, pairs: Sequence[RatedPair], sizes: WorldSizes, report: Log
) -> tuple[GPT2ForSequenceClassification, RewardTrainingResult]:
    """The reward model: the policy's trunk with a new head, one pass over the preference pairs."""
    model = GPT2ForSequenceClassification(_shape(tokenizer, num_labels=1))
    model.transformer.load_state_dict(policy.transformer.state_dict())
    initialise_head(model, MODEL_SEED)
    config = RewardTrainingConfig(batch_size=32, learning_rate=5e-4, warmup_steps=20, weight_decay=0.01)
    result = train_reward_model(
        model,
        tokenizer,
        preferences(pairs),
        config,
        seed=MODEL_SEED,
        eval_pairs=preferences(write_pairs(EVAL_SEED, sizes.eval_items)),
        on_step=reporter(report, "reward model"),
    )
    assert result.eval_accuracy is not None  # there are held-out pairs
    agrees = f"agrees with {percent(result.eval_accuracy, 1)} of held-out preferences"
    report(f"reward model: {model.num_parameters()} parameters, {agrees}, {result.seconds:.0f} s")
    return model, result


def calibrate(policy: Any, reward: Any, tokenizer: Any, prompts: Sequence[str], sizes: WorldSizes, report: Log) -> None:
    """Rescale the reward model so that the policy's own reviews score with mean 0 and standard deviation 1."""
    sampled = [prompts[index % len(prompts)] for index in range(sizes.calibration_samples)]
    written = sample_responses(policy, tokenizer, sampled, seed=MODEL_SEED)
    texts = [prompt + response.text for prompt, response in zip(sampled, written, strict=True)]
    scores = score_texts(reward, tokenizer, texts)
    normalise_scores(reward, scores)
    report(f"reward model: raw scores of policy samples had mean {scores.mean():.2f} and deviation {scores.std():.2f}; now 0 and 1")


def preferences(pairs: Iterable[RatedPair]) -> list[Preference]:
    return [Preference(pair.prompt, pair.chosen, pair.rejected) for pair in pairs]


def save_model(model: Any, tokenizer: PreTrainedTokenizerFast, folder: Path, *, padding_side: str) -> None:
    """Safetensors, config and tokenizer. The reward model pads on the right, where it needs no position ids of its own."""
    tokenizer.padding_side = padding_side
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for path in folder.iterdir():
        path.chmod(0o644)  # safetensors writes files that only their owner can read


def _shape(tokenizer: PreTrainedTokenizerFast, **more: Any) -> GPT2Config:
    ends: dict[str, Any] = dict.fromkeys(("bos_token_id", "eos_token_id"), tokenizer.eos_token_id)
    ends["pad_token_id"] = tokenizer.pad_token_id
    drops: dict[str, Any] = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return GPT2Config(vocab_size=len(tokenizer), n_positions=POSITIONS, n_embd=160, n_layer=3, n_head=5, **ends, **drops, **more)


def reporter(report: Log, name: str) -> OnStep:
    """Tells ``report`` of every hundredth step of a training."""

    def each_step(progress: TrainingProgress) -> None:
        if progress.step % 100 == 0 or progress.step == progress.steps:
            report(f"{name}: step {progress.step} of {progress.steps}, loss {progress.loss:.3f}, {progress.seconds:.0f} s")

    return each_step


# --- hashes --------------------------------------------------------------------------------------------------------------------


def json_lines(rows: Iterable[Any]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode("utf-8")


def data_hashes(reviews: Sequence[Review], pairs: Sequence[RatedPair], sizes: WorldSizes) -> dict[str, str]:
    """Hashes of the first reviews and pairs, which are not shipped: ``corpus`` and ``pairs``."""
    rows: dict[str, Sequence[Any]] = {"corpus": reviews, "pairs": pairs}
    return {name: _sha256(json_lines(asdict(item) for item in items[: sizes.hashed_items])) for name, items in rows.items()}


def file_hashes(folder: Path) -> dict[str, str]:
    """Hash of every shipped file by its path below ``folder``, but the manifest and the README."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in ("manifest.json", "README.md"))
    return {path.relative_to(folder).as_posix(): _sha256(path.read_bytes()) for path in files}


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
