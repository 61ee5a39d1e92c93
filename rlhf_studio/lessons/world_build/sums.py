"""The world of sums, for a reward that is right or wrong: questions in GSM8K's form, and a tiny policy that adds with slips.

    questions -> sums written out, some with slips -> policy (supervised fine-tuning) -> assets/sums

A sum is written out column by column from the right, as at school. The corpus makes slips in it: a column's total is off by one, or a
carry is forgotten. What follows goes on from the slip, so an answer is right only when every column is. The policy learns to add and to
slip; what PPO can teach it is to slip no more. The questions to train and to measure on are none of the corpus.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import tokenizers
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from rlhf_studio.config import SFTConfig
from rlhf_studio.engine.rewards.kinds.numbers import last_number
from rlhf_studio.engine.stages.sft import Example, SFTResult, train_sft
from rlhf_studio.lessons.world_build.build import EOS, PAD, file_hashes, for_transformers, json_lines, reporter, save_model
from rlhf_studio.lessons.world_build.check import Figure, sample_responses

QUESTIONS_SEED, SLIPS_SEED, MODEL_SEED, CHECK_SEED = 11, 12, 13, 14
LOWEST, HIGHEST = 100, 999
"""Of the two numbers of a sum."""
SLIP = 0.25
"""Chance of a slip in a column: all three are right in 0.75³ = 42 % of the sums."""
POSITIONS = 128
"""Longest texts that the policy takes, in characters; a question with its answer has about 50."""

Log = Callable[[str], None]
Sum = tuple[int, int]


@dataclass(frozen=True)
class SumsSizes:
    """How much of everything the build makes. Tests build a small one."""

    heldout_prompts: int = 256
    prompts: int = 768
    examples: int = 40_000
    eval_examples: int = 256


def build_sums(out: Path, sizes: SumsSizes, report: Log) -> dict[str, Any]:
    """Build everything and write it below ``out``; returns the manifest."""
    start = time.monotonic()
    heldout, prompts, corpus = draw_questions(sizes)
    examples, eval_examples = write_examples(corpus, heldout[: sizes.eval_examples])
    right = fmean(is_right(sums, example.response) for sums, example in zip(corpus, examples, strict=True))
    report(f"wrote {len(examples)} sums, of which {right:.1%} are right, and {len(prompts) + len(heldout)} questions")
    tokenizer = build_tokenizer()
    policy, result = build_policy(tokenizer, examples, eval_examples, report)
    out.mkdir(parents=True, exist_ok=True)
    save_model(policy, tokenizer, out / "policy", padding_side="left")
    for name, sums in (("prompts", prompts), ("prompts_heldout", heldout)):
        (out / f"{name}.jsonl").write_bytes(json_lines(row_of(each) for each in sums))
    manifest = {
        "sizes": asdict(sizes),
        "right_in_corpus": round(right, 4),
        "policy_eval_loss": round(result.eval_loss or 0.0, 4),
        "seconds": round(time.monotonic() - start),
        "versions": {module.__name__: module.__version__ for module in (torch, transformers, tokenizers)},
        "sha256": file_hashes(out),
    }
    (out / "manifest.json").write_bytes(json.dumps(manifest, indent=2).encode() + b"\n")
    report(f"built the world of sums in {time.monotonic() - start:.0f} s at {out}")
    return manifest


# --- sums ----------------------------------------------------------------------------------------------------------------------


def question_of(numbers: Sum) -> str:
    """``347 + 285 = ?``"""
    return f"{numbers[0]} + {numbers[1]} = ?"


def prompt_of(numbers: Sum) -> str:
    """The question as the policy reads it, which the recipes' ``data.prompt_format`` writes alike."""
    return f"{question_of(numbers)}\n"


def row_of(numbers: Sum) -> dict[str, str]:
    """The question with its worked answer, as a row of GSM8K is."""
    return {"question": question_of(numbers), "answer": written_out(numbers)}


def written_out(numbers: Sum, draw: Random | None = None) -> str:
    """The sum column by column from the right, and ``####`` with the answer; with ``draw`` some columns have a slip.

    347 + 285 gives the lines ``7+5=12``, ``4+8+1=13``, ``3+2+1=6`` and ``#### 632``.
    """
    lines, digits, carry = [], "", 0
    columns = list(zip(*(map(int, reversed(str(number))) for number in numbers), strict=True))
    for place, (first, second) in enumerate(columns):
        forgotten = off = 0
        if draw is not None and draw.random() < SLIP:
            if carry and draw.random() < 0.5:
                forgotten = carry
            else:
                off = draw.choice((-1, 1)) if first + second + carry else 1
        carry -= forgotten
        total = first + second + carry + off
        lines.append(f"{first}+{second}" + (f"+{carry}" if carry else "") + f"={total}")
        last = place == len(columns) - 1
        digits = f"{total if last else total % 10}{digits}"
        carry = total // 10
    return "\n".join([*lines, f"#### {digits}"])


def is_right(numbers: Sum, response: str) -> bool:
    """Whether the response ends with the right number, as the rule ``answer`` reads it."""
    return last_number(response) == sum(numbers)


def draw_questions(sizes: SumsSizes) -> tuple[list[Sum], list[Sum], list[Sum]]:
    """Different sums: to measure on, to train on by reward, and those of the corpus."""
    draw, drawn = Random(QUESTIONS_SEED), dict[Sum, None]()
    aside = sizes.heldout_prompts + sizes.prompts
    while len(drawn) < aside + sizes.examples:
        drawn[draw.randint(LOWEST, HIGHEST), draw.randint(LOWEST, HIGHEST)] = None
    sums = list(drawn)
    return sums[: sizes.heldout_prompts], sums[sizes.heldout_prompts : aside], sums[aside:]


def write_examples(corpus: Sequence[Sum], heldout: Sequence[Sum]) -> tuple[list[Example], list[Example]]:
    """The corpus with its slips, and as many held-out sums, written likewise."""
    draw = Random(SLIPS_SEED)
    learned, measured = ([Example(prompt_of(sums), written_out(sums, draw)) for sums in side] for side in (corpus, heldout))
    return learned, measured


# --- policy --------------------------------------------------------------------------------------------------------------------


def build_tokenizer() -> PreTrainedTokenizerFast:
    """One token for each byte, so that any text can be read; pad is 0, end of text is 1."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    no_merges = 2 + len(alphabet)
    trainer = trainers.BpeTrainer(vocab_size=no_merges, special_tokens=[PAD, EOS], initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([], trainer)
    return for_transformers(tokenizer, POSITIONS)


def build_policy(
    tokenizer: PreTrainedTokenizerFast, examples: Sequence[Example], eval_examples: Sequence[Example], report: Log
) -> tuple[GPT2LMHeadModel, SFTResult]:
    """The policy: 0.37 million parameters, one pass over the corpus."""
    torch.manual_seed(MODEL_SEED)
    ends: dict[str, Any] = dict.fromkeys(("bos_token_id", "eos_token_id"), tokenizer.eos_token_id)
    drops: dict[str, Any] = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    shape: dict[str, Any] = {"vocab_size": len(tokenizer), "n_positions": POSITIONS, "n_embd": 96, "n_layer": 3, "n_head": 4}
    model = GPT2LMHeadModel(GPT2Config(**shape, **ends, **drops, pad_token_id=tokenizer.pad_token_id))
    config = SFTConfig(batch_size=64, learning_rate=3e-3, lr_schedule="cosine", warmup_steps=50, weight_decay=0.01, adam_beta2=0.98)
    result = train_sft(model, tokenizer, examples, config, seed=MODEL_SEED, eval_examples=eval_examples, on_step=reporter(report, "policy"))
    report(f"policy: {model.num_parameters()} parameters, eval loss {result.eval_loss:.3f} nats per token, {result.seconds:.0f} s")
    return model, result


# --- check ---------------------------------------------------------------------------------------------------------------------


def check_sums(folder: Path, report: Log) -> bool:
    """Measure the policy in ``folder`` on its held-out questions, once each; True when every figure holds."""
    policy = AutoModelForCausalLM.from_pretrained(folder / "policy", dtype=torch.float32, local_files_only=True)
    tokenizer = AutoTokenizer.from_pretrained(folder / "policy", local_files_only=True)
    rows = [json.loads(line) for line in (folder / "prompts_heldout.jsonl").read_text(encoding="utf-8").splitlines()]
    written = sample_responses(policy, tokenizer, [f"{row['question']}\n" for row in rows], seed=CHECK_SEED, most_tokens=40)
    right = [last_number(response.text) == last_number(row["answer"]) for row, response in zip(rows, written, strict=True)]
    figures = [
        Figure("policy: share of held-out sums with the right answer before any training by reward", fmean(right), 0.25, 0.55),
        Figure("policy: share of answers that end with the end token", fmean(response.stopped for response in written), 0.98),
    ]
    for row, response in list(zip(rows, written, strict=True))[:3]:
        report(f"sample: {row['question']} | {response.text!r}")
    for figure in figures:
        report(str(figure))
    return all(figure.holds for figure in figures)
